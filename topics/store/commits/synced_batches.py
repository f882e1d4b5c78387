"""The batches of a shard that are written, those on stable storage, and the seqs that are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TOPICS_NOTED = 1 << 14
"""Topics that one mapping of unsynced seqs takes, so that no mapping ever grows for long: see
`SyncedBatches.topics`. Those of one more batch may be in it, too.
"""


class SealedFile(NamedTuple):
    """A file that the log has left with bytes that are not synced yet."""

    file_id: int
    fd: int
    last_batch_no: int
    bytes: int
    """`SyncedBatches.bytes_written` when it was left."""


class SyncedBatches:
    """The written and the durable batches: a prefix each, over all files of the shard."""

    def __init__(self, last_batch_no: int) -> None:
        self.written = last_batch_no
        self.synced = last_batch_no
        self.bytes_written = 0
        """Bytes of batches since the start; the difference is what is not on stable storage."""
        self.bytes_synced = 0
        self.sealed: deque[SealedFile] = deque()
        self.topics: dict[int, int] = {}
        """By topic id the first seq in batches that no sync covers so far, running ones included.
        The engine enters what it publishes of a commit. When it has many, another one follows.
        """
        self._covered: deque[tuple[int, dict[int, int]]] = deque()
        """(number of a batch, `topics` of it and of earlier ones that a sync covers or will)."""

    @property
    def unsynced(self) -> bool:
        return self.written > self.synced

    def unsynced_from(self, topic_id: int) -> int | None:
        """Return the first seq of a topic that is not on stable storage; None: all are."""
        if not self.unsynced:
            return None
        return min([topics[topic_id] for topics in self._uncovered() if topic_id in topics], default=None)

    def note_shared(self, topic_id: int, first_seq: int, source_id: int, seqs: NDArray[np.uint64]) -> None:
        """Note a topic's copies by position, of any shard: the sync of an original covers its copy.

        first_seq: of the first copy. source_id, seqs: the originals, all in files of this shard.
        """
        if not self.unsynced:
            return
        for topics in self._uncovered():
            if source_id in topics:
                row = int(np.searchsorted(seqs, np.uint64(topics[source_id])))
                if row < len(seqs):
                    topics[topic_id] = min(topics.get(topic_id, first_seq + row), first_seq + row)

    def _uncovered(self) -> Iterator[dict[int, int]]:
        """Yield `topics` of batches that are not on stable storage, in the order of the batches."""
        for _, topics in self._covered:
            yield topics
        yield self.topics

    def cover(self) -> None:
        """Begin another mapping: a sync of all that is written begins, or the log leaves its file.

        It may cover a commit that is not published yet: the engine then enters the commit's topics
        in the mapping that the commit names, so that is covered even while it is empty.
        """
        self._covered.append((self.written, self.topics))
        self.topics = {}

    @property
    def unsynced_bytes(self) -> int:
        return self.bytes_written - self.bytes_synced

    def on_written(self, *, synced: bool, size: int = 0, batches: int = 1) -> None:
        """Count the next batches as written; with `synced`, all up to them are durable."""
        self.written += batches
        self.bytes_written += size
        if synced:
            assert not self.sealed, "a sync of this file says nothing about the one before"
            self.synced = self.written
            self.bytes_synced = self.bytes_written
            self.topics = {}
            if self._covered:
                self._covered.clear()
        elif len(self.topics) > TOPICS_NOTED:
            self.cover()

    def on_synced(self, batch_no: int, bytes_written: int = 0) -> None:
        """Count batches as durable after a sync.

        batch_no: the last batch written to the synced file when the sync was submitted.
        bytes_written: the number then.
        """
        assert batch_no <= self.written, "nothing is synced before it is written"
        self.synced = max(self.synced, batch_no)
        self.bytes_synced = max(self.bytes_synced, bytes_written)
        while self.sealed and self.sealed[0].last_batch_no <= self.synced:
            self.sealed.popleft()
        while self._covered and self._covered[0][0] <= self.synced:
            self._covered.popleft()

    def on_file_left(self, file_id: int, fd: int) -> None:
        """Note that the log continues in another file."""
        if self.unsynced:
            self.sealed.append(SealedFile(file_id, fd, self.written, self.bytes_written))
            self.cover()
