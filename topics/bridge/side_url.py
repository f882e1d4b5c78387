"""The URL of the other side of a bridge, checked before either side is asked.

No wait makes a URL right: a side that is asked at a wrong one would be asked forever.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from topics.errors import UsageError

NATS = ("nats", "tls")
SCHEMES = ("kafka", *NATS)
_EXAMPLES = {"kafka": "kafka://localhost:9092", "nats": "nats://localhost:4222", "tls": "tls://localhost:4222"}
_FORMS = "use kafka://HOST:PORT or nats://HOST:PORT"
_NO_SIGN = re.compile(r"[\x00-\x20\x7f]")
"""Signs that `urlsplit` leaves out, or keeps as a part of a host."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^,:\[\]@]+)(?::(.*))?")
_PORT_MAX = 65_535


def check_side(option: str, url: str) -> str:
    """Check a URL; return its scheme.

    option: where it is from, for messages.
    Raises: UsageError, nothing can be there.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:  # the brackets of an address are not closed
        raise UsageError(f"{option} is no URL ({error}): {_FORMS}") from None
    if parts.scheme not in SCHEMES:
        raise UsageError(f"{option} is {url!r}: {_FORMS}")
    if flaw := "has a blank" if _NO_SIGN.search(url) else _flaw_of(parts):
        raise UsageError(f"{option} is {shown_url(url)!r}, which {flaw}: use one like {_EXAMPLES[parts.scheme]}")
    return parts.scheme


def shown_url(url: str) -> str:
    """Return a URL without a user, password or token."""
    netloc = urlsplit(url).netloc
    return url.replace(netloc, netloc.rpartition("@")[2], 1) if "@" in netloc else url


def _flaw_of(parts: SplitResult) -> str:
    """Return what is wrong with a URL, as the end of a sentence; "" if nothing is."""
    _user, at, netloc = parts.netloc.rpartition("@")
    is_kafka = parts.scheme == "kafka"
    if is_kafka and at:
        return "names a user: give credentials by --set sasl.password=... and others, and"
    if parts.path.strip("/") or parts.query or parts.fragment:
        return "has a path"
    for each in netloc.split(",") if is_kafka else [netloc]:
        found = _HOST.fullmatch(each)
        if found is None:
            return f"names no host in {each!r}" if each else "names no host"
        port = found[2]
        if port is not None and not (port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= _PORT_MAX):
            return f"has the port {port!r}, and ports are from 1 to {_PORT_MAX}"
    return ""
