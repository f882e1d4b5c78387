"""Calls that a log, a client and their twins for asyncio answer alike: tails by a reader, work."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.calls.test_library_queues import make_dead
from tests.embedded.conftest import SMALL
from tests.embedded.test_misuse import SUBCLASSES
from topics.client.parsing import DeadLetterPage, Redriven
from topics.client.server_calls import ClientDeadLetters, request_parts
from topics.common import work_steps
from topics.common.dead_letter_steps import dead_steps, redrive_steps
from topics.common.record_steps import next_step
from topics.config import Config

AnyTwin = Any
"""A log or a client that has `aio`."""


def first(records: Iterator[topics.Record], count: int) -> list[Any]:
    return [next(records).data for _ in range(count)]


def test_a_client_refuses_what_a_server_with_default_settings_would() -> None:
    """The client's rooms import nothing of the server, so the numbers stand twice."""
    bounds = {name: value for name, value in vars(request_parts).items() if name.startswith("MAX_")}
    assert len(bounds) >= 6
    assert bounds == {name: getattr(Config(), name.lower()) for name in bounds}


def test_a_tail_goes_on_where_its_reader_was(any_log: topics.AnyLog) -> None:
    any_log.append("orders", list(range(6)))
    tail = any_log.tail("orders", reader="billing")
    assert first(tail, 3) == [0, 1, 2]
    tail.close()  # type: ignore[attr-defined]  # as a loop that is left does
    (state,) = any_log.readers("orders")
    assert state.committed == 2, "the last one may not be done"
    assert first(any_log.tail("orders", reader="billing"), 4) == [2, 3, 4, 5], "what is left of the page comes at once"
    assert first(any_log.tail("orders", reader="new", from_={"last": 2}), 2) == [4, 5]


@pytest.mark.parametrize("call", SUBCLASSES)
def test_a_subclass_of_a_string_or_an_integer_is_taken_as_a_plain_one(any_log: topics.AnyLog, call: Any) -> None:
    any_log.append("t", [1, 2, 3])
    call(any_log)


def test_a_read_and_a_tail_take_only_some_of_the_records(any_log: topics.AnyLog) -> None:
    """R-MATCH: by tag, whole or by its beginning, and by node; a page says how far it has come."""
    made = [("a", "x"), ("b", "x"), ("ab", "y"), (None, "y"), ("a*", None)]
    any_log.append("t", [topics.NewRecord(seq, tag, node) for seq, (tag, node) in enumerate(made, 1)])
    for found, which in {
        (1,): {"match": "a"},
        (1, 3, 5): {"match": "a*"},
        (5,): {"match": topics.Predicate(False, b"a*")},
        (3, 4): {"only_node": "y"},
        (1, 2, 5): {"node": "y"},
        (3,): {"match": "a*", "only_node": "y"},
        (): {"match": "none"},
    }.items():
        assert [record.data for record in any_log.read("t", **which)] == list(found)
        page = any_log.page("t", **which)
        assert ([record.seq for record in page.records], page.next_from_seq) == (list(found), 5)
        if found:
            assert first(any_log.tail("t", 0, **which), len(found)) == list(found)
            tail = any_log.tail_many({"t": 0}, **which)
            assert [record.seq for _topic, record in islice(tail, len(found))] == list(found)


def test_a_tail_takes_in_the_topics_with_a_prefix(any_log: topics.AnyLog) -> None:
    """R-WAIT-7: those that are there begin as the prefix says, others with their first record."""
    for name in ("a.1", "a.2", "b", "c"):
        any_log.append(name, [1, 2])
    tail = any_log.tail_many({"b": 1}, prefixes={"a.": "now", "a.2": 1, "z": {"last": 1}})
    assert [next(tail) for _ in range(2)] == [("b", any_log.get("b", 2)), ("a.2", any_log.get("a.2", 2))]
    any_log.append("c", [3])
    any_log.append("a.1", [3])
    any_log.append("z", ["x", "y"])
    assert sorted((name, record.seq) for name, record in (next(tail) for _ in range(3))) == [
        ("a.1", 3), ("z", 1), ("z", 2),
    ]  # fmt: skip
    for count in (1, 3):  # below the cursor, and above it
        any_log.delete_topic("z")
        any_log.append("z", list(range(count)))
        assert [(name, record.seq) for name, record in (next(tail) for _ in range(count))] == [
            ("z", seq) for seq in range(1, count + 1)
        ]
    any_log.delete_topic("a.1")
    any_log.append("a.2", [3])
    assert next(tail)[0] == "a.2"


