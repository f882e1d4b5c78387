"""One topic as a snapshot has it: what it lost, and the pieces its records lie in."""

from __future__ import annotations

from typing import Any

from topics.files.piece import Loss, Piece
from topics.store.floors import Floors, Gap


class TopicFiles:
    """One topic as of one snapshot. Seqs are inclusive on both ends everywhere.

    What costs reads of files is worked out when it is asked for, once: floors, gaps and earliest of a topic with a
    ttl or with gaps, and pieces of one with a ttl.
    """

    name: str
    id: int
    incarnation: str
    """16 hex digits: another one means that seqs may name other records."""
    durability: str
    """`ephemeral`, `memory`, `disk` or `fsync`. Records of an ephemeral topic are in no file."""
    config: dict[str, Any]
    """The 17 fields of the wire contract."""
    head: int
    """The highest seq these files answer for: every record up to here is in them, or gone."""
    seen_head: int
    """The highest seq given out when the snapshot was taken. Records above `head` were in the log alone."""

    @property
    def floors(self) -> Floors:
        """The marks, with what had expired when the snapshot was taken."""
        raise NotImplementedError

    @property
    def gaps(self) -> list[Gap]:
        """Lost seqs between records that live, ascending."""
        return self.floors.gaps

    @property
    def earliest(self) -> int:
        """The first live seq in the files, head + 1 when there is none."""
        raise NotImplementedError

    @property
    def first_kept(self) -> int:
        """The first seq that is neither lost nor deleted by a prefix: where "earliest" begins. Costs no read without
        a ttl."""
        raise NotImplementedError

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All live records up to `head`, in seq order."""
        raise NotImplementedError

    def plan(self, from_seq: int, to_seq: int) -> list[Piece]:
        """The pieces of a range, clipped to it."""
        return [part for piece in self.pieces if (part := piece.clip(from_seq, to_seq)) is not None]

    def losses(self, from_seq: int, to_seq: int) -> list[Loss]:
        """What a reader that goes from `from_seq` to `to_seq` is told, as `diff` tells it, clipped to the range.

        Ascending, without overlap. `to_seq` above `head` is cut to it.
        """
        raise NotImplementedError

    def first_seq_at(self, ts_ms: int) -> int:
        """The first live seq whose ts is at or after `ts_ms`; head + 1 when there is none in the files."""
        raise NotImplementedError
