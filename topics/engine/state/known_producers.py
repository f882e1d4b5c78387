"""Producers that a topic knows: the parts of their newest epochs, packed.

A producer with 16 epochs of 8 parts each takes less than 4 KB: two byte strings, without an object
for each part. Source: R-PROD-2 to R-PROD-5.

Queues of other cores whose dead letters a topic has are kept beside them (R-CORE-15), each with the
newest of its moves as the only part.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple, Protocol, cast

import msgspec

from topics.config import Config
from topics.engine.state import refusals
from topics.engine.values.results import AppendResult, repeated
from topics.errors import RequestError
from topics.store.format.log_format import ProducerPart
from topics.store.format.rows import Rows

_EPOCH = struct.Struct("<QI")
"""Epoch, and the number of its rows."""
_ROW = struct.Struct("<HIQQ")
"""Part, number of its records, first seq, sum; ascending by part within an epoch."""
_ROW_BYTES = _ROW.size
_IN_MEMORY = 1 << 31
"""A bit of the number: the records are of class `ephemeral`, so that a restart loses them and the
row.
"""
_MARK_AT, _MARK = 5, 0x80
"""The byte of a packed row that holds `_IN_MEMORY`, and its bit in that byte."""
_SWEPT = 4
_STEP_PRODUCERS, _STEP_BYTES = 500, 1 << 18
"""Producers, and bytes of their parts, that one step of a snapshot's preparation encodes."""
_DESCRIBED_BYTES = 16_384
"""Bytes of all producers in a description."""
_DESCRIBED_EACH = 32
"""Bytes that each producer counts in a description, in addition to its id and its parts."""
NO_EPOCH = -1
OF_QUEUES = b"\xff"
"""How the ids of queues of other cores begin: those of clients are UTF-8."""
QUEUE_AGE_MS = 30 * 86_400_000
"""How long after its last move a queue is known, at least."""
QUEUES_MAX = 10_000
"""Most queues that a topic knows: those that moved jobs last."""


class SummedPart(refusals.NamedPart, Protocol):
    """A part whose records have a checksum: see producer_part.py."""

    def total_of(self, rows: Rows, node: bytes | None) -> tuple[int, int]: ...


class RepeatedWrite(Protocol):
    """A request for a write that may be a repetition: an `AppendRequest`."""

    @property
    def topic(self) -> str: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def node(self) -> bytes | None: ...
    @property
    def identity(self) -> object: ...


class HasProducers(Protocol):
    """The members of a topic that its producers use."""

    producers: Producers | None


class PartEntry(NamedTuple):
    """A part that was appended."""

    first_seq: int
    records: int
    sum: int

    def answer(self, request: RepeatedWrite) -> AppendResult | RequestError:
        """Return the answer to a write of the same part, after comparing its records.

        Source: R-PROD-2.
        """
        part = cast("SummedPart", request.identity)  # Only a `Part` finds an entry of this type.
        return self.answer_to(request.topic, part, part.total_of(request.rows, request.node))

    def answer_to(self, topic: str, part: refusals.NamedPart, total: tuple[int, int]) -> AppendResult | RequestError:
        """Return the answer to a write of the same part.

        total: the number of its records, and their sum.
        """
        if total != (self.records, self.sum):
            return refusals.producer_diverged(topic, part)
        return repeated(self.first_seq, self.records)


class ProducerRow(msgspec.Struct, array_like=True, gc=False):
    """One producer in the snapshot, or in a description, where its lower epochs may be left out."""

    id: bytes
    floor: int
    last_ms: int
    last_seq: int
    epochs: bytes = b""
    rows: bytes = b""


