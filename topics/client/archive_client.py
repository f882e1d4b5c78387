"""The archive of a server, read over HTTP: how far it is, and its files in pieces."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from topics.client.attempts import Lost, Send
from topics.client.client_options import Address, options_of
from topics.client.exchange import ServerRequest
from topics.client.refusal import refusal_of
from topics.client.sockets import Sockets
from topics.common.values.archive_state import ArchivedEnd, ArchiveOfCores, ArchiveState
from topics.errors import NoAnswerError, UsageError


class _StatedShard(msgspec.Struct):
    file: int
    bytes: int
    batch: int


class _StatedHole(msgspec.Struct):
    from_ms: int
    to_ms: int | None


class _StatedOfCores(msgspec.Struct):
    joint: str
    set_back: tuple[tuple[int, int], ...]


class _StatedArchive(msgspec.Struct):
    timeline: str
    now_ms: int
    upto_ms: int
    shards: dict[int, _StatedShard]
    holes: list[_StatedHole]
    bases: tuple[str, ...]
    of_cores: _StatedOfCores | None = None


class _ArchiveAnswer(msgspec.Struct):
    archive: _StatedArchive


_decoder = msgspec.json.Decoder(_ArchiveAnswer)


def state_in(body: bytes) -> ArchiveState:
    """Return the state in an answer (7.20). Raises: msgspec.DecodeError."""
    found = _decoder.decode(body).archive
    of_cores = found.of_cores
    return ArchiveState(
        timeline=found.timeline,
        now_ms=found.now_ms,
        upto_ms=found.upto_ms,
        shards={shard: ArchivedEnd(end.file, end.bytes, end.batch) for shard, end in found.shards.items()},
        holes=tuple((hole.from_ms, hole.to_ms) for hole in found.holes),
        bases=found.bases,
        of_cores=None if of_cores is None else ArchiveOfCores(of_cores.joint, of_cores.set_back),
    )


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

    def state(self, upto_ms: int = 0, core: int = 0) -> ArchiveState:
        """Return how far the archive is.

        core: of a server of several cores, whose archive. One core is asked in the same way.
        upto_ms: Unix ms up to which the mirror has it, durably; 0: it has nothing.
        Raises: NoAnswerError, there is none now; UsageError, there will be none at this address;
            RequestError, it is refused; StorageError.
        """
        stated = {"mirror": self._mirror, "upto_ms": upto_ms} if self._mirror else {}
        body = self._ask(f"/v0/archive?{urlencode({'core': core, **stated})}")
        try:
            return state_in(body)
        except msgspec.DecodeError as error:
            raise NoAnswerError(f"{self._address.url} answered what no topics server says: {error}") from None

    def piece(self, timeline: str, path: str, offset: int, most: int, core: int = 0) -> bytes:
        """Return bytes of a file. core: as of `state`.

        Raises: NoAnswerError, there are none now; UsageError, as `state`; RequestError, not_found
            among them; StorageError.
        """
        query = urlencode({"timeline": timeline, "path": path, "offset": offset, "bytes": most, "core": core})
        return self._ask(f"/v0/archive/file?{query}")

    def _ask(self, path: str) -> bytes:
        send = Send(ServerRequest("GET", path), self._quiet, self._quiet * 6)
        try:
            outcome = self._sockets.exchange(send)
        except NoAnswerError as error:  # another try would end as this one did
            raise UsageError(f"{self._address.url}: {error}") from error
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
