"""Requests for a checkpoint. Source: wire contract 7.9, R-CHK."""

from __future__ import annotations

from typing import Protocol

from topics.engine.shared.limits import Limits
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state import refusals
from topics.engine.state.waiters import EndsAtShutdown
from topics.engine.values.ports import LoopPort, RequestedPort, TimerPort
from topics.engine.values.results import CheckpointResult, Done
from topics.errors import StorageError, TopicsError

_BYTES_AN_ANSWER = 2048
"""Bytes of the reads' budget that an answer takes: one checkpoint may end thousands of requests."""


class CheckpointCore(Protocol):
    """The part of the core that a request for a checkpoint needs."""

    checkpoint_waits: dict[EndsAtShutdown, None]
    closing: bool
    limits: Limits
    loop: LoopPort
    requested: RequestedPort
    turns: ReadTurns
    waits: int


class CheckpointWait:
    """One request for a checkpoint. `done` is called once, unless it is cancelled before."""

    def __init__(self, core: CheckpointCore, number: int, wait_ms: int | None, done: Done[CheckpointResult]) -> None:
        """number: the checkpoint number of an earlier answer, 0 = a new request.

        wait_ms: None to wait until the checkpoint ends.
        """
        self._core = core
        self._number = number
        """The checkpoint that is waited for."""
        self._wait_ms = wait_ms
        self._done: Done[CheckpointResult] | None = done
        self._timer: TimerPort | None = None
        self._decided: CheckpointResult | TopicsError | None = None
        """The answer, once it waits for its turn."""

    def begin(self) -> None:
        core = self._core
        if core.closing:
            self._answer(refusals.shutting_down())
            return
        if 0 < self._number <= core.requested.shown:
            self._answer(self._result(done=True))
            return
        self._number = core.requested.number(self._number)
        if self._wait_ms == 0:
            core.requested.begin(self._number)
            self._answer(self._result(done=False))
        elif core.limits.waits.left < 1:
            self._answer(core.limits.waits.refusal())
        else:
            self._park()

    def cancel(self) -> None:
        """Give up the answer; the checkpoint continues."""
        self._done = None
        self._leave()

    def _park(self) -> None:
        core = self._core
        core.waits += 1
        core.checkpoint_waits[self] = None
        if self._wait_ms is not None:
            self._timer = core.loop.call_later(self._wait_ms * 1_000_000, self._on_deadline)
        core.requested.ask(self._number, self._on_checkpoint)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        core = self._core
        if self in core.checkpoint_waits:
            del core.checkpoint_waits[self]
            core.waits -= 1
            core.requested.leave(self._on_checkpoint)

    # --- the answer --------------------------------------------------------------------------------------------------
    def _on_checkpoint(self, error: StorageError | None) -> None:
        self._answer_soon(error if error is not None else self._result(done=True))

    def _on_deadline(self) -> None:
        self._answer_soon(self._result(done=False))

    def on_shutdown(self) -> None:
        self._answer_soon(refusals.shutting_down())

    def _result(self, *, done: bool) -> CheckpointResult:
        return CheckpointResult(self._core.requested.snapshot_number, done, self._number)

    def _answer_soon(self, answer: CheckpointResult | TopicsError) -> None:
        """Answer in this pass, or later if the reads use up its budget; the first answer wins."""
        if self._decided is None:
            self._decided = answer
            self._core.turns.take(self._answer_now)

    def _answer_now(self) -> None:
        assert self._decided is not None, "a turn that nothing was decided for"
        if self._done is not None:
            self._core.turns.spend(_BYTES_AN_ANSWER)
            self._answer(self._decided)

    def _answer(self, answer: CheckpointResult | TopicsError) -> None:
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(answer)
