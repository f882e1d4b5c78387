"""The engine's shared state: topics, the store below, the clock, work at the end of a pass.

It holds values and ports, and no part of the engine. Each part names in a Protocol beside it what
it needs of this state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from topics.clock import Clock
from topics.config import Config
from topics.engine.shared.expiry_turns import EXPIRED_A_PASS, ExpiryTurns
from topics.engine.shared.held_appends import HeldAppends
from topics.engine.shared.job_counts import JobCounts
from topics.engine.shared.limits import Limits
from topics.engine.shared.outside import Outside
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.stored_state import StoredState
from topics.engine.state.topic import Topic
from topics.engine.state.waiters import EndsAtShutdown
from topics.engine.state.wakes import NOTICES_A_STEP, CreationWaiter, PrefixWaits
from topics.engine.values.ports import FormatPort, LogPort, LoopPort, ReaderPort, RequestedPort, StorePort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.step_queue import StepQueue

_NOTICES_A_PASS = 2048
"""Waits by prefix that are notified in a pass, each once for each topic: 2 to 3 ms."""
_PARTED_A_PASS = 4096
"""Subscriptions or parts of waits of clients that have left that a pass ends: 3 ms. A lease counts
as some of them.
"""


class OpenStreak(Protocol):
    """A streak of lone writes: see write/write_streak.py."""

    def end(self) -> None: ...


class Core:
    """The state of one engine, from the end of recovery on."""

    def __init__(self, loop: LoopPort, config: Config, stored: StoredState, store: StorePort, outside: Outside) -> None:
        self.loop = loop
        self.clock: Clock = loop.clock
        self.config = config
        self.bounds = ReadBounds.of(config)
        # --- the store
        self.log: LogPort = store.log
        self.reader: ReaderPort = store.reader
        self.requested: RequestedPort = store.requested
        self.format: FormatPort = store.format
        # --- what recovery has found
        self.files = stored.files
        self.memory = stored.memory
        self.usage = stored.usage
        self.registry = stored.registry
        self.routers = stored.routers
        self.producers = stored.producers
        self.staged = stored.staged
        self.lease_ids = stored.lease_ids
        self.in_log = stored.in_log
        self.deletions = stored.deletions
        # --- until the next start
        self.closing = False
        """Whether waiting has ended: long polls answer at once."""
        self.job_counts = JobCounts()
        self.log_refusals = 0
        """Appends and creations refused because of a long log."""
        self.quiet_from_ms = self.quiet_until_ms = 0
        """The wall-clock times from and until (exclusive) which nothing expires in any topic."""
        self.expiry_round: Iterator[Topic] | None = None
        """The topics that a full quota has still to look at; None: all were looked at."""
        self.streak: OpenStreak | None = None
        """The last streak of lone writes. Another lone write, which takes its place, ends it."""
        # --- this pass
        self.awake: dict[Topic, None] = {}
        """Changed topics with waiters; drained at the end of the pass."""
        self.forwardable: dict[Topic, None] = {}
        """Sources of routers with records published since the last look of the routers."""
        self.filled: list[Topic] = []
        """Topics whose batch takes no more rows after the end of the pass."""
        self.routed: dict[Topic, None] = {}
        """Topics with routers and staged records, of which the batch may carry a step."""
        self.turns = ReadTurns.of(loop, config, outside.is_memory_short)
        self.expiring = ExpiryTurns(loop, EXPIRED_A_PASS)
        self.searches = StepQueue(loop, config.pass_search_steps or 1 << 62)
        """Searches for records that are to be deleted."""
        self.notices = StepQueue(loop, _NOTICES_A_PASS // NOTICES_A_STEP)
        self.partings = StepQueue(loop, _PARTED_A_PASS, 2 * _PARTED_A_PASS)
        # --- waits
        self.held_appends = HeldAppends()
        """Appends that wait before they are staged."""
        self.awaited: dict[str, dict[CreationWaiter, None]] = {}
        """Queued waits for the creation of a topic, by its name."""
        self.prefix_waits = PrefixWaits()
        """Waits for the creation of any topic whose name begins with a prefix."""
        self.checkpoint_waits: dict[EndsAtShutdown, None] = {}
        """Requests that wait for a checkpoint to end."""
        self.waits = self.waited_topics = 0
        """The numbers of parked requests, for a checkpoint, too, and of topics that they name."""
        self.limits = Limits(config, self, outside.ask_for_room)
