"""Orders and bursts between the two ends of a far feed, as bodies of rows and chunks of a stream.

The core of the client sends orders: which topics are followed, from which cursor, and how they are
read. The core of the topics sends bursts, each for one subscription, by the number that the order
has given it. Numbers are never used twice in a feed, so a burst of a subscription that has ended
meanwhile is known as one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from topics.common.values.answers import Tombstone
from topics.common.values.configs import Predicate
from topics.engine.delivery.frames import Burst, CaughtUpFrame, DeletedFrame, Frame, RecordsFrame, TombstoneFrame
from topics.engine.values.node_set import NO_NODES, NodeSet
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError
from topics.http.relay.relay_message import DamagedRelayError

_HEAD = struct.Struct("=QB")
"""The number of the subscription, and the kind of what follows, at the beginning of a chunk."""
_BURST, _FRESH_BURST, _FAILURE, _TAKEN_IN, _LEFT_OUT = range(5)

TAKEN_IN_FROM = 1 << 40
"""The lowest number that the core of the topics gives to one that it takes in."""


class Read(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How the topics of the orders that follow are read."""

    limit: int
    nodes: bytes
    include_tags: bool
    include_meta: bool
    include_data: bool
    max_batch_bytes: int
    only_nodes: bool
    match: Predicate | None

    @classmethod
    def of(cls, query: DiffQuery) -> Read:
        includes = query.include_tags, query.include_meta, query.include_data
        return cls(query.limit, query.nodes, *includes, query.max_batch_bytes, query.only_nodes, query.match)

    def query(self) -> DiffQuery:
        return DiffQuery(
            limit=self.limit,
            nodes=NodeSet(self.nodes) if self.nodes else NO_NODES,
            include_tags=self.include_tags,
            include_meta=self.include_meta,
            include_data=self.include_data,
            max_batch_bytes=self.max_batch_bytes,
            only_nodes=self.only_nodes,
            match=self.match,
        )


