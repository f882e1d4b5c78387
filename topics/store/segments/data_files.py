"""Segments and packs of the store as a snapshot lists them: their ranges of seqs and their sums."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from topics.store.layouts import directory_names
from topics.store.layouts.directory_names import HOT


class Segment(msgspec.Struct, omit_defaults=True, gc=False):
    """One segment file. JSON names are short because a snapshot may list thousands."""

    topic_id: int = msgspec.field(name="topic")
    first_seq: int = msgspec.field(name="first")
    """The seq in the file's name: the first record when the file was created."""
    last_seq: int = msgspec.field(name="last")
    records: int
    frames_end: int = msgspec.field(name="end")
    """Bytes of the file that count.

    Bytes after them, up to a footer, are zeros or left over from a crash.
    """
    size: int
    """Accounted bytes of its frames."""
    epoch: int
    created_ms: int = msgspec.field(name="created")
    last_ts: int = 0
    sum: int = 0
    sealed: bool = False
    tier: int = HOT
    """HOT or COLD: see tiers.py."""
    codec: int = 0
    """How its file is stored: see compressed_segment.py."""
    edition: int = msgspec.field(name="ed", default=0)
    """Number of times the file was compacted."""
    file_id: int = msgspec.field(name="_", default=0)
    """Number in this process's FileTable; not stored."""

    @property
    def path(self) -> str:
        return directory_names.segment_path(self.topic_id, self.first_seq, self.edition)


class Totals(NamedTuple):
    """Sums over some segments of a topic."""

    records: int = 0
    size: int = 0

    def plus(self, records: int, size: int) -> Totals:
        return Totals(self.records + records, self.size + size)


class PackRun(msgspec.Struct, array_like=True, gc=False):
    """One topic's records in a pack; stored as an array."""

    topic_id: int
    first_seq: int
    last_seq: int
    number: int
    """Row of the pack's run table."""


class Pack(msgspec.Struct, omit_defaults=True):
    """One pack file, and the runs of it that are in use."""

    number: int
    epoch: int
    size: int
    """Bytes of the file."""
    runs: dict[int, PackRun]
    """Runs by their row in the run table."""
    dropped: list[int] = []
    """Rows of runs that are no longer in use, and whose frames are not flagged yet.

    See dropped_runs.py.
    """
    file_id: int = msgspec.field(name="_", default=0)

    @property
    def path(self) -> str:
        return directory_names.pack_path(self.number)
