"""Creation, change and deletion of topics, each durable before it is answered.

Source: wire contract 7.1, 7.4, 7.17, R-REC, R-CFG, R-PATCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

import msgspec

from topics.common.id_blocks import IdSet
from topics.config import Config
from topics.engine.index.usage import Usage
from topics.engine.shared.limits import Limits
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.control_frames import (
    NO_MOVE,
    ConfigPayload,
    CreatePayload,
    LeasesPayload,
    encode,
)
from topics.engine.state.leases import Leases
from topics.engine.state.router import RouterLife
from topics.engine.state.staged_operations import Operation, Turn
from topics.engine.state.topic import STAGING, Life, Router, Topic
from topics.engine.state.wakes import CreationCore, notify_made, wake
from topics.engine.values import incarnation
from topics.engine.values.floor_marks import FloorMarks
from topics.engine.values.name_rules import check_topic_name
from topics.engine.values.ports import FormatPort, LogPort, LoopPort
from topics.engine.values.results import DeleteTopicResult, Done, PatchResult, PutResult
from topics.engine.values.topic_config import DEFAULT, ConfigPatch, TopicConfig, check_dead_letter_of, make_config
from topics.engine.write.admission import LogRoomCore, check_backlog, check_log
from topics.engine.write.evictions import EvictionCore, is_busy, log_caps, log_evictions
from topics.engine.write.first_leases import all_leases, begin_to_log
from topics.engine.write.gone_records import GoneRecords
from topics.engine.write.reader_frames import log_positions
from topics.engine.write.retention import ExpiryCore, expire, when_retained
from topics.errors import TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.log_format import FrameType
from topics.store.format.rows import any_delayed
from topics.store.layouts.directory_names import DIRECTORY_FORMAT


class LifecycleCore(ExpiryCore, CreationCore, EvictionCore, LogRoomCore, Protocol):
    """The part of the core that the changes of topics need."""

    config: Config
    format: FormatPort
    limits: Limits
    loop: LoopPort
    usage: Usage
    registry: Registry
    routers: Routers
    in_log: IdSet
    quiet_until_ms: int


class TopicRouters(Protocol):
    """The routers' work, as far as it depends on the life of a topic."""

    def catch_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """See `CatchUpFirst`."""

    def note(self, router: Router) -> bool:
        """Note that the router may lag."""

    def forget(self, *gone: Router) -> Iterator[None]:
        """Let go who waits for deleted routers; return the steps that remove their state."""

    def report(self, gone: Sequence[Router], then: Callable[[], None]) -> Iterator[None]:
        """Return the steps that report routers gone with a topic to the cores of their halves.

        `then` is called once these have answered, at once if there are none.
        """


class Creation(Operation[LifecycleCore]):
    """A creation, the first operation in its topic's queue.

    `done` is None if a write created the topic.
    """

    __slots__ = ("done",)

    def __init__(self, core: LifecycleCore, topic: Topic, done: Done[PutResult] | None) -> None:
        super().__init__(core, topic)
        self.done = done

    def apply(self, commit: Commit) -> None:
        self.core.quiet_until_ms = 0
        self.core.registry.show(self.topic)
        if self.topic.life is Life.CREATING:  # Its deletion may already be queued after it.
            self.topic.enter(Life.LIVE)
        if (self.core.awaited or self.core.prefix_waits) and self.topic.name != STAGING:
            notify_made(self.core, self.topic)
        if self.done is not None:
            self.done(PutResult(True, self.topic.config))

    def fail(self, error: TopicsError) -> None:
        """Remove the topic, which never existed; operations queued after this one fail, too."""
        self.core.registry.remove(self.topic)
        if self.done is not None:
            self.done(error)


