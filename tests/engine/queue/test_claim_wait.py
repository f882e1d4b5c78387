"""Claims that wait, and streams of jobs, which one write wakes: they take turns."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer, Harness, records
from tests.engine.queue.queue_calls import claim, counters, jobs_of, start_ack
from topics.engine.queue import push
from topics.engine.queue.queue_results import ClaimRequest
from topics.engine.shared import core
from topics.engine.state.leases import Leases
from topics.errors import RequestError, TopicsError

_CLAIM_BYTES = 16_384 + 2048
"""Bytes that a claim of one job counts as, besides its record."""


class Sink:
    """A connection that gets jobs."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.ends: list[str] = []

    def deliver(self, seq: int, job: bytes) -> bool:
        self.jobs.append(seq)
        return True

    def on_gone(self) -> None:
        self.ends.append("gone")

    def on_shutdown(self) -> None:
        self.ends.append("shutdown")

    def on_error(self, error: TopicsError) -> None:
        self.ends.append(str(error))


def queue(claims_a_pass: int) -> Harness:
    h = Harness(pass_read_bytes=claims_a_pass * (_CLAIM_BYTES + 100))
    h.put("q", type="queue")
    h.append(0, name="q")
    assert claim(h) == [1]  # from here on there are lease ids
    start_ack(h, 1)
    h.settle()
    return h


def wait(h: Harness, node: str, wait_ms: int = 30_000) -> Answer:
    answer = Answer()
    h.cancel = h.engine.claim_when_ready(ClaimRequest("q", node, 1, None), wait_ms, answer)
    return answer


def write(h: Harness, jobs: int) -> None:
    h.start_append(records(*range(jobs)), "q")
    h.engine.flush()
    h.store.log.commit(None)


def test_claims_that_one_write_wakes_are_answered_some_a_pass_in_their_order() -> None:
    h = queue(4)
    waiting = [wait(h, f"w{number}") for number in range(30)]
    write(h, 30)
    h.flush_until_given(waiting, 5, in_order=True)
    assert [jobs_of(answer)[0]["$seq"] for answer in waiting] == list(range(2, 32))


def test_many_claims_that_find_no_job_look_in_several_passes_and_wait_on() -> None:
    h = queue(1)
    waiting = [wait(h, f"w{number}") for number in range(300)]
    write(h, 1)
    passes = 0
    while h.engine._core.turns or h.engine._core.awake:
        h.engine.flush()
        passes += 1
    assert passes > 3
    assert [answer.given for answer in waiting] == [True] + [False] * 299
    write(h, 1)
    while not waiting[1].given:
        h.engine.flush()


def test_streams_of_jobs_that_one_write_wakes_get_them_some_a_pass() -> None:
    h = queue(4)
    sinks = [Sink() for _ in range(30)]
    for number, sink in enumerate(sinks):
        h.engine.open_push(ClaimRequest("q", f"w{number}", 1, None), sink).open()
    write(h, 30)
    got = [0]
    while got[-1] < 30:
        h.engine.flush()
        got.append(sum(len(sink.jobs) for sink in sinks))
        assert got[-1] - got[-2] <= 2 * 5
    assert [sink.jobs for sink in sinks] == [[seq] for seq in range(2, 32)]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_stream_gets_very_many_jobs_of_a_window_in_turns(leaves: bool) -> None:
    """A thousand jobs were written to the connection in one pass."""
    h = queue(56)
    h.put("q", type="queue", claim_jitter_ms=5)
    write(h, 1500)
    sink = Sink()
    stream = h.engine.open_push(ClaimRequest("q", "w", 1000, None), sink)
    stream.open()
    h.advance_ms(5)
    got = [len(sink.jobs)]
    while len(sink.jobs) < 1000:
        h.engine.flush()
        h.store.log.commit(None)
        h.advance_ms(0)
        got.append(len(sink.jobs))
        assert got[-1] - got[-2] <= 2 * 128
        if leaves and got[-1] > 300:
            stream.close()
            break
    for _ in range(100):
        h.engine.flush()
        h.advance_ms(5)
    if leaves:
        assert len(sink.jobs) == got[-1]
        assert counters(h)[2] == 0
    else:
        assert sink.jobs == list(range(2, 1002))
        assert counters(h)[2] == 1000


