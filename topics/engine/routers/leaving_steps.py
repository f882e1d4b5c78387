"""Steps of routers whose destination is on another core: planned and read here, staged there.

The position is the one that the link answers. As long as the router is unsure of it, a step asks
only for that: what is known here is a lower bound, of the last snapshot or before an answer was
lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topics.engine.index.selected_rows import SelectedRows
from topics.engine.routers.copies import Copies
from topics.engine.routers.far_messages import LinkState, NoLink, OtherCores, Reply, SentStep
from topics.engine.routers.forward import ForwardStep
from topics.engine.routers.forward_steps import ForwardSteps, ForwardStepsCore, OnEnd, forget_hops
from topics.engine.state.router_work import RouterWork
from topics.engine.state.staged_operations import Turn
from topics.engine.state.topic import Router
from topics.engine.write.delete import trim
from topics.errors import TopicsError

_log = logging.getLogger(__name__)


class LeavingSteps(ForwardSteps):
    """The halves of these steps at the source."""

    def __init__(self, core: ForwardStepsCore, on_end: OnEnd) -> None:
        super().__init__(core, on_end)
        self.others: OtherCores | None = None
        """The other cores; None as long as there are none."""
        self.on_gone: list[Callable[[Router], None]] = []
        """Called with a router that has no link any more: its destination was deleted."""

    def can_continue(self, router: Router) -> bool:
        return self.others is not None and super().can_continue(router)

    def _on_source_retained(self, router: Router, error: TopicsError | None) -> None:
        self._on_retained(router, error)

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
        assert self.others is not None, "the step was begun"
        self.others.ask(router.dest.name, sent, partial(self._on_reply, router, step))

    def _on_reply(self, router: Router, step: ForwardStep, reply: Reply | TopicsError) -> None:
        if isinstance(reply, NoLink):
            self._on_end(router, blocked=True)
            self.note_gone(router)
        elif not isinstance(reply, LinkState):  # perhaps it was executed
            router.is_unsure = True
            self._on_end(router, blocked=True)
        elif reply.position > router.source.head:
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
            self.take_position(router, reply.position)
            router.forwarded = reply.forwarded
            self._on_end(router, blocked=reply.blocked, is_whole=is_whole)

    def note_gone(self, router: Router) -> None:
        """Note that a router has no link any more."""
        for each in self.on_gone:
            each(router)

    def take_position(self, router: Router, position: int) -> None:
        """Take the position of the link of a router that has no step in progress."""
        router.is_unsure = False
        router.position = position
        if router.kept or router.keeping:
            router.drop_kept()
        forget_hops(router.source)
        trim(self._core, router.source)
