"""The library on a real directory: what was appended is read back, by threads, by asyncio, after a restart."""

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics.uring.probe import probe


@pytest.fixture(params=["uring", "portable"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "uring" and not probe().ok:
        pytest.skip(probe().reason)
    return {"io": request.param, **SMALL}


@pytest.fixture
def log(tmp_path: Path, settings: dict[str, Any]) -> Iterator[topics.Log]:
    with topics.open(str(tmp_path / "data"), **settings) as opened:
        yield opened


def values_of(records: Iterator[topics.Record]) -> list[Any]:
    return [record.data for record in records]


def test_what_was_appended_is_read_back_in_order(log: topics.Log) -> None:
    assert log.append("orders", [{"sku": 1}, {"sku": 2}]).last_seq == 2
    assert log.append("orders", ["é", None]).first_seq == 3
    assert values_of(log.read("orders")) == [{"sku": 1}, {"sku": 2}, "é", None]
    assert values_of(log.read("orders", 2, limit=1)) == ["é"]


def test_tags_nodes_and_meta_come_back_with_their_record(log: topics.Log) -> None:
    log.append("t", [topics.NewRecord(1, tag="a", node="n", meta={"k": "v"})], node="default")
    log.append("t", [2], node="default")
    first, second = log.read("t")
    assert (first.tag, first.node, first.meta) == ("a", "n", {"k": "v"})
    assert (second.tag, second.node, second.meta) == (None, "default", None)
    assert values_of(log.read("t", node="default")) == [1]


def test_an_append_may_name_the_incarnation_that_it_means(log: topics.Log) -> None:
    """R-INC-4."""
    log.append("t", [1])
    known = log.state("t").incarnation
    log.append("t", [2], incarnation=known)
    log.append_many("t", [b"3"], incarnation=known)
    asyncio.run(log.aio.append_many("t", [b"4"], incarnation=known))
    log.delete_topic("t")
    log.append("t", ["new"])
    present = log.state("t").incarnation
    for call in (
        lambda: log.append("t", [5], incarnation=known),
        lambda: log.append_many("t", [b"5"], incarnation=known),
    ):
        with pytest.raises(topics.RequestError) as refused:
            call()
        assert (refused.value.code, refused.value.detail) == (
            "incarnation_mismatch",
            {"topic": "t", "incarnation": present},
        )
    assert values_of(log.read("t")) == ["new"]


def test_a_wait_tells_of_the_first_topic_with_news(log: topics.Log) -> None:
    """7.8: what it returns is what it takes."""
    log.append("a", [1])
    heads = log.wait({"b": None, "a": 0}, wait_ms=30_000)
    assert list(heads.items()) == [("b", None), ("a", topics.TopicHead(1, log.state("a").incarnation))]
    assert log.wait(heads, wait_ms=1) == heads
    writer = threading.Timer(0.01, lambda: log.append("b", [1, 2]))
    writer.start()
    heads = log.wait(heads, wait_ms=30_000)
    writer.join()
    assert heads["b"] == topics.TopicHead(2, log.state("b").incarnation)

    async def wait_and_write() -> Any:
        waiting = asyncio.ensure_future(log.aio.wait(heads, wait_ms=30_000))
        await log.aio.delete_topic("a")
        return await waiting

    assert asyncio.run(wait_and_write()) == {"b": heads["b"], "a": None}


def test_a_close_ends_a_wait(tmp_path: Path) -> None:
    """R-WAIT-4."""
    log = topics.open(tmp_path)
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.append(log.wait({"t": None}, wait_ms=30_000)))
    waiting.start()
    while not log._engine._core.waits:
        waiting.join(0.001)
    log.close()
    waiting.join()
    assert told == [{"t": None}]


def append_after(log: topics.Log, ts: int) -> topics.Record:
    """The first record that is written later than `ts`."""
    while True:
        (record,) = log.read("t", log.append("t", [0]).last_seq - 1)
        if record.ts > ts:
            return record


def test_reading_may_begin_at_a_time(log: topics.Log) -> None:
    """R-FROM-1."""
    log.append("t", [1, 2])
    first = next(log.read("t"))
    later = append_after(log, first.ts)
    assert values_of(log.read("t", from_time=first.ts, limit=2)) == [1, 2]
    assert next(log.read("t", from_time=first.ts + 1)) == later
    assert next(log.tail("t", from_time=first.ts + 1)) == later
    assert log.page("t", from_time=later.ts + 1).records == []

    async def read_and_tail() -> list[topics.Record]:
        found = [record async for record in log.aio.read("t", from_time=later.ts)]
        async for record in log.aio.tail("t", from_time=later.ts):
            return [*found, record]
        raise AssertionError("a tail that ends")

    assert asyncio.run(read_and_tail()) == [later, later]


def test_reading_may_begin_at_a_place_with_a_name(log: topics.Log) -> None:
    """R-FROM-4."""
    log.put_topic("t", cap_records=4)
    log.append("t", list(range(6)))
    assert values_of(log.read("t", from_="first")) == [2, 3, 4, 5]
    assert values_of(log.read("t", from_={"last": 2})) == [4, 5]
    assert values_of(log.read("t", from_={"last": 3}, limit=2)) == [3, 4]
    assert values_of(log.read("t", from_={"time": 0})) == [2, 3, 4, 5]
    assert values_of(log.read("t", from_="now")) == []
    assert log.page("t", from_="now").next_from_seq == 6
    assert log.page("t", from_="first").tombstone is None
    assert log.columns("t", from_={"last": 2}).seq.tolist() == [5, 6]
    assert log.columns("t", from_="first").tombstone is None
    tail = log.tail("t", from_={"last": 1})
    assert next(tail).data == 5
    log.append("t", [6])
    assert next(tail).data == 6

    async def read_and_tail() -> list[Any]:
        found = [record.data async for record in log.aio.read("t", from_={"last": 2})]
        async for record in log.aio.tail("t", from_="first"):
            return [*found, record.data]
        raise AssertionError("a tail that ends")

    assert asyncio.run(read_and_tail()) == [5, 6, 3]
    assert asyncio.run(log.aio.page("t", from_={"last": 1})).records[0].data == 6


def test_one_tail_may_follow_several_topics(log: topics.Log) -> None:
    log.append("a", [1, 2, 3])
    log.append("b", [1, 2])
    log.put_topic("c")
    tail = log.tail_many({"a": 1, "b": {"last": 1}, "c": None})
    found = [next(tail) for _ in range(3)]
    assert [(name, record.data) for name, record in found] == [("a", 2), ("a", 3), ("b", 2)]
    writer = threading.Timer(0.01, lambda: log.append("c", ["x"]))
    writer.start()
    name, record = next(tail)
    writer.join()
    assert (name, record.data) == ("c", "x")
    log.append("b", [3])
    assert next(tail)[1].seq == 3

    async def follow() -> Any:
        async for name, record in log.aio.tail_many({"c": "now", "a": {"last": 1}}):
            return name, record.data

    assert asyncio.run(follow()) == ("a", 3)


def test_a_tail_of_several_topics_begins_in_all_of_them_at_its_first_record(log: topics.Log) -> None:
    for name in "abc":
        log.append(name, [1, 2])
    tail = log.tail_many({"a": 1, "b": {"last": 1}, "c": None})
    assert next(tail)[0] == "a"
    log.append("b", [3])
    log.append("c", [3])
    assert [(name, record.data) for name, record in (next(tail) for _ in range(3))] == [("b", 2), ("b", 3), ("c", 3)]


def test_a_tail_of_several_topics_from_a_time_to_come_passes_what_is_earlier(log: topics.Log) -> None:
    """R-FROM-3."""
    log.append("t", [1])
    time = next(log.read("t")).ts + 30
    log.put_topic("u")
    writer = threading.Thread(target=append_after, args=(log, time))
    writer.start()
    name, record = next(log.tail_many({"u": 0, "t": {"time": time}}))
    writer.join()
    assert name == "t"
    assert record.ts >= time


def test_a_loss_in_one_of_several_topics_names_it(log: topics.Log) -> None:
    log.put_topic("b", cap_records=1)
    log.append("a", [1])
    log.append("b", [1, 2])
    tail = log.tail_many({"a": 0, "b": 0})
    assert next(tail)[0] == "a"
    with pytest.raises(topics.GapError) as lost:
        next(tail)
    assert (lost.value.topic, lost.value.resume_from) == ("b", 1)


def test_a_tail_of_several_topics_ends_when_the_log_is_closed(tmp_path: Path) -> None:
    log = topics.open(tmp_path)
    log.append("t", [1])
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(log.tail_many({"t": 0})))
    waiting.start()
    while not log._engine._core.waits:
        waiting.join(0.001)
    log.close()
    waiting.join()
    assert [(name, record.data) for name, record in found] == [("t", 1)]


