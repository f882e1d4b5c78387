"""Which records a reader asks for, by tag and by node. Source: wire contract, R-NODE, R-MATCH."""

from __future__ import annotations

from typing import NamedTuple

from topics.common.values.configs import Predicate
from topics.config import Config
from topics.engine.values.json_fields import Fields
from topics.engine.values.node_set import NO_NODES, NodeSet
from topics.engine.values.predicate import parse_predicate
from topics.errors import RequestError


class ReadFilter(NamedTuple):
    """The members of a `DiffQuery` that say which records come."""

    nodes: NodeSet = NO_NODES
    only_nodes: bool = False
    match: Predicate | None = None

    @classmethod
    def of(cls, fields: Fields, limits: Config) -> ReadFilter:
        """Parse the fields `node`, `only_node` and `match` of a diff, a watch or a subscription.

        Raises: RequestError, one is wrong, or both name nodes; TooManyError as `Fields.nodes`.
        """
        span = fields.nullable_span("match")
        match = None if span is None else parse_predicate(span, limits.max_tag_bytes)
        nodes, only = fields.nodes(limits), fields.nodes(limits, "only_node")
        if nodes and only:
            raise RequestError("invalid_request", "node and only_node are both given: send one of them")
        return cls(nodes or only, bool(only), match)