def test_an_awaited_tail_waits_for_the_first_topic_with_its_prefix(any_log: AnyTwin) -> None:
    async def follow() -> Any:
        tail = any_log.aio.tail_many(prefixes={"a": None})
        await any_log.aio.append("b", [1])
        found = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        await any_log.aio.append("a", [1])
        return await found

    name, record = asyncio.run(follow())
    assert (name, record.seq) == ("a", 1)


def test_a_tail_reports_a_topic_without_a_place(any_log: topics.AnyLog, caplog: pytest.LogCaptureFixture) -> None:
    """R-WAIT-7: by a call, or in the log; a topic that is deleted gives its place."""
    for number in range(257):
        any_log.put_topic(f"t{number:03}")
    left_out: list[str] = []
    tail = any_log.tail_many(prefixes={"t": 0}, on_left_out=left_out.append)
    any_log.append("t255", [1])
    assert next(tail)[0] == "t255"
    assert left_out == ["t256"]
    any_log.append("t256", [1])
    any_log.delete_topic("t000")
    assert next(tail)[0] == "t256"
    any_log.put_topic("t999")
    assert next(any_log.tail_many(prefixes={"t": 0}))[0] == "t255"
    assert "'t999' is not followed, and perhaps others: 256 topics are" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topics": {"orders*": 0}}, "topics has 'orders*', and no name has a *: use prefixes={'orders': ...}"),
        ({"prefixes": {"orders*": 0}}, "prefixes has 'orders*', which is a pattern: give the beginning of the names"),
        ({"prefixes": {"a" * 256: 0}}, f"prefixes has '{'a' * 256}', which has 256 characters: a topic's name has"),
        ({"prefixes": ["a"]}, "prefixes is ['a']: use a dict from names to cursors"),
        ({"prefixes": {"a": -1}}, "prefixes['a'] is -1: "),
        ({"prefixes": {"a": "end"}}, "prefixes['a'] is 'end': "),
        ({"prefixes": {"a": {"last": -1}}}, "prefixes['a'][\"last\"] is -1: "),
        ({"prefixes": {f"a{n}": 0 for n in range(65)}}, "prefixes has 65 members: use at most 64 (max_prefixes)"),
        ({}, "topics has 0 names: use 1 to 256 (max_wait_topics)"),
        ({"prefixes": {"a": 0}, "on_left_out": "skip"}, "on_left_out is 'skip': use a function of a name, or None"),
    ],
)
def test_a_prefix_of_another_kind_is_refused(any_log: topics.AnyLog, arguments: Any, words: str) -> None:
    with pytest.raises(topics.UsageError) as refused:
        next(any_log.tail_many(**arguments))
    assert str(refused.value).startswith(words)


def test_an_awaited_tail_waits_for_a_record_that_matches(any_log: AnyTwin) -> None:
    async def follow() -> list[int]:
        tail = any_log.aio.tail("t", 0, match="a")
        found = [(await anext(tail)).seq]
        await any_log.aio.append("t", [topics.NewRecord(0, "b"), topics.NewRecord(0, "a")])
        return [*found, (await anext(tail)).seq]

    any_log.append("t", [topics.NewRecord(0, "a")])
    assert asyncio.run(follow()) == [1, 3]


