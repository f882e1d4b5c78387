"""An ack of class `fsync` is not answered before the frame that says so is on stable storage.

The monitor looks for records by their text; of a job that is done there is only a frame with its seq.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from tests.sim.file import SimFile
from topics.engine.controls import from_runs
from topics.store.format import FRAME_HEADER_BYTES, FrameType

if TYPE_CHECKING:
    from tests.sim.whole.machine import Machine

_CONSUMPTION = re.compile(rb'\{"upto":\d+(?:,"cap":\[\d+,\d+\])?,"seqs":\[([\d,]+)\]\}')
"""The payload of a frame that ends jobs: first and last of each run of seqs."""
_FRAME_HEAD = struct.Struct("<IBBQQ")
"""Length, type, flags, topic, seq."""


class Consumed:
    """Of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._frames: dict[int, tuple[SimFile, int, set[tuple[int, int]]]] = {}
        """By the file's identity: (topic id, seq) of the jobs that are durably over in it after so many syncs."""

    def now(self) -> int:
        """Number of the snapshot that a power cut leaves: a later one may tell of an ack instead of the log."""
        listed = self._machine.monitor.snapshot(durable=True)
        return listed.number if listed is not None else 0

    def acked(self, queue: str, seqs: set[int], asked: int) -> None:
        """These were acked at class `fsync`, and nothing else has deleted them. asked: `now` when they were."""
        machine = self._machine
        engine = machine.engine
        topic = engine._core.registry.by_name.get(queue) if engine is not None else None
        if machine.lied or topic is None:
            return
        missing = {(topic.id, seq) for seq in seqs}
        for name, file in machine.monitor.durable_files():
            if missing and name.startswith("wal-"):
                missing -= self._of(file)
        if missing and self.now() == asked:
            raise machine.wrong(f"{queue}: acked before it was durable: {sorted(seq for _topic, seq in missing)}")
        machine.counts["syncs before acks of jobs checked"] += len(seqs)

    def _of(self, file: SimFile) -> set[tuple[int, int]]:
        known = self._frames.get(id(file))
        if known is None or known[0] is not file or known[1] != file.syncs:
            found: set[tuple[int, int]] = set()
            for match in _CONSUMPTION.finditer(file.durable):
                if match.start() >= FRAME_HEADER_BYTES:
                    head = _FRAME_HEAD.unpack_from(file.durable, match.start() - FRAME_HEADER_BYTES)
                    if head[1] == FrameType.CONSUME:
                        found.update((head[3], seq) for seq in from_runs([int(text) for text in match[1].split(b",")]))
            known = self._frames[id(file)] = file, file.syncs, found
        return known[2]
