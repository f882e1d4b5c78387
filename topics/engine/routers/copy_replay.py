"""Recovery of copies by position, from the frames that the log holds of their sources.

A forward by position states which source seqs became which seqs of the destination. Source and
destination are in different shards, which are read side by side, and a source may be deleted or
trimmed by then. Therefore, while the log is read, rows of topics that routers connect are held
here, even if they die meanwhile, and a destination's rows and deletions wait until all are read. A
record that a power cut took from the source leaves a row without a frame: records that it evicted
stay evicted, and it is reported as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.selected_rows import SelectedRows
from topics.store.format.catalog import NO_TAG, SEQ_MAX, RowColumns
from topics.store.format.log_format import FLAG_COPY, FLAG_TAG

Ref = tuple[int, int]
"""First and last of a run of neighbouring source seqs."""


class ControlFrame(NamedTuple):
    """A control frame of the log."""

    kind: int
    topic_id: int
    seq: int
    ts_ms: int
    payload: bytes
    last_before: int
    """The last seq of the topic before it."""


class CopyRows(NamedTuple):
    """Rows of one topic, as columns of shape (n,) that are not shared.

    tags: bytes or None for each row; None: no row has one.
    """

    columns: SelectedRows
    tags: NDArray[Any] | None

    def rows(self, which: NDArray[np.bool_] | NDArray[np.intp] | slice) -> CopyRows:
        return CopyRows(self.columns.rows(which), None if self.tags is None else self.tags[which])  # type: ignore[arg-type]


class _Forwards(NamedTuple):
    """Copies of one source in one destination that keep equal fields: one row for each run."""

    firsts: list[int]
    """First seqs in the destination."""
    sources: list[int]
    counts: list[int]
    ts: list[int]
    sizes: list[list[int]]
    """Size of each copy; [] if the frame does not state it."""


class LogRows:
    """Rows and forwards in the log of topics that routers connect, until `resolve`."""

    def __init__(self) -> None:
        self.everything = False
        """Whether all topics are held, because the routers are unknown (a rebuilt directory)."""
        self._sources: set[int] = set()
        self._held: set[int] = set()
        self._blocks: dict[int, list[CopyRows]] = {}
        self._forwards: dict[tuple[int, int, int], _Forwards] = {}
        self._last_seqs: dict[int, int] = {}
        self.controls: list[ControlFrame] = []
        """Control frames of destinations, in order, applied once their rows are in the index."""
        self.copied_upto: Mapping[int, int] = {}

    def note_router(self, source_id: int, dest_id: int) -> None:
        """Note a router between these topics, before the log yields records it forwarded."""
        self._sources.add(source_id)
        self._held.add(dest_id)

    def holds(self, topic_id: int) -> bool:
        """Return whether the topic's rows and deletions of the log come with `resolve`."""
        return self.everything or topic_id in self._held

    def take_rows(self, topic_id: int, rows: RowColumns) -> None:
        """Take rows of the log, live or not."""
        if not (self.everything or topic_id in self._held or topic_id in self._sources) or not len(rows.seqs):
            return
        self._last_seqs[topic_id] = max(int(rows.seqs.max()), self.last_seq(topic_id))
        columns = SelectedRows(
            rows.seqs.copy(),
            np.full(len(rows.seqs), rows.file_id, np.uint32),
            rows.offsets.copy(),
            rows.lengths.copy(),
            rows.sizes.copy(),
            rows.flags.copy(),
            rows.ts.copy(),
        )
        tags = None
        if len(rows.tag_table):
            names = np.array([*rows.tag_table, None], object)
            tags = names[np.where(rows.tags == NO_TAG, len(rows.tag_table), rows.tags)]
        self._blocks.setdefault(topic_id, []).append(CopyRows(columns, tags))

    def forward(  # noqa: PLR0917 - what the frame says
        self, dest_id: int, first: int, source_id: int, refs: list[Ref], keep: int, ts: int, sizes: list[int]
    ) -> None:
        """Take a forward by position.

        sizes: of the copies, in order; one number if all are equal, empty if unknown.
        """
        forwards = self._forwards.setdefault((dest_id, source_id, keep), _Forwards([], [], [], [], []))
        at = 0
        for begin, end in refs:
            count = end - begin + 1
            forwards.sizes.append(sizes * count if len(sizes) == 1 else sizes[at : at + count])
            at += count
            forwards.firsts.append(first)
            forwards.sources.append(begin)
            forwards.counts.append(count)
            forwards.ts.append(ts)
            first += count
        self._last_seqs[dest_id] = max(first - 1, self.last_seq(dest_id))

    def last_seq(self, topic_id: int) -> int:
        """Return the last seq of a held topic that the log has stated so far; 0: none."""
        return self._last_seqs.get(topic_id, 0)

    def pairs(self) -> set[tuple[int, int]]:
        """Return (source id, destination id) of all forwards seen."""
        return {(source_id, dest_id) for dest_id, source_id, _ in self._forwards}

    def moved(self, topic_id: int, seqs: NDArray[np.uint64], file_id: int, offsets: NDArray[np.uint32]) -> None:
        """Note the new position of rows of the tail, which was written again."""
        for block in self._blocks.get(topic_id, ()):
            columns = block.columns
            at = np.searchsorted(columns.seqs, seqs)
            found = np.flatnonzero(at < len(columns.seqs))
            found = found[columns.seqs[at[found]] == seqs[found]]
            columns.file_ids[at[found]] = file_id
            columns.offsets[at[found]] = offsets[found]

    def resolve(self, head_of: Callable[[int], int | None], lost_file: int) -> Iterator[tuple[int, CopyRows]]:
        """Yield (topic id, its rows above those in segments, ascending) of every topic held.

        Copies of copies are resolved after their originals, in as many rounds as a record has hops.
        head_of: returns the last existing seq of a topic, None if it is gone. Copies of later
        records, which a power cut took, and copies of those, get the file `lost_file`.
        """
        groups = [(key, _expand(forwards)) for key, forwards in self._forwards.items()]
        for place, ((dest_id, source_id, keep), wanted) in enumerate(groups):
            head = head_of(source_id)
            lost = wanted[1] > np.uint64(SEQ_MAX if head is None else head)
            if lost.any():
                block = _lost_copies(tuple(column[lost] for column in wanted), lost_file)
                self._blocks.setdefault(dest_id, []).append(block)
                groups[place] = ((dest_id, source_id, keep), tuple(column[~lost] for column in wanted))
        while groups:
            tables: dict[int, CopyRows | None] = {}
            made: list[tuple[int, CopyRows]] = []
            left = []
            for (dest_id, source_id, keep), wanted in groups:
                if source_id not in tables:
                    tables[source_id] = _joined(self._blocks.get(source_id, []))
                table = tables[source_id]
                found = np.zeros(len(wanted[0]), np.bool_)
                if table is not None:
                    block, found = _copies(table, wanted, keep)
                    if len(block.columns.seqs):
                        made.append((dest_id, block))
                if not found.all():
                    left.append(((dest_id, source_id, keep), tuple(column[~found] for column in wanted)))
            for dest_id, block in made:
                self._blocks.setdefault(dest_id, []).append(block)
            if not made:
                break
            groups = left
        for topic_id, blocks in self._blocks.items():
            whole = _joined(blocks) if self.holds(topic_id) else None
            if whole is not None:
                yield topic_id, whole.rows(whole.columns.seqs > np.uint64(self.copied_upto.get(topic_id, 0)))

    def clear(self) -> None:
        self._blocks.clear()
        self._forwards.clear()
        self._last_seqs.clear()
        self._sources.clear()
        self._held.clear()
        self.everything = False


