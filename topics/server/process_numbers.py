"""Numbers of the process for the metrics page, under the names that all exporters use.

They come from procfs, through the ring: where there is none, as in the simulator, there are no
numbers.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from topics.loop.loop import Loop

_STAT_BYTES = 4096
_UTIME, _STIME, _VSIZE, _RSS = 11, 12, 20, 21
"""Positions in /proc/self/stat after the name of the program, which ends with a parenthesis."""


class ProcessNumbers(NamedTuple):
    """Numbers of one instant. open_fds: 0 on kernels before 6.2, which do not say."""

    cpu_seconds: float
    virtual_bytes: int
    resident_bytes: int
    open_fds: int
    max_fds: int


ReadProcess = Callable[[Loop], Coroutine[Any, Any, ProcessNumbers | None]]


async def read_process(loop: Loop) -> ProcessNumbers | None:
    """Return the numbers of this process; None where there is no procfs."""
    files = loop.files
    try:
        fd = await files.open("/proc/self/stat", os.O_RDONLY)
        try:
            text = await files.read(fd, _STAT_BYTES, 0)
        finally:
            await files.close(fd)
        open_fds = loop.ring.lstat("/proc/self/fd").st_size
    except OSError:
        return None
    fields = text.rpartition(b") ")[2].split()
    return ProcessNumbers(
        (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK"),
        int(fields[_VSIZE]),
        int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE"),
        open_fds,
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
