"""What the store asks of the engine when it recovers and when it checkpoints: the Catalog Protocol.

The store knows frames, files and where they lie; the engine knows what a topic is. `engine/recovery/engine_catalog.py`
implements this Protocol; tests/store/fake_catalog.py is the small one that store tests use.

Everything is called on the loop's thread, one call at a time, and none of it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topics.store.format.file_table import FileTable
from topics.store.format.log_format import ProducerPart, StagedPiece

SEQ_MAX = (1 << 64) - 1
NO_TAG = 0xFFFF_FFFF
"""In `RowColumns.tags`: the record has no tag."""


class RowColumns(NamedTuple):
    """Live records of one topic lying in one file, oldest first. All columns have shape (n,), n >= 0.

    The arrays belong to the receiver: nobody changes them afterwards.
    """

    file_id: int
    """Into the FileTable."""
    seqs: NDArray[np.uint64]
    """Strictly increasing; gaps are holes (deleted, evicted or burned seqs)."""
    offsets: NDArray[np.uint32]
    """Bytes from the start of the file to the frame."""
    lengths: NDArray[np.uint32]
    """Whole frame, bytes."""
    sizes: NDArray[np.uint32]
    """Accounted bytes."""
    ts: NDArray[np.uint64]
    """Milliseconds."""
    flags: NDArray[np.uint8]
    """The frame's own flags (format.FLAG_*)."""
    tags: NDArray[np.uint32]
    """Index into `tag_table`, or NO_TAG."""
    tag_table: Sequence[bytes]
    """The different tags of these rows, each once; empty when no row has one."""


class PackRows(NamedTuple):
    """Live records in one pack: `topic_ids[i]` has rows [ends[i - 1], ends[i]), one at least, and comes once."""

    topic_ids: NDArray[np.uint64]
    """Shape (runs,)."""
    ends: NDArray[np.int64]
    """Shape (runs,)."""
    rows: RowColumns
    """Of all runs, one behind the other: seqs increase in each."""


class SeqRange(NamedTuple):
    """Rows in some files: first_seq 0 when there are none."""

    first_seq: int
    last_seq: int
    rows: int
    bytes: int


class Deletions(NamedTuple):
    """Records of one topic in one segment or pack that were deleted one by one (a match, an ack). Shape (n,)."""

    topic_id: int
    file_id: int
    seqs: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


