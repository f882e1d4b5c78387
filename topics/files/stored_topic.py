"""A topic as of a snapshot: its losses, and the pieces that hold its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import numpy as np

from topics.common.default_incarnation import incarnation_of_id
from topics.files.errors import DirectoryBusyError, TopicGoneError
from topics.files.file_calls import FileReads
from topics.files.live_rows import LiveRows
from topics.files.newest_snapshot import SnapshotContents, TopicEntry, load_newest
from topics.files.piece import Kind, Location, Loss, Piece
from topics.files.piece_files import PieceSource, VanishedError, reading
from topics.store.format.floors import Floors, Gap, Gaps
from topics.store.layouts.directory_names import HOT, pack_path, segment_path

_TRIES = 16
T = TypeVar("T")


class TopicFiles:
    """A topic as of one snapshot. Ranges of seqs include both ends.

    Some answers need reads of files: earliest and first_seq_at, and for a topic with a ttl or gaps
    also floors, gaps, losses and pieces. They are found when first asked for. If a file is gone by
    then, the answer comes from the newest snapshot, up to the same head.
    """

    def __init__(
        self, name: str, entry: TopicEntry, snapshot: SnapshotContents, location: Location, calls: FileReads
    ) -> None:
        image = entry.image
        self.name = name
        self._location = location
        self._calls = calls
        self._snapshot = snapshot.number
        self._created_ms = snapshot.created_ms
        self.id: int = image["id"]
        self.incarnation = _incarnation_of(image)
        """16 hex digits. With another incarnation, seqs may name other records."""
        self.config: dict[str, Any] = image["config"]
        """The 17 fields of the wire contract."""
        self.durability: str = self.config["durability"]
        """`ephemeral`, `memory`, `disk` or `fsync`. Ephemeral records are in no file."""
        self._floors = Floors()
        self._floors.raise_to(**image.get("floors", {}))
        self._floors.gaps = Gaps([Gap(*gap) for gap in image.get("gaps", [])])
        self.seen_head: int = image.get("head", 0)
        """The highest seq assigned when the snapshot was taken.

        Records above `head` were only in the log.
        """
        self._all_pieces = _pieces_of(self.name, self.id, self.incarnation, entry)
        self.head = self._answered()
        """The highest seq that the files account for: each record up to here is in them, or gone.

        It may be lower in the next snapshot, if the newest records were deleted. A reader that
        follows the topic keeps the highest head that it saw.
        """
        self._is_settled = not self.config["ttl_ms"] and not self._floors.gaps
        self._pieces: tuple[Piece, ...] | None = None

    def _answered(self) -> int:
        """Return the last copied seq, or the end of the lost range that follows it directly."""
        head = max(self._all_pieces[-1].last_seq if self._all_pieces else 0, self._floors.dead_through)
        for gap in self._floors.gaps:
            if gap.first <= head + 1:
                head = max(head, gap.last)
        return min(head, self.seen_head)

    # --- what was lost -----------------------------------------------------------------------------------------------
    @property
    def floors(self) -> Floors:
        """The floors of the topic, records that had expired at the snapshot included."""
        self._settle()
        return self._floors

    @property
    def gaps(self) -> list[Gap]:
        """Ranges of lost seqs above live records, ascending."""
        return list(self.floors.gaps)

    @property
    def first_kept(self) -> int:
        """The first seq that is neither lost nor deleted as part of a prefix.

        "earliest" starts here. It needs no read for a topic without ttl and gaps.
        """
        return self.floors.dead_through + 1

    @property
    def earliest(self) -> int:
        """The first live seq in the files; head + 1 without one."""
        return self._with_files(lambda topic, source: topic._earliest(source))

    def losses(self, from_seq: int, to_seq: int) -> list[Loss]:
        """Return the losses that `diff` reports in the range, ascending, without overlap.

        They are clipped to [from_seq, to_seq]; a `to_seq` above `head` is cut to `head`.
        """
        floors, found = self.floors, list[Loss]()
        to_seq, at = min(to_seq, self.head), max(from_seq, 1)
        if at <= floors.lost and at <= to_seq:
            found.append(Loss(self.name, at, min(floors.lost, to_seq), floors.reason(at)))
            at = floors.lost + 1
        for gap in floors.gaps:
            low, high = max(at, gap.first), min(gap.last, to_seq)
            if low <= high:
                found.append(Loss(self.name, low, high, gap.reason))
                at = high + 1
        return found

    # --- what is there -----------------------------------------------------------------------------------------------
    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of all live records up to `head`, in seq order."""
        self._settle()
        if self._pieces is None:
            first = self._floors.dead_through + 1
            parts = (piece.clip(first, self.head) for piece in self._all_pieces)
            self._pieces = tuple(piece for piece in parts if piece is not None)
        return self._pieces

    @property
    def whole_pieces(self) -> tuple[Piece, ...]:
        """All pieces of the topic that the snapshot lists, in seq order, even without live records.

        It needs no read.
        """
        return tuple(self._all_pieces)

    def plan(self, from_seq: int, to_seq: int) -> list[Piece]:
        """Return the pieces of a range, clipped to it."""
        return [part for piece in self.pieces if (part := piece.clip(from_seq, to_seq)) is not None]

    def sections(self, from_seq: int, to_seq: int) -> Iterator[Piece | Loss]:
        """Yield the pieces and losses of a range in the order of seqs."""
        for loss in self.losses(from_seq, to_seq):
            yield from self.plan(from_seq, loss.from_seq - 1)
            yield loss
            from_seq = loss.to_seq + 1
        yield from self.plan(from_seq, to_seq)

    def first_seq_at(self, ts_ms: int) -> int:
        """Return the first live seq in the files whose ts is `ts_ms` or later; else head + 1."""
        return self._with_files(lambda topic, source: topic._first_seq_at(source, ts_ms))

    # --- with files --------------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """Find the expired records, and drop gaps without a live record below them. Runs once."""
        if not self._is_settled:
            self._with_files(lambda topic, source: topic._expire(source), adopt=True)

    def _with_files(self, ask: Callable[[TopicFiles, PieceSource], T], *, adopt: bool = False) -> T:
        """Return `ask` of this topic; of the topic in the newest snapshot if a file has vanished.

        adopt: this object takes the state of the newest snapshot.
        """
        topic = self
        for _ in range(_TRIES):
            with closing(PieceSource(self._location, self._calls)) as source:
                try:
                    return ask(topic, source)
                except VanishedError:
                    topic = topic._newest(self if adopt else None)
        raise DirectoryBusyError(
            f"data directory {self._location.path}: files of topic {self.name} vanished {_TRIES} times before they "
            "could be read: try again"
        )

    def _newest(self, into: TopicFiles | None) -> TopicFiles:
        with reading(self._location, self._calls):
            snapshot = load_newest(self._calls, self._location.path)
        entry = snapshot.topics.get(self.name)
        if entry is None or _incarnation_of(entry.image) != self.incarnation:
            raise TopicGoneError(f"topic {self.name} was deleted while it was read: open the directory again")
        newest = TopicFiles(self.name, entry, snapshot, self._location, self._calls)
        if into is None:
            return newest
        into._adopt(newest)
        return into

    def _adopt(self, newest: TopicFiles) -> None:
        """Take the state of the same topic in a newer snapshot, up to the head of this one."""
        self._snapshot, self._created_ms = newest._snapshot, newest._created_ms
        self.config, self.durability = newest.config, newest.durability
        self._floors, self._is_settled = newest._floors, newest._is_settled
        self._all_pieces, self._pieces = newest._all_pieces, None

    def _expire(self, source: PieceSource) -> None:
        """Apply the ttl as of the snapshot (R-TTL-1), then drop gaps by R-TRIM-2.

        Raises: VanishedError.
        """
        ttl_ms = self.config["ttl_ms"]
        expired = self._last_before(source, self._created_ms - ttl_ms) if ttl_ms else 0
        self._floors.raise_to(ttl=expired)
        if self._floors.gaps:
            self._floors.settle_gaps(self._earliest(source))
        self._is_settled = True

    def _live(self, source: PieceSource, piece: Piece) -> LiveRows:
        return source.rows(piece).rows.between(self._floors.dead_through + 1, self.head)

    def _last_before(self, source: PieceSource, ts_ms: int) -> int:
        """Return the highest live seq whose ts is below `ts_ms`; 0 without one.

        Times never decrease, so the pieces are searched in order.
        """
        if ts_ms <= 0:
            return 0
        passed: list[Piece] = []
        for piece in self._all_pieces:
            if piece.last_ts and piece.last_ts < ts_ms:
                passed.append(piece)
                continue
            rows = self._live(source, piece)
            count = int(np.searchsorted(rows.ts, np.uint64(ts_ms), "left"))
            if count == len(rows.ts):
                passed.append(piece)
            elif count:
                return int(rows.seqs[count - 1])
            else:
                break
        for piece in reversed(passed):
            rows = self._live(source, piece)
            if len(rows.seqs):
                return int(rows.seqs[-1])
        return 0

    def _first_seq_at(self, source: PieceSource, ts_ms: int) -> int:
        self._settle()
        for piece in self.pieces:
            if piece.last_ts and piece.last_ts < ts_ms:
                continue
            rows = self._live(source, piece)
            at = int(np.searchsorted(rows.ts, np.uint64(max(ts_ms, 0)), "left"))
            if at < len(rows.seqs):
                return int(rows.seqs[at])
        return self.head + 1

    def _earliest(self, source: PieceSource) -> int:
        for piece in self._all_pieces:
            rows = self._live(source, piece)
            if len(rows.seqs):
                return int(rows.seqs[0])
        return self.head + 1


