"""The files of pieces, found in either tier: their rows and their bytes.

A file belongs to a piece if it has the epoch of the piece. `VanishedError` means that the file is
missing, or that another one has its name: a checkpoint has moved, merged or dropped the file since
the piece was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.errors import CorruptError, FormatError, StorageError, without_remedy
from topics.files.errors import NoColdDirectoryError, NotReadableError
from topics.files.file_calls import FileReads, opened, read_range
from topics.files.inflated_files import InflatedFiles
from topics.files.live_rows import LiveRows, rows_of_frames, rows_of_index
from topics.files.newest_snapshot import load_newest, newest_number
from topics.files.piece import Kind, Location, Piece
from topics.files.scanning import Frames, Scanner, StopReason, best_scanner, scan_range
from topics.store.format.log_format import BATCH_ALIGN, BLOCK_BYTES, align_up
from topics.store.layouts.directory_names import COLD, HOT, index_path, pack_path
from topics.store.layouts.file_kind import FOOTER_BYTES
from topics.store.layouts.index_format import IndexColumns, IndexHeader
from topics.store.layouts.pack_format import (
    RUN_DTYPE,
    RUN_HEADER_BYTES,
    PackFooter,
    PackHeader,
    RunHeader,
    run_description_bytes,
)
from topics.store.layouts.segment_format import (
    SEGMENT_HEADER_FIXED,
    SegmentHeader,
    header_description_bytes,
    header_identity,
)

_PACKS_OPEN = 4


class VanishedError(Exception):
    """The file of a piece is gone, or another file has its name."""


class LocatedPiece(NamedTuple):
    """The rows of a piece, and the path of their file."""

    path: str
    rows: LiveRows


class OpenPack(NamedTuple):
    """An open pack and its index."""

    path: str
    fd: int
    table: NDArray[np.void] | None
    """RUN_DTYPE; None: the index is damaged, so the headers of runs are read instead."""
    columns: IndexColumns | None
    ends: NDArray[np.int64]
    """The row of the columns at which each run ends, shape (runs,)."""
    index_bytes: int = 0


class PieceSource:
    """Reads pieces of one data directory. The caller closes it.

    It holds a few packs open, because the runs of a pack are read one after the other.
    deleted: `rows` returns the deleted records that are still in the files, not the live ones.
    """

    def __init__(
        self, location: Location, calls: FileReads, *, scan: Scanner | None = None, deleted: bool = False
    ) -> None:
        self.location = location
        self.calls: FileReads = InflatedFiles(calls)
        self.scan = scan or best_scanner()
        self._deleted = deleted
        self._packs: dict[tuple[str, int], OpenPack] = {}
        self._index = bytearray()
        self._listed: tuple[int, set[tuple[str, int, int]]] | None = None
        """Number of the newest snapshot, and the runs that it lists: path, epoch and row."""

    def close(self) -> None:
        """Close the open packs. Idempotent."""
        while self._packs:
            self._close_pack(next(iter(self._packs)))

    def _close_pack(self, key: tuple[str, int]) -> None:
        self.calls.close(self._packs.pop(key).fd)

    def root(self, tier: int) -> str:
        """Return the directory of a tier. Raises: NoColdDirectoryError."""
        if tier == HOT:
            return self.location.path
        if not self.location.cold:
            raise NoColdDirectoryError(
                f"data directory {self.location.path} has older segments in a cold directory: name it, too (coldPath)"
            )
        return self.location.cold

    def paths(self, piece: Piece) -> Iterator[str]:
        """Yield the possible paths of a segment: in the tier of the plan, and in the other one."""
        yield f"{self.root(piece.tier)}/{piece.path}"
        if piece.tier == COLD:
            yield f"{self.location.path}/{piece.path}"
        elif self.location.cold:
            yield f"{self.location.cold}/{piece.path}"

    # --- rows --------------------------------------------------------------------------------------------------------
    def rows(self, piece: Piece) -> LocatedPiece:
        """Return the rows of a piece from from_seq to to_seq. They are valid until the next call.

        Raises: VanishedError, CorruptError, FormatError.
        """
        found = self._rows_of_run(piece) if piece.kind is Kind.RUN else self._rows_of_segment(piece)
        return found._replace(rows=found.rows.between(piece.from_seq, piece.to_seq))

    def _rows_of_segment(self, piece: Piece) -> LocatedPiece:
        for path in self.paths(piece):
            rows = self._indexed(path, piece) if piece.sealed else None
            if rows is None:
                rows = self._scanned(path, piece)
            if rows is not None:
                return LocatedPiece(path, rows)
        raise VanishedError

    def _indexed(self, path: str, piece: Piece) -> LiveRows | None:
        """Return the rows from the index file of the segment.

        None: it is missing, damaged, or of another segment.
        """
        index = index_path(path)
        try:
            header, columns = IndexHeader.unpack(self._read_index(index), index)
        except (CorruptError, FormatError, OSError, ValueError):
            return None
        if (header.topic_id, header.epoch, header.sum) != (piece.topic_id, piece.epoch, piece.sum):
            return None
        return rows_of_index(columns, header.first_seq, deleted=self._deleted)

    def _read_index(self, path: str) -> memoryview:
        """Return the whole file, in memory that the next call reuses.

        Fresh memory would cost more than the copy.
        """
        with opened(self.calls, path) as fd:
            size = self.calls.size(fd)
            if size > len(self._index):
                self._index = bytearray(size)
            return memoryview(self._index)[: self.calls.read_into(fd, memoryview(self._index)[:size], 0)]

    def _scanned(self, path: str, piece: Piece) -> LiveRows | None:
        """Return the rows from a scan of the frames; None if the file is gone or another one."""
        try:
            with self.reading(path), opened(self.calls, path) as fd:
                start = self._frames_start(fd, path, piece)
                if start is None:
                    return None
                frames = self._scan_frames(fd, path, piece, (start, piece.end), piece.sum)
                return rows_of_frames(frames, deleted=self._deleted)
        except FileNotFoundError:
            return None

    def _frames_start(self, fd: int, path: str, piece: Piece) -> int | None:
        """Return the byte at which the frames of a segment begin; None for another segment."""
        fixed = read_range(self.calls, fd, 0, SEGMENT_HEADER_FIXED)
        if not _is_of(fixed, piece):
            return None
        more = max(0, piece.end - SEGMENT_HEADER_FIXED)
        described = min(more, header_description_bytes(fixed))
        data = fixed + read_range(self.calls, fd, SEGMENT_HEADER_FIXED, described)
        header = SegmentHeader.unpack(memoryview(data), path)
        return header.header_bytes

    def _scan_frames(self, fd: int, path: str, piece: Piece, span: tuple[int, int], written_sum: int) -> list[Frames]:
        """Return the frames that fill bytes [span[0], span[1]) of the file.

        written_sum: the checksum over the checksums of the frames, as the snapshot or the run
            states it.
        Raises: CorruptError.
        """
        start, end = span
        scans = list(scan_range(self.calls, fd, start, end, self.scan))
        parts = [scan.frames for scan in scans]
        scan = scans[-1]
        if scan.stop is not StopReason.END or scan.position != end:
            last = next((int(frames.seqs[-1]) for frames in reversed(parts) if len(frames.seqs)), piece.first_seq - 1)
            raise damaged_frame(path, scan.position, piece, last + 1)
        if scan.sum != written_sum:
            raise CorruptError(
                f"{path}: the frames are sound, but not those that were written (topic {piece.topic})",
                {"path": path, "offset": start, "topic": piece.topic, "seq": piece.first_seq},
            )
        return parts

    # --- packs -------------------------------------------------------------------------------------------------------
    def _rows_of_run(self, piece: Piece) -> LocatedPiece:
        pack = self.pack(piece)
        if pack.table is None or pack.columns is None:
            return LocatedPiece(pack.path, self._scanned_run(pack, piece))
        part = self.rows_of_run(pack, piece)
        return LocatedPiece(pack.path, rows_of_index(pack.columns, piece.first_seq, part, deleted=self._deleted))

    def rows_of_run(self, pack: OpenPack, piece: Piece) -> slice:
        """Return which rows of a sound index belong to the run. Raises: CorruptError."""
        assert pack.table is not None
        if piece.run >= len(pack.table) or not _is_run(pack.table[piece.run], piece):
            raise _another_run(pack, piece, -1)
        end = int(pack.ends[piece.run])
        return slice(end - int(pack.table[piece.run]["records"]), end)

    def pack(self, piece: Piece) -> OpenPack:
        """Return the open pack of a run; this object closes it. Raises: VanishedError."""
        key = (piece.path, piece.epoch)
        found = self._packs.pop(key, None)
        if found is None:
            found = self._open_pack(f"{self.location.path}/{piece.path}", piece)
            if len(self._packs) == _PACKS_OPEN:
                self._close_pack(next(iter(self._packs)))
        self._packs[key] = found  # the most recently used pack is closed last
        return found

    def _open_pack(self, path: str, piece: Piece) -> OpenPack:
        fd = self._open(path)
        try:
            with self.reading(path):
                return self._read_pack(fd, path, piece)
        except BaseException:
            self.calls.close(fd)
            raise

    def _read_pack(self, fd: int, path: str, piece: Piece) -> OpenPack:
        try:
            index = self._read_pack_index(fd, path)
        except (CorruptError, ValueError):
            try:
                header = PackHeader.unpack(memoryview(read_range(self.calls, fd, 0, BLOCK_BYTES)), path)
            except CorruptError:
                # This may be a new pack of that number, whose header is not complete yet. If it is
                # not, the next plan lists the pack again, and the reader reports it as damaged.
                raise VanishedError from None
            if header.epoch != piece.epoch:
                raise VanishedError from None
            return OpenPack(path, fd, None, None, np.empty(0, np.int64))
        footer, table, columns = index
        if footer.epoch != piece.epoch:
            raise VanishedError
        size = self.calls.size(fd) - footer.table_offset
        return OpenPack(path, fd, table, columns, np.cumsum(table["records"], dtype=np.int64), size)

    def _read_pack_index(self, fd: int, path: str) -> tuple[PackFooter, NDArray[np.void], IndexColumns]:
        size = self.calls.size(fd)
        fixed = read_range(self.calls, fd, max(0, size - FOOTER_BYTES), FOOTER_BYTES)
        try:
            footer = PackFooter.unpack(memoryview(fixed), path)
        except FormatError as error:
            # The magic may be damaged. A pack of another version states it in its header, too.
            raise CorruptError(str(error)) from error
        if not BLOCK_BYTES <= footer.table_offset <= footer.columns_offset <= size - FOOTER_BYTES:
            raise CorruptError(f"{path}: the pack footer points outside the file", {"path": path})
        index = memoryview(read_range(self.calls, fd, footer.table_offset, size - FOOTER_BYTES - footer.table_offset))
        table_bytes = footer.columns_offset - footer.table_offset
        footer.check(memoryview(fixed), index[:table_bytes], index[table_bytes:], path)
        columns = IndexColumns.unpack(index[table_bytes:], footer.rows, footer.tag_count, footer.marks)
        return footer, np.frombuffer(index[:table_bytes], RUN_DTYPE), columns

    def _scanned_run(self, pack: OpenPack, piece: Piece) -> LiveRows:
        """Return the rows of a run from a scan of its frames, for a pack without a sound index.

        All frames of a run are flagged once no snapshot lists it any more (`dropped_runs.py`).
        Raises: VanishedError, that is so; CorruptError.
        """
        with self.reading(pack.path):
            at, header = self.find_run(pack, piece)
            start = at + RUN_HEADER_BYTES + len(header.description)
            span = (start, start + header.frames_bytes)
            frames = self._scan_frames(pack.fd, pack.path, piece, span, header.sum)
            # after the scan, because the snapshot without the run is older than the flags
            if any(part.says_deleted().any() for part in frames) and not self._is_listed(piece):
                raise VanishedError
        return rows_of_frames(frames, deleted=self._deleted)

    def _is_listed(self, piece: Piece) -> bool:
        """Return whether the newest snapshot lists a run."""
        number = newest_number(self.calls, self.location.path)
        if self._listed is None or self._listed[0] != number:
            topics = load_newest(self.calls, self.location.path).topics.values()
            runs = {(pack_path(run.pack), run.epoch, run.run) for topic in topics for run in topic.runs}
            self._listed = (number, runs)
        return (piece.path, piece.epoch, piece.run) in self._listed[1]

    def find_run(self, pack: OpenPack, piece: Piece) -> tuple[int, RunHeader]:
        """Find a run of a pack without a sound index, by walking all headers from the first run on.

        Returns: the byte at which the run begins, and its header.
        Raises: CorruptError.
        """
        at = BLOCK_BYTES
        for number in range(piece.run + 1):
            header = self.run_header(pack, at, piece)
            if number < piece.run:
                at = align_up(at + RUN_HEADER_BYTES + len(header.description) + header.frames_bytes, BATCH_ALIGN)
        found = (header.topic_id, header.first_seq, header.last_seq)
        if header.epoch != piece.epoch or found != _run_of(piece):
            raise _another_run(pack, piece, at)
        return at, header

    def run_header(self, pack: OpenPack, at: int, piece: Piece) -> RunHeader:
        """Return the header of the run at this byte.

        Raises: CorruptError, naming the topic of the piece.
        """
        fixed = read_range(self.calls, pack.fd, at, RUN_HEADER_BYTES)
        described = run_description_bytes(fixed) if len(fixed) == RUN_HEADER_BYTES else 0
        described = min(described, self.calls.size(pack.fd))
        data = fixed + read_range(self.calls, pack.fd, at + len(fixed), described)
        try:
            return RunHeader.unpack(memoryview(data), f"{pack.path}, byte {at}")
        except (CorruptError, FormatError) as error:
            raise CorruptError(
                f"{without_remedy(error)} (topic {piece.topic})",
                {"path": pack.path, "offset": at, "topic": piece.topic, "seq": piece.first_seq},
            ) from error

    # --- bytes -------------------------------------------------------------------------------------------------------
    @contextmanager
    def data(self, path: str, piece: Piece) -> Iterator[int]:
        """Yield a descriptor of the file that `rows` found for a piece. Raises: VanishedError."""
        if piece.kind is Kind.RUN:
            with self.reading(path):
                yield self.pack(piece).fd
            return
        fd = self._open(path)
        try:
            with self.reading(path):
                if not _is_of(read_range(self.calls, fd, 0, SEGMENT_HEADER_FIXED), piece):
                    raise VanishedError
                yield fd
        finally:
            self.calls.close(fd)

    def _open(self, path: str) -> int:
        """Open the file of a piece. Raises: VanishedError."""
        try:
            with self.reading(path):
                return self.calls.open(path)
        except FileNotFoundError:
            raise VanishedError from None

    def reading(self, path: str) -> AbstractContextManager[None]:
        """Return the context manager `reading` for this directory and a file in it."""
        return reading(self.location, self.calls, path)


@contextmanager
def reading(location: Location, calls: FileReads, path: str = "") -> Iterator[None]:
    """Turn OSErrors of the block into errors of this package, except FileNotFoundError.

    path: the file that is read, for the message; "" for the directory as a whole.
    Raises: NotReadableError, StorageError, FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise _not_readable(location, calls, str(error.filename or location.path)) from error
    except OSError as error:
        what = path or f"data directory {location.path}"
        raise StorageError(f"{what} cannot be read: {error.strerror or error}") from error


