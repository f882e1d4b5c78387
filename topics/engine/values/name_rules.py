"""The names that topics, routers and named readers may have.

The rules are enforced only where a name could become a resource. Names are compared byte for byte,
so case matters. Source: wire contract, section 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from topics.common.topic_names import NAME_MAX, is_topic_name, longest_prefix, prefix_fault
from topics.errors import RequestError

__all__ = [
    "Allowed",
    "Prefixes",
    "check_dead_letter",
    "check_prefix",
    "check_reader_name",
    "check_router_name",
    "check_topic_name",
    "is_router_name",
    "is_topic_name",
    "of_longest_prefix",
    "shown",
    "starts_of",
]

T = TypeVar("T")
Allowed = Callable[[str], bool]
"""Whether the client's key may use a name and see that it exists."""
Prefixes = tuple[str, ...]
"""Prefixes of names; a name matches if it begins with one of them. () matches every name."""

_ROUTER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:>-]{{0,{NAME_MAX - 1}}}")
_RULE = (
    f"start with a letter or digit, continue with letters, digits and . _ : -{{more}}, at most {NAME_MAX} characters"
)


def is_router_name(name: str) -> bool:
    return _ROUTER.fullmatch(name) is not None


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name. Raises: RequestError invalid_request."""
    if not is_topic_name(name):
        raise RequestError("invalid_request", f"topic name {shown(name)} is not usable: {_RULE.format(more='')}")


def check_prefix(field: str, prefix: str) -> None:
    """Check that names of topics may begin with this. Raises: RequestError invalid_request."""
    fault = prefix_fault(prefix)
    if fault:
        raise RequestError("invalid_request", f"{field}: {shown(prefix)} {fault}")


def of_longest_prefix(prefixes: Mapping[str, T], name: str) -> T:
    """Return the value of the longest prefix of a name that has one at least."""
    return prefixes[longest_prefix(prefixes, name)]


def check_router_name(name: str) -> None:
    """Check that a router may have this name. Raises: RequestError invalid_request."""
    if not is_router_name(name):
        raise RequestError("invalid_request", f"router name {shown(name)} is not usable: {_RULE.format(more=' >')}")


def check_reader_name(name: str) -> None:
    """Check that a named reader may have this name. Raises: RequestError invalid_request."""
    if not is_topic_name(name):
        raise RequestError("invalid_request", f"reader name {shown(name)} is not usable: {_RULE.format(more='')}")


def check_dead_letter(name: str) -> None:
    """Check that a dead letter topic may have this name.

    Raises: RequestError invalid_request with detail {dead_letter}.
    """
    if not is_topic_name(name):
        message = f"dead_letter must be a topic name, and {shown(name)} is none: {_RULE.format(more='')}"
        raise RequestError("invalid_request", message, {"dead_letter": name})


def shown(text: str) -> str:
    """Return a client's text quoted for a message and cut to 64 characters."""
    return repr(text if len(text) <= 64 else text[:61] + "...")


def starts_of(prefixes: Prefixes, within: Prefixes) -> list[str]:
    """Return the beginnings of names that begin with one of `prefixes` and one of `within`.

    They are ascending, and no name begins with two of them. within: () = of all names.
    """
    found: list[str] = []
    both = (max(prefix, other, key=len) for prefix in prefixes for other in within or ("",) if _nested(prefix, other))
    for start in sorted(both):
        if not found or not start.startswith(found[-1]):
            found.append(start)
    return found


def _nested(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
