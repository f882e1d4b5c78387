"""The choice of sealed segments and packs to rewrite: those with few live records.

A delete flags a record where it is, so its bytes stay until its file is removed. A file of which
less than `compact_below` lives is due. If records of it were deleted since the last checkpoint,
others may be deleted soon, as in a queue or below a cap, and each rewrite would copy what is left.
It then waits until none was since the last checkpoint, or until less than the square of
`compact_below` lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from topics.config import Config
from topics.store.checkpoint.copy_context import SEQ_SPAN_MAX
from topics.store.disk.time_slices import TimeSlices
from topics.store.format.catalog import CheckpointCatalog
from topics.store.format.file_table import FileTable
from topics.store.layouts.segment_format import SEGMENT_HEADER_MIN
from topics.store.segments.data_files import Pack, Segment
from topics.store.segments.manifest import Manifest

_BYTES_A_CHECKPOINT = 256 << 20
"""Bytes written anew per checkpoint: the next one waits for this one, and takes the rest."""
_FILES_A_CHECKPOINT = 512


class Chosen(NamedTuple):
    """The files that are to be written anew."""

    segments: list[list[Segment]]
    """Adjacent segments of a topic, which become one."""
    packs: list[Pack]


class _Look(NamedTuple):
    """The live rows of a file, and their bytes, when they were counted."""

    rows: int
    bytes: int


class Compaction:
    """The choice, from one checkpoint to the next."""

    def __init__(
        self, catalog: CheckpointCatalog, manifest: Manifest, table: FileTable, config: Config, turns: TimeSlices
    ) -> None:
        self._catalog = catalog
        self._manifest = manifest
        self._table = table
        self._below = config.compact_below
        self._records_max = config.segment_max_events * max(1, config.segment_bulk)
        self._bytes_max = config.segment_max_bytes
        self._turns = turns
        self._looks: dict[int, _Look] = {}
        """Live rows by file when last counted; only a file that lost a record is counted again."""
        self._left: set[int] = set()
        """Files with a damaged record, which stay as they are."""
        self.waiting = False
        """Whether files remain that a further checkpoint would compact."""

    def leave(self, file_ids: Iterable[int]) -> None:
        """Do not choose these files again, because they cannot be read."""
        self._left.update(file_ids)

    def is_sparse(self, tail: Segment) -> bool:
        """Return whether little of an unsealed segment lives, by its records."""
        rows = self._table[tail.file_id].live_rows
        return rows < self._below * tail.records and rows < tail.records

    async def choose(self, room: int) -> Chosen:
        """Return the files to compact in one checkpoint.

        room: bytes that may be written.
        """
        chosen = Chosen([], [])
        self.waiting = False
        if not self._below:
            return chosen
        before, self._looks = self._looks, {}
        budget = _Budget(room)
        self._turns.resume()
        for segments in list(self._manifest.segments.values()):
            groups: list[_NeighbourSegments] = []
            for segment in list(segments):
                if self._turns.over:
                    await self._turns.rest()
                if not segment.sealed or not self._is_segment_due(segment, before):
                    groups.append(_NeighbourSegments())
                    continue
                look = self._looks[segment.file_id]
                if not budget.takes(look.bytes):
                    self.waiting |= look.bytes <= room
                    groups.append(_NeighbourSegments())
                    continue
                if not groups or not groups[-1].takes(segment, look, self._records_max, self._bytes_max):
                    groups.append(_NeighbourSegments())
                groups[-1].add(segment, look)
            chosen.segments.extend(group.segments for group in groups if group.segments)
        for pack in list(self._manifest.packs.values()):
            if self._turns.over:
                await self._turns.rest()
            if self._is_pack_due(pack, before):
                size = self._looks[pack.file_id].bytes
                if budget.takes(size):
                    chosen.packs.append(pack)
                else:
                    self.waiting |= size <= room
        return chosen

    def _is_segment_due(self, segment: Segment, before: Mapping[int, _Look]) -> bool:
        rows = self._table[segment.file_id].live_rows
        if not 0 < rows < segment.records or segment.file_id in self._left:
            return False
        known = before.get(segment.file_id)
        if known is not None and known.rows == rows:
            look = known
        else:
            here = np.array([segment.file_id], np.uint32)
            found = self._catalog.bytes_in_files(
                segment.topic_id, here, first_seq=segment.first_seq, last_seq=segment.last_seq
            )
            look = _Look(rows, found.bytes)
        return self._is_due(segment.file_id, look, known, look.bytes, segment.frames_end - SEGMENT_HEADER_MIN)

    def _is_pack_due(self, pack: Pack, before: Mapping[int, _Look]) -> bool:
        """Return whether a pack is due, by its records: their bytes are spread over many topics."""
        stored = self._table[pack.file_id]
        rows, records = stored.live_rows, stored.pack_records
        if not 0 < rows < records or pack.file_id in self._left:
            return False
        look = _Look(rows, pack.size * rows // records)
        return self._is_due(pack.file_id, look, before.get(pack.file_id), rows, records)

    def _is_due(self, file_id: int, look: _Look, known: _Look | None, lives: int, of: int) -> bool:
        """Note the live rows of a file; return whether it is due."""
        self._looks[file_id] = look
        if lives >= self._below * of:
            return False
        is_due = known == look or lives < self._below**2 * of
        self.waiting |= not is_due
        return is_due


class _Budget:
    """The bytes and files that one checkpoint may write anew.

    The first file may have more bytes than that: no checkpoint would take it otherwise.
    """

    def __init__(self, room: int) -> None:
        """room: bytes that there is space for."""
        self._room = room
        self._bytes = 0
        self._files = 0

    def takes(self, size: int) -> bool:
        """Return whether there is room for a file of which so many bytes live, and take it."""
        bytes_max = _BYTES_A_CHECKPOINT if self._files else self._room
        if self._bytes + size > min(self._room, bytes_max) or self._files == _FILES_A_CHECKPOINT:
            return False
        self._bytes += size
        self._files += 1
        return True


class _NeighbourSegments:
    """Adjacent segments of a topic whose live records fit into one segment."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._rows = self._bytes = 0

    def takes(self, segment: Segment, look: _Look, records_max: int, bytes_max: int) -> bool:
        if not self.segments:
            return True
        return (
            self._rows + look.rows <= records_max
            and self._bytes + look.bytes <= bytes_max
            and segment.last_seq - self.segments[0].first_seq < SEQ_SPAN_MAX
        )

    def add(self, segment: Segment, look: _Look) -> None:
        self.segments.append(segment)
        self._rows += look.rows
        self._bytes += look.bytes
