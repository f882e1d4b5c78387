"""Offsets of a stream: for each topic the next seq to read, and the incarnation it belongs to.

    {"v": 1, "topics": {"orders": {"next": 18, "of": "9f2c5e0d11aa73b4"}}}

Spark keeps this JSON in the checkpoint as it is and hands it back. Two members are only there when
they are needed to read a batch again in the same way:

    "lost": [[from, to, reason], ...]   seqs of this batch that planning knew to be lost
    "from": n                           where a topic begins in the first batch of a query. Spark does not keep
                                        the initial offset, and `latest` moves on until a restart
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topics.spark.errors import OptionError

VERSION = 1
RECREATED = "recreated"
DELETED = "topic_deleted"
"""Reasons of losses that no tombstone reports: the topic was made again, or deleted."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Lost seqs, both ends included. reason: that of a tombstone, or RECREATED for the incarnation before this one."""

    from_seq: int
    to_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Position:
    """A stream's place in one topic. next: the first seq not read yet; of: the topic's incarnation."""

    next: int
    of: str
    lost: tuple[LostRange, ...] = ()
    first: int | None = None
    """The JSON's "from"."""


def to_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Return the offset that Spark keeps, topics in the order of their names."""
    topics: dict[str, Any] = {}
    for name in sorted(positions):
        position = positions[name]
        entry: dict[str, Any] = {"next": position.next, "of": position.of}
        if position.lost:
            entry["lost"] = [[lost.from_seq, lost.to_seq, lost.reason] for lost in position.lost]
        if position.first is not None:
            entry["from"] = position.first
        topics[name] = entry
    return {"v": VERSION, "topics": topics}


def from_json(offset: Mapping[str, Any]) -> dict[str, Position]:
    """Return the positions of an offset. Raises: OptionError, the checkpoint is of another version or source."""
    if offset.get("v") != VERSION or not isinstance(offset.get("topics"), dict):
        raise OptionError(
            f"the checkpoint holds an offset of version {offset.get('v')!r}, and this one reads {VERSION}: "
            "use the version of topics that wrote it, or begin with another checkpointLocation"
        )
    try:
        return {
            name: Position(
                int(entry["next"]),
                str(entry["of"]),
                tuple(LostRange(int(low), int(high), str(reason)) for low, high, reason in entry.get("lost", ())),
                entry.get("from"),
            )
            for name, entry in offset["topics"].items()
        }
    except (KeyError, TypeError, ValueError):
        raise OptionError("the checkpoint's offset is damaged: begin with another checkpointLocation") from None
