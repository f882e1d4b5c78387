"""A part of a producer's records: the identity of a write that may be repeated days later.

Source: R-PROD.
"""

from __future__ import annotations

from typing import Protocol

from topics.clock import Clock
from topics.config import Config
from topics.engine.state import refusals
from topics.engine.state.known_producers import HasProducers, PartEntry, ProducerTotals, producers_of
from topics.engine.values.json_fields import read_object
from topics.engine.values.ports import LimitPort
from topics.errors import RequestError
from topics.store.format import codec
from topics.store.format.log_format import ProducerPart, StagedPiece, pack_producer_part, pack_staged_piece
from topics.store.format.rows import Rows

EPOCH_MAX = 2**63 - 1
PART_MAX = 65_535
PIECE_MAX = 65_535
PART_NAMES = ("id", "epoch", "part", "piece", "last", "attempt")
"""The members of `producer`."""
_REQUIRED = PART_NAMES[:3]


class PartTopic(refusals.NamedTopic, HasProducers, Protocol):
    """The members of a topic that a part uses."""

    id: int


class ProducerLimits(Protocol):
    """The limits of producers and of their parts. Source: R-PROD-5."""

    @property
    def producers(self) -> LimitPort: ...
    @property
    def producer_parts(self) -> LimitPort: ...


class PartCore(Protocol):
    """The part of the core that a part of a producer needs."""

    clock: Clock
    producers: ProducerTotals

    @property
    def limits(self) -> ProducerLimits: ...


class Part:
    """The identity of one write, which is a whole part or a piece of one. See `Identity`.

    producer: the id, UTF-8.
    """

    __slots__ = ("_told", "_total", "attempt", "created", "epoch", "last", "part", "piece", "producer")

    def __init__(  # noqa: PLR0917 - the members of `producer`
        self, producer: bytes, epoch: int, part: int, piece: int = 0, last: bool = True, attempt: bytes = b""
    ) -> None:
        self.producer = producer
        self.epoch = epoch
        self.part = part
        self.piece = piece
        self.last = last
        self.attempt = attempt
        self.created = False
        """Whether the write is a piece and created its topic."""
        self._total: tuple[int, int] | None = None
        self._told: ProducerPart | None = None

    @property
    def name(self) -> tuple[bytes, int, int]:
        return self.producer, self.epoch, self.part

    @property
    def is_piece(self) -> bool:
        return self.piece > 0 or not self.last

    @property
    def is_last_piece(self) -> bool:
        return self.is_piece and self.last

    @property
    def extension_bytes(self) -> int:
        if self.is_piece:
            return len(pack_staged_piece(StagedPiece(*(0,) * 8, self.producer, self.attempt)))
        return len(pack_producer_part(ProducerPart(0, 0, 0, 0, 0, self.producer)))

    def total_of(self, rows: Rows, node: bytes | None) -> tuple[int, int]:
        """Return number and checksum of the request's records, computed once."""
        if self._total is None:
            self._total = rows.count, codec.sum_rows(rows, node)
        return self._total

    def find(self, core: PartCore, topic: PartTopic, now_ms: int) -> PartEntry | None:
        known = topic.producers
        producer = None if known is None else known.find(self.producer, now_ms)
        if producer is None:
            return None
        entry = producer.find(self.epoch, self.part)
        if entry is None and producer.refuses(self.epoch, core.producers.epochs_max):
            raise refusals.producer_stale(topic, self, producer.newest)
        return None if self.is_piece else entry

    def begin(self, core: PartCore, topic: PartTopic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        return self.begin_whole(core, topic, *self.total_of(rows, node), now_ms)

    def begin_whole(self, core: PartCore, topic: PartTopic, count: int, sum: int, now_ms: int) -> bytes:
        """Begin a part that one request holds, given the number and checksum of its records. See
        `begin`.
        """
        if topic.producers is None or self.producer not in topic.producers:
            core.limits.producers.check()
        core.limits.producer_parts.check()
        self._told = ProducerPart(count, now_ms, self.epoch, self.part, sum, self.producer)
        return pack_producer_part(self._told)

    def hold(self, core: PartCore, topic: PartTopic) -> None:
        producers_of(topic, core.producers).hold(self.producer)

    def publish(self, core: PartCore, topic: PartTopic, first_seq: int, *, in_memory: bool) -> PartEntry:
        assert self._told is not None, "a write that was begun"
        assert topic.producers is not None, "a write that is held"
        topic.producers.publish(self._told, first_seq, core.clock.now_ms(), in_memory=in_memory)
        return PartEntry(first_seq, self._told.records, self._told.sum)

    def fail(self, core: PartCore, topic: PartTopic) -> None:
        known = topic.producers
        # Otherwise the producer is gone with its topic.
        if known is not None and self.producer in known:
            known.release(self.producer)


def parse_part(text: bytes, limits: Config) -> Part:
    """Parse the `producer` of a write, which is an object.

    Raises: RequestError invalid_request, which names the member.
    """
    given = read_object(text, "producer", "producer.")
    producer = given.string("id").encode()
    check_id(producer, limits)
    given.require("epoch")
    given.require("part")
    epoch, part = given.number("epoch", EPOCH_MAX), given.number("part", PART_MAX)
    attempt = (given.string("attempt") if "attempt" in given else "").encode()
    check_attempt(attempt, limits)
    return Part(producer, epoch, part, given.number("piece", PIECE_MAX), given.boolean("last", True), attempt)


def lacks_a_member(text: bytes) -> bool:
    """Return whether a required member is missing in the `producer` of a write, an object."""
    given = read_object(text, "producer", "producer.")
    return not all(name in given for name in _REQUIRED)


def check_id(producer: bytes, limits: Config) -> None:
    """Check a producer's id. Raises: RequestError invalid_request, it is empty or too long."""
    if not producer:
        raise _refused("id", "is empty: name the producer")
    _check_length("id", producer, limits)


def check_attempt(attempt: bytes, limits: Config) -> None:
    """Check an attempt. Raises: RequestError invalid_request, it is too long."""
    _check_length("attempt", attempt, limits)


def _check_length(name: str, text: bytes, limits: Config) -> None:
    if len(text) > limits.max_producer_id_bytes:
        raise _refused(name, f"has {len(text)} bytes: use at most {limits.max_producer_id_bytes}")


def _refused(name: str, why: str) -> RequestError:
    return RequestError("invalid_request", f"producer.{name} {why}")
