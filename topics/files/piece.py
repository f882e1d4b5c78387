"""Pieces: references to the records of one topic in one file.

They are values, so a planner can send them to the machine that reads the records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The kind of file that holds the records of a piece."""

    SEGMENT = 1
    """A file of one topic."""
    RUN = 2
    """One topic's part of a pack, a file that many topics share."""


class Location(NamedTuple):
    """The paths of a data directory on the machine that reads it.

    cold: "" without a cold directory.
    """

    path: str
    cold: str = ""


class Loss(NamedTuple):
    """Seqs from_seq to to_seq, both included, that the topic lost other than by a delete.

    reason: one of R-TOMB-3 (`cap`, `ttl`, `mixed`, `source_trim`, `crash`), or `recreated` if
        another topic bears the name now.

    As in a tombstone, the range includes records that were deleted on purpose before.
    """

    topic: str
    from_seq: int
    to_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Records from_seq to to_seq, both included, of one topic in one file. Small and picklable.

    Pieces of a topic never overlap. The fields about the file are as of the snapshot that listed
    it. If the file was removed or replaced since, `read_pieces` finds the seqs in another file.
    """

    topic: str
    topic_id: int
    incarnation: str
    """16 hex digits. With another incarnation, the seqs name other records."""
    kind: Kind
    path: str
    """Path of the file, relative to the directory of its tier."""
    tier: int
    """HOT or COLD of `directory_names`: the data directory, or the cold one."""
    epoch: int
    """Random number of the file: distinguishes it from another file of that name."""
    sum: int
    """For segments: the checksum over the checksums of the frames, as of the snapshot."""
    end: int
    """For segments: the end of the frames, in bytes. Later bytes came after the snapshot."""
    sealed: bool
    run: int
    """For runs: the row of the pack's run table; -1 for a segment."""
    first_seq: int
    """First seq of the whole segment or run, which may be below from_seq."""
    last_seq: int
    from_seq: int
    to_seq: int
    records: int
    """Estimated number of records from from_seq to to_seq, at least 1; deletes are ignored."""
    bytes: int
    """Estimated bytes of these records in the file."""
    last_ts: int
    """For segments: the time of the last frame, in ms; 0 if unknown."""

    def clip(self, from_seq: int, to_seq: int) -> Piece | None:
        """Return the part of the piece with these seqs, both included; None if it is empty."""
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
