"""The other cores of the server: which one owns a topic, and how a connection gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topics.loop.loop import Loop
from topics.store.cores.slot_map import SlotMap


class Neighbours:
    """The cores of a server, as one of them sees the others.

    mailboxes: the paths of all cores' mailboxes, its own among them.
    """

    def __init__(self, loop: Loop, slots: SlotMap, core: int, mailboxes: Sequence[str]) -> None:
        assert len(mailboxes) == slots.cores
        self._loop = loop
        self._slots = slots
        self._core = core
        self._mailboxes = mailboxes

    @property
    def mailbox(self) -> str:
        """The path of this core's mailbox."""
        return self._mailboxes[self._core]

    def elsewhere(self, topic: str) -> int | None:
        """Return the core that owns a topic, if it is another one than this."""
        owner = self._slots.core_of(topic)
        return None if owner == self._core else owner

    def give(self, transport: Any, core: int, unread: Callable[[], bytes], stayed: Callable[[int], None]) -> bool:
        """Begin to give a connection of the loop to another core; see `Loop.give_away`."""
        return self._loop.give_away(transport, self._mailboxes[core], unread, stayed)
