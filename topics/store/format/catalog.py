"""The Catalog Protocol: the calls that the store makes into the engine in recovery and checkpoints.

The store knows frames, files and positions; the engine knows what a topic is.
`engine/recovery/engine_catalog.py` implements this Protocol; tests/store/fake_catalog.py is the
small implementation for tests of the store.

Every method is called on the loop's thread, one call at a time, and none of them waits. Those that
return an iterator work in bounded steps, with a pass of the loop between two of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.store.format.file_table import FileTable
from topics.store.format.log_format import ProducerPart, StagedPiece

SEQ_MAX = (1 << 64) - 1
_BYTES_A_ROW = 256
"""Bytes that take as long to copy as a row takes besides them."""
NO_TAG = 0xFFFF_FFFF
"""The value in `RowColumns.tags` of a record without a tag."""


class RowColumns(NamedTuple):
    """Live records of one topic in one file, oldest first. All columns have shape (n,), n >= 0.

    The arrays belong to the receiver and are not changed afterwards.
    """

    file_id: int
    """Key into the FileTable."""
    seqs: NDArray[np.uint64]
    """Strictly increasing; gaps are holes (deleted, evicted or burned seqs)."""
    offsets: NDArray[np.uint32]
    """Bytes from the start of the file to the frame."""
    lengths: NDArray[np.uint32]
    """Bytes of the whole frame."""
    sizes: NDArray[np.uint32]
    """Accounted bytes."""
    ts: NDArray[np.uint64]
    """Milliseconds since the epoch."""
    flags: NDArray[np.uint8]
    """The frame's own flags (log_format.FLAG_*)."""
    tags: NDArray[np.uint32]
    """Index into `tag_table`, or NO_TAG."""
    tag_table: Sequence[bytes]
    """The distinct tags of these rows; empty if no row has a tag."""
    times: NDArray[np.uint64] | None = None
    """Shape (n, 2): the time (ms) from which on a job is claimable, 0 without a delay, and the last
    one at which a record is not expired, 0 without a ttl; None if no row has either.
    """


class PackRows(NamedTuple):
    """Live records in one pack, in runs of one topic each.

    Run i is of `topic_ids[i]`, which occurs once, and has the rows [ends[i - 1], ends[i]), at least
    one.
    """

    topic_ids: NDArray[np.uint64]
    """Shape (runs,)."""
    ends: NDArray[np.int64]
    """Shape (runs,)."""
    rows: RowColumns
    """The rows of all runs, one run after the other; seqs increase within a run."""


class FewRows(NamedTuple):
    """All live rows in the log of topics that have few of them, one topic after the other."""

    topic_ids: NDArray[np.uint64]
    """Shape (topics,), as have `counts` and `descriptions`."""
    counts: NDArray[np.int64]
    """The number of each topic's rows, at least one."""
    descriptions: list[bytes]
    """The description of each topic: see `CheckpointCatalog.describe`."""
    seqs: NDArray[np.uint64]
    """Shape (rows,), as have the next three: see `RowColumns`. No row shares its frame."""
    file_ids: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def parts(self, bytes_max: int) -> Iterator[FewRows]:
        """Yield parts of so many bytes at most, or of one topic. A row counts some bytes more."""
        row_ends = np.cumsum(self.counts)
        sizes = np.cumsum(self.lengths + np.int64(_BYTES_A_ROW))[row_ends - 1].tolist()
        ends = row_ends.tolist()
        first = row = size = 0
        while first < len(ends):
            last = max(bisect_right(sizes, size + bytes_max), first + 1)
            topics, rows = slice(first, last), slice(row, ends[last - 1])
            columns = self.seqs[rows], self.file_ids[rows], self.offsets[rows], self.lengths[rows]
            yield FewRows(self.topic_ids[topics], self.counts[topics], self.descriptions[topics], *columns)
            first, row, size = last, ends[last - 1], sizes[last - 1]


class SeqRange(NamedTuple):
    """A summary of rows in some files; first_seq is 0 if there are no rows."""

    first_seq: int
    last_seq: int
    rows: int
    bytes: int


class Deletions(NamedTuple):
    """Records of one topic in one segment or pack that were deleted individually.

    Deletes by match and acks do so. Columns have shape (n,).
    """

    topic_id: int
    file_id: int
    seqs: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


