"""Parts that are sent in pieces: the pieces received of each, and their places.

The records of pieces are in the staging area, a topic that clients cannot see (`topic.STAGING`).
This table assigns them to parts; their frames and the snapshot hold the assignment, too. Source:
R-PROD-9 to R-PROD-13.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np

from topics.engine.state.topic import Topic
from topics.engine.values.results import AppendResult
from topics.store.format.log_format import StagedPiece

Name = tuple[int, bytes, int, int]
"""Topic id, producer, epoch, part."""
OVERHEAD_BYTES = 512
"""Bytes that a piece counts besides its records: its row of this table, and its name in a frame."""
_PIECE = struct.Struct("<QIQQ")


class PartPiece(NamedTuple):
    """One piece of a part: the place, number, bytes and checksum of its records."""

    first_seq: int
    """The first seq in the staging area; 0 if it is not stored, but compared with an appended
    part.
    """
    records: int
    size: int
    sum: int


class Total(NamedTuple):
    """Number, bytes and checksum of the records of several pieces."""

    records: int = 0
    size: int = 0
    """Bytes, as the caps of a topic count them."""
    sum: int = 0
    """The sum of their checksums, modulo 2^64."""

    def plus(self, piece: PartPiece) -> Total:
        return Total(self.records + piece.records, self.size + piece.size, (self.sum + piece.sum) % (1 << 64))


class StagedRow(msgspec.Struct, array_like=True, gc=False):
    """One part in the snapshot."""

    topic_id: int
    producer: bytes
    epoch: int
    part: int
    attempt: bytes
    last_ms: int
    pieces: bytes
    """Packed _PIECE."""


class StagedPart:
    """The pieces of one attempt at sending a part."""

    __slots__ = ("attempt", "last_ms", "pieces", "total")

    def __init__(self, attempt: bytes) -> None:
        self.attempt = attempt
        self.pieces: list[PartPiece] = []
        self.last_ms = 0
        self.total = Total()

    def add(self, piece: PartPiece) -> None:
        self.pieces.append(piece)
        self.total = self.total.plus(piece)

    @property
    def held_bytes(self) -> int:
        return self.total.size + OVERHEAD_BYTES * len(self.pieces)

    @property
    def runs(self) -> list[int]:
        """First and last seq of each run of its records in the staging area."""
        runs: list[int] = []
        for piece in self.pieces:
            last = piece.first_seq + piece.records - 1
            if runs and runs[-1] + 1 == piece.first_seq:
                runs[-1] = last
            else:
                runs += (piece.first_seq, last)
        return runs


class StagedParts:
    """The parts that wait for their last pieces, in the order of their newest pieces."""

    def __init__(self) -> None:
        self.parts: dict[Name, StagedPart] = {}
        self._by_topic: dict[int, dict[Name, None]] = {}
        self.bytes = 0
        """Bytes of all pieces, plus `OVERHEAD_BYTES` for each."""
        self.coming_bytes = 0
        """Bytes of pieces on the way into the staging area."""
        self.orphans: deque[int] = deque()
        """First and last seq of each run in the staging area that belongs to no part, to be
        deleted.
        """

    def add(self, told: StagedPiece, first_seq: int) -> StagedPart | None:
        """Add a written piece, possibly again (recovery).

        Returns: the attempt that it replaces, if any.
        """
        name = (told.topic_id, told.producer, told.epoch, told.part)
        known, replaced = self.parts.get(name), None
        if told.piece == 0:
            if known is not None and known.pieces[0].first_seq >= first_seq:
                return None
            replaced = self.remove(name)
            known = StagedPart(told.attempt)
            self._put(name, known)
        elif known is None or known.attempt != told.attempt or told.piece != len(known.pieces):
            return None
        known.add(PartPiece(first_seq, told.records, told.size, told.sum))
        known.last_ms = max(known.last_ms, told.staged_ms)
        self.bytes += told.size + OVERHEAD_BYTES
        self.parts[name] = self.parts.pop(name)
        return replaced

    def remove(self, name: Name) -> StagedPart | None:
        part = self.parts.pop(name, None)
        if part is not None:
            self.bytes -= part.held_bytes
            of_topic = self._by_topic[name[0]]
            del of_topic[name]
            if not of_topic:
                del self._by_topic[name[0]]
        return part

    def drop(self, name: Name) -> None:
        """Remove a part, and leave its records to be deleted."""
        part = self.remove(name)
        assert part is not None, "a part of the table"
        self.orphans += part.runs

    def of_topic(self, topic_id: int, count_max: int) -> list[Name]:
        """Return up to `count_max` of a topic's parts."""
        return list(islice(self._by_topic.get(topic_id, ()), count_max))

    def _put(self, name: Name, part: StagedPart) -> None:
        self.parts[name] = part
        self._by_topic.setdefault(name[0], {})[name] = None

    def take_orphans(self, runs_max: int, rows_max: int) -> list[int]:
        """Take the first of `orphans`, up to these numbers of runs and rows."""
        taken: list[int] = []
        while self.orphans and len(taken) < 2 * runs_max and rows_max:
            first, last = self.orphans.popleft(), self.orphans.popleft()
            upto = min(last, first + rows_max - 1)
            taken += (first, upto)
            rows_max -= upto + 1 - first
            if upto < last:
                self.orphans.extendleft((last, upto + 1))
        return taken

    # --- snapshot and recovery ----------------------------------------------------------------------------------------
    def images(self) -> list[StagedRow]:
        return [
            StagedRow(*name, part.attempt, part.last_ms, b"".join([_PIECE.pack(*piece) for piece in part.pieces]))
            for name, part in self.parts.items()
        ]

    def restore(self, row: StagedRow) -> None:
        part = StagedPart(row.attempt)
        for piece in _PIECE.iter_unpack(row.pieces):
            part.add(PartPiece(*piece))
        part.last_ms = row.last_ms
        self._put((row.topic_id, row.producer, row.epoch, row.part), part)
        self.bytes += part.held_bytes

    def recovered(self, topic_of: Callable[[int], Topic | None], staging: Topic | None) -> None:
        """Drop parts that are incomplete or appended, or whose topic is gone.

        Called once all rows are known.
        """
        for name, part in list(self.parts.items()):
            if staging is None or not _is_there(part, staging) or _is_settled(name, topic_of(name[0])):
                self.remove(name)
        if staging is None:
            return
        live = np.array(staging.index.live_seqs(0, staging.head, staging.index.live), np.uint64)
        used = np.zeros(len(live), np.bool_)
        for part in self.parts.values():
            for piece in part.pieces:
                first = np.searchsorted(live, np.uint64(piece.first_seq))
                used[first : first + piece.records] = True
        orphans = live[~used]
        if len(orphans):
            ends = np.flatnonzero(np.diff(orphans) > 1)
            firsts, lasts = orphans[np.append(0, ends + 1)], orphans[np.append(ends, len(orphans) - 1)]
            self.orphans = deque(np.column_stack((firsts, lasts)).ravel().tolist())


def repeated_piece(records: int) -> AppendResult:
    """Build the answer to a repeated piece, whose records have no seqs."""
    return AppendResult(0, 0, 0, records, False, True, 0, 0)


def _is_there(part: StagedPart, staging: Topic) -> bool:
    return all(
        bool(staging.index.alive(np.arange(piece.first_seq, piece.first_seq + piece.records, dtype=np.uint64)).all())
        for piece in part.pieces
    )


def _is_settled(name: Name, topic: Topic | None) -> bool:
    """Return whether the part was appended, or cannot be any more."""
    if topic is None:
        return True
    _topic_id, producer_id, epoch, number = name
    known = None if topic.producers is None else topic.producers.peek(producer_id)
    return known is not None and known.find(epoch, number) is not None
