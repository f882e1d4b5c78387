"""The logs open in this process: released in a forked child, closed when the interpreter ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol

from topics.errors import TopicsError


class OpenLog(Protocol):
    """A log as a fork and the end of the interpreter treat it."""

    def _disown(self) -> None: ...

    def close(self) -> None: ...


open_logs: weakref.WeakSet[OpenLog] = weakref.WeakSet()


def _disown_all_in_child() -> None:
    for log in list(open_logs):
        log._disown()


os.register_at_fork(after_in_child=_disown_all_in_child)


@atexit.register
def _close_all_at_exit() -> None:
    """Close all logs, because gathered records would be lost otherwise."""
    for log in list(open_logs):
        with contextlib.suppress(TopicsError):
            log.close()
