"""Waits for news of several topics at once. Source: wire contract 7.8, R-WAIT.

A parked wait is among the waiters of each topic it names, for each absent one in `core.awaited`,
and for its prefixes in `core.prefix_waits`. So it costs nothing until one of them changes, and then
a check of that one. Its answer is made in a turn of the pass's reads, because thousands may wait
for one topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from topics.common.values.answers import News
from topics.config import Config
from topics.engine.shared.dormant import DormantTopic
from topics.engine.shared.limits import Limits
from topics.engine.shared.read_turns import BYTES_TO_MAKE, ReadTurns
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import CatchUpFirst, CreationWaiter, PrefixWaits
from topics.engine.values.ports import LoopPort, TimerPort
from topics.engine.values.read_bounds import ReadBounds
from topics.engine.values.results import Done, KnownTopic, TopicHead
from topics.engine.values.step_queue import StepQueue
from topics.errors import TopicsError

_BYTES_AN_ANSWER, _BYTES_A_NAME = 2048, 256
"""Shares of a pass's budget for reads: an answer costs as much as rendering these bytes."""
_PREFIXES_A_STEP = 4
"""Prefixes that a wait leaves in the time of a step of `Core.partings`."""


class WaitCore(Protocol):
    """The part of the core that a wait needs."""

    awaited: dict[str, dict[CreationWaiter, None]]
    bounds: ReadBounds
    closing: bool
    config: Config
    limits: Limits
    loop: LoopPort
    partings: StepQueue
    prefix_waits: PrefixWaits
    registry: Registry
    turns: ReadTurns
    waits: int
    waited_topics: int


