"""The engine's shared state: topics, the store below, the clock, work at the end of a pass."""

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
    """The state of one engine.

    `log`, `reader`, `memory` and `requested` exist from `use` on, after recovery.
    """

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
        """The wall-clock times from (inclusive) and until (exclusive) which nothing expires in any
        topic.
        """
        self.log_refusals = 0
        """Appends and creations refused because of a long log."""
        self.closing = False
        """Whether waiting has ended: long polls answer at once."""
        self.awake: dict[Topic, None] = {}
        """Changed topics with waiters; drained at the end of the pass."""
        self.awaited: dict[str, dict[Place, None]] = {}
        """Queued waits for the creation of a topic, by its name."""
        self.waits = 0
        """The number of parked requests: waits (wait.py), and those for a checkpoint."""
        self.waited_topics = 0
        """The number of topic names in all parked waits."""
        self.checkpoint_waits: dict[CheckpointWait, None] = {}
        """Requests that wait for a checkpoint to end."""
        self.reads = SharedReads(self)
        self.bounds = ReadBounds.of(config)
        self.turns = ReadTurns(loop, config.pass_read_bytes)
        self.searches = StepQueue(config.pass_search_steps or 1 << 62)
        """Searches for records that are to be deleted."""
        self.cohorts = Cohorts(self)
        self.routers = Routers()
        self.forwarding: Forwarding
        self.forwardable: dict[Topic, None] = {}
        """Sources of routers with records published since the last look of the routers."""
        self.scheduler = Scheduler(self)
        self.filled: list[Topic] = []
        """Topics whose batch takes no more rows after the end of the pass."""
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
        """Check that the disk keeps up. Raises: RequestError throttled, it lags too far."""
        if self.log.is_backlogged():
            raise refusals.backlogged()

    def check_log(self) -> None:
        """Check that records or topics may be added.

        Raises: RequestError throttled, the disk lags, or the log has its maximum length (R-LOG-2).
        """
        self.check_backlog()
        retry_ms = self.log.append_retry_ms()
        if retry_ms:
            self.log_refusals += 1
            raise refusals.log_too_long(retry_ms)

    def catch_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """Call `then` once all records now in the sources of the topic's routers are forwarded.

        Without routers it is called at once. It is called in any case: a router without room in its
        destination is not waited for. Every read of a topic calls this first (R-RTR-4).
        """
        if topic.feeders:
            self.forwarding.catch_up(topic, then)
        else:
            then()

    def tell_made(self, topic: Topic) -> None:
        """Notify the waits for a topic's creation; they look at the end of the pass."""
        line = self.awaited.pop(topic.name, None)
        if line is not None:
            for place in line:
                place.on_topic_made(topic)
            self.wake(topic)

    def wake(self, topic: Topic) -> None:
        """Let the topic's waiters look again at the end of the pass, after a change or a loss."""
        if topic.waiters:
            self.awake[topic] = None
