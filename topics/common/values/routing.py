"""Routers of the library: their settings as arguments."""

from __future__ import annotations

from topics.common.values import arguments
from topics.common.values.configs import GUARANTEES, Predicate, RouterConfig
from topics.errors import UsageError


def router_config(  # noqa: PLR0917 - the settings of a router
    source: str,
    dest: str,
    match: str | Predicate | None,
    preserve_node: bool,
    preserve_tag: bool,
    create_dest: bool,
    allow_cycle: bool,
    guarantee: str,
) -> RouterConfig:
    """Return the settings. Raises UsageError naming the argument."""
    source = arguments.text("source", source)
    dest = arguments.text("dest", dest)
    for name, value in (
        ("preserve_node", preserve_node),
        ("preserve_tag", preserve_tag),
        ("create_dest", create_dest),
        ("allow_cycle", allow_cycle),
    ):
        arguments.flag(name, value)
    if guarantee not in GUARANTEES:
        raise UsageError(f"guarantee is {arguments.shown(guarantee)}: use {' or '.join(map(repr, GUARANTEES))}")
    predicate = arguments.predicate(match, "filter")
    return RouterConfig(source, dest, preserve_node, preserve_tag, create_dest, predicate, allow_cycle, guarantee)
