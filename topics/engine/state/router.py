"""The state of a router: its settings, and its position in its source.

A topic knows its routers, and a router its two topics: `Router`, which knows what its ends are, is
defined beside `Topic`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from topics.common.transitions import Transitions
from topics.common.values.configs import Predicate, RouterConfig
from topics.engine.state.router_work import WORK, RouterWork

HOPS_MAX = 8
"""A record that was forwarded this often is not forwarded again (R-RTR-12)."""


class StoredConfig(msgspec.Struct, array_like=True):
    """The durable settings, as control frames and snapshots hold them."""

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
    """The creation is not durable yet: the router is invisible and forwards nothing."""
    LIVE = 2
    DELETING = 3
    """The deletion is in flight: the router forwards nothing more."""
    GONE = 4


ROUTER_LIVES = Transitions(
    {
        RouterLife.CREATING: (RouterLife.LIVE, RouterLife.GONE),
        RouterLife.LIVE: (RouterLife.DELETING, RouterLife.GONE),
        RouterLife.DELETING: (RouterLife.LIVE, RouterLife.GONE),
        RouterLife.GONE: (),
    }
)
"""A live router is gone with its topic. A deletion that failed leaves it live."""

_BEFORE_GONE = ROUTER_LIVES.before(RouterLife.GONE)

UNKNOWN = -1
ABOVE_ALL = 1 << 64
"""Above every seq."""


class RouterEnd(Protocol):
    """A source or destination, as far as the state of a router uses it."""

    head: int


End = TypeVar("End", bound=RouterEnd)


class RouterOf(Generic[End]):
    """Forwards records of `source` after seq `position`, which moves when a forward is applied.

    token: what both halves of a router between two cores have, 16 hex digits; "": both ends are
    here. is_unsure: whether the link, its other half, may have another position. known_head: the
    source's head when this process began, until the link has answered; a position above it is that
    of records which were lost since. is_awaited: whether a reader waits for the destination on its
    core, as far as this one knows.
    """

    __slots__ = (
        "blocked",
        "changing",
        "config",
        "dest",
        "evidence",
        "examined",
        "forwarded",
        "id",
        "is_awaited",
        "is_unsure",
        "keeping",
        "kept",
        "kept_bytes",
        "kept_seqs",
        "known_head",
        "life",
        "name",
        "order",
        "own",
        "parked",
        "position",
        "source",
        "token",
        "unmarked",
        "unshared_through",
        "waiting",
        "work",
    )

    def __init__(self, name: str, router_id: int, source: End, dest: End, config: RouterConfig) -> None:
        self.name = name
        self.id = router_id
        """The order number of its creation, which is never reused."""
        self.order = router_id
        """The order number of its latest frame."""
        self.source = source
        self.dest = dest
        self.config = config
        self.token = ""
        self.is_unsure = self.is_awaited = False
        self.known_head = ABOVE_ALL
        self.changing = 0
        """The number of changes of `config` in flight."""
        self.life = RouterLife.CREATING
        self.position = 0
        """Every source record up to here was forwarded, or need not be."""
        self.forwarded = 0
        """The counter `forwarded_total` (R-RTR-15)."""
        self.unshared_through = 0
        """Source seqs up to here may precede the router's creation in the log, where a replay skips
        them. They are never copied by position.
        """
        # --- at work
        self.work = RouterWork.IDLE
        """Changed by `enter`."""
        self.blocked = False
        """Whether the last step ended because the destination had no room, or the log accepted
        nothing.
        """
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        """Readers that wait until `position` reaches a seq."""
        self.parked: list[Callable[[], None]] = []
        """Changes that wait for the outcome of a deletion."""
        self.kept: dict[int, bytes] = {}
        """Frames of jobs acknowledged while the router could not forward them, by source seq
        (R-RTR-18).
        """
        self.kept_seqs: list[int] = []
        """The keys of `kept`, ascending: there may be very many, and each step needs the first."""
        self.keeping: dict[int, bytes] = {}
        """Frames of jobs whose ack is in flight, or came too late: their outcome is undecided."""
        self.kept_bytes = 0
        """The bytes of all frames in `kept` and `keeping`."""
        # --- exactly_once
        self.examined = 0
        """Destination records up to here were searched for evidence (R-EO-3)."""
        self.unmarked = UNKNOWN
        """Destination records up to here may be copies without FLAG_ROUTED, written by a version
        without that flag: only their meta can identify them. UNKNOWN: such a version stored the
        router.
        """
        self.own: list[tuple[int, int]] = []
        """Runs of destination seqs above `examined`, ascending, that the log shows to be copies of
        records up to `position`. They need not be searched.
        """
        self.evidence: dict[int, int] = {}
        """Source seqs above `position` whose copies are in the destination already, with the copy's
        seq.
        """

    def enter_life(self, life: RouterLife) -> None:
        """Begin another stage of the router's life."""
        self.life = ROUTER_LIVES.check(self.life, life)

    def leave_life(self) -> None:
        """Begin the last stage, in a pass in which perhaps 10,000 routers do."""
        if self.life not in _BEFORE_GONE:
            raise ROUTER_LIVES.error(self.life, RouterLife.GONE)
        self.life = RouterLife.GONE

    def enter(self, work: RouterWork) -> None:
        """Begin other work, which may follow the present one."""
        self.work = WORK.check(self.work, work)

    def resume_parked(self) -> None:
        """Repeat the changes that waited for a creation or deletion, which is decided."""
        parked, self.parked = self.parked, []
        for change in parked:
            change()

    def keep(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Hold frames of jobs that are about to be acknowledged, by source seq."""
        for seq, frame in frames:
            if seq not in self.kept and seq not in self.keeping:
                self.kept_bytes += len(frame)
                self.keeping[seq] = frame

    def consumed(self, runs: list[int]) -> None:
        """Note that the acks of these jobs are done.

        runs: first and last seq of each, ascending.
        """
        for seq in list(self.keeping):
            at = bisect_right(runs, seq)
            if at % 2 or (at and runs[at - 1] == seq):
                self.kept[seq] = self.keeping.pop(seq)
                insort(self.kept_seqs, seq)

    def copied(self, first: int, last: int, before: int) -> None:
        """Note that these destination seqs are its copies.

        before: the destination's last seq before the step that made them.
        """
        if self.examined == before:
            self.examined = last
        elif self.own and self.own[-1][1] == before:
            self.own[-1] = (self.own[-1][0], last)
        elif last > self.examined:
            self.own.append((first, last))

    def drop_kept(self) -> None:
        """Drop held frames up to `position`."""
        passed = bisect_right(self.kept_seqs, self.position)
        gone = [self.kept.pop(seq) for seq in self.kept_seqs[:passed]]
        del self.kept_seqs[:passed]
        gone += [self.keeping.pop(seq) for seq in list(self.keeping) if seq <= self.position]
        self.kept_bytes -= sum(map(len, gone))

    @property
    def highest_seen(self) -> int:
        """The highest source seq that the router has met; no seq up to here may be reused."""
        return max(self.position, *self.kept_seqs[-1:], *self.keeping, 0)

    @property
    def lags(self) -> bool:
        """Whether there may be records after its position."""
        return self.is_unsure or self.position < self.source.head
