"""Readers that have caught up with a topic, with equal options: one pass serves them all."""

from __future__ import annotations

from itertools import islice

from topics.common.tuples import make_tuple
from topics.engine.delivery.audience import AudienceRow, rows_of
from topics.engine.delivery.frames import Burst
from topics.engine.delivery.reader_pass import BYTES_A_PASS, Further, read_pass, take_apart, take_pass
from topics.engine.delivery.subscription import NOTHING_SENT, Sent, Subscription
from topics.engine.read.shared_reads import SharedReads
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.ports import TimersPort
from topics.engine.values.results import DiffQuery, DiffResult
from topics.errors import TopicsError

_FEW = 4
"""A topic with at most this many cohorts delivers when it publishes, not at the pass end."""
_BYTES_A_MEMBER = 128
"""Part of the loop's budget for reads that the send to a member takes."""
_MOST_MEMBERS = 1024
"""Members of a cohort. More readers of a topic have several, which take turns."""
_BYTES_A_MEMBER_OF_MANY = 2048
"""Part of it in each of several cohorts: one write may have 10,000 readers, for some 6 us each."""
_BYTES_APART = 1024
"""More of it for a member that is not sent to with the others, but by its sink."""
_APART_AT_ONCE = 128
"""Members that are sent to by their sinks, 20 us each, before other reads have their turn."""
_BYTES_A_LATE = 8192
"""Part of it that each of the others takes."""
_LOOKED_AT = 64
"""Waiters of a topic among which a reader looks for a cohort with room."""
_MANY = 2
"""Members from which one call for all costs less than one for each."""
_ENDS_AT_ONCE, _BYTES_AN_END = 8, 8192
"""Members that hear of a topic's end between two looks at the loop's budget for reads, and the part
of it that each takes.
"""