def test_a_tail_of_an_empty_topic_begins_with_what_comes(log: topics.Log) -> None:
    """R-FROM-6."""
    log.put_topic("t")
    waiters = log._engine._core.registry.by_name["t"].waiters

    def append_once_it_waits() -> None:
        """A tail from "now" does not begin with an append before it."""
        while not waiters:
            pass
        log.append("t", [1])

    for begin in ("first", "now", {"last": 3}):
        tail = log.tail("t", from_=begin)
        writer = threading.Thread(target=append_once_it_waits)
        writer.start()
        assert next(tail).data == 1
        writer.join()
        log.delete("t", before_seq=2**63)


def test_a_tail_from_a_time_to_come_passes_what_is_earlier(log: topics.Log) -> None:
    """R-FROM-3."""
    log.append("t", [1])
    time = next(log.read("t")).ts + 30
    writer = threading.Thread(target=append_after, args=(log, time))
    writer.start()
    assert next(log.tail("t", from_time=time)).ts >= time
    writer.join()


def test_a_checkpoint_brings_the_files_up_to_date(log: topics.Log, tmp_path: Path) -> None:
    """R-CHK-1: its number is that of a snapshot in the directory."""
    log.append("t", [1, 2])
    first = log.checkpoint()
    log.append("t", [3])
    second = asyncio.run(log.aio.checkpoint(timeout=60))
    assert second > first
    assert f"snapshot-{second:016x}" in os.listdir(tmp_path / "data" / "snapshots")
    assert any((tmp_path / "data" / "packs").iterdir())


