"""Rests of readers, so that threads that append or drive get the interpreter's lock.

A thread that releases the lock and takes it again at once is not overtaken. So a reader pauses
between its steps while others append, until some of their appends have ended.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

_PAUSE_S = 20e-6
_PAUSE_APPENDS = 4
"""Appends that end in a pause of a reader, so that few of them wait for a step of it."""
_PAUSE_MOST_S = 200e-6
"""The longest pause, since an append may wait for the disk."""


class _Rest:
    """A pause of a reader, which ends when some appends have."""

    __slots__ = ("appends_left", "over")

    def __init__(self) -> None:
        self.appends_left = _PAUSE_APPENDS
        self.over = threading.Lock()
        self.over.acquire()


class ReaderRests:
    """The rests of a log's readers. drives_elsewhere: returns whether another thread drives."""

    def __init__(self, drives_elsewhere: Callable[[], bool]) -> None:
        self._drives_elsewhere = drives_elsewhere
        self.appending: set[int] = set()
        """Ids of threads in an append, which need the interpreter now and then: see `pause`."""
        self._pausing: list[_Rest] = []

    def pause(self) -> bool:
        """Let threads that append or drive continue, if they wait for the interpreter's lock.

        Return whether there are such threads.
        """
        if self.appending:
            pause = _Rest()
            self._pausing.append(pause)
            try:
                pause.over.acquire(timeout=_PAUSE_MOST_S)
            finally:
                with contextlib.suppress(ValueError):  # this is a forked child
                    self._pausing.remove(pause)
            return True
        if self._drives_elsewhere():
            time.sleep(_PAUSE_S)
            return True
        return False

    def end_append(self, thread: int) -> None:
        """Note that a thread is not in an append any more, which readers may wait for."""
        self.appending.discard(thread)
        for pause in self._pausing:
            pause.appends_left -= 1
            if pause.appends_left == 0:
                pause.over.release()

    def disown(self) -> None:
        """Forget the threads, in a forked child, which has none of them."""
        self.appending.clear()
        self._pausing.clear()
