"""Flush: records of any class put on stable storage on request of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.common.tuples import make_tuple
from topics.engine.shared.dormant import DormantTopic
from topics.engine.shared.held_appends import HeldAppends
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.topic import Topic
from topics.engine.values.ports import LogPort, LoopPort, TimerPort
from topics.engine.values.results import Done, FlushResult, TopicState
from topics.errors import StorageError, TopicsError


class FlushCore(Protocol):
    """The part of the core that a flush needs."""

    log: LogPort
    held_appends: HeldAppends
    loop: LoopPort
    registry: Registry


def synced_seq(log: LogPort, topic: Topic) -> int:
    """Return the seq up to which all of a topic is on stable storage; 0 while some is in memory."""
    if topic.has_memory:
        return 0
    first = log.unsynced_from(topic.id)
    return topic.head if first is None else first - 1


def with_synced_seq(log: LogPort, topic: Topic | DormantTopic | None, state: TopicState) -> TopicState:
    """Return the state of a topic with its `synced_seq`. All of a dormant one is synced."""
    if isinstance(topic, Topic):
        return state._replace(synced_seq=synced_seq(log, topic))
    in_memory = topic is None or state.config.durability == "ephemeral"
    return state._replace(synced_seq=0 if in_memory else state.head_seq)


AfterLine = Callable[[Callable[[], None]], None]
"""Calls its argument once the appends that wait for room now, before the engine, are begun."""


class Flush:
    """One flush. `done` is called once, with the result or the error that prevents it."""

    def __init__(self, core: FlushCore, name: str | None, done: Done[FlushResult]) -> None:
        """name: of a topic; None for all there are."""
        self._core = core
        self._name = name
        self._topic: Topic | None = None
        self._done: Done[FlushResult] | None = done
        self._timer: TimerPort | None = None

    def begin(self, seq: int | None, wait_ms: int | None, after_line: AfterLine) -> None:
        """seq: None for all that the topic has, appends that have begun included.

        wait_ms: None for ever.

        If a seq is given out, all before it are staged. Else the appends in the line come first,
        and then those that wait in the engine.
        """
        if seq is not None:
            self._sync(seq)
        else:
            after_line(lambda: self._after_held(after_line))
        if self._done is not None and wait_ms is not None:
            self._timer = self._core.loop.call_later(wait_ms * 1_000_000, self._on_deadline)

    def _after_held(self, after_line: AfterLine) -> None:
        """Wait for appends that the engine holds. It may send some back to the line."""
        held = self._core.held_appends
        if held:
            held.when_answered(lambda: after_line(self._sync))
        else:
            self._sync()

    def _sync(self, seq: int | None = None) -> None:
        """Wait for the staged batches."""
        if self._done is None:
            return
        try:
            topic = _topic_of(self._core, self._name, seq)
        except TopicsError as error:
            self._answer(error)
            return
        self._topic = topic
        if topic is not None and seq is not None and seq <= synced_seq(self._core.log, topic):
            self._answer(self._result(done=True))
            return
        self._core.log.when_flushed(None if topic is None else topic.id, self._on_flushed)

    def _on_flushed(self, error: StorageError | None) -> None:
        self._answer(error if error is not None else self._result(done=True))

    def _on_deadline(self) -> None:
        self._timer = None
        self._answer(self._result(done=False))

    def _result(self, *, done: bool) -> FlushResult:
        return FlushResult(0 if self._topic is None else synced_seq(self._core.log, self._topic), done)

    def _answer(self, answer: FlushResult | TopicsError) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if done is not None:
            done(answer)


def sync_records(  # noqa: PLR0917 - one caller
    core: FlushCore,
    name: str | None,
    seq: int | None,
    wait_ms: int | None,
    after_line: AfterLine,
    done: Done[FlushResult],
) -> None:
    """See `Engine.sync_records`."""
    Flush(core, name, done).begin(seq, wait_ms, after_line)


def sync_lone(core: FlushCore, name: str | None, seq: int | None) -> FlushResult | None:
    """See `Engine.sync_lone`."""
    if seq is None and core.held_appends:
        return None
    topic = _topic_of(core, name, seq)
    if topic is not None and seq is not None and seq <= (synced := synced_seq(core.log, topic)):
        return FlushResult(synced, True)
    if core.log.sync_lone():  # all there is
        return make_tuple(FlushResult, (0 if topic is None else topic.head, True))
    return None


def _topic_of(core: FlushCore, name: str | None, seq: int | None) -> Topic | None:
    """Return the topic that is to be synced; None for all. Raises: TopicsError, it cannot be."""
    if name is None:
        return None
    topic = core.registry.named(name)
    if topic is None:
        raise refusals.topic_not_found(name)
    if topic.has_memory:
        raise refusals.nothing_to_flush(topic)
    if seq is not None and seq >= topic.next_seq:
        raise refusals.not_given_out(topic, seq, topic.next_seq - 1)
    return topic
