"""Sequence numbers and the two floors: what a topic counts, what stays lost, what never comes back."""

from __future__ import annotations

import random

import pytest

from tests.contract.world.world import World, seqs, tombstone


def floors(world: World, topic: str = "t") -> tuple[int, int, int, int]:
    """Head, earliest, count, bytes."""
    state = world.state(topic)
    assert state["next_seq"] == state["head_seq"] + 1
    return state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]


def test_a_topic_counts_from_one(world: World) -> None:
    """R-SEQ-1: zero means nothing was ever assigned."""
    world.put("t")
    assert floors(world) == (0, 1, 0, 0)
    assert world.write("t", "a")["first_seq"] == 1
    assert floors(world) == (1, 1, 1, 3)


def test_a_batch_gets_consecutive_numbers_in_its_order(world: World) -> None:
    """R-SEQ-2: from the one after the head."""
    world.write("t", "before")
    answer = world.write("t", *range(5))
    assert (answer["first_seq"], answer["last_seq"], answer["seqs"]) == (2, 6, [2, 3, 4, 5, 6])
    assert world.data("t") == ["before", 0, 1, 2, 3, 4]


def test_concurrent_writes_never_share_or_skip_a_number(world: World) -> None:
    """R-SEQ-2, R-SEQ-3: order of numbers is order of delivery; each batch stays together."""
    world.put("t", durability="fsync")
    writers = [
        world.ask("POST", "/v0/topics/t", {"records": [{"data": [writer, n]} for n in range(3)]})
        for writer in range(20)
    ]
    firsts = sorted(writer.answer().json["first_seq"] for writer in writers)
    assert firsts == list(range(1, 61, 3))
    records = world.diff("t")["records"]
    assert [record["$seq"] for record in records] == list(range(1, 61))
    for start in range(0, 60, 3):
        writer = records[start]["data"][0]
        assert [record["data"] for record in records[start : start + 3]] == [[writer, 0], [writer, 1], [writer, 2]]


def test_nothing_is_read_before_it_is_committed(world: World) -> None:
    """R-SEQ-3: a read while a write is in flight sees all of it or nothing, and never a gap."""
    world.put("t", durability="fsync")
    connections = [world.connect() for _ in range(6)]
    pending = []
    for number in range(30):
        write = world.ask("POST", "/v0/topics/t", {"records": [{"data": number}] * 2})
        pending.append(write)
        page = connections[number % 6].request("POST", "/v0/topics/t/diff", {"limit": 1000}).json
        numbers = seqs(page)
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) % 2 == 0
        assert page["head_seq"] == len(numbers)
    for write in pending:
        assert write.answer().status == 200


def test_the_head_never_falls(world: World) -> None:
    """R-SEQ-4: deletes, caps and restarts leave it."""
    world.write("t", 1, 2, 3)
    world.delete("t", before_seq=99)
    assert floors(world) == (3, 4, 0, 0)
    world.restart()
    assert floors(world) == (3, 4, 0, 0)
    assert world.write("t", 4)["first_seq"] == 4


def test_records_of_a_write_share_a_time_that_never_falls(world: World) -> None:
    """R-SEQ-5: not even when the clock steps back."""
    world.write("t", 1, 2)
    world.step_clock_ms(-60_000)
    world.write("t", 3)
    world.step_clock_ms(120_000)
    world.write("t", 4, 5)
    stamps = [record["$ts"] for record in world.diff("t")["records"]]
    assert stamps[0] == stamps[1] == stamps[2]
    assert stamps[3] == stamps[4] >= stamps[0] + 60_000


def test_time_does_not_fall_across_a_restart(world: World) -> None:
    """R-SEQ-5: the last stamp is remembered with the records."""
    stamp = world.write("t", 1) and world.diff("t")["records"][0]["$ts"]
    for crash in (False, True):
        world.step_clock_ms(-10_000)
        world.crash_and_start() if crash else world.restart()
        world.write("t", 2)
    assert [record["$ts"] for record in world.diff("t")["records"]] == [stamp] * 3


REFUSED = [
    {"records": []},
    {"records": [{"data": 1}, {"data": 1, "tag": "t" * 257}]},
    {"records": [{"data": 1}, {}]},
    {"records": [{"data": 1}] * 6, "idempotency_key": "k"},
    {"records": [{"data": 1}] * 4, "idempotency_key": "k"},
    {"records": [{"data": "x" * 2000}]},
]


@pytest.mark.parametrize("body", REFUSED, ids=range(len(REFUSED)))
def test_a_refused_write_changes_nothing(world: World, body: dict[str, object]) -> None:
    """R-SEQ-6: head, count, bytes and keys are as before."""
    world.put("t", discard="reject", cap_records=5, cap_bytes=1000)
    world.write("t", 1, 2)
    before = world.state("t")
    assert world.request("POST", "/v0/topics/t", body).status in (400, 422)
    after = world.state("t")
    before.pop("performance"), after.pop("performance")
    assert after == before
    assert world.write("t", 3, idempotency_key="k")["deduped"] is False


