"""Where a server of NATS is and what its client is given; with `tls://` it demands TLS."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from topics.bridge.side_url import shown_url
from topics.common.extras import install_command
from topics.errors import UsageError

ANSWER_S = 10.0
_OPTIONS = frozenset({"user", "password", "token", "user_credentials", "nkeys_seed", "tls_hostname", "name"})
_FILES = ("user_credentials", "nkeys_seed")
_TOKEN_LINE, _SEED_LINE = b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED"


class NatsPlace(NamedTuple):
    """A server of NATS, and options of `nats.connect` from `--set`."""

    url: str
    options: Mapping[str, str]
    answer_s: float = ANSWER_S
    """How long an answer is waited for."""

    @property
    def has_tls(self) -> bool:
        """Whether nothing may be sent without TLS."""
        return urlsplit(self.url).scheme == "tls"

    @classmethod
    def parse(cls, url: str, options: Mapping[str, str], patience_s: float = ANSWER_S) -> NatsPlace:
        """patience_s: no answer is waited for longer. Raises: UsageError."""
        try:
            import nats  # noqa: F401, PLC0415 - an optional package
        except ImportError:
            raise UsageError(
                f"{shown_url(url)} needs nats-py, which is not installed: {install_command('nats')}"
            ) from None
        for name, value in options.items():
            if name not in _OPTIONS:
                raise UsageError(f"--set {name} is no option of NATS: use one of {', '.join(sorted(_OPTIONS))}")
            if not value:
                raise UsageError(f"--set {name} is empty: give it a value, or leave it out")
        place = cls(url, options, min(ANSWER_S, patience_s))
        if "tls_hostname" in options and not place.has_tls:
            raise UsageError(f"--set tls_hostname has no effect with {shown_url(url)}: use tls://HOST:PORT")
        for name in _FILES:
            if name in options:
                _check_file(name, options[name])
        return place


def _check_file(name: str, path: str) -> None:
    """Check a file with a seed, which nats-py reads at each connection. Raises: UsageError."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"--set {name} names {path!r}, which cannot be read ({error.strerror}): mend it") from None
    seed = content.strip()
    if name == "user_credentials":
        lines = content.splitlines()
        after = [following for line, following in pairwise(lines) if _SEED_LINE in line]
        if not after or not any(_TOKEN_LINE in line for line in lines):
            raise UsageError(f"--set {name} names {path!r}, which is no file of credentials of NATS: mend it")
        seed = after[0].strip()
    try:
        import nkeys  # noqa: PLC0415 - an optional package
    except ImportError:
        raise UsageError(f"--set {name} needs nkeys, which is not installed: pip install nkeys") from None
    try:
        nkeys.from_seed(bytearray(seed))
    except Exception:  # of nkeys, of base32 and of a key that is too short
        raise UsageError(f"--set {name} names {path!r}, which has no valid seed of NATS: mend it") from None


def new_client(place: NatsPlace) -> Any:
    """Return a client of nats-py, not connected: one of `tls://` raises UsageError as it connects.

    nats-py makes TLS of what the server says, whatever the URL: a server that does not ask for it
    would get the password and all records in plain text. So the command that begins a connection,
    and has the password, is made within TLS only.
    """
    from nats.aio.client import Client  # noqa: PLC0415 - an optional package

    class TlsClient(Client):
        def _connect_command(self) -> Any:
            writer = getattr(self._transport, "_io_writer", None)
            if writer is None or writer.get_extra_info("ssl_object") is None:
                self._transport.close()
                raise UsageError(
                    f"{shown_url(place.url)} asks for no TLS, and nothing was sent to it: turn TLS on there, or mend "
                    "--to or --from"
                )
            return super()._connect_command()

    return TlsClient() if place.has_tls else Client()
