"""SIGINT and SIGTERM as calls on the loop's thread."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

from topics.loop.loop import Loop


@contextlib.contextmanager
def signals_call(loop: Loop, fn: Callable[[], None]) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM call `fn` in the loop's next pass; only for the main thread."""

    def on_signal(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(fn)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    wake_fd = loop.ring.wake_fd
    # Python runs `on_signal` only between bytecodes: the byte ends a wait that the signal came just too early for.
    old_fd = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False) if wake_fd >= 0 else None
    try:
        yield
    finally:
        if old_fd is not None:
            signal.set_wakeup_fd(old_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
