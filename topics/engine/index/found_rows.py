"""The rows that a search over many passes has found, checked for changes before they are killed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import DEAD, Chunk

_DEAD_BIT = np.uint8(7)
assert DEAD == 1 << _DEAD_BIT


class Found:
    """Rows of a chunk that were live when they were found.

    which: shape (n,), the rows of [0, n) that were found; None: all live rows.
    records, size: the number of these rows and their bytes.
    """

    __slots__ = ("_before", "_live", "chunk", "flags", "records", "size", "which")

    def __init__(self, chunk: Chunk, which: NDArray[np.bool_] | None, records: int, size: int) -> None:
        self.chunk = chunk
        self.which = which
        self.records = records
        self.size = size
        self.flags = self._before = chunk.flags
        """The chunk's flags once these rows are dead."""
        self._live = chunk.live
        if which is not None:
            self.flags = chunk.flags.copy()
            self.flags[: len(which)] |= which.view(np.uint8) << _DEAD_BIT

    @property
    def holds(self) -> bool:
        """Whether no row of the chunk has died since. The searcher checks for added rows."""
        chunk = self.chunk
        return chunk.live == self._live and chunk.flags is self._before
