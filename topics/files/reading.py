"""Reading of pieces as Arrow batches.

Records are found even if a checkpoint has moved, merged or dropped their file since it was planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from topics.errors import CorruptError, StorageError, UsageError
from topics.files.batches import COLUMNS, Batches, Wanted, schema_of
from topics.files.directory import open_directory
from topics.files.errors import DirectoryBusyError, TopicGoneError
from topics.files.file_calls import SYSTEM, FileReads
from topics.files.piece import Location, Loss, Piece
from topics.files.piece_files import PieceSource, VanishedError
from topics.files.texts import Decoder, best_decoder

DEFAULT_COLUMNS = COLUMNS[:-2]
"""All columns but `size` and `bytes`."""
BATCH_ROWS = 65536
BATCH_BYTES = 32 << 20
_BATCH_BYTES_MAX = 1 << 30
"""Limit of a batch: Arrow counts the bytes of a text column in signed 32-bit integers."""
_SMALL_ROWS = 4096
"""Batches with fewer rows are held back and joined with the next ones."""
_PLANS_MAX = 16
"""How many times in a row the seqs of one piece are planned again at most."""


def read_pieces(
    location: Location,
    pieces: Iterable[Piece],
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    verify: bool = True,
    tags: Collection[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    calls: FileReads | None = None,
    decoder: Decoder | None = None,
) -> Iterator[pa.RecordBatch | Loss]:
    """Yield the live records of pieces, in the order of the pieces, and losses since the plan.

    If a file is missing or replaced, it is looked for in the other tier; after that, its seqs are
    planned again from the newest snapshot. Records lost meanwhile are yielded as `Loss`, in their
    place among the batches; records deleted meanwhile are left out. No record is yielded twice, and
    the records of a topic come in the order of their seqs.

    columns: some of COLUMNS, in the order wanted.
    verify: compare the checksum of each frame that is read. (seq, ts, tag and size of a sealed
        segment or a run come from its index, whose checksum is always compared.)
    tags: only records with one of these tags.
    batch_rows, batch_bytes: bounds of a batch, in rows and bytes of frames. A batch of a single
        record may be larger.
    calls, decoder: for tests.
    Raises: CorruptError with path, offset, topic and seq in its detail; TopicGoneError,
    NoDirectoryError, NotReadableError, NoColdDirectoryError, DirectoryBusyError, SeqTooLargeError,
    BytesRecordError, FormatError, StorageError (the disk failed), UsageError (an unknown column, a
    bound below 1).
    """
    if batch_rows < 1 or batch_bytes < 1:
        raise UsageError("batch_rows and batch_bytes must be at least 1")
    wanted = Wanted(
        schema_of(list(columns)),
        verify,
        None if tags is None else frozenset(tag.encode() for tag in tags),
        batch_rows,
        min(batch_bytes, _BATCH_BYTES_MAX),
    )
    return _read(location, pieces, wanted, calls or SYSTEM, decoder or best_decoder())


def _read(
    location: Location, pieces: Iterable[Piece], wanted: Wanted, calls: FileReads, decoder: Decoder
) -> Iterator[pa.RecordBatch | Loss]:
    """Yield the batches and losses; consecutive batches with few rows are joined."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    with closing(PieceSource(location, calls, scan=decoder.scan)) as source:
        reader = _PieceReader(source, Batches(source, decoder, wanted))
        for item in reader.read_all(pieces):
            if isinstance(item, Loss):
                if waiting:
                    yield _joined(waiting)
                    waiting, rows, size = [], 0, 0
                yield item
                continue
            if waiting and (rows + item.num_rows > wanted.batch_rows or size + item.nbytes > wanted.batch_bytes):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(item)
            rows += item.num_rows
            size += item.nbytes
            if rows >= min(_SMALL_ROWS, wanted.batch_rows):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


_Missed = dict[tuple[str, int, int], int]
"""Files that a snapshot lists and that were not found: (path, tier, epoch) -> its number."""


class _PieceReader:
    """Reads pieces as batches, and plans seqs again if their file has vanished."""

    def __init__(self, source: PieceSource, batches: Batches) -> None:
        self._source = source
        self._batches = batches

    def read_all(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch | Loss]:
        for piece in pieces:
            yield from self._read(piece, {}, _PLANS_MAX)

    def _read(self, piece: Piece, missed: _Missed, plans: int) -> Iterator[pa.RecordBatch | Loss]:
        try:
            yield from self._batches.of(piece)
        except VanishedError:  # raised before the first batch, so no record was yielded yet
            yield from self._plan_again(piece, missed, plans)

    def _plan_again(self, piece: Piece, missed: _Missed, plans: int) -> Iterator[pa.RecordBatch | Loss]:
        path = self._source.location.path
        if not plans:
            raise DirectoryBusyError(
                f"data directory {path}: files of topic {piece.topic} vanished {_PLANS_MAX} times before they could be "
                "read: read again when fewer checkpoints are made"
            )
        directory = open_directory(path, self._source.location.cold or None, calls=self._source.calls)
        topic = directory.topics.get(piece.topic)
        if topic is None:
            raise TopicGoneError(f"topic {piece.topic} was deleted while it was read: leave it out")
        if topic.incarnation != piece.incarnation:
            yield Loss(piece.topic, piece.from_seq, piece.to_seq, "recreated")
            return
        if topic.seen_head < piece.to_seq:
            raise StorageError(
                f"data directory {path}: snapshot {directory.snapshot} has topic {piece.topic} up to seq "
                f"{topic.seen_head}, but an earlier read saw seq {piece.to_seq}: check that no older copy of the "
                "directory was restored"
            )
        for part in topic.sections(piece.from_seq, piece.to_seq):
            if isinstance(part, Loss):
                yield part
                continue
            file = (part.path, part.tier, part.epoch)
            if missed.get(file) == directory.snapshot:
                raise CorruptError(
                    f"{path}/{part.path}: snapshot {directory.snapshot} lists it, and it is missing or another file "
                    f"(topic {part.topic}, seqs {part.first_seq} to {part.last_seq})",
                    {"path": part.path, "offset": -1, "topic": part.topic, "seq": part.from_seq},
                )
            yield from self._read(part, {**missed, file: directory.snapshot}, plans - 1)