def test_a_read_goes_on_where_a_page_has_looked_at_enough_tags(tmp_path: Path) -> None:
    """R-MATCH-6: it yields what matches, however far apart."""
    with topics.open(tmp_path / "data", io="portable", max_filter_records=1000, **SMALL) as log:
        log.append("t", [topics.NewRecord(seq, "a" if seq % 2000 == 1999 else "b") for seq in range(6000)])
        assert [record.data for record in log.read("t", match="a")] == [1999, 3999, 5999]
        page = log.page("t", match="a")
        assert (page.records, page.caught_up) == ([], False)
        assert log.page("t", 1999, match="a").records[0].data == 1999


def test_a_page_is_committed_when_the_next_record_is_asked_for(any_log: topics.AnyLog) -> None:
    any_log.append("orders", ["a", "b"])
    tail = any_log.tail("orders", reader="billing", max_bytes=1)
    assert first(tail, 2) == ["a", "b"]
    assert any_log.readers("orders")[0].committed == 1


def test_a_page_that_is_abandoned_comes_again_at_once(any_log: AnyTwin) -> None:
    any_log.append("orders", list(range(4)))
    reader = any_log.reader("orders", "billing", commit_every=3)
    assert [record.data for record in reader.read(limit=2)] == [0, 1]
    assert [record.data for record in reader.read(limit=1)] == [2]
    reader.abandon()
    other = any_log.reader("orders", "billing")
    left = [record.data for record in other.read(limit=4)]
    assert left in ([0, 1], [2], [2, 3]), "the first page was done, and perhaps not committed"

    def leave_by_an_exception() -> None:
        with any_log.reader("orders", "new") as reader:
            reader.read(limit=3)
            raise KeyError

    async def leave_awaited_by_an_exception() -> None:
        async with any_log.aio.reader("orders", "new") as reader:
            assert len(await reader.read(limit=4)) == 3
            raise KeyError

    with pytest.raises(KeyError):
        leave_by_an_exception()

    async def leave() -> list[Any]:
        with pytest.raises(KeyError):
            await leave_awaited_by_an_exception()
        async with any_log.aio.reader("orders", "new") as reader:
            return [record.data for record in await reader.read(limit=3)]

    assert asyncio.run(leave()) == [0, 1, 2]


def make_again(log: AnyTwin, topic: str, *data: Any) -> None:
    log.delete_topic(topic)
    log.append(topic, list(data))


def test_a_tail_tells_that_its_topic_is_another_one_though_its_cursor_fits(any_log: AnyTwin) -> None:
    any_log.append("t", [1, 2])
    tail = any_log.tail("t", 0)
    assert first(tail, 2) == [1, 2]
    make_again(any_log, "t", 3, 4, 5)
    with pytest.raises(topics.GapError) as raised:
        next(tail)
    assert (raised.value.tombstone.reason, raised.value.resume_from) == ("recreated", 0)

    tail = any_log.tail("t", 0, on_gap="skip")
    assert first(tail, 3) == [3, 4, 5]
    make_again(any_log, "t", 6, 7, 8, 9)
    assert first(tail, 4) == [6, 7, 8, 9]

    async def follow() -> list[Any]:
        tail = any_log.aio.tail("t", 0, on_gap="skip")
        found = [(await anext(tail)).data for _ in range(4)]
        make_again(any_log, "t", *range(5))
        return found + [(await anext(tail)).data for _ in range(5)]

    assert asyncio.run(follow()) == [6, 7, 8, 9, *range(5)]


def test_a_read_of_several_pages_tells_that_its_topic_was_made_again_between_two(any_log: AnyTwin) -> None:
    any_log.append("t", ["old"] * 1001)
    read = any_log.read("t")
    assert next(read).data == "old"
    make_again(any_log, "t", *["new"] * 1001)
    with pytest.raises(topics.GapError) as raised:
        list(read)
    assert (raised.value.tombstone.reason, raised.value.resume_from) == ("recreated", 0)

    read = any_log.read("t", on_gap="skip")
    assert next(read).data == "new"
    make_again(any_log, "t", *["newer"] * 1002)
    assert sum(record.data == "newer" for record in read) == 1002


