"""Records that survive restarts, kills, power cuts, broken and full disks, by class."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.contract.conftest import MakeWorld, is_live
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World, seqs, tombstone

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
READ_ONLY = (500, "internal", {"reason": "read_only"})


def walk(world: World, topic: str = "t", cursor: int = 0) -> tuple[list[tuple[int, Any]], list[Any]]:
    """A reader's way from a cursor to the head: records as (seq, data), and the tombstones it met."""
    records: list[tuple[int, Any]] = []
    tombstones: list[Any] = []
    while True:
        page = world.diff(topic, cursor, limit=1000)
        if page["tombstone"] is not None:
            tombstones.append(page["tombstone"])
        records += [(record["$seq"], record["data"]) for record in page["records"]]
        if page["caught_up"]:
            return records, tombstones
        assert page["next_from_seq"] > cursor or page["tombstone"]
        cursor = page["next_from_seq"]


def everything(world: World) -> dict[str, Any]:
    """All that a restart must not change."""
    found = {}
    for row in world.request("GET", "/v0/topics?page_size=1000").json["topics"]:
        state = world.state(row["topic"])
        for field in ("performance", "last_read_ts", "last_write_ts", "effective_priority"):
            state.pop(field)
        found[row["topic"]] = (state, walk(world, row["topic"]))
    return found


# --- configuration and topics ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("durability", CLASSES)
def test_topics_and_their_configurations_are_synced_before_the_answer(world: World, durability: str) -> None:
    """R-DUR-1: for every class, through a power cut."""
    config = world.put("made", durability=durability, ttl_ms=10**9, priority=7)["config"]
    world.put("changed", durability=durability)
    changed = world.put("changed", durability=durability, cap_records=9)["config"]
    world.write("written", 1, config={"durability": durability, "cap_bytes": 77})
    world.put("gone", durability=durability)
    world.drop("gone")
    world.power_cut()
    world.start()
    assert world.state("made")["config"] == config
    assert world.state("changed")["config"] == changed
    assert world.state("written")["config"]["cap_bytes"] == 77
    assert world.request("GET", "/v0/topics/gone").status == 404


# --- by class -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(6))
def test_no_acknowledged_record_of_class_fsync_is_ever_lost(request: pytest.FixtureRequest, seed: int) -> None:
    """R-DUR-2, R-DUR-9: writers, deletes and crashes by a seed; each write is there whole or not at all."""
    if is_live(request.config):
        pytest.skip("a simulated machine")
    rng = random.Random(seed)
    world = SimWorld(seed, shuffle=True, split=True)
    world.start()
    world.put("t", durability="fsync")
    known: dict[int, Any] = {}
    deleted_below, number = 1, 0
    for _ in range(5):
        pending = []
        for _ in range(rng.randint(1, 12)):
            count = rng.randint(1, 4)
            data = [[number, part, count] for part in range(count)]
            number += 1
            pending.append((world.ask("POST", "/v0/topics/t", {"records": [{"data": each} for each in data]}), data))
        world.advance_us(rng.randint(0, 1500))
        for connection, data in pending:
            if not connection.nothing_came:
                answer = connection.answer().json
                known |= dict(zip(answer["seqs"], data, strict=True))
        if known and rng.random() < 0.5:
            deleted_below = max(deleted_below, rng.choice(sorted(known)))
            world.delete("t", before_seq=deleted_below)
        world.power_cut() if rng.random() < 0.7 else world.crash()
        world.start()
        records, tombstones = walk(world)
        assert tombstones == []
        found = dict(records)
        for seq, data in known.items():
            assert found.get(seq) == (data if seq >= deleted_below else None), f"seed {seed}: seq {seq}"
        for seq, (_write, part, count) in records:
            siblings = [found.get(seq - part + other) for other in range(count) if seq - part + other >= deleted_below]
            assert all(sibling is not None for sibling in siblings), f"seed {seed}: half a write at {seq}"
        known = found
    world.close()


def test_a_write_that_failed_takes_nothing_else_with_it(world: World) -> None:
    """R-DUR-2: what was acknowledged before it and after the restart stays."""
    world.put("t", durability="fsync")
    world.write("t", "before")
    world.fail_storage("sync", errno.EIO)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": "failed"}]}).status == 500
    world.crash_and_start()
    after = world.write("t", "after")["first_seq"]
    world.power_cut()
    world.start()
    records = dict(walk(world)[0])
    assert records[1] == "before"
    assert records[after] == "after"


