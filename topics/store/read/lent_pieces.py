"""Pieces of stored files that one other thread reads, without the loop.

On the loop, pieces are found in memory, and the files of the others are lent and opened. The thread
then reads with calls that wait for the disk and that release the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from topics.errors import CorruptError, StorageError
from topics.store.format.file_table import StoredFile
from topics.store.read.file_range import FileRange
from topics.store.read.lender import Lender, Loan
from topics.store.read.reader import Reader
from topics.store.read.waiting_reads import read_waiting


class Lent(NamedTuple):
    """Bytes of a piece, and the offset in the file of the first of them."""

    begin: int
    data: memoryview


class LentPieces:
    """The pieces of one read, for one thread at a time."""

    __slots__ = ("_files", "_found", "_lender", "_loan", "_pieces")

    def __init__(self, lender: Lender, pieces: Sequence[FileRange]) -> None:
        self._lender = lender
        self._pieces = pieces
        self._found: list[list[Lent]] = []
        """The parts of each piece that are in memory; none: the piece is in a file."""
        self._files: list[StoredFile | None] = []
        """The file of each piece; None: the piece is in memory."""
        self._loan: Loan | None = None
        """The right to read the files; None: all pieces are in memory."""

    # --- on the loop -------------------------------------------------------------------------------------------------
    def hold(self, done: Callable[[StorageError | None], None]) -> None:
        """Find pieces in memory, hold the files of the others and open them, then call `done`."""
        lender, reader = self._lender, self._lender.reader
        lender.release()
        files: list[StoredFile] = []
        for piece in self._pieces:
            parts = _in_memory(reader, piece)
            self._found.append(parts)
            if parts:
                self._files.append(None)
                continue
            file = reader.readable(piece.file_id)
            if isinstance(file, StorageError):
                done(file)
                return
            self._files.append(file)
            files.append(file)
        if files:
            self._loan = lender.lend(files)
        self._open(files, done)

    def _open(self, files: list[StoredFile], done: Callable[[StorageError | None], None]) -> None:
        """Open those of the files that are closed, one after the other."""
        file = next((file for file in files if file.fd < 0 and file.direct_fd < 0), None)
        if file is None:
            done(None)
            return
        self._lender.reader.open(file, lambda error: self._open(files, done) if error is None else done(error))

    @property
    def has_files(self) -> bool:
        """Whether some pieces are not in memory."""
        return self._loan is not None

    # --- on the thread -----------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Begin to read, in a `try` that ends with `end`. Raises: see `Loan.begin`."""
        if self._loan is not None:
            self._loan.begin()

    def end(self) -> None:
        """Give the files back."""
        if self._loan is not None:
            self._loan.end()

    def read(self, index: int) -> list[Lent]:
        """Return the bytes of a piece, in parts that follow each other.

        Raises: StorageError; UsageError, the log was closed meanwhile (by a signal's handler).
        """
        file = self._files[index]
        if file is None:
            return self._found[index]
        assert self._loan is not None, "a piece in a file without a loan"
        reader, piece = self._lender.reader, self._pieces[index]
        try:
            return [Lent(piece.offset, read_waiting(reader.files, file, piece, self._loan.check))]
        except CorruptError as error:
            reader.on_corrupt(error)
            raise


def _in_memory(reader: Reader, piece: FileRange) -> list[Lent]:
    """Return the parts of a piece that may stay in memory, or none."""
    chunks = reader.tail.lend(*piece)
    if chunks is not None:
        return [Lent(*chunk) for chunk in chunks]
    view = reader.find(piece)
    return [] if view is None else [Lent(piece.offset, view)]
