"""Waits for news of several topics at once. Source: wire contract 7.8, R-WAIT.

A parked wait is among the waiters of each topic it names, and for each absent one in
`core.awaited`. So it costs nothing until one of them changes, and then a check of that one. Its
answer is made in a turn of the pass's reads, because thousands may wait for one topic.
"""

from __future__ import annotations

from typing import Protocol

from topics.config import Config
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import CatchUpFirst, CreationWaiter
from topics.engine.values.ports import LoopPort, TimerPort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import Done, KnownTopic, TopicHead
from topics.errors import TopicsError

Heads = dict[str, TopicHead | None]
"""The heads of all named topics; None: the topic does not exist."""

_BYTES_AN_ANSWER, _BYTES_A_NAME = 2048, 256
"""Shares of a pass's budget for reads: an answer costs as much as rendering these bytes."""


Awaited = dict[str, dict[CreationWaiter, None]]
"""See `Core.awaited`."""


class WaitCore(Protocol):
    """The part of the core that a wait needs."""

    awaited: Awaited
    bounds: ReadBounds
    closing: bool
    config: Config
    loop: LoopPort
    registry: Registry
    turns: ReadTurns
    waits: int
    waited_topics: int


class Wait:
    """One wait; `done` is called once, unless it is cancelled before."""

    def __init__(
        self,
        core: WaitCore,
        catch_up: CatchUpFirst,
        known: dict[str, KnownTopic],
        wait_ms: int,
        done: Done[Heads],
    ) -> None:
        self._core = core
        self._catch_up = catch_up
        self._known = known
        self._wait_ms = core.bounds.wait_ms(wait_ms)
        self._done: Done[Heads] | None = done
        self._behind = 1
        """Number of topics whose routers have not caught up, plus one for `begin`."""
        self._timer: TimerPort | None = None
        self._places: list[Place] = []
        """Places at which it is parked."""
        self._final = not wait_ms or core.closing
        """Whether the present heads are the answer, news or not."""
        self._answers = False
        """Whether the answer is to be made."""

    def begin(self) -> None:
        """Look once routers into the topics have caught up (R-RTR-4)."""
        core = self._core
        if not self._final:
            self._timer = core.loop.call_later(self._wait_ms * 1_000_000, self._on_deadline)
        for name in self._known:
            topic = core.registry.visible(name)
            if topic is not None and topic.feeders:
                self._behind += 1
                self._catch_up(topic, self._caught_up)
        self._caught_up()

    def cancel(self) -> None:
        """Give up the answer."""
        self._done = None
        self._leave()

    def _caught_up(self) -> None:
        self._behind -= 1
        if self._behind or self._done is None:
            return
        is_over = self._final or self._core.closing
        if is_over or any(self._is_news(name, known) for name, known in self._known.items()):
            self.answer_soon()
        else:
            self._park()

    def _is_news(self, name: str, known: KnownTopic) -> bool:
        topic = self._core.registry.visible(name)
        if topic is None:
            return bool(known.seq) or known.incarnation is not None
        if known.incarnation is not None and known.incarnation != topic.incarnation:
            return True
        return topic.head != known.seq

    # --- parked ------------------------------------------------------------------------------------------------------
    def _park(self) -> None:
        """Wait at all topics. They were checked in the same step, so that no change is missed."""
        core = self._core
        config, count = core.config, len(self._known)
        for limit, most, held in (
            ("max_waits", config.max_waits, core.waits + 1),
            ("max_waited_topics", config.max_waited_topics, core.waited_topics + count),
        ):
            if 0 < most < held:
                self._answer(refusals.limit_reached(limit, most))
                return
        core.waits += 1
        core.waited_topics += count
        visible = core.registry.visible
        self._places = [Place(self, name, visible(name), known.seq) for name, known in self._known.items()]
        for place in self._places:
            place.enter(core.awaited)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._places:
            for place in self._places:
                place.leave(self._core.awaited)
            self._core.waited_topics -= len(self._places)
            self._places = []
            self._core.waits -= 1

    def _on_deadline(self) -> None:
        self._timer = None
        self._final = True
        if not self._behind:
            self.answer_soon()

    # --- the answer --------------------------------------------------------------------------------------------------
    def answer_soon(self) -> None:
        """Answer in this pass, or when the reads of others leave room for it."""
        if not self._answers:
            self._answers = True
            self._core.turns.take(self._answer_now)

    def _answer_now(self) -> None:
        if self._done is None:
            return
        self._core.turns.spend(_BYTES_AN_ANSWER + _BYTES_A_NAME * len(self._known))
        visible = self._core.registry.visible
        self._answer({name: _head_of(visible(name)) for name in self._known})

    def _answer(self, result: Heads | TopicsError) -> None:
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(result)


class Place:
    """A wait's place at one topic: a Waiter (waiters.py), or in line for the topic's creation."""

    __slots__ = ("_name", "_seq", "_topic", "_wait")

    def __init__(self, wait: Wait, name: str, topic: Topic | None, seq: int | None) -> None:
        """Make the place. seq: the head that is no news; None: any head is news."""
        self._wait = wait
        self._name = name
        self._topic = topic
        self._seq = seq

    def enter(self, awaited: Awaited) -> None:
        if self._topic is not None:
            self._topic.waiters[self] = None
        else:
            awaited.setdefault(self._name, {})[self] = None

    def leave(self, awaited: Awaited) -> None:
        if self._topic is not None:
            self._topic.waiters.pop(self, None)
        elif (line := awaited.get(self._name)) is not None:
            line.pop(self, None)
            if not line:
                del awaited[self._name]

    def on_topic_made(self, topic: Topic) -> None:
        """Note that the topic exists now, with the records written by the end of the pass."""
        self._topic = topic
        self._seq = None
        topic.waiters[self] = None

    def look_again(self) -> None:
        assert self._topic is not None, "a change of a topic that does not exist"
        if self._topic.head != self._seq:
            self._wait.answer_soon()

    def on_topic_gone(self) -> None:
        self._wait.answer_soon()

    def on_shutdown(self) -> None:
        self._wait.answer_soon()


def _head_of(topic: Topic | None) -> TopicHead | None:
    return None if topic is None else TopicHead(topic.head, topic.incarnation)
