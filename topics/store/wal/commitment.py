"""The commit that a shard is making: sealed, placed, judged and answered here, whoever has it written.

Two drivers of `shard.py` call the same two halves. `prepare` says which bytes go where; the driver has them written,
through the ring or in place; `finish` says what their results mean.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.clock import Clock
from topics.common.tuples import make_tuple
from topics.errors import StorageError
from topics.store.format.log_format import BATCH_HEADER_BYTES, BLOCK_BYTES
from topics.store.wal.commit import Batch, Commit, Primitive, Verdict, judge, rest_begins
from topics.store.wal.log_end import LogEnd
from topics.store.wal.wal_files import WalFile
from topics.store.wal.write_latch import WriteLatch

_REST_ATTEMPTS_MAX = 64

AT_ONCE = Commit(None)
"""The commit of what needs none."""

Target = tuple[int, memoryview, int]
"""A descriptor, the blocks to write to it, and their offset in the file."""


def failed(error: StorageError) -> Commit:
    """The end of a batch of which nothing is published."""
    return Commit(error)


class Commitment:
    """One shard's; at most one batch is on its way at a time. on_failed(why): what the disk holds is not known."""

    __slots__ = (
        "_attempts",
        "_base",
        "_blocks",
        "_clock",
        "_end",
        "_file",
        "_latch",
        "_offset",
        "_on_failed",
        "batch",
        "is_measured",
        "primitive",
        "submitted_ns",
    )

    def __init__(self, clock: Clock, end: LogEnd, latch: WriteLatch, on_failed: Callable[[str], None]) -> None:
        self._clock = clock
        self._end = end
        self._latch = latch
        self._on_failed = on_failed
        self.batch: Batch | None = None
        """What is on its way; None: nothing is."""
        self.primitive = Primitive.BARE
        """Of the last commit, too, until the next one is prepared."""
        self.is_measured = False
        """The primitive was a choice of `PrimitiveTuner`, which wants to know how long it took."""
        self.submitted_ns = 0
        self._file: WalFile
        self._blocks: memoryview
        self._offset = 0
        self._base = 0
        self._attempts = 0

    def prepare(self, batch: Batch, primitive: Primitive, *, is_measured: bool = False) -> Target:
        """Seal the batch and give it its place behind all that is written; return what the driver writes."""
        file, self._blocks, self._offset = self._end.place(batch)
        self._file = file
        self._base = file.position + BATCH_HEADER_BYTES
        self._attempts = 0
        self.batch = batch
        self.primitive = primitive
        self.is_measured = is_measured
        self.submitted_ns = self._clock.monotonic_ns()
        stored = file.stored
        return stored.direct_fd if primitive.is_direct else stored.fd, self._blocks, self._offset

    def finish(self, write_res: int, sync_res: int = 0) -> Commit | Verdict:
        """Say how the batch ended: its Commit, or why there is none; REST: `rest` goes out before anything else."""
        primitive, batch = self.primitive, self.batch
        assert batch is not None, "a completion came for a commit that was not submitted"
        verdict = judge(primitive, len(self._blocks), write_res, sync_res)
        if verdict is not Verdict.DONE or self._latch.read_only:  # a sync in the background may have failed meanwhile
            return self._on_unfinished(verdict, write_res, sync_res)
        self.batch = None
        elapsed_ns = self._end.on_written(batch, self.submitted_ns, synced=primitive.syncs)
        sync_ns = elapsed_ns if primitive.syncs else 0
        return make_tuple(Commit, (None, self._file.stored.file_id, self._base, elapsed_ns, sync_ns))

    def rest(self) -> Target:
        """The rest of a short write, as a commit of its own."""
        return self._file.stored.fd, self._blocks, self._offset

    def take_back(self) -> None:
        """Forget a batch that was not written whole: the next one goes to its place."""
        self.batch = None
        self._end.take_back()

    def _on_unfinished(self, verdict: Verdict, write_res: int, sync_res: int) -> Verdict:
        if verdict is Verdict.REST:
            self._attempts = 0 if write_res >= BLOCK_BYTES else self._attempts + 1
            if self._attempts < _REST_ATTEMPTS_MAX:
                begin = rest_begins(write_res)
                self._blocks = self._blocks[begin:]
                self._offset += begin
                self.is_measured = False
                if not self.primitive.syncs:
                    self.primitive = Primitive.BARE
                else:
                    self.primitive = Primitive.LINK  # RWF_DSYNC would leave the part written before unsynced
                return verdict
            verdict = Verdict.FAILED
        if verdict is Verdict.FAILED:
            path = self._file.stored.path
            self._on_failed(f"a commit to {path} failed (write {write_res}, sync {sync_res})")
        self.batch = None
        return Verdict.FAILED if self._latch.read_only else verdict
