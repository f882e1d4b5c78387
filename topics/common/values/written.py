"""Values that a caller writes: records with their labels, and the name of a producer's part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

Values = Iterable[Any]
"""Records for `append`: bytes, JSON-encodable values, or NewRecord for tag, node, meta."""
BYTES_TYPES = bytes, bytearray, memoryview
"""The types of a record's data that is stored as it is."""


class NewRecord(NamedTuple):
    """One record to append.

    data: bytes, a bytearray or a memoryview, stored as they are; or any value that msgspec encodes
    as JSON, as is meta. meta, tag, node: None for absent. delay_ms: a job of a queue is claimable
    so many milliseconds after its `ts`. ttl_ms: the record expires so many milliseconds after its
    `ts`; 0: as the topic says.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    delay_ms: int = 0
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Producer:
    """Name of a part of a producer's records; see docs/guides/producers.md.

    A write with the same name and the same records appends nothing, even much later, and answers as
    the first one.
    """

    id: str
    """Id of the producer: a job, a stream."""
    epoch: int
    """Number that grows from run to run, or from batch to batch; 0 to 2^63-1."""
    part: int = 0
    """Number of the part in its epoch; 0 to 65535."""
    piece: int = 0
    """Number of the piece in its part, if that comes in several calls: 0, 1, 2, ... to 65535."""
    last: bool = True
    """Whether this is the last piece. Readers see no piece before the last one is there."""
    attempt: str = ""
    """Name of one attempt at sending the pieces."""
