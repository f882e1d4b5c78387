"""Page-aligned memory, for O_DIRECT and for what the kernel writes into."""

from __future__ import annotations

import mmap


def page_aligned(size: int) -> mmap.mmap:
    """`size` bytes of zeros that begin at a page. Given back when the last view of it has gone.

    Private: Python's default is shared memory, which the kernel treats as a file and touches at twice the price.
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