class Reconfiguration(Operation[LifecycleCore]):
    __slots__ = ("config", "done", "order")

    def __init__(
        self, core: LifecycleCore, topic: Topic, config: TopicConfig, order: int, done: Done[PutResult]
    ) -> None:
        super().__init__(core, topic)
        self.config = config
        self.order = order
        self.done = done

    def apply(self, commit: Commit) -> None:
        """Apply the config: records, seqs, floors and keys stay, tighter caps apply (R-CFG-2)."""
        topic = self.topic
        topic.order = self.order
        topic.config_doubtful = False
        self.core.registry.configure(topic, self.config, topic.next_config)
        self.core.quiet_until_ms = 0
        topic.retain_caps()
        wake(self.core, topic)
        self.done(PutResult(False, self.config))

    def fail(self, error: TopicsError) -> None:
        topic = self.topic
        topic.config_doubtful = True
        if topic.next_config is self.config:
            topic.set_config(topic.config, topic.config)
        self.done(error)


class Removal(Operation[LifecycleCore]):
    """The end of a topic. Nothing is queued after it: changes wait for the outcome."""

    __slots__ = ("done", "forget_pieces", "forwarding", "routers")

    def __init__(
        self,
        core: LifecycleCore,
        forwarding: TopicRouters,
        forget_pieces: Callable[[int], None],
        topic: Topic,
        done: Done[DeleteTopicResult],
    ) -> None:
        super().__init__(core, topic)
        self.forwarding = forwarding
        self.forget_pieces = forget_pieces
        self.routers = core.routers.of_topic(topic)
        """The topic's routers, by name. Some may be deleted before the topic; none is added."""
        self.done = done

    def apply(self, commit: Commit) -> None:
        topic = self.topic
        topic.index.kill_through(topic.head)
        self.core.registry.remove(topic)
        self.forget_pieces(topic.id)
        self.core.in_log.discard(topic.id)
        gone = RouterLife.GONE
        routers = [router for router in self.routers if router.life is not gone]
        self.routers = []
        released = self.core.routers.remove_in_steps(routers)
        forgotten = self.forwarding.forget(*routers)
        answer = partial(self.done, DeleteTopicResult(True, [router.name for router in routers]))
        reported = self.forwarding.report(routers, answer)
        for waiter in list(topic.waiters):
            waiter.on_topic_gone()
        self._resume()
        del routers
        self.core.usage.reclaim.run(chain(reported, released, forgotten))

    def fail(self, error: TopicsError) -> None:
        if self.topic.is_made:
            self.topic.enter(Life.LIVE)
        # They may have become idle meanwhile.
        for router in self.core.routers.of_topic(self.topic):
            self.forwarding.note(router)
        self.done(error)
        self._resume()

    def _resume(self) -> None:
        parked, self.topic.parked = self.topic.parked, []
        for resume in parked:
            resume()


