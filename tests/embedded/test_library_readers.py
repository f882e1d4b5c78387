"""Named readers of the library: what an object hands out, commits and gives back."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import topics
from tests.embedded.conftest import SMALL
from tests.embedded.test_fork import in_child
from tests.embedded.test_reentrance import within_a_pass
from topics import GapError, RequestError, UsageError


@pytest.fixture
def log(tmp_path: Path) -> Iterator[topics.Log]:
    with topics.open(tmp_path / "data", io="portable", **SMALL) as opened:
        opened.append("orders", list(range(1, 11)))
        yield opened


def seqs(records: list[topics.Record]) -> list[int]:
    return [record.seq for record in records]


def test_a_reader_goes_on_where_the_last_one_was_closed(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", io="portable") as log:
        log.append("orders", [1, 2, 3, 4])
        with log.reader("orders", "billing") as reader:
            assert [record.data for record in reader.read(limit=3)] == [1, 2, 3]
    with topics.open(tmp_path / "data", io="portable") as log, log.reader("orders", "billing") as reader:
        assert (reader.position, reader.committed, reader.lag.records) == (3, 3, 1)
        assert seqs(reader.read()) == [4]
        assert reader.read() == []


def test_leaving_by_an_exception_commits_nothing_more(log: topics.Log) -> None:
    def fail() -> None:
        with log.reader("orders", "billing", commit_every=100) as reader:
            reader.read(limit=2)
            reader.read(limit=2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    (state,) = log.readers("orders")
    assert (state.committed, state.pages) == (0, 0)
    with log.reader("orders", "billing") as reader:
        assert seqs(reader.read(limit=2)) == [3, 4], "the page that was in hand"
    assert log.readers("orders")[0].committed == 4


def test_an_object_that_was_dropped_gives_its_page_back(log: topics.Log) -> None:
    log.reader("orders", "billing").read(limit=2)
    gc.collect()
    assert seqs(log.reader("orders", "billing").read(limit=2)) == [1, 2]


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_an_object_that_was_dropped_wakes_a_read_that_waits(tmp_path: Path, io: str) -> None:
    async def wait_for_it() -> list[topics.Record]:
        reader = await log.aio.reader("orders", "billing")
        return await reader.read(wait_ms=25_000)

    with topics.open(tmp_path / "data", io=io, **SMALL) as log:
        log.append("orders", [1, 2])
        for read in (lambda: log.reader("orders", "billing").read(wait_ms=25_000), lambda: asyncio.run(wait_for_it())):
            holders = [log.reader("orders", "billing")]
            assert seqs(holders[0].read()) == [1, 2]
            dropping = threading.Timer(0.05, holders.clear)
            dropping.start()
            assert seqs(read()) == [1, 2]
            dropping.join()


def test_two_objects_share_a_position_and_a_seek_of_one_makes_the_page_of_the_other_late(log: topics.Log) -> None:
    one, two = log.reader("orders", "billing"), log.reader("orders", "billing")
    assert (seqs(one.read(limit=2)), seqs(two.read(limit=2))) == ([1, 2], [3, 4])
    assert one.seek(0) == 0
    with pytest.raises(RequestError, match="no longer handed out") as raised:
        two.read()
    assert raised.value.code == "reader_fenced"
    assert seqs(two.read(limit=1)) == [1], "it goes on"
    one.close()
    two.close()
    assert log.readers("orders")[0].committed == 1


def test_a_gap_is_raised_and_passed_by_a_seek(log: topics.Log) -> None:
    log.put_topic("orders", cap_records=3)
    with log.reader("orders", "billing") as reader:
        for _ in range(2):
            with pytest.raises(GapError) as raised:
                reader.read()
        assert reader.seek(raised.value.resume_from) == 7
        assert seqs(reader.read()) == [8, 9, 10]


def test_at_most_once_every_page_is_committed_when_it_is_there(log: topics.Log) -> None:
    reader = log.reader("orders", "billing", delivery="at-most-once")
    assert seqs(reader.read(limit=2)) == [1, 2]
    assert reader.committed == 2
    reader.abandon()
    assert seqs(log.reader("orders", "billing").read(limit=1)) == [3]


def test_a_page_of_a_reader_whose_delivery_was_changed_meanwhile_is_committed_by_its_close(log: topics.Log) -> None:
    reader = log.reader("orders", "billing", delivery="at-most-once")
    log.reader("orders", "billing", delivery="at-least-once")
    with reader:
        assert seqs(reader.read(limit=3)) == [1, 2, 3]
        assert reader.delivery == "at-least-once"
    (state,) = log.readers("orders")
    assert (state.pages, state.committed) == (0, 3)


def test_settings_that_are_not_given_stay(log: topics.Log) -> None:
    log.reader("orders", "billing", delivery="at-most-once", holds=True, from_seq=4).close()
    reader = log.reader("orders", "billing", trims=True)
    assert reader.delivery == "at-most-once"
    assert reader.state().config == ("at-most-once", True, True)
    assert seqs(reader.peek(limit=1)) == [5]
    assert log.delete_reader("orders", "billing")
    assert log.readers("orders") == []
    with pytest.raises(RequestError, match="has no reader 'billing'"):
        reader.read()


def test_max_bytes_bounds_a_page_and_commit_takes_a_part_of_it(log: topics.Log) -> None:
    with log.reader("orders", "billing") as reader:
        assert seqs(reader.read(max_bytes=3)) == [1, 2, 3]
        assert reader.commit(2) == 2
        with pytest.raises(RequestError, match="got records up to 3 only"):
            reader.commit(4)
        assert reader.commit() == 3


def test_a_commit_of_the_last_record_of_a_page_is_one_of_the_page(log: topics.Log) -> None:
    """R-READER-3: the next read has no page that is done with it."""
    with log.reader("orders", "billing") as reader:
        assert seqs(reader.read(limit=3)) == [1, 2, 3]
        assert reader.commit(2) == 2
        assert reader.commit(3) == 3
        assert seqs(reader.read(limit=3)) == [4, 5, 6]


def refusal_within_a_pass(log: topics.Log, call: Callable[[], object]) -> str:
    """Make a call on the thread that drives, in the midst of a pass; return the sentence of its refusal."""
    told: list[str] = []

    def refused() -> None:
        with pytest.raises(UsageError) as raised:
            call()
        told.append(str(raised.value))

    log.append("t", [1])
    within_a_pass(log, refused)
    return told[0]


def test_a_close_within_a_call_is_refused_and_the_reader_stays_open(log: topics.Log) -> None:
    """It was closed, and nothing committed."""
    reader = log.reader("orders", "billing")
    assert seqs(reader.read(limit=3)) == [1, 2, 3]
    assert "from within a call" in refusal_within_a_pass(log, reader.close)
    assert not reader.closed
    reader.close()
    assert reader.closed
    assert log.readers("orders")[0].committed == 3


def test_a_read_waits_for_a_record_of_another_thread(log: topics.Log) -> None:
    with log.reader("orders", "billing", from_seq=10) as reader:
        writer = threading.Timer(0.05, lambda: log.append("orders", ["late"]))
        writer.start()
        assert [record.data for record in reader.read(wait_ms=20_000)] == ["late"]
        writer.join()


def test_a_topic_that_was_deleted_and_created_again_is_told_as_recreated(log: topics.Log) -> None:
    reader = log.reader("orders", "billing")
    log.delete_topic("orders")
    log.append("orders", [1])
    for call in (reader.read, reader.commit, reader.state, lambda: reader.seek(0)):
        with pytest.raises(RequestError, match="recreated") as raised:
            call()
        assert raised.value.code == "reader_not_found"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda log: log.reader(5, "r"), "topic is 5"),
        (lambda log: log.reader("orders", 5), "name is 5"),
        (lambda log: log.reader("orders", "a b"), "reader name 'a b' is not usable"),
        (lambda log: log.reader("orders", "r", delivery="twice"), "delivery is 'twice'"),
        (lambda log: log.reader("orders", "r", commit_every=0), "commit_every is 0"),
        (lambda log: log.reader("orders", "r", holds=1), "holds is 1"),
        (lambda log: log.reader("orders", "r", trims="x"), "trims is 'x'"),
        (lambda log: log.reader("orders", "r", from_seq=-1), "from_seq is -1"),
        (lambda log: log.reader("orders", "r", from_seq=11), "from_seq is 11, and topic 'orders' ends at 10"),
        (lambda log: log.reader("absent", "r"), "topic 'absent' does not exist"),
        (lambda log: log.reader("orders", "r").read(limit=-1), "limit is -1"),
        (lambda log: log.reader("orders", "r").read(limit=1 << 64), "limit is 1844"),
        (lambda log: log.reader("orders", "r").read(limit=0.0), "limit is 0.0"),
        (lambda log: log.reader("orders", "r").read(max_bytes=None), "max_bytes is None"),
        (lambda log: log.reader("orders", "r").read(max_bytes="x"), "max_bytes is 'x'"),
        (lambda log: log.reader("orders", "r").read(wait_ms=-5), "wait_ms is -5"),
        (lambda log: log.reader("orders", "r").commit(-1), "seq is -1"),
        (lambda log: log.reader("orders", "r").commit(1), "seq is 1"),
        (lambda log: log.reader("orders", "r").seek("x"), "seq is 'x'"),
        (lambda log: log.reader("orders", "r").seek(11), "seq is 11, and topic 'orders' ends at 10"),
        (lambda log: log.readers(5), "topic is 5"),
        (lambda log: log.delete_reader("orders", 5), "name is 5"),
    ],
)
def test_a_mistake_is_told_with_argument_value_and_remedy(log: topics.Log, call: object, told: str) -> None:
    with pytest.raises((UsageError, RequestError), match=told):
        call(log)  # type: ignore[operator]
    assert [state.committed for state in log.readers("orders")] in ([], [0])


def test_a_closed_reader_one_of_another_process_and_one_in_a_pass_are_refused(log: topics.Log) -> None:
    reader = log.reader("orders", "billing")
    assert "UsageError: this log was opened before the fork" in in_child(reader.read)
    assert "from within a call" in refusal_within_a_pass(log, reader.read)
    assert seqs(reader.read(limit=1)) == [1]
    reader.close()
    reader.close()
    assert reader.closed
    for used in (reader.read, reader.peek, reader.commit, reader.state, lambda: reader.seek(0)):
        with pytest.raises(UsageError, match="reader billing is closed"):
            used()


def test_a_reader_of_a_closed_log_is_refused(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "data", io="portable")
    log.append("t", [1])
    reader = log.reader("t", "r")
    log.close()
    with pytest.raises(UsageError, match="this log is closed"):
        reader.read()


REFUSED: list[tuple[str, dict[str, object], type[topics.TopicsError]]] = [
    ("read", {"limit": -1}, UsageError),
    ("read", {"wait_ms": "x"}, UsageError),
    ("peek", {"limit": "x"}, UsageError),
    ("peek", {"max_bytes": -5}, UsageError),
    ("peek", {}, GapError),
]


@pytest.mark.parametrize(("name", "given", "error"), REFUSED)
def test_a_refused_call_leaves_its_caller_the_page_of_an_earlier_one(
    log: topics.Log, name: str, given: dict[str, object], error: type[topics.TopicsError]
) -> None:
    one, two = log.reader("orders", "billing"), log.reader("orders", "billing")
    assert seqs(one.read(limit=3)) == [1, 2, 3]
    if error is GapError:
        log.put_topic("orders", cap_records=2)
    with pytest.raises(error):
        getattr(one, name)(**given)
    if error is not GapError:
        assert seqs(two.read(limit=3)) == [4, 5, 6], "the first page is out"
    assert one.commit() == 3


@pytest.mark.parametrize(("name", "given", "error"), REFUSED)
def test_a_refused_await_leaves_its_caller_the_page_of_an_earlier_one(
    log: topics.Log, name: str, given: dict[str, object], error: type[topics.TopicsError]
) -> None:
    async def work() -> None:
        one, two = [await log.aio.reader("orders", "billing") for _ in range(2)]
        assert seqs(await one.read(limit=3)) == [1, 2, 3]
        if error is GapError:
            log.put_topic("orders", cap_records=2)
        with pytest.raises(error):
            await getattr(one, name)(**given)
        if error is not GapError:
            assert seqs(await two.read(limit=3)) == [4, 5, 6], "the first page is out"
        assert await one.commit() == 3

    asyncio.run(work())


def test_a_call_beside_another_one_is_refused_and_takes_nothing(log: topics.Log) -> None:
    reader = log.reader("orders", "billing", from_seq=10)
    got: list[list[topics.Record]] = []
    waiting = threading.Thread(target=lambda: got.append(reader.read(wait_ms=20_000)))
    waiting.start()
    while not log._engine._core.registry.visible("orders").waiters:  # type: ignore[union-attr]
        threading.Event().wait(0.001)
    for call in (reader.read, reader.peek, reader.commit, reader.state, lambda: reader.seek(0), reader.close):
        with pytest.raises(UsageError, match="reader billing is in use by another call"):
            call()
    log.append("orders", ["x"])
    waiting.join()
    assert seqs(got[0]) == [11]
    assert reader.commit() == 11


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_a_wait_that_was_cancelled_takes_no_record_that_comes_later(log: topics.Log, delivery: str) -> None:
    """R-READER-7: only a page that was handed out is lost with its caller."""

    async def work() -> list[topics.Record]:
        reader = await log.aio.reader("orders", "billing", delivery=delivery, from_seq=10)
        waiting = asyncio.create_task(reader.read(wait_ms=20_000))
        while not log._engine._core.registry.visible("orders").waiters:  # type: ignore[union-attr]
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        log.append("orders", ["x"])
        records = await reader.read()
        await reader.close()
        return records

    assert seqs(asyncio.run(work())) == [11]
    assert log.stats().pendings == 0


def test_the_asyncio_twin_is_awaited_or_used_by_async_with_and_has_the_same_numbers(log: topics.Log) -> None:
    async def fail() -> None:
        async with log.aio.reader("orders", "billing") as reader:
            await reader.read(limit=1)
            raise ZeroDivisionError

    async def work() -> None:
        async with log.aio.reader("orders", "billing") as reader:
            await reader.read(limit=2)
            await reader.read(limit=3)
            assert (await reader.position, await reader.committed, (await reader.lag).records) == (5, 2, 8)
        assert reader.closed
        assert await (await asyncio.create_task(log.aio.reader("orders", "billing"))).committed == 5
        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(UsageError, match="name is 5"):
            await log.aio.reader("orders", 5)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="does not exist"):
            async with log.aio.reader("none", "billing"):
                pass

    asyncio.run(work())
    (state,) = log.readers("orders")
    assert (state.committed, state.pages) == (5, 0)


def test_the_asyncio_twin_reads_commits_and_gives_back_what_a_cancelled_await_got(log: topics.Log) -> None:
    async def work() -> None:
        async with await log.aio.reader("orders", "billing") as reader:
            assert seqs(await reader.read(limit=2)) == [1, 2]
            assert await reader.commit() == 2
            assert seqs(await reader.peek(limit=1)) == [3]
            assert await reader.seek(9) == 9
            assert seqs(await reader.read()) == [10]
            waiting = asyncio.create_task(reader.read(wait_ms=20_000))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        (state,) = await log.aio.readers("orders")
        assert (state.committed, state.pages) == (10, 0)
        log.append("orders", ["x"])
        reader = await log.aio.reader("orders", "billing")
        assert seqs(await reader.read()) == [11]
        reader.abandon()
        assert (await reader_state(log)) == 10
        assert await log.aio.delete_reader("orders", "billing")

    async def reader_state(log: topics.Log) -> int:
        return (await log.aio.readers("orders"))[0].committed

    asyncio.run(work())


def test_a_new_reader_begins_by_a_beginning_and_one_that_exists_where_it_is(log: topics.Log) -> None:
    """R-FROM-8."""
    log.append("begun", list(range(5)))
    assert seqs(log.reader("begun", "last", from_={"last": 2}).read()) == [4, 5]
    assert log.reader("begun", "now", from_="now").position == 5
    assert log.reader("begun", "last", from_="first").position == 5

    async def opened() -> int:
        return (await (await log.aio.reader("begun", "awaited", from_={"time": 0})).state()).position

    assert asyncio.run(opened()) == 0
    with pytest.raises(topics.UsageError, match="from_seq and from_ both say where to begin"):
        log.reader("begun", "both", from_seq=1, from_="now")
    with pytest.raises(topics.UsageError, match="from_ is 'end'"):
        log.reader("begun", "bad", from_="end")
