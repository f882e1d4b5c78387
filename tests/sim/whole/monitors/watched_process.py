"""The process that a monitor watches, with the directory that it serves: of a machine there is one,
or one for each core.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.sim import SimRing
    from tests.sim.whole.monitors.changes import Changes
    from tests.sim.whole.monitors.monitor import Monitor
    from tests.sim.whole.monitors.numbers import Numbers
    from topics.config import Config


class Served(Protocol):
    """A process, its directory, and how its faults are reported."""

    @property
    def ring(self) -> SimRing: ...

    @property
    def config(self) -> Config: ...

    @property
    def monitor(self) -> Monitor: ...

    @property
    def numbers(self) -> Numbers: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def ended(self) -> list[int]:
        """Return the exit code, once it has ended by itself."""

    @property
    def counts(self) -> Counter[str]: ...

    @property
    def engine(self) -> Any:
        """Return its engine; None until recovery has ended."""

    @property
    def lied(self) -> bool:
        """Return whether a sync was answered that was not made, and no later one has made up for
        it.
        """

    @property
    def tracing(self) -> bool: ...

    def say(self, *parts: object) -> None: ...

    def wrong(self, text: str) -> Exception: ...
