"""Goal: a record with a `ttl_ms` expires when its time has ended, and reads report each hole that this makes once.

Method: one client over HTTP, on simulated time, through checkpoints and the ends of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, seqs_of
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World, seqs, tombstone

MOST_MS = 10 * 365 * 24 * 60 * 60 * 1000


def put(world: World, *ttls: int | None, topic: str = "t", **more: Any) -> int:
    """Write a record for each ttl, together. Return their `$ts`."""
    records = [{"data": at, "ttl_ms": ttl} | more for at, ttl in enumerate(ttls)]
    first: int = world.write_records(topic, records)["first_seq"]
    ts: int = world.diff(topic, first - 1)["records"][0]["$ts"]
    return ts


def walk(world: World, topic: str = "t", cursor: int = 0) -> list[Any]:
    """Read on to the head: the seqs of records, and (from, to, reason) of losses."""
    found: list[Any] = []
    while True:
        page = world.diff(topic, cursor)
        lost = page["tombstone"]
        if lost is not None:
            found.append((lost["gap_from"], lost["gap_to"], lost["reason"]))
        found += seqs(page)
        if page["caught_up"]:
            return found
        assert page["next_from_seq"] > cursor
        cursor = page["next_from_seq"]


def told_in(world: World) -> list[Any]:
    """Read as `walk`, without the gap at the end that a power cut may make in class `disk`."""
    return [each for each in walk(world) if not (isinstance(each, tuple) and each[2] == "crash")]


def test_a_record_is_there_until_its_time_is_over_and_not_after_that(world: World) -> None:
    """R-RTTL-1, R-RTTL-4, R-TTL-3, R-FLOOR-6: to the millisecond, in reads, states and counts."""
    ts = put(world, None, 100, 50, None)
    world.advance_to_ms(ts + 50)
    assert walk(world) == [1, 2, 3, 4]
    world.advance_to_ms(ts + 51)
    assert world.state("t")["count"] == 3
    assert walk(world) == [1, 2, (3, 3, "ttl"), 4]
    world.advance_to_ms(ts + 101)
    assert walk(world) == [1, (2, 3, "ttl"), 4]
    assert (world.state("t")["count"], world.state("t")["earliest_seq"]) == (2, 1)


def test_readers_see_the_ttl_of_a_record(world: World) -> None:
    """R-RTTL-3, 5.3: a member that no other record has, of bytes, too, and of a claimed job."""
    queue = Queue(world)
    given = {"data": 1, "ttl_ms": 900, "delay_ms": 4, "tag": "t", "node": "n", "meta": {"k": 1}}
    world.write_records("jobs", [given, {"data_base64": "AAEC", "ttl_ms": 901}, {"data": 3, "ttl_ms": 0}])
    first, second, third = world.diff("jobs", include_tags=True)["records"]
    assert list(first) == ["$seq", "$ts", "$node", "$tag", "$delay_ms", "$ttl_ms", "data", "meta"]
    assert (first["$delay_ms"], first["$ttl_ms"], first["data"]) == (4, 900, 1)
    assert (second["$ttl_ms"], second["data_base64"]) == (901, "AAEC")
    assert set(third) == {"$seq", "$ts", "data"}
    world.advance_ms(5)
    assert [job.get("$ttl_ms") for job in queue.claim(9)["claimed"]] == [900, 901, None]


def test_the_shorter_of_both_ttls_holds(world: World) -> None:
    """R-RTTL-1, R-TTL-1, R-TTL-2."""
    world.put("t", ttl_ms=100)
    ts = put(world, 50, None, 10_000, 50, None)
    world.advance_to_ms(ts + 60)
    assert walk(world) == [(1, 1, "ttl"), 2, 3, (4, 4, "ttl"), 5]
    world.advance_to_ms(ts + 101)
    assert walk(world) == [(1, 5, "ttl")]


def test_one_read_tells_a_hole_with_its_neighbours(world: World) -> None:
    """R-RTTL-5, R-TRIM-3: the read before it ends there, one inside gets the rest, and deleted records are part."""
    ts = put(world, None, 10, 20, 10)
    put(world, None, topic="t", tag="x")
    put(world, 10, None)
    world.advance_to_ms(ts + 100)
    page = world.diff("t")
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["tombstone"]) == ([1], 1, False, None)
    page = world.diff("t", 1)
    assert page["tombstone"] == tombstone(2, 4, "ttl", 7)
    assert (seqs(page), page["next_from_seq"]) == ([5], 5)
    assert world.diff("t", 3)["tombstone"] == tombstone(4, 4, "ttl", 7)
    assert world.diff("t", 4)["tombstone"] is None
    world.delete("t", match="x")
    for cursor in (1, 3, 4, 5):
        page = world.diff("t", cursor)
        assert page["tombstone"] == tombstone(cursor + 1, 6, "ttl", 7)
        assert seqs(page) == [7]


def test_a_hole_is_below_the_floor_once_nothing_below_it_lives(world: World) -> None:
    """R-RTTL-4, R-TTL-2, R-TOMB-3: by a delete, by a cap, and by time."""
    ts = put(world, None, 10, None, 10, None)
    world.advance_to_ms(ts + 100)
    assert walk(world) == [1, (2, 2, "ttl"), 3, (4, 4, "ttl"), 5]
    world.delete("t", before_seq=2)
    assert world.state("t")["earliest_seq"] == 3
    assert walk(world) == [(1, 2, "ttl"), 3, (4, 4, "ttl"), 5]
    world.put("t", cap_records=1)
    assert walk(world) == [(1, 4, "mixed"), 5]
    assert walk(world, cursor=3) == [(4, 4, "ttl"), 5]


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("end", ["crash", "power_cut", "stop"])
def test_holes_and_ttls_go_on_over_the_end_of_a_server(make_world: MakeWorld, end: str, durability: str) -> None:
    """R-RTTL-6, R-DUR-8: in the log, and in packs and segments once a checkpoint has moved records there."""
    world = make_world(pack_run_bytes=256, segment_max_events=8)
    world.put("t", durability=durability)
    ts = put(world, None, 100, 5000, 60_000)
    for _ in range(3):
        put(world, *[60_000] * 8, 100, None, 5000)
        assert world.request("POST", "/v0/checkpoint", {}).json["done"]
    put(world, 5000, None)
    world.advance_ms(200)
    told = told_in(world)
    assert [each for each in told if isinstance(each, tuple)] == [(at, at, "ttl") for at in (2, 13, 24, 35)]
    end_of: Callable[[], object] = getattr(world, end)
    end_of()
    world.start()
    assert told_in(world) == told
    world.step_clock_ms(-100_000)
    assert told_in(world) == told
    world.step_clock_ms(100_000)
    assert world.request("POST", "/v0/checkpoint", {}).json["done"]
    world.crash()
    world.start()
    assert told_in(world) == told
    world.advance_to_ms(ts + 7000)
    told = told_in(world)
    lost = [(at, at, "ttl") for at in (13, 15, 24, 26, 35)]
    assert [each for each in told if isinstance(each, tuple)] == [(2, 3, "ttl"), *lost, (37, 38, "ttl")]
    world.crash()
    world.start()
    assert told_in(world) == told
    world.advance_to_ms(ts + 70_000)
    assert told_in(world) == [1, (2, 13, "ttl"), 14, (15, 24, "ttl"), 25, (26, 35, "ttl"), 36, (37, 38, "ttl"), 39]


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_what_expired_stays_so_when_the_clock_is_set_back_before_a_start(world: World, durability: str) -> None:
    """R-RTTL-6, R-DUR-8: the log says what expired, and not the clock."""
    world.put("t", durability=durability)
    ts = put(world, None, 100, None)
    world.advance_to_ms(ts + 200)
    told = [1, (2, 2, "ttl"), 3]
    assert walk(world) == told
    for _ in range(2):
        world.crash()
        world.step_clock_ms(-100_000)
        world.start()
        assert walk(world) == told
        assert world.request("POST", "/v0/checkpoint", {}).json["done"]


def test_records_of_a_topic_that_was_not_used_since_the_start_expire(make_world: MakeWorld) -> None:
    """R-RTTL-1, R-RTTL-6, 7.3: a topic that is a row of columns in the snapshot, with a run in a pack."""
    world = make_world(pack_run_bytes=4096)
    for name in ("a", "b"):
        ts = put(world, None, 5000, topic=name)
    assert world.request("POST", "/v0/checkpoint", {}).json["done"]
    world.crash()
    world.start()
    world.advance_to_ms(ts + 6000)
    assert [topic["count"] for topic in world.request("GET", "/v0/topics").json["topics"]] == [1, 1]
    assert walk(world, "a") == [1, (2, 2, "ttl")]


def test_a_ttl_is_refused_where_it_means_nothing(make_world: MakeWorld) -> None:
    """R-RTTL-2, 7.5/3, 7.5/4: with nothing written."""
    world = make_world(max_ttl_ms=1000)
    world.put("t")
    for wrong in ("5", -1, 1.5, 1e3, True, [5], {}, 1001, 2**64):
        answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1}, {"data": 2, "ttl_ms": wrong}]})
        assert answer.refusal == (400, "invalid_request", None), wrong
        assert "records[1].ttl_ms" in answer.json["error"]["message"]
    piece = {"producer": {"id": "p", "epoch": 1, "part": 0, "piece": 0, "last": False}}
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1, "ttl_ms": 5}]} | piece)
    assert answer.refusal == (400, "invalid_request", None)
    assert world.state("t")["head_seq"] == 0
    put(world, 1000)


def test_the_longest_ttl_is_ten_years(world: World) -> None:
    """R-RTTL-2."""
    put(world, MOST_MS)
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1, "ttl_ms": MOST_MS + 1}]})
    assert answer.refusal == (400, "invalid_request", None)
    world.crash_and_start()
    assert walk(world) == [1]


def test_a_job_expires_in_each_state_and_its_holder_may_still_end_it(world: World) -> None:
    """R-RTTL-7, R-DEL-10, R-Q-13: ready, delayed, leased."""
    queue = Queue(world)
    ts = put(world, 100, 100, None, topic="jobs")
    world.write_records("jobs", [{"data": 4, "ttl_ms": 100, "delay_ms": 50_000}])
    assert seqs_of(queue.claim(1)) == [1]
    world.advance_to_ms(ts + 150)
    assert queue.counters == (1, 1, 0)
    assert seqs_of(queue.claim(9)) == [3]
    assert queue.ack(1)["acked"] == 1
    assert queue.ack(2)["skipped"] == [2]
    assert walk(world, "jobs") == [(1, 2, "ttl"), 3, (4, 4, "ttl")]
    assert queue.ack(3)["acked"] == 1
    assert walk(world, "jobs") == [(1, 4, "ttl")]


def test_a_reader_that_holds_gets_a_record_whose_time_is_over(world: World) -> None:
    """R-RTTL-8, R-READER-8: it expires once the reader has committed it."""
    ts = put(world, None, 100, None, 100)
    assert world.request("PUT", "/v0/topics/t/readers/r", {"holds": True}).status == 201
    world.advance_to_ms(ts + 500)
    assert walk(world) == [1, 2, 3, 4]
    world.crash_and_start()
    assert walk(world) == [1, 2, 3, 4]
    assert world.request("POST", "/v0/topics/t/readers/r/seek", {"seq": 3}).status == 200
    assert walk(world) == [1, (2, 2, "ttl"), 3, 4]
    assert world.request("DELETE", "/v0/topics/t/readers/r").status == 200
    assert walk(world) == [1, (2, 2, "ttl"), 3, (4, 4, "ttl")]


def test_copies_dead_letters_and_redriven_jobs_have_no_ttl(world: World) -> None:
    """R-RTTL-9: and a hole is not forwarded."""
    queue = Queue(world, max_deliveries=1, dead_letter="dead")
    other = Queue(world, "other")
    assert world.request("PUT", "/v0/routers/r", {"source": "jobs", "dest": "other"}).status == 201
    ts = put(world, 100, topic="jobs")
    assert "$ttl_ms" not in world.diff("other")["records"][0]
    assert seqs_of(queue.claim()) == [1]
    queue.nack(1)
    assert queue.claim()["count"] == 0
    assert "$ttl_ms" not in world.diff("dead")["records"][0]
    assert queue._post("redrive", {"all": True})["redriven"] == 1
    assert "$ttl_ms" not in world.diff("jobs")["records"][-1]
    world.advance_to_ms(ts + 200)
    assert other.counters == (2, 2, 0)
    world.restart()
    assert other.counters == (2, 2, 0)


def test_a_hole_is_not_forwarded_and_what_is_below_the_floor_is(world: World) -> None:
    """R-RTTL-9, R-TRIM-1."""
    world.put("full", cap_records=1, discard="reject")
    world.put("t")
    assert world.request("PUT", "/v0/routers/r", {"source": "t", "dest": "full"}).status == 201
    ts = put(world, None, None, 100, None)
    assert world.state("full")["head_seq"] == 1
    world.advance_to_ms(ts + 200)
    assert walk(world) == [1, 2, (3, 3, "ttl"), 4]
    world.put("full")
    assert world.data("full") == [0, 1, 3]


def test_a_full_topic_has_room_for_what_expired(world: World) -> None:
    """R-CAP-5, R-FLOOR-7: and a cap evicts no more than it has to."""
    world.put("t", cap_records=3, discard="reject")
    ts = put(world, None, 50, None)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}).status == 422
    world.advance_to_ms(ts + 51)
    world.write("t", 1)
    assert walk(world) == [1, (2, 2, "ttl"), 3, 4]
    world.put("u", cap_records=3)
    ts = put(world, None, 50, None, topic="u")
    world.advance_to_ms(ts + 51)
    world.write("u", 1)
    assert walk(world, "u") == [1, (2, 2, "ttl"), 3, 4]


def test_thousands_that_expire_at_once_go_and_are_one_hole(world: World) -> None:
    """R-RTTL-1, R-RTTL-5."""
    world.write("t", 0)
    ts = put(world, *[100] * 5000)
    world.write("t", 1)
    world.advance_to_ms(ts + 101)
    assert walk(world) == [1, (2, 5001, "ttl"), 5002]
    assert world.state("t")["count"] == 2


def test_a_long_poll_gets_the_loss_of_what_was_hidden_from_it(world: World) -> None:
    """R-RTTL-5, 7.6: of a record of its own, with and without another reader who asks."""
    world.write("t", 0)
    world.write_records("t", [{"data": 1, "ttl_ms": 300, "node": "me"}])
    poll = world.ask("POST", "/v0/topics/t/diff", {"from_seq": 1, "node": "me", "wait_ms": 20_000})
    world.advance_ms(100)
    assert poll.waiting
    world.advance_ms(400)
    world.state("t")
    assert poll.answer().json["tombstone"] == tombstone(2, 2, "ttl", 2)


@pytest.mark.parametrize("durability", ["ephemeral", "memory"])
def test_weaker_classes_have_ttls_too(world: World, durability: str) -> None:
    """R-RTTL-1, R-RTTL-6, R-CFG-3: a hole stays one when the class changes."""
    world.put("t", durability=durability)
    ts = put(world, None, 100, None)
    world.advance_to_ms(ts + 101)
    assert walk(world) == [1, (2, 2, "ttl"), 3]
    world.put("t", durability="disk")
    world.write("t", 4)
    assert walk(world) == [1, (2, 2, "ttl"), 3, 4]
    world.crash_and_start()
    assert walk(world)[-1] == 4
    assert walk(world, cursor=1)[:1] == [(2, 2, "ttl")]


@pytest.mark.parametrize("key", [{}, {"idempotency_key": "k"}], ids=["plain", "keyed"])
def test_a_body_that_is_framed_in_turns_keeps_its_ttls(make_world: MakeWorld, key: dict[str, str]) -> None:
    """R-RTTL-1, R-RTTL-3, 11.4: what is stored is found again after the end of the server."""
    world = make_world(pass_body_bytes=100)
    Queue(world)
    records = [{"data": "x" * 50, "ttl_ms": 60_000 * (at != 3), "delay_ms": at % 2 * 7} for at in range(6)]
    answer = world.request("POST", "/v0/topics/jobs", {"records": records, **key})
    assert (answer.status, answer.json["count"]) == (200, 6)
    for _ in range(2):
        shown = world.diff("jobs")["records"]
        assert [(record.get("$ttl_ms", 0), record.get("$delay_ms", 0)) for record in shown] == [
            (record["ttl_ms"], record["delay_ms"]) for record in records
        ]
        world.restart()
    world.advance_ms(70_000)
    assert walk(world, "jobs") == [(1, 3, "ttl"), 4, (5, 6, "ttl")]


def test_a_message_of_a_websocket_has_ttls(world: World) -> None:
    """R-RTTL-1, R-RTTL-5, 11.4."""
    world.write("t", 0)
    client = WebSocket(world)
    assert client.ask({"op": "publish", "topic": "t", "records": [{"data": 1, "ttl_ms": 50}]})["op"] == "ack"
    world.write("t", 2)
    world.advance_ms(60)
    assert walk(world) == [1, (2, 2, "ttl"), 3]
