"""Steps of routers whose destination is on another core: planned and read here, staged there.

The position is the one that the link answers. As long as the router is unsure of it, a step asks
only for that: what is known here is a lower bound, of the last snapshot or before an answer was
lost.

A few steps are in progress at a time, whose copies wait for the other cores; more routers take
turns. So what is held for other cores is bounded, however many routers there are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.selected_rows import SelectedRows
from topics.engine.routers.copies import Copies
from topics.engine.routers.far_messages import LinkState, NoLink, OtherHalves, Reply, SentStep
from topics.engine.routers.forward import ForwardStep
from topics.engine.routers.forward_steps import ForwardSteps, ForwardStepsCore, OnEnd, forget_hops
from topics.engine.state.router import ABOVE_ALL
from topics.engine.state.router_work import RouterWork
from topics.engine.state.staged_operations import Turn
from topics.engine.state.topic import Router
from topics.engine.write.delete import trim
from topics.engine.write.retention import when_retained
from topics.errors import TopicsError

_STEPS_MAX = 16
"""Steps in progress."""

_log = logging.getLogger(__name__)


class LeavingSteps(ForwardSteps):
    """The halves of these steps at the source."""

    copied_bytes = 512 << 10

    def __init__(self, core: ForwardStepsCore, on_end: OnEnd, others: OtherHalves | None) -> None:
        """others: the other cores; None if there are none."""
        super().__init__(core, self._on_ended)
        self._owner = on_end
        self._others = others
        self._begun = 0
        """Steps in progress."""
        self._queue: deque[Router] = deque()
        """Routers whose turn has not come."""
        self._is_beginning = False
        self.on_gone: list[Callable[[Router], None]] = []
        """Called with a router that has no link any more: its destination was deleted."""

    def begin(self, router: Router) -> None:
        router.enter(RouterWork.RETAINING)
        self._queue.append(router)
        self._begin_some()

    def _begin_some(self) -> None:
        """Begin the steps whose turn has come. One that ends at once begins no other by itself."""
        if self._is_beginning:
            return
        self._is_beginning = True
        while self._queue and self._begun < _STEPS_MAX:
            router = self._queue.popleft()
            self._begun += 1
            when_retained(self._core, router.source, self._core.clock.now_ms(), partial(self._on_retained, router))
        self._is_beginning = False

    def _on_ended(self, router: Router, *, blocked: bool = False, is_whole: bool = False) -> None:
        self._begun -= 1
        self._owner(router, blocked=blocked, is_whole=is_whole)
        self._begin_some()

    def can_continue(self, router: Router) -> bool:
        return self._others is not None and super().can_continue(router)

    def _plan(self, router: Router) -> None:
        if router.is_unsure:
            self._send(router, ForwardStep(router.config, router.position, [], router.source.head), None)
        else:
            super()._plan(router)

    def _split(self, router: Router, step: ForwardStep, rows: SelectedRows) -> tuple[bool, SelectedRows]:
        return False, rows

    def _room_for(self, router: Router, step: ForwardStep, seq: int, sizes: Sequence[int] | NDArray[np.uint32]) -> int:
        return len(sizes)

    def _admit(self, router: Router, step: ForwardStep, copies: Copies) -> None:
        step.hops = self._hops_after(router, copies.seqs)
        self._send(router, step, copies)

    def _stage(self, router: Router, step: ForwardStep) -> None:
        if step.upto <= router.position and not step.holes:
            self._on_end(router)
        else:
            self._send(router, step, None)

    def _send(self, router: Router, step: ForwardStep, copies: Copies | None) -> None:
        if router.changing:  # planned again after the change (R-RTR-8)
            router.enter(RouterWork.QUEUED)
            Turn(self._core, router.source, partial(self._on_end, router), partial(self._on_turn_failed, router)).wait()
            return
        router.enter(RouterWork.COMMITTING)
        sent = SentStep(router.token, router.position, step.upto, step.hole_hops, step.hops)
        if copies is not None:
            rows = copies.seqs.tobytes(), copies.rows, copies.buffer
            sent = SentStep(router.token, router.position, step.upto, step.hole_hops, step.hops, *rows)
        assert self._others is not None, "the step was begun"
        self._others.ask(router.dest.name, sent, partial(self._on_reply, router, step))

    def _on_reply(self, router: Router, step: ForwardStep, reply: Reply | TopicsError) -> None:
        if isinstance(reply, NoLink):
            _log.info("router %s ends with its destination, topic %s", router.name, router.dest.name)
            self._on_end(router, blocked=True)
            self.note_gone(router)
        elif not isinstance(reply, LinkState):  # perhaps it was executed
            router.is_unsure = True
            self._on_end(router, blocked=True)
        elif reply.position > min(router.source.head, router.known_head):
            if not router.blocked:
                _log.error(
                    "router %s has forwarded seq %d of topic %s, which ends at %d: it was rebuilt or restored; delete "
                    "the router to have it begin anew",
                    *(router.name, reply.position, router.source.name, router.source.head),
                )
            router.is_unsure = True
            self._on_end(router, blocked=True)
        else:
            is_whole = reply.position == step.upto and step.is_whole
            # The other core stops, or its topic is being deleted.
            is_refused = reply.position == router.position < step.upto
            self.take_position(router, reply.position)
            router.forwarded = reply.forwarded
            # One that waits for this step comes to the other core's waiters after it.
            router.is_awaited = reply.is_awaited or (router.is_awaited and bool(router.waiting))
            self._on_end(router, blocked=reply.blocked or is_refused, is_whole=is_whole)

    def note_gone(self, router: Router) -> None:
        """Note that a router has no link any more."""
        for each in self.on_gone:
            each(router)

    def take_position(self, router: Router, position: int) -> None:
        """Take the position of the link of a router that has no step in progress."""
        router.is_unsure, router.known_head = False, ABOVE_ALL
        router.position = position
        if router.kept or router.keeping:
            router.drop_kept()
        forget_hops(router.source)
        trim(self._core, router.source)