class Catalog(Protocol):
    """Recovery and checkpoint, from the engine's side.

    Recovery calls, in this order:

        use_files(...)
        restore(snapshot or None)
        adopt(...)                          only in a directory rebuilt without a snapshot (`topics fsck --rebuild`)
        add_pack(...), add_rows(...)        rows of packs, then of segments, each topic's in seq order
        log_begins(copied)
        per chunk of log: apply_control for ordered controls, see_rows and add_rows by topic, add_idempotency,
            add_part and add_piece, apply_control for the others
        recovered(power_lost)

    Ordered controls (create, config, delete of a topic) come in the order of their numbers over all shards. The other
    controls of a topic come in their own order, but may come after rows that were written later: so each of them
    carries its bound (a delete the highest seq it may touch, a floor its value), and no retention is applied before
    `recovered`. The log is replayed from a point before the snapshot was taken: every call must be idempotent. Calls
    that name a topic the catalog does not have (it was deleted) do nothing.
    """

    # --- recovery --------------------------------------------------------------------------------------------------
    def use_files(self, files: FileTable) -> None:
        """The files that rows will lie in, whose `live_rows` the catalog counts. Called first, on an empty catalog."""

    def restore(self, snapshot: bytes | None, *, log_cut: bool = False) -> None:
        """Takes back what `snapshot()` gave; None: there is none. log_cut: a rebuild gave up part of the log behind it,
        so nobody knows all that was given out since."""

    def adopt(self, topic_id: int, description: bytes) -> None:
        """A topic known only by its segments: `describe` of the time they were written. The latest call of a topic
        wins for name and config; head and floors are maxima."""

    def log_begins(self, copied_upto: Mapping[int, int]) -> None:
        """All rows of segments and packs were added; what follows is the log. Topic id to the highest seq that was
        copied out of it: rows up to there are in segments, or are dead. In a rebuilt directory a topic's head may be
        below it so far: no seq up to there is free."""

    def see_rows(self, topic_id: int, rows: RowColumns) -> None:
        """Records of the log as they are there, also of topics that are gone and such as were copied already: other
        frames may refer to them. Those that live come again with `add_rows`."""

    def add_rows(self, topic_id: int, rows: RowColumns) -> None:
        """More live records, all above what the topic has so far. A first seq above head + 1 is a silent hole.

        Rows at or below the topic's floors are not live (their floor was logged, their bytes are still there).
        """

    def add_pack(self, pack: PackRows) -> None:
        """The same as `add_rows` for each run. The catalog may keep the columns and look at the rows later."""

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        """A control frame (`log_format.FrameType`, not RECORD nor CHECKPOINT) of the log.

        For ordered kinds `seq` is the order number. One that is already part of the snapshot comes again: a create
        of an id that is there, or of a name that a topic with a higher number holds, a config with a number not above
        the topic's, a delete of an id that is gone: each does nothing.
        """

    def add_idempotency(self, topic_id: int, key: bytes, first_seq: int, count: int, started_ms: int) -> None:
        """A write of the log carried this key: its records are seqs first_seq .. first_seq + count - 1."""

    def add_part(self, topic_id: int, first_seq: int, part: ProducerPart) -> None:
        """A write of the log was this part of a producer; its first record is `first_seq`."""

    def add_piece(self, topic_id: int, first_seq: int, piece: StagedPiece) -> None:
        """A write of the log, to the staging area, was this piece of a part; its first record is `first_seq`."""

    def recovered(self, *, power_lost: bool) -> bool:
        """Everything was handed over. power_lost: the machine went down, so seqs between a topic's head and its
        reservation may have been given out: they become a crash gap and the head moves past them.

        True: there are such gaps. The store makes them durable (it takes a snapshot) before anything is served."""

    # --- checkpoint: copy rows -> sync -> flip deletions -> snapshot -> mark -> recycle log files -------------------
    def topics_in_log(self) -> list[int]:
        """Ids of topics that have live rows in log files, in order, and of some that had: `last_in_files` finds those.

        No topic is looked at, since very many may be in the log."""

    def rows_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> list[RowColumns]:
        """The topic's live, published rows with these seqs lying in these files, in seq order.

        One RowColumns for neighbours in one file. Copies by position lie in files of other shards, too, between others.

        Stops once it has about `rows_max`, at a seq of its choice: what is left lies above all that it gave. Empty when
        the topic is gone. file_ids: sorted. The cost is that of the rows that lie there, however many the topic has.
        """

    def last_in_files(self, topic_id: int, file_ids: NDArray[np.uint32]) -> int:
        """The highest seq that `rows_in_files` would give; 0: none. Costs as much as what lies above it."""

    def bytes_in_files(
        self,
        topic_id: int,
        file_ids: NDArray[np.uint32],
        *,
        first_seq: int = 0,
        last_seq: int = SEQ_MAX,
        rows_max: int = SEQ_MAX,
    ) -> SeqRange:
        """What `rows_in_files` would give in all: its first and last seq, and how many rows and bytes of frames."""

    def last_shared(self, topic_id: int) -> int:
        """The highest seq of a live row that is a copy by position (FLAG_COPY); 0 when there is none."""

    def moved(
        self,
        topic_id: int,
        seqs: NDArray[np.uint64],
        file_id: int,
        offsets: NDArray[np.uint32],
        lengths: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint64]:
        """These records now also lie in `file_id` at `offsets`, same bytes: read them there from now on.

        lengths: the frames were made anew, some of the rows being copies (FLAG_COPY), which they are no longer.

        They are synced before the snapshot is written that allows the log to forget them.

        seqs increasing. Returns those that were deleted one by one since `rows_in_files`, so that the store flags them
        in the copy (what a floor covers need not be among them); all or none for a topic that is gone.
        """

    def exists(self, topic_id: int) -> bool:
        """False: its segments and pack runs may be dropped."""

    def untouched(self) -> Set[int]:
        """Ids of topics all of whose runs are as `add_pack` gave them: none of them may be dropped."""

    def lowest_live_seq(self, topic_id: int) -> int:
        """E: the smallest live seq, head + 1 when there is none. What lies wholly below may be dropped."""

    def describe(self, topic_id: int) -> bytes:
        """A JSON object for segment headers and footers: `name`, `id`, `config`, `head`, and the floors; what `adopt`
        takes back. Only for a topic that exists."""

    def prepare_snapshot(self, topics_a_step: int) -> Iterator[None]:
        """Does what the next `snapshot` may find done, a bounded share a step, to be walked to its end. What changes
        meanwhile is in the log behind the cut, or in the snapshot, too."""

    def snapshot(self) -> Sequence[bytes | memoryview]:
        """A JSON value, in pieces: everything about topics that neither rows in files nor the log from the cut on say:
        names, ids, configs, heads, floors, gaps, reservations, idempotency keys inside their window, producers, the
        next topic id and order number. Only what is committed; of each topic as it was at one instant, from the
        beginning of `prepare_snapshot` on."""

    def prepare_deletions(self) -> Iterator[None]:
        """Does what the next `take_deletions` may find done, a bounded share a step."""

    def take_deletions(self) -> list[Deletions]:
        """Records in segments and packs deleted one by one since the last call, for the flag in their files.

        What a floor covers (evicted, expired, prefix-deleted) need not come; those of deleted topics neither.
        """