def _incarnation_of(image: dict[str, Any]) -> str:
    stored: str = image.get("incarnation", "")
    return stored or incarnation_of_id(image["id"])


def _pieces_of(name: str, topic_id: int, incarnation: str, entry: TopicEntry) -> list[Piece]:
    """Return the whole pieces of all runs and segments of a topic, in seq order."""
    pieces = [
        Piece(
            topic=name,
            topic_id=topic_id,
            incarnation=incarnation,
            kind=Kind.RUN,
            path=pack_path(run.pack),
            tier=HOT,
            epoch=run.epoch,
            sum=0,
            end=0,
            sealed=True,
            run=run.run,
            first_seq=run.first,
            last_seq=run.last,
            from_seq=run.first,
            to_seq=run.last,
            records=run.last - run.first + 1,
            bytes=max(1, run.bytes),
            last_ts=0,
        )
        for run in entry.runs
    ]
    pieces += [
        Piece(
            topic=name,
            topic_id=topic_id,
            incarnation=incarnation,
            kind=Kind.SEGMENT,
            path=segment_path(topic_id, segment.first, segment.edition),
            tier=segment.tier,
            epoch=segment.epoch,
            sum=segment.sum,
            end=segment.end,
            sealed=segment.sealed,
            run=-1,
            first_seq=segment.first,
            last_seq=segment.last,
            from_seq=segment.first,
            to_seq=segment.last,
            records=max(1, segment.records),
            bytes=segment.end,
            last_ts=segment.last_ts,
        )
        for segment in entry.segments
    ]
    return pieces