def test_a_write_the_disk_refused_is_not_visible(world: World) -> None:
    """R-SEQ-6: afterwards no client reads it; what was there stays."""
    world.put("t", durability="fsync")
    world.write("t", "good")
    world.fail_storage("write", 5, times=10)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": "bad"}]}).status == 500
    world.heal_storage()
    assert world.data("t") == ["good"]


# --- floors ---------------------------------------------------------------------------------------------------------
def test_the_earliest_is_the_first_live_record_or_the_one_to_come(world: World) -> None:
    """R-FLOOR-1, R-FLOOR-2: whatever took the others."""
    world.write_records("t", [{"data": n, "tag": str(n)} for n in range(1, 6)])
    world.delete("t", match="1")
    assert floors(world)[1] == 2
    world.delete("t", match="3")
    assert floors(world)[1] == 2
    world.delete("t", match="2")
    assert floors(world)[1] == 4
    world.delete("t", match="*")
    assert floors(world) == (5, 6, 0, 0)


def test_deletion_does_not_move_what_was_lost_involuntarily(world: World) -> None:
    """R-FLOOR-3, R-FLOOR-4: an old cursor gets a report of only the cap's loss."""
    world.put("t", cap_records=3)
    world.write("t", *range(1, 7))
    world.delete("t", before_seq=6)
    assert floors(world)[:3] == (6, 6, 1)
    assert world.diff("t")["tombstone"] == tombstone(1, 3, "cap", 6)


def test_what_was_evicted_never_comes_back(world: World) -> None:
    """R-FLOOR-5: not when the cap is raised, not after a restart or a crash."""
    world.put("t", cap_records=2)
    world.write("t", *range(1, 6))
    for cap in (100, 0):
        world.put("t", cap_records=cap)
        assert world.data("t") == [4, 5]
    for crash in (True, False):
        world.crash_and_start() if crash else world.restart()
        page = world.diff("t")
        assert (seqs(page), page["tombstone"]) == ([4, 5], tombstone(1, 3, "cap", 5))


def test_what_expired_never_comes_back(world: World) -> None:
    """R-FLOOR-5: not when the time to live grows or is removed, nor when the clock steps back."""
    world.put("t", ttl_ms=100)
    world.write("t", 1)
    world.advance_ms(200)
    world.write("t", 2)
    assert floors(world)[:3] == (2, 2, 1)
    world.put("t", ttl_ms=10**9)
    assert world.data("t") == [2]
    world.put("t")
    world.step_clock_ms(-10_000)
    assert world.data("t") == [2]
    for crash in (True, False):
        world.crash_and_start() if crash else world.restart()
        page = world.diff("t")
        assert (seqs(page), page["tombstone"]) == ([2], tombstone(1, 1, "ttl", 2))


def test_count_and_bytes_are_exact(world: World) -> None:
    """R-FLOOR-6: a run of writes, deletes and evictions beside a plain model."""
    rng = random.Random(6)
    world.put("t", cap_records=40, cap_bytes=400)
    live: dict[int, tuple[str, int]] = {}
    head = 0
    for _ in range(120):
        if rng.random() < 0.7:
            records = [{"data": "x" * rng.randrange(20), "tag": rng.choice("abc")} for _ in range(rng.randint(1, 6))]
            world.write_records("t", records)
            for record in records:
                head += 1
                live[head] = (record["tag"], len(record["data"]) + 2)
            while len(live) > 40 or sum(size for _, size in live.values()) > 400:
                del live[min(live)]
        elif rng.random() < 0.5:
            bound = rng.randint(max(0, head - 50), head + 2)
            world.delete("t", before_seq=bound)
            live = {seq: value for seq, value in live.items() if seq >= bound}
        else:
            tag = rng.choice("abc")
            world.delete("t", match=tag)
            live = {seq: value for seq, value in live.items() if value[0] != tag}
        size = sum(size for _, size in live.values())
        assert floors(world) == (head, min(live, default=head + 1), len(live), size)
    assert seqs(world.diff("t", limit=1000)) == sorted(live)


@pytest.mark.parametrize("look", ["state", "list", "diff", "delete", "if_empty", "write"])
def test_retention_is_applied_before_any_answer_that_depends_on_it(world: World, look: str) -> None:
    """R-FLOOR-7: time by itself is enough, whichever request comes first."""
    world.put("t", ttl_ms=100, cap_records=1, discard="reject")
    world.write("t", "old")
    world.advance_ms(101)
    if look == "state":
        assert floors(world) == (1, 2, 0, 0)
    elif look == "list":
        row = world.request("GET", "/v0/topics").json["topics"][0]
        assert (row["head_seq"], row["earliest_seq"], row["count"], row["bytes"]) == (1, 2, 0, 0)
    elif look == "diff":
        page = world.diff("t")
        assert (seqs(page), page["earliest_seq"], page["tombstone"]["reason"]) == ([], 2, "ttl")
    elif look == "delete":
        answer = world.delete("t", before_seq=100)
        assert (answer["deleted"], answer["earliest_seq"], answer["count"]) == (0, 2, 0)
    elif look == "if_empty":
        assert world.request("DELETE", "/v0/topics/t?if_empty=true").json["deleted"] is True
    else:
        assert world.write("t", "new")["first_seq"] == 2, "the expired record takes no room"