class Lifecycle:
    """Stages the operations above. Methods answer through `done`; those that raise document it."""

    def __init__(self, core: LifecycleCore, forwarding: TopicRouters, forget_pieces: Callable[[int], None]) -> None:
        """forget_pieces: takes the id of a topic that is gone; its staged pieces are dropped."""
        self._core = core
        self._forwarding = forwarding
        self._forget_pieces = forget_pieces
        self._config_of_writes = make_config(durability=core.config.durability)
        """The config of topics that writes without one create (R-DUR-17)."""
        self._gone: dict[Topic, GoneRecords] = {}
        """By topic, what is stated before it leaves class `ephemeral`."""

    def put(self, name: str, config: TopicConfig, done: Done[PutResult]) -> None:
        topic = self._core.registry.named(name)
        try:
            if topic is not None and topic.life is Life.DELETING:
                topic.parked.append(lambda: self.put(name, config, done))
            elif self.lacks_format(name, config):
                self._check_format(topic, config, name)
                self._raise_format(done, lambda: self.put(name, config, done))
            elif topic is None:
                self._create(name, config, done)
            else:
                check_dead_letter_of(config, name)
                self._reconfigure(topic, config, done, lambda: self.put(name, config, done))
        except TopicsError as error:
            done(error)

    def patch(self, name: str, patch: ConfigPatch, done: Done[PatchResult]) -> None:
        """Change what a patch names in the config that all changes before this one leave."""
        topic = self._core.registry.named(name)
        if topic is None:
            done(refusals.topic_not_found(name))
            return
        if topic.life is Life.DELETING:
            topic.parked.append(lambda: self.patch(name, patch, done))
            return
        before = topic.next_config

        def on_put(result: PutResult | TopicsError) -> None:
            done(result if isinstance(result, TopicsError) else PatchResult(before, result.config))

        try:
            after = patch.applied_to(before)
            if self.lacks_format(name, after):
                self._check_format(topic, after, name)
                self._raise_format(done, lambda: self.patch(name, patch, done))
                return
            check_dead_letter_of(after, name)
            self._reconfigure(topic, after, on_put, lambda: self.patch(name, patch, done))
        except TopicsError as error:
            done(error)

    def create_for(self, request: AppendRequest) -> Topic:
        """Create the topic that a write asks for. Raises: as `check_creation`."""
        config = self.check_creation(request)
        return self._stage_creation(request.topic, config, None, begins_batch=request.frames is not None)

    def check_creation(self, request: AppendRequest) -> TopicConfig:
        """Return the config of the topic that a write would create; nothing is created.

        Raises: RequestError, the first failing check of 7.5, 2 to 5, throttled or batch_too_large.
        """
        config, name = request.config, request.topic
        if config is not None and request.may_create_with_config is not True:
            raise request.may_create_with_config
        if request.violation is not None:
            raise request.violation
        if request.incarnation is not None:
            raise refusals.incarnation_mismatch(name, None)
        wanted = request.create
        if wanted is None:
            wanted = config is None or config.auto_create
        if not wanted:
            raise refusals.topic_not_found(name)
        config = config or self._config_of_writes
        if not config.is_queue and any_delayed(request.rows.spans):
            raise refusals.not_a_queue_for_delays(name)
        self._check_new(name, config)
        request.check_frames()
        return config

    def create_missing(self, names: Sequence[str]) -> list[Topic]:
        """Return the topics of these names; create missing ones with the default config.

        All or none are created (R-RTR-10). Raises: RequestError.
        """
        registry = self._core.registry
        missing = [name for name in names if registry.named(name) is None]
        if missing:
            self._core.limits.topics.check(len(missing))
        return [registry.named(name) or self._create(name, DEFAULT, None) for name in names]

    def _create(self, name: str, config: TopicConfig, done: Done[PutResult] | None) -> Topic:
        self._check_new(name, config)
        return self._stage_creation(name, config, done)

    def _check_new(self, name: str, config: TopicConfig) -> None:
        check_topic_name(name)
        check_dead_letter_of(config, name)
        self._core.limits.topics.check()
        check_log(self._core)

    def lacks_format(self, name: str, config: TopicConfig | None) -> bool:
        """Return whether the directory needs another format for a config.

        An older build would make a dead-letter topic of another core on this one.
        """
        other = None if config is None else config.dead_letter
        if other is None or self._core.format.number >= DIRECTORY_FORMAT:
            return False
        return self._core.registry.are_apart(name, other)

    def _check_format(self, topic: Topic | None, config: TopicConfig, name: str) -> None:
        """Check what does not get as far as a format that is raised. Raises: TopicsError."""
        if topic is None:
            self._check_new(name, config)
            return
        check_dead_letter_of(config, name)
        self._check_change(topic, config)
        check_backlog(self._core.log)
        self._core.log.check_writable()

    @staticmethod
    def _check_change(topic: Topic, config: TopicConfig) -> None:
        """Check that a topic may have another config. Raises: RequestError."""
        if config.type != topic.config.type:
            raise refusals.incompatible_type(topic, config.type)
        if incarnation.ends_with_process(config) and any(router.token for router in (*topic.routers, *topic.feeders)):
            raise refusals.router_between_weak(topic.name)

    def _raise_format(self, done: Done[Any], then: Callable[[], None]) -> None:
        """Raise the format of the directory, and call `then`, or `done` with the error."""

        def on_raised(error: TopicsError | None) -> None:
            if error is not None:
                done(error)
            else:
                then()

        self._core.format.when_raised(DIRECTORY_FORMAT, on_raised)

    def staging(self) -> Topic:
        """Return the staging area of producers, which the first piece creates.

        Raises: as a creation.
        """
        if self._core.registry.staging is None:
            check_log(self._core)
            return self._stage_creation(STAGING, DEFAULT, None)
        return self._core.registry.staging

    def _stage_creation(
        self, name: str, config: TopicConfig, done: Done[PutResult] | None, *, begins_batch: bool = False
    ) -> Topic:
        """Stage a creation.

        begins_batch: its frame begins a batch, which prebuilt frames may end.
        """
        core = self._core
        drawn = incarnation.draw(core.loop.random_bytes)
        topic = Topic(name, core.registry.take_id(), config, core.registry.take_order(), core.usage, drawn)
        payload = encode(CreatePayload(name, msgspec.Raw(config.as_json()), drawn))
        if begins_batch:
            core.log.begin_batch(topic.id)
        core.log.stage_control(topic.id, FrameType.TOPIC_CREATE, topic.order, core.clock.now_ms(), payload)
        core.registry.add(topic)
        Creation(core, topic, done).stage(synced=True)
        return topic

    def _reconfigure(self, topic: Topic, config: TopicConfig, done: Done[PutResult], again: Callable[[], None]) -> None:
        """Stage a change of a topic's config.

        again: repeats the request, after a wait for the topic's operations before it.
        """
        core = self._core
        self._check_change(topic, config)
        now_ms = core.clock.now_ms()
        expire(core, topic, now_ms)  # Records that the old ttl_ms has expired stay expired.
        leaves_memory = topic.stage_class == "ephemeral" or topic.memory_through > 0
        if config.durability != "ephemeral" and leaves_memory and (topic.filling is not None or is_busy(topic)):
            # The list of deleted seqs (below) is built from the applied state, as are the caps'
            # evictions.
            Turn(core, topic, again, done).wait()
            return
        check_backlog(core.log)
        # A deletion that failed with the log may be found after a restart.
        core.log.check_writable()
        unchanged = config is topic.config and config is topic.next_config and topic.life is Life.LIVE
        if unchanged and not topic.config_doubtful:
            done(PutResult(False, config))
            return

        def on_logged(error: TopicsError | None) -> None:
            if error is None:
                again()
            else:
                self._gone.pop(topic, None)
                done(error)

        begins_to_keep = _keeps_leases(config) and not _keeps_leases(topic.next_config)
        if topic.queue is not None and begins_to_keep and begin_to_log(core, topic, topic.queue, on_logged):
            return
        leaves_ephemeral = topic.stage_class == "ephemeral" and config.durability != "ephemeral"
        if leaves_ephemeral and self._gone_of(topic).begin(on_logged):
            return
        with core.log.use_reserve():  # A smaller cap, or a ttl_ms, frees space.
            order = self._stage_configuration(topic, config, now_ms)
        leaves_disk = _leaves_disk(topic, config)
        topic.set_config(topic.config, config)
        # The next change may return to class `disk` before this one is applied.
        if leaves_disk and topic.stage_class == "disk":
            topic.lose_reservation()
        Reconfiguration(core, topic, config, order, done).stage(synced=True)

    def _stage_configuration(self, topic: Topic, config: TopicConfig, now_ms: int) -> int:
        """Stage the frames that a replay needs for the change; return its order number.

        Raises: LogReadOnlyError.
        """
        core = self._core
        upto = topic.next_seq - 1
        # Records that the old caps have evicted stay evicted, too. (In class `ephemeral`, the
        # floors and the list below state everything.)
        log_caps(core.log, topic, now_ms)
        if topic.queue is not None and _keeps_leases(topic.next_config) != _keeps_leases(config):
            # From here on, either the existing leases survive a restart, too, or a restart forgets
            # them.
            leases = all_leases(topic.queue) if _keeps_leases(config) else LeasesPayload(forgotten=True)
            core.log.stage_control(topic.id, FrameType.LEASES, upto, now_ms, encode(leases))
        if topic.queue is not None and topic.queue.when_logged is None:
            topic.queue.is_logged = False  # The config states it from here on.
        change = ConfigPayload(msgspec.Raw(config.as_json()), incarnation=topic.incarnation)
        if topic.stage_class == "ephemeral":
            change.head = upto
            if config.durability != "ephemeral":
                if topic.readers is not None:  # Their positions are not in the log yet.
                    log_positions(core.log, topic, now_ms)
                # No frame states which records from a time in another class are gone since.
                change.floors = FloorMarks.of(topic.floors)
                change.keys_forgotten = topic.keys_forgotten
                self._gone_of(topic).state_rest(now_ms)
                del self._gone[topic]
                topic.memory_through = topic.head
        if _leaves_disk(topic, config):
            # This frame and all before it are synced, so the new class decides what a crash may
            # lose.
            change.generation = topic.generation
        order = core.registry.take_order()
        core.log.stage_control(topic.id, FrameType.TOPIC_CONFIG, order, now_ms, encode(change))
        was_ephemeral, is_ephemeral = topic.stage_class == "ephemeral", config.durability == "ephemeral"
        if topic.queue is not None and was_ephemeral != is_ephemeral:
            topic.queue.forget_moved()
            if was_ephemeral and core.format.number >= DIRECTORY_FORMAT:  # else there was none
                _state_move(core.log, topic, topic.queue, now_ms)
        if config.durability != "ephemeral":
            log_evictions(core, topic, config)
        return order

    def _gone_of(self, topic: Topic) -> GoneRecords:
        gone = self._gone.get(topic)
        if gone is None:
            gone = self._gone[topic] = GoneRecords(self._core, topic)
        return gone

    def delete(self, name: str, *, if_empty: bool, done: Done[DeleteTopicResult]) -> None:
        topic = self._core.registry.named(name)
        if topic is None:
            try:
                # A creation that failed with the log may be found after a restart.
                self._core.log.check_writable()
            except TopicsError as error:
                done(error)
            else:
                done(DeleteTopicResult(False, []))
        elif topic.life is Life.DELETING:
            topic.parked.append(lambda: self.delete(name, if_empty=if_empty, done=done))
        elif if_empty:

            def on_retained(error: TopicsError | None) -> None:
                if error is not None:
                    done(error)
                elif topic.life in (Life.DELETING, Life.GONE):  # The topic changed during the wait.
                    self.delete(name, if_empty=True, done=done)
                elif count := topic.index.live + topic.pending_records:
                    done(refusals.topic_not_empty(name, count))
                else:
                    self._remove(topic, done)

            core = self._core
            self._forwarding.catch_up(topic, lambda: when_retained(core, topic, core.clock.now_ms(), on_retained))
        else:
            self._remove(topic, done)

    def _remove(self, topic: Topic, done: Done[DeleteTopicResult]) -> None:
        core = self._core
        order = core.registry.take_order()
        try:
            check_backlog(core.log)
            with core.log.use_reserve():
                core.log.stage_control(topic.id, FrameType.TOPIC_DELETE, order, core.clock.now_ms(), b"{}")
        except TopicsError as error:
            done(error)
            return
        topic.enter(Life.DELETING)
        self._gone.pop(topic, None)
        Removal(core, self._forwarding, self._forget_pieces, topic, done).stage(synced=True)


def _state_move(log: LogPort, topic: Topic, leases: Leases, now_ms: int) -> None:
    """State the move of a queue that leaves class `ephemeral`, whose moves are in no log.

    So a start finds none from before that time, whose seqs may be those of other jobs by then.
    """
    move = leases.move or NO_MOVE
    log.stage_control(topic.id, FrameType.LEASES, topic.next_seq - 1, now_ms, encode(LeasesPayload(move=move)))


def _leaves_disk(topic: Topic, config: TopicConfig) -> bool:
    return topic.stage_class == "disk" and config.durability != "disk"


def _keeps_leases(config: TopicConfig) -> bool:
    return config.leases_durable and config.durability != "ephemeral"
