"""Reads by bytes, one record by its seq, and the place of its bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics import GapError, Location, NewRecord, RequestError, UsageError


def data_of(records: Iterator[topics.Record]) -> list[Any]:
    return [record.data for record in records]


def test_a_page_has_as_many_records_as_fit_its_bytes_and_one_at_least(log: topics.Log) -> None:
    log.append("t", ["x" * 98 for _ in range(2000)])  # 100 bytes as JSON
    for most, count in ((1, 1), (100, 1), (199, 1), (200, 2), (1050, 10)):
        page = log.page("t", max_bytes=most)
        assert (len(page.records), page.size, page.next_from_seq) == (count, 100 * count, count)
    assert len(log.page("t", max_bytes=1 << 30).records) == 1000, "without a limit it is the largest one"
    assert len(log.page("t", limit=3, max_bytes=1 << 20).records) == 3
    assert asyncio.run(log.aio.page("t", 1999, max_bytes=1)).caught_up


def test_meta_counts_and_a_record_that_is_larger_comes_by_itself(log: topics.Log) -> None:
    log.append("t", [1, NewRecord("y" * 998, meta={"k": "v"}), 3])
    assert [log.page("t", cursor, max_bytes=500).size for cursor in range(3)] == [1, 1009, 1]


def test_the_bytes_of_a_read_bound_all_its_records_over_many_pages(log: topics.Log) -> None:
    log.append("t", ["x" * 98 for _ in range(2500)] + ["y" * 9998])
    assert len(list(log.read("t", max_bytes=199_999))) == 1999
    assert len(list(log.read("t", max_bytes=200_000))) == 2000
    assert len(list(log.read("t", limit=5, max_bytes=200_000))) == 5
    assert len(list(log.read("t", max_bytes=255_000))) == 2500, "the last one would not fit"
    assert len(list(log.read("t", max_bytes=260_000))) == 2501
    assert data_of(log.read("t", 2500, max_bytes=1)) == ["y" * 9998]

    async def read() -> int:
        return len([record async for record in log.aio.read("t", max_bytes=200_000)])

    assert asyncio.run(read()) == 2000


def test_the_bytes_of_a_tail_bound_what_it_reads_ahead_and_not_what_it_yields(log: topics.Log) -> None:
    log.append("t", list(range(20)))
    tail = log.tail("t", 0, max_bytes=2)
    assert [next(tail).data for _ in range(20)] == list(range(20))

    async def tail_on() -> list[Any]:
        following = log.aio.tail("t", 17, max_bytes=2)
        return [(await anext(following)).data for _ in range(3)]

    assert asyncio.run(tail_on()) == [17, 18, 19]


def test_a_record_is_got_by_its_seq_wherever_it_is_stored(tmp_path: Path) -> None:
    for life in range(3):
        with topics.open(tmp_path / "data", **SMALL) as log:
            if not life:
                log.append("t", [NewRecord({"a": 1}, tag="x", node="n", meta={"k": "v"}), {"a": 2}])
            if life == 1:
                log.checkpoint()
            first, second = log.get("t", 1), log.get("t", 2)
            assert first is not None
            assert second is not None
            assert (first.seq, first.data, first.tag, first.node, first.meta) == (1, {"a": 1}, "x", "n", {"k": "v"})
            assert (second.seq, second.data, second.tag) == (2, {"a": 2}, None)
            assert asyncio.run(log.aio.get("t", 2)) == second


def test_records_of_bytes_count_with_their_bytes_and_are_got_as_they_are(log: topics.Log) -> None:
    log.append("t", [b"\x00\xff" * 50, b"", b"z" * 300])
    assert [log.page("t", cursor, max_bytes=100).size for cursor in range(3)] == [100, 0, 300]
    assert data_of(log.read("t", max_bytes=399)) == [b"\x00\xff" * 50, b""]
    assert data_of(log.read("t", 1, max_bytes=1)) == [b""], "the next one has bytes, and is not the first"
    record = log.get("t", 1)
    assert record is not None
    assert record.data == b"\x00\xff" * 50
    place = log.locate("t", 3)
    assert place is not None
    assert b"z" * 300 in bytes_at(place)


def test_a_seq_that_is_deleted_or_not_written_yet_has_no_record(log: topics.Log) -> None:
    log.append("t", [NewRecord(1, tag="x"), NewRecord(2), NewRecord(3)])
    log.delete("t", match="x")
    for seq in (1, 4, 5, 2**64 - 1):
        assert log.get("t", seq) is None
        assert log.locate("t", seq) is None
    log.delete("t", before_seq=4)
    assert [log.get("t", seq) for seq in (1, 2, 3)] == [None] * 3


@pytest.mark.parametrize("find", ["get", "locate"])
def test_a_seq_that_was_lost_is_a_gap_with_its_range(log: topics.Log, find: str) -> None:
    log.put_topic("t", cap_records=2)
    log.append("t", [1, 2, 3, 4, 5])
    for seq in (1, 2, 3):
        with pytest.raises(GapError) as lost:
            getattr(log, find)("t", seq)
        gap = lost.value.tombstone
        assert (gap.gap_from, gap.gap_to, gap.reason, lost.value.resume_from) == (seq, 3, "cap", 3)
    assert getattr(log, find)("t", 4) is not None


def test_a_place_is_where_the_bytes_are_before_and_after_a_checkpoint(log: topics.Log) -> None:
    log.append("t", [{"needle": number} for number in range(3)])
    log.append("large", ["z" * 1000] * 9000)
    in_log = log.locate("t", 2)
    assert in_log is not None
    assert not in_log.sealed
    assert b'{"needle":1}' in bytes_at(in_log)
    with pytest.raises(UsageError, match=r"is a file of the log.*checkpoint, and locate again"):
        _ = in_log.packed
    log.checkpoint()
    in_pack, in_segment = log.locate("t", 2), asyncio.run(log.aio.locate("large", 2))
    assert in_pack is not None
    assert in_segment is not None
    assert in_pack.sealed
    assert b'{"needle":1}' in bytes_at(in_pack)
    assert in_segment.sealed
    assert b"z" * 1000 in bytes_at(in_segment)
    assert Path(in_pack.path).name == f"pack-{in_pack.packed >> 32:016x}.data"
    assert Path(in_segment.path).name == f"seg-{in_segment.packed >> 32:020d}.data"
    assert [each.packed % (1 << 32) for each in (in_pack, in_segment)] == [in_pack.offset, in_segment.offset]


def bytes_at(place: Location) -> bytes:
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        return file.read(place.length)


def test_a_record_that_is_only_in_memory_is_got_but_has_no_place(log: topics.Log) -> None:
    log.put_topic("t", durability="ephemeral")
    log.append("t", [1])
    record = log.get("t", 1)
    assert record is not None
    assert record.data == 1
    with pytest.raises(UsageError, match=r"seq 1 of topic t has no place.*ephemeral.*get reads it"):
        log.locate("t", 1)
    assert log.locate("t", 2) is None


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda log: log.get("t", 0), "seq is 0: use an integer, 1 to 18446744073709551615"),
    (lambda log: log.get("t", -1), "seq is -1: use an integer, 1"),
    (lambda log: log.get("t", 2**64), "seq is 18446744073709551616: use an integer, 1"),
    (lambda log: log.get("t", "1"), "seq is '1': use an integer"),
    (lambda log: log.get("t", True), "seq is True: use an integer"),
    (lambda log: log.get(b"t", 1), "topic is b't': use a string"),
    (lambda log: log.locate("t", 1.0), "seq is 1.0: use an integer"),
    (lambda log: log.locate(5, 1), "topic is 5: use a string"),
    (lambda log: log.page("t", max_bytes=-1), "max_bytes is -1: use an integer, 0 to"),
    (lambda log: log.page("t", max_bytes=2**64), "max_bytes is 18446744073709551616: use an integer, 0 to"),
    (lambda log: log.page("t", max_bytes="1"), "max_bytes is '1': use an integer"),
    (lambda log: list(log.read("t", max_bytes=0)), "max_bytes is 0: use an integer, 1 to"),
    (lambda log: list(log.read("t", max_bytes=1.5)), "max_bytes is 1.5: use an integer, 1 to"),
    (lambda log: next(log.tail("t", max_bytes=0)), "max_bytes is 0: use an integer, 1 to"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_argument_is_named_with_what_may_stand_there(
    log: topics.Log, call: Callable[[Any], Any], words: str
) -> None:
    log.append("t", [1])
    with pytest.raises(UsageError) as refused:
        call(log)
    assert str(refused.value).startswith(words)
    assert data_of(log.read("t")) == [1]


@pytest.mark.parametrize("find", ["get", "locate"])
def test_a_topic_that_does_not_exist_is_an_error_of_its_own(log: topics.Log, find: str) -> None:
    with pytest.raises(RequestError) as refused:
        getattr(log, find)("absent", 1)
    assert refused.value.code == "topic_not_found"
