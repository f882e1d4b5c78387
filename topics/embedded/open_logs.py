"""The logs open in this process: released in a forked child, closed when the interpreter ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import TYPE_CHECKING

from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.embedded.log import Log

open_logs: weakref.WeakSet[Log] = weakref.WeakSet()


def _disown_all_in_child() -> None:
    for log in list(open_logs):
        log.disown()


os.register_at_fork(after_in_child=_disown_all_in_child)


@atexit.register
def _close_all_at_exit() -> None:
    """Close all logs, because gathered records would be lost otherwise."""
    for log in list(open_logs):
        with contextlib.suppress(TopicsError):
            log.close()
