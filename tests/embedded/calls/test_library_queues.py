"""Queues of the library: the server's, without a server."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL


@pytest.fixture
def log(tmp_path: Path) -> Iterator[topics.Log]:
    with topics.open(str(tmp_path / "data"), io="portable", **SMALL) as opened:
        opened.put_topic("jobs", type="queue")
        yield opened


def test_a_job_is_claimed_extended_handed_back_and_acked(log: topics.Log) -> None:
    log.append("jobs", [topics.NewRecord({"n": 1}, tag="t", meta={"k": 1}), {"n": 2}])
    first, second = log.claim("jobs", "w", 5)
    assert (first.seq, first.data, first.tag, first.meta, first.deliveries) == (1, {"n": 1}, "t", {"k": 1}, 1)
    assert log.extend("jobs", "w", [first], lease_ms=60_000).deadlines[1] > first.deadline
    assert log.nack("jobs", "w", [second]).ready == 1
    assert log.ack("jobs", "w", [first, second]).skipped == [2]
    (again,) = log.claim("jobs", "other")
    assert (again.seq, again.deliveries) == (2, 2)
    assert log.ack("jobs", "other", [2]).done == 1
    assert log.claim("jobs", "w") == []


def test_a_claim_may_wait_for_the_first_job(log: topics.Log) -> None:
    writer = threading.Timer(0.01, lambda: log.append("jobs", [1, 2]))
    writer.start()
    assert [job.data for job in log.claim("jobs", "w", 5, wait_ms=30_000)] == [1, 2]
    writer.join()
    assert log.claim("jobs", "w", wait_ms=1) == []


def test_a_claim_that_waits_gets_what_is_handed_back_delayed_or_expired(log: topics.Log) -> None:
    log.append("jobs", [1])
    (job,) = log.claim("jobs", "w")
    assert log.nack("jobs", "w", [job], delay_ms=20).done == 1
    (again,) = log.claim("jobs", "w", lease_ms=100, wait_ms=30_000)
    assert again.deliveries == 2
    (expired,) = log.claim("jobs", "other", wait_ms=30_000)
    assert (expired.deliveries, expired.seq) == (3, 1)


def test_a_claim_that_waits_ends_with_its_queue_and_with_the_log(log: topics.Log) -> None:
    found: list[object] = []

    def claim() -> None:
        try:
            found.append(log.claim("jobs", "w", wait_ms=30_000))
        except topics.RequestError as error:
            found.append(error.code)

    def run_beside(end: Callable[[], object]) -> None:
        waiting = threading.Thread(target=claim)
        waiting.start()
        while not log._engine._core.registry.visible("jobs").waiters:  # type: ignore[union-attr]
            waiting.join(0.001)
        end()
        waiting.join()

    run_beside(lambda: log.delete_topic("jobs"))
    assert found == ["topic_not_found"]
    log.put_topic("jobs", type="queue")
    run_beside(log.close)
    assert found == ["topic_not_found", []]


def test_claims_that_wait_share_the_jobs_and_none_twice(log: topics.Log) -> None:
    log.put_topic("jobs", type="queue", claim_jitter_ms=1)

    async def work() -> list[int]:
        claims = [log.aio.claim("jobs", f"w{number}", wait_ms=30_000) for number in range(8)]
        waiting = [asyncio.ensure_future(claim) for claim in claims]
        await asyncio.sleep(0)
        for number in range(8):
            await log.aio.append("jobs", [number])
        return sorted(job.data for jobs in await asyncio.gather(*waiting) for job in jobs)

    assert asyncio.run(work()) == list(range(8))


@pytest.mark.parametrize("wait_ms", [-1, "1", 1.5, True])
def test_a_wait_that_is_none_is_refused(log: topics.Log, wait_ms: Any) -> None:
    with pytest.raises(topics.UsageError, match="wait_ms is .*: use an integer, 0 to"):
        log.claim("jobs", "w", wait_ms=wait_ms)


def test_an_older_lease_of_the_same_node_does_not_count(log: topics.Log) -> None:
    log.append("jobs", [1])
    (old,) = log.claim("jobs", "w")
    log.nack("jobs", "w", [old])
    (new,) = log.claim("jobs", "w")
    assert log.ack("jobs", "w", [old]).skipped == [1]
    assert log.ack("jobs", "w", [new]).done == 1


def test_a_job_comes_with_its_attempts(log: topics.Log) -> None:
    """R-Q-32, R-Q-33, R-Q-34."""
    log.append("jobs", [1, b"bytes"])
    jobs = log.claim("jobs", "w", 2)
    assert [job.attempts for job in jobs] == [(), ()]
    log.nack("jobs", "w", jobs, reason="broken")
    again = log.claim("jobs", "w", 2, include_attempts=True)
    assert [job.data for job in again] == [1, b"bytes"]
    assert all(
        [(one.delivery, one.node, one.ended, one.reason) for one in job.attempts] == [(1, "w", "nacked", "broken")]
        for job in again
    )
    state = log.state("jobs", include_attempts=True)
    assert state.queue is not None
    assert [(job.seq, job.attempts) for job in state.queue.failed] == [(2, again[1].attempts), (1, again[0].attempts)]
    assert asyncio.run(log.aio.nack("jobs", "w", again, reason=None)).done == 2


def test_a_reason_that_is_too_long_or_none_is_refused(log: topics.Log) -> None:
    with pytest.raises(topics.RequestError, match="reason has 1025 bytes: at most 1024 are allowed"):
        log.nack("jobs", "w", [1], reason="x" * 1025)
    with pytest.raises(topics.UsageError, match="reason is 5: use a string"):
        log.nack("jobs", "w", [1], reason=5)  # type: ignore[arg-type]


def make_dead(log: topics.AnyLog, *values: Any) -> None:
    log.put_topic("jobs", type="queue", max_deliveries=1, dead_letter="dlq")
    log.append("jobs", list(values))
    log.nack("jobs", "w", log.claim("jobs", "w", 1000), reason="broken")
    assert log.claim("jobs", "w") == []


def test_dead_letters_are_listed_and_redriven(tmp_path: Path) -> None:
    """R-Q-36, R-Q-37: those that are named, then all, in turns of as many as a request may name."""
    with topics.open(str(tmp_path / "data"), io="portable", max_claim=3, **SMALL) as log:
        make_dead(log, b"bytes", 2, 3)
        for values in ((4, 5, 6), (7, 8)):
            make_dead(log, *values)
        dead = list(log.dead("jobs"))
        assert [letter.data for letter in dead] == [b"bytes", 2, 3, 4, 5, 6, 7, 8]
        assert all(letter.meta["$dead_letter_reason"] == "broken" for letter in dead)
        assert [letter.data for letter in log.dead("jobs", 2, limit=4)] == [3, 4, 5, 6]
        assert log.redrive("jobs", [dead[0], *dead[3:6], 99]) == (4, [99])
        assert log.redrive("jobs") == topics.RedriveResult(4, [])
        assert list(log.dead("jobs")) == []
        assert [record.data for record in log.read("jobs")] == [b"bytes", 4, 5, 6, 2, 3, 7, 8]
        assert log.redrive("jobs").redriven == 0


def test_dead_letters_from_asyncio(log: topics.Log) -> None:
    async def work() -> None:
        assert [letter.data async for letter in log.aio.dead("jobs")] == [1, 2]
        assert await log.aio.redrive("jobs", [2]) == (1, [])
        assert await log.aio.redrive("jobs") == (1, [])

    make_dead(log, 1, 2)
    asyncio.run(work())
    assert [job.data for job in log.claim("jobs", "w", 5)] == [2, 1]


@pytest.mark.parametrize("seqs", [5, "5", [-1], [None], ["1"]])
def test_seqs_that_are_none_are_refused(log: topics.Log, seqs: Any) -> None:
    with pytest.raises(topics.UsageError, match=r"seqs is .*: use "):
        log.redrive("jobs", seqs)


def test_what_is_no_queue_says_so(log: topics.Log) -> None:
    log.append("log", [1])
    for topic, code in (("log", "not_a_queue"), ("absent", "topic_not_found")):
        with pytest.raises(topics.RequestError) as caught:
            log.claim(topic, "w")
        assert caught.value.code == code


def test_threads_share_the_jobs_and_none_twice(log: topics.Log) -> None:
    log.append("jobs", list(range(200)))

    def work(worker: int) -> list[int]:
        done: list[int] = []
        while jobs := log.claim("jobs", f"w{worker}", 7):
            assert log.ack("jobs", f"w{worker}", jobs).done == len(jobs)
            done += [job.data for job in jobs]
        return done

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(work, range(4)))
    assert sorted(seq for share in shares for seq in share) == list(range(200))


def test_queues_from_asyncio(log: topics.Log) -> None:
    async def work() -> None:
        await log.aio.append("jobs", [1, 2])
        one, two = await log.aio.claim("jobs", "w", 2)
        assert (await log.aio.extend("jobs", "w", [one], lease_ms=1000)).skipped == []
        assert (await log.aio.nack("jobs", "w", [two], delay_ms=5000)).ready == 0
        assert (await log.aio.ack("jobs", "w", [one])).done == 1

    asyncio.run(work())


def test_leases_are_new_after_a_restart(tmp_path: Path) -> None:
    seen: set[str] = set()
    for _ in range(3):
        with topics.open(str(tmp_path / "data"), io="portable", **SMALL) as log:
            log.put_topic("jobs", type="queue")
            log.append("jobs", [1])
            leases = {job.lease_id for job in log.claim("jobs", "w", 100)}
            assert not seen & leases
            seen |= leases


@pytest.mark.timeout(60)
def test_an_awaited_claim_that_is_cancelled_keeps_no_job(tmp_path: Path) -> None:
    async def claim(log: topics.Log) -> None:
        waits = asyncio.ensure_future(log.aio.claim("jobs", "gone", wait_ms=60_000))
        topic = log._engine._core.registry.by_name["jobs"]
        while not topic.waiters:
            await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        log.append("jobs", [1])
        assert [job.data for job in log.claim("jobs", "w")] == [1]
        assert log.stats().pendings == 0

    with topics.open(tmp_path) as log:
        log.put_topic("jobs", type="queue")
        asyncio.run(claim(log))


@pytest.mark.timeout(60)
def test_jobs_of_an_awaited_claim_that_was_cancelled_before_it_got_them_are_given_back(tmp_path: Path) -> None:
    async def claim(log: topics.Log, *, begun: bool) -> None:
        gone = asyncio.ensure_future(log.aio.claim("jobs", "gone", lease_ms=60_000))
        await asyncio.sleep(0)
        topic = log._engine._core.registry.by_name["jobs"]
        while begun and not topic.queue.leased:  # type: ignore[union-attr]
            log.state("jobs")
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        (job,) = log.claim("jobs", "w", wait_ms=30_000)
        log.ack("jobs", "w", [job])

    with topics.open(tmp_path) as log:
        log.put_topic("jobs", type="queue")
        for begun in (True, False):
            log.append("jobs", [1])
            asyncio.run(claim(log, begun=begun))
