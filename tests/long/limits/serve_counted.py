"""`topics serve`, which notes the CPU time of the loop's thread in its longest pass.

A pass is the time between two returns of one of the ring's waits, less the allocation of files: on tmpfs that makes all
of their pages, 30 ms for 64 MiB, where a disk takes 0.03. The time, in ns, is the u64 in the file `longest` beside the
port file; a client that writes 0 there begins anew.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

from topics.cli import main
from topics.server.processes import composition as root

_U64 = struct.Struct("=Q")
_WAITS = ("submit_and_wait", "wait_single")


def note_passes(path: Path) -> None:
    """Make the ring of this process note its passes."""
    with path.open("r+b") as file:
        longest = mmap.mmap(file.fileno(), _U64.size)
    open_ring = root.open_ring

    def opened(*arguments: Any, **options: Any) -> Any:
        ring, reason = open_ring(*arguments, **options)
        began = 0
        cpu_ns = time.thread_time_ns

        def noting(wait: Any) -> Any:
            def noted(self: Any, timeout_ns: int | None) -> Any:
                nonlocal began
                result = wait(self, timeout_ns)
                now = cpu_ns()
                if began and now - began > _U64.unpack_from(longest)[0]:
                    _U64.pack_into(longest, 0, now - began)
                began = now
                return result

            return noted

        allocate = type(ring).allocate

        def uncounted(self: Any, fd: int, size: int) -> None:
            nonlocal began
            before = cpu_ns()
            try:
                allocate(self, fd, size)
            finally:
                began += cpu_ns() - before

        for name in _WAITS:
            setattr(type(ring), name, noting(getattr(type(ring), name)))
        type(ring).allocate = uncounted
        return ring, reason

    root.open_ring = opened  # type: ignore[assignment]


if __name__ == "__main__":
    note_passes(Path(os.environ["TOPICS_PORT_FILE"]).with_name("longest"))
    main()
