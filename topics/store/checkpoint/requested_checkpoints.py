"""Checkpoints that clients request. Source: wire contract 7.9.

Requests that come before the next checkpoint begins share it, however many they are: at most one
runs and one is next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from topics.errors import DiskFullError, StorageError
from topics.loop.loop import Loop
from topics.store.checkpoint.checkpointer import Checkpointer
from topics.store.disk.disk_space import lacks_space
from topics.store.wal.sharded_log import ShardedLog

_log = logging.getLogger(__name__)

Done = Callable[[StorageError | None], None]
"""The callback of a request, called once, with the reason if the checkpoint failed."""


class RequestedCheckpoints:
    """The requests for checkpoints of one store."""

    def __init__(self, loop: Loop, checkpointer: Checkpointer, log: ShardedLog) -> None:
        self._loop = loop
        self._checkpointer = checkpointer
        self._log = log
        self._next: dict[Done, None] = {}
        """Requests for the checkpoint that begins next."""
        self._present: dict[Done, None] = {}
        """Requests for the one that runs."""
        self._is_wanted = False
        """Whether another one is to begin, even if its requests were withdrawn."""
        self._serves = False
        self._begun = 0
        """Number of checkpoints begun in this process."""
        self._runs = False
        self.shown = 0
        """Number of the newest checkpoint whose records and deletes are in files; 0: none."""

    @property
    def snapshot_number(self) -> int:
        """Number of the newest snapshot."""
        return self._checkpointer.snapshot_number

    def number(self, wished: int) -> int:
        """Return the number of the checkpoint to wait for.

        It is the next one, unless one that runs is `wished` or later.

        wished: what an earlier call returned, or 0. From another process it may be any number:
            either it is unknown here, or a checkpoint of that number has begun since.
        """
        return self._begun if self._runs and 0 < wished <= self._begun else self._begun + 1

    def ask(self, number: int, done: Done) -> None:
        """Call `done` when everything acknowledged before the checkpoint began is in files.

        number: see `number`.

        A failure is passed to `done`: a disk without space for copies of all records, a read-only
        log.
        """
        (self._next if number > self._begun else self._present)[done] = None
        self.begin(number)

    def leave(self, done: Done) -> None:
        """Forget `done`; its checkpoint continues."""
        self._next.pop(done, None)
        self._present.pop(done, None)

    def begin(self, number: int) -> None:
        """Have the checkpoint of this number begin, whether a request waits for it or not."""
        if number <= self._begun:
            return
        self._is_wanted = True
        if not self._serves:
            self._serves = True
            self._loop.spawn(self._serve(), "requested checkpoints")

    async def _serve(self) -> None:
        try:
            while self._is_wanted:
                await self._checkpointer.until_idle()
                self._is_wanted = False
                self._present, self._next = self._next, {}
                self._begun += 1
                self._runs = True
                await self._run()
                self._runs = False
        finally:
            self._serves = self._runs = False

    async def _run(self) -> None:
        log = self._log
        try:
            if log.read_only:
                raise log.write_latch.read_only_error()
            # After a full disk was found, the next checkpoint manages with little space; the one
            # after it is whole.
            for _ in range(2):
                await self._checkpointer.run(on_shown=self._on_shown)
                if not self._present or log.disk_full:
                    break
            self._answer(DiskFullError("no space left for copies of all records: some are only in the log"))
        except (OSError, StorageError) as error:
            _log.error("a checkpoint that was asked for failed: %s", error)
            self._answer(self._reason(error))
        except Exception as error:  # by a bug of ours: the task ends, and no request waits for it
            self._answer(StorageError(f"a checkpoint failed by a bug of ours ({type(error).__name__}: {error})"))
            raise

    def _on_shown(self, is_whole: bool) -> None:
        if is_whole:
            self.shown = self._begun
            self._answer(None)

    def _answer(self, error: StorageError | None) -> None:
        present, self._present = self._present, {}
        for done in present:
            done(error)

    def _reason(self, error: OSError | StorageError) -> StorageError:
        """Return the error for the clients (R-DUR-16)."""
        if lacks_space(error):
            return DiskFullError(f"no space left for a checkpoint: {error}")
        if self._log.read_only:
            return self._log.write_latch.read_only_error()
        return error if isinstance(error, StorageError) else StorageError(f"a checkpoint failed: {error}")