class Catalog(Protocol):
    """Recovery, from the engine's side.

    Recovery calls, in this order:

        restore(snapshot or None)
        adopt(...)                     only in a directory rebuilt without a snapshot
                                       (`topics fsck --rebuild`)
        add_pack(...), add_rows(...)   rows of packs, then of segments, each topic's in seq order
        log_begins(copied)
        per chunk of log: apply_control for ordered controls, see_rows and add_rows by topic,
            add_idempotency, add_part and add_piece, apply_control for the others
        recovered(power_lost)

    Ordered controls (create, config, delete of a topic) come in the order of their numbers, over
    all shards. The other controls of a topic come in their own order, but may come after rows that
    were written later. Each of them therefore carries its bound (a delete the highest seq it may
    touch, a floor its value), and no retention is applied before `recovered`.

    The log is replayed from a point before the snapshot was taken, so every call must be
    idempotent. A call that names a topic that the catalog does not have (it was deleted) does
    nothing.
    """

    @property
    def files(self) -> FileTable:
        """The files that rows refer to: the store fills it, the catalog counts `live_rows`."""

    @property
    def checkpoints(self) -> CheckpointCatalog:
        """The side of the engine that checkpoints ask."""

    def restore(self, snapshot: bytes | memoryview | None, *, log_cut: bool = False) -> Generator[None, None, None]:
        """Restore the state that `snapshot()` returned, in bounded steps.

        snapshot: None if there is none.
        log_cut: a rebuild gave up part of the log after the snapshot, so it is unknown which
            numbers were given out since.
        """

    def adopt(self, topic_id: int, description: bytes, described_ms: int) -> None:
        """Add a topic that is known only by its segments.

        description: what `describe` returned when they were written, at `described_ms` (0: it is
            unknown). The latest call for a topic wins for name and config, and for named readers
            unless one before it has a higher head; head and floors are maxima.
        """

    def log_begins(self, copied_upto: Mapping[int, int]) -> None:
        """Begin with the log; all rows of segments and packs were added.

        copied_upto: topic id to the highest seq that was copied out of the log: rows up to it are
            in segments, or are dead. In a rebuilt directory a topic's head may still be below it,
            but no seq up to it is free.
        """

    def see_rows(self, topic_id: int, rows: RowColumns) -> None:
        """Take note of records as the log has them; other frames may refer to them.

        Topics may be deleted, and records may have been copied already. Live records come again
        with `add_rows`.
        """

    def add_rows(self, topic_id: int, rows: RowColumns) -> None:
        """Add live records, all above those that the topic has so far.

        A first seq above head + 1 is a silent hole. Rows at or below the topic's floors are not
        live (their floor was logged, their bytes are still in the file).
        """

    def add_pack(self, pack: PackRows) -> None:
        """Do what `add_rows` does for each run.

        The catalog may keep the columns and read the rows later.
        """

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        """Apply a control frame of the log.

        kind: a `log_format.FrameType` other than RECORD and CHECKPOINT.
        seq: for ordered kinds, the order number.

        A control that is already part of the snapshot may come again and then does nothing: the
        create of an id that exists, or of a name held by a topic with a higher number; a config
        whose number is not above the topic's; the delete of an id that is gone.
        """

    def add_idempotency(self, topic_id: int, key: bytes, first_seq: int, count: int, started_ms: int) -> None:
        """Note that a write of the log carried this key.

        Its records are first_seq .. first_seq + count - 1.
        """

    def add_part(self, topic_id: int, first_seq: int, part: ProducerPart) -> None:
        """Note that a write of the log, from `first_seq` on, was this part of a producer."""

    def add_piece(self, topic_id: int, first_seq: int, piece: StagedPiece) -> None:
        """Note that a write of the log to the staging area was this piece of a part.

        Its first record is `first_seq`.
        """

    def moved(self, topic_id: int, seqs: NDArray[np.uint64], file_id: int, offsets: NDArray[np.uint32]) -> None:
        """Point records to their copies at the end of the log: see `CheckpointCatalog.moved`."""

    def recovered(self, *, power_lost: bool) -> Generator[None, None, bool]:
        """End recovery, in bounded steps; everything was handed over.

        power_lost: the machine went down, so seqs between a topic's head and its reservation may
            have been given out. They become a crash gap, and the head moves past them.

        Returns True if there are crash gaps. The store then takes a snapshot, which makes them
        durable, before any request is served.
        """


