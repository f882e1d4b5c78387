"""Sets of nodes: what is put in is what is found, here and by `tp_project`."""

from __future__ import annotations

import random
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.values.node_set import NO_NODES, has_node, node_count, node_names, node_set
from topics.store.format import codec
from topics.store.format.rows import RowRecord, pack_rows
from topics.store.read.render_json import JsonRenderer

NAMES = st.lists(st.binary(max_size=3), max_size=40)


@given(NAMES)
def test_a_set_has_its_names_once_each_by_length_and_then_by_bytes(names: list[bytes]) -> None:
    nodes = node_set(names)
    assert node_names(nodes) == tuple(sorted(set(names), key=lambda name: (len(name), name)))
    assert node_count(nodes) == len(set(names))
    assert bool(nodes) == bool(names)
    assert nodes == node_set(reversed(names))


@given(NAMES, st.binary(max_size=3))
def test_a_name_is_found_in_the_set_if_it_is_there(names: list[bytes], other: bytes) -> None:
    nodes = node_set(names)
    assert all(has_node(nodes, name) for name in names)
    assert has_node(nodes, other) == (other in names)


def test_no_names_are_no_bytes_and_an_empty_name_is_one() -> None:
    assert node_set(()) == NO_NODES == b""
    assert node_names(node_set((b"",))) == (b"",)


def delivered(written: list[bytes], nodes: bytes) -> list[int]:
    """Which records a projection leaves in, by their place."""
    rows = pack_rows([RowRecord(b"1", None, node, None, 1) for node in written])
    framed, placed = codec.frame_rows(rows, topic_id=9, first_seq=0, ts_ms=1)
    ends = np.cumsum(placed.lengths)
    projection = JsonRenderer(9, limit=len(written) + 1, budget=1 << 20, nodes=nodes)
    projection.add(framed, 0, (ends - placed.lengths).astype(np.uint32), placed.lengths, np.arange(len(written)))
    found = [int(seq) for seq in re.findall(rb'"\$seq":(\d+)', projection.records())]
    assert len(found) == projection.count
    return found


@given(NAMES, st.lists(st.binary(max_size=3), max_size=6))
def test_a_projection_leaves_out_what_is_in_the_set_and_nothing_else(names: list[bytes], written: list[bytes]) -> None:
    """R-NODE-1."""
    assert delivered(written, node_set(names)) == [at for at, node in enumerate(written) if node not in names]


@given(st.integers(0, 2**32))
def test_damaged_sets_are_read_within_their_bytes(seed: int) -> None:
    rng = random.Random(seed)
    nodes = bytearray(node_set(rng.randbytes(rng.randrange(4)) for _ in range(rng.randrange(1, 9))))
    for _ in range(3):
        nodes[rng.randrange(len(nodes))] = rng.choice((0, 1, 2, 127, 255))
    delivered([rng.randbytes(2), b""], bytes(nodes[: rng.randrange(len(nodes) + 1)]))
