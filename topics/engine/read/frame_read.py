"""Frames of a topic's records, from memory or the disk, for all reads of the engine.

Rows of the index are planned as pieces, the pieces are fetched, and then the rows are compared with
the index again: while bytes come from a disk, records may be deleted or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.selected_rows import SelectedRows
from topics.engine.read.read_plan import plan_pieces
from topics.engine.state.topic import Topic
from topics.engine.values.ports import ReaderPort
from topics.errors import CorruptError, StorageError
from topics.store.format.log_format import FLAG_COPY, Frame
from topics.store.read.own_frames import own_frames, share_frames
from topics.store.read.reader import Fetched

_NO_COPY = np.uint8(~FLAG_COPY & 0xFF)
_ALL = 1 << 62


class OwnFrames(NamedTuple):
    """Bytes, the file offset of the first of them, and rows, each with a frame in the bytes."""

    data: memoryview
    base: int
    rows: SelectedRows


class FrameRead:
    """One read of rows. Rows and the index's counts of deaths are taken when it is made."""

    __slots__ = ("_deaths", "_reader", "_removals", "_rows", "_topic", "_views", "pieces")

    def __init__(self, reader: ReaderPort, topic: Topic, rows: SelectedRows, most: int = _ALL) -> None:
        """Plan the read.

        rows: at least one, all live; the first of them are read that are in `most` pieces.
        """
        index = topic.index
        self._reader = reader
        self._topic = topic
        self._deaths, self._removals = index.deaths, index.removals
        self.pieces, self._rows = plan_pieces(rows, most)
        self._views: list[memoryview] = []

    @property
    def size(self) -> int:
        """Bytes that are fetched."""
        return sum([piece.length for piece in self.pieces])

    @property
    def count(self) -> int:
        """Number of rows that are read."""
        return sum([len(rows.seqs) for rows in self._rows])

    def begin(self, then: Callable[[FrameRead | StorageError], None]) -> None:
        """Call `then` with this read once its bytes are in memory.

        If they are in memory, that is before this returns.

        Bytes in memory are valid only until `then` returns: copy those that are needed later.
        """
        self._reader.fetch(self.pieces, partial(self._on_fetched, then))

    def _on_fetched(self, then: Callable[[FrameRead | StorageError], None], fetched: Fetched) -> None:
        if isinstance(fetched, StorageError):
            then(fetched)
        else:
            self._views = fetched
            then(self)
            self._views = []

    def note_unsound(self, seq: int) -> None:
        """Notify the reader that the frame of a row does not match its checksum or its place."""
        for piece, rows in zip(self.pieces, self._rows, strict=True):
            at = int(np.searchsorted(rows.seqs, np.uint64(seq)))
            if at < len(rows.seqs) and rows.seqs[at] == seq:
                what = f"seq {seq} of topic {self._topic.name}"
                self._reader.on_unsound(piece.file_id, int(rows.offsets[at]), int(rows.lengths[at]), what)
                return

    # --- what became of the rows -------------------------------------------------------------------------------------
    @property
    def saw_deaths(self) -> bool:
        """Whether rows of the topic have died since this read was made, perhaps some of its own."""
        return self._topic.index.deaths != self._deaths

    def is_doubtful(self, spared: NDArray[np.uint64] | None = None) -> bool:
        """Return whether rows died, and whether they were lost or deleted is unknown: read again.

        spared: seqs whose death does not matter.
        """
        index = self._topic.index
        if index.removals == self._removals:
            return False
        floors = self._topic.floors
        below = (rows.seqs[floors.expired_among(rows.seqs)] for rows in self._rows)
        return not all(_alive_or_spared(index.alive(seqs), seqs, spared).all() for seqs in below)

    def surviving(self, spared: NDArray[np.uint64] | None = None) -> Iterator[tuple[OwnFrames, int]]:
        """Yield the frames of each piece, and the piece's last seq.

        Rows deleted since are left out (R-DEL-7).

        Rows lost meanwhile (evicted, expired) stay: the reader's cursor was before the loss.
        spared: as in `is_doubtful`, which is to be called before.
        Raises: CorruptError.
        """
        topic = self._topic
        index = topic.index
        for piece, view, rows in zip(self.pieces, self._views, self._rows, strict=True):
            last = int(rows.seqs[-1])
            if index.deaths != self._deaths:
                alive = _alive_or_spared(index.alive(rows.seqs), rows.seqs, spared)
                if not alive.all():
                    rows = rows.rows(alive | topic.floors.expired_among(rows.seqs))
            yield self._deliver(view, piece.offset, rows), last

    def all_frames(self) -> Iterator[OwnFrames]:
        """Yield the frames of each piece, with rows that died since. Raises CorruptError."""
        for piece, view, rows in zip(self.pieces, self._views, self._rows, strict=True):
            yield own(self._topic, view, piece.offset, rows)

    def single_rows(self) -> Iterator[tuple[memoryview, int, SelectedRows]]:
        """Yield each row by itself, with the bytes of its piece and their offset in the file.

        For a read of which some frames are not sound: `own` and `verified` fail for only these.
        """
        for piece, view, rows in zip(self.pieces, self._views, self._rows, strict=True):
            for at in range(len(rows.seqs)):
                yield view, piece.offset, rows.rows(slice(at, at + 1))

    def _deliver(self, view: memoryview, base: int, rows: SelectedRows) -> OwnFrames:
        """Return what a reader gets of a piece, its rows that survive."""
        return own(self._topic, view, base, rows)


def own(topic: Topic, view: memoryview, base: int, rows: SelectedRows) -> OwnFrames:
    """Return the topic's own frames of rows, of which some are shared with other topics.

    Raises: CorruptError.
    """
    if not share_frames(rows.flags):
        return OwnFrames(view, base, rows)
    made = own_frames(topic.id, view, base, rows)
    flags = rows.flags & _NO_COPY
    return OwnFrames(memoryview(made.data), 0, rows._replace(offsets=made.offsets, lengths=made.lengths, flags=flags))


def _alive_or_spared(
    alive: NDArray[np.bool_], seqs: NDArray[np.uint64], spared: NDArray[np.uint64] | None
) -> NDArray[np.bool_]:
    return alive if spared is None else alive | np.isin(seqs, spared)


def verified(topic: Topic, frames: OwnFrames) -> Iterator[tuple[int, bytes, Frame]]:
    """Yield seq, bytes and fields of each frame. Raises CorruptError naming topic and seq.

    For work with one record at a time; renderers verify as they run.
    """
    data, base, rows = frames
    for seq, offset, length in zip(rows.seqs.tolist(), rows.offsets.tolist(), rows.lengths.tolist(), strict=True):
        raw = bytes(data[offset - base : offset - base + length])
        where = f"topic {topic.name}, seq {seq}"
        try:
            frame = Frame.unpack(raw, where)
        except CorruptError as error:
            raise CorruptError(str(error), {"topic": topic.name, "seq": seq}) from None
        if frame.topic_id != topic.id or frame.seq != seq:
            raise CorruptError(f"{where}: another record is in its place", {"topic": topic.name, "seq": seq})
        yield seq, raw, frame


def with_topic(topic: Topic, error: CorruptError, read: FrameRead) -> CorruptError:
    """Return the error of a renderer, which knows only a topic's number, with the topic's name.

    The reader is notified of the damaged frame.
    """
    read.note_unsound((error.detail or {}).get("seq", 0))
    detail = {**(error.detail or {}), "topic": topic.name}
    detail.pop("topic_id", None)
    return CorruptError(f"topic {topic.name}: {error}", detail)
