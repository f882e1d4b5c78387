"""One answer of the server to a diff, as columns: what each decoder returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from topics.spark.errors import BytesRowError


@dataclass(slots=True)
class Columns:
    """Records as columns, ascending by seq.

    data, meta: JSON texts in UTF-8; meta is b"" for a record without it, and data for one of bytes.
    """

    seqs: list[int]
    times_ms: list[int]
    tags: list[str | None]
    nodes: list[str | None]
    data: list[bytes]
    meta: list[bytes]


def refuse_bytes(columns: Columns) -> None:
    """Check that each record has JSON. Raises: BytesRowError for the first that is bytes."""
    if b"" in columns.data:
        raise BytesRowError(columns.seqs[columns.data.index(b"")])


class PageLoss(NamedTuple):
    """A tombstone: first and last lost seq, and the reason."""

    gap_from: int
    gap_to: int
    reason: str


class DiffPage(NamedTuple):
    """One answer of the server to a diff."""

    columns: Columns
    next_from_seq: int
    head: int
    lost: PageLoss | None
