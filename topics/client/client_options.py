"""The address of a server and the options of its client: keys, times, limits."""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from topics.common.values import arguments
from topics.common.values.near_names import bracketed
from topics.errors import UsageError

_EXAMPLE = "http://localhost:4000"
_PORTS = {"http": 80, "https": 443}
_SECONDS_MAX = 1_000_000
_KEY_BYTES = 16


def new_key() -> str:
    """Return an idempotency key that no other write has."""
    return secrets.token_hex(_KEY_BYTES)


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of `topics.connect`."""

    key: str | None
    timeout: float
    attempt_timeout: float
    first_pause: float
    longest_pause: float
    window_ms: int | None
    page_lease_ms: int
    idle_connections: int
    idle_seconds: float
    max_answer_bytes: int
    gather_ms: float
    gather_records: int
    gather_bytes: int
    gather_waiting: int
    ssl_context: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of `connect`, checked: keys, headers, timeouts, limits of what is gathered."""

    key: str | None = None
    """One of the server's keys; None: it has none."""
    timeout: float = 30.0
    """Seconds that a call may take in all, with its repetitions and without the time it asks the
    server to wait.
    """
    attempt_timeout: float = 10.0
    """Seconds in which no byte is sent or comes, until a request is given up, and repeated."""
    first_pause: float = 0.05
    """Seconds of the first pause before a repetition; each one after it is twice as long."""
    longest_pause: float = 2.0
    window_ms: int | None = None
    """The idempotency window to assume of topics whose configuration the key may not read."""
    page_lease_ms: int = 30_000
    """How long a page of a named reader is this client's before another one gets it."""
    idle_connections: int = 8
    """Connections that are kept for later calls."""
    idle_seconds: float = 30.0
    """How long they are kept; the server closes them after 60 s."""
    max_answer_bytes: int = 1 << 30
    """Bytes of an answer from which on it is refused."""
    gather_ms: float = 1.0
    """How long `append_soon` gathers records before it sends them."""
    gather_records: int = 1000
    """Records that are sent at once, without waiting for more."""
    gather_bytes: int = 1 << 20
    """Bytes of them that are sent at once."""
    gather_waiting: int = 100_000
    """Records that may wait to be sent; beyond that, `append_soon` waits for room."""
    ssl_context: ssl.SSLContext | None = None
    """For https; None: the system's certificates."""

    def __post_init__(self) -> None:
        if self.key is not None:
            _check_key(self.key)
        for name in ("timeout", "attempt_timeout", "first_pause", "longest_pause", "idle_seconds", "gather_ms"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _SECONDS_MAX:
                raise UsageError(f"is {arguments.shown(value)}: use a number from 0 to {_SECONDS_MAX}", name)
        for name in ("timeout", "attempt_timeout", "first_pause", "longest_pause"):
            if not getattr(self, name):
                raise UsageError("is 0: use a number of seconds above 0", name)
        arguments.optional_count("window_ms", self.window_ms)
        arguments.count("page_lease_ms", self.page_lease_ms, 86_400_000, 100)
        arguments.count("idle_connections", self.idle_connections)
        for name in ("max_answer_bytes", "gather_records", "gather_bytes", "gather_waiting"):
            arguments.count(name, getattr(self, name), least=1)
        if self.ssl_context is not None and not isinstance(self.ssl_context, ssl.SSLContext):
            raise UsageError(f"ssl_context is {arguments.shown(self.ssl_context)}: use an ssl.SSLContext")


def options_of(settings: dict[str, Any]) -> ClientOptions:
    """Return the options that keyword arguments name. Raises: UsageError."""
    known = [field.name for field in fields(ClientOptions)]
    for name in settings:
        if name not in known:
            raise UsageError(f"connect has no setting {name}{bracketed(name, known)}: use one of {', '.join(known)}")
    return ClientOptions(**settings)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is."""

    url: str
    """The text that the caller gave, for messages."""
    host: str
    port: int
    is_secure: bool
    base: str
    """The path before `/v0`, of a server behind a proxy; usually ""."""

    @classmethod
    def parse(cls, url: object) -> Address:
        """Take an address apart. Raises: UsageError."""
        if not isinstance(url, str):
            raise UsageError(f'is {arguments.shown(url)}: use the address of a server, as "{_EXAMPLE}"', "url")
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError as error:
            raise UsageError(f'is {arguments.shown(url)} ({error}): use one like "{_EXAMPLE}"', "url") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise UsageError(f'is {arguments.shown(url)}: begin with http:// or https://, as in "{_EXAMPLE}"', "url")
        if port == 0:
            raise UsageError(f'is {arguments.shown(url)}: no server has port 0; use one like "{_EXAMPLE}"', "url")
        if parts.username is not None or parts.password is not None:
            raise UsageError(
                "has a user or a password: give the server's key by connect(url, key=...), or a "
                "command's by --key-file or TOPICS_KEY",
                "url",
            )
        if parts.query or parts.fragment:
            raise UsageError(f'is {arguments.shown(url)}: leave out what follows the path, as in "{_EXAMPLE}"', "url")
        host, base = parts.hostname, parts.path.rstrip("/").removesuffix("/v0")
        if any(sign <= " " or sign > "~" for sign in host + base):
            raise UsageError(f"is {arguments.shown(url)}: use plain ASCII, without blanks", "url")
        return cls(url.strip(), host, port or _PORTS[parts.scheme], parts.scheme == "https", base)

    @property
    def host_field(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_secure else "http"] else f"{host}:{self.port}"


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not key or any(sign <= " " or sign > "~" for sign in key):
        raise UsageError(
            "is no key of a server: use visible ASCII without blanks, or None for a server without keys", "key"
        )