class KnownProducer:
    """One producer's parts in one topic."""

    __slots__ = ("epochs", "floor", "held", "last_ms", "last_seq", "rows")

    def __init__(self) -> None:
        self.floor = NO_EPOCH
        """Parts of epochs up to this one are forgotten."""
        self.epochs = b""
        """Packed _EPOCH, ascending."""
        self.rows = bytearray()
        """Packed _ROW, ordered by epoch."""
        self.last_ms = 0
        """The time at which its last append began, ms."""
        self.last_seq = 0
        """The first seq of its newest part."""
        self.held = 0
        """The number of its parts in flight."""

    @property
    def parts(self) -> int:
        """The number of known parts."""
        return len(self.rows) // _ROW_BYTES

    @property
    def is_known(self) -> bool:
        """Whether a part of this producer was appended."""
        return self.floor != NO_EPOCH or bool(self.rows)

    @property
    def newest(self) -> int:
        """The highest epoch with an appended part."""
        if not self.epochs:
            return self.floor
        newest: int = _EPOCH.unpack_from(self.epochs, len(self.epochs) - _EPOCH.size)[0]
        return newest

    def find(self, epoch: int, part: int) -> PartEntry | None:
        _at, first, count = self._span(epoch)
        if count <= 0:
            return None
        row = self._row_of(part, first, count)
        if row == first + count or self._part_at(row) != part:
            return None
        _part, records, first_seq, sum = _ROW.unpack_from(self.rows, row * _ROW_BYTES)
        return PartEntry(first_seq, records & ~_IN_MEMORY, sum)

    def refuses(self, epoch: int, epochs_max: int) -> bool:
        """Return whether parts of this epoch may be forgotten already, or would be at once.

        Source: R-PROD-3.
        """
        if epoch <= self.floor:
            return True
        if len(self.epochs) < epochs_max * _EPOCH.size:
            return False
        lowest: int = _EPOCH.unpack_from(self.epochs)[0]
        return epoch < lowest

    def add(self, told: ProducerPart, first_seq: int, epochs_max: int, *, in_memory: bool) -> None:
        """Add a part, and forget the lowest epochs beyond `epochs_max`.

        A known part changes nothing.
        """
        self.last_ms = max(self.last_ms, told.started_ms)
        self.last_seq = max(self.last_seq, first_seq)
        if told.epoch <= self.floor:
            return
        at, first, count = self._span(told.epoch)
        if count < 0:
            count = 0
            self._put_epoch(at, told.epoch, 0, new=True)
        row = self._row_of(told.part, first, count)
        packed = _ROW.pack(told.part, told.records | (_IN_MEMORY if in_memory else 0), first_seq, told.sum)
        is_new = row == first + count or self._part_at(row) != told.part
        if is_new:
            self.rows[row * _ROW_BYTES : row * _ROW_BYTES] = packed
            self._put_epoch(at, told.epoch, count + 1)
        elif _ROW.unpack_from(self.rows, row * _ROW_BYTES)[2] < first_seq:
            # The existing row is older than the time when the part was forgotten.
            self.rows[row * _ROW_BYTES : (row + 1) * _ROW_BYTES] = packed
        while len(self.epochs) > epochs_max * _EPOCH.size:
            self._drop_lowest()

    def reduce(self) -> None:
        """Forget all parts; keep the number of the newest epoch. Source: R-PROD-4."""
        self.floor = self.newest
        self.epochs = b""
        self.rows = bytearray()

    def lasting(self) -> tuple[bytes, bytes]:
        """Return the epochs and rows, without rows of records in class `ephemeral`."""
        rows = bytes(self.rows)
        epochs, kept = bytearray(), bytearray()
        row = 0
        for epoch, count in _EPOCH.iter_unpack(self.epochs):
            each = [rows[at * _ROW_BYTES : (at + 1) * _ROW_BYTES] for at in range(row, row + count)]
            each = [packed for packed in each if packed[_MARK_AT] < _MARK]
            if each:
                epochs += _EPOCH.pack(epoch, len(each))
                kept += b"".join(each)
            row += count
        return bytes(epochs), bytes(kept)

    def _span(self, epoch: int) -> tuple[int, int, int]:
        """Return the epoch's index, its first row and its number of rows, -1 if unknown."""
        row = at = 0
        for each, count in _EPOCH.iter_unpack(self.epochs):
            if each >= epoch:
                return at, row, count if each == epoch else -1
            row += count
            at += 1
        return at, row, -1

    def _row_of(self, part: int, first: int, count: int) -> int:
        """Return the first of an epoch's rows that is not below `part`."""
        return bisect_left(range(first + count), part, lo=first, key=self._part_at)

    def _part_at(self, row: int) -> int:
        return int.from_bytes(self.rows[row * _ROW_BYTES : row * _ROW_BYTES + 2], "little")

    def _put_epoch(self, at: int, epoch: int, count: int, *, new: bool = False) -> None:
        begin = at * _EPOCH.size
        behind = self.epochs[begin if new else begin + _EPOCH.size :]
        self.epochs = self.epochs[:begin] + _EPOCH.pack(epoch, count) + behind

    def restore(self, image: ProducerRow, epochs_max: int) -> None:
        self.floor, self.epochs, self.rows = image.floor, image.epochs, bytearray(image.rows)
        self.last_ms, self.last_seq = image.last_ms, image.last_seq
        while len(self.epochs) > epochs_max * _EPOCH.size:
            self._drop_lowest()

    def _drop_lowest(self) -> None:
        self.floor, count = _EPOCH.unpack_from(self.epochs)
        self.epochs = self.epochs[_EPOCH.size :]
        del self.rows[: count * _ROW_BYTES]


class ProducerTotals:
    """Counts over the producers of all topics, and the settings that bound them."""

    def __init__(self, config: Config) -> None:
        self.producers = 0
        """Producers with known parts or parts in flight, and those of which only the newest epoch
        is known.
        """
        self.parts = 0
        """Parts that are known or in flight."""
        self.epochs_max = config.producer_epochs
        self.silence_ms = config.producer_silence_ms