def test_those_who_leave_or_whose_time_or_queue_ends_before_their_turn_get_nothing() -> None:
    h = queue(1)
    first, second = wait(h, "a"), wait(h, "b")
    h.cancel()
    late, gone, sink = wait(h, "c", 100), wait(h, "d"), Sink()
    stream = h.engine.open_push(ClaimRequest("q", "e", 1, None), sink)
    stream.open()
    write(h, 1)
    h.engine.flush()
    assert first.given
    h.advance_ms(100)
    while not late.given:
        h.engine.flush()
    assert late.get().count == 0
    write(h, 1)
    h.engine.delete_topic("q", if_empty=False, done=Answer())
    h.store.log.commit(None)
    h.settle()
    assert not second.given
    with pytest.raises(RequestError, match="does not exist"):
        gone.get()
    assert sink.ends == ["gone"]
    stream.close()


def test_claims_of_a_queue_that_goes_are_answered_some_a_pass() -> None:
    h = queue(4)
    waiting = [wait(h, f"w{number}") for number in range(60)]
    h.engine.delete_topic("q", if_empty=False, done=Answer())
    h.engine.flush()
    h.store.log.commit(None)
    h.flush_until_given(waiting, 10)
    for answer in waiting:
        with pytest.raises(RequestError, match="does not exist"):
            answer.get()


def test_streams_of_a_queue_that_goes_end_some_a_pass() -> None:
    h = queue(4)
    sinks = [Sink() for _ in range(60)]
    for number, sink in enumerate(sinks):
        h.engine.open_push(ClaimRequest("q", f"w{number}", 1, None), sink).open()
    h.engine.delete_topic("q", if_empty=False, done=Answer())
    h.engine.flush()
    h.store.log.commit(None)
    ended = [sum(len(sink.ends) for sink in sinks)]
    assert ended[0] <= 10
    while ended[-1] < 60:
        h.engine.flush()
        ended.append(sum(len(sink.ends) for sink in sinks))
        assert ended[-1] - ended[-2] <= 2 * 10
    assert all(sink.ends == ["gone"] for sink in sinks)


def test_a_stop_ends_those_whose_turn_has_not_come() -> None:
    h = queue(1)
    waiting, sink = [wait(h, f"w{number}") for number in range(5)], Sink()
    h.engine.open_push(ClaimRequest("q", "e", 1, None), sink).open()
    write(h, 5)
    h.engine.flush()
    h.engine.begin_shutdown()
    h.settle()
    assert all(answer.given for answer in waiting)
    assert sink.ends == ["shutdown"]


PARTED, LEASED = 60, 300


def test_the_jobs_of_streams_that_end_at_once_are_released_some_a_pass_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-Q-29: 300 streams of 1,000 jobs took one pass of 40 ms, and with a step for each job 24."""
    monkeypatch.setattr(core, "_PARTED_A_PASS", PARTED)
    monkeypatch.setattr(push, "_RELEASED_AT_ONCE", 10)
    h = Harness(max_claim=LEASED)
    h.put("q", type="queue")
    h.append(*range(2 * LEASED), name="q")
    streams = [h.engine.open_push(ClaimRequest("q", "w", LEASED, 60_000), Sink()) for _ in range(2)]
    for stream in streams:
        stream.open()
        for _ in range(LEASED):
            h.settle()
    released: list[int] = []
    release = Leases.release
    monkeypatch.setattr(Leases, "release", lambda leases, job: (released.append(job.seq), release(leases, job)))
    a_pass = h.count_in_passes(released)
    for stream in streams:
        stream.close()
        stream.close()
    mine = start_ack(h, 2 * LEASED)
    for _ in range(3 * 2 * LEASED // PARTED):
        h.settle()
    assert max(a_pass) <= 2 * PARTED // 3 + 10, "three steps each: what is left of one budget, and the next"
    assert mine.get().done == 1
    assert sorted(released) == list(range(1, 2 * LEASED))
    assert h.state("q").queue.ready == 2 * LEASED - 1


def test_a_job_of_an_ended_stream_whose_lease_has_ended_is_not_taken_from_the_next_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-Q-29."""
    monkeypatch.setattr(core, "_PARTED_A_PASS", 1)
    monkeypatch.setattr(push, "_RELEASED_AT_ONCE", 1)
    h = Harness()
    h.put("q", type="queue")
    h.append(*range(3), name="q")
    stream = h.engine.open_push(ClaimRequest("q", "w", 3, 1000), Sink())
    stream.open()
    h.settle()
    stream.close()
    h.advance_ms(1001)
    taken = claim(h, 3)
    for _ in range(10):
        h.settle()
    assert len(taken) == h.state("q").queue.in_flight == 3
