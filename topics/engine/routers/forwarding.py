"""Times of forwarding: after the acknowledgement, in steps, one in progress per router.

The steps are those of forward_steps.py.

    a source's records are published -> its routers lag
      -> a reader waits for the destination: a step at the end of this pass; else within
         `router_delay_ms`, so that the steps of a busy source share commits with its writes;
         under heavy load (engine/scheduling) within `router_retry_ms` in both cases, unless a
         client is reading the destination

A source may have thousands of routers, so they take turns: a pass checks some of them, and begins
fewer steps. A step that finds no room is tried again after `router_retry_ms`, and at every read
(R-RTR-13). Blocked routers take turns at that, too: their cost is bounded, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Protocol

from topics.engine.routers.arrived_steps import ArrivedSteps
from topics.engine.routers.catch_up import CatchUp, is_awaited
from topics.engine.routers.far_messages import OtherHalves
from topics.engine.routers.far_sources import FarSources
from topics.engine.routers.forward import StepOwner
from topics.engine.routers.forward_steps import ForwardSteps, ForwardStepsCore
from topics.engine.routers.kept_frames import KeepCore, keep_frames
from topics.engine.routers.leaving_steps import LeavingSteps
from topics.engine.shared.pass_budget import PassBudget
from topics.engine.state.router import HOPS_MAX, RouterLife
from topics.engine.state.router_work import STEPPING, RouterWork
from topics.engine.state.topic import Router, Topic
from topics.engine.values.ports import LoopPort, TimerPort
from topics.engine.values.step_queue import StepQueue
from topics.engine.write.delete import trim
from topics.errors import TopicsError

LOOKS_A_PASS = 256
"""Routers of sources with new records that a pass checks: some microseconds each."""
STEPS_A_PASS = 32
"""Steps that a pass begins for acks, new records and the timer, so that other work is served."""
TRIES_A_ROUND = 64
"""Tries of blocked routers in each `router_retry_ms`."""
_FEW_ROUTERS = 4
"""Routers that begin at once to forward what is about to be consumed; more take turns."""
_SEQS_A_STEP = 512
"""Jobs of one router that count as one step."""
_FORGOTTEN_A_STEP = 64
"""Routers that are gone and that one step takes off the lists."""
_END_ROUNDS = 2 * HOPS_MAX
"""Rounds at the end: records in a cycle end after that many hops, and no new ones come by then."""
_BUSY_DELAYS = 5
"""Factor of the delay while a source is busy: a step has one cost for any number of records."""


class ForwardingCore(ForwardStepsCore, KeepCore, Protocol):
    """The part of the core that forwarding needs."""

    closing: bool
    loop: LoopPort


class Load(Protocol):
    """The load of the engine."""

    @property
    def defers_routers(self) -> bool:
        """Whether forwarding is delayed where only long polls wait for it."""


class Forwarding:
    """The driver of the routers, one object per engine.

    `RouterWork` lists what a router may be doing.
    """

    def __init__(self, core: ForwardingCore, load: Load, others: OtherHalves | None = None) -> None:
        """others: the other cores of the server; None if there are none."""
        self._core = core
        self._load = load
        self._steps = ForwardSteps(core, self._on_end)
        self.leaving = LeavingSteps(core, self._on_end, others)
        """The steps of routers whose destination is on another core."""
        self.arrived = ArrivedSteps(core)
        """The steps of links."""
        self.far_sources = FarSources(others)
        """The waits for routers whose source is on another core."""
        self.on_gone_with_topic: list[Callable[[Sequence[Router], Callable[[], None]], Iterator[None]]] = []
        """Called with halves of routers whose topic was deleted; returns steps."""
        self._news: dict[Router, None] = {}
        """Routers whose sources have new records and that were not checked yet."""
        self._lagging: dict[Router, None] = {}
        """Routers with work, in the order in which it came."""
        self._held: dict[Router, None] = {}
        """Routers that found no room, in the order in which they are tried again."""
        self._begun = PassBudget(core.loop, STEPS_A_PASS)
        """The steps that this pass may begin."""
        self._consumptions = StepQueue(core.loop, STEPS_A_PASS)
        """Routers that jobs to be acknowledged wait for."""
        self._tries = 0
        """Tries of blocked routers left before `_tries_ns`."""
        self._tries_ns = 0
        self._timer: TimerPort | None = None
        self._due_ns = 0
        self._round: list[Router] = []
        """Routers left in this round of the timer."""
        self._ran_ns = -(1 << 62)
        """Time of the timer's last round of steps."""

    @property
    def step_owner(self) -> StepOwner:
        """The code that is called when a step ends which a write has carried."""
        return self._steps

    # --- when --------------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Note at the end of the pass that routers of sources with new records lag."""
        core, news = self._core, self._news
        if self._consumptions.has_begun:
            self._consumptions.next_pass()
        if core.forwardable:
            sources, core.forwardable = core.forwardable, {}
            for source in sources:
                news.update(dict.fromkeys(source.routers))
        if not news:
            return
        for router in list(islice(news, LOOKS_A_PASS)):
            del news[router]
            dest = router.dest
            if router.work is RouterWork.IDLE and not (router.lags or router.waiting):
                continue  # the write has carried its step
            # A router known to lag gets its step already, so a busy source costs only this check
            # for each.
            is_known = router.work is not RouterWork.IDLE
            may_hurry = dest.waiters or dest.routers or router.is_awaited or router.waiting or core.closing
            if may_hurry or not is_known:
                self._begun.spend(self.note(router))
                if self._begun.left <= 0:  # One has begun, so acks never delay all of them.
                    break
        if news:
            core.loop.another_pass()

    def note(self, router: Router) -> bool:
        """Note that the router may lag. Return whether a step was begun, or tried."""
        core = self._core
        deferred = self._load.defers_routers
        is_wanted = not deferred and (router.is_awaited or is_awaited(router.dest))
        if is_wanted or router.waiting or core.closing:
            return self.drive(router)
        if router.work is not RouterWork.HELD:
            if router.work is RouterWork.IDLE:
                router.enter(RouterWork.LAGGING)
                self._lagging[router] = None
            delay_ms = core.config.router_delay_ms
            busy_ms = _BUSY_DELAYS * delay_ms
            is_quiet = core.clock.monotonic_ns() - self._ran_ns > 2 * busy_ms * 1_000_000
            self._arm(core.config.router_retry_ms if deferred else delay_ms if is_quiet else busy_ms)
        return False

    def _arm(self, delay_ms: int) -> None:
        """Arm the timer, unless it is armed for an earlier time."""
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
        self._round = self._round or list(self._lagging)
        some = max(self._begun.left, 0)
        part, self._round = self._round[:some], self._round[some:]
        for router in part:
            if router in self._lagging:
                self._begun.spend(self.drive(router))
        now_ns, held = self._ran_ns, self._held
        if now_ns >= self._tries_ns:
            self._tries = TRIES_A_ROUND
            self._tries_ns = now_ns + self._core.config.router_retry_ms * 1_000_000
        some = min(self._tries, max(self._begun.left, 0))
        self._tries -= some
        self._begun.spend(some)
        for router in list(islice(held, some)):
            self.drive(router)
        if self._round or (held and self._tries):
            self._arm(1)
        elif held:
            self._arm(-(-(self._tries_ns - now_ns) // 1_000_000))
        elif self._lagging:
            self._arm(self._core.config.router_retry_ms)

    def begin_shutdown(self) -> None:
        """Forward all records that can be, without delay."""
        if self._lagging:
            self._round = []
            self._arm(1)

    def stop(self) -> None:
        """Begin no more steps. No reader waits for one any more."""
        self._steps.stopped = self.leaving.stopped = self.arrived.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self, done: Callable[[], None]) -> None:
        """Call `done` when all routers have come as far as they can; then stage nothing."""
        self._end_round(_END_ROUNDS, done)

    def _end_round(self, left: int, done: Callable[[], None]) -> None:
        """Drive all routers.

        Each round forwards the records of the round before by one more topic.
        """
        routers = list(self._core.routers.by_name.values())
        waits = len(routers) + 1

        def one() -> None:
            nonlocal waits
            waits -= 1
            if waits:
                return
            if left > 1 and any(not router.blocked for router in self._routers_with_work()):
                self._end_round(left - 1, done)
                return
            self.stop()
            done()

        for router in routers:
            self.catch_up_router(router, one)
        one()

    def _routers_with_work(self) -> list[Router]:
        """Return the routers that lag, without a permanent obstacle."""
        return [router for router in self._core.routers.by_name.values() if self._can_continue(router)]

    # --- readers that wait -------------------------------------------------------------------------------------------
    def catch_up(self, topic: Topic, then: Callable[[], None]) -> None:
        """Call `then` once all records now in the sources of the topic's routers are forwarded.

        Without routers it is called at once. It is called in any case: a router without room in its
        destination is not waited for. Every read of a topic calls this first (R-RTR-4).
        """
        if topic.feeders and topic.awaits_routers:
            CatchUp(topic, self._catch_up_level, then).begin()
        else:
            then()

    def catch_up_above(self, topic: Topic, levels: int, then: Callable[[], None]) -> None:
        """Do as `catch_up`, with at most so many topics above."""
        if levels > 0 and topic.feeders and topic.awaits_routers:
            CatchUp(topic, self._catch_up_level, then, levels).begin()
        else:
            then()

    def _catch_up_level(self, router: Router, levels: int, then: Callable[[], None]) -> None:
        if router.source.is_far:
            self.far_sources.catch_up(router, levels, then)
        else:
            self.catch_up_router(router, then)

    def catch_up_router(self, router: Router, then: Callable[[], None]) -> None:
        """Call `then` when the router has come to its source's current head, or cannot."""
        if router.life is not RouterLife.LIVE or not router.lags:
            then()
            return
        router.waiting.append((router.source.head, then))
        self.drive(router)

    def before_consumption(
        self, source: Topic, seqs: list[int], then: Callable[[TopicsError | None], None], *, bounded: bool
    ) -> None:
        """Call `then` once no router needs the records of jobs to be acknowledged (R-RTR-18).

        Routers forward them first; a router that cannot do so keeps their frames, durably. Many
        routers take turns, and none of the jobs is consumed before the last of them. bounded:
        a router that keeps its most already refuses; the jobs must not be acknowledged then, and
        `then` gets a RequestError.
        """
        last = max(seqs, default=0)
        routers = [router for router in source.routers if router.position < last]
        waits = len(routers) + 1
        failed: TopicsError | None = None

        def one(error: TopicsError | None = None) -> None:
            nonlocal waits, failed
            failed = failed or error
            waits -= 1
            if waits == 0:
                then(failed)

        def steps() -> Iterator[None]:
            for router in routers:
                self.catch_up_router(router, partial(keep_frames, self._core, router, seqs, one, bounded=bounded))
                for _ in range(0, len(seqs), _SEQS_A_STEP):
                    yield

        if len(routers) <= _FEW_ROUTERS:
            for _ in steps():
                pass
            one()
        else:
            self._consumptions.run(self._within_budget(steps()), one)

    def _within_budget(self, steps: Iterator[None]) -> Iterator[None]:
        """Take these steps with the others of a pass; each that exceeds them does nothing."""
        for _ in steps:
            self._begun.spend(1)
            yield
            while self._begun.left <= 0:
                yield

    def _release(self, router: Router, *, everybody: bool) -> None:
        position = router.position
        waiting, router.waiting = router.waiting, []
        ready = [then for seq, then in waiting if everybody or seq <= position]
        router.waiting = [] if everybody else [entry for entry in waiting if entry[0] > position]
        for then in ready:
            then()

    # --- one step ----------------------------------------------------------------------------------------------------
    def drive(self, router: Router) -> bool:
        """Begin a step, unless one is in progress. Return whether it did."""
        if router.work in STEPPING:
            return False
        if not self._can_continue(router):
            self._rest(router)
            return False
        self._held.pop(router, None)
        self._lagging[router] = None
        self._steps_of(router).begin(router)
        return True

    def _steps_of(self, router: Router) -> ForwardSteps:
        return self.leaving if router.dest.is_far else self._steps

    def _can_continue(self, router: Router) -> bool:
        return self._steps_of(router).can_continue(router)

    def _on_end(self, router: Router, *, blocked: bool = False, is_whole: bool = False) -> None:
        """Continue after a step; for the arguments see `OnEnd`."""
        router.enter(RouterWork.LAGGING)
        if router.blocked and not blocked and self._held:  # where one found room, others may
            self._tries += 2
            self._arm(1)
        router.blocked = blocked
        if blocked or not self._can_continue(router):
            self._rest(router)
            return
        self._release(router, everybody=False)
        if is_whole:
            self.note(router)
        else:
            self.drive(router)

    def _rest(self, router: Router) -> None:
        """Stop driving a router that cannot continue now."""
        self._lagging.pop(router, None)
        self._held.pop(router, None)
        if self._can_continue(router):
            router.enter(RouterWork.HELD)
            self._held[router] = None
            self._arm(self._core.config.router_retry_ms)
        elif router.work is not RouterWork.IDLE:
            router.enter(RouterWork.IDLE)
        self._release(router, everybody=True)

    def forget(self, *gone: Router) -> Iterator[None]:
        """Forget routers that are gone, perhaps 10,000. Readers may trim what these held.

        No reader waits for them when this returns. The steps take them off the lists of routers
        with work; a router that is found there until then begins no step.
        """
        for router in gone:
            if router.waiting:
                self._release(router, everybody=True)
        for source in {router.source for router in gone}:
            trim(self._core, source)
        return self._remove_from_lists(list(gone))

    def report(self, gone: Sequence[Router], then: Callable[[], None]) -> Iterator[None]:
        """Return the steps that report routers gone with a topic to the cores of their halves.

        `then` is called once these have answered, at once if there are none.
        """
        halves = [router for router in gone if router.token]
        if not halves:
            then()
            return iter(())
        return chain.from_iterable(each(halves, then) for each in self.on_gone_with_topic)

    def _remove_from_lists(self, gone: list[Router]) -> Iterator[None]:
        """Take routers off the lists, some a step, and their objects out of this one."""
        while gone:
            for router in gone[-_FORGOTTEN_A_STEP:]:
                for routers in (self._news, self._lagging, self._held):
                    routers.pop(router, None)
                # A step ends by itself.
                if router.work is not RouterWork.IDLE and router.work not in STEPPING:
                    router.enter(RouterWork.IDLE)
            del gone[-_FORGOTTEN_A_STEP:], router
            yield
