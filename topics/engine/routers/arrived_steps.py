"""Steps that arrive from the core of a router's source: staged here, with the position.

The core of the source has planned the step and written the copies out. What is left is that of any
step: the retention of the destination, the search of `exactly_once`, room, and the commit.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from topics.engine.routers.catch_up import is_awaited
from topics.engine.routers.far_messages import LinkState, NoLink, Replied, SentStep
from topics.engine.routers.forward import Forward, ForwardStep
from topics.engine.routers.forward_steps import ForwardSteps, ForwardStepsCore
from topics.engine.state.router import RouterLife
from topics.engine.state.router_work import RouterWork
from topics.engine.state.topic import Life, Router


class ArrivedSteps(ForwardSteps):
    """The steps of links, one at a time for each."""

    def __init__(self, core: ForwardStepsCore) -> None:
        super().__init__(core, self._on_answered)
        self._waiting: dict[Router, deque[tuple[SentStep, Replied]]] = {}
        """By link, its steps; the first one is in progress."""
        self.copies = 0
        """Copies that readers have seen since the start."""

    def take(self, link: Router, step: SentStep, done: Replied) -> None:
        """Execute a step, after those of the link that came before it."""
        waiting = self._waiting.setdefault(link, deque())
        waiting.append((step, done))
        if len(waiting) == 1:
            self._begin(link)

    def _begin(self, link: Router) -> None:
        link.enter(RouterWork.RETAINING)
        self._on_source_retained(link, None)

    def on_applied(self, forward: Forward) -> None:
        self.copies += forward.step.copies
        super().on_applied(forward)

    def _on_answered(self, router: Router, *, blocked: bool = False, is_whole: bool = False) -> None:
        """Answer the step in progress, and begin the next one."""
        router.enter(RouterWork.LAGGING)
        router.enter(RouterWork.IDLE)
        waiting = self._waiting[router]
        _step, done = waiting.popleft()
        if waiting:
            self._begin(router)
        else:
            del self._waiting[router]
        is_gone = router.life is RouterLife.GONE
        # Readers that this step wakes are notified at the end of the pass, so they still wait.
        state = LinkState(router.dest.id, router.position, router.forwarded, blocked, is_awaited(router.dest))
        done(NoLink() if is_gone else state)

    def can_continue(self, router: Router) -> bool:
        return not self.stopped and router.life is RouterLife.LIVE and router.dest.life is Life.LIVE

    def _plan(self, router: Router) -> None:
        """Stage a step that was planned from the link's position; any other one has no effect."""
        sent = self._sent(router)
        if sent.after != router.position:
            self._on_answered(router)
            return
        step = ForwardStep(router.config, sent.upto, list(sent.holes), sent.upto)
        if sent.seqs:
            self._admit(router, step, sent.copies())
        else:
            self._stage(router, step)

    def _sent(self, router: Router) -> SentStep:
        return self._waiting[router][0][0]

    def _hops_after(self, router: Router, seqs: NDArray[np.uint64]) -> list[int]:
        sent = self._sent(router)
        if len(sent.hops) == 1:
            return sent.hops
        at = np.searchsorted(np.frombuffer(sent.seqs, np.uint64), seqs)
        return [sent.hops[each] for each in at.tolist()]

    def _plan_again(self, router: Router) -> None:
        router.enter(RouterWork.LAGGING)
        self._begin(router)
