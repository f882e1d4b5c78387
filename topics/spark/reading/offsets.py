"""Offsets of a stream: for each topic the next seq to read, and its incarnation.

    {"v": 1, "topics": {"orders": {"next": 18, "of": "9f2c5e0d11aa73b4"}}}

Spark stores this JSON in the checkpoint unchanged and returns it. Two members are only present if a
batch needs them to be read again with an equal result:

    "lost": [[from, to, reason], ...]   seqs of this batch that planning knew to be lost
    "from": n                           first seq of a topic in the first batch of a query. Spark
                                        does not store the initial offset, and after a restart
                                        `latest` may be another seq
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topics.spark.errors import OptionError

VERSION = 1
RECREATED = "recreated"
DELETED = "topic_deleted"
"""Reasons of losses that no tombstone reports: the topic was created again, or deleted."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Lost seqs, both ends included.

    reason: that of a tombstone, or RECREATED for seqs of the former incarnation.
    """

    from_seq: int
    to_seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class Position:
    """A stream's position in one topic.

    next: the first seq not read yet; of: the incarnation; lost: losses in the batch up to it.
    """

    next: int
    of: str
    lost: tuple[LostRange, ...] = ()
    first: int | None = None
    """The member "from" of the JSON."""


def to_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Return the offset that Spark stores, with topics in the order of their names."""
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
    """Return the positions of an offset.

    Raises: OptionError for a checkpoint of another version or source.
    """
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