class Follow(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic to be followed, instead of an earlier subscription of its name."""

    number: int
    name: str
    from_seq: int


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A subscription that ends."""

    number: int
    name: str


class TakeIn(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Prefixes of names that are followed, too.

    within: prefixes of the names that the client may see. most: topics that this core may take in.
    begins: number, name and cursor of topics that are there. Others begin at cursor 0, and get
    their number from the core that has them.
    """

    prefixes: tuple[str, ...]
    within: tuple[str, ...]
    most: int
    begins: list[tuple[int, str, int]]


class DropPrefixes(msgspec.Struct, frozen=True, tag=True, array_like=True):
    prefixes: list[str]


class GiveBack(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A topic that was taken in, and for which the connection has no place."""

    name: str


class FillPlaces(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The connection has places again."""


Order = Read | Follow | Leave | TakeIn | DropPrefixes | GiveBack | FillPlaces


class _Records(msgspec.Struct, frozen=True, tag=0, array_like=True):
    from_seq: int
    cursor: int
    head_seq: int
    records: bytes


class _Lost(msgspec.Struct, frozen=True, tag=1, array_like=True):
    tombstone: Tombstone
    cursor: int


class _CaughtUp(msgspec.Struct, frozen=True, tag=2, array_like=True):
    cursor: int
    head_seq: int


class _TopicEnd(msgspec.Struct, frozen=True, tag=3, array_like=True):
    cursor: int


class _Failure(msgspec.Struct, frozen=True, array_like=True):
    code: str
    message: str


class _Name(msgspec.Struct, frozen=True, array_like=True):
    name: str
    most: int


_Sent = _Records | _Lost | _CaughtUp | _TopicEnd

_ENCODER = msgspec.msgpack.Encoder()
_ORDER = msgspec.msgpack.Decoder(Order)
_FRAMES = msgspec.msgpack.Decoder(list[_Sent])
_NAMED = msgspec.msgpack.Decoder(_Name)
_FAILED = msgspec.msgpack.Decoder(_Failure)


class SentBurst(NamedTuple):
    """A burst of a subscription. is_fresh: it is of the first pass over the topic."""

    number: int
    is_fresh: bool
    sent: list[_Sent]

    def frames(self, topic: str) -> tuple[Frame, ...]:
        """Return the frames. There is one at least."""
        return tuple(_frame_of(topic, each) for each in self.sent)


class SentFailure(NamedTuple):
    """The end of a subscription, because its topic cannot be read."""

    number: int
    error: RequestError


class SentName(NamedTuple):
    """A topic that was taken in, under this number. most: it was left out, for lack of places."""

    number: int
    name: str
    most: int


def order_bytes(order: Order) -> bytes:
    return _ENCODER.encode(order)


def read_order(body: bytes) -> Order:
    """Raises: DamagedRelayError, it is none."""
    try:
        return _ORDER.decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedRelayError("an order that cannot be read") from error


def burst_chunk(number: int, burst: Burst, *, is_fresh: bool) -> bytes:
    """Return a burst as a chunk. Readers that have given it the same number share its bytes."""
    key = "far feed", number, is_fresh
    chunk: bytes | None = burst.renderings.get(key)
    if chunk is None:
        kind = _FRESH_BURST if is_fresh else _BURST
        frames = _ENCODER.encode([_sent_of(frame) for frame in burst.frames])
        chunk = burst.renderings[key] = _HEAD.pack(number, kind) + frames
    return chunk


def failure_chunk(number: int, error: RequestError) -> bytes:
    return _HEAD.pack(number, _FAILURE) + _ENCODER.encode(_Failure(error.code, error.message))


def taken_in_chunk(number: int, name: str) -> bytes:
    return _HEAD.pack(number, _TAKEN_IN) + _ENCODER.encode(_Name(name, 0))


def left_out_chunk(name: str, most: int) -> bytes:
    return _HEAD.pack(0, _LEFT_OUT) + _ENCODER.encode(_Name(name, most))


def read_chunk(chunk: bytes) -> SentBurst | SentFailure | SentName:
    """Raises: DamagedRelayError, it is none."""
    try:
        number, kind = _HEAD.unpack_from(chunk)
        text = memoryview(chunk)[_HEAD.size :]
        if kind == _FAILURE:
            failure = _FAILED.decode(text)
            return SentFailure(number, RequestError(failure.code, failure.message))
        if kind in {_TAKEN_IN, _LEFT_OUT}:
            found = _NAMED.decode(text)
            return SentName(number, found.name, found.most)
        frames = _FRAMES.decode(text)
    except (struct.error, msgspec.MsgspecError) as error:
        raise DamagedRelayError("a chunk of a feed that cannot be read") from error
    if not frames or kind not in {_BURST, _FRESH_BURST}:
        raise DamagedRelayError("a chunk of a feed without frames")
    return SentBurst(number, kind == _FRESH_BURST, frames)


def bytes_of_nodes(queries: Iterable[DiffQuery]) -> int:
    """Return the bytes of the different node sets of queries."""
    return sum({id(query.nodes): len(query.nodes) for query in queries}.values())


def _sent_of(frame: Frame) -> _Sent:
    if isinstance(frame, RecordsFrame):
        return _Records(frame.from_seq, frame.cursor, frame.head_seq, frame.records)
    if isinstance(frame, TombstoneFrame):
        return _Lost(frame.tombstone, frame.cursor)
    if isinstance(frame, CaughtUpFrame):
        return _CaughtUp(frame.cursor, frame.head_seq)
    return _TopicEnd(frame.cursor)


def _frame_of(topic: str, sent: _Sent) -> Frame:
    if isinstance(sent, _Records):
        return RecordsFrame(topic, sent.from_seq, sent.cursor, sent.head_seq, sent.records)
    if isinstance(sent, _Lost):
        return TombstoneFrame(topic, sent.tombstone, sent.cursor)
    if isinstance(sent, _CaughtUp):
        return CaughtUpFrame(topic, sent.cursor, sent.head_seq)
    return DeletedFrame(topic, sent.cursor)
