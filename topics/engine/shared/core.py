"""What the parts of the engine share: topics, the store below, the clock, and who is told at the end of the pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.clock import Clock
from topics.config import Config
from topics.engine.delivery.cohort import Cohorts
from topics.engine.index.pending_delete_flags import PendingDeleteFlags
from topics.engine.index.usage import Usage
from topics.engine.read.shared_reads import SharedReads
from topics.engine.scheduling.scheduler import Scheduler
from topics.engine.shared.lease_ids import LeaseIds
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.known_producers import ProducerTotals
from topics.engine.state.staged_parts import StagedParts
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort, LoopPort, ReaderPort, RequestedPort, StorePort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.step_queue import StepQueue
from topics.store.format.file_table import FileTable
from topics.store.in_memory.ephemeral import EphemeralFrames

if TYPE_CHECKING:
    from topics.engine.producers.stager import Stager
    from topics.engine.read.wait import Place
    from topics.engine.recovery.checkpoint_requests import CheckpointWait
    from topics.engine.routers.forwarding import Forwarding
    from topics.engine.write.appender import Appender


class Core:
    """One engine's state. `log`, `reader`, `memory` and `requested` are there from `use` on, after recovery."""

    appender: Appender

    log: LogPort
    files: FileTable
    reader: ReaderPort
    memory: EphemeralFrames
    requested: RequestedPort

    def __init__(self, loop: LoopPort, config: Config) -> None:
        self.loop = loop
        self.clock: Clock = loop.clock
        self.config = config
        self.usage = Usage(has_quota=config.max_total_bytes > 0)
        self.registry = Registry(self.usage)
        self.producers = ProducerTotals(config)
        self.staged = StagedParts()
        self.stager: Stager
        self.quiet_from_ms = self.quiet_until_ms = 0
        """From one to before the other, by the wall clock, nothing expires in any topic."""
        self.log_refusals = 0
        """Appends and creations refused because of a long log."""
        self.closing = False
        """No more waiting: long polls answer at once."""
        self.awake: dict[Topic, None] = {}
        """Topics that changed while somebody waited for that; drained at the end of the pass."""
        self.awaited: dict[str, dict[Place, None]] = {}
        """Places in line for the creation of a topic, by its name."""
        self.waits = 0
        """Requests that are parked: waits (wait.py), and those for a checkpoint."""
        self.waited_topics = 0
        """Names in all waits that are parked."""
        self.checkpoint_waits: dict[CheckpointWait, None] = {}
        """Requests that wait for a checkpoint to end."""
        self.reads = SharedReads(self)
        self.bounds = ReadBounds.of(config)
        self.turns = ReadTurns(loop, config.pass_read_bytes)
        self.searches = StepQueue(config.pass_search_steps or 1 << 62)
        """For records that are to be deleted."""
        self.cohorts = Cohorts(self)
        self.routers = Routers()
        self.forwarding: Forwarding
        self.forwardable: dict[Topic, None] = {}
        """Sources of routers with records published since the routers looked last."""
        self.scheduler = Scheduler(self)
        self.filled: list[Topic] = []
        """Topics whose batch takes no more rows from the end of the pass on."""
        self.in_log: set[int] = set()
        """Ids of topics with rows in files of the log, and a few more."""
        self.lease_ids = LeaseIds(self)
        self.deletions = PendingDeleteFlags(self.usage)
        """Rows in sealed files deleted one by one since the last checkpoint."""

    def use(self, store: StorePort) -> None:
        self.log = store.log
        self.files = store.files
        self.reader = store.reader
        self.memory = store.memory
        self.requested = store.requested
        self.usage.use(store.files, store.memory)
        self.usage.reclaim.use(self.loop)
        self.searches.use(self.loop)

    def check_backlog(self) -> None:
        """Raises RequestError throttled while the disk is too far behind."""
        if self.log.is_backlogged():
            raise refusals.backlogged()

    def check_log(self) -> None:
        """The same for what brings records or topics: refused, too, while the log is as long as it may be (R-LOG-2)."""
        self.check_backlog()
        retry_ms = self.log.append_retry_ms()
        if retry_ms:
            self.log_refusals += 1
            raise refusals.log_too_long(retry_ms)

    def catch_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """Calls `then` when what the sources of a topic's routers hold now was forwarded; at once without routers.

        It is called in any case, also when a router cannot go on: what waits for space is not waited for. Whoever reads
        a topic comes through here first (R-RTR-4).
        """
        if topic.feeders:
            self.forwarding.catch_up(topic, then)
        else:
            then()

    def tell_made(self, topic: Topic) -> None:
        """Tell the waits for a topic's creation that it is there; they look at the end of the pass."""
        line = self.awaited.pop(topic.name, None)
        if line is not None:
            for place in line:
                place.on_topic_made(topic)
            self.wake(topic)

    def wake(self, topic: Topic) -> None:
        """Something became readable, or was lost: the topic's waiters look again at the end of the pass."""
        if topic.waiters:
            self.awake[topic] = None
