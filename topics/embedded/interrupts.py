"""Signals wait while the main thread works on a log.

Python runs a signal's handler between any two steps of the main thread, and what it raises (Ctrl-C: KeyboardInterrupt;
an alarm that is a timeout) would leave a pass of the loop half done. So where a log must not be left, the handlers are
held: one that this module puts in their place notes the signal and ends the wait in progress. They have their place
again, and are called for what came meanwhile, before the caller gets its answer; asyncio, which looks who handles
Ctrl-C, and everybody else find what they left there.

Only the main thread runs handlers, so only there this does anything. Numbers up to 31; a realtime signal whose handler
raises in the middle of a call, and an exception that another thread throws in (PyThreadState_SetAsyncExc), end the log
with LogFailedError.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.signal makes enums of what it takes and returns, for ten times the price
import os
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Any
"""What signal.getsignal returns: a callable, a number (default, ignored) or None (set by C)."""

_NUMBERS = tuple(range(1, 32))
_get_handler, _set_handler, _get_ident = _signal.getsignal, _signal.signal, threading.get_ident


class HeldSignals:
    """The signals of this process. `hold` and `release` nest, and cost a comparison off the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._noting = self._note  # one object, to be known again
        self._depth = 0
        self._wake: Callable[[], None] = _nothing
        self._replaced: dict[int, Handler] = {}
        """By number, the handlers whose place `_note` has."""
        self._came: list[tuple[int, FrameType | None]] = []
        self._seen: list[Handler] = []
        self._handled: list[int] = []
        """The numbers with a handler in Python, when all were as in `_seen`."""

    def hold(self, wake: Callable[[], None]) -> None:
        """Until `release` no handler runs; a signal calls `wake` of the first to hold. Raises what one raises now."""
        if _get_ident() != self._main:
            return
        if self._depth:
            self._depth += 1
            return
        handlers = list(map(_get_handler, _NUMBERS))
        if handlers != self._seen:
            self._seen = handlers
            self._handled = [number for number, handler in zip(_NUMBERS, handlers, strict=True) if callable(handler)]
        replaced = self._replaced
        if replaced:  # somebody raised in the midst of `_put_back`
            self._replaced = replaced = {n: old for n, old in replaced.items() if _get_handler(n) is self._noting}
        self._wake = wake
        self._depth = 1
        noting = self._noting
        try:
            for number in self._handled:
                handler = _set_handler(number, noting)
                if handler is not noting:
                    replaced[number] = handler
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Ends the innermost `hold`; the outermost calls the handlers of what came. Raises what they raise."""
        if _get_ident() != self._main:
            return
        if self._depth > 1:
            self._depth -= 1
            return
        try:
            self._put_back()  # still held: a handler that has its place again may call a log
        finally:
            self._depth = 0
            if self._came:
                self._call_handlers()

    @property
    def came(self) -> bool:
        """A signal waits for the outermost hold, which is the caller's, to end or to let it through."""
        return bool(self._came) and self._depth == 1 and _get_ident() == self._main

    def let_through(self) -> None:
        """Calls the handlers of what came, within a hold: at a place that may be left. Raises what they raise."""
        if self.came:
            self._call_handlers()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._came.append((number, frame))
            self._wake()
        else:
            self._call(number, frame)

    def _put_back(self) -> None:
        """One that raises in the midst of this leaves `_note` for others, which calls theirs until the next time."""
        replaced = self._replaced
        for number in replaced:
            _set_handler(number, replaced[number])
        replaced.clear()

    def _call_handlers(self) -> None:
        try:
            while self._came:
                self._call(*self._came.pop(0))
        finally:
            if self._came:
                self._call_handlers()

    def _call(self, number: int, frame: FrameType | None) -> None:
        handler = self._replaced[number] if number in self._replaced else _get_handler(number)
        if callable(handler) and handler is not self._noting:
            handler(number, frame)

    def on_fork(self) -> None:
        """In the child, whose main thread is the one that forked; the one that held may be gone."""
        self._main = _get_ident()
        self._depth = 0
        self._came.clear()
        self._put_back()


def _nothing() -> None:
    pass


signals = HeldSignals()
os.register_at_fork(after_in_child=signals.on_fork)
