"""The topics that a core may have: a rebuild from descriptions leaves out what moved away."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from topics.store.cores.slot_map import SlotMap
from topics.store.disk.directory_format import NO_CORE
from topics.store.recovery.verified_batches import NameOfTopic

_INTERNAL = " "
"""How the names of an engine's own topics begin. Each core has those of its engine."""


@dataclass(frozen=True, slots=True)
class OwnedTopics:
    """The topics of one core."""

    core: int = NO_CORE
    number: int = 0
    """That of its directory, from the slot map."""
    slots: SlotMap | None = None
    """The owners of all slots; None: every topic may be here."""

    def owns(self, name: str) -> bool:
        """Return whether a topic of this name may be in the directory."""
        return self.slots is None or name.startswith(_INTERNAL) or self.slots.core_of(name) == self.core

    def has(self, description: bytes) -> bool:
        """Return whether the topic that is described may be. One without a name may."""
        if self.slots is None:
            return True
        try:
            return self.owns(msgspec.json.decode(description, type=NameOfTopic).name)
        except msgspec.DecodeError:
            return True


EVERY_TOPIC = OwnedTopics()
"""The topics of a directory of one core."""
