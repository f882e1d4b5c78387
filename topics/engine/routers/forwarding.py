"""When routers forward: behind the acknowledgement, in steps (forward_steps.py), one on its way per router.

    a source's records are published -> its routers are behind
      -> somebody waits for the destination: a step at the end of this pass; else within `router_delay_ms`, so that the
         steps of a busy source share commits with its writes; under heavy load (engine/scheduling) within
         `router_retry_ms` in both cases, unless somebody is reading the destination

A source may have thousands of routers, so they take turns: a pass looks at some of them, and begins fewer steps.
A step that finds no room is tried again after `router_retry_ms`, and whenever somebody reads (R-RTR-13). Routers that
are held take turns at that, too: what they cost has a bound, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from topics.engine.routers.catch_up import CatchUp
from topics.engine.routers.forward_steps import ForwardSteps
from topics.engine.routers.kept import keep_frames
from topics.engine.shared.core import Core
from topics.engine.state.router import HOPS_MAX, Router, RouterLife
from topics.engine.state.topic import Topic
from topics.engine.values.ports import TimerPort
from topics.engine.values.step_queue import another_pass
from topics.errors import TopicsError

LOOKS_A_PASS = 256
"""Routers of sources with news that a pass looks at: some microseconds each."""
STEPS_A_PASS = 32
"""Others want to be served, too."""
TRIES_A_ROUND = 64
"""Of routers that are held, each `router_retry_ms`."""
_END_ROUNDS = 2 * HOPS_MAX
"""What goes round in a cycle ends after that many hops; nothing new comes in by then."""
_BUSY_DELAYS = 5
"""A step costs the same for one record and for a thousand: while a source is busy they are that much rarer."""


class Forwarding:
    """The routers' work. One object an engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._steps = ForwardSteps(core, self._on_end)
        self._news: dict[Router, None] = {}
        """Routers whose sources have new records, not looked at yet."""
        self._behind: dict[Router, None] = {}
        """Routers with something to do, in the order in which it came."""
        self._held: dict[Router, None] = {}
        """Routers that found no room, in the order in which they are tried again."""
        self._tries = 0
        """So many of them may be before `_tries_ns`."""
        self._tries_ns = 0
        self._timer: TimerPort | None = None
        self._due_ns = 0
        self._round: list[Router] = []
        """Those that the timer has still to come to."""
        self._ran_ns = -(1 << 62)
        """When the timer brought the last round of steps."""

    # --- when --------------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """The pass ends: sources with new records have routers that are behind."""
        core, news = self._core, self._news
        if core.forwardable:
            sources, core.forwardable = core.forwardable, {}
            for source in sources:
                news.update(dict.fromkeys(source.routers))
        if not news:
            return
        behind, held = self._behind, self._held
        steps = 0
        for router in list(islice(news, LOOKS_A_PASS)):
            del news[router]
            dest = router.dest
            # One that is behind already has its step coming: a busy source costs no more than this for each.
            is_known = router in behind or router in held
            if not is_known or dest.waiters or dest.routers or router.waiting or core.closing:
                steps += self.note(router)
                if steps == STEPS_A_PASS:
                    break
        if news:
            another_pass(core.loop)

    def note(self, router: Router) -> bool:
        """The router may be behind. Returns whether a step was begun, or tried."""
        core = self._core
        deferred = core.scheduler.defers_routers
        if router.waiting or core.closing or (is_awaited(router.dest) and not deferred):
            return self.drive(router)
        if router not in self._held:
            self._behind[router] = None
            delay_ms = core.config.router_delay_ms
            busy_ms = _BUSY_DELAYS * delay_ms
            is_quiet = core.clock.monotonic_ns() - self._ran_ns > 2 * busy_ms * 1_000_000
            self._arm(core.config.router_retry_ms if deferred else delay_ms if is_quiet else busy_ms)
        return False

    def _arm(self, delay_ms: int) -> None:
        """The sooner of this and what is armed already."""
        due_ns = self._core.clock.monotonic_ns() + max(delay_ms, 1) * 1_000_000
        if self._steps.stopped or (self._timer is not None and self._due_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ns = due_ns
        self._timer = self._core.loop.call_later(max(delay_ms, 1) * 1_000_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._ran_ns = self._core.clock.monotonic_ns()
        self._round = self._round or list(self._behind)
        part, self._round = self._round[:STEPS_A_PASS], self._round[STEPS_A_PASS:]
        for router in part:
            if router in self._behind:
                self.drive(router)
        now_ns, held = self._ran_ns, self._held
        if now_ns >= self._tries_ns:
            self._tries = TRIES_A_ROUND
            self._tries_ns = now_ns + self._core.config.router_retry_ms * 1_000_000
        some = min(self._tries, STEPS_A_PASS)
        self._tries -= some
        for router in list(islice(held, some)):
            self.drive(router)
        if self._round or (held and self._tries):
            self._arm(1)
        elif held:
            self._arm(-(-(self._tries_ns - now_ns) // 1_000_000))
        elif self._behind:
            self._arm(self._core.config.router_retry_ms)

    def begin_shutdown(self) -> None:
        """What can be forwarded goes out without delay."""
        if self._behind:
            self._round = []
            self._arm(1)

    def end(self, done: Callable[[], None]) -> None:
        """Calls `done` when all routers have come as far as they can; after that nothing is staged."""
        self._end_round(_END_ROUNDS, done)

    def _end_round(self, left: int, done: Callable[[], None]) -> None:
        """Each round brings what the one before has put into sources a topic further."""
        routers = list(self._core.routers.by_name.values())
        waits = len(routers) + 1

        def one() -> None:
            nonlocal waits
            waits -= 1
            if waits:
                return
            if left > 1 and any(not router.blocked for router in self._able()):
                self._end_round(left - 1, done)
                return
            self._steps.stopped = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            done()

        for router in routers:
            self.catch_up_router(router, one)
        one()

    def _able(self) -> list[Router]:
        """Those that are behind, with nothing in their way for good."""
        return [router for router in self._core.routers.by_name.values() if self._steps.can_go_on(router)]

    # --- readers that wait -------------------------------------------------------------------------------------------
    def catch_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """See `Core.catch_up`."""
        CatchUp(topic, self.catch_up_router, then).go_on()

    def catch_up_router(self, router: Router, then: Callable[[], None]) -> None:
        """Calls `then` when the router has come to its source's head of now, or cannot."""
        if router.life is not RouterLife.LIVE or not router.is_behind:
            then()
            return
        router.waiting.append((router.source.head, then))
        self.drive(router)

    def before_consumption(
        self, source: Topic, seqs: list[int], then: Callable[[TopicsError | None], None], *, bounded: bool
    ) -> None:
        """Jobs are about to be acknowledged: `then` is called when no router needs their records any more (R-RTR-18).

        Routers forward them first; one that cannot keeps their frames, durably. bounded: unless it keeps as much as it
        may already; then the jobs are not to be acknowledged, and `then` gets a RequestError.
        """
        routers = source.routers
        waits = len(routers) + 1
        failed: TopicsError | None = None

        def one(error: TopicsError | None = None) -> None:
            nonlocal waits, failed
            failed = failed or error
            waits -= 1
            if waits == 0:
                then(failed)

        for router in routers:
            self.catch_up_router(router, partial(keep_frames, self._core, router, seqs, one, bounded=bounded))
        one()

    def _release(self, router: Router, *, everybody: bool) -> None:
        position = router.position
        waiting, router.waiting = router.waiting, []
        ready = [then for seq, then in waiting if everybody or seq <= position]
        router.waiting = [] if everybody else [entry for entry in waiting if entry[0] > position]
        for then in ready:
            then()

    # --- one step ----------------------------------------------------------------------------------------------------
    def drive(self, router: Router) -> bool:
        """Begins a step, unless one is on its way. Returns whether it did."""
        if router.busy:
            self._behind[router] = None
            return False
        if not self._steps.can_go_on(router):
            self._rest(router)
            return False
        self._held.pop(router, None)
        self._behind[router] = None
        self._steps.begin(router)
        return True

    def _on_end(self, router: Router, *, blocked: bool = False, is_whole: bool = False) -> None:
        """is_whole: the step took all there was when it began, so what has come since may wait like any other."""
        router.busy = False
        if router.blocked and not blocked and self._held:  # where one found room others may
            self._tries += 2
            self._arm(1)
        router.blocked = blocked
        if blocked or not self._steps.can_go_on(router):
            self._rest(router)
            return
        self._release(router, everybody=False)
        if is_whole:
            self.note(router)
        else:
            self.drive(router)

    def _rest(self, router: Router) -> None:
        """Nothing more can be done now."""
        self._behind.pop(router, None)
        self._held.pop(router, None)
        if self._steps.can_go_on(router):
            self._held[router] = None
            self._arm(self._core.config.router_retry_ms)
        self._release(router, everybody=True)

    def forget(self, router: Router) -> None:
        """It is gone."""
        for routers in (self._news, self._behind, self._held):
            routers.pop(router, None)
        self._release(router, everybody=True)


def is_awaited(topic: Topic) -> bool:
    """Somebody waits for the topic to change, or for what is forwarded from there. Each topic is looked at once."""
    level, met = [topic], {topic}
    for _ in range(HOPS_MAX):
        if any(each.waiters for each in level):
            return True
        below = dict.fromkeys(router.dest for each in level for router in each.routers)
        level = [dest for dest in below if dest not in met]
        met.update(level)
    return False
