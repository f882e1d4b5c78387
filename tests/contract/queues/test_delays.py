"""Goal: a job whose record has a delay is seen at once, and is claimed when its delay has ended, and not before.

Method: producers and workers of one queue over HTTP, on simulated time, through the ends of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.queues.test_work import jobs_of, work
from tests.contract.world.queue_client import Queue, seqs_of
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.websocket_client import WebSocket
from tests.contract.world.world import World

MOST_MS = 30 * 24 * 60 * 60 * 1000
WAITING: tuple[dict[str, Any], ...] = ({"delay_ms": 5000}, {}, {"delay_ms": 1})
"""Requests at the same time: those that come after the first wait for it."""


def put(world: World, *delays: int | None, **more: Any) -> list[int]:
    """Write a job for each delay. Return their `$ts`."""
    records = [{"data": at, "delay_ms": delay} | more for at, delay in enumerate(delays)]
    first: int = world.write_records("jobs", records)["first_seq"]
    return [record["$ts"] for record in world.diff("jobs", first - 1)["records"]]


def delayed(world: World) -> int | None:
    found: int | None = world.state("jobs")["queue"].get("delayed")
    return found


def test_a_job_is_not_claimable_before_its_delay_has_ended(world: World) -> None:
    """R-DELAY-1, R-DELAY-4, R-Q-13, R-Q-14: it then comes before jobs that were never held back."""
    queue = Queue(world)
    (ts, *_) = put(world, 500, None, 0, 1000)
    assert delayed(world) == 2
    assert queue.counters == (4, 2, 0)
    assert seqs_of(queue.claim(1)) == [2]
    world.advance_to_ms(ts + 499)
    assert seqs_of(queue.claim(9)) == [3]
    queue.put("fresh")
    world.advance_to_ms(ts + 501)
    assert (queue.counters, delayed(world)) == ((5, 2, 2), 1)
    assert seqs_of(queue.claim(1)) == [1]
    assert seqs_of(queue.claim(9)) == [5]
    world.advance_to_ms(ts + 1001)
    assert delayed(world) is None
    assert seqs_of(queue.claim(9)) == [4]
    assert queue.ack(*range(1, 6))["acked"] == 5


def test_readers_see_it_at_once_and_with_its_delay(world: World) -> None:
    """R-DELAY-3, 5.3: a member that no other record has, of bytes, too, and of a claimed job."""
    queue = Queue(world)
    world.write_records(
        "jobs",
        [
            {"data": 1, "delay_ms": 40, "tag": "t", "node": "n", "meta": {"k": 1}},
            {"data_base64": "AAEC", "delay_ms": 1},
        ],
    )
    world.write_records("jobs", [{"data": {"a": [1, 2]}, "delay_ms": None}, {"data": 2, "delay_ms": 0}])
    first, second, *others = world.diff("jobs", include_tags=True)["records"]
    assert list(first) == ["$seq", "$ts", "$node", "$tag", "$delay_ms", "data", "meta"]
    assert first["$delay_ms"] == 40
    assert (second["$delay_ms"], second["data_base64"]) == (1, "AAEC")
    assert [set(record) for record in others] == [{"$seq", "$ts", "data"}] * 2
    world.advance_ms(50)
    claimed = {job["$seq"]: job for job in queue.claim(9)["claimed"]}
    assert (claimed[1]["$delay_ms"], claimed[2]["data_base64"]) == (40, "AAEC")
    assert "$delay_ms" not in claimed[3]


def test_a_claim_that_waits_and_a_stream_are_woken_when_a_delay_ends(world: World) -> None:
    """R-DELAY-5, R-Q-31, R-Q-28: by the clock, whether they came before the job or after it."""
    queue = Queue(world)
    before = queue.ask_claim(wait_ms=30_000)
    (ts,) = put(world, 400)
    assert before.waiting
    assert seqs_of(before.answer().json) == [1]
    assert ts + 400 <= world.now_ms() < ts + 450
    (ts,) = put(world, 300)
    after = queue.ask_claim(wait_ms=30_000)
    assert seqs_of(after.answer().json) == [2]
    assert ts + 300 <= world.now_ms() < ts + 350
    stream = work(queue, max=3)
    (ts,) = put(world, 200)
    assert jobs_of([stream.one()]) == [(3, 1)]
    assert ts + 200 <= world.now_ms() < ts + 250


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("end", ["crash", "power_cut", "stop"])
def test_a_delay_goes_on_over_the_end_of_a_server(make_world: MakeWorld, end: str, durability: str) -> None:
    """R-DELAY-6, R-DUR-11: in the log, and in packs and segments once a checkpoint has moved it there."""
    world = make_world(pack_run_bytes=256, segment_max_events=8)
    queue = Queue(world, durability=durability)
    (ts, *_) = put(world, 5000, None, 60_000)
    for more in range(3):
        if more:
            put(world, *[60_000] * 12, 5000)
        assert world.request("POST", "/v0/checkpoint", {}).json["done"]
    put(world, 5000, 60_000)
    assert seqs_of(queue.claim(99)) == [2]
    world.advance_ms(100)
    end_of: Callable[[], object] = getattr(world, end)
    end_of()
    world.start()
    assert queue.counters == (31, 1, 0)
    assert seqs_of(queue.claim(99)) == [2]
    world.crash()
    world.start()
    world.advance_to_ms(ts + 5500)
    assert seqs_of(queue.claim(99)) == [1, 2, 16, 29, 30]
    assert delayed(world) == 26


@pytest.mark.parametrize("key", [{}, {"idempotency_key": "k"}], ids=["plain", "keyed"])
def test_a_body_that_is_framed_in_turns_keeps_its_delays(make_world: MakeWorld, key: dict[str, str]) -> None:
    """R-DELAY-1, R-DELAY-5: what is stored is found again after the end of the server."""
    world = make_world(pass_body_bytes=100)
    queue = Queue(world)
    records = [{"data": "x" * 50, "delay_ms": 60_000 * (at != 3)} for at in range(6)]
    answer = world.request("POST", "/v0/topics/jobs", {"records": records, **key})
    assert (answer.status, answer.json["count"]) == (200, 6)
    for _ in range(2):
        assert delayed(world) == 5
        shown = [record.get("$delay_ms", 0) for record in world.diff("jobs")["records"]]
        assert shown == [record["delay_ms"] for record in records]
        world.restart()
    assert seqs_of(queue.claim(9)) == [4]


def test_a_delay_is_refused_where_it_means_nothing(make_world: MakeWorld) -> None:
    """R-DELAY-2, 7.5/3, 7.5/4, 7.5/5: with nothing written and no topic made."""
    world = make_world(max_delay_ms=1000)
    world.put("log")
    Queue(world)
    for topic in ("log", "new"):
        answer = world.request("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}, {"data": 2, "delay_ms": 5}]})
        assert answer.refusal == (409, "not_a_queue", {"topic": topic})
        assert "delay_ms" in answer.json["error"]["message"]
    assert world.state("log")["head_seq"] == 0
    assert world.request("GET", "/v0/topics/new").status == 404
    for wrong in ("5", -1, 1.5, 1e3, True, [5], {}, 1001, 2**64):
        answer = world.request("POST", "/v0/topics/jobs", {"records": [{"data": 1}, {"data": 2, "delay_ms": wrong}]})
        assert answer.refusal == (400, "invalid_request", None), wrong
        assert "records[1].delay_ms" in answer.json["error"]["message"]
    piece = {"producer": {"id": "p", "epoch": 1, "part": 0, "piece": 0, "last": False}}
    answer = world.request("POST", "/v0/topics/jobs", {"records": [{"data": 1, "delay_ms": 5}]} | piece)
    assert answer.refusal == (400, "invalid_request", None)
    assert world.state("jobs")["head_seq"] == 0
    put(world, 1000)
    created = {"records": [{"data": 1, "delay_ms": 5}], "config": {"type": "queue"}}
    assert world.request("POST", "/v0/topics/made", created).status == 201


def test_the_longest_delay_is_thirty_days(world: World) -> None:
    """R-DELAY-2."""
    queue = Queue(world)
    put(world, MOST_MS)
    answer = world.request("POST", "/v0/topics/jobs", {"records": [{"data": 1, "delay_ms": MOST_MS + 1}]})
    assert answer.refusal == (400, "invalid_request", None)
    world.crash_and_start()
    assert queue.counters == (1, 0, 0)


def test_copies_dead_letters_and_redriven_jobs_have_no_delay(world: World) -> None:
    """R-DELAY-7."""
    queue = Queue(world, max_deliveries=1, dead_letter="dead")
    other = Queue(world, "other")
    assert world.request("PUT", "/v0/routers/r", {"source": "jobs", "dest": "other"}).status == 201
    put(world, 200)
    assert seqs_of(other.claim()) == [1]
    assert queue.claim()["count"] == 0
    world.advance_ms(250)
    assert seqs_of(queue.claim()) == [1]
    queue.nack(1)
    assert queue.claim()["count"] == 0
    assert "$delay_ms" not in world.diff("dead")["records"][0]
    assert queue._post("redrive", {"all": True})["redriven"] == 1
    assert "$delay_ms" not in world.diff("jobs")["records"][-1]
    assert seqs_of(queue.claim()) == [2]


def test_a_delayed_job_may_be_deleted_evicted_and_is_in_no_count_then(world: World) -> None:
    """R-DELAY-4, R-Q-14, R-DEL-7, R-CAP-1."""
    queue = Queue(world, cap_records=6)
    put(world, 300, 300, 300)
    put(world, 300, None, tag="t")
    world.delete("jobs", match="t")
    assert (queue.counters, delayed(world)) == ((3, 0, 0), 3)
    world.delete("jobs", before_seq=2)
    assert (queue.counters, delayed(world)) == ((2, 0, 0), 2)
    queue.put(*range(5))
    assert (queue.counters, delayed(world)) == ((6, 5, 0), 1)
    queue.put("one more")
    assert (queue.counters, delayed(world)) == ((6, 6, 0), None)
    world.advance_ms(400)
    assert seqs_of(queue.claim(9)) == [6, 7, 8, 9, 10, 11]


def test_runs_of_delayed_jobs_are_passed_and_each_comes_in_its_time(world: World) -> None:
    """R-DELAY-1, R-Q-3: whatever is between them."""
    queue = Queue(world)
    (ts, *_) = put(world, 400, 100, None, 200, 200, None, 300)
    assert seqs_of(queue.claim(9)) == [3, 6]
    found = []
    for at in (101, 201, 301, 401):
        world.advance_to_ms(ts + at)
        found.append(seqs_of(queue.claim(9)))
    assert found == [[2], [4, 5], [7], [1]]


def test_thousands_of_delays_that_end_at_once_end_in_some_looks(world: World) -> None:
    """R-DELAY-1, R-DELAY-4."""
    queue = Queue(world)
    (ts, *_) = put(world, *[100] * 5000)
    world.advance_to_ms(ts + 101)
    assert [delayed(world) for _ in range(4)] == [3976, 2952, 1928, 904]
    assert queue.counters == (5000, 5000, 0)
    assert seqs_of(queue.claim(1000)) == list(range(1, 1001))


@pytest.mark.parametrize("durability", ["ephemeral", "memory"])
def test_weaker_classes_hold_jobs_back_too(world: World, durability: str) -> None:
    """R-DELAY-1, R-DELAY-6."""
    queue = Queue(world, durability=durability)
    put(world, 200, None)
    assert seqs_of(queue.claim(9)) == [2]
    world.advance_ms(250)
    assert seqs_of(queue.claim(9)) == [1]
    put(world, 60_000)
    world.restart()
    assert queue.claim(9)["count"] == (0 if durability == "ephemeral" else 2)


def test_a_large_write_and_a_message_of_a_websocket_have_delays(world: World) -> None:
    """R-DELAY-1, 11.4: also beside an idempotency key."""
    queue = Queue(world)
    long = [{"data": "x" * 30_000, "delay_ms": 300 if at % 2 else None} for at in range(60)]
    world.write_records("jobs", long, idempotency_key="k")
    client = WebSocket(world)
    told = client.ask({"op": "publish", "topic": "jobs", "records": [{"data": 1, "delay_ms": 300}]})
    assert told["op"] == "ack"
    assert (queue.counters, delayed(world)) == ((61, 30, 0), 31)
    again = world.write_records("jobs", long, idempotency_key="k")
    assert again["deduped"]
    assert seqs_of(queue.claim(99)) == list(range(1, 61, 2))
    world.advance_ms(400)
    assert seqs_of(queue.claim(99)) == [*range(2, 61, 2), 61]


def test_the_directory_is_marked_before_the_first_delay_is_in_it(make_world: MakeWorld) -> None:
    """R-DELAY-6: a version that would hand the job out too early refuses the directory."""
    world = make_world()
    if not isinstance(world, SimWorld):
        pytest.skip("looks into a simulated disk")
    queue = Queue(world)
    marker = f"{world.config.data_dir}/topics.json"
    queue.put("plain")
    assert b'"format":1' in world.ring.file_bytes(marker)
    answers = [world.ask("POST", queue.path, {"records": [{"data": at} | more]}) for at, more in enumerate(WAITING)]
    assert sorted(answer.answer().json["first_seq"] for answer in answers) == [2, 3, 4]
    assert b'"format":3' in world.ring.file_bytes(marker)
