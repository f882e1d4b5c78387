"""Records deleted one by one in segments and packs, until the next checkpoint flags them.

Each takes 16 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.chunk import Chunk, Dead
from topics.engine.index.usage import Usage
from topics.store.format.catalog import Deletions


class PendingDeleteFlags:
    """Collects deleted rows for `take`; the rows of a `Dead` are examined later, a chunk a step."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._later: list[tuple[int, Dead]] = []
        self._parts: dict[tuple[int, int], tuple[array[int], array[int], array[int]]] = {}

    def add(
        self,
        topic_id: int,
        file_id: int,
        seqs: NDArray[np.uint64],
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
    ) -> None:
        """Add rows of one topic in one sealed file; columns of shape (n,)."""
        part = self._parts.get((topic_id, file_id))
        if part is None:
            part = self._parts[topic_id, file_id] = (array("Q"), array("I"), array("I"))
        part[0].frombytes(seqs.tobytes())
        part[1].frombytes(offsets.tobytes())
        part[2].frombytes(lengths.tobytes())

    def add_rows(self, topic_id: int, chunk: Chunk, rows: NDArray[np.intp]) -> None:
        """Add rows of a chunk, in any files."""
        here = chunk.file_ids[rows]
        for file_id in np.unique(here).tolist():
            if self._usage.is_sealed(file_id):
                its = rows[here == file_id]
                self.add(
                    topic_id, file_id, (its + chunk.first).astype(np.uint64), chunk.offsets[its], chunk.lengths[its]
                )

    def add_later(self, topic_id: int, dead: Dead) -> None:
        """Add rows of one topic in any files, to be examined by `gather`."""
        file_id = dead.chunk.file_id
        if not file_id or self._usage.is_sealed(file_id):
            self._later.append((topic_id, dead))

    def gather(self) -> Iterator[None]:
        """Examine the rows of `add_later`, a chunk a step."""
        while self._later:
            topic_id, dead = self._later.pop()
            self.add_rows(topic_id, dead.chunk, dead.rows)
            yield

    def take(self) -> list[Deletions]:
        """Return all deletions and forget them."""
        for _ in self.gather():
            pass
        parts, self._parts = self._parts, {}
        return [
            Deletions(
                topic_id,
                file_id,
                np.frombuffer(seqs, np.uint64),
                np.frombuffer(offsets, np.uint32),
                np.frombuffer(lengths, np.uint32),
            )
            for (topic_id, file_id), (seqs, offsets, lengths) in parts.items()
        ]
