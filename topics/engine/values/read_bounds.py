"""The limits on what one read may request. Source: wire contract 5.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.common.tuples import make_tuple
from topics.config import Config
from topics.engine.values.results import DiffQuery


class ReadBounds(NamedTuple):
    """The limits on the reads of one server.

    The lane gets them as a struct of numbers (engine/read/render_bulk.py).
    """

    default_limit: int
    max_limit: int
    """Records."""
    default_bytes: int
    max_bytes: int
    """Accounted bytes."""
    max_wait_ms: int

    @classmethod
    def of(cls, config: Config) -> ReadBounds:
        return cls(
            config.default_limit,
            config.max_limit,
            config.default_batch_bytes,
            config.max_batch_bytes,
            config.max_wait_ms,
        )

    def one_pass(self, query: DiffQuery) -> DiffQuery:
        """Return the query of a pass that does not wait, clamped; 0 takes the default."""
        from_seq, limit, nodes, include_tags, include_meta, include_data, _wait_ms, size, *others = query
        limit = min(limit or self.default_limit, self.max_limit)
        size = min(size or self.default_bytes, self.max_bytes)
        return make_tuple(
            DiffQuery, (from_seq, limit, nodes, include_tags, include_meta, include_data, 0, size, *others)
        )

    def wait_ms(self, asked_ms: int) -> int:
        """Return how long an answer may be held back, in ms."""
        return min(asked_ms, self.max_wait_ms)


def fitting(sizes: NDArray[np.uint32] | Sequence[int], budget: int) -> int:
    """Return how many of the first sizes fit the budget, at least one."""
    sums = np.cumsum(sizes, dtype=np.uint64)
    return len(sums) if sums[-1] <= budget else max(1, int(np.searchsorted(sums, np.uint64(budget), "right")))
