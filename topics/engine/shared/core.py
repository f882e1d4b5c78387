"""The engine's shared state: topics, the store below, the clock, work at the end of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.clock import Clock
from topics.config import Config
from topics.engine.delivery.cohort import Cohorts
from topics.engine.read.shared_reads import SharedReads
from topics.engine.scheduling.scheduler import Scheduler
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.stored_state import StoredState
from topics.engine.state import refusals
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort, LoopPort, ReaderPort, RequestedPort, StorePort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.step_queue import StepQueue

if TYPE_CHECKING:
    from topics.engine.producers.stager import Stager
    from topics.engine.read.wait import Place
    from topics.engine.recovery.checkpoint_requests import CheckpointWait
    from topics.engine.routers.forwarding import Forwarding
    from topics.engine.write.appender import Appender


class Core:
    """The state of one engine, from the end of recovery on."""

    appender: Appender

    def __init__(self, loop: LoopPort, config: Config, stored: StoredState, store: StorePort) -> None:
        self.loop = loop
        self.clock: Clock = loop.clock
        self.config = config
        # --- the store
        self.log: LogPort = store.log
        self.reader: ReaderPort = store.reader
        self.requested: RequestedPort = store.requested
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
        self.searches = StepQueue(loop, config.pass_search_steps or 1 << 62)
        """Searches for records that are to be deleted."""
        self.cohorts = Cohorts(self)
        self.forwarding: Forwarding
        self.forwardable: dict[Topic, None] = {}
        """Sources of routers with records published since the last look of the routers."""
        self.scheduler = Scheduler(self)
        self.filled: list[Topic] = []
        """Topics whose batch takes no more rows after the end of the pass."""

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
