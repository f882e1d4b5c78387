"""The nodes whose records a reader leaves out, sorted: a record is looked up in few steps.

Source: wire contract, R-NODE. A set is one `bytes` object: Python hashes it once, however often the query that holds it
is a key, and it takes little more memory than its names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NewType

NodeSet = NewType("NodeSet", bytes)
"""Laid out as `tp_project` reads it (store/format/codec.h)."""

NO_NODES = NodeSet(b"")


def node_set(names: Iterable[bytes]) -> NodeSet:
    """The set of these names; all of them together may have 4 GiB."""
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
    """The names, by length and then by bytes."""
    count = node_count(nodes)
    names = 4 + 4 * count
    at = [names, *(names + end for end in struct.unpack_from(f"<{count}I", nodes, 4))] if count else []
    return tuple(nodes[start:end] for start, end in pairwise(at))
