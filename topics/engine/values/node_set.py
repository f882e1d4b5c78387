"""The nodes whose records a reader leaves out, sorted so that a lookup takes few steps.

A set is one `bytes` object, so that Python computes its hash once, however often a query that holds
it is a key. It takes little more memory than its names. Source: wire contract, R-NODE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NewType

NodeSet = NewType("NodeSet", bytes)
"""The layout that `tp_project` reads (store/format/codec.h)."""

NO_NODES = NodeSet(b"")


def node_set(names: Iterable[bytes]) -> NodeSet:
    """Build the set of these names, which may have 4 GiB together."""
    ordered = sorted(set(names), key=lambda name: (len(name), name))
    if not ordered:
        return NO_NODES
    ends = []
    end = 0
    for name in ordered:
        end += len(name)
        ends.append(end)
    return NodeSet(b"".join((struct.pack(f"<{1 + len(ends)}I", len(ends), *ends), *ordered)))


def node_count(nodes: NodeSet) -> int:
    return int.from_bytes(nodes[:4], "little")


def node_names(nodes: NodeSet) -> tuple[bytes, ...]:
    """Return the names, ordered by length and then by bytes."""
    count = node_count(nodes)
    names = 4 + 4 * count
    at = [names, *(names + end for end in struct.unpack_from(f"<{count}I", nodes, 4))] if count else []
    return tuple(nodes[start:end] for start, end in pairwise(at))


def has_node(nodes: NodeSet, name: bytes) -> bool:
    """Return whether a name is in the set, by bisection."""
    low, count = 0, node_count(nodes)
    high, names = count, 4 + 4 * count
    size = len(name)
    while low < high:
        middle = (low + high) // 2
        begin = int.from_bytes(nodes[4 * middle : 4 * middle + 4], "little") if middle else 0
        end = int.from_bytes(nodes[4 * middle + 4 : 4 * middle + 8], "little")
        found = end - begin, nodes[names + begin : names + end]
        if found == (size, name):
            return True
        if found < (size, name):
            low = middle + 1
        else:
            high = middle
    return False
