"""One topic: its config, numbers and index, and the operations that are not decided yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from topics.common.transitions import Transitions
from topics.config import DURABILITIES
from topics.engine.index.expiries import Expiries
from topics.engine.index.index import Index
from topics.engine.index.usage import Usage
from topics.engine.state.append_request import Waiting
from topics.engine.state.hops import Hops
from topics.engine.state.idempotency import KeyStore
from topics.engine.state.known_producers import Producers
from topics.engine.state.leases import Leases
from topics.engine.state.named_reader import NO_HOLD, TopicReaders
from topics.engine.state.router import RouterOf
from topics.engine.state.topic_numbers import TopicNumbers
from topics.engine.state.waiters import Waiter
from topics.engine.values.priority import effective_priority
from topics.engine.values.results import QueueState, TopicState
from topics.engine.values.topic_config import DEFAULT, TopicConfig
from topics.errors import TopicsError
from topics.store.format.floors import Floors, Gap

_FREED_A_STEP = 16
"""Blocks of gaps that became floors and that one step frees: a millisecond at most."""
_FAILED_MOST = 100
"""Most jobs with attempts that a state shows (R-Q-34)."""
STAGING = " staged"
"""The name of the staging area, in the log and in snapshots; no topic can have it."""


class Life(Enum):
    CREATING = 1
    """Its creation is not durable yet: readers do not see it, writes are queued after it."""
    LIVE = 2
    DELETING = 3
    """Its deletion is in flight: readers still see it, changes wait for the outcome."""
    GONE = 4


LIVES = Transitions(
    {
        Life.CREATING: (Life.LIVE, Life.DELETING, Life.GONE),
        Life.LIVE: (Life.DELETING, Life.GONE),
        Life.DELETING: (Life.LIVE, Life.GONE),
        Life.GONE: (),
    }
)
"""A deletion may be queued after the creation. A live topic is gone if a start finds a newer one of
its name. A deletion that failed leaves the topic live.
"""


class PendingExpiry(Protocol):
    """An expiry that is staged and not applied: see write/retention.py."""

    ttl: int
    """The records up to this seq expire."""
    seqs: list[int]
    """Records that expire by a ttl of their own, too."""
    then: list[Callable[[TopicsError | None], None]]
    """Callbacks that wait for its end."""


class Topic(TopicNumbers):
    """One topic: `config` and values derived from it, the index, the waiters.

    `TopicNumbers` has the numbers.
    """

    __slots__ = (
        "config",
        "config_doubtful",
        "consumed_ms",
        "expiries",
        "expiry",
        "feeders",
        "floors",
        "hops",
        "id",
        "incarnation",
        "index",
        "is_far",
        "is_made",
        "keys",
        "keys_forgotten",
        "last_read_ms",
        "life",
        "memory_through",
        "name",
        "needs_only_seqs",
        "next_config",
        "order",
        "parked",
        "plain",
        "producers",
        "queue",
        "readers",
        "routers",
        "running",
        "stage_class",
        "waiters",
        "writable",
    )

    def __init__(  # noqa: PLR0917 - what makes a topic
        self, name: str, topic_id: int, config: TopicConfig, order: int, usage: Usage, incarnation: str
    ) -> None:
        super().__init__()
        self.name = name
        self.id = topic_id
        self.incarnation = incarnation
        """It changes whenever seqs may name other records: see incarnation.py."""
        self.order = order
        """The number of the latest create or config frame of this topic, in one sequence over all
        topics.
        """
        self.config = self.next_config = config
        """The config that readers and retention apply, and the latest one staged. Changed by
        `set_config`, as are the next four.
        """
        self.stage_class = config.durability
        """The class in which writes are staged."""
        self.plain = False
        """Whether, by its config, an append needs no admission first, and of retention at most the
        expiry of what is older than `ttl_ms`.
        """
        self.writable = False
        """Whether a write may take the short way: it needs its seqs, and by `ttl_ms` an expiry
        first.
        """
        self.needs_only_seqs = False
        """Whether `writable` holds and a write is its seqs and a place in the log: class
        `ephemeral` has none, and no `ttl_ms` asks for an expiry first.
        """
        self.life = Life.CREATING
        """Changed by `enter`."""
        self.is_far = False
        """Whether it stands in for a topic of another core: see `stand_in`."""
        self.is_made = False
        """Its creation is durable. Without that readers do not see it, even while it is being
        deleted.
        """
        self.memory_through = 0
        """Records up to here may be in memory although the class is no longer `ephemeral`: see
        evictions.py.
        """
        self.floors = Floors()
        self.index = Index(usage)
        self.keys: KeyStore | None = None
        self.keys_forgotten = 0
        """A restart in class `ephemeral` forgot keys and producers' parts of writes up to this seq,
        whatever the log holds of them.
        """
        self.producers: Producers | None = None
        self.running: dict[Hashable, Waiting] | None = None
        """Identities of writes in flight, with the duplicates that wait for each; None stands for
        {}.
        """
        self.queue = Leases(self.index, self.floors, usage.max_attempts) if config.is_queue else None
        """The leases of a queue; None for a log."""
        self.expiries: Expiries | None = None
        """When records with a ttl of their own expire; None without such records. Changed by
        `set_expiries`.
        """
        # --- staged
        self.config_doubtful = False
        """A change failed and may yet be found after a restart, so that `config` is not durable by
        itself.
        """
        self.expiry: PendingExpiry | None = None
        """The latest expiry that is staged and not applied."""
        self.parked: list[Callable[[], None]] = []
        """Changes that wait for the outcome of a deletion."""
        # --- routers
        self.routers: tuple[Router, ...] = ()
        """Routers with this topic as source."""
        self.feeders: tuple[Router, ...] = ()
        """Routers with this topic as destination."""
        self.hops: Hops | None = None
        """The hops of copies that may be forwarded further; None if there are none."""
        # --- readers
        self.readers: TopicReaders | None = None
        """The named readers; None if there are none."""
        self.waiters: dict[Waiter, None] = {}
        """Waiters that are notified of changes, in order of arrival: see
        `topics.engine.state.waiters`.
        """
        self.last_read_ms = 0
        self.consumed_ms = 0
        self.set_config(config, config)

    def set_config(self, applied: TopicConfig, staged: TopicConfig) -> None:
        """Set the config that readers and retention apply, and the latest one staged.

        Usually they are the same. A write is staged in the stronger of both classes, because it may
        be acknowledged after the change (R-CFG-3).
        """
        self.config, self.next_config = applied, staged
        self.stop_filling()
        self.stage_class = max(applied.durability, staged.durability, key=DURABILITIES.index)
        self.plain = (
            applied.discard == "old"
            and not self.memory_through
            and not self.index.usage.has_quota
            and self.held == NO_HOLD
            and self.expiries is None
        )
        self._note_writable()
        self.has_caps = applied.discard == "old" and bool(applied.cap_records or applied.cap_bytes)
        self.need_reservation(self.stage_class == "disk")

    def enter(self, life: Life) -> None:
        """Begin another stage of the topic's life."""
        self.life = LIVES.check(self.life, life)
        self._note_writable()

    def _note_writable(self) -> None:
        self.writable = self.plain and self.life is Life.LIVE
        self.needs_only_seqs = self.writable and self.stage_class != "ephemeral" and not self.config.ttl_ms

    def set_expiries(self, expiries: Expiries | None) -> None:
        """Begin, or end, to have records with a ttl of their own."""
        self.expiries = expiries
        self.set_config(self.config, self.next_config)

    def note_ends(self, seqs: Sequence[int], ends: Sequence[int]) -> None:
        """Note visible records, ascending, with a ttl of their own. ends: the last ms of each."""
        self.made_expiries().add(seqs, ends)

    def made_expiries(self) -> Expiries:
        """Return `expiries`, which are made if there are none."""
        expiries = self.expiries
        if expiries is None:
            expiries = Expiries(self.index)
            self.set_expiries(expiries)
        return expiries

    @property
    def expires(self) -> bool:
        """Whether records may expire."""
        return bool(self.config.ttl_ms) or self.expiries is not None

    def leave_memory(self) -> None:
        """Note that none of the records that count is in memory any more."""
        self.memory_through = 0
        self.set_config(self.config, self.next_config)

    @property
    def earliest(self) -> int:
        """E, the smallest live seq; head + 1 if there is none."""
        return self.index.earliest or self.head + 1

    @property
    def has_memory(self) -> bool:
        """Whether some records may be in memory only (class `ephemeral`)."""
        return self.stage_class == "ephemeral" or 0 < self.index.earliest <= self.memory_through

    @property
    def visible(self) -> bool:
        return self.is_made and self.life is not Life.GONE

    @property
    def awaits_routers(self) -> bool:
        """Whether a reader waits for routers into the topic, of which one may lag (R-RTR-4)."""
        return any(router.lags or router.source.feeders or router.source.is_far for router in self.feeders)

    @property
    def held(self) -> int:
        """Caps and expiry take no record above this seq; `NO_HOLD` if no named reader holds any."""
        return NO_HOLD if self.readers is None else self.readers.held

    @property
    def keeps_leases(self) -> bool:
        """Whether leases survive a restart (R-DUR-11), by the current or the staged config.

        Also while they are logged for a config that will be staged.
        """
        if self.queue is not None and self.queue.is_logged:
            return True
        wanted = self.config.leases_durable or self.next_config.leases_durable
        return wanted and self.stage_class != "ephemeral"

    def enforce_caps(self, upto: int, cap_records: int, cap_bytes: int) -> None:
        """Evict the oldest records until those up to `upto` are within the caps (0 = no cap).

        Source: R-CAP-1, -3, -4.
        """
        index = self.index
        records, size = index.live, index.bytes
        if upto < index.last_seq:
            records, size = index.totals_through(upto)
        over = records - cap_records if cap_records else 0
        over_bytes = size - cap_bytes if cap_bytes else 0
        if over <= 0 and over_bytes <= 0:
            return
        if self.readers is not None and self.readers.held < upto:
            upto = self.readers.held
            if not 0 < index.earliest <= upto:
                return
        if over == 1 and over_bytes <= 0:
            self.floors.raise_to(cap=index.evict_one())
        else:
            self.floors.raise_to(cap=index.evict_oldest(over, over_bytes, upto))
        if self.floors.gaps:
            self.settle_gaps()

    def retain_caps(self) -> None:
        """Enforce the caps of the applied config."""
        if self.has_caps:
            self.enforce_caps(self.head, self.config.cap_records, self.config.cap_bytes)

    def lose_through(self, *, cap: int = 0, ttl: int = 0, deleted: int = 0) -> int:
        """Kill records up to here, evicted, expired or deleted as a prefix; return their number."""
        died = self.index.kill_through(max(cap, ttl, deleted))
        if died and deleted:
            self.index.removals += 1
        self.floors.raise_to(cap=cap, ttl=ttl, deleted=deleted)
        self.settle_gaps()
        return died

    def settle_gaps(self) -> None:
        """Turn gaps with no live record below them into floors."""
        gone = self.floors.settle_gaps(self.earliest)
        if len(gone) > _FREED_A_STEP:
            self.index.usage.reclaim.run(_freed(gone))

    def key_store(self) -> KeyStore:
        if self.keys is None:
            self.keys = KeyStore()
        return self.keys

    def waiting_for(self, identity: Hashable) -> Waiting | None:
        """Return the duplicates that wait for a write of this name in flight; None without one."""
        return None if self.running is None else self.running.get(identity)

    def begin_identity(self, identity: Hashable) -> None:
        """Enter a write of this name, which is in flight."""
        running = self.running
        if running is None:
            running = self.running = {}
        assert identity not in running, "one write of an identity at a time"
        running[identity] = []

    def end_identity(self, identity: Hashable) -> Waiting:
        """Remove a write that is decided; return the duplicates that waited for it."""
        assert self.running is not None, "a write that was begun"
        return self.running.pop(identity)

    def state(self, now_ms: int, *, with_attempts: bool = False) -> TopicState:
        queue = None
        if self.queue is not None:
            counters = self.queue.counters(now_ms)
            failed = self.queue.last_failed(_FAILED_MOST) if with_attempts else ()
            queue = QueueState(*counters, self.queue.dead_lettered, failed, self.queue.delayed_shown())
        return TopicState(
            self.name,
            self.config,
            self.head,
            self.earliest,
            self.index.live,
            self.index.bytes,
            effective_priority(self.config, self.consumed_ms, now_ms),
            self.last_write_ms or None,
            self.last_read_ms or None,
            queue,
            self.incarnation,
        )


def _freed(gone: list[list[Gap]]) -> Iterator[None]:
    while gone:
        del gone[-_FREED_A_STEP:]
        yield


class Router(RouterOf[Topic]):
    """A router between two topics, or the half of one whose ends are on two cores."""

    __slots__ = ()

    @property
    def home(self) -> Topic:
        """The end in whose shard of the log its frames are."""
        return self.source if self.dest.is_far else self.dest


def stand_in(name: str, topic_id: int, usage: Usage) -> Topic:
    """Return what stands in for a topic of another core: it has a name and an id, no records."""
    topic = Topic(name, topic_id, DEFAULT, 0, usage, "")
    topic.enter(Life.LIVE)
    topic.is_far = True
    return topic
