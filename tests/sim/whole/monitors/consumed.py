"""An ack of class `fsync` is not answered before its frame is on stable storage.

The monitor looks for records by their text; of a finished job there is only a frame with its seq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.sim.whole.monitors.controls import Controls
from topics.engine.state.control_frames import from_runs
from topics.store.format.log_format import FrameType

if TYPE_CHECKING:
    from tests.sim.whole.machine import Machine

_CONSUMPTION = re.compile(rb'\{"upto":\d+(?:,"cap":\[\d+,\d+\])?,"seqs":\[([\d,]+)\]\}')
"""The payload of a frame that ends jobs: first and last of each run of seqs."""


class Consumed:
    """The checks of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._over = Controls(FrameType.CONSUME, _CONSUMPTION, _read)
        """(topic id, seq) of the jobs whose end is durable."""

    def now(self, queue: str) -> int:
        """Return the number of the snapshot that a power cut leaves: a later one may record an ack
        instead of the log.
        """
        listed = self._machine.home(queue).monitor.snapshot(durable=True)
        return listed.number if listed is not None else 0

    def acked(self, queue: str, seqs: set[int], asked: int) -> None:
        """Check jobs acked at class `fsync`, and deleted by nothing else. asked: `now` at the
        request.
        """
        machine = self._machine
        home = machine.home(queue)
        engine = home.engine
        topic = engine._core.registry.by_name.get(queue) if engine is not None else None
        if machine.lied or topic is None:
            return
        missing = {(topic.id, seq) for seq in seqs}
        for name, file in home.monitor.durable_files():
            if missing and name.startswith("wal-"):
                missing.difference_update(self._over.of(file))
        if missing and self.now(queue) == asked:
            raise machine.wrong(f"{queue}: acked before it was durable: {sorted(seq for _topic, seq in missing)}")
        machine.counts["syncs before acks of jobs checked"] += len(seqs)


def _read(topic_id: int, _seq: int, match: re.Match[bytes]) -> list[tuple[int, int]]:
    return [(topic_id, seq) for seq in from_runs([int(text) for text in match[1].split(b",")])]
