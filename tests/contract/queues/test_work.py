"""Goal: a stream is kept supplied with jobs, at most so many at a time, and gives everything back when it ends.

Method: a worker that reads its stream and acks over other connections.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, seqs_of
from tests.contract.world.sse_client import EventStream, Frame
from tests.contract.world.world import World


def work(queue: Queue, node: str = "w", **query: Any) -> EventStream:
    """A stream whose head has come."""
    words = "&".join(f"{name}={value}" for name, value in {"node": node, **query}.items())
    stream = EventStream(queue.world, f"{queue.path}/work?{words}")
    queue.world.wait_until(lambda: (stream.pull(), bool(stream.head))[1], 5000)
    assert stream.head, "the stream did not open"
    return stream


def jobs_of(frames: list[Frame]) -> list[tuple[int, int]]:
    """(seq, deliveries) of each frame, every one of which is a job."""
    assert all(frame.event == "job" and frame.id == str(frame.data["$seq"]) for frame in frames)
    return [(frame.data["$seq"], frame.data["deliveries"]) for frame in frames]


def test_jobs_come_one_frame_each(world: World) -> None:
    """8.6, R-SSE-2, R-SSE-3, R-NET-6: what there is at once, what comes later as it comes."""
    queue = Queue(world, lease_ms=7000)
    world.write_records("jobs", [{"data": {"n": 1}, "tag": "t", "node": "n", "meta": {"k": 1}}])
    stream = work(queue, max=3)
    assert b"Content-Type: text/event-stream" in stream.head
    assert b"Cache-Control: no-store" in stream.head
    assert b"Content-Length" not in stream.head
    first = stream.one()
    assert set(first.data) == {
        *("topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"),
    }
    assert (first.data["topic"], first.data["data"], first.data["$tag"]) == ("jobs", {"n": 1}, "t")
    assert first.data["deadline"] - world.now_ms() <= 7000
    queue.put({"n": 2})
    assert jobs_of(stream.rest()) == [(2, 1)]
    assert queue.ack(1, 2, lease_ids=[first.data["lease_id"], ""])["acked"] == 2


def test_a_stream_holds_at_most_max_leases(world: World) -> None:
    """R-Q-28: a slot that is freed is filled at once; the default is one."""
    queue = Queue(world)
    queue.put(*range(60))
    stream = work(queue, node="a", max=40)
    assert jobs_of(stream.frames(40)) == [(seq, 1) for seq in range(1, 41)]
    narrow = work(queue, node="b")
    held = jobs_of(narrow.frames(1))
    assert len(held) == 1
    assert queue.counters == (60, 19, 41)
    assert stream.rest() == []
    mine = [seq for seq in range(1, 42) if seq != held[0][0]]
    queue.ack(*mine[:5], node="a")
    assert len(stream.rest()) == 5
    queue.nack(mine[10], node="a", delay_ms=60_000)
    assert len(stream.rest()) == 1
    assert narrow.rest() == []
    queue.ack(held[0][0], node="b")
    assert len(narrow.rest()) == 1


def test_streams_take_turns(world: World) -> None:
    """R-Q-28, R-Q-6: no job is given to two; a wide stream leaves something for the others."""
    queue = Queue(world)
    streams = [work(queue, node=f"w{n}", max=100) for n in range(3)]
    queue.put(*range(96))
    shares = [jobs_of(stream.rest()) for stream in streams]
    assert [len(share) for share in shares] == [32, 32, 32]
    assert len({seq for share in shares for seq, _ in share}) == 96


def test_an_expired_lease_is_pushed_again(world: World) -> None:
    """R-Q-30, R-Q-28: on the open stream, within 250 ms, with one more delivery."""
    queue = Queue(world, lease_ms=1000)
    queue.put("job")
    stream = work(queue)
    assert jobs_of(stream.frames(1)) == [(1, 1)]
    world.advance_ms(900)
    assert stream.rest() == []
    assert jobs_of(stream.frames(1, within_ms=350)) == [(1, 2)]


def test_what_others_give_back_is_pushed(world: World) -> None:
    """R-Q-28: leases that end by themselves, delays that have ended, jobs handed back."""
    queue = Queue(world)
    queue.put(1, 2, 3)
    queue.claim(1, node="a", lease_ms=500)
    queue.claim(2, node="b")
    stream = work(queue, max=10)
    queue.nack(2, node="b")
    assert jobs_of(stream.rest()) == [(2, 2)]
    queue.nack(3, node="b", delay_ms=700)
    assert jobs_of(stream.frames(1, within_ms=750)) == [(1, 2)]
    assert jobs_of(stream.frames(1, within_ms=450)) == [(3, 2)]


def test_a_worker_that_leaves_gives_its_jobs_back(world: World) -> None:
    """R-Q-29: at once; leases the node got elsewhere stay, deliveries too."""
    queue = Queue(world)
    queue.put(1, 2, 3)
    assert seqs_of(queue.claim(1)) == [1]
    stream = work(queue, max=2)
    assert len(stream.frames(2)) == 2
    assert queue.counters == (3, 0, 3)
    other = work(queue, node="other", max=5)
    stream.leave()
    assert jobs_of(other.frames(2)) == [(2, 2), (3, 2)]
    assert queue.ack(1)["acked"] == 1
    assert queue.ack(2, node="w")["skipped"] == [2]


def test_an_idle_stream_has_heartbeats(world: World) -> None:
    """8.6, R-SSE-4: every 15 s without a frame."""
    queue = Queue(world)
    stream = work(queue)
    world.advance_ms(14_500)
    assert stream.heartbeats == 0
    world.advance_ms(1000)
    assert stream.heartbeats == 1
    queue.put(1)
    assert len(stream.rest()) == 1
    world.advance_ms(14_500)
    assert stream.heartbeats == 1
    world.advance_ms(1000)
    assert stream.heartbeats == 2


@pytest.mark.parametrize("recreated", [False, True])
def test_the_end_of_the_topic_is_the_end_of_the_stream(world: World, recreated: bool) -> None:
    """8.6, 7.4: reported at once, in a frame without an id."""
    queue = Queue(world)
    queue.put(1)
    stream = work(queue)
    stream.one()
    world.drop("jobs")
    if recreated:
        world.put("jobs")
    (last,) = stream.rest()
    assert (last.event, last.id, last.data["code"], last.data["topic"]) == ("error", None, 409, "jobs")
    assert last.data["error"]
    assert stream.ends()


def test_a_shutdown_is_told(world: World) -> None:
    """8.6, R-LIFE-7, R-LIFE-8: the stream does not delay it, and its jobs are ready afterwards."""
    queue = Queue(world)
    queue.put(1)
    stream = work(queue)
    stream.one()
    world.begin_stop()
    last = stream.one()
    assert (last.event, last.id, last.data["code"]) == ("error", None, "server_shutting_down")
    assert stream.ends()
    assert world.finish_stop(5000) == 0
    world.start()
    assert queue.counters == (1, 1, 0)


def test_checks_come_before_the_stream(make_world: MakeWorld) -> None:
    """8.6, R-SSE-1, R-SSE-5: Accept, node, topic, type, caps; no HEAD."""
    world = make_world(max_sse_connections=1)
    world.put("log")
    queue = Queue(world)

    def refusal(path: str, accept: str = "text/event-stream") -> tuple[int, str]:
        return world.request("GET", f"/v0/topics/{path}", headers={"Accept": accept}).refusal[:2]

    assert refusal("absent/work", "application/json") == (406, "not_acceptable")
    assert refusal("absent/work") == (400, "invalid_request")
    assert refusal(f"absent/work?node={'x' * 129}") == (400, "invalid_request")
    assert refusal("absent/work?node=w") == (404, "topic_not_found")
    assert refusal("log/work?node=w") == (409, "not_a_queue")
    stream = work(queue)
    full = world.request("GET", f"{queue.path}/work?node=w")
    assert (full.refusal, full.header("retry-after")) == ((429, "throttled", None), "1")
    stream.leave()
    work(queue, max="many", lease_ms="long").leave()
    assert world.request("HEAD", f"{queue.path}/work?node=w").status == 405
    assert world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json["sse_connections"] == 0


def test_a_token_in_the_query_is_a_key(make_world: MakeWorld) -> None:
    """8.6, R-AUTH-7, 4.3: for clients that cannot send headers; read and write are needed."""
    world = make_world(api_keys="all,half:read")
    world.request("PUT", "/v0/topics/jobs", {"type": "queue"}, {"Authorization": "Bearer all"})
    path = "/v0/topics/jobs/work?node=w"
    assert world.request("GET", path).refusal[:2] == (401, "unauthorized")
    assert world.request("GET", f"{path}&token=half").refusal[:2] == (403, "forbidden")
    stream = EventStream(world, f"{path}&token=all&token=none")
    world.settle()
    stream.pull()
    assert stream.head


def test_with_a_window_streams_share_what_comes(world: World) -> None:
    """8.6, R-Q-17, R-Q-18: every refill takes part in a cohort."""
    queue = Queue(world, claim_jitter_ms=800)
    streams = [work(queue, node=f"w{n}", max=50) for n in range(4)]
    queue.put(*range(20))
    assert all(stream.rest() == [] for stream in streams)
    world.advance_ms(900)
    assert [len(stream.rest()) for stream in streams] == [5, 5, 5, 5]


def test_poison_is_moved_on_a_stream(world: World) -> None:
    """R-Q-22, R-Q-23: a push is a claim."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq", lease_ms=100)
    queue.put("poison", "good")
    stream = work(queue)
    assert jobs_of(stream.frames(1)) == [(1, 1)]
    world.advance_ms(300)
    assert jobs_of(stream.rest()) == [(2, 1)]
    assert world.data("dlq")[0] == "poison"
    assert queue.dead_lettered >= 1


def test_a_client_that_does_not_read_stalls_itself_alone(make_world: MakeWorld) -> None:
    """R-SSE-6: little is leased to it beyond what its connection takes; others continue."""
    world = make_world(send_high_water_bytes=65_536, send_low_water_bytes=16_384)
    queue = Queue(world)
    for _ in range(10):
        queue.put(*["x" * 20_000] * 100)
    words = f"GET {queue.path}/work?node=slow&max=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    world.connect().send(words.encode())
    world.settle()
    held = queue.counters[2]
    world.advance_ms(1000)
    assert queue.counters[2] == held < 1000
    fast = work(queue, node="fast")
    assert jobs_of(fast.frames(1))[0][0] > held - 1
