"""Signals that end the loop's wait and call a callback on the loop, between other steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from topics.loop.loop import Loop


def install_signal_handlers(
    loop: Loop,
    callback: Callable[[int], None],
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Callable[[], None]:
    """Call `callback(number)` in the loop for each signal. Return the undo.

    Main thread only.

    A signal handled by C code is left to it, because its handler could not be restored. A signal
    that comes after Python checked for signals and before the kernel sleeps would wait for the next
    event; therefore the C handler also writes to the ring's wake descriptor, if the ring has one.
    A process that was started with signals blocked, so that none ends it before, gets them now.
    """

    def on_signal(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(lambda: callback(number))

    before: dict[signal.Signals, Any] = {}
    wake_fd = loop.ring.wake_fd
    fd_before: int | None = None

    def uninstall() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        if fd_before is not None:
            signal.set_wakeup_fd(fd_before)

    try:
        for number in signals:
            handler = signal.getsignal(number)
            if handler is not None:
                before[number] = handler
                signal.signal(number, on_signal)
        if wake_fd >= 0:
            fd_before = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    except BaseException:  # another signal's handler raised
        uninstall()
        raise
    return uninstall
