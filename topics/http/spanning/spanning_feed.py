"""The topics of all cores that a connection follows: a feed, and a far feed for each other one.

Each core delivers its topics in the order in which it would, and they come as they come. What the
connection has to hold back waits here (R-WS-2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

import msgspec

from topics.common.values.begin import Begin, Beginning
from topics.engine.delivery.feed import Feed
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.subscription import CoresSink, Sink, Subscription
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import DiffQuery, Done
from topics.errors import RequestError, TopicsError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan.service import Service
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.far_feed import FarFeed
from topics.http.spanning.portion_answers import PortionAnswer, away, error_in, is_away
from topics.http.spanning.portions import AskedCores, Destination, Portion, far_core_of
from topics.http.spanning.served_feed import BEGINNING, FOUND_NAMES, AskedBegin, AskedNames
from topics.http.spanning.spanning_prefixes import SpanningPrefixes

_log = logging.getLogger(__name__)


class SpanningFeeds:
    """The topics of a server of several cores, as a connection follows them."""

    def __init__(self, service: Service, cores: AskedCores) -> None:
        self.service = service
        self.cores = cores
        self._begin = inner_plan(cores.inner, "POST", "begin", UNAUTHENTICATED, {})
        self._names = inner_plan(cores.inner, "POST", "names", UNAUTHENTICATED, {})
        self.of_feeds = inner_plan(cores.inner, "GET", "feed", UNAUTHENTICATED, {})

    def open_feed(self, sink: CoresSink) -> SpanningFeed:
        return SpanningFeed(self, sink)

    def begin(self, name: str, begin: Begin, done: Done[Beginning]) -> None:
        """Pass on where a subscription to a topic of any core begins."""
        core, service = far_core_of(self.cores, name), self.service
        if core is None:
            service.engine.begin(name, begin, done)
            return

        def took(answer: PortionAnswer) -> None:
            if is_away(answer):
                done(away(core))
            elif answer.status >= 400:
                done(error_in(answer))
            else:
                done(BEGINNING.decode(answer.body))

        body = msgspec.msgpack.encode(AskedBegin(name, begin))
        self.cores.ask(core, Portion(service, Destination(core, took), self._begin, body, service.now_ns()))

    def find_topics(
        self, prefixes: Prefixes, within: Prefixes, most: int, then: Callable[[list[str] | Exception], None]
    ) -> None:
        """Pass on the lowest names of all cores with these prefixes, at most so many."""
        service = self.service
        found = [service.engine.topics_with(prefixes, within, most)]
        others = self.others
        refusals: list[RequestError] = []

        def took(answer: PortionAnswer) -> None:
            if is_away(answer):
                refusals.append(away(answer.core))
            elif answer.status >= 400:
                refusals.append(error_in(answer))
            else:
                found.append(FOUND_NAMES.decode(answer.body))
            if len(found) + len(refusals) > len(others):
                then(refusals[0] if refusals else sorted(chain.from_iterable(found))[:most])

        if not others:
            then(found[0])
        body = msgspec.msgpack.encode(AskedNames(prefixes, within, most))
        for core in others:
            self.cores.ask(core, Portion(service, Destination(core, took), self._names, body, service.now_ns()))

    @property
    def others(self) -> list[int]:
        """The cores that may have topics, beside this one."""
        return [core for core in range(self.cores.count) if core != self.cores.own]


class SpanningFeed:
    """The subscriptions of one connection: see `Feed`, whose calls it has."""

    def __init__(self, feeds: SpanningFeeds, sink: CoresSink) -> None:
        self._feeds = feeds
        self._sink: CoresSink | None = sink
        """The connection, until the end."""
        self._own: Feed = feeds.service.engine.open_feed(sink)
        self._far: dict[int, FarFeed] = {}
        self._prefixes: SpanningPrefixes | None = None
        self.is_held = True
        self.asked = 0
        self.answered = 0

    # --- what a connection calls -------------------------------------------------------------------------------------
    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return _AllSubscriptions([self._own.subscriptions, *(far.subscriptions for far in self._far.values())])

    @property
    def prefixes(self) -> SpanningPrefixes | None:
        return self._prefixes

    @property
    def held_bytes(self) -> int:
        return sum(far.held_bytes for far in self._far.values())

    def subscribe(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        core = self._feeds.cores.elsewhere(name)
        if core is None:
            return self._own.subscribe(name, query, from_seq)
        return self._far_to(core).subscribe(name, query, from_seq)

    def _far_to(self, core: int) -> FarFeed:
        """Return the far feed of a core, which is asked for it if it was not."""
        far = self._far.get(core)
        if far is None:
            far = self._far[core] = FarFeed(core, self, self._feeds.service, self._feeds.of_feeds)
            self._feeds.cores.ask(core, far.call)
        return far

    def unsubscribe(self, name: str) -> bool:
        core = far_core_of(self._feeds.cores, name)
        if core is None:
            return self._own.unsubscribe(name)
        far = self._far.get(core)
        return far is not None and far.unsubscribe(name)

    def watch_prefixes(self, within: Prefixes, most: int, most_in_all: int) -> SpanningPrefixes:
        prefixes = self._prefixes
        if prefixes is None:
            own_core, others = self._feeds.cores.own, self._feeds.others
            cores = sorted([own_core, *others])
            shares = {core: (most + len(cores) - 1 - at) // len(cores) for at, core in enumerate(cores)}
            own = self._own.watch_prefixes(within, shares[own_core], most_in_all, self)
            prefixes = self._prefixes = SpanningPrefixes(self, own, within, shares, most_in_all)
        return prefixes

    def pause(self) -> None:
        self.is_held = True
        self._own.pause()

    def resume(self) -> None:
        """Continue: far topics first, which were delivered when they came."""
        self.is_held = self._own.paused = False
        self._flush()
        if self._sink is not None and not (self.is_held or self._own.paused):
            self._own.resume()

    def resume_soon(self) -> None:
        self.is_held = False
        self._own.resume_soon()
        if self._far:
            self._feeds.service.answer_turns.wait(self._flush)

    def note_asked(self) -> None:
        """Hold what comes from now on until a write of another core's topic is answered."""
        self.asked += 1

    def note_answered(self) -> None:
        """Deliver what waited for the answer, unless it is withheld for an earlier one."""
        self.answered += 1
        self._flush()

    def close(self, *, at_once: bool = False) -> None:
        self._sink = self._prefixes = None
        self._own.close(at_once=at_once)
        far, self._far = self._far, {}
        for each in far.values():
            each.close()

    def _flush(self) -> None:
        for far in list(self._far.values()):
            if self._sink is not None:
                far.flush()

    # --- what prefixes call ------------------------------------------------------------------------------------------
    @property
    def sink(self) -> Sink:
        return self._own.sink

    @property
    def paused(self) -> bool:
        return self._own.paused

    @paused.setter
    def paused(self, is_paused: bool) -> None:
        self._own.paused = is_paused

    @property
    def closed(self) -> bool:
        return self._own.closed

    def read_on(self) -> None:
        self._own.read_on()

    def far_of(self, name: str) -> FarFeed | None:
        core = self._feeds.cores.elsewhere(name)
        return None if core is None else self._far_to(core)

    def all_far(self) -> list[FarFeed]:
        return [self._far_to(core) for core in self._feeds.others]

    def report_left_out(self, name: str, most: int) -> None:
        if self._sink is not None and not self._sink.deliver_left_out(name, most):
            self._own.paused = True

    # --- what far feeds call -----------------------------------------------------------------------------------------
    @property
    def is_full(self) -> bool:
        return self._own.paused

    def now_ns(self) -> int:
        return self._feeds.service.now_ns()

    def subscription(self, name: str, query: DiffQuery, from_seq: int) -> Subscription:
        return Subscription(self._own, name, query, from_seq)

    def take_far(self, subscription: Subscription, burst: Burst) -> None:
        self._tell(subscription, lambda sink: sink.deliver(subscription, burst))

    def may_take_in(self, name: str) -> bool:
        return self._prefixes is not None and self._prefixes.may_take_in(name)

    def leave_out(self, name: str, most: int) -> None:
        if self._prefixes is not None and name in self._prefixes:
            self.report_left_out(name, most)

    def note_end(self, name: str) -> None:
        if self._prefixes is not None:
            self._prefixes.note_end(name)

    def fail_far(self, subscription: Subscription, error: TopicsError) -> None:
        self._tell(subscription, lambda sink: sink.fail(subscription, error))

    def _tell(self, subscription: Subscription, call: Callable[[CoresSink], bool | None]) -> None:
        sink = self._sink
        if sink is None:
            return
        try:
            if call(sink) is False:
                self._own.paused = True
        except Exception as error:
            _log.error(
                "delivering %s failed by a bug of ours; its reader is dropped", subscription.name, exc_info=error
            )
            self.close()
            sink.fail(subscription, TopicsError("delivering failed by a bug of ours"))

    def lose(self, core: int) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.lose(core)

    def stop(self) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.stop()


class _AllSubscriptions(Mapping[str, Subscription]):
    """Mappings without a key in common, as one."""

    def __init__(self, parts: list[Mapping[str, Subscription]]) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> Subscription:
        for part in self._parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))