class Cohort:
    """A waiter of the topic.

    All members are at `cursor`; between passes that is the head, which all of them got.
    """

    __slots__ = (
        "_bytes_a_member",
        "_cohorts",
        "_late",
        "_late_burst",
        "_late_place",
        "_more",
        "_rows",
        "_running",
        "cursor",
        "members",
        "query",
        "reading",
        "reported_caught_up",
        "sent",
        "topic",
        "waits_for_turn",
    )

    def __init__(self, cohorts: Cohorts, topic: Topic, query: DiffQuery, *, is_first: bool = True) -> None:
        """is_first: the topic has no full cohort with this query."""
        self._cohorts = cohorts
        self._bytes_a_member = _BYTES_A_MEMBER if is_first else _BYTES_A_MEMBER_OF_MANY
        """Part of the budget that a delivery takes for each member."""
        self.topic = topic
        self.query = query
        self.cursor = topic.head
        self.members: dict[Subscription, None] = {}
        self.reading = False
        self.reported_caught_up = True
        """Whether the last frame that the members got was a caught-up frame."""
        self.sent: Sent = NOTHING_SENT
        """The last burst that all members have got."""
        self._rows: list[AudienceRow] | None = None
        """The members by audience; None: not known since a change of them."""
        self._late: dict[Subscription, None] = {}
        """Members that get the last burst in a later turn. The next pass follows after them."""
        self._late_burst: Burst | None = None
        self._late_place = 0, True
        """Their cursor, and whether the last frame that they got was a caught-up frame."""
        self._more = False
        """Whether another pass is due."""
        self._running = False
        self.waits_for_turn = False
        """Whether the next read is made in a later pass of the loop, because others are due now."""

    # --- as a waiter -------------------------------------------------------------------------------------------------
    def look_again(self) -> None:
        """Read, in a turn of the pass's reads: one write may wake thousands of cohorts."""
        if not self.waits_for_turn:
            self._more = True
            if self._cohorts.reads.turns.is_free:
                self._run()
            else:
                self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self._more = False
        self.waits_for_turn = True
        self._cohorts.reads.turns.take(self._on_turn)

    def _on_turn(self) -> None:
        self.waits_for_turn = False
        if self.members:
            self._more = True
            self._run()

    def look_now(self) -> bool:
        """Read the topic after a change. Return whether that is done and consisted of sends only.

        A member that leaves may do more: its connection handles the request after the stream.
        """
        count = len(self.members)
        if not self._deliver_apart():
            self.look_again()
        return len(self.members) == count and self.topic.head == self.cursor and not self._late

    def _deliver_apart(self) -> bool:
        """Make a pass by itself, with a plain result up to the head. False: nothing was done."""
        cohorts, topic, cursor = self._cohorts, self.topic, self.cursor
        if self._running or self.is_busy or self.waits_for_turn or len(topic.waiters) > 1:
            return False
        result = cohorts.reads.read_apart(topic, make_tuple(DiffQuery, (cursor, *self.query[1:])))
        if result is None or result.next_from_seq != topic.head:
            return False
        cohorts.reads.turns.spend(BYTES_A_PASS)
        self._running = True
        try:
            take_apart(cohorts.loop.clock, topic, self, result, self._deliver)
        finally:
            self._running = False
        self._run()
        return True

    def on_topic_gone(self) -> None:
        """Report the end to the members, some in a turn: a stream may end with its topic."""
        self._cohorts.reads.turns.take(self._end_some)

    def _end_some(self) -> None:
        turns = self._cohorts.reads.turns
        while self.members:
            if turns.left <= 0:
                turns.take(self._end_some)
                return
            for subscription in list(islice(self.members, _ENDS_AT_ONCE)):
                turns.spend(_BYTES_AN_END)
                self.remove(subscription)
                subscription.feed.on_topic_gone(subscription)

    def on_shutdown(self) -> None:
        """Ignore the shutdown: the connections that opened the readers end them."""

    # --- members -----------------------------------------------------------------------------------------------------
    def takes(self, query: DiffQuery) -> bool:
        """Return whether a reader at the head with this query may be a member."""
        return self.query == query and self.cursor == self.topic.head and not self.is_busy

    @property
    def is_busy(self) -> bool:
        """Whether a pass is in progress, or its burst was not sent to all members yet."""
        return self.reading or bool(self._late)

    def note_full(self) -> None:
        """Take a larger part of the budget, because there are others with the same readers."""
        self._bytes_a_member = _BYTES_A_MEMBER_OF_MANY

    def add(self, subscription: Subscription) -> None:
        if not self.members:
            self.topic.waiters[self] = None
        self.members[subscription] = None
        self._rows = None
        subscription.cohort = self
        subscription.joined_after = self.sent

    def remove(self, subscription: Subscription) -> None:
        """Remove a member, and copy the cohort's cursor and state to it."""
        del self.members[subscription]
        self._rows = None
        subscription.own_sent = subscription.sent
        subscription.cohort = None
        place = self.cursor, self.reported_caught_up
        if self._late and subscription in self._late:
            place = self._late_place
            del self._late[subscription]
        subscription.cursor, subscription.reported_caught_up = place
        if not self.members:
            self.topic.waiters.pop(self, None)
            self._cohorts.forget(self)

    def _disband(self) -> None:
        """Remove all members; each is a lagging subscription of its feed from now on."""
        members = list(self.members)
        for subscription in members:
            self.remove(subscription)
        for subscription in members:
            subscription.feed.fall_behind(subscription)
            subscription.feed.read_on()

    # --- a pass ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        """Make passes until one waits for the disk or none is due; in a loop, without nesting."""
        if self._running:
            return
        self._running = True
        try:
            while self._more and not self.is_busy:
                self._more = False
                self.reading = True
                self._cohorts.catch_up(self.topic, self._read_now)
        finally:
            self._running = False

    def _read_now(self) -> None:
        if self.members:
            read_pass(self._cohorts.reads, self.topic, self.query, self.cursor, self._on_read)
        else:
            self.reading = False

    def _on_read(self, result: DiffResult | TopicsError) -> None:
        self.reading = False
        if not self.members or self.topic.life is Life.GONE:
            return
        if isinstance(result, TopicsError):
            self._disband()
            return
        cohorts = self._cohorts
        further = take_pass(cohorts.loop.clock, cohorts.reads, self.topic, self, result, self._deliver)
        if further is Further.AFTER_OTHERS:
            cohorts.loop.call_later(0, self.look_again)
            return
        if further is Further.AT_ONCE:
            self._wait_for_turn()
        self._run()

    def _deliver(self, burst: Burst) -> None:
        left, turns, sent = self._send_to_many(burst), self._cohorts.reads.turns, (burst.cursor, burst.at_ns)
        late = left[_APART_AT_ONCE:]
        turns.spend(self._bytes_a_member * len(self.members) + _BYTES_APART * (len(left) - len(late)))
        for subscription in late:
            subscription.own_sent, subscription.joined_after = subscription.sent, sent
        if late:
            self._late, self._late_burst = dict.fromkeys(late), burst
            self._late_place = self.cursor, self.reported_caught_up
            turns.take_later(self._deliver_late)
        for subscription in left[:_APART_AT_ONCE]:
            self._send_to(subscription, burst)
        self.sent = sent

    def _send_to(self, subscription: Subscription, burst: Burst) -> None:
        """Send to one member by its sink. One whose sink is full reads by itself."""
        feed = subscription.feed
        if subscription.cohort is not self:
            return
        if feed.paused:
            self.remove(subscription)
            feed.fall_behind(subscription)
            return
        try:
            if not feed.sink.deliver(subscription, burst):
                feed.paused = True
        except Exception as error:
            feed.give_up(subscription, error)

    def _deliver_late(self) -> None:
        """Send the last burst to some of those who have not got it; the next pass comes after."""
        turns, burst = self._cohorts.reads.turns, self._late_burst
        assert burst is not None, "there are members that have not got it"
        while self._late:
            if turns.left <= 0:
                turns.take(self._deliver_late)
                return
            for subscription in list(islice(self._late, _ENDS_AT_ONCE)):
                turns.spend(_BYTES_A_LATE)
                self._send_to(subscription, burst)
                if self._late.pop(subscription, self) is None:
                    subscription.own_sent = self.sent
        self._late_burst = None
        self._run()

    def _send_to_many(self, burst: Burst) -> list[Subscription]:
        """Send to the members of each audience by one call. Return the members that remain."""
        if len(self.members) < _MANY:
            return list(self.members)
        rows = self._rows
        if rows is None:
            rows = self._rows = rows_of(self.members)
        left: list[Subscription] = []
        for row in rows:
            try:
                left += row.send(burst)
            except Exception:
                # Nothing was queued: the error comes again for each reader, and ends that one only.
                left += row.members
        return left