class Producers:
    """The producers of one topic."""

    __slots__ = ("_active", "_has_memory", "_queues", "_silent", "_totals")

    def __init__(self, totals: ProducerTotals) -> None:
        self._totals = totals
        self._active: dict[bytes, KnownProducer] = {}
        """Producers with known parts or parts in flight, in the order of their last appends."""
        self._silent: dict[bytes, KnownProducer] = {}
        """Producers of which only the newest epoch is known."""
        self._queues: dict[bytes, KnownProducer] = {}
        """Queues of other cores, in the order of their last moves. No limit counts them."""
        self._has_memory = False
        """Whether some parts may be of records in memory."""

    def __len__(self) -> int:
        return len(self._active) + len(self._silent)

    def __contains__(self, producer_id: bytes) -> bool:
        return self.peek(producer_id) is not None

    def find(self, producer_id: bytes, now_ms: int) -> KnownProducer | None:
        """Return a producer as of now: after a long silence it has lost its parts."""
        if producer_id.startswith(OF_QUEUES):
            return self._find_queue(producer_id, now_ms)
        producer = self._active.get(producer_id)
        if producer is None:
            return self._silent.get(producer_id)
        if self._is_silent(producer, now_ms):
            self._reduce(producer_id, producer)
        return producer

    def peek(self, producer_id: bytes) -> KnownProducer | None:
        """Return a producer as the last `find` left it."""
        if producer_id.startswith(OF_QUEUES):
            return self._queues.get(producer_id)
        return self._active.get(producer_id) or self._silent.get(producer_id)

    def _find_queue(self, queue_id: bytes, now_ms: int) -> KnownProducer | None:
        """Return a queue; one that moved nothing for very long is forgotten."""
        queue = self._queues.get(queue_id)
        if queue is None or queue.held or now_ms - queue.last_ms <= QUEUE_AGE_MS:
            return queue
        del self._queues[queue_id]
        return None

    def _forget_queues(self, now_ms: int) -> None:
        """Forget a few queues that moved nothing for very long, or that are too many."""
        for queue_id in list(islice(self._queues, _SWEPT)):
            queue = self._find_queue(queue_id, now_ms)
            if queue is not None and not queue.held and len(self._queues) > QUEUES_MAX:
                del self._queues[queue_id]

    def _count(self, producer_id: bytes, *, producers: int = 0, parts: int = 0) -> None:
        if not producer_id.startswith(OF_QUEUES):
            self._totals.producers += producers
            self._totals.parts += parts

    # --- parts in flight --------------------------------------------------------------------------------------------
    def hold(self, producer_id: bytes) -> None:
        """Count a part that is in flight."""
        self._of(producer_id).held += 1
        self._count(producer_id, parts=1)

    def release(self, producer_id: bytes) -> None:
        """Stop counting a part in flight, which failed."""
        producer = self._of(producer_id)
        producer.held -= 1
        self._count(producer_id, parts=-1)
        if not producer.held and not producer.is_known:
            del self._kept(producer_id)[producer_id]
            self._count(producer_id, producers=-1)

    def publish(self, told: ProducerPart, first_seq: int, now_ms: int, *, in_memory: bool) -> None:
        """Add a part that was in flight, and reduce a few producers after a long silence."""
        self._of(told.producer).held -= 1
        self._count(told.producer, parts=-1)
        self._has_memory |= in_memory
        self.add(told, first_seq, in_memory=in_memory)
        self._forget_queues(now_ms)
        for oldest_id, oldest in list(islice(self._active.items(), _SWEPT)):
            if self._is_silent(oldest, now_ms):
                self._reduce(oldest_id, oldest)

    def add(self, told: ProducerPart, first_seq: int, *, in_memory: bool = False) -> None:
        """Add a part that was appended. A known part changes nothing (recovery)."""
        producer = self._of(told.producer)
        before = producer.parts
        producer.add(told, first_seq, self._epochs_max(told.producer), in_memory=in_memory)
        self._moved(told.producer, producer, before)

    def _moved(self, producer_id: bytes, producer: KnownProducer, parts_before: int) -> None:
        """Move the producer to the end of the order: it appended last."""
        if producer_id.startswith(OF_QUEUES):
            self._queues.pop(producer_id, None)
            self._queues[producer_id] = producer
            return
        self._totals.parts += producer.parts - parts_before
        self._silent.pop(producer_id, None)
        self._active.pop(producer_id, None)
        (self._active if producer.rows else self._silent)[producer_id] = producer

    def _of(self, producer_id: bytes) -> KnownProducer:
        producer = self.peek(producer_id)
        if producer is None:
            producer = self._kept(producer_id)[producer_id] = KnownProducer()
            self._count(producer_id, producers=1)
        return producer

    def _kept(self, producer_id: bytes) -> dict[bytes, KnownProducer]:
        """Return where a producer with parts in flight is, or a queue."""
        return self._queues if producer_id.startswith(OF_QUEUES) else self._active

    def _epochs_max(self, producer_id: bytes) -> int:
        return 1 if producer_id.startswith(OF_QUEUES) else self._totals.epochs_max

    def _is_silent(self, producer: KnownProducer, now_ms: int) -> bool:
        return not producer.held and now_ms - producer.last_ms > self._totals.silence_ms

    def _reduce(self, producer_id: bytes, producer: KnownProducer) -> None:
        self._totals.parts -= producer.parts
        producer.reduce()
        del self._active[producer_id]
        self._silent[producer_id] = producer

    # --- snapshot and recovery ----------------------------------------------------------------------------------------
    def images(self, now_ms: int) -> list[ProducerRow]:
        """Return the rows that survive a restart."""
        return list(chain.from_iterable(self.images_in_steps(now_ms)))

    def images_in_steps(self, now_ms: int) -> Iterator[list[ProducerRow]]:
        """Yield the rows of `images` in bounded shares.

        Parts that are appended between the steps may be missing: the log after the snapshot's cut
        has them.
        """
        rows: list[ProducerRow] = []
        size = 0
        for producer_id in [*self._silent, *self._active, *self._queues]:
            size += self._add_row(producer_id, now_ms, rows)
            if len(rows) >= _STEP_PRODUCERS or size >= _STEP_BYTES:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows

    def _add_row(self, producer_id: bytes, now_ms: int, rows: list[ProducerRow]) -> int:
        """Add the producer's row if it has something lasting; return the bytes of its parts."""
        producer = self.find(producer_id, now_ms)
        if producer is None or not producer.is_known:
            return 0
        row = self._image(producer_id, producer)
        if row.floor != NO_EPOCH or row.rows:
            rows.append(row)
        return len(row.rows)

    def described(self) -> list[ProducerRow]:
        """Return rows for headers and footers of segments, `_DESCRIBED_BYTES` at most.

        They hold the producers that appended last, with the newest epochs of each. Parts of all
        others count as forgotten (R-PROD-4), so none of them is appended again.
        """
        left = _DESCRIBED_BYTES
        rows: list[ProducerRow] = []
        known = self._active, self._silent, self._queues
        for producer_id, producer in chain.from_iterable(reversed(each.items()) for each in known):
            left -= len(producer_id) + _DESCRIBED_EACH
            if left < 0:
                break
            row = self._image(producer_id, producer)
            while len(row.rows) + len(row.epochs) > left:
                row.floor, count = _EPOCH.unpack_from(row.epochs)
                row.epochs, row.rows = row.epochs[_EPOCH.size :], row.rows[count * _ROW_BYTES :]
            left -= len(row.rows) + len(row.epochs)
            if row.floor != NO_EPOCH or row.rows:
                rows.append(row)
        return rows[::-1]

    def _image(self, producer_id: bytes, producer: KnownProducer) -> ProducerRow:
        told = producer.lasting() if self._has_memory else (producer.epochs, bytes(producer.rows))
        return ProducerRow(producer_id, producer.floor, producer.last_ms, producer.last_seq, *told)

    def restore(self, row: ProducerRow) -> None:
        """Add a row of a snapshot or of a description, unless a row before was newer."""
        known = self.peek(row.id)
        if known is not None and (known.last_seq, len(known.rows)) >= (row.last_seq, len(row.rows)):
            return
        producer = self._of(row.id)
        before = producer.parts
        producer.restore(row, self._epochs_max(row.id))
        self._moved(row.id, producer, before)

    def forget_through(self, seq: int) -> None:
        """Forget producers whose newest part begins at or below this seq.

        A restart in class `ephemeral` has forgotten them, too.
        """
        for known in (self._active, self._silent, self._queues):
            for producer_id, producer in list(known.items()):
                if producer.last_seq <= seq and not producer.held:
                    del known[producer_id]
                    self._count(producer_id, producers=-1, parts=-producer.parts)

    def clear(self) -> None:
        """Forget all producers and parts in flight, because the topic is gone."""
        self._totals.producers -= len(self)
        self._totals.parts -= sum([each.parts + each.held for each in self._active.values()])
        self._totals.parts -= sum([each.held for each in self._silent.values()])
        self._active.clear()
        self._silent.clear()
        self._queues.clear()


def producers_of(topic: HasProducers, totals: ProducerTotals) -> Producers:
    """Return the producers of a topic, which are created with its first part."""
    if topic.producers is None:
        topic.producers = Producers(totals)
    return topic.producers
