"""One request committed in the call that stages it: for who has the log and its thread to himself."""

from __future__ import annotations

from collections.abc import Callable

from topics.common.tuples import make_tuple
from topics.loop.loop import Loop
from topics.store.format.log_format import BATCH_HEADER_BYTES
from topics.store.format.rows import Framed, Rows
from topics.store.wal.background_sync import BackgroundSync
from topics.store.wal.commit import DSYNC_BYTES_MAX, Commit, Durability, Primitive, Verdict, judge
from topics.store.wal.log_end import LogEnd
from topics.store.wal.staging import Staging
from topics.store.wal.write_latch import WriteLatch


class LoneCommit:
    """One shard's; its Wal knows whether a commit is in flight.

    syncs: one O_DIRECT write with RWF_DSYNC is a way to commit here. on_failed(why): nobody knows what the disk holds.
    """

    def __init__(
        self,
        loop: Loop,
        staging: Staging,
        end: LogEnd,
        sync: BackgroundSync,
        durable: Durability,
        *,
        syncs: bool,
        admission: WriteLatch,
        on_failed: Callable[[str], None],
    ) -> None:
        self._clock = loop.clock
        self._files = loop.files
        self._staging = staging
        self._end = end
        self._sync = sync
        self._durable = durable
        self._syncs = syncs
        self._admission = admission
        self._on_failed = on_failed

    def write(
        self, topic_id: int, first_seq: int, ts_ms: int, rows: Rows, node: bytes | None, *, fsync: bool
    ) -> tuple[Framed, Commit] | None:
        """Stages and commits a request; no commit is in flight. fsync: it is on stable storage then.

        None, and nothing was done, unless one write in place is all it takes; one that goes wrong was not done either:
        who then takes the usual way meets the same again, or finds the log latched.
        """
        end, staging = self._end, self._staging
        file = end.file
        if (
            file is None
            or end.leaves_file
            or end.header
            or not staging.is_empty
            or self._admission.closed
            or not (self._may_sync() if fsync else self._sync.is_planned)
            or not end.has_room(rows.size)
            or (fsync and rows.size > DSYNC_BYTES_MAX)
        ):
            return None
        batch = staging.filling
        framed = staging.stage_records(topic_id, first_seq, ts_ms, rows, fsync=fsync, node=node)
        if not end.has_room(batch.used) or (fsync and batch.used > DSYNC_BYTES_MAX):
            batch.clear()
            return None
        position, stored = file.position, file.stored
        checksum = end.seal(batch, file)
        blocks, offset = end.place(batch, file)
        submitted_ns = self._clock.monotonic_ns()
        res = self._files.write_now(stored.direct_fd if fsync else stored.fd, blocks, offset, dsync=fsync)
        if res != len(blocks):
            batch.clear()
            end.take_back(file)
            if judge(Primitive.DSYNC if fsync else Primitive.BARE, len(blocks), res, 0) is Verdict.FAILED:
                self._on_failed(f"a commit to {stored.path} failed (write {res})")
            return None
        elapsed_ns = end.on_written(batch, file, checksum, submitted_ns, synced=fsync)
        batch.clear()
        sync_ns = elapsed_ns if fsync else 0
        return framed, make_tuple(Commit, (None, stored.file_id, position + BATCH_HEADER_BYTES, elapsed_ns, sync_ns))

    def _may_sync(self) -> bool:
        """Its own bytes are all there is to sync, which is what RWF_DSYNC does, and no other sync runs."""
        return self._syncs and not self._durable.unsynced and not self._sync.running