@pytest.mark.parametrize("kind", ["crash", "power_cut"])
@pytest.mark.parametrize("seed", seeds(6))
def test_survivors_of_class_disk_are_a_prefix(request: pytest.FixtureRequest, seed: int, kind: str) -> None:
    """R-DUR-3, R-DUR-6: with no acknowledged number given out again; a kill loses nothing at all."""
    if is_live(request.config):
        pytest.skip("a simulated machine")
    rng = random.Random(seed)
    world = SimWorld(seed, shuffle=True, sync_every_ms=50)
    world.start()
    acknowledged: dict[int, int] = {}
    for life in range(4):
        for number in range(rng.randint(1, 30)):
            acknowledged[world.write("t", number)["first_seq"]] = number
            if rng.random() < 0.2:
                world.advance_ms(rng.randint(1, 60))
        head = max(acknowledged)
        world.crash() if kind == "crash" else world.power_cut()
        world.start()
        records, tombstones = walk(world)
        found = dict(records)
        state = world.state("t")
        assert state["count"] == len(records)
        if kind == "crash":
            assert (found, tombstones, state["head_seq"]) == (acknowledged, [], head), f"seed {seed} life {life}"
        lost = sorted(set(acknowledged) - set(found))
        assert all(found.get(seq, value) == value for seq, value in acknowledged.items())
        assert lost == [seq for seq in sorted(acknowledged) if lost and seq >= lost[0]], f"seed {seed}: not a prefix"
        for stone in tombstones:
            assert stone["reason"] == "crash"
            assert stone["missed_estimate"] == stone["gap_to"] - stone["gap_from"] + 1
        for seq in lost:
            assert any(stone["gap_from"] <= seq <= stone["gap_to"] for stone in tombstones), f"seed {seed}: {seq}"
        after = world.write("t", "after")["first_seq"]
        assert after > head
        acknowledged = {**found, after: "after"}
    world.close()


def test_a_crash_gap_is_an_interior_gap(world: World) -> None:
    """R-DUR-6, R-TOMB-1, R-DUR-9: readers before it stop at it, readers at it get a report, readers after it do not."""
    world.put("t", durability="fsync")
    world.write("t", "kept", "kept")
    world.put("t", durability="disk")
    for number in range(50):
        world.write("t", number)
    world.power_cut()
    world.start()
    records, tombstones = walk(world)
    if not tombstones:
        pytest.skip("this machine lost nothing")
    (stone,) = tombstones
    first, last = stone["gap_from"], stone["gap_to"]
    assert last >= 52
    after = world.write("t", "after")["first_seq"]
    assert after > last
    for crash in (False, True):
        page = world.diff("t", 0)
        assert seqs(page) == [seq for seq, _ in records]
        assert (page["next_from_seq"], page["caught_up"], page["tombstone"]) == (first - 1, False, None)
        for cursor in (first - 1, first, last - 1):
            page = world.diff("t", cursor)
            assert page["tombstone"] == tombstone(cursor + 1, last, "crash", after)
            assert seqs(page) == [after]
        page = world.diff("t", last)
        assert (page["tombstone"], seqs(page)) == (None, [after])
        assert world.state("t")["count"] == len(records) + 1
        world.put("t", durability="fsync")
        world.crash_and_start() if crash else world.restart()


def test_a_graceful_stop_keeps_heads_exactly(world: World) -> None:
    """R-DUR-6, R-DUR-5: even if the newest records had been deleted, in every class."""
    for durability in CLASSES:
        world.put(durability, durability=durability)
        world.write(durability, *range(7))
        world.delete(durability, before_seq=100)
    world.restart()
    for durability in CLASSES:
        assert world.state(durability)["head_seq"] == 7, durability
        assert world.write(durability, 1)["first_seq"] == 8


