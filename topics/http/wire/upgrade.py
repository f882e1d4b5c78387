"""The seam where a connection stops being HTTP: behind a 101 its bytes belong to another protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from topics.http.wire.transport import Transport


class Upgraded(Protocol):
    """What a connection speaks behind its 101. It takes the place of the connection's state: all that the loop's
    connection tells, it tells this from then on."""

    def receive(self, data: bytes | memoryview) -> None:
        """Bytes from the peer, what came behind its request first; a view is only read during the call."""

    def end_of_stream(self) -> None: ...

    def drained(self) -> None: ...

    def lost(self) -> None: ...


OpenUpgraded = Callable[["Transport"], Upgraded]
