"""Reads in two steps: the loop chooses rows, and the caller's thread reads and decodes them beside other calls."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.amount import amount
from tests.embedded.conftest import SMALL
from topics import CorruptError, NewRecord, StorageError, UsageError
from topics.common.values.which_records import WhichRecords
from topics.embedded.records import UnreadPage
from topics.engine.read import chosen_read

COLD: dict[str, Any] = SMALL | {"hot_tail_bytes": 0}
"""Settings of a log whose reads come from files."""
WAYS = ("page", "columns")


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[topics.Log]:
    with topics.open(tmp_path / "data", **COLD) as opened:
        yield opened


def between(log: topics.Log, do: Callable[[], object]) -> None:
    """Have `do` run once in the next read, after its rows were chosen and before they are read."""

    once = [do]

    def pause() -> None:
        if once:
            once.pop()()

    log._driver.rests.pause = pause  # type: ignore[method-assign]


def read(log: topics.Log, way: str, from_seq: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
    if way == "page":
        return [(record.seq, record.data) for record in log.page("t", from_seq, limit=limit).records]
    found = log.columns("t", from_seq, limit=limit)
    ends = found.offsets.tolist()
    payloads = [found.payloads[start:end] for start, end in pairwise(ends)]
    return list(zip(found.seq.tolist(), payloads, strict=True))


def payload(seq: int) -> bytes:
    """The bytes of a record, which follow from its seq. They have one of seven lengths."""
    return b"%d:" % seq + bytes([seq % 251]) * (seq % 7 * 100)


def held(log: topics.Log) -> int:
    """How many reads hold files of the log."""
    return sum(file.readers for file in log._opened.store.files)


def assert_nothing_is_held(log: topics.Log) -> None:
    """Check that no read keeps a file, once the reads ahead that the store has begun by itself have ended."""
    latest = time.monotonic() + 30
    while held(log) and time.monotonic() < latest:
        log.stats()
    assert held(log) == 0


@pytest.mark.parametrize(("others", "steps"), [(False, 7), (True, 32)])
def test_a_page_is_decoded_in_larger_steps_while_no_other_thread_waits(
    log: topics.Log, others: bool, steps: int
) -> None:
    log.append("t", [payload(seq) for seq in range(1, 1001)])
    pauses = 0

    def pause() -> bool:
        nonlocal pauses
        pauses += 1
        return others

    log._driver.rests.pause = pause  # type: ignore[method-assign]
    assert len(log.page("t", 0, limit=1000).records) == 1000
    assert pauses == 1 + steps


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_a_read_returns_what_there_was_when_its_rows_were_chosen(tmp_path: Path, way: str, tail: int) -> None:
    """R-DEL-7: a delete before it is seen, one during it is not; log files, segments and memory stay meanwhile."""
    with topics.open(tmp_path / "data", **SMALL | {"hot_tail_bytes": tail}) as log:
        log.append("t", [payload(seq) for seq in range(1, 501)])
        log.checkpoint()
        for first in range(501, 1001, 10):
            log.append("t", [payload(seq) for seq in range(first, first + 10)])
        log.delete("t", before_seq=101)

        def elsewhere() -> None:
            log.delete("t", before_seq=901)
            for _ in range(3):
                log.append("u", [bytes(1000)] * 1000)
                log.checkpoint()

        writer = threading.Thread(target=elsewhere)

        def during() -> None:
            writer.start()
            while log.state("t").earliest_seq < 901:
                pass
            for _ in range(300):
                log.append("v", [bytes(1000)] * 10)

        between(log, during)
        assert read(log, way) == [(seq, payload(seq)) for seq in range(101, 1001)]
        writer.join()
        assert read(log, way) == [(seq, payload(seq)) for seq in range(901, 1001)]


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_told_with_its_topic_and_seq_and_is_counted_and_logged_once(
    cold: topics.Log, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    cold.append("t", [payload(seq) for seq in range(1, 11)])
    cold.checkpoint()
    place = cold.locate("t", 7)
    assert place is not None
    with open(place.path, "r+b") as file:
        file.seek(place.offset + place.length - 12)
        file.write(b"!!")
    with caplog.at_level(logging.ERROR, "topics"):
        for count in (1, 2):
            with pytest.raises(CorruptError, match="topic t") as told:
                read(cold, way)
            assert told.value.detail == {"topic": "t", "seq": 7}
            assert cold.stats().checksum_failures == count
    assert len([line for line in caplog.messages if "damage" in line]) == 1
    assert len(read(cold, way, 7)) == 3, "what is beside it is read"


def test_a_page_of_a_named_reader_that_cannot_be_read_comes_again(cold: topics.Log) -> None:
    cold.append("t", [payload(seq) for seq in range(1, 11)])
    cold.checkpoint()
    place = cold.locate("t", 3)
    assert place is not None
    with open(place.path, "r+b", buffering=0) as file:
        file.seek(place.offset + place.length - 12)
        before = file.read(2)
        file.seek(-2, 1)
        file.write(b"!!")
        with cold.reader("t", "r") as reader:
            for _ in range(3):
                with pytest.raises(CorruptError):
                    reader.read()
            assert reader.committed == 0
            file.seek(-2, 1)
            file.write(before)
            assert [record.data for record in reader.read()] == [payload(seq) for seq in range(1, 11)]
        assert cold.readers("t")[0].committed == 10


@pytest.mark.parametrize("way", WAYS)
def test_the_files_of_a_read_that_its_caller_leaves_are_free_again(cold: topics.Log, way: str) -> None:
    cold.append("t", [payload(seq) for seq in range(1, 11)])
    cold.checkpoint()

    def leave() -> None:
        assert held(cold) == 1
        raise KeyboardInterrupt

    between(cold, leave)
    with pytest.raises(KeyboardInterrupt):
        read(cold, way)
    while held(cold):  # the maintenance thread looks for it
        pass
    assert len(read(cold, way)) == 10


def append_to_file(log: topics.Log, payloads: list[bytes]) -> None:
    """Append to "t", and have the records only in a file of the log: its newest are in memory, too."""
    log.append("t", payloads)
    for _ in range(3):
        log.append("u", [bytes(1000)] * 30)


def chosen(log: topics.Log, from_seq: int, limit: int) -> UnreadPage:
    """A page of "t" that is chosen, and that no thread reads yet."""
    places: dict[str, Any] = {"max_bytes": 0, "which": WhichRecords(), "wait_ms": 0, "from_": None}
    return log._driver.call(log._starts.paging("t", from_seq, limit=limit, **places))


def test_a_checkpoint_ends_while_a_task_of_the_same_event_loop_awaits_a_page(cold: topics.Log) -> None:
    append_to_file(cold, [payload(seq) for seq in range(1, 101)])

    async def page() -> None:
        awaited = asyncio.ensure_future(cold.aio.page("t"))
        await asyncio.sleep(0)
        while not held(cold):
            pass
        for _ in range(3):
            cold.append("u", [bytes(1000)] * 1000)
            cold.checkpoint(timeout=10)
        assert [record.data for record in (await awaited).records] == [payload(seq) for seq in range(1, 101)]

    asyncio.run(page())


@pytest.mark.parametrize("most", [16, 3])
def test_reads_that_never_begin_keep_a_bounded_number_of_files(tmp_path: Path, most: int) -> None:
    """Exceptions of interrupted calls refer to such reads, where a program stores them."""
    with topics.open(tmp_path, **COLD, max_held_files=most) as cold:
        _keep_files(cold, most)


def _keep_files(cold: topics.Log, most: int) -> None:
    never: list[UnreadPage] = []
    for count in range(40):
        append_to_file(cold, [payload(count + 1)])
        never.append(chosen(cold, count, 1))
        cold.checkpoint(timeout=10)
    while held(cold) > most:  # the maintenance thread looks for it
        pass
    descriptors = {file.fd for file in cold._opened.store.files if file.fd >= 0}
    assert len(descriptors) < 30
    for page in never[:-most]:
        with pytest.raises(StorageError, match="read again"):
            page.read(lambda: None)
    for count, page in list(enumerate(never))[-most:]:
        assert [record.data for record in page.read(lambda: None).records] == [payload(count + 1)]
    assert len(read(cold, "page")) == 40


@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_is_closed_during_a_read_ends_it(cold: topics.Log, way: str) -> None:
    cold.append("t", [payload(seq) for seq in range(1, 11)])
    cold.checkpoint()
    between(cold, cold.close)
    with pytest.raises(UsageError, match="closed during the read"):
        read(cold, way)


def test_a_close_waits_for_threads_that_read(cold: topics.Log) -> None:
    cold.append("t", [bytes(100)] * 1000)
    cold.checkpoint()
    reads, ends = threading.Event(), threading.Event()
    pages: list[Any] = []

    def pause() -> None:
        if cold._lender._held and any(lent()._reading for lent in cold._lender._held):  # type: ignore[union-attr]
            reads.set()
            ends.wait()

    cold._driver.rests.pause = pause  # type: ignore[method-assign]
    reader = threading.Thread(target=lambda: pages.append(cold.page("t")))
    reader.start()
    reads.wait()
    closer = threading.Thread(target=cold.close)
    closer.start()
    while not cold.closed:
        pass
    ends.set()
    reader.join()
    closer.join()
    assert len(pages[0].records) == 256


def after_turns(log: topics.Log, count: int, do: Callable[[], object]) -> None:
    """Have `do` run in the next read of columns after so many turns of it."""
    pauses = [nothing] * count + [do]

    def pause() -> None:
        if pauses:
            pauses.pop(0)()

    log._driver.rests.pause = pause  # type: ignore[method-assign]


def nothing() -> None:
    """Let a turn pass."""


@pytest.fixture
def many(cold: topics.Log, monkeypatch: pytest.MonkeyPatch) -> topics.Log:
    """A log with 100 records of 10 bytes in segments, of whose rows ten are chosen in a turn."""
    monkeypatch.setattr(chosen_read, "_TURN_ROWS", 10)
    cold.append("t", [b"%10d" % seq for seq in range(1, 101)])
    cold.checkpoint()
    return cold


def test_columns_of_many_rows_are_chosen_in_turns_between_which_other_calls_are_made(many: topics.Log) -> None:
    after_turns(many, 3, lambda: many.append("t", [b"later"]))
    page = many.columns("t")
    assert page.seq.tolist() == list(range(1, 101))
    assert page.payloads == b"".join([b"%10d" % seq for seq in range(1, 101)])
    assert (page.next_from_seq, page.head_seq, page.caught_up) == (100, 100, True), "the head of the first turn"
    assert many.columns("t", 100).payloads == b"later"


@pytest.mark.parametrize(
    ("limit", "max_bytes", "count"), [(25, 1 << 20, 25), (30, 1 << 20, 30), (1000, 255, 25), (99, 1, 1)]
)
def test_the_bounds_of_columns_count_for_all_turns(many: topics.Log, limit: int, max_bytes: int, count: int) -> None:
    page = many.columns("t", limit=limit, max_bytes=max_bytes)
    assert page.seq.tolist() == list(range(1, count + 1))
    assert (page.next_from_seq, page.caught_up) == (count, False)


def test_a_record_that_does_not_fit_what_is_left_of_max_bytes_is_left_to_the_next_read(many: topics.Log) -> None:
    many.append("t", [bytes(1000)])
    page = many.columns("t", 90, max_bytes=1050)
    assert (page.seq.tolist(), page.next_from_seq) == (list(range(91, 101)), 100)
    assert many.columns("t", 100, max_bytes=1050).seq.tolist() == [101]


def test_records_deleted_between_turns_are_left_out_and_lost_ones_end_the_read(many: topics.Log) -> None:
    after_turns(many, 2, lambda: many.delete("t", before_seq=31))
    assert many.columns("t").seq.tolist() == [*range(1, 21), *range(31, 101)]
    after_turns(many, 2, lambda: (many.put_topic("t", cap_records=10), many.append("t", [b"another"])))
    page = many.columns("t")
    assert (page.seq.tolist(), page.tombstone) == (list(range(31, 51)), None)
    rest = many.columns("t", page.next_from_seq)
    assert rest.tombstone is not None
    assert (rest.tombstone.gap_from, rest.tombstone.gap_to) == (51, 91)
    assert rest.seq.tolist() == list(range(92, 102))


def test_a_gap_before_the_first_turn_is_reported_once(many: topics.Log) -> None:
    many.put_topic("t", cap_records=50)
    many.append("t", [b"another"])
    page = many.columns("t")
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (1, 51)
    assert page.seq.tolist() == list(range(52, 102))


def test_a_topic_deleted_between_turns_is_not_found(many: topics.Log) -> None:
    after_turns(many, 2, lambda: (many.delete_topic("t"), many.append("t", [b"of another topic"] * 200)))
    with pytest.raises(topics.RequestError, match="topic_not_found|does not exist"):
        many.columns("t")


def test_asyncio_reads_short_pages_at_once_and_others_on_a_thread(cold: topics.Log, tmp_path: Path) -> None:
    async def page() -> tuple[int, int]:
        threads: list[int | None] = []
        cold._driver.rests.pause = lambda: threads.append(threading.get_ident())  # type: ignore[method-assign]
        found = await cold.aio.page("t")
        return len(found.records), len(threads) - threads.count(threading.get_ident())

    cold.append("t", [payload(seq) for seq in range(1, 11)])
    cold.checkpoint()
    count, elsewhere = asyncio.run(page())
    assert count == 10
    assert elsewhere > 0
    cold.put_topic("t", durability="ephemeral")
    cold.delete("t", before_seq=11)
    cold.append("t", [b"short"])
    assert asyncio.run(page()) == (1, 0)


def test_pages_are_what_the_model_says_beside_writers_deletes_and_checkpoints(tmp_path: Path) -> None:
    """Threads of one process: one appends, one deletes, one makes checkpoints, four read."""
    settings = SMALL | {"hot_tail_bytes": 64 << 10, "segment_max_events": 300, "compact_below": 0.7}
    with topics.open(tmp_path / "data", **settings) as log:
        log.append("t", [payload(seq) for seq in range(1, 101)])
        floor, asked, wrong = [1], [1], []
        ended = threading.Event()

        def run(work: Callable[[random.Random], None], number: int) -> None:
            rng = random.Random(number)
            try:
                while not ended.is_set():
                    work(rng)
            except BaseException as error:
                wrong.append(error)
                ended.set()

        def append(rng: random.Random) -> None:
            head = log.state("t").head_seq
            count = rng.randrange(1, 60)
            records = [
                NewRecord(payload(seq), tag="odd" if seq % 2 else None) for seq in range(head + 1, head + 1 + count)
            ]
            log.append("t", records)
            if head > amount(7000):
                ended.set()

        def delete(rng: random.Random) -> None:
            below = max(1, log.state("t").head_seq - rng.randrange(500, 3000))
            asked[0] = max(asked[0], below)
            log.delete("t", before_seq=below)
            floor[0] = max(floor[0], below)
            ended.wait(rng.random() / 100)

        def checkpoint(rng: random.Random) -> None:
            log.checkpoint()
            ended.wait(rng.random() / 50)

        def look(rng: random.Random) -> None:
            least, head = floor[0], log.state("t").head_seq
            cursor = rng.choice((0, least, rng.randrange(head), head - 50))
            found = read(log, rng.choice(WAYS), cursor, rng.choice((1, 100, 1000)))
            seqs = [seq for seq, _ in found]
            deleted = asked[0]
            if not seqs:  # all that was chosen may have been deleted while a file was opened
                assert cursor >= head - 50 or deleted > cursor + 1
                return
            assert seqs[0] > cursor
            assert seqs[0] >= least, "deleted before the read began"
            # What is deleted while files are opened may be there in part: a piece is looked at by
            # itself.
            assert seqs == sorted(set(seqs))
            kept = [seq for seq in seqs if seq >= deleted]
            assert kept == list(range(max(cursor + 1, deleted), seqs[-1] + 1))
            assert all(data == payload(seq) for seq, data in found)

        works = [append, delete, checkpoint, look, look, look, look]
        threads = [threading.Thread(target=run, args=(work, number)) for number, work in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        gc.collect()
        log.checkpoint()
        log._driver.call(lambda done: done(log._lender.release()))  # else at its next look
        assert_nothing_is_held(log)
        assert log.stats().checksum_failures == 0
