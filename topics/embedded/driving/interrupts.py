"""Signals held while the main thread works on a log.

Python runs a signal's handler between any two steps of the main thread, and an exception of it
(Ctrl-C: KeyboardInterrupt; an alarm that is a timeout) would leave a pass of the loop half done.
Therefore the handlers are held where a log must not be left: a handler of this module replaces
each, notes the signal and ends the wait in progress. The handlers are restored, and called for the
signals that came meanwhile, before the caller gets its answer. asyncio, which checks who handles
Ctrl-C, and all other code find the handlers they installed.

Only the main thread runs handlers, so the module has no effect in other threads. It covers numbers
up to 31. A realtime signal whose handler raises in the middle of a call, and an exception that
another thread throws in (PyThreadState_SetAsyncExc), end the log with LogFailedError.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.signal makes enums of what it takes and returns, for ten times the price
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Any
"""A result of signal.getsignal: a callable, a number (default, ignored) or None (set by C)."""

_NUMBERS = tuple(range(1, 32))
_get_handler, _set_handler = _signal.getsignal, _signal.signal
_get_ident, _getframe = threading.get_ident, sys._getframe


def _nothing() -> None:
    pass


class HeldSignals:
    """The signals of this process. `hold` and `release` nest, and cost little in other threads.

    The function that calls `hold` calls `release` in a `finally`, and holds once.

    Python runs handlers, which may raise, after every call into C, at the start of every function
    and at every turn of a loop. So any step below may be the last one, and each leaves enough for
    `_put_back` to find: a handler is recorded before it is replaced. `_depth` is assigned once all
    handlers are replaced, and is 0 again before the first is restored. While it is 0, a signal that
    reaches `_note` restores all handlers and calls its own.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._noting = self._note  # one object, so that it can be recognised
        self._depth = 0
        """Number of nested holds; more than 0 only while all handlers are replaced."""
        self._holder: FrameType | None = None
        """Frame of the outermost function that holds.

        Once it has ended, so has its hold: an exception may have prevented its `release`.
        """
        self._wake: Callable[[], None] = _nothing
        self._replaced: dict[int, Handler] = {}
        """Handlers, by number, that `_note` replaces, or replaced a moment ago."""
        self._changes = 0
        """Number of times that handlers were replaced or restored."""
        self._came: list[tuple[int, FrameType | None]] = []
        self._seen: list[Handler] = []
        self._handled: list[int] = []
        """Numbers with a handler in Python, when all were as in `_seen`; assigned before it."""

    def hold(self, wake: Callable[[], None] = _nothing) -> None:
        """Hold all handlers until `release`; a signal then calls `wake` of the outermost hold.

        wake: ends what this thread waits for. Left out by a caller that waits for nothing.
        Raises: the exception of a handler that runs now.
        """
        if _get_ident() != self._main:
            return
        holder = _getframe(1)
        if self._depth:
            if self._continues_in(holder):
                self._depth += 1
                return
            self._give_up()
        while True:
            try:
                change = self._take_places()
            except BaseException:
                self._put_back()
                raise
            # No handler runs from here to the end, because no function is called.
            if self._changes == change:
                self._wake, self._holder, self._depth = wake, holder, 1
                return

    def release(self) -> None:
        """End the innermost `hold`; the outermost calls the handlers of signals that came.

        Raises: the exception of a handler.
        """
        if _get_ident() != self._main:
            return
        if self._depth > 1 and _getframe(1) is not self._holder:
            self._depth -= 1
            return
        self._depth, self._holder, self._wake = 0, None, _nothing
        try:
            self._put_back()
        finally:
            if self._came:
                self._call_handlers()

    @property
    def came(self) -> bool:
        """Whether a signal waits for the outermost hold, the caller's, to end."""
        return bool(self._came) and self._depth == 1 and _get_ident() == self._main

    def let_through(self) -> None:
        """Call the handlers of signals that came, within a hold, where the log may be left.

        Raises: the exception of a handler.
        """
        if self.came:
            self._call_handlers()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))
        if self._depth and self._continues_in(frame):
            self._wake()
            return
        try:
            self._give_up()
        finally:
            self._call_handlers()

    def _continues_in(self, frame: FrameType | None) -> bool:
        """Return whether the outermost function that holds is `frame`, or among its callers."""
        holder = self._holder
        while frame is not None and frame is not holder:
            frame = frame.f_back
        return frame is not None

    def _give_up(self) -> None:
        self._depth, self._holder, self._wake = 0, None, _nothing
        self._put_back()

    def _take_places(self) -> int:
        """Replace every handler by `_note`.

        Return `_changes`, which differs later if a handler ran.
        """
        change = self._changes = self._changes + 1
        handlers = list(map(_get_handler, _NUMBERS))
        if handlers != self._seen:
            self._handled = [number for number, handler in zip(_NUMBERS, handlers, strict=True) if callable(handler)]
            self._seen = handlers
        replaced, noting = self._replaced, self._noting
        for number in self._handled:
            handler = handlers[number - 1]
            if handler is not noting:
                replaced[number] = handler
                was = _set_handler(number, noting)
                if was is not handler and was is not noting:
                    replaced[number] = was
        return change

    def _put_back(self) -> None:
        """Restore the handlers. A handler installed meanwhile in the place of `_note` stays.

        Raises: the exception of a restored handler, once all are restored.
        """
        self._changes += 1
        replaced, noting = self._replaced, self._noting
        try:
            for number in list(replaced):
                handler = replaced.get(number)
                if handler is not None and _get_handler(number) is noting:
                    _set_handler(number, handler)
                replaced.pop(number, None)
        except BaseException:
            self._put_back()
            raise

    def _call_handlers(self) -> None:
        came = self._came
        try:
            while came:
                number, frame = signal = came[0]
                del came[0]
                try:
                    handler = self._replaced.get(number) or _get_handler(number)
                    calls = callable(handler) and handler is not self._noting
                except BaseException:  # raised by another signal's handler
                    came.insert(0, signal)
                    raise
                if calls:
                    handler(number, frame)
        finally:
            if came:
                self._call_handlers()

    def on_fork(self) -> None:
        """Reset the state in a forked child, whose main thread is the one that forked.

        The holder may be gone.
        """
        self._main = _get_ident()
        self._came.clear()
        self._give_up()


signals = HeldSignals()
os.register_at_fork(after_in_child=signals.on_fork)
