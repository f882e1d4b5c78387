"""Which names a topic and a router may have. Enforced only where a name could become a resource.

Source: wire contract, section 5.1. Names are compared byte for byte, case counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from topics.common.topic_names import NAME_MAX, is_topic_name
from topics.errors import RequestError

__all__ = [
    "Allowed",
    "Prefixes",
    "check_dead_letter",
    "check_router_name",
    "check_topic_name",
    "is_router_name",
    "is_topic_name",
    "shown",
]

Allowed = Callable[[str], bool]
"""Whether the key may use a name, and be told of it."""
Prefixes = tuple[str, ...]
"""Of names: those that begin with one of them; () is every name."""

_ROUTER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:>-]{{0,{NAME_MAX - 1}}}")
_RULE = f"start with a letter or digit, go on with letters, digits and . _ : -{{more}}, at most {NAME_MAX} characters"


def is_router_name(name: str) -> bool:
    return _ROUTER.fullmatch(name) is not None


def check_topic_name(name: str) -> None:
    """Raises RequestError invalid_request for a name no topic can have."""
    if not is_topic_name(name):
        raise RequestError("invalid_request", f"topic name {shown(name)} is not usable: {_RULE.format(more='')}")


def check_router_name(name: str) -> None:
    """Raises RequestError invalid_request for a name no router can have."""
    if not is_router_name(name):
        raise RequestError("invalid_request", f"router name {shown(name)} is not usable: {_RULE.format(more=' >')}")


def check_dead_letter(name: str) -> None:
    """Raises RequestError invalid_request with detail {dead_letter} for a name no topic can have."""
    if not is_topic_name(name):
        message = f"dead_letter must be a topic name, and {shown(name)} is none: {_RULE.format(more='')}"
        raise RequestError("invalid_request", message, {"dead_letter": name})


def shown(text: str) -> str:
    """A client's text quoted for a message, cut to a length that keeps the message readable."""
    return repr(text if len(text) <= 64 else text[:61] + "...")
