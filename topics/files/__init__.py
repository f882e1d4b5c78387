"""Reading a data directory directly from its files: no server, no ring, no lock.

    directory = open_directory("/var/lib/topics")
    topic = directory.topics["orders"]
    for batch in read_pieces(directory.location, topic.pieces, columns=["seq", "ts", "data"]):
        ...

A server may write to the directory meanwhile. A reader sees the records that the newest checkpoint
copied into segments and packs, and nothing newer. It needs numpy, xxhash and, for batches, pyarrow.
Without the C module, numpy and pyarrow do its work, with equal rows and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics.files.deleted import deleted_seqs
from topics.files.directory import Directory, open_directory
from topics.files.errors import (
    BytesRecordError,
    DirectoryBusyError,
    NoColdDirectoryError,
    NoDirectoryError,
    NotReadableError,
    SeqTooLargeError,
    TopicGoneError,
)
from topics.files.piece import Kind, Location, Loss, Piece
from topics.files.piece_scrub import Finding, PieceScan, scan_piece, scan_pieces, scan_snapshots
from topics.files.stored_topic import TopicFiles

if TYPE_CHECKING:
    from topics.files.batches import COLUMNS, schema_of
    from topics.files.reading import DEFAULT_COLUMNS, read_pieces

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "BytesRecordError",
    "Directory",
    "DirectoryBusyError",
    "Finding",
    "Kind",
    "Location",
    "Loss",
    "NoColdDirectoryError",
    "NoDirectoryError",
    "NotReadableError",
    "Piece",
    "PieceScan",
    "SeqTooLargeError",
    "TopicFiles",
    "TopicGoneError",
    "deleted_seqs",
    "open_directory",
    "read_pieces",
    "scan_piece",
    "scan_pieces",
    "scan_snapshots",
    "schema_of",
]

_NEED_PYARROW = {"COLUMNS", "DEFAULT_COLUMNS", "read_pieces", "schema_of"}
"""Names that are imported when first used, because planning and scrubbing need no pyarrow."""


def __getattr__(name: str) -> Any:
    if name not in _NEED_PYARROW:
        raise AttributeError(f"module 'topics.files' has no attribute {name!r}")
    from topics.files import reading  # noqa: PLC0415 - planning and scrubbing need no pyarrow

    return getattr(reading, name)