def test_a_checkpoint_of_a_log_that_is_being_closed_is_refused(log: topics.Log) -> None:
    log._driver.call(lambda done: done(log._engine.begin_shutdown()))
    with pytest.raises(topics.RequestError, match="a shutdown has begun") as refused:
        log.checkpoint()
    assert refused.value.code == "shutting_down"
    assert "server" not in refused.value.message


def test_a_checkpoint_that_ends_by_a_bug_is_answered_and_the_next_one_is_made(log: topics.Log) -> None:
    log.append("t", [1])
    checkpointer, run = log._opened.store.checkpointer, log._opened.store.checkpointer.run

    async def fail(**_: Any) -> None:
        checkpointer.run = run  # type: ignore[method-assign]
        raise TypeError("not as it was meant")

    checkpointer.run = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(topics.StorageError, match="by a bug of ours .TypeError: not as it was meant"):
        log.checkpoint(timeout=60)
    assert log.checkpoint(timeout=60) > 0


def test_a_checkpoint_that_is_not_over_in_time_goes_on(log: topics.Log) -> None:
    """R-CHK-3."""
    log.append("t", [1, 2])
    with pytest.raises(TimeoutError, match="timeout is 0 s, and the checkpoint has not ended; it continues"):
        log.checkpoint(timeout=0)
    assert log.checkpoint(timeout=60.5) > 0


