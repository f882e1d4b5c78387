"""Numbers that must not be repeated, asked of the engine while it runs.

- No topic shows a seq that a power cut would cause to be given out again: its record is durable, or a
  reservation that covers it is (R-DUR-6).
- Ids of topics, and the numbers that order their changes, only grow, over all lives.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.sim.whole.monitors.controls import Controls
from tests.sim.whole.monitors.listed import Listed, is_durable
from topics.engine.state.topic import Life
from topics.store.format.log_format import FrameType

if TYPE_CHECKING:
    from tests.sim.whole.monitors.watched_process import Served

_RESERVATION = re.compile(rb'\{"generation":(\d+)\}')
"""The payload of a frame that reserves seqs."""


class Numbers:
    """The checks of one directory."""

    def __init__(self, machine: Served) -> None:
        self._machine = machine
        self._last_id = self._last_order = 0
        self._reservations = Controls(FrameType.HEAD_RESERVATION, _RESERVATION, _read)
        """(topic id, generation, seq) of the reservations that are durable."""
        self._known: dict[int, int] = {}
        """By topic id: the seq up to which it was checked in this life."""

    def follow(self, earlier: Numbers, last_order: int) -> None:
        """Take what another object knows of the numbers of this directory. last_order: the highest."""
        self._last_id, self._last_order = earlier._last_id, last_order

    def started(self, engine: Any) -> None:
        """Note that a server has recovered."""
        self._reservations.clear()
        self._known.clear()
        machine, registry = self._machine, engine._core.registry
        listed = machine.monitor.snapshot(durable=True)
        assert listed is not None, "a server that serves has a snapshot"
        for what, found, before in (
            ("an id", registry.last_id, max(self._last_id, listed.topics.last_id)),
            ("an order number", registry.last_order, max(self._last_order, listed.topics.last_order)),
        ):
            if found < before:
                raise machine.wrong(
                    f"{what} of a topic would be given out again: {before} was, and {found} is the last"
                )

    def look(self, engine: Any) -> None:
        machine, core = self._machine, engine._core
        listed: Listed | None = None
        for topic in core.registry.by_id.values():
            if topic.life not in (Life.LIVE, Life.DELETING):
                continue
            if topic.id < core.registry.ids_end:  # else it came from another core
                self._last_id = max(self._last_id, topic.id)
            self._last_order = max(self._last_order, topic.order)
            is_disk = topic.stage_class == topic.config.durability == "disk"
            head = topic.head
            if not is_disk or self._known.get(topic.id, 0) >= head:
                continue
            if is_durable(core, topic, head, machine.ring.disk) is False:
                listed = listed or machine.monitor.snapshot(durable=True)
                assert listed is not None, "a server that serves has a snapshot"
                reserved = self._reserved(topic.id, topic.order, listed)
                if reserved is not None and reserved < head:
                    raise machine.wrong(f"{topic.name} shows seq {head}; a power cut leaves {reserved} reserved")
                machine.counts["seqs found to be reserved"] += 1
            self._known[topic.id] = head

    def _reserved(self, topic_id: int, order: int, listed: Listed) -> int | None:
        """Return the reservation of a topic after a power cut; None: its config was changed since
        the snapshot.
        """
        image = listed.image(topic_id)
        if image is not None and image.order != order:
            return None
        upto = max(image.head, image.reserved) if image is not None else 0
        generation = image.generation if image is not None else 0
        for file, _end in self._machine.monitor.files_of(listed, log_only=True):
            for found_id, found_generation, seq in self._reservations.of(file):
                if found_id == topic_id and found_generation > generation:
                    upto = max(upto, seq)
        return upto


def _read(topic_id: int, seq: int, match: re.Match[bytes]) -> list[tuple[int, int, int]]:
    return [(topic_id, int(match[1]), seq)]