@pytest.mark.parametrize("end", ["restart", "crash", "power_cut"])
def test_what_is_left_of_class_memory_was_written(world: World, end: str) -> None:
    """R-DUR-4: some or none of it, nothing else, and no higher head."""
    world.put("t", durability="memory")
    for number in range(40):
        world.write("t", [number, number], [number])
    getattr(world, "stop" if end == "restart" else end)()
    world.start()
    state = world.state("t")
    assert state["head_seq"] <= 80
    for seq, data in walk(world)[0]:
        assert data == ([(seq - 1) // 2] * 2 if seq % 2 else [(seq - 1) // 2])
    assert world.write("t", "new")["first_seq"] == state["head_seq"] + 1


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_class_ephemeral_is_empty_after_a_restart(world: World, end: str) -> None:
    """R-DUR-5: with its configuration, and a head that a graceful restart keeps."""
    config = world.put("t", durability="ephemeral", cap_records=5)["config"]
    world.write("t", *range(9))
    getattr(world, "stop" if end == "restart" else end)()
    world.start()
    state = world.state("t")
    assert (state["count"], state["bytes"], state["config"]) == (0, 0, config)
    assert state["head_seq"] == 9 or (end == "crash" and state["head_seq"] <= 9)
    assert state["earliest_seq"] == state["head_seq"] + 1
    assert world.write("t", 1)["first_seq"] == state["head_seq"] + 1


@pytest.mark.parametrize("durability", CLASSES)
def test_records_are_readable_from_the_moment_of_the_answer(world: World, durability: str) -> None:
    """13.4: in every class."""
    world.put("t", durability=durability)
    for number in range(1, 20):
        world.write("t", number)
        assert world.diff("t", number - 1)["records"][0]["data"] == number


# --- deletes, floors, gaps ------------------------------------------------------------------------------------------
def test_a_synced_delete_survives_a_power_cut(world: World) -> None:
    """R-DUR-7: with its bound; records written after it stay."""
    world.put("t", durability="fsync")
    world.write_records("t", [{"data": n, "tag": "x" if n % 2 else "y"} for n in range(1, 9)])
    world.delete("t", before_seq=4)
    world.delete("t", match="x")
    world.write_records("t", [{"data": 9, "tag": "x"}])
    for _ in range(3):
        world.power_cut()
        world.start()
        assert [data for _, data in walk(world)[0]] == [4, 6, 8, 9]
        assert walk(world)[1] == []


@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_reported_lost_never_comes_back(make_world: MakeWorld, seed: int) -> None:
    """R-DUR-8, R-DUR-9: by cap and by age, with its reason, through power cuts."""
    world = make_world(seed=seed, shuffle=True)
    world.put("cap", durability="fsync", cap_records=3)
    world.put("bytes", durability="fsync", cap_bytes=10)
    world.put("ttl", durability="fsync", ttl_ms=1000)
    for topic in ("cap", "bytes", "ttl"):
        world.write(topic, *"abcdefg")
    world.advance_ms(1001)
    world.write("ttl", "h")
    before = {topic: walk(world, topic) for topic in ("cap", "bytes", "ttl")}
    assert [stones[0]["reason"] for _, stones in before.values()] == ["cap", "cap", "ttl"]
    world.step_clock_ms(-5000)
    for _ in range(3):
        world.power_cut()
        world.start()
        assert {topic: walk(world, topic) for topic in before} == before
        for topic in before:
            world.put(topic, durability="fsync")


@pytest.mark.parametrize("look", ["state", "diff"])
def test_a_loss_that_cannot_be_made_durable_is_not_reported(world: World, look: str) -> None:
    """R-DUR-8: the request that found it fails with 500."""
    world.put("t", durability="fsync", ttl_ms=100)
    world.write("t", 1, 2)
    world.advance_ms(200)
    world.fail_storage("write", errno.EIO, times=100)
    method, path = ("GET", "/v0/topics/t") if look == "state" else ("POST", "/v0/topics/t/diff")
    assert world.request(method, path).status == 500


def test_a_restart_changes_nothing_a_client_can_see(world: World) -> None:
    """R-DUR-13, R-DUR-9: configurations, floors, deletions, holes and tombstones, twice over."""
    for number, durability in enumerate(["disk", "fsync", "disk"]):
        name = f"t{number}"
        world.put(name, durability=durability, cap_records=60, priority=number)
        for start in range(0, 120, 30):
            world.write_records(
                name,
                [
                    {"data": n, "tag": f"g{n % 4}", "node": f"n{n % 3}", "meta": {"n": n}}
                    for n in range(start, start + 30)
                ],
            )
            world.delete(name, match=f"g{start // 30}")
        world.delete(name, before_seq=70)
    world.put("q", type="queue")
    world.write("q", 1, 2)
    world.put("empty")
    world.write("old", *range(10))
    world.drop("old")
    world.write("old", "new")
    before = everything(world)
    for crash in (True, False, False, True):
        world.crash_and_start() if crash else world.restart()
        assert everything(world) == before


def test_clocks_of_recency_do_not_persist(world: World) -> None:
    """R-DUR-12: after a restart no topic has been read yet."""
    world.write("t", 1)
    world.request("GET", "/v0/topics/t")
    world.restart()
    state = world.state("t")
    assert (state["last_read_ts"], state["effective_priority"]) == (None, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_the_number_of_log_files_may_change(world: World, crash: bool) -> None:
    """R-DUR-15: up, down, with crashes in between."""
    for number in range(6):
        world.put(f"t{number}", durability="fsync" if number % 2 else "disk")
        world.write(f"t{number}", number)
    expected = [[number] for number in range(6)]
    for shards in (3, 1, 4, 2, 2):
        world.crash() if crash else world.stop()
        world.start(wal_shards=shards)
        assert [world.data(f"t{number}") for number in range(6)] == expected
        for number in range(6):
            assert world.write(f"t{number}", shards)["first_seq"] == len(expected[number]) + 1
            expected[number].append(shards)


# --- broken and full disks ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_an_io_error_makes_the_log_read_only_until_a_restart(world: World, kind: str) -> None:
    """R-DUR-16, 3.2, 12.2: reads are answered, every change is refused, readiness says why."""
    world.put("t", durability="fsync")
    world.write("t", 1, 2)
    world.fail_storage(kind, errno.EIO)
    first = world.request("POST", "/v0/topics/t", {"records": [{"data": 3}]})
    assert first.refusal[:2] == (500, "internal")
    changes: list[tuple[str, str, Any]] = [
        ("POST", "/v0/topics/t", {"records": [{"data": 3}]}),
        ("POST", "/v0/topics/new", {"records": [{"data": 3}]}),
        ("PUT", "/v0/topics/new", {}),
        ("PUT", "/v0/topics/t", {"cap_records": 1}),
        ("POST", "/v0/topics/t/delete", {"before_seq": 2}),
        ("DELETE", "/v0/topics/t", {}),
    ]
    for method, path, body in changes:
        assert world.request(method, path, body).refusal == READ_ONLY, (method, path)
    assert world.data("t") == [1, 2]
    assert world.state("t")["count"] == 2
    ready = world.request("GET", "/readyz")
    assert ready.refusal == (503, "not_ready", {"reason": "read_only"})
    assert world.request("GET", "/healthz").status == 200
    metrics = world.request("GET", "/v0/metrics").text
    assert "topics_wal_read_only 1" in metrics
    assert "topics_ready 0" in metrics
    world.crash_and_start()
    assert world.data("t") in ([1, 2], [1, 2, 3])
    world.write("t", "again")


def test_a_full_disk_refuses_appends_and_nothing_else(make_world: MakeWorld) -> None:
    """R-DUR-16: deletes, configurations and topic deletion use a reserve; appends resume by themselves."""
    world = make_world(disk_reserve_bytes=256 * 1024, disk_low_water_bytes=256 * 1024)
    world.put("t", durability="fsync")
    world.put("other")
    world.put("capped", durability="fsync", cap_records=100)
    world.write("capped", *range(50))
    world.write("t", 1, 2, 3)
    world.write("other", 1)
    world.fill_disk()
    refused = None
    for _ in range(300):
        answer = world.request("POST", "/v0/topics/t", {"records": [{"data": "x" * 10_000}]})
        if answer.status != 200:
            refused = answer
            break
        world.advance_ms(20)
    assert refused is not None
    assert refused.refusal == (500, "internal", {"reason": "disk_full"})
    assert world.diff("t")["records"][0]["data"] == 1
    assert world.delete("t", before_seq=3)["deleted"] == 2
    assert world.drop("other")["deleted"] is True
    assert world.put("capped", cap_records=2)["config"]["cap_records"] == 2
    assert world.data("capped") == [48, 49]
    assert world.request("PUT", "/v0/topics/new", {}).refusal == (500, "internal", {"reason": "disk_full"})
    assert world.state("t")["earliest_seq"] == 3
    world.free_disk()
    world.advance_ms(5000)
    assert world.write("t", "again")["count"] == 1
    world.crash_and_start()
    assert world.data("capped") == [48, 49]
    assert world.state("t")["earliest_seq"] == 3
    assert world.request("GET", "/v0/topics/other").status == 404


def test_a_record_whose_bytes_rotted_is_an_error_and_never_wrong_data(world: World) -> None:
    """3.2: 500 with topic and seq."""
    if not isinstance(world, SimWorld):
        pytest.skip("corrupts a simulated disk")
    world.write("t", "needle-in-the-log", "other")
    world.restart()
    world.rot_record(b"needle-in-the-log")
    answer = world.request("POST", "/v0/topics/t/diff", {"from_seq": 0})
    assert answer.refusal == (500, "internal", {"topic": "t", "seq": 1})
    assert world.diff("t", 1)["records"][0]["data"] == "other"


# --- the class of topics that writes create --------------------------------------------------------------------------
def test_a_topic_that_a_write_creates_has_the_class_of_the_setting() -> None:
    """R-DUR-17."""
    world = SimWorld(durability="memory")
    world.start()
    world.write("by-write", 1)
    world.write("by-write-with-config", 1, config={"ttl_ms": 10**9})
    world.put("by-put")
    world.put("jobs", type="queue", max_deliveries=1, lease_ms=100, dead_letter="dead")
    world.write("jobs", 1)
    for _ in range(2):
        world.request("POST", "/v0/topics/jobs/claim", {"node": "n1"})
        world.advance_ms(150)
    assert world.diff("dead")["head_seq"] == 1
    found = {name: world.state(name)["config"]["durability"] for name in ("by-write", "by-write-with-config", "dead")}
    assert found == {"by-write": "memory", "by-write-with-config": "disk", "dead": "disk"}
    assert world.state("by-put")["config"]["durability"] == "disk"
    world.close()
