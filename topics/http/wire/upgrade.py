"""The handover of a connection from HTTP to another protocol, after a 101."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from topics.http.wire.transport import Transport


class Upgraded(Protocol):
    """The protocol of a connection after its 101.

    It replaces the connection's state, and receives all later events of the loop's connection.
    """

    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes from the peer, beginning with those that followed its request.

        A view is only read during the call.
        """

    def end_of_stream(self) -> None: ...

    def drained(self) -> None: ...

    def lost(self) -> None: ...


OpenUpgraded = Callable[["Transport"], Upgraded]
