"""Files lent to one other thread, which reads them without the loop; and a store's loans.

On the loop, files are held, so that they are neither closed nor used again. Only the loop ends a
hold: a thread that has read, or has left, notes that in a queue.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import islice

from topics.errors import StorageError, TopicsError, UsageError
from topics.store.format.file_table import StoredFile
from topics.store.read.reader import Reader

_LOOK_NS = 100_000_000
"""Interval of looks for loans that threads have ended, while there are any."""
_READS_A_LOOK = 4096
"""Number of oldest loans that one check searches for files that the store has dropped."""


class Loan:
    """The right of one thread at a time to read some files.

    They are held until the thread ends it, or until the object is dropped.
    """

    __slots__ = ("__weakref__", "_lender", "_reading", "_refusal", "key")

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self.key: LoanKey = weakref.ref(self, lender.on_dropped)
        """The key of this loan in the lender's table."""
        self._reading: int | None = None
        """Id of the thread that reads."""
        self._refusal: Callable[[], TopicsError] | None = None
        """The error of reads, once the files are taken back."""

    # --- on the loop -------------------------------------------------------------------------------------------------
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
            self.check()
            self._reading = threading.get_ident()

    def end(self) -> None:
        """Give the files back."""
        self._reading = None
        self._lender.give_back(self.key)

    def check(self) -> None:
        """Raise the error of reads if the files were taken back."""
        if self._refusal is not None:
            raise self._refusal()


LoanKey = weakref.ref[Loan]


class Lender:
    """The loans of one store."""

    def __init__(self, reader: Reader, call_later: Callable[[int, Callable[[], None]], object], held_max: int) -> None:
        """call_later: on the loop, after so many ns. held_max: see `Config.max_held_files`."""
        self.reader = reader
        self._held_max = held_max
        self._call_later = call_later
        # Locks of C: a signal's handler that raises cannot leave one of them locked.
        self.changing = threading.RLock()
        self._left = threading.Lock()
        """Released, if it is locked, when a thread has ended a loan."""
        self._held: dict[LoanKey, list[StoredFile]] = {}
        self._returned: deque[LoanKey] = deque()
        """The loans that have ended, or were dropped."""
        # Dropping a loan runs no code of Python, in which an exception of a signal would be lost.
        self.on_dropped: Callable[[LoanKey], None] = self._returned.append
        self._looks = False
        """Whether a check for such loans is scheduled."""

    # --- on the loop -------------------------------------------------------------------------------------------------
    def lend(self, files: list[StoredFile]) -> Loan:
        """Hold files for one thread: until it ends the loan, or drops it."""
        for file in files:
            file.hold()
            if self.reader.opener is not None:
                self.reader.opener.touch(file)
        loan = Loan(self)
        self._held[loan.key] = files
        if not self._looks:
            self._looks = True
            self._call_later(_LOOK_NS, self._look)
        return loan

    def _look(self) -> None:
        self.release()
        if self._held_max:
            self._limit_given_up()
        self._looks = bool(self._held)
        if self._looks:
            self._call_later(_LOOK_NS, self._look)

    def release(self) -> None:
        """Release the files of loans that have ended."""
        while self._returned:
            for file in self._held.pop(self._returned.popleft(), ()):
                file.release()

    def _limit_given_up(self) -> None:
        """Take back the oldest files that the store has given up, if loans keep too many of them.

        Only loans that no thread has begun are ended. Some are never read: an exception of an
        interrupted call, which the program has stored, refers to them.
        """
        given_up: dict[StoredFile, list[LoanKey]] = {}
        for key, files in islice(self._held.items(), _READS_A_LOOK):
            for file in files:
                if file.is_awaited:
                    given_up.setdefault(file, []).append(key)
        for file in list(given_up)[: -self._held_max]:
            for key in given_up[file]:
                loan = key()
                with self.changing:
                    if loan is not None and loan.revoke(_left_too_long, also_here=False):
                        self._returned.append(key)
        self.release()

    # --- on any thread -----------------------------------------------------------------------------------------------
    def give_back(self, key: LoanKey) -> None:
        """Have the files released, with the next read or look."""
        self._returned.append(key)
        with contextlib.suppress(RuntimeError):
            self._left.release()

    def end(self) -> None:
        """Take everything back, and wait for threads that are reading. No other thread drives."""
        while not self._revoke_all():
            self._left.acquire(timeout=_LOOK_NS / 1e9)
        self._returned.extend(self._held)
        self.release()

    def _revoke_all(self) -> bool:
        loans = [loan for loan in [key() for key in self._held] if loan is not None]
        with self.changing:
            return all([loan.revoke(_closed, also_here=True) for loan in loans])  # noqa: C419 - also after one that is read


def _closed() -> UsageError:
    return UsageError("this log was closed during the read: open it again")


def _left_too_long() -> StorageError:
    return StorageError(
        "the files of this read are gone, because it began long after its records were chosen: read again"
    )
