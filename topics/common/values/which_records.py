"""Which records a reader of a log or of a client asks for."""

from __future__ import annotations

from typing import NamedTuple

from topics.common.values import arguments
from topics.common.values.configs import Predicate
from topics.errors import UsageError


class WhichRecords(NamedTuple):
    """A filter by node and by tag; without any all records come."""

    node: str = ""
    """Records of this node are left out."""
    only_node: str = ""
    """Records of other nodes, and those without a node, are left out."""
    match: Predicate | None = None
    """Records whose tag does not match are left out."""

    @classmethod
    def of(cls, node: str, only_node: str, match: str | Predicate | None) -> WhichRecords:
        """Check arguments of a read. Raises: UsageError, one is wrong, or both name nodes."""
        node, only_node = arguments.utf8_text("node", node), arguments.utf8_text("only_node", only_node)
        if node and only_node:
            raise UsageError(f"node and only_node are given: leave out one, {arguments.shown(only_node)} says it all")
        return cls(node, only_node, arguments.predicate(match))