def test_a_list_of_many_pages_is_read_to_its_end(tmp_path: Path) -> None:
    with topics.open(str(tmp_path), max_limit=1, **SMALL) as log:
        for number in range(400):
            log.put_topic(f"t{number:03}", durability="ephemeral")
        assert [topic.name for topic in log.topics()] == [f"t{number:03}" for number in range(400)]


def test_ready_made_texts_are_appended_as_they_are(log: topics.Log) -> None:
    result = log.append_many("t", [b'{"a":1.50}', b"[]"])
    assert (result.first_seq, result.last_seq) == (1, 2)
    assert values_of(log.read("t")) == [{"a": 1.5}, []]


def test_a_text_that_is_no_json_is_refused_and_nothing_is_appended(log: topics.Log) -> None:
    log.append("t", [1])
    with pytest.raises(topics.RequestError):
        log.append_many("t", [b"1", b"{"])
    assert log.state("t").head_seq == 1


def test_everything_is_there_after_closing_and_opening_again(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = str(tmp_path / "data")
    with topics.open(path, **settings) as log:
        log.put_topic("t", durability="fsync", cap_records=1000)
        for number in range(50):
            log.append("t", [number])
    with topics.open(path, **settings) as log:
        assert values_of(log.read("t")) == list(range(50))
        assert log.state("t").config.cap_records == 1000
        assert log.append("t", ["next"]).first_seq == 51


def test_an_idempotency_key_is_recognised_after_opening_again(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = str(tmp_path / "data")
    with topics.open(path, **settings) as log:
        first = log.append("t", [1, 2], key="k")
    with topics.open(path, **settings) as log:
        again = log.append("t", [1, 2], key="k")
        assert again.deduped
        assert (again.first_seq, again.last_seq) == (first.first_seq, first.last_seq)
        assert log.state("t").count == 2


def test_deleted_records_stay_deleted(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = str(tmp_path / "data")
    with topics.open(path, **settings) as log:
        log.append("t", [topics.NewRecord(number, tag=f"tag-{number % 3}") for number in range(9)])
        assert log.delete("t", match="tag-1").deleted == 3
        assert log.delete("t", before_seq=4).deleted == 2
    with topics.open(path, **settings) as log:
        assert values_of(log.read("t")) == [3, 5, 6, 8]


def test_a_gap_is_an_error_that_names_the_range_and_the_cursor_behind_it(log: topics.Log) -> None:
    log.put_topic("t", cap_records=2)
    log.append("t", [1, 2, 3, 4])
    with pytest.raises(topics.GapError) as caught:
        list(log.read("t"))
    gap = caught.value
    assert (gap.tombstone.gap_from, gap.tombstone.gap_to, gap.tombstone.reason) == (1, 2, "cap")
    assert values_of(log.read("t", gap.resume_from)) == [3, 4]


def test_threads_append_side_by_side_without_a_loss_or_a_duplicate(log: topics.Log) -> None:
    thread_count, count = 6, 40

    def work(name: int) -> None:
        for number in range(count):
            log.append("t", [[name, number]])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    values = values_of(log.read("t"))
    assert len(values) == thread_count * count
    for name in range(thread_count):
        assert [number for who, number in values if who == name] == list(range(count))


def test_a_tail_gets_what_another_thread_appends_and_ends_with_the_log(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    log = topics.open(str(tmp_path / "data"), **settings)
    log.append("t", [0])
    seen: list[Any] = []
    three_seen = threading.Event()

    def follow() -> None:
        for record in log.tail("t", 0):
            seen.append(record.data)
            if len(seen) == 3:
                three_seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    log.append("t", [1])
    log.append("t", [2])
    assert three_seen.wait(10)
    log.close()
    thread.join(10)
    assert not thread.is_alive()
    assert seen == [0, 1, 2]


def test_asyncio_callers_append_read_and_tail(log: topics.Log) -> None:
    async def main() -> list[Any]:
        results = await asyncio.gather(*(log.aio.append("t", [number]) for number in range(20)))
        assert sorted(result.first_seq for result in results) == list(range(1, 21))
        seen = [record.data async for record in log.aio.read("t")]
        async for record in log.aio.tail("t", 19):
            seen.append(record.seq)
            break
        with pytest.raises(topics.RequestError):
            await log.aio.page("missing")
        return seen

    seen = asyncio.run(main())
    assert sorted(seen[:-1]) == list(range(20))
    assert seen[-1] == 20


def test_a_second_process_or_log_is_refused_with_a_clear_error(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = str(tmp_path / "data")
    with topics.open(path, **settings), pytest.raises(topics.LockedError, match="data"):
        topics.open(path, **settings)
    topics.open(path, **settings).close()


def test_two_logs_in_one_process_do_not_know_each_other(tmp_path: Path, settings: dict[str, Any]) -> None:
    with topics.open(str(tmp_path / "a"), **settings) as a, topics.open(str(tmp_path / "b"), **settings) as b:
        a.append("t", ["a"])
        b.append("t", ["b"])
        assert values_of(a.read("t")) == ["a"]
        assert values_of(b.read("t")) == ["b"]


def test_a_closed_log_says_so(log: topics.Log) -> None:
    log.close()
    with pytest.raises(topics.UsageError, match="closed"):
        log.append("t", [1])


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(topics.UsageError, match="hot_tial_bytes"):
        topics.open(str(tmp_path), hot_tial_bytes=1)


def _append_until_killed(path: str, settings: dict[str, Any], acked: Any) -> None:
    log = topics.open(path, **settings)
    log.put_topic("t", durability="fsync")
    number = 0
    while True:
        log.append("t", [number])
        number += 1
        acked.value = number


def test_kill_minus_nine_loses_nothing_acknowledged(tmp_path: Path, settings: dict[str, Any]) -> None:
    context = multiprocessing.get_context("spawn")
    acked = context.Value("q", 0, lock=False)
    path = str(tmp_path / "data")
    child = context.Process(target=_append_until_killed, args=(path, settings, acked))
    child.start()
    while acked.value < 20:
        assert child.is_alive()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with topics.open(path, **settings) as log:
        values = values_of(log.read("t"))
        assert values[: acked.value] == list(range(acked.value))
        assert len(values) <= acked.value + 1


def test_an_interrupt_ends_a_wait_and_the_log_goes_on(log: topics.Log) -> None:
    log.append("t", [1])
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))

    def follow() -> None:
        timer.start()  # here, because it may come before this thread has a core again
        for _record in log.tail("t"):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    try:
        with pytest.raises(KeyboardInterrupt):
            follow()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert log.append("t", [2]).last_seq == 2
    assert values_of(log.read("t")) == [1, 2]


def test_columns_are_what_a_read_would_be(tmp_path: Path) -> None:
    with topics.open(str(tmp_path)) as log:
        log.append("t", [{"n": number} for number in range(500)] + ["text", None, 1.5])
        log.delete("t", before_seq=3)
        first = log.columns("t", limit=100)
        rest = log.columns("t", first.next_from_seq)
        assert (len(first.seq), rest.caught_up, rest.tombstone) == (100, True, None)
        seen = []
        for page in (first, rest):
            texts = [page.payloads[start:end] for start, end in pairwise(page.offsets.tolist())]
            seen += list(zip(page.seq.tolist(), page.ts.tolist(), map(json.loads, texts), strict=True))
        assert seen == [(record.seq, record.ts, record.data) for record in log.read("t")]
        small = log.columns("t", max_bytes=1)
        assert small.seq.tolist() == [3]
        empty = log.columns("t", small.head_seq)
        assert (len(empty.seq), empty.offsets.tolist(), empty.payloads) == (0, [0], b"")


def test_columns_tell_what_was_lost_and_come_from_files_too(tmp_path: Path) -> None:
    with topics.open(str(tmp_path)) as log:
        log.put_topic("t", cap_records=10)
        log.append("t", list(range(100)))
        page = log.columns("t")
        assert page.tombstone is not None
        assert (page.tombstone.gap_to, page.seq.tolist()) == (90, list(range(91, 101)))
    with topics.open(str(tmp_path)) as log:
        assert log.columns("t", 90).payloads == b"".join(b"%d" % number for number in range(90, 100))


def test_a_patch_of_a_topic_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    with topics.open(str(tmp_path)) as log:
        log.put_topic("t", durability="fsync", dead_letter="dead")
        before, after = log.patch_topic("t", priority=900, dead_letter=None)
        assert (before.durability, before.priority, before.dead_letter) == ("fsync", None, "dead")
        assert (after.durability, after.priority, after.dead_letter) == ("fsync", 900, None)
        with pytest.raises(topics.RequestError, match="'absent' does not exist"):
            log.patch_topic("absent", priority=1)
    with topics.open(str(tmp_path)) as log:
        assert log.state("t").config == after


def test_what_is_appended_soon_has_its_seqs_in_order(log: topics.Log) -> None:
    futures = [log.append_soon("t", {"n": number}) for number in range(2500)]
    assert [future.result() for future in futures] == list(range(1, 2501))
    assert [record.data["n"] for record in log.read("t")] == list(range(2500))


def test_what_is_appended_soon_is_written_unasked(log: topics.Log) -> None:
    log.put_topic("t")
    future = log.append_soon("t", 1)
    found = next(log.tail("t", 0))
    assert (found.data, future.done(), future.result()) == (1, True, 1)


def test_of_what_is_appended_soon_only_the_refused_is_refused(log: topics.Log) -> None:
    futures = [log.append_soon("t", "x" * size) for size in (1, 17 << 20, 3)]
    assert futures[2].result() == 2
    with pytest.raises(topics.RequestError, match="larger"):
        futures[1].result()
    assert futures[0].result() == 1
    with pytest.raises(topics.RequestError, match="NaN"):
        log.append_soon("t", float("nan"))
    with pytest.raises(topics.RequestError):
        log.append_soon("no/such name", 1).result()


def test_closing_writes_what_was_appended_soon(tmp_path: Path) -> None:
    with topics.open(str(tmp_path)) as log:
        future = log.append_soon("t", 1)
    assert future.result() == 1
    with topics.open(str(tmp_path)) as log:
        assert [record.data for record in log.read("t")] == [1]


def test_threads_that_append_soon_lose_nothing(log: topics.Log) -> None:
    log.put_topic("f", durability="fsync")
    seqs: list[int] = []

    def work(name: str) -> None:
        futures = [log.append_soon(topic, f"{name} {n}") for n in range(400) for topic in ("t", "f")]
        seqs.extend(future.result() for future in futures)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "left asleep"
    assert sorted(seqs) == sorted([*range(1, 1601), *range(1, 1601)])
    for name in ("t", "f"):
        texts = [record.data.split() for record in log.read(name)]
        for number in range(4):
            assert [int(n) for who, n in texts if who == str(number)] == list(range(400))


def test_of_a_batch_refused_as_a_whole_what_is_fine_is_written_unasked(log: topics.Log) -> None:
    log.put_topic("t", cap_records=3, discard="reject")
    futures = [log.append_soon("t", number) for number in range(5)]
    for record in log.tail("t", 0):
        if record.data == 2:
            break
    assert [future.result() for future in futures[:3]] == [1, 2, 3]
    for future in futures[3:]:
        with pytest.raises(topics.RequestError, match="full"):
            future.result()


def test_a_log_that_was_just_made_takes_less_than_1_mib_and_few_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with topics.open(tmp_path / "log") as log:
        log.append("t", [1])
        files = [path.stat() for path in (tmp_path / "log").rglob("*") if path.is_file()]
        assert sum(file.st_blocks * 512 for file in files) < 1 << 20
        assert len(os.listdir("/proc/self/fd")) - before <= 12
