"""Batches that are read while the batches before them are written: one thread, bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from topics.bridge.bridge_messages import TopicBatch

_FILL_S = 0.1
"""How long a batch that is not full waits for the next page that is known to be there."""
_WAIT_MS = 500
"""How long one look of the thread waits: so late does it notice that it is to end."""


class BatchSource(Protocol):
    """The source that the thread asks, see `TopicSource`."""

    ended: bool

    def next(self, wait_ms: int) -> TopicBatch | None: ...


class Prefetch:
    """A thread that reads batches until so many bytes wait to be taken."""

    def __init__(self, source: BatchSource, bytes_max: int) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[TopicBatch] = deque()
        self._bytes = 0
        self._error: Exception | None = None
        self._ended = False
        self._is_behind = False
        """Whether the source is known to have more than was read."""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="bridge-reads", daemon=True)
        self._thread.start()

    def take(self, wait_s: float, bytes_max: int, messages_max: int) -> list[TopicBatch]:
        """Return the batches that wait, in their order; at least one, if there is one in time.

        While the source has more, it waits until so many messages or bytes are there: the other
        side takes as long to store few as many.
        Raises: what the source has raised, once the batches before that are taken.
        """
        taken: list[TopicBatch] = []
        with self._changed:
            if not self._batches and self._error is None and not self._ended:
                self._changed.wait(wait_s)
            while self._move(taken, bytes_max, messages_max) and taken and self._has_next:
                if not self._changed.wait(_FILL_S):
                    break
            if not taken and self._error is not None:
                raise self._error
        return taken

    def _move(self, taken: list[TopicBatch], bytes_max: int, messages_max: int) -> bool:
        """Move batches that wait to those that are taken. Return whether there is room for more."""
        size, count = sum(batch.size for batch in taken), sum(len(batch.messages) for batch in taken)
        while self._batches:
            batch = self._batches[0]
            size, count = size + batch.size, count + len(batch.messages)
            if taken and (size > bytes_max or count > messages_max):
                return False
            taken.append(self._batches.popleft())
            self._bytes -= batch.size
            self._changed.notify_all()
        return size < bytes_max and count < messages_max

    @property
    def _has_next(self) -> bool:
        """Whether another batch comes without a wait for records."""
        return self._is_behind and self._error is None and not self._ended and not self._is_closed

    @property
    def ended(self) -> bool:
        """Whether the source has ended, and all of it was taken."""
        with self._changed:
            return self._ended and not self._batches and self._error is None

    def close(self) -> None:
        """End the thread: it ends after the request in progress, and is not waited for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._read():
                pass
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _read(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._bytes < self._bytes_max)
            if self._is_closed:
                return False
        batch = self._source.next(_WAIT_MS)
        with self._changed:
            if batch is not None:
                self._batches.append(batch)
                self._bytes += batch.size
            self._is_behind = batch is not None and batch.position.seq < batch.head_seq
            self._ended = batch is None and self._source.ended
            self._changed.notify_all()
            return not self._ended
