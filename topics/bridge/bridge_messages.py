"""The messages that a bridge carries out of a server, the names of their headers, and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

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


def oversize_mark(message: BridgeMessage, size: int, limit: int) -> BridgeMessage:
    """Return the mark that takes the place of a message that is too large."""
    text = msgspec.json.encode({"seq": message.seq, "bytes": size, "limit": limit})
    return BridgeMessage(message.seq, text, None, ((OVERSIZE, str(size).encode()),), message.ts, is_mark=True)