def test_a_tail_of_several_topics_tells_that_one_is_another_with_an_equal_head(any_log: AnyTwin) -> None:
    any_log.append("a", [1, 2])
    any_log.append("b", [3])
    tail = any_log.tail_many({"a": 0, "b": 0}, on_gap="skip")
    assert [next(tail)[1].data for _ in range(3)] == [1, 2, 3]
    make_again(any_log, "a", 4, 5)
    assert [next(tail)[1].data for _ in range(2)] == [4, 5]


def test_a_commit_after_a_gap_is_one_of_what_was_handed_out(any_log: AnyTwin) -> None:
    any_log.put_topic("t", cap_records=5)
    any_log.append("t", [0, 1, 2])
    reader = any_log.reader("t", "r", commit_every=100)
    assert [record.data for record in reader.read()] == [0, 1, 2]
    any_log.append("t", list(range(3, 13)))
    with pytest.raises(topics.GapError) as gap:
        reader.read()
    assert (gap.value.resume_from, reader.commit()) == (8, 3)
    with pytest.raises(topics.GapError):
        reader.read()
    with any_log.reader("t", "r") as other, pytest.raises(topics.GapError):
        other.read()
    assert any_log.readers("t")[0].committed == 3, "a close passes no gap, either"
    reader.seek(gap.value.resume_from)
    assert [record.data for record in reader.read()] == [8, 9, 10, 11, 12]
    assert reader.commit() == 13

    async def awaited() -> None:
        async with any_log.aio.reader("t", "awaited") as reader:
            with pytest.raises(topics.GapError) as gap:
                await reader.read()
            assert await reader.commit() == 0
            assert await reader.seek(gap.value.resume_from) == 8
            assert [record.data for record in await reader.read()] == [8, 9, 10, 11, 12]

    asyncio.run(awaited())
    assert any_log.readers("t")[0].committed == 13


def test_pages_that_are_done_and_not_committed_are_not_out(any_log: AnyTwin) -> None:
    any_log.append("t", list(range(6)))
    with any_log.reader("t", "r", commit_every=5) as reader:
        for seq in range(1, 5):
            assert [record.seq for record in reader.read(limit=1)] == [seq]
        assert (reader.state().pages, reader.committed) == (1, 0)
        assert reader.commit() == 4
        assert [record.seq for record in reader.read(limit=1)] == [5]
        reader.seek(2)
        assert [record.seq for record in reader.read(limit=2)] == [3, 4]
        any_log.reader("t", "r").seek(0)
        with pytest.raises(topics.RequestError) as late:
            reader.read()
        assert late.value.code == "reader_fenced"
        assert len(reader.read()) == 6, "it is told once"


def test_a_gap_costs_a_reader_at_most_once_no_live_record(any_log: AnyTwin) -> None:
    any_log.put_topic("t", cap_records=2)
    any_log.append("t", list(range(5)))
    with any_log.reader("t", "r", delivery="at-most-once") as reader:
        with pytest.raises(topics.GapError):
            reader.read()
        assert reader.commit() == 0
    with any_log.reader("t", "r", delivery="at-most-once") as reader:
        with pytest.raises(topics.GapError) as gap:
            reader.read()
        reader.seek(gap.value.resume_from)
        assert [record.data for record in reader.read()] == [3, 4]


@pytest.mark.parametrize("reader", [None, "billing"])
def test_a_gap_is_raised_skipped_or_told(any_log: topics.AnyLog, reader: str | None) -> None:
    any_log.put_topic("t", cap_records=2)
    any_log.append("t", list(range(5)))
    told: list[int] = []
    with pytest.raises(topics.GapError):
        next(any_log.tail("t", 0, reader=reader))
    assert first(any_log.tail("t", 0, reader=reader, on_gap="skip"), 2) == [3, 4]
    tail = any_log.tail("t", 0, reader=reader and "other", on_gap=lambda gap: told.append(gap.resume_from))
    assert (first(tail, 2), told) == ([3, 4], [3])
    with pytest.raises(topics.UsageError, match="on_gap is 'ignore'"):
        next(any_log.tail("t", 0, reader=reader, on_gap="ignore"))  # type: ignore[arg-type]


