"""One answer of the server to a diff, as columns: what each decoder returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class Columns:
    """Records as columns, ascending by seq.

    data, meta: JSON texts in UTF-8; meta is b"" for a record without it, and data for one of bytes.
    base64: data of a record of bytes; None for one of JSON.
    """

    seqs: list[int]
    times_ms: list[int]
    tags: list[str | None]
    nodes: list[str | None]
    data: list[bytes]
    meta: list[bytes]
    base64: list[str | None]

    def refuse_incomplete(self) -> None:
        """Raise ValueError unless each record has data."""
        if b"" in self.data:
            for seq, data, base64 in zip(self.seqs, self.data, self.base64, strict=True):
                if not data and base64 is None:
                    raise ValueError(f"the server's answer to a diff lacks the data of record {seq}")

    def bytes(self) -> int:
        """Return the size of all data, where base64 counts for its own length."""
        return sum(map(len, self.data)) + sum(len(text) for text in self.base64 if text is not None)


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
