"""Leases that begin to be logged: those that exist are stated first, some rows a frame.

Source: R-DUR-11. The first frame voids what was stated before. From it on, every change of a lease
is logged, so that a row is the state at its step. The config that keeps leases is staged last: if
the process ends before, a start forgets them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from topics.clock import Clock
from topics.engine.state.control_frames import LeasesPayload, encode
from topics.engine.state.leases import Leases
from topics.engine.state.staged_operations import Notice, OperationCore
from topics.engine.state.topic import Life, Topic
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType


class FirstLeasesCore(OperationCore, Protocol):
    """The part of the core that the first frames of leases need."""

    clock: Clock


def all_leases(leases: Leases) -> LeasesPayload:
    """Return what the frame before a config that keeps leases states: all that is not logged."""
    if leases.is_logged:
        return LeasesPayload()
    return LeasesPayload(leases.image(), forgotten=True, attempts=leases.attempts())


def begin_to_log(
    core: FirstLeasesCore, topic: Topic, leases: Leases, then: Callable[[TopicsError | None], None]
) -> bool:
    """Log very many existing leases in steps, and return True; `then` is called after the last.

    Returns: False, where no step is needed: they are logged, or so few that one frame has them. If
    the topic is deleted meanwhile, `then` gets no error, and asks again.
    """
    if leases.when_logged is not None:
        leases.when_logged.append(then)
        return True
    if leases.is_logged or not leases.is_long:
        return False
    leases.is_logged = True
    leases.when_logged = [then]
    _FirstLeases(core, topic, leases).go_on(None)
    return True


class _FirstLeases:
    def __init__(self, core: FirstLeasesCore, topic: Topic, leases: Leases) -> None:
        self._core = core
        self._topic = topic
        self._leases = leases
        self._frames = _frames_of(leases)

    def go_on(self, error: TopicsError | None) -> None:
        """Stage the next frame, after the commit of the one before."""
        topic = self._topic
        if topic.life is Life.GONE or topic.life is Life.DELETING:
            self._end(None, is_logged=False)
            return
        frame = next(self._frames, None) if error is None else None
        if frame is None:
            self._end(error, is_logged=error is None)
            return
        core = self._core
        try:
            with core.log.use_reserve():
                upto = topic.next_seq - 1
                core.log.stage_control(topic.id, FrameType.LEASES, upto, core.clock.now_ms(), encode(frame))
            Notice(core, topic, self.go_on).stage(synced=False)
        except TopicsError as failed:
            self._end(failed, is_logged=False)

    def _end(self, error: TopicsError | None, *, is_logged: bool) -> None:
        leases = self._leases
        waiting, leases.when_logged = leases.when_logged or [], None
        leases.is_logged = is_logged
        for then in waiting:
            then(error)


def _frames_of(leases: Leases) -> Iterator[LeasesPayload]:
    """Yield what the frames state. Attempts follow all leases: a start adds them to known jobs."""
    yield LeasesPayload(forgotten=True)
    for rows in leases.image_in_steps():
        yield LeasesPayload(rows)
    for attempts in leases.attempts_in_steps():
        yield LeasesPayload(attempts=attempts)
