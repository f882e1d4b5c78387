"""The archive of a server, read over HTTP: how far it is, and its files in pieces."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

from topics.client.attempts import Lost, Send
from topics.client.client_options import Address, options_of
from topics.client.exchange import ServerRequest
from topics.client.refusal import refusal_of
from topics.client.sockets import Sockets
from topics.common.values.archive_state import ArchivedEnd, ArchiveState
from topics.errors import NoAnswerError


class ArchiveClient:
    """One connection to a server with an archive. A call is one request, without repetitions."""

    def __init__(self, url: str, key: str | None, *, mirror: str = "", quiet_seconds: float = 10.0) -> None:
        """mirror: the name under which the server shows what it has; "": it does not.

        quiet_seconds: without a byte of the answer after which a request is given up.

        Raises: UsageError, an address or a key that cannot be used.
        """
        self._address = Address.parse(url)
        self._options = options_of({"key": key, "attempt_timeout": quiet_seconds})
        self._sockets = Sockets(self._address, self._options)
        self._quiet = quiet_seconds
        self._mirror = mirror

    @property
    def has_key(self) -> bool:
        """Whether requests have a key."""
        return self._options.key is not None

    def state(self, upto_ms: int = 0) -> ArchiveState:
        """Return how far the archive is.

        upto_ms: Unix ms up to which the mirror has it, durably; 0: it has nothing.
        Raises: NoAnswerError, there is none now; RequestError, it is refused; StorageError.
        """
        stated = f"?{urlencode({'mirror': self._mirror, 'upto_ms': upto_ms})}" if self._mirror else ""
        body = self._ask(f"/v0/archive{stated}")
        try:
            raw: dict[str, Any] = msgspec.json.decode(body)["archive"]
            return ArchiveState(
                timeline=raw["timeline"],
                now_ms=raw["now_ms"],
                upto_ms=raw["upto_ms"],
                shards={int(shard): ArchivedEnd(**end) for shard, end in raw["shards"].items()},
                holes=tuple((hole["from_ms"], hole["to_ms"]) for hole in raw["holes"]),
                bases=tuple(raw["bases"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NoAnswerError(f"{self._address.url} answered what no topics server says: {error}") from None

    def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        """Return bytes of a file.

        Raises: NoAnswerError, there are none now; RequestError, not_found among them; StorageError.
        """
        query = urlencode({"timeline": timeline, "path": path, "offset": offset, "bytes": most})
        return self._ask(f"/v0/archive/file?{query}")

    def _ask(self, path: str) -> bytes:
        send = Send(ServerRequest("GET", path), self._quiet, self._quiet * 6)
        outcome = self._sockets.exchange(send)
        if isinstance(outcome, Lost):
            raise NoAnswerError(f"no answer from {self._address.url}: {outcome.why}")
        if outcome.status >= 300:
            refusal = refusal_of(outcome, self._address.url, has_key=self._options.key is not None)
            if refusal.may_pass:
                raise NoAnswerError(f"{self._address.url} does not serve its archive now: {refusal.error}")
            raise refusal.error
        return outcome.body

    def close(self) -> None:
        self._sockets.close()
