"""Plain values that a bridge carries: positions, records as messages, marks; and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from topics.errors import TopicsError

SEQ, INCARNATION = "topics-seq", "topics-incarnation"
"""Headers of a message: the record's seq, and the incarnation of its topic."""
TAG, NODE, DATA, META, TS = "topics-tag", "topics-node", "topics-data", "topics-meta", "topics-ts"
"""Headers for what a record has beside its data."""
JSON_ENDING = "-json"
"""Ending of the name of TAG or NODE whose text is JSON, because no header can have it."""
GAP, OVERSIZE = "topics-gap", "topics-oversize"
"""Headers of marks: the reason of a loss, and the bytes of a record that is too large."""
BYTES_DATA = b"bytes"
"""The value of the header DATA of a record of bytes; a record of JSON has none."""
PREFIX = "topics-"


class BridgePosition(NamedTuple):
    """A place in a topic: all records up to `seq` of this incarnation were carried."""

    incarnation: str
    seq: int

    def as_json(self) -> bytes:
        return msgspec.json.encode({"incarnation": self.incarnation, "seq": self.seq})

    @classmethod
    def of_json(cls, text: bytes) -> BridgePosition:
        """Raises: ValueError, the text is no position."""
        found = msgspec.json.decode(text, type=_StoredPosition)
        return cls(found.incarnation, found.seq)


class _StoredPosition(msgspec.Struct):
    incarnation: str
    seq: int


class BridgeMessage(msgspec.Struct, frozen=True, gc=False):
    """One record, or a mark, as the other side gets it."""

    seq: int
    """Seq up to which all is carried once this message is there."""
    value: bytes | msgspec.Raw
    """JSON that is a part of the answer it was read in is not copied out of it."""
    key: str | None
    """The record's tag."""
    headers: tuple[tuple[str, bytes], ...]
    ts: int
    is_mark: bool = False

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        extra = sum(len(name) + len(text) for name, text in self.headers)
        return len(self.value) + (len(self.key.encode()) if self.key else 0) + extra


class TopicBatch(NamedTuple):
    """Messages of one topic, in the order of their seqs."""

    topic: str
    messages: Sequence[BridgeMessage]
    position: BridgePosition
    """Where the topic continues after them."""
    head_seq: int
    size: int
    """Bytes of the answer that they were read from."""


class TargetDownError(TopicsError):
    """The other side did not take a batch, or its answer was lost. The bridge asks it again."""


class SourceDownError(TopicsError):
    """The side that is read from did not answer."""


class FencedError(TopicsError):
    """Another bridge, or another program, writes where this bridge writes."""


class OversizeError(TopicsError):
    """A record that the other side does not take, because it is too large."""

    def __init__(self, topic: str, seq: int, size: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{topic}: record {seq} has {size} bytes as a message, and {setting} is {limit}: raise it there, "
            "or leave a mark in its place with --oversize skip"
        )


class TargetSession(Protocol):
    """An open connection to the side that records are carried to."""

    def position(self, topic: str) -> BridgePosition | None:
        """Return where a topic continues; None: nothing of it was carried.

        Raises: TargetDownError, FencedError.
        """
        ...

    def put(self, batches: Sequence[TopicBatch]) -> None:
        """Store the messages with their positions; return when they are stored.

        After an error any prefix of each topic's messages may be there, with its position.
        Raises: TargetDownError, FencedError, OversizeError.
        """
        ...

    def close(self) -> None: ...


class BridgeTarget(Protocol):
    """The side that records are carried to."""

    def open(self) -> TargetSession:
        """Raises: TargetDownError; UsageError, what is there cannot be used."""
        ...


def oversize_mark(message: BridgeMessage, size: int, limit: int) -> BridgeMessage:
    """Return the mark that takes the place of a message that is too large."""
    text = msgspec.json.encode({"seq": message.seq, "bytes": size, "limit": limit})
    return BridgeMessage(message.seq, text, None, ((OVERSIZE, str(size).encode()),), message.ts, is_mark=True)
