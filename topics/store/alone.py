"""One request committed in the call that stages it, unsynced: for who has the log and its thread to himself."""

from __future__ import annotations

from collections.abc import Callable

from topics.loop.loop import Loop
from topics.store.admission import Admission
from topics.store.background_sync import BackgroundSync
from topics.store.commit import Commit, Primitive, Verdict, judge
from topics.store.format import BATCH_HEADER_BYTES
from topics.store.log_end import LogEnd
from topics.store.rows import Framed, Rows
from topics.store.staging import Staging
from topics.tuples import make_tuple


class Alone:
    """One shard's; its Wal knows whether a commit is in flight. on_failed(why): nobody knows what the disk holds."""

    def __init__(
        self,
        loop: Loop,
        staging: Staging,
        end: LogEnd,
        sync: BackgroundSync,
        *,
        admission: Admission,
        on_failed: Callable[[str], None],
    ) -> None:
        self._clock = loop.clock
        self._files = loop.files
        self._staging = staging
        self._end = end
        self._sync = sync
        self._admission = admission
        self._on_failed = on_failed

    def write(
        self, topic_id: int, first_seq: int, ts_ms: int, rows: Rows, node: bytes | None
    ) -> tuple[Framed, Commit] | None:
        """Stages and commits a request that nobody asks to be synced; no commit is in flight.

        None, and nothing was done, unless one write in place is all it takes; one that goes wrong was not done either:
        who then takes the usual way meets the same again, or finds the log latched.
        """
        end, staging = self._end, self._staging
        file = end.file
        if (
            file is None
            or end.leaves_file
            or end.header
            or not self._sync.is_planned
            or not staging.is_empty
            or self._admission.closed
        ):
            return None
        batch = staging.filling
        framed = staging.stage_records(topic_id, first_seq, ts_ms, rows, fsync=False, node=node)
        if not end.has_room(batch.used):
            batch.clear()
            return None
        position, stored = file.position, file.stored
        checksum = end.seal(batch, file)
        blocks, offset = end.place(batch, file)
        submitted_ns = self._clock.monotonic_ns()
        res = self._files.write_now(stored.fd, blocks, offset)
        if res != len(blocks):
            batch.clear()
            end.take_back(file)
            if judge(Primitive.BARE, len(blocks), res, 0) is Verdict.FAILED:
                self._on_failed(f"a commit to {stored.path} failed (write {res})")
            return None
        elapsed_ns = end.on_written(batch, file, checksum, submitted_ns, synced=False)
        batch.clear()
        return framed, make_tuple(Commit, (None, stored.file_id, position + BATCH_HEADER_BYTES, elapsed_ns, 0))
