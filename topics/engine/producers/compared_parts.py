"""Pieces of parts that were appended before: compared, and not stored. Source: R-PROD-11."""

from __future__ import annotations

from topics.engine.state.known_producers import PartEntry
from topics.engine.state.producer_part import Part
from topics.engine.state.staged_parts import Name, PartPiece, StagedPart, repeated_piece
from topics.engine.values.results import AppendResult
from topics.errors import RequestError

_PIECES_MAX = 65_536
"""Most pieces of all parts, at some 200 bytes of memory each."""


class ComparedParts:
    """Pieces received so far of each part, the oldest parts first.

    When all parts have more than `_PIECES_MAX`, the oldest part is forgotten: its sender begins
    again.
    """

    def __init__(self) -> None:
        self.parts: dict[Name, StagedPart] = {}
        self._pieces = 0

    def compare(  # noqa: PLR0917 - called in one place
        self,
        name: Name,
        topic: str,
        part: Part,
        piece: PartPiece,
        before: StagedPart | None,
        entry: PartEntry,
        now_ms: int,
    ) -> AppendResult | RequestError:
        """Return the answer to a piece.

        before: earlier pieces of the attempt, None for piece 0. entry: the part, whole.
        """
        if part.last:
            assert before is not None, "a last piece has one before it"
            total = before.total.plus(piece)
            return entry.answer_to(topic, part, (total.records, total.sum))
        self.remove(name)
        before = before or StagedPart(part.attempt)
        before.add(piece)
        self.add(name, before, now_ms)
        return repeated_piece(piece.records)

    def add(self, name: Name, part: StagedPart, now_ms: int) -> None:
        """Add a part, as the newest one; its pieces do not change before it is removed."""
        self.remove(name)
        part.last_ms = now_ms
        self.parts[name] = part
        self._pieces += len(part.pieces)
        while self._pieces > _PIECES_MAX and len(self.parts) > 1:
            self.remove(next(iter(self.parts)))

    def remove(self, name: Name) -> None:
        """Remove a part, if it is in the table."""
        part = self.parts.pop(name, None)
        if part is not None:
            self._pieces -= len(part.pieces)