def test_a_block_completes_its_job_and_an_exception_returns_it(
    any_log: topics.AnyLog, caplog: pytest.LogCaptureFixture
) -> None:
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", ["fails", "fine"])
    seen: list[tuple[Any, int]] = []
    with caplog.at_level(logging.ERROR, "topics.work"):
        for job in any_log.work("jobs", node="w", max=2, retry_ms=0):
            with job:
                seen.append((job.data, job.deliveries))
                if job.data == "fails" and job.deliveries == 1:
                    raise ValueError("too small")
            if len(seen) == 3:
                break
    assert sorted(seen) == [("fails", 1), ("fails", 2), ("fine", 1)]
    assert any_log.state("jobs").count == 0
    assert "ValueError: too small" in caplog.text


LONG = "\u00e9" * 2000


def raises(job: Any) -> None:
    raise {"fails": ValueError("too small"), "long": KeyError(LONG)}.get(job.data, TimeoutError())


def reasons(jobs: list[topics.Job]) -> dict[Any, str]:
    return {job.data: job.attempts[0].reason for job in jobs}


EXPECTED = {"fails": "ValueError: too small", "long": f"KeyError: '{LONG}"[:517], "mute": "TimeoutError"}


def test_the_text_of_an_exception_is_kept_as_the_reason(any_log: AnyTwin) -> None:
    """R-Q-32: as much of it as is taken by default, to a whole character."""
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", list(EXPECTED))
    for job in islice(any_log.work("jobs", node="w", max=3, retry_ms=0), 3):
        with job:
            raises(job)
    jobs = any_log.claim("jobs", "w", 3, include_attempts=True)
    assert reasons(jobs) == EXPECTED
    assert any_log.nack("jobs", "w", jobs).done == 3

    async def work() -> None:
        async for job in any_log.aio.work("jobs", node="a", retry_ms=0):
            await job.nack(reason="one" if job.data == "fails" else LONG)
            return

    asyncio.run(work())
    (job,) = any_log.claim("jobs", "w", 1, include_attempts=True)
    assert [one.reason for one in job.attempts] == ["ValueError: too small", "", "one"]


def test_a_job_returns_without_its_reason_where_none_so_long_is_taken(tmp_path: Path) -> None:
    async def work() -> None:
        async for job in log.aio.work("jobs", node="a", retry_ms=0):
            async with job:
                raises(job)
            return

    with topics.open(tmp_path / "data", io="portable", max_reason_bytes=5, **SMALL) as log:
        log.put_topic("jobs", type="queue")
        log.append("jobs", ["fails"])
        jobs = log.work("jobs", node="w", retry_ms=0)
        with next(jobs) as job:
            raises(job)
        asyncio.run(work())
        (again,) = log.claim("jobs", "w", include_attempts=True)
        assert [(one.node, one.ended, one.reason) for one in again.attempts] == [
            ("w", "nacked", ""),
            ("a", "nacked", ""),
        ]


def test_an_interrupt_returns_the_job_and_goes_on(any_log: topics.AnyLog) -> None:
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", [1, 2])

    def interrupted() -> None:
        for job in any_log.work("jobs", node="w", max=2):
            with job:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    queue = any_log.state("jobs").queue
    assert queue is not None
    assert (queue.ready, queue.in_flight) == (2, 0), "the one that was not handed out, too"


def test_leases_are_extended_while_jobs_are_worked_on(any_log: topics.AnyLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_steps, "_PARTS", 1000)
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", [1])
    extended = threading.Semaphore(0)
    known = any_log.extend

    def extend(queue: str, node: str, jobs: topics.AnyLog, *, lease_ms: int) -> Any:
        result = known(queue, node, jobs, lease_ms=lease_ms)  # type: ignore[arg-type]
        for _ in result.deadlines:
            extended.release()
        return result

    monkeypatch.setattr(any_log, "extend", extend)
    for job in any_log.work("jobs", node="w"):
        with job:
            assert extended.acquire(timeout=30)
            assert extended.acquire(timeout=30)
        assert not job.is_lost
        break
    assert any_log.state("jobs").count == 0


