"""Routers as the wire contract states them: all that can be forwarded is. Source: R-RTR, R-EO, R-TRIM."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.long.model.model_topic import Record, Topic, matches

HOPS_MAX = 8


@dataclass(eq=False)
class Told:
    """The meta of a copy of an exactly-once router: what it says of its origin is known, its number is read first."""

    router: str
    source: str
    seq: int
    original: Any
    actual: dict[str, Any] | None = None

    def learn(self, meta: Any) -> None:
        """R-EO-1, R-EO-2, R-EO-4; fails when this meta is another copy's."""
        told = meta["_topics_router"]
        assert (told["router"], told["source_topic"], told["source_seq"]) == (self.router, self.source, self.seq), told
        key = f"router:{self.router}:{told['source_topic_id']}:{told['source_epoch']}:{self.seq}"
        assert told["idempotency_key"] == key, told
        original = self.original
        while isinstance(original, Told):  # the copy that this is a copy of may not have been read
            original = original.original
        rest = {name: value for name, value in meta.items() if name != "_topics_router"}
        assert rest == {name: value for name, value in (original or {}).items() if name != "_topics_router"}, meta
        self.actual = meta


@dataclass
class Router:
    name: str
    source: str
    dest: str
    position: int
    tag: str | None = None
    keep_tag: bool = True
    keep_node: bool = True
    exactly_once: bool = False
    forwarded: int = 0
    kept: dict[int, Record] = field(default_factory=dict)
    """Jobs that were acknowledged before they could be forwarded (R-RTR-18)."""

    def step(self, source: Topic, dest: Topic, since: int, now: int) -> bool:
        """Forward as far as there is room; return whether that is any way at all."""
        before = self.position
        rows = self.kept | source.live  # what was acknowledged is not lost, whatever the source has lost
        for seq in sorted(seq for seq in rows if seq > self.position):
            self._pass_lost(dest, min(source.lost, seq - 1))
            record = rows[seq]
            if self._passes(record):
                copy = self._copy(record)
                if not dest.room([copy.size]):
                    self.position = seq - 1  # what was deleted before it is passed
                    break
                dest.add(now, [copy], since)
                self.forwarded += 1
            self.position = seq
        else:
            self._pass_lost(dest, source.lost)
            self.position = source.head
        self.kept = {seq: record for seq, record in self.kept.items() if seq > self.position}
        return self.position != before

    def _pass_lost(self, dest: Topic, last: int) -> None:
        """R-TRIM-1."""
        if last > self.position:
            dest.add_holes(last - self.position)
            self.forwarded += last - self.position
            self.position = last

    def _passes(self, record: Record) -> bool:
        if record.hops >= HOPS_MAX:
            return False
        return self.tag is None or (record.tag is not None and matches(self.tag, record.tag))

    def _copy(self, record: Record) -> Record:
        meta = Told(self.name, self.source, record.seq, record.meta) if self.exactly_once else record.meta
        return replace(
            record,
            tag=record.tag if self.keep_tag else None,
            node=record.node if self.keep_node else None,
            meta=meta,
            hops=record.hops + 1,
            delay_ms=0,
            ttl_ms=0,
        )


def closes_a_cycle(routers: dict[str, Router], name: str, source: str, dest: str) -> bool:
    """R-RTR-9: whether `source` is reached from `dest` over every edge but the router's own."""
    reached, new = {dest}, True
    while new:
        before = len(reached)
        reached |= {each.dest for each in routers.values() if each.name != name and each.source in reached}
        new = len(reached) != before
    return source in reached