_Wanted = tuple[Any, ...]
"""Columns: destination seqs, source seqs, ts, and sizes or 0."""


def _expand(forwards: _Forwards) -> _Wanted:
    counts = np.array(forwards.counts, np.int64)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = np.zeros(len(within), np.uint32)
    at = 0
    for count, given in zip(forwards.counts, forwards.sizes, strict=True):
        if given:
            sizes[at : at + count] = given
        at += count
    return (
        *(
            np.repeat(np.array(column, np.uint64), counts) + (within.astype(np.uint64) if runs else np.uint64(0))
            for column, runs in ((forwards.firsts, True), (forwards.sources, True), (forwards.ts, False))
        ),
        sizes,
    )


def _lost_copies(wanted: _Wanted, lost_file: int) -> CopyRows:
    """Return the rows of copies whose originals do not exist any more."""
    seqs, _sources, ts, sizes = wanted
    nothing = np.zeros(len(seqs), np.uint32)
    files = np.full(len(seqs), lost_file, np.uint32)
    return CopyRows(
        SelectedRows(seqs, files, nothing, nothing, sizes, np.full(len(seqs), FLAG_COPY, np.uint8), ts), None
    )


def _copies(table: CopyRows, wanted: _Wanted, keep: int) -> tuple[CopyRows, NDArray[np.bool_]]:
    """Return the rows of copies whose originals are in the table, and their mask in `wanted`."""
    seqs, sources, ts, sizes = wanted
    here = table.columns
    at = np.minimum(np.searchsorted(here.seqs, sources), len(here.seqs) - 1)
    found = here.seqs[at] == sources
    at = at[found]
    flags = (here.flags[at] & np.uint8(keep)) | np.uint8(FLAG_COPY)
    given = sizes[found]  # a lost original may lack its own size
    columns = SelectedRows(
        seqs[found],
        here.file_ids[at],
        here.offsets[at],
        here.lengths[at],
        np.where(given, given, here.sizes[at]),
        flags,
        ts[found],
    )
    tags = table.tags[at] if table.tags is not None and keep & FLAG_TAG else None
    return CopyRows(columns, tags), found


def _joined(blocks: list[CopyRows]) -> CopyRows | None:
    """Return all rows in the order of their seqs, each seq once."""
    if not blocks:
        return None
    columns = SelectedRows(*(np.concatenate([block.columns[at] for block in blocks]) for at in range(7)))
    tags = None
    if any(block.tags is not None for block in blocks):
        tags = np.concatenate(
            [np.full(len(b.columns.seqs), None, object) if b.tags is None else b.tags for b in blocks]
        )
    _, order = np.unique(columns.seqs, return_index=True)
    joined = CopyRows(columns, tags)
    return joined if len(order) == len(columns.seqs) and (np.diff(order) == 1).all() else joined.rows(order)


def runs_by_file(block: CopyRows) -> Iterator[CopyRows]:
    """Yield the block in pieces that are in one file each."""
    cuts = np.flatnonzero(np.diff(block.columns.file_ids)) + 1
    start = 0
    for end in [*cuts.tolist(), len(block.columns.seqs)]:
        if end > start:
            yield block.rows(slice(start, end))
        start = end