class Wait:
    """One wait; `done` is called once, unless it is cancelled before."""

    def __init__(  # noqa: PLR0917 - one call a request
        self,
        core: WaitCore,
        catch_up: CatchUpFirst,
        known: dict[str, KnownTopic],
        starts: Sequence[str],
        wait_ms: int,
        done: Done[News],
    ) -> None:
        """starts: beginnings of names, as `starts_of` returns them."""
        self._core = core
        self._catch_up = catch_up
        self._known = known
        self._starts = starts
        self._wait_ms = core.bounds.wait_ms(wait_ms)
        self._done: Done[News] | None = done
        self._behind = 1
        """Number of topics whose routers have not caught up, plus one for `begin`."""
        self._timer: TimerPort | None = None
        self._places: list[Place | PrefixPlace] = []
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
            if core.registry.is_dormant(name):
                continue  # It has no routers.
            topic = core.registry.visible(name)
            if topic is not None and topic.feeders:
                self._behind += 1
                self._catch_up(topic, self._caught_up)
        self._caught_up()

    def cancel(self) -> None:
        """Give up the answer. The places are left at once, or in turns if there are many."""
        self._done = None
        if places := self._end():
            self._core.partings.run(self._leave_each(places))

    def _caught_up(self) -> None:
        self._behind -= 1
        if self._behind or self._done is None:
            return
        is_over = self._final or self._core.closing
        has_news = any(self._is_news(name, known) for name, known in self._known.items())
        if is_over or has_news or (self.has_room and next(self._unnamed(), None) is not None):
            self.answer_soon()
        elif dormant := [name for name in self._known if self._core.registry.is_dormant(name)]:
            self._behind = 1
            self._make(iter(dormant))
        else:
            self._park()

    def _make(self, dormant: Iterator[str]) -> None:
        """Make the dormant topics in turns, because it may wait at hundreds, and look again."""
        core = self._core
        for name in dormant:
            if self._done is None:
                return
            core.turns.spend(BYTES_TO_MAKE)
            core.registry.named(name)
            if core.turns.left <= 0:
                core.turns.take(partial(self._make, dormant))
                return
        self._caught_up()

    def _is_news(self, name: str, known: KnownTopic) -> bool:
        topic = self._core.registry.listed(name)
        if topic is None:
            return bool(known.seq) or known.incarnation is not None
        if known.incarnation is not None and known.incarnation != topic.incarnation:
            return True
        return topic.head != known.seq

    @property
    def has_room(self) -> bool:
        """Whether the answer may have a topic that is not named."""
        return len(self._known) < self._core.config.max_wait_topics

    def _unnamed(self) -> Iterator[str]:
        """Yield the topics with a prefix that was asked for, except those that are named."""
        known = self._known
        for topic in self._core.registry.beginning_with(self._starts):
            if topic.name not in known:
                yield topic.name

    # --- parked ------------------------------------------------------------------------------------------------------
    def _park(self) -> None:
        """Wait at all topics. They were checked in the same step, so that no change is missed."""
        core = self._core
        count = len(self._known) + len(self._starts)
        for limit, more in ((core.limits.waits, 1), (core.limits.waited_topics, count)):
            if limit.left < more:
                self._answer(limit.refusal(more))
                return
        core.waits += 1
        core.waited_topics += count
        visible = core.registry.visible
        self._places = [Place(self, name, visible(name), known.seq) for name, known in self._known.items()]
        if self._starts:
            self._places.append(PrefixPlace(self, self._starts))
        for place in self._places:
            place.enter(core)

    def _end(self) -> list[Place | PrefixPlace]:
        """End the wait. Return the places that are to be left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        places, self._places = self._places, []
        if places:
            self._core.waited_topics -= len(self._known) + len(self._starts)
            self._core.waits -= 1
        return places

    def _leave_each(self, places: list[Place | PrefixPlace]) -> Iterator[None]:
        for place in places:
            place.leave(self._core)
            for _ in range(place.steps):
                yield

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
        unnamed = self._unnamed() if self._starts else iter(())
        names = [*self._known, *islice(unnamed, self._core.config.max_wait_topics - len(self._known))]
        self._core.turns.spend(_BYTES_AN_ANSWER + _BYTES_A_NAME * len(names))
        listed = self._core.registry.listed
        self._answer(News({name: _head_of(listed(name)) for name in names}, next(unnamed, None)))

    def _answer(self, result: News | TopicsError) -> None:
        done, self._done = self._done, None
        for place in self._end():
            place.leave(self._core)
        if done is not None:
            done(result)


class Place:
    """A wait's place at one topic: a Waiter (waiters.py), or in line for the topic's creation."""

    __slots__ = ("_name", "_seq", "_topic", "_wait")
    steps = 1
    """Steps that leaving it takes (`Core.partings`)."""

    def __init__(self, wait: Wait, name: str, topic: Topic | None, seq: int | None) -> None:
        """Make the place. seq: the head that is no news; None: any head is news."""
        self._wait = wait
        self._name = name
        self._topic = topic
        self._seq = seq

    def enter(self, core: WaitCore) -> None:
        if self._topic is not None:
            self._topic.waiters[self] = None
        else:
            core.awaited.setdefault(self._name, {})[self] = None

    def leave(self, core: WaitCore) -> None:
        if self._topic is not None:
            self._topic.waiters.pop(self, None)
        elif (line := core.awaited.get(self._name)) is not None:
            line.pop(self, None)
            if not line:
                del core.awaited[self._name]

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


class PrefixPlace:
    """A wait's place in line for the creation of topics with a prefix, and then at the first."""

    __slots__ = ("_starts", "_topic", "_wait")

    def __init__(self, wait: Wait, starts: Sequence[str]) -> None:
        self._wait = wait
        self._starts = starts
        self._topic: Topic | None = None

    @property
    def steps(self) -> int:
        """Steps that leaving it takes (`Core.partings`)."""
        return 1 + len(self._starts) // _PREFIXES_A_STEP

    def enter(self, core: WaitCore) -> None:
        core.prefix_waits.enter(self, self._starts)

    def leave(self, core: WaitCore) -> None:
        core.prefix_waits.leave(self, self._starts)
        if self._topic is not None:
            self._topic.waiters.pop(self, None)

    def on_topic_made(self, topic: Topic) -> None:
        """Note a topic, with the records written by the end of the pass."""
        if self._topic is None and self._wait.has_room:
            self._topic = topic
            topic.waiters[self] = None

    def look_again(self) -> None:
        self._wait.answer_soon()

    def on_topic_gone(self) -> None:
        self._wait.answer_soon()

    def on_shutdown(self) -> None:
        self._wait.answer_soon()


def _head_of(topic: Topic | DormantTopic | None) -> TopicHead | None:
    return None if topic is None else TopicHead(topic.head, topic.incarnation)