def _not_readable(location: Location, calls: FileReads, refused: str) -> NotReadableError:
    """Return the error for a path that the kernel refused.

    It names the whole directory, or the path in it that another user created.
    """
    user = calls.user()
    what, owner = f"data directory {location.path}", _owner(location.path, calls)
    if owner == user:
        what, owner = refused, _owner(refused, calls)
    whose = "another user" if owner is None else f"user {owner}"
    return NotReadableError(
        f"{what} belongs to {whose}, and user {user} may not read it: run as its owner, or read by url"
    )


def _owner(path: str, calls: FileReads) -> int | None:
    """Return the user id of the owner; None if it may not be read either."""
    try:
        return calls.owner(path)
    except OSError:
        return None


def damaged_frame(path: str, offset: int, piece: Piece, seq: int) -> CorruptError:
    """Return the error for a frame that is damaged, or not the one of its record."""
    return CorruptError(
        f"{path}: the record at byte {offset} is damaged (topic {piece.topic}, seq {seq}): `topics fsck` on the server "
        "shows all damage; restore from a backup",
        {"path": path, "offset": offset, "topic": piece.topic, "seq": seq},
    )


def _another_run(pack: OpenPack, piece: Piece, offset: int) -> CorruptError:
    """Return the error for a pack with another run in the place of the piece's.

    offset: the byte of the run's header; -1 if the index says so.
    """
    return CorruptError(
        f"{pack.path}: run {piece.run} is not that of topic {piece.topic}",
        {"path": pack.path, "offset": offset, "topic": piece.topic, "seq": piece.first_seq},
    )


def _is_of(fixed: bytearray, piece: Piece) -> bool:
    """Return whether a segment belongs to the piece, by topic and epoch in its header.

    The checksum is not compared.
    """
    if len(fixed) < SEGMENT_HEADER_FIXED:
        return False
    topic_id, epoch = header_identity(fixed)
    return bool((topic_id, epoch) == (piece.topic_id, piece.epoch))


def _run_of(piece: Piece) -> tuple[int, int, int]:
    return piece.topic_id, piece.first_seq, piece.last_seq


def _is_run(row: np.void, piece: Piece) -> bool:
    return (int(row["topic_id"]), int(row["first_seq"]), int(row["last_seq"])) == _run_of(piece)
