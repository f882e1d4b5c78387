"""A WebSocket of a server of several cores: what it follows, and what it writes (11.4).

Writes to topics of other cores are the same requests as over HTTP. The core of the topic gets the
message as their body, and takes the fields that both have. The connection has checked the others.
"""

from __future__ import annotations

from collections.abc import Callable

from topics.engine.delivery.subscription import CoresSink
from topics.errors import RequestError
from topics.http.access.principal import Principal
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import UNKNOWN, PortionAnswer, away, error_in, is_away
from topics.http.spanning.portions import AskedCores, Destination, Portion, far_core_of
from topics.http.spanning.spanning_feed import SpanningFeed, SpanningFeeds


class SpanningSocket(SpanningFeeds):
    """The topics of all cores, for one connection with the rights of its key."""

    def __init__(self, service: Service, cores: AskedCores, principal: Principal) -> None:
        super().__init__(service, cores)
        self._principal = principal
        self._feed: SpanningFeed | None = None
        self._plan: tuple[tuple[str, bool], Plan] | None = None
        """The plan of the last write, by what it depends on."""
        self._asked: dict[Portion, bool] = {}
        """Writes without an answer."""

    @property
    def held_bytes(self) -> int:
        """Bytes of writes that wait to be sent, and of what is held or kept for its topics."""
        feed = self._feed
        return sum(portion.held_bytes for portion in self._asked) + (0 if feed is None else feed.held_bytes)

    def open_feed(self, sink: CoresSink) -> SpanningFeed:
        feed = self._feed = super().open_feed(sink)
        return feed

    def is_far(self, topic: str) -> bool:
        """Return whether another core has the topic."""
        return far_core_of(self.cores, topic) is not None

    def publish(
        self,
        topic: str,
        message: bytes | bytearray | memoryview,
        done: Callable[[bytes | RequestError | None], None],
        *,
        return_seqs: bool,
    ) -> None:
        """Have the core of the topic write the records of a message.

        done: gets the answer of 7.5, or the refusal; None: it is unknown whether they are written.
        """
        core, service, feed = self.cores.elsewhere(topic), self.service, self._feed
        assert core is not None, "a write to a topic of this core"
        assert feed is not None, "a write of a connection without a feed"

        def took(answer: PortionAnswer) -> None:
            if not self._asked.pop(portion, False):
                return  # the connection has ended
            if answer.status == UNKNOWN:
                done(None)
            elif is_away(answer):
                done(away(core))
            else:
                done(error_in(answer) if answer.status >= 400 else answer.body)
            feed.note_answered()

        plan = self._plan_of(topic, return_seqs)
        portion = Portion(service, Destination(core, took), plan, message, service.now_ns())
        self._asked[portion] = True
        feed.note_asked()
        self.cores.ask(core, portion)

    def _plan_of(self, topic: str, return_seqs: bool) -> Plan:
        key = topic, return_seqs
        if self._plan is None or self._plan[0] != key:
            query = {} if return_seqs else {"return_seqs": "false"}
            self._plan = key, inner_plan(self.cores.inner, "POST", "topics/" + topic, self._principal, query)
        return self._plan[1]

    def end(self) -> None:
        """Forget the writes: the connection has ended. Those that were sent are executed."""
        self._feed = None
        asked, self._asked = list(self._asked), {}
        for portion in asked:
            portion.abandon()
