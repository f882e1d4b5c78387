"""Every checksum of a piece's file, compared: what is bad, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from topics.files.calls import FileCalls
from topics.files.piece import Location, Piece


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that is not as it was written."""

    path: str
    """Of the file, with its directory."""
    offset: int
    """Bytes from the start of the file; -1 when it is the file as a whole."""
    topic: str
    seq: int
    """Of the record whose frame is bad; -1 when no one record is."""
    message: str
    derived: bool = False
    """The place is in an index, which can be made anew from the data: no record is lost."""


@dataclass(slots=True)
class PieceScan:
    """What was looked at."""

    path: str
    tier: int
    frames: int = 0
    """Sound ones, the deleted ones included."""
    live: int = 0
    bytes: int = 0
    """Of the files read, the index included."""
    findings: list[Finding] = field(default_factory=list)


def scan_piece(location: Location, piece: Piece, *, calls: FileCalls | None = None) -> PieceScan | None:
    """Compares every checksum of a piece: header, frames, footer, index. None when its file is gone: a checkpoint has
    given it up or merged it since, and the newest snapshot says where its records are.

    Raises OSError's errors as StorageError, NoDirectoryError, NotReadableError and NoColdDirectoryError.
    """
    raise NotImplementedError
