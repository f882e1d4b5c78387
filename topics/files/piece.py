"""Pieces: the records of one topic in one file, as values that can be sent to the machine that reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The kind of file that has the records of a piece."""

    SEGMENT = 1
    """A file of the topic's own."""
    RUN = 2
    """A part of a pack, which many topics share."""


class Location(NamedTuple):
    """Paths of a data directory on the machine that reads it. cold: "" without a cold directory."""

    path: str
    cold: str = ""


class Loss(NamedTuple):
    """Seqs from_seq to to_seq, both included, that the topic lost without being asked to.

    reason: of R-TOMB-3 (`cap`, `ttl`, `mixed`, `source_trim`, `crash`), or `recreated` when the topic is another one
    now. As in a tombstone, records in the range that were deleted on purpose before are part of it.
    """

    topic: str
    from_seq: int
    to_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Records from_seq to to_seq, both included, of one topic in one file. Small, picklable, and ordered by from_seq.

    Pieces of a topic never overlap. What a piece says of its file is what the snapshot said that listed it; if the
    file is gone or another one since, `read_pieces` looks for the same seqs elsewhere.
    """

    topic: str
    topic_id: int
    incarnation: str
    """16 hex digits: another one names other records."""
    kind: Kind
    path: str
    """The file's, below the directory of its tier."""
    tier: int
    """manifest.HOT or COLD: which of the two directories."""
    epoch: int
    """Random, new with each file: tells this file from another one of the same name."""
    sum: int
    """Segments: the checksum over the frames' checksums, as the snapshot has it."""
    end: int
    """Segments: bytes of the file that count. Bytes after them were written after the snapshot."""
    sealed: bool
    run: int
    """Runs: the row of the pack's run table; -1 for a segment."""
    first_seq: int
    """First seq of the segment or run, whatever part of it is asked for."""
    last_seq: int
    from_seq: int
    to_seq: int
    records: int
    """About how many records there are from from_seq to to_seq: an estimate that ignores deletes, never 0."""
    bytes: int
    """About how many bytes of the file they fill: an estimate."""
    last_ts: int
    """Segments: ms of the last frame; 0 when it is not known."""

    def clip(self, from_seq: int, to_seq: int) -> Piece | None:
        """Return the part of the piece with these seqs, both included; None when there is none."""
        low, high = max(self.from_seq, from_seq), min(self.to_seq, to_seq)
        if low > high:
            return None
        if (low, high) == (self.from_seq, self.to_seq):
            return self
        share = (high - low + 1) / (self.to_seq - self.from_seq + 1)
        return replace(
            self,
            from_seq=low,
            to_seq=high,
            records=max(1, round(self.records * share)),
            bytes=max(1, round(self.bytes * share)),
        )
