"""The console script `topics`. Ctrl-C ends it without a word also while its modules load.

It is beside the package, so that none of the package's modules loads before it.
"""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130


def _end(number: int, frame: object) -> None:
    os._exit(_INTERRUPTED)  # Nothing was opened or printed yet.


def main() -> None:
    """Load the command line, and run it."""
    from topics.cli import main as run  # noqa: PLC0415 - after the handler below

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # It may be ignored.
    signal.signal(signal.SIGINT, _end)
