"""One router: its settings, and how far it has come in its source."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topics.engine.values.predicate import Predicate

if TYPE_CHECKING:
    from topics.engine.routers.forward import Forward
    from topics.engine.state.topic import Topic

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
GUARANTEES = (AT_LEAST_ONCE, EXACTLY_ONCE)
HOPS_MAX = 8
"""A record that came this far is not forwarded (R-RTR-12)."""


class RouterConfig(NamedTuple):
    """What a client asks for. Source: wire contract, section 9.1."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Predicate | None = None
    allow_cycle: bool = False
    guarantee: str = AT_LEAST_ONCE


class StoredConfig(msgspec.Struct, array_like=True):
    """The settings that last, as control frames and snapshots hold them."""

    preserve_node: bool
    preserve_tag: bool
    match: tuple[bool, str] | None
    allow_cycle: bool
    guarantee: str

    @classmethod
    def of(cls, config: RouterConfig) -> StoredConfig:
        match = config.filter and (config.filter.is_prefix, config.filter.value.decode())
        return cls(config.preserve_node, config.preserve_tag, match, config.allow_cycle, config.guarantee)

    def config(self, source: str, dest: str) -> RouterConfig:
        match = None if self.match is None else Predicate(self.match[0], self.match[1].encode())
        return RouterConfig(
            source, dest, self.preserve_node, self.preserve_tag, True, match, self.allow_cycle, self.guarantee
        )


class RouterLife(Enum):
    CREATING = 1
    """Not durable yet: nobody sees it, it forwards nothing."""
    LIVE = 2
    DELETING = 3
    """Its deletion is on its way: it forwards nothing more."""
    GONE = 4


UNKNOWN = -1


class Router:
    """Forwards what comes into `source` behind seq `position`, which moves when a forward is applied."""

    __slots__ = (
        "blocked",
        "busy",
        "changing",
        "config",
        "dest",
        "evidence",
        "examined",
        "flight",
        "forwarded",
        "id",
        "keeping",
        "kept",
        "kept_bytes",
        "kept_seqs",
        "life",
        "name",
        "order",
        "own",
        "parked",
        "position",
        "source",
        "unmarked",
        "untied",
        "waiting",
    )

    def __init__(self, name: str, router_id: int, source: Topic, dest: Topic, config: RouterConfig) -> None:
        self.name = name
        self.id = router_id
        """The order number of its creation: never used again."""
        self.order = router_id
        """Of its latest frame."""
        self.source = source
        self.dest = dest
        self.config = config
        self.changing = 0
        """So many changes of `config` are on their way."""
        self.life = RouterLife.CREATING
        self.position = 0
        """Every source record up to here was forwarded, or was found to be none of ours."""
        self.forwarded = 0
        """`forwarded_total` (R-RTR-15)."""
        self.untied = 0
        """Source seqs up to here may lie before the router's creation in the log, and a replay passes them by: they are
        never copied by position."""
        # --- at work
        self.busy = False
        """A step waits for something: retention, a read, a commit."""
        self.flight: Forward | None = None
        self.blocked = False
        """The last attempt found no room in the destination, or the log took nothing."""
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        """Readers that wait until `position` reaches a seq."""
        self.parked: list[Callable[[], None]] = []
        """Changes that wait for the outcome of a deletion."""
        self.kept: dict[int, bytes] = {}
        """Frames of jobs that were acknowledged while the router could not forward them, by source seq (R-RTR-18)."""
        self.kept_seqs: list[int] = []
        """The keys of `kept`, ascending: there may be very many, and each step asks for the first."""
        self.keeping: dict[int, bytes] = {}
        """Frames of jobs whose ack is on its way, or came too late: what becomes of these is not decided."""
        self.kept_bytes = 0
        """Of all of both."""
        # --- exactly_once
        self.examined = 0
        """Destination records up to here were looked at for evidence (R-EO-3)."""
        self.unmarked = UNKNOWN
        """Destination records up to here may be copies without FLAG_ROUTED, by a build that did not know it: of these
        the meta alone is asked. UNKNOWN: a build like that stored the router."""
        self.own: list[tuple[int, int]] = []
        """Runs of destination seqs above `examined` that the log says are its own copies of what lies at or below
        `position`: ascending; need not be looked at."""
        self.evidence: dict[int, int] = {}
        """Source seqs above `position` found in the destination already: the seq of the record there."""

    def keep(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """frames: by source seq, of jobs that are about to be acknowledged."""
        for seq, frame in frames:
            if seq not in self.kept and seq not in self.keeping:
                self.kept_bytes += len(frame)
                self.keeping[seq] = frame

    def consumed(self, runs: list[int]) -> None:
        """The acks of these jobs are done: first and last seq of each run, ascending."""
        for seq in list(self.keeping):
            at = bisect_right(runs, seq)
            if at % 2 or (at and runs[at - 1] == seq):
                self.kept[seq] = self.keeping.pop(seq)
                insort(self.kept_seqs, seq)

    def copied(self, first: int, last: int, before: int) -> None:
        """These seqs of the destination are its copies. before: the seq that the step which made them came behind."""
        if self.examined == before:
            self.examined = last
        elif self.own and self.own[-1][1] == before:
            self.own[-1] = (self.own[-1][0], last)
        elif last > self.examined:
            self.own.append((first, last))

    def drop_kept(self) -> None:
        """Those up to `position`."""
        passed = bisect_right(self.kept_seqs, self.position)
        gone = [self.kept.pop(seq) for seq in self.kept_seqs[:passed]]
        del self.kept_seqs[:passed]
        gone += [self.keeping.pop(seq) for seq in list(self.keeping) if seq <= self.position]
        self.kept_bytes -= sum(map(len, gone))

    @property
    def highest_seen(self) -> int:
        """No seq of the source up to here may be given out again."""
        return max(self.position, *self.kept_seqs[-1:], *self.keeping, 0)

    @property
    def is_behind(self) -> bool:
        return self.position < self.source.head