class Cohorts:
    """The cohorts that accept members, by topic and options; and what their passes need."""

    def __init__(self, loop: TimersPort, reads: SharedReads, catch_up: CatchUpFirst) -> None:
        self.loop = loop
        self.reads = reads
        self.catch_up = catch_up
        self._open: dict[tuple[Topic, DiffQuery], Cohort] = {}

    def join(self, subscription: Subscription, topic: Topic) -> None:
        """Add a subscription that is at the topic's head and has sent its reader a caught-up."""
        key = topic, subscription.query
        cohort = self._open.get(key)
        if cohort is None or cohort.is_busy or cohort.cursor != topic.head:
            cohort = self._open[key] = Cohort(self, topic, subscription.query)
        elif len(cohort.members) >= _MOST_MEMBERS:
            cohort.note_full()
            cohort = self._open[key] = self._with_room(topic, subscription.query)
        cohort.add(subscription)

    def _with_room(self, topic: Topic, query: DiffQuery) -> Cohort:
        """Return the smallest of the other cohorts, because readers have left it, or a new one."""
        found = Cohort(self, topic, query, is_first=False)
        most = _MOST_MEMBERS
        for waiter in islice(topic.waiters, _LOOKED_AT):
            if isinstance(waiter, Cohort) and len(waiter.members) < most and waiter.takes(query):
                found, most = waiter, len(waiter.members)
        return found

    def deliver_now(self, topic: Topic) -> bool:
        """Deliver a change of a topic whose only waiters are a few cohorts, if it takes only sends.

        Returns: whether that was all; if not, the caller wakes the topic's waiters at the pass end.
        """
        if len(topic.waiters) > _FEW or (topic.feeders and topic.awaits_routers):
            return False
        if len(topic.waiters) == 1:
            (waiter,) = topic.waiters
            return isinstance(waiter, Cohort) and waiter.look_now()
        return all(isinstance(waiter, Cohort) and waiter.look_now() for waiter in list(topic.waiters))

    def forget(self, cohort: Cohort) -> None:
        """Forget a cohort without members."""
        key = cohort.topic, cohort.query
        if self._open.get(key) is cohort:
            del self._open[key]
