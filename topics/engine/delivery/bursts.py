"""From a pass's result to its burst, made once for all readers of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics.engine.delivery.frames import Burst, frames_of
from topics.engine.values.results import DiffResult

if TYPE_CHECKING:
    from topics.engine.shared.core import Core


def burst_of(core: Core, topic: str, from_seq: int, result: DiffResult, *, told_caught_up: bool) -> Burst | None:
    """None when the pass tells a reader nothing; see `frames_of`. from_seq: that of the pass."""

    def make() -> Burst | None:
        frames = frames_of(topic, from_seq, result, told_caught_up=told_caught_up)
        return Burst(frames, core.clock.monotonic_ns()) if frames else None

    return core.reads.derive(result, told_caught_up, make)
