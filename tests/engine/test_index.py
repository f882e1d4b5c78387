"""The index against a dict, with chunks so small that every run crosses them."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.engine import chunk as chunk_module
from topics.engine import index as index_module
from topics.engine.chunk import DEAD
from topics.engine.index import Index, Selection
from topics.engine.predicate import Predicate
from topics.engine.usage import Usage
from topics.store.filetable import FileKind, FileTable


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with (
        patch.object(chunk_module, "CHUNK_ROWS_MAX", 16),
        patch.object(index_module, "CHUNK_ROWS_MAX", 16),
        patch.object(chunk_module, "_ROWS_MIN", 4),
        patch.object(chunk_module, "THIN", 2),
        patch.object(index_module, "THIN", 2),
        patch.object(chunk_module, "THIN_ROWS_MIN", 6),
        patch.object(index_module, "_HOLE_ROWS_MAX", 3),
        patch.object(index_module, "_FEW_CHUNKS", 2),
        patch.object(index_module, "_MANY_ROWS", 20),
    ):
        yield


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20), st.integers(0, 6)),
        st.tuples(st.just("one"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("scatter"), st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 30)),
        st.tuples(st.just("kill"), st.integers(0, 120), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 120), st.sampled_from([0, 3, 19, 20, 60, 1 << 50])),
        st.tuples(st.just("evict"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("evict one"), st.just(0), st.just(0)),
        st.tuples(st.just("match"), st.integers(0, 120), st.sampled_from([b"t0", b"t1", b"t"])),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_the_index_is_a_dict_of_live_rows(plan: list[tuple[str, object, object]]) -> None:
    files = FileTable()
    file = files.add(FileKind.WAL, "wal")
    usage = Usage()
    usage.use(files)
    index = Index(usage)
    model: dict[int, tuple[int, bytes | None]] = {}
    last = 0
    for step, a, b in plan:
        if step in ("append", "one"):
            count = 1 if step == "one" else int(a)  # type: ignore[call-overload]
            first = last + 1 + (int(a) if step == "one" else int(b))  # type: ignore[call-overload]
            seqs = list(range(first, first + count))
            tags = [_tag(seq) for seq in seqs]
            if step == "one":
                index.append_row(first, file.file_id, first * 10, 10, _size(first), first, 0, tags[0])
            else:
                numbers = np.array(seqs, np.uint32)
                sizes = np.array([_size(seq) for seq in seqs], np.uint32)
                zeros = np.zeros(count, np.uint8)
                stamps = np.array(seqs, np.uint64)
                index.append_rows(first, file.file_id, numbers * 10, numbers, sizes, stamps, zeros, tags)
        elif step == "scatter":
            assert isinstance(a, list)
            seqs = (np.cumsum(a) + last + int(b)).tolist()  # type: ignore[call-overload]
            numbers = np.array(seqs, np.uint64)
            column = numbers.astype(np.uint32)
            sizes = np.array([_size(seq) for seq in seqs], np.uint32)
            zeros = np.zeros(len(seqs), np.uint8)
            rows = Selection(numbers, column, column * np.uint32(10), column, sizes, zeros, numbers)
            rows.file_ids[:] = file.file_id
            index.add_scattered(numbers, file.file_id, rows, numbers, [_tag(seq) for seq in seqs])
        else:
            _remove(index, model, step, a, b)
            seqs = []
        for seq in seqs:
            model[seq] = (_size(seq), _tag(seq))
        last = max(last, *seqs) if seqs else last
        _check(index, model, last)
        assert file.live_rows == usage.records == len(model)
        assert usage.bytes == index.bytes


def _remove(index: Index, model: dict[int, tuple[int, bytes | None]], step: str, a: object, b: object) -> None:
    ordered = sorted(model)
    if step == "kill":
        doomed = [seq for seq in ordered if seq <= a]  # type: ignore[operator]
        assert index.kill_through(a) == len(doomed)  # type: ignore[arg-type]
    elif step == "run":
        first, last = int(a), int(a) + int(b)  # type: ignore[call-overload]
        doomed = [seq for seq in ordered if first <= seq <= last]
        killed_rows = index.kill_run(first, last)
        assert [chunk.first + row for chunk, rows in killed_rows for row in rows.tolist()] == doomed
    elif step == "match":
        assert isinstance(b, bytes)
        predicate = Predicate(b == b"t", b)
        doomed = [seq for seq in ordered if seq <= a and predicate.matches(model[seq][1])]  # type: ignore[operator]
        killed = index.kill_matching(predicate, a)  # type: ignore[arg-type]
        assert [seq for part in killed for seq in part.seqs.tolist()] == doomed
    elif step == "evict one":
        doomed = ordered[:1]
        if doomed:
            assert index.evict_one() == doomed[0]
    else:
        doomed, size = [], 0
        for seq in ordered:
            if len(doomed) >= a and size >= b:  # type: ignore[operator]
                break
            doomed.append(seq)
            size += model[seq][0]
        assert index.evict_oldest(a, b, index.last_seq) == (doomed[-1] if doomed else 0)  # type: ignore[arg-type]
    for seq in doomed:
        del model[seq]


def _check(index: Index, model: dict[int, tuple[int, bytes | None]], last: int) -> None:
    ordered = sorted(model)
    assert index.live == len(model)
    assert index.bytes == sum(size for size, _tag_of in model.values())
    assert index.earliest == (ordered[0] if ordered else 0)
    for after in (0, last // 2, last):
        rows = index.select(after, last, 5)
        assert rows.seqs.tolist() == [seq for seq in ordered if seq > after][:5]
        assert rows.offsets.tolist() == [seq * 10 for seq in rows.seqs.tolist()]
        assert index.next_live(after + 1) == next((seq for seq in ordered if seq > after), 0)
        assert index.first_since(after + 1) == next((seq for seq in ordered if seq > after), 0), "$ts is the seq here"
        through = [model[seq][0] for seq in ordered if seq <= after]
        assert index.totals_through(after) == (len(through), sum(through))
        assert index.last_before(after) == max((seq for seq in ordered if seq < after), default=0)
    everything = np.arange(1, last + 3, dtype=np.uint64)
    assert everything[index.alive(everything)].tolist() == ordered
    tagged = {tag for _size_of, tag in model.values() if tag is not None}
    assert len(index.tags or ()) == len(tagged)
    assert all(chunk.live for chunk in index.chunks)


def _size(seq: int) -> int:
    return seq % 5 + 1


def _tag(seq: int) -> bytes | None:
    return None if seq % 3 == 2 else b"t%d" % (seq % 3)


def test_a_record_costs_at_most_32_bytes_of_index() -> None:
    with patch.object(chunk_module, "CHUNK_ROWS_MAX", 8192), patch.object(index_module, "CHUNK_ROWS_MAX", 8192):
        files = FileTable()
        usage = Usage()
        usage.use(files)
        index = Index(usage)
        file_id = files.add(FileKind.WAL, "wal").file_id
        column = np.ones(100_000, np.uint32)
        flags = np.zeros(100_000, np.uint8)
        index.append_rows(1, file_id, column, column, column, 1, flags, [b"t"] * 100_000)
        held = 0
        for chunk in index.chunks:
            columns = (chunk.file_ids, chunk.offsets, chunk.lengths, chunk.sizes, chunk.ts, chunk.flags, chunk.tags)
            held += sum(column.nbytes for column in columns if column is not None)
        assert held / 100_000 <= 32
        assert not (index.chunks[0].flags & DEAD).any()


def test_a_few_records_that_outlive_many_do_not_keep_their_rows() -> None:
    """Jobs put off for a day: one of a thousand, with 25 bytes for each of the others until it went."""
    sizes = {"CHUNK_ROWS_MAX": 8192, "THIN": 16}
    with (
        patch.multiple(chunk_module, **sizes, THIN_ROWS_MIN=1024),
        patch.multiple(index_module, **sizes, _HOLE_ROWS_MAX=64),
    ):
        files = FileTable()
        usage = Usage()
        usage.use(files)
        index = Index(usage)
        file = files.add(FileKind.WAL, "wal")
        column = np.ones(1000, np.uint32)
        for first in range(1, 100_001, 1000):
            index.append_rows(first, file.file_id, column, column, column, 1, np.zeros(1000, np.uint8), [b"t"] * 1000)
            index.kill_run(first + 1, first + 999)
        assert index.select(0, 100_000, 1000).seqs.tolist() == list(range(1, 100_001, 1000))
        assert (index.live, index.earliest, file.live_rows) == (100, 1, 100)
        assert sum(chunk.capacity for chunk in index.chunks) < 20_000
        killed = index.kill_matching(Predicate(False, b"t"), 100_000)
        assert sum(len(rows.seqs) for rows in killed) == 100
        assert (index.live, index.tags, file.live_rows) == (0, None, 0)


def test_what_each_of_very_many_lone_records_costs_when_it_goes_does_not_depend_on_how_many_there_are() -> None:
    """Each has a chunk of its own. All chunks were gone through for each: 4 ms an ack with 86,400 of them."""
    sizes = {"CHUNK_ROWS_MAX": 8192, "THIN": 16}
    with (
        patch.multiple(chunk_module, **sizes, THIN_ROWS_MIN=1024),
        patch.multiple(index_module, **sizes, _HOLE_ROWS_MAX=64, _FEW_CHUNKS=8),
    ):
        files = FileTable()
        usage = Usage()
        usage.use(files)
        index = Index(usage)
        file = files.add(FileKind.WAL, "wal")
        column = np.ones(1000, np.uint32)
        for first in range(1, 100_001, 100):
            index.append_rows(first, file.file_id, *[column[:100]] * 3, 1, np.zeros(100, np.uint8), None)
            index.kill_run(first + 1, first + 99)
        assert len(index.chunks) > 900
        before = index.chunks
        for seq in range(1, 80_001, 100):
            index.kill_run(seq, seq)
        assert index.chunks is before, "the list of all is not made anew"
        assert index.select(0, 100_000, 1000).seqs.tolist() == list(range(80_001, 100_001, 100))
        assert (index.live, index.earliest, file.live_rows) == (200, 80_001, 200)


def test_a_chunk_that_was_thinned_and_filled_again_is_thinned_again() -> None:
    sizes = {"CHUNK_ROWS_MAX": 8192, "THIN": 16}
    with (
        patch.multiple(chunk_module, **sizes, THIN_ROWS_MIN=1024),
        patch.multiple(index_module, **sizes, _HOLE_ROWS_MAX=64),
    ):
        files = FileTable()
        usage = Usage()
        usage.use(files)
        index = Index(usage)
        file = files.add(FileKind.WAL, "wal")
        column = np.ones(10_000, np.uint32)
        for first, count in ((1, 8193), (8194, 10_000)):
            part = column[:count]
            index.append_rows(first, file.file_id, part, part, part, 1, np.zeros(count, np.uint8), None)
            if first == 1:
                index.kill_run(1, 8190)
                index.kill_run(8193, 8193)
                assert [chunk.capacity for chunk in index.chunks] == [2]
        index.kill_run(8195, 16_000)
        assert index.select(0, 16_001, 9).seqs.tolist() == [8191, 8192, 8194, 16_001]
        assert sum(chunk.capacity for chunk in index.chunks) < 4096


def test_tags_taken_before_their_rows_come_count_like_those_of_rows() -> None:
    """Given to rows, which die later, or given back."""
    files = FileTable()
    usage = Usage()
    usage.use(files)
    index, file = Index(usage), files.add(FileKind.WAL, "wal")
    numbers = index.take_tags([b"a", None, b"b", b"a"])
    index.give_back_tags(index.take_tags([b"a", b"c", None]))
    column = np.ones(4, np.uint32)
    index.append_rows(1, file.file_id, column, column, column, 0, np.zeros(4, np.uint8), numbers)
    assert index.tags is not None
    assert len(index.tags) == 2
    assert [len(found.seqs) for found in index.kill_matching(Predicate(False, b"a"), 4)] == [2]
    assert index.live == 2
    assert len(index.tags) == 1
    index.give_back_tags(index.take_tags([b"d"]))
    index.kill_through(4)
    assert index.tags is None


@pytest.mark.parametrize("how", ["through", "all tags"])
@pytest.mark.parametrize("come", [True, False])
def test_tags_of_rows_that_are_to_come_outlive_a_delete_of_all_rows(how: str, come: bool) -> None:
    files = FileTable()
    file = files.add(FileKind.WAL, "wal")
    usage = Usage()
    usage.use(files)
    index = Index(usage)
    for seq in range(1, 11):
        index.append_row(seq, file.file_id, 0, 64, _size(seq), 0, 0, b"t%d" % seq)
    numbers = index.take_tags([b"t1", None, b"new", b"t10"])
    if how == "through":
        assert index.kill_through(10) == 10
    else:
        assert sum(len(part.seqs) for part in index.kill_matching(Predicate(True, b""), 10)) == 10
    if come:
        ones = np.ones(4, np.uint32)
        index.append_rows(11, file.file_id, ones, ones, ones, 0, np.zeros(4, np.uint8), numbers)
        index.append_row(15, file.file_id, 0, 64, 1, 0, 0, b"later")
        for tag, seqs in ((b"t1", [11]), (b"new", [13]), (b"later", [15]), (b"t10", [14])):
            assert [part.seqs.tolist() for part in index.kill_matching(Predicate(False, tag), 15)] == [seqs]
    else:
        index.give_back_tags(numbers)
    assert index.tags is None
