"""The outside of an engine, with which it is built: the other cores, and the memory for clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from topics.engine.shared.limits import AskForRoom
from topics.engine.shared.read_turns import never
from topics.store.backup.core_orders import CoresToCopy


class JoinedCores(CoresToCopy, Protocol):
    """The cores of a server, of which the engine's is one: `OtherHalves` and `OtherQueues`, too."""

    def core_of(self, topic: str) -> int:
        """Return the core that owns a topic."""

    def ask(self, topic: str, order: Any, done: Callable[[Any], None]) -> None: ...

    def ask_for_room(self, limit: str, more: int) -> None:
        """Ask the other cores for more of a limit than this core's share."""


class Outside(NamedTuple):
    """The other cores of the server, and the memory for clients."""

    cores: JoinedCores | None = None
    """If it is None, there are none, or nothing is asked of them."""
    is_memory_short: Callable[[], bool] = never
    """Whether the memory for clients is used up: no read begins in the next pass."""

    @property
    def ask_for_room(self) -> AskForRoom | None:
        return None if self.cores is None else self.cores.ask_for_room


NOTHING_OUTSIDE = Outside()