class CheckpointCatalog(Protocol):
    """Checkpoints, from the engine's side.

    A checkpoint copies rows, syncs the copies, flags deleted records, writes the snapshot and its
    mark, and only then recycles log files.
    """

    def topics_in_log(self) -> Iterator[int]:
        """Yield the ids, in order, of all topics with live rows in log files.

        Ids of topics that had some may be among them; `last_in_files` finds no row of those. No
        topic is looked at, and few ids at a time, since very many may be in the log. Topics whose
        first row comes meanwhile may be left out.
        """

    def rows_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> list[RowColumns]:
        """Return the topic's live, published rows in these files with these seqs, in seq order.

        file_ids: sorted.

        Each RowColumns has neighbouring rows of one file. Copies by position may be in files of
        other shards, between other rows. The result ends near `rows_max` rows, at a seq that the
        catalog chooses; all rows left out are above those returned. It is empty if the topic is
        gone. The cost is that of the rows in these files, however many the topic has.
        """

    def few_rows(self, topic_ids: Sequence[int], file_ids: NDArray[np.uint32], bytes_max: int) -> FewRows:
        """Return all rows in the log of those of these topics that have few.

        Only topics whose frames in the log are in these files, less than `bytes_max` bytes
        together. The others are asked for one by one.
        """

    def moved_few(self, few: FewRows, file_id: int, offsets: NDArray[np.uint32]) -> list[int]:
        """Do what `moved` does for each topic of `few` that is as it was.

        offsets: of the copies, by row.
        Returns: the positions of the topics that have changed since, for `moved`.
        """

    def last_in_files(self, topic_id: int, file_ids: NDArray[np.uint32]) -> int:
        """Return the highest seq that `rows_in_files` would return; 0 if none.

        The cost is that of the rows above it.
        """

    def bytes_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> SeqRange:
        """Return a summary of what `rows_in_files` would return: seqs, rows and frame bytes."""

    def last_shared(self, topic_id: int) -> int:
        """Return the highest seq of a live row that is a copy (FLAG_COPY); 0 if there is none."""

    def moved(
        self,
        topic_id: int,
        seqs: NDArray[np.uint64],
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint64]:
        """Point records to their copies: the same bytes in `file_id` at `offsets`.

        seqs: increasing.
        lengths: given if frames were built anew because some rows were copies (FLAG_COPY), which
            they no longer are.

        The copies are synced before the snapshot is written that allows the log to drop the
        originals. Returns the seqs that were deleted individually since `rows_in_files`, so that
        the store flags them in the copy; those that a floor covers may be left out. For a topic
        that is gone: all or none.
        """

    def exists(self, topic_id: int) -> bool:
        """Return whether the topic exists; its segments and pack runs may be dropped if not."""

    def is_untouched(self, topic_id: int) -> bool:
        """Return whether all runs of a topic are as `add_pack` added them.

        None of them may be dropped then.
        """

    def lowest_live_seq(self, topic_id: int) -> int:
        """Return E: the smallest live seq, or head + 1 if there is none.

        Files wholly below it may be dropped.
        """

    def describe(self, topic_id: int) -> Iterator[bytes]:
        """Yield the pieces of a JSON object for segment headers and footers, in bounded steps.

        `adopt` takes it. It has `name`, `id`, `config`, `head` and the floors. Only for a topic
        that exists when the first piece is taken.
        """

    def prepare_snapshot(self, topics_a_step: int) -> Iterator[None]:
        """Prepare the next `snapshot` in bounded steps; the caller exhausts the iterator.

        Changes made meanwhile are in the log after the cut, or in the snapshot, too.
        """

    def snapshot(self) -> Sequence[bytes | memoryview]:
        """Return a JSON value, in pieces, of the state not in rows nor in the log after the cut.

        It has names, ids, configs, heads, floors, gaps, reservations, idempotency keys inside their
        window, producers, the next topic id and the order number. The state is committed, and each
        topic's is as it was at an instant since `prepare_snapshot` began; its leases and holes may
        be older, so that a replay of the log after the cut completes them.
        """

    def prepare_deletions(self) -> Iterator[None]:
        """Prepare the next `take_deletions` in bounded steps."""

    def take_deletions(self) -> list[Deletions]:
        """Return the records in segments and packs deleted individually since the last call.

        The store sets the deleted flag in their files. Records covered by a floor (evicted,
        expired, prefix-deleted) and records of deleted topics may be left out.
        """
