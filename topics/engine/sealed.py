"""Records deleted one by one in segments and packs, kept until the next checkpoint flags them there: 16 bytes each."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from topics.store.catalog import Deletions


class SealedDeletions:
    """Gathers what dies; `take` hands it over."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], tuple[array[int], array[int], array[int]]] = {}

    def add(
        self,
        topic_id: int,
        file_id: int,
        seqs: NDArray[np.uint64],
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32],
    ) -> None:
        """Rows of one topic in one sealed file; columns of shape (n,)."""
        part = self._parts.get((topic_id, file_id))
        if part is None:
            part = self._parts[topic_id, file_id] = (array("Q"), array("I"), array("I"))
        part[0].frombytes(seqs.tobytes())
        part[1].frombytes(offsets.tobytes())
        part[2].frombytes(lengths.tobytes())

    def take(self) -> list[Deletions]:
        """All of it, once."""
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
