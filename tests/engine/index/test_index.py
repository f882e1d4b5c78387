"""The index against a dict, with chunks so small that every run crosses them."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.fake_store import usage_of
from topics.engine.index import chunk as chunk_module
from topics.engine.index import index as index_module
from topics.engine.index import tags as tags_module
from topics.engine.index.chunk import DEAD, Dead
from topics.engine.index.index import Index
from topics.engine.index.selected_rows import SelectedRows
from topics.engine.index.tagged_rows import tagged_rows
from topics.engine.index.tagged_search import TaggedSearch
from topics.engine.index.usage import Usage
from topics.engine.values.predicate import Predicate
from topics.store.format.file_table import FileKind, FileTable
from topics.store.format.rows import PLACED


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with (
        patch.object(chunk_module, "CHUNK_ROWS_MAX", 16),
        patch.object(index_module, "CHUNK_ROWS_MAX", 16),
        patch.object(chunk_module, "_ROWS_MIN", 4),
        patch.object(chunk_module, "THIN", 2),
        patch.object(index_module, "THIN", 2),
        patch.object(chunk_module, "THIN_ROWS_MIN", 6),
        patch.object(chunk_module, "_FILTER_ROWS_MIN", 4),
        patch.object(index_module, "_HOLE_ROWS_MAX", 3),
        patch.object(index_module, "_FEW_CHUNKS", 2),
        patch.object(index_module, "_MANY_ROWS", 20),
        patch.object(index_module, "_CHUNKS_A_STEP", 1),
        patch.object(index_module, "_FEW_ROWS", 4),
        patch.object(tags_module, "_A_STEP", 2),
    ):
        yield


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20), st.integers(0, 6)),
        st.tuples(st.just("one"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("placed"), st.integers(1, 40), st.integers(0, 6)),
        st.tuples(st.just("scatter"), st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 30)),
        st.tuples(st.just("kill"), st.integers(0, 120), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 120), st.sampled_from([0, 3, 19, 20, 60, 1 << 50])),
        st.tuples(st.just("evict"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("evict one"), st.just(0), st.just(0)),
        st.tuples(st.just("match"), st.integers(0, 120), st.sampled_from([b"t0", b"t1", b"t", b""])),
        st.tuples(st.just("search"), st.integers(0, 40), st.sampled_from([b"t0", b"t1", b"t", b""])),
        st.tuples(st.just("step"), st.just(0), st.just(0)),
        st.tuples(st.just("found"), st.just(0), st.just(0)),
        st.tuples(st.just("move"), st.integers(1, 120), st.integers(1, 40)),
    ),
    max_size=25,
)


@examples(150)
@given(steps, st.booleans())
def test_the_index_is_a_dict_of_live_rows(plan: list[tuple[str, object, object]], in_turns: bool) -> None:
    """in_turns: tags are counted down and memory is given back a few rows a pass, as in a server."""
    files = FileTable()
    file, other = files.add(FileKind.WAL, "wal"), files.add(FileKind.SEGMENT, "segment")
    usage = usage_of(files)
    if in_turns:
        usage.reclaim.take_turns()
    index = Index(usage)
    model: dict[int, tuple[int, bytes | None]] = {}
    last = 0
    searches: list[tuple[TaggedSearch, Iterator[None], Predicate, int]] = []
    for step, a, b in plan:
        if step == "search":  # it continues while others come and go; some of the rows it is about are still to come
            assert isinstance(a, int)
            assert isinstance(b, bytes)
            predicate = Predicate(b in (b"t", b""), b)
            matching = TaggedSearch(index, predicate, last + a - 20)
            searches.append((matching, matching.steps(), predicate, last + a - 20))
            continue
        if step == "step":
            for _matching, steps_left, _predicate, _upto in searches:
                next(steps_left, None)
            continue
        if step == "move":
            _move(index, model, other.file_id, usage, int(a), int(b))  # type: ignore[call-overload]
            continue
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
        elif step == "placed":  # without tags
            first = last + 1 + int(b)  # type: ignore[call-overload]
            seqs = list(range(first, first + int(a)))  # type: ignore[call-overload]
            placed = b"".join(PLACED.pack(max(0, seq * 10 - 7), 10, _size(seq), 0, seq) for seq in (0, *seqs))
            index.add_placed(first, len(seqs), placed, 1, file.file_id, 7)
            model |= {seq: (_size(seq), None) for seq in seqs}
            last, seqs = seqs[-1], []
        elif step == "scatter":
            assert isinstance(a, list)
            seqs = (np.cumsum(a) + last + int(b)).tolist()  # type: ignore[call-overload]
            numbers = np.array(seqs, np.uint64)
            column = numbers.astype(np.uint32)
            sizes = np.array([_size(seq) for seq in seqs], np.uint32)
            zeros = np.zeros(len(seqs), np.uint8)
            rows = SelectedRows(numbers, column, column * np.uint32(10), column, sizes, zeros, numbers)
            rows.file_ids[:] = file.file_id
            index.add_scattered(numbers, file.file_id, rows, numbers, [_tag(seq) for seq in seqs])
        elif step == "found":
            seqs = []
            if searches:
                matching, steps_left, predicate, upto = searches.pop(0)
                doomed = [seq for seq, (_size_of, tag) in model.items() if seq <= upto and predicate.matches(tag)]
                assert finish(matching, steps_left) == doomed
                for seq in doomed:
                    del model[seq]
        else:
            _remove(index, model, step, a, b)
            seqs = []
        for seq in seqs:
            model[seq] = (_size(seq), _tag(seq))
        last = max(last, *seqs) if seqs else last
        _check(index, model, last)
        assert file.live_rows + other.live_rows == usage.records == len(model)
        assert usage.bytes == index.bytes
        usage.reclaim.next_pass()
    while len(usage.reclaim):
        usage.reclaim.next_pass()
    tagged = {tag for _size_of, tag in model.values() if tag is not None}
    assert len(index.tags or ()) == len(tagged)


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
        predicate = Predicate(b in (b"t", b""), b)
        doomed = [seq for seq in ordered if seq <= a and predicate.matches(model[seq][1])]  # type: ignore[operator]
        assert kill_matching(index, predicate, int(a)) == doomed  # type: ignore[call-overload]
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


def kill_matching(index: Index, predicate: Predicate, upto: int) -> list[int]:
    """The seqs that die."""
    matching = TaggedSearch(index, predicate, upto)
    return finish(matching, matching.steps())


def finish(matching: TaggedSearch, steps_left: Iterator[None]) -> list[int]:
    for _ in steps_left:
        pass
    dead = [Dead(each.chunk, each.which) for each in matching.kill()]
    return [each.chunk.first + row for each in dead for row in each.rows.tolist()]


def _move(  # noqa: PLR0917 - of one test
    index: Index, model: dict[int, tuple[int, bytes | None]], file_id: int, usage: Usage, first: int, count: int
) -> None:
    """Move rows as a checkpoint does those of copies."""
    seqs = np.array([seq for seq in sorted(model) if first <= seq < first + count], np.uint64)
    for chunk, start, end in index.by_chunk(seqs):
        rows = (seqs[start:end] - np.uint64(chunk.first)).astype(np.intp)
        usage.left_files(chunk.file_ids[rows])
        usage.placed(file_id, len(rows))
        chunk.moved(rows, file_id)
        flags = chunk.flags.copy()
        flags[rows] ^= 1
        chunk.set_flags(flags)
        index.table = None


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
    for predicate in (Predicate(False, b"t1"), Predicate(True, b"t"), Predicate(True, b"t0"), Predicate(False, b"x")):
        matching = [seq for seq in ordered if predicate.matches(model[seq][1])]
        assert _tagged(index, predicate, last // 2, limit=5, room=1 << 30) == [
            seq for seq in matching if seq > last // 2
        ]
        assert _tagged(index, predicate, 0, limit=2, room=3) == matching
    for chunk in index.chunks:
        here = set(chunk.file_ids[chunk.live_rows(0, chunk.count)].tolist())
        assert here <= ({chunk.file_id} if chunk.file_id else set(chunk.files))
        assert all(chunk.may_be_in({file_id}) for file_id in here)
    everything = np.arange(1, last + 3, dtype=np.uint64)
    assert everything[index.alive(everything)].tolist() == ordered
    for first in range(1, last + 1, 7):
        run = everything[(first <= everything) & (everything < first + 9)]
        if (whole := index.whole_chunk(run)) is not None:
            assert list(index.by_chunk(run)) == [(whole, 0, len(run))]
            assert index.alive(run).all()
    tagged = {tag for _size_of, tag in model.values() if tag is not None}
    assert len(index.tags or ()) >= len(tagged)
    assert all(chunk.live for chunk in index.chunks)
    for chunk in index.chunks:
        alive = chunk.live_rows(0, chunk.count)
        assert (chunk.live, chunk.bytes) == (len(alive), chunk.sizes[alive].sum())
        assert chunk.file_id in (0, *chunk.file_ids[alive].tolist())


def _tagged(index: Index, predicate: Predicate, after: int, *, limit: int, room: int) -> list[int]:
    """The seqs that one search after another finds, each bounded in rows and in cost."""
    found: list[int] = []
    upto = index.last_seq + 1
    while after < upto:
        search = tagged_rows(index, predicate, after, upto, limit=limit, room=room)
        seqs = search.rows.seqs.tolist()
        assert after < search.through <= upto, "each moves on"
        assert all(after < seq <= search.through for seq in seqs)
        assert len(seqs) <= limit
        found += seqs
        after = search.through
    return found


def _size(seq: int) -> int:
    return seq % 5 + 1


def _tag(seq: int) -> bytes | None:
    return None if seq % 3 == 2 else b"t%d" % (seq % 3)


def test_a_record_costs_at_most_32_bytes_of_index() -> None:
    with patch.object(chunk_module, "CHUNK_ROWS_MAX", 8192), patch.object(index_module, "CHUNK_ROWS_MAX", 8192):
        files = FileTable()
        usage = usage_of(files)
        index = Index(usage)
        file_id = files.add(FileKind.WAL, "wal").file_id
        column = np.ones(100_000, np.uint32)
        flags = np.zeros(100_000, np.uint8)
        names: list[bytes | None] = [b"t%d" % (seq * 7919 % 100_000) for seq in range(100_000)]
        index.take_tags(names[::-1])  # so that those of a chunk are far from each other
        index.append_rows(1, file_id, column, column, column, 1, flags, names)
        held = 0
        for chunk in index.chunks:
            columns = (chunk.file_ids, chunk.offsets, chunk.lengths, chunk.sizes, chunk.ts, chunk.flags, chunk.tags)
            held += sum(column.nbytes for column in columns if column is not None)
            held += 0 if chunk.tag_filter is None else len(chunk.tag_filter._bits)
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
        usage = usage_of(files)
        index = Index(usage)
        file = files.add(FileKind.WAL, "wal")
        column = np.ones(1000, np.uint32)
        for first in range(1, 100_001, 1000):
            index.append_rows(first, file.file_id, column, column, column, 1, np.zeros(1000, np.uint8), [b"t"] * 1000)
            index.kill_run(first + 1, first + 999)
        assert index.select(0, 100_000, 1000).seqs.tolist() == list(range(1, 100_001, 1000))
        assert (index.live, index.earliest, file.live_rows) == (100, 1, 100)
        assert sum(chunk.capacity for chunk in index.chunks) < 20_000
        assert len(kill_matching(index, Predicate(False, b"t"), 100_000)) == 100
        assert (index.live, index.tags, file.live_rows) == (0, None, 0)


def test_what_each_of_very_many_lone_records_costs_when_it_goes_does_not_depend_on_how_many_there_are() -> None:
    """Each has a chunk of its own. All chunks were gone through for each: 4 ms an ack with 86,400 of them."""
    sizes = {"CHUNK_ROWS_MAX": 8192, "THIN": 16}
    with (
        patch.multiple(chunk_module, **sizes, THIN_ROWS_MIN=1024),
        patch.multiple(index_module, **sizes, _HOLE_ROWS_MAX=64, _FEW_CHUNKS=8),
    ):
        files = FileTable()
        usage = usage_of(files)
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
        usage = usage_of(files)
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
    usage = usage_of(files)
    index, file = Index(usage), files.add(FileKind.WAL, "wal")
    numbers = index.take_tags([b"a", None, b"b", b"a"])
    index.give_back_tags(index.take_tags([b"a", b"c", None]))
    column = np.ones(4, np.uint32)
    index.append_rows(1, file.file_id, column, column, column, 0, np.zeros(4, np.uint8), numbers)
    assert index.tags is not None
    assert len(index.tags) == 2
    assert kill_matching(index, Predicate(False, b"a"), 4) == [1, 4]
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
    usage = usage_of(files)
    index = Index(usage)
    for seq in range(1, 11):
        index.append_row(seq, file.file_id, 0, 64, _size(seq), 0, 0, b"t%d" % seq)
    numbers = index.take_tags([b"t1", None, b"new", b"t10"])
    if how == "through":
        assert index.kill_through(10) == 10
    else:
        assert len(kill_matching(index, Predicate(True, b""), 10)) == 10
    if come:
        ones = np.ones(4, np.uint32)
        index.append_rows(11, file.file_id, ones, ones, ones, 0, np.zeros(4, np.uint8), numbers)
        index.append_row(15, file.file_id, 0, 64, 1, 0, 0, b"later")
        for tag, seqs in ((b"t1", [11]), (b"new", [13]), (b"later", [15]), (b"t10", [14])):
            assert kill_matching(index, Predicate(False, tag), 15) == seqs
    else:
        index.give_back_tags(numbers)
    assert index.tags is None


@pytest.mark.parametrize("then", ["run", "one", "oldest", "through", "match", "flags", "append", "thin"])
@pytest.mark.parametrize("match", [b"t0", b"t"])
def test_what_becomes_of_rows_between_a_search_and_the_deaths_of_what_it_found_counts(then: str, match: bytes) -> None:
    files = FileTable()
    file, other = files.add(FileKind.WAL, "wal"), files.add(FileKind.SEGMENT, "segment")
    usage = usage_of(files)
    index = Index(usage)
    model: dict[int, tuple[int, bytes | None]] = {}
    for seq in range(1, 41):
        index.append_row(seq, file.file_id, seq * 10, 10, _size(seq), seq, 0, _tag(seq))
        model[seq] = (_size(seq), _tag(seq))
    predicate = Predicate(match == b"t", match)
    matching = TaggedSearch(index, predicate, 36)
    for _ in matching.steps():
        pass
    dead: list[int] = []
    if then == "run":
        dead = list(range(5, 9))
        index.kill_run(5, 8)
    elif then == "one":
        dead = [1]
        index.evict_one()
    elif then == "oldest":
        dead = [1, 2, 3]
        index.evict_oldest(3, 0, 40)
    elif then == "through":
        dead = list(range(1, 21))
        index.kill_through(20)
    elif then == "match":
        dead = kill_matching(index, Predicate(False, b"t0"), 30)
    elif then == "flags":
        _move(index, model, other.file_id, usage, 6, 20)
    elif then == "append":
        index.append_row(41, file.file_id, 410, 10, _size(41), 41, 0, b"t0")
        model[41] = (_size(41), b"t0")
    else:
        dead = [seq for seq in range(1, 17) if seq not in (3, 13)]
        for seq in dead:
            index.kill_run(seq, seq)
    for seq in dead:
        del model[seq]
    doomed = [seq for seq, (_size_of, tag) in model.items() if seq <= 36 and predicate.matches(tag)]
    assert finish(matching, iter(())) == doomed
    for seq in doomed:
        del model[seq]
    _check(index, model, 41)
    assert file.live_rows + other.live_rows == usage.records == len(model)
    assert usage.bytes == index.bytes
    rows = index.select(0, 41, 100)
    moved = [seq for seq in rows.seqs.tolist() if then == "flags" and 6 <= seq < 26]
    assert rows.seqs[rows.flags == 1].tolist() == rows.seqs[rows.file_ids == other.file_id].tolist() == moved
