"""Syncs beside the commits: of unsynced writes, of files that the log has left, and on request.

A shard runs one sync at a time, never beside a commit's own. Two concurrent syncs of one file could
divide one error between them, and the wrong one would report success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.loop.timers import Timer
from topics.store.commits.synced_batches import SyncedBatches
from topics.store.wal.counters import LogCounters
from topics.store.wal.write_latch import WriteLatch

COMMIT_SYNCS = -1
"""The value in place of a descriptor while the commit in flight syncs everything."""

OnDurable = Callable[[StorageError | None], None]
"""Called once what it waits for is on stable storage, or with the error of the log."""


class BackgroundSync:
    """The background syncs of one shard.

    every_ns: interval of the syncs by time; None: there are none.
    max_unsynced: the bound of unsynced bytes; 0: there is none.
    current_fd: returns the file written to, or COMMIT_SYNCS.
    on_failed(why): a sync failed.
    on_ended: a sync ended, well or not.
    """

    def __init__(
        self,
        loop: Loop,
        batches: SyncedBatches,
        latch: WriteLatch,
        counters: LogCounters,
        *,
        every_ns: int | None,
        max_unsynced: int,
        current_fd: Callable[[], int],
        on_failed: Callable[[str], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._batches = batches
        self._latch = latch
        self._counters = counters
        self._every_ns = every_ns
        self._most_before_sync = max_unsynced // 2
        """Unsynced bytes above which a sync begins, before commits wait for one."""
        self._current_fd = current_fd
        self._on_failed = on_failed
        self._on_ended = on_ended
        self.running = False
        self.timer: Timer | None = None
        """The timer that will start a sync."""
        self.owed: deque[tuple[int, OnDurable]] = deque()
        """(batch number, callback once that batch is on stable storage): see `when_durable`."""
        self.due = False
        """Whether a sync is to begin at the end of the pass, after its commits."""

    @property
    def planned(self) -> bool:
        """Whether bytes written now get the sync by time that they are to get."""
        return self.timer is not None or self._every_ns is None

    def plan(self) -> None:
        """Plan a sync for bytes that were written without one."""
        if self.timer is None and self._every_ns is not None:
            self.timer = self._loop.call_later(self._every_ns, self._on_timer)

    def start(self, *, in_place: bool = False) -> None:
        """Sync the oldest unsynced bytes, unless a sync is running.

        in_place: the thread waits for it.
        """
        batches = self._batches
        if self.running or not batches.unsynced or self._latch.read_only:
            return
        if batches.sealed:
            sealed = batches.sealed[0]
            fd, upto = sealed.fd, sealed.last_batch_no
            size = sealed.bytes
        else:
            fd, upto = self._current_fd(), batches.written
            if fd == COMMIT_SYNCS:
                return
            batches.cover()
            size = batches.bytes_written
        self.running = True
        began_ns = self._loop.clock.monotonic_ns()
        if in_place:
            self._on_sync(upto, size, began_ns, self._loop.files.sync_now(fd))
        else:
            self._loop.files.fdatasync_nowait(fd, partial(self._on_sync, upto, size, began_ns))

    @property
    def room_before_sync(self) -> int:
        """Bytes that may be written until `start_before_bound` begins a sync; there is a bound."""
        return self._most_before_sync - self._batches.unsynced_bytes

    def start_before_bound(self) -> None:
        """Begin a sync if more than half of the bound is used. A caller without one skips this."""
        if self._batches.unsynced_bytes > self._most_before_sync:
            self.start()

    def when_durable(self, done: OnDurable, *, waited: bool = False) -> None:
        """Call `done` once all batches committed so far are on stable storage, or cannot be.

        A background sync begins, or another one follows the running one. No commit waits for that,
        unless the shard makes it in place. waited: a caller waits. The sync begins at the end of
        this pass, so that those who ask in the same pass share it.
        """
        batches = self._batches
        if not batches.unsynced:
            done(None)
        elif self._latch.read_only:
            done(self._latch.read_only_error())
        else:
            self.owed.append((batches.written, done))
            if waited:
                self._start_at_pass_end()
            else:
                self.start()

    def report(self) -> None:
        """Call the callbacks whose batches are on stable storage now.

        They may stage more; the pass-end hooks commit it, or the next pass does.
        """
        owed, synced = self.owed, self._batches.synced
        while owed and owed[0][0] <= synced:
            owed.popleft()[1](None)

    def on_latch(self) -> None:
        """Report that nothing more is known to reach stable storage."""
        owed = self.owed
        while owed:
            owed.popleft()[1](self._latch.read_only_error())

    def stop(self) -> None:
        """Schedule no more syncs; one in progress is completed."""
        if self.timer is not None:
            self.timer.cancel()

    def _start_at_pass_end(self) -> None:
        self.due = True
        self._loop.again()

    def _on_timer(self) -> None:
        self.timer = None
        self.start()

    def _on_sync(self, upto: int, size: int, submitted_ns: int, res: int) -> None:
        self.running = False
        self._on_ended()
        if res < 0:
            self._on_failed(f"a sync of the log failed (errno {-res})")
            return
        self._batches.on_synced(upto, size)
        self._counters.count_sync(self._loop.clock.monotonic_ns() - submitted_ns)
        if self.owed:
            self.report()
        if self._batches.sealed:
            self.start()
        elif self.owed:
            self._start_at_pass_end()
        elif self._batches.unsynced:
            self.plan()
