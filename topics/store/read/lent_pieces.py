"""Pieces of stored files that were lent to one other thread, which reads them without the loop.

On the loop, files are held, so that they are neither closed nor used again, and opened. The thread
then reads with calls that wait for the disk and that release the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from topics.errors import CorruptError, StorageError, TopicsError, UsageError
from topics.store.format.file_table import StoredFile
from topics.store.read.block_reads import inflated
from topics.store.read.reader import FileRange, Filling, Reader
from topics.store.read.waiting_files import NO_RESTS, WaitingFiles

_LOOK_NS = 100_000_000
"""Interval of looks for pieces whose threads have left them, while any are lent."""
_READS_A_LOOK = 4096
"""Oldest reads that a look searches for such files."""


class Lent(NamedTuple):
    """Bytes of a piece, and the offset in the file of the first of them."""

    begin: int
    data: memoryview


Held = weakref.ref["LentPieces"]


class LentPieces:
    """The pieces of one read, for one thread at a time.

    Its files are held until it was read, or until the object is dropped.
    """

    __slots__ = ("__weakref__", "_files", "_found", "_held", "_lender", "_pieces", "_reading", "_refusal")

    def __init__(self, lender: Lender, pieces: Sequence[FileRange]) -> None:
        self._lender = lender
        self._pieces = pieces
        self._found: list[list[Lent]] = []
        """The parts of each piece that are in memory; none: the piece is in a file."""
        self._files: list[StoredFile | None] = []
        self._held: Held | None = None
        self._reading: int | None = None
        """Id of the thread that reads."""
        self._refusal: Callable[[], TopicsError] | None = None
        """The error of reads, once the files are taken back."""

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
            for file in files:
                file.hold()
                if reader.opener is not None:
                    reader.opener.touch(file)
            self._held = lender.note(self, files)
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
        return self._held is not None

    def revoke(self, refusal: Callable[[], TopicsError], *, also_here: bool) -> bool:
        """Take the files back, unless a thread reads them right now. Return whether.

        also_here: from this thread, too, within whose read the caller runs.
        """
        if self._reading is not None and not (also_here and self._reading == threading.get_ident()):
            return False
        self._refusal = refusal
        return True

    # --- on the thread -----------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Begin to read, in a `try` that ends with `end`.

        Raises: UsageError, the log is closed; StorageError, the files are gone.
        """
        with self._lender.changing:
            self._check()
            self._reading = threading.get_ident()

    def end(self) -> None:
        """Give the files back."""
        self._reading = None
        if self._held is not None:
            self._lender.give_back(self._held)

    def read(self, index: int) -> list[Lent]:
        """Return the bytes of a piece, in parts that follow each other.

        Raises: StorageError; UsageError, the log was closed meanwhile (by a signal's handler).
        """
        file = self._files[index]
        if file is None:
            return self._found[index]
        self._check()
        piece = self._pieces[index]
        try:
            return [Lent(piece.offset, self._inflated(file, piece) if file.compressed else self._filled(file, piece))]
        except CorruptError as error:
            self._lender.reader.on_corrupt(error)
            raise

    def _filled(self, file: StoredFile, piece: FileRange) -> memoryview:
        filling = Filling(file, piece)
        files = self._lender.reader.files
        while not filling.is_full:
            self._check()
            error = filling.on_result(files.read_now(filling.fd, *filling.rest))
            if error is not None:
                raise error
        return filling.view

    def _inflated(self, file: StoredFile, piece: FileRange) -> memoryview:
        files = WaitingFiles(self._lender.reader.files, self._check)
        steps = inflated(files, NO_RESTS, file, file.fd, piece.offset, piece.length)
        try:
            steps.send(None)
        except StopIteration as end:
            found: memoryview = end.value
            return found
        except OSError as error:
            raise StorageError(f"reading {file.path} failed: {error.strerror or error}") from error
        raise AssertionError("a read of a thread waits for no loop")

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal()


class Lender:
    """The pieces of one store that are lent.

    The loop holds files, and ends the hold: a thread that has read, or has left, only says so.
    """

    def __init__(self, reader: Reader, call_later: Callable[[int, Callable[[], None]], object], held_max: int) -> None:
        """call_later: on the loop, after so many ns. held_max: see `Config.max_held_files`."""
        self.reader = reader
        self._held_max = held_max
        self._call_later = call_later
        # Locks of C: a signal's handler that raises cannot leave one of them locked.
        self.changing = threading.RLock()
        self._left = threading.Lock()
        """Released, if it is locked, when a thread has left its pieces."""
        self._held: dict[Held, list[StoredFile]] = {}
        self._returned: deque[Held] = deque()
        """The ones that no thread reads any more."""
        self._looks = False
        """Whether a look for them is planned."""

    # --- on the loop -------------------------------------------------------------------------------------------------
    def note(self, pieces: LentPieces, files: list[StoredFile]) -> Held:
        """Note that `pieces` holds files: until it is given back or dropped."""
        # Dropping it runs no code of Python, in which an exception of a signal would be lost.
        held = weakref.ref(pieces, self._returned.append)
        self._held[held] = files
        if not self._looks:
            self._looks = True
            self._call_later(_LOOK_NS, self._look)
        return held

    def _look(self) -> None:
        self.release()
        if self._held_max:
            self._limit_given_up()
        self._looks = bool(self._held)
        if self._looks:
            self._call_later(_LOOK_NS, self._look)

    def release(self) -> None:
        """Release the files of what was given back."""
        while self._returned:
            for file in self._held.pop(self._returned.popleft(), ()):
                file.release()

    def _limit_given_up(self) -> None:
        """Take back the oldest of too many files that only reads keep which no thread has begun.

        Some are never read: an exception of an interrupted call, which the program has stored,
        refers to them.
        """
        given_up: dict[StoredFile, list[Held]] = {}
        for held, files in islice(self._held.items(), _READS_A_LOOK):
            for file in files:
                if file.is_awaited:
                    given_up.setdefault(file, []).append(held)
        for file in list(given_up)[: -self._held_max]:
            for held in given_up[file]:
                pieces = held()
                with self.changing:
                    if pieces is not None and pieces.revoke(_left_too_long, also_here=False):
                        self._returned.append(held)
        self.release()

    # --- on any thread -----------------------------------------------------------------------------------------------
    def give_back(self, held: Held) -> None:
        """Have the files released, with the next read or look."""
        self._returned.append(held)
        with contextlib.suppress(RuntimeError):
            self._left.release()

    def end(self) -> None:
        """Take everything back, and wait for threads that are reading. No other thread drives."""
        while not self._revoke_all():
            self._left.acquire(timeout=_LOOK_NS / 1e9)
        self._returned.extend(self._held)
        self.release()

    def _revoke_all(self) -> bool:
        lent = [pieces for pieces in [held() for held in self._held] if pieces is not None]
        with self.changing:
            return all([pieces.revoke(_closed, also_here=True) for pieces in lent])  # noqa: C419 - also after one that is read


def _closed() -> UsageError:
    return UsageError("this log was closed during the read: open it again")


def _left_too_long() -> StorageError:
    return StorageError(
        "the files of this read are gone, because it began long after its records were chosen: read again"
    )


def _in_memory(reader: Reader, piece: FileRange) -> list[Lent]:
    """Return the parts of a piece that may stay in memory, or none."""
    chunks = reader.tail.lend(*piece)
    if chunks is not None:
        return [Lent(*chunk) for chunk in chunks]
    view = reader.find(piece)
    return [] if view is None else [Lent(piece.offset, view)]