def test_work_takes_the_lease_of_its_queue_and_extends_by_it(any_log: AnyTwin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of a worker that was killed come back when the queue says."""
    any_log.put_topic("jobs", type="queue", lease_ms=7_200_000)
    any_log.append("jobs", [1])
    monkeypatch.setattr(work_steps, "_PARTS", 7_200_000)  # a millisecond
    asked: list[tuple[str, int | None]] = []
    aio, extended = any_log.aio, threading.Event()

    def extend(*arguments: Any, lease_ms: int) -> topics.ExtendResult:
        asked.append(("extend", lease_ms))
        extended.set()
        return topics.ExtendResult({1: 1}, [])

    async def extend_awaited(*arguments: Any, lease_ms: int) -> topics.ExtendResult:
        return extend(lease_ms=lease_ms)

    def noting_claim(call: Any) -> Any:
        def claim(*arguments: Any, **options: Any) -> Any:
            asked.append(("claim", options["lease_ms"]))
            return call(*arguments, **options)

        return claim

    for log, extends in ((any_log, extend), (aio, extend_awaited)):
        monkeypatch.setattr(log, "extend", extends)
        monkeypatch.setattr(log, "claim", noting_claim(log.claim))
    for job in any_log.work("jobs", node="w"):
        assert extended.wait(30)
        job.nack(delay_ms=0)
        break
    assert set(asked) == {("claim", 7_200_000), ("extend", 7_200_000)}
    asked.clear()

    async def work_awaited() -> None:
        async for job in aio.work("jobs", node="w"):
            while len(asked) < 2:
                await asyncio.sleep(0)
            await job.nack(delay_ms=0)
            return

    asyncio.run(work_awaited())
    assert set(asked) == {("claim", 7_200_000), ("extend", 7_200_000)}


def test_a_job_that_another_worker_has_by_now_is_lost(any_log: topics.AnyLog) -> None:
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", [1])
    jobs = any_log.work("jobs", node="w")
    job = next(jobs)
    any_log.nack("jobs", "w", [job.job])
    (again,) = any_log.claim("jobs", "other")
    with job:
        pass
    assert job.is_lost
    assert any_log.ack("jobs", "other", [again]).done == 1


def test_no_more_jobs_are_held_than_asked_for(any_log: topics.AnyLog) -> None:
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", list(range(5)))
    jobs = any_log.work("jobs", node="w", max=2)
    one, two = next(jobs), next(jobs)
    queue = any_log.state("jobs").queue
    assert queue is not None
    assert (queue.ready, queue.in_flight) == (3, 2)
    threading.Timer(0.01, one.ack).start()
    assert next(jobs).data == 2, "it waits for room"
    two.ack()


def test_work_ends_with_its_log(any_log: topics.AnyLog) -> None:
    any_log.put_topic("jobs", type="queue")
    jobs = any_log.work("jobs", node="w")
    threading.Timer(0.05, any_log.close).start()
    assert list(jobs) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"node": ""}, "node is ''"),
        ({"max": 0}, "max is 0"),
        ({"lease_ms": 1}, "lease_ms is 1"),
        ({"retry_ms": -1}, "retry_ms is -1"),
    ],
)
def test_a_wrong_argument_of_work_is_one_sentence(any_log: topics.AnyLog, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(topics.UsageError, match=said):
        any_log.work("jobs", **{"node": "w", **wrong})


@pytest.mark.parametrize(
    ("setting", "advice"), [("durabilty", "did you mean durability?"), ("colour", "use one of type, ttl_ms, ")]
)
def test_a_setting_that_no_topic_has_is_told_with_the_likely_one(
    any_log: topics.AnyLog, setting: str, advice: str
) -> None:
    wrong: Any = {setting: "fsync"}
    for call in (any_log.put_topic, any_log.patch_topic):
        with pytest.raises(topics.UsageError) as refused:
            call("orders", **wrong)
        assert str(refused.value).startswith(f"unknown topic setting {setting!r}: {advice}")
    assert any_log.topics() == []


def test_asyncio_tails_and_works_alike(any_log: AnyTwin) -> None:
    any_log.append("orders", list(range(4)))
    any_log.put_topic("jobs", type="queue")
    any_log.append("jobs", ["fails", "fine"])

    async def tail_and_work() -> None:
        aio = any_log.aio
        tail = aio.tail("orders", reader="billing")
        assert [(await anext(tail)).data for _ in range(3)] == [0, 1, 2]
        await tail.aclose()
        assert (await aio.readers("orders"))[0].committed == 2
        seen: list[tuple[Any, int]] = []
        jobs = aio.work("jobs", node="w", max=2, retry_ms=0)
        async for job in jobs:
            async with job:
                seen.append((job.data, job.deliveries))
                if job.data == "fails" and job.deliveries == 1:
                    raise ValueError("too small")
            if len(seen) == 3:
                break
        await jobs.aclose()
        assert sorted(seen) == [("fails", 1), ("fails", 2), ("fine", 1)]
        assert (await aio.state("jobs")).count == 0

    asyncio.run(tail_and_work())


def test_dead_letters_are_listed_and_redriven_in_turns(any_log: topics.AnyLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientDeadLetters, "max_limit", 3)
    monkeypatch.setattr(ClientDeadLetters, "max_claim", 3)
    make_dead(any_log, b"bytes", *range(2, 9))
    dead = list(any_log.dead("jobs"))
    assert [letter.data for letter in dead] == [b"bytes", 2, 3, 4, 5, 6, 7, 8]
    assert {letter.meta["$dead_letter_reason"] for letter in dead} == {"broken"}
    assert [letter.data for letter in any_log.dead("jobs", 2, limit=4)] == [3, 4, 5, 6]
    assert any_log.redrive("jobs", [dead[0], *dead[3:6], 99]) == (4, [99])
    assert any_log.redrive("jobs", [4]) == (0, [4])
    assert any_log.redrive("jobs") == topics.RedriveResult(4, [])
    assert list(any_log.dead("jobs")) == []
    assert [record.data for record in any_log.read("jobs")] == [b"bytes", 4, 5, 6, 2, 3, 7, 8]


@pytest.mark.parametrize("again", [DeadLetterPage([], 0, 0), DeadLetterPage([], 3, 3)])
def test_a_list_and_a_redrive_end_where_the_dead_letters_were_removed_meanwhile(again: DeadLetterPage) -> None:
    """There is no such topic any more, or one with fewer records."""
    listing = dead_steps(ClientDeadLetters(), "jobs", 0, limit=None)
    answers: list[Any] = [None, DeadLetterPage([], 5, 9), None, again, None]
    assert len(list(takewhile(lambda step: step is not None, (next_step(listing, one) for one in answers)))) == 4
    redriving = redrive_steps(ClientDeadLetters(), "jobs", None)
    next(redriving)
    redriving.send(Redriven(5, [], 5, 9))
    with pytest.raises(StopIteration) as ended:
        redriving.send(Redriven(1, [], again.next_from_seq, again.head_seq))
    assert ended.value.value == topics.RedriveResult(6, [])


def test_an_async_client_is_awaited_and_used_by_async_with(url: str) -> None:
    async def use() -> None:
        async with await topics.connect_async(url) as log:
            await log.append("t", [1])
            assert [record.data async for record in log.read("t")] == [1]
        with pytest.raises(topics.UsageError, match="closed"):
            await log.state("t")

    asyncio.run(use())


@pytest.mark.parametrize(("log", "client"), [(topics.Log, topics.Client), (topics.AsyncLog, topics.AsyncClient)])
def test_clients_take_what_the_library_takes(log: type, client: type) -> None:
    own = {"columns", "locate", "flush", "stats", "append_nowait"}
    """Calls that need the files, or that a network cannot keep."""
    for name, method in inspect.getmembers(log, inspect.isfunction):
        if name.startswith("_") or name in own:
            continue
        theirs = inspect.signature(getattr(client, name))
        ours = inspect.signature(method)
        assert list(theirs.parameters.values()) == list(ours.parameters.values()), name
