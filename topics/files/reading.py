"""Records of pieces as Arrow batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from topics.files.calls import FileCalls
from topics.files.piece import Location, Loss, Piece

COLUMNS = ("topic", "seq", "ts", "tag", "node", "data", "meta", "size")
DEFAULT_COLUMNS = COLUMNS[:-1]
BATCH_ROWS = 65536
BATCH_BYTES = 32 << 20

FIELDS = {
    "topic": pa.field("topic", pa.string(), nullable=False),
    "seq": pa.field("seq", pa.int64(), nullable=False),
    "ts": pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
    "tag": pa.field("tag", pa.string()),
    "node": pa.field("node", pa.string()),
    "data": pa.field("data", pa.string(), nullable=False),
    "meta": pa.field("meta", pa.string()),
    "size": pa.field("size", pa.int64(), nullable=False),
}


def schema_of(columns: Sequence[str] = DEFAULT_COLUMNS) -> pa.Schema:
    """Of the batches of `read_pieces`. Raises UsageError for an unknown column."""
    return pa.schema([FIELDS[name] for name in columns])


def read_pieces(
    location: Location,
    pieces: Iterable[Piece],
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    verify: bool = True,
    tags: Collection[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    calls: FileCalls | None = None,
) -> Iterator[pa.RecordBatch | Loss]:
    """The live records of pieces, in the order of the pieces, and what was lost of them since they were planned.

    Args: columns, some of COLUMNS, in the order wanted; verify, compare the checksum of each frame that is read (seq,
    ts, tag and size of a sealed segment or a run come from its index, whose checksum is always compared); tags, only
    records with one of these tags; batch_rows and batch_bytes, most of a batch (a single record may be larger).

    A file that is gone or another one by now is looked for in the other tier; then its seqs are planned again by the
    newest snapshot. What was lost meanwhile is yielded as `Loss`, in its place among the batches; what was deleted is
    just not there. No record is given twice, and none that is older than one before it in the same topic.

    Raises: CorruptError with path, offset, topic and seq in its detail; TopicGoneError, NoDirectoryError,
    NotReadableError, NoColdDirectoryError, DirectoryBusyError, SeqTooLargeError, FormatError, StorageError (the disk
    failed), UsageError (an unknown column).
    """
    raise NotImplementedError
