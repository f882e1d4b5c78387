"""Every byte of small files rots in its turn: C and numpy give the same rows or the same error, no wrong row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.files.files_world import COLD, HOT, FilesWorld
from tests.sim.world.sim_file import SimFile
from topics.errors import CorruptError, FormatError, TopicsError
from topics.files import COLUMNS, Directory, Piece, read_pieces
from topics.files.texts import NATIVE, PURE

ZEROS = 32
"""Zeros in a row that count as padding."""


@pytest.fixture(scope="module")
def world() -> FilesWorld:
    return small_files()


def small_files() -> FilesWorld:
    """Sealed segments in both tiers, one that is not sealed, and a pack; deleted records in each."""
    world = FilesWorld(2, pack_run_bytes=600, segment_max_events=3, hot_retain_segments=1)
    for number in range(3):
        world.append({"n": number}, name="big", tag="a" if number % 2 else None, node=b"n", meta={"k": 1})
        world.append({"n": number, "pad": "x" * 300}, name="big", tag="ü")
        world.append([], name="big", tag="gone")
        world.append(number, name="small", tag="b")
        world.append(number, name="small", tag="gone")
    world.append("last", name="big")
    world.checkpoint()
    for name in ("big", "small"):
        world.delete(match="gone", name=name)
    world.checkpoint()
    return world


def pieces_of(directory: Directory) -> dict[str, Piece]:
    big, small = directory.topics["big"].pieces, directory.topics["small"].pieces
    return {
        "cold": next(piece for piece in big if piece.tier),
        "sealed": next(piece for piece in big if piece.sealed and not piece.tier),
        "unsealed": next(piece for piece in big if not piece.sealed),
        "pack": small[0],
    }


def seen(directory: Directory, piece: Piece, world: FilesWorld, decoder: Any, **options: Any) -> Any:
    """Batches as values, or the error: its kind, text and detail."""
    options = {"columns": COLUMNS, "calls": world.calls, "decoder": decoder, **options}
    found: list[Any] = []
    try:
        for batch in read_pieces(directory.location, [piece], **options):
            found.append(batch.to_pydict() if options.get("verify", True) else raw(batch))
    except TopicsError as error:
        found.append((type(error), str(error), getattr(error, "detail", None)))
    return found


def raw(batch: Any) -> list[Any]:
    """Columns as bytes: rotten ones may be no UTF-8."""
    texts = {"string", "large_string", "binary", "large_binary"}
    return [
        column.cast("large_binary" if str(column.type) in texts else "int64").to_pylist() for column in batch.columns
    ]


def rotting(node: SimFile, every: int) -> Iterator[int]:
    """Flip a bit of one byte after the other, except padding; each is as it was when the next one comes."""
    data = bytes(node.live)
    for at in range(len(data)):
        if at % every or data[max(0, at - ZEROS) : at + ZEROS].count(0) > 2 * ZEROS - 4:
            continue
        node.live[at] ^= 1 << (at // every) % 8
        yield at
        node.live[at] = data[at]


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["cold", "sealed", "sealed index", "unsealed", "pack"])
def test_c_and_numpy_agree_on_every_byte_that_rots(world: FilesWorld, kind: str, every: int) -> None:
    directory = world.directory()
    kind, _, suffix = kind.partition(" ")
    piece = pieces_of(directory)[kind]
    path = f"{COLD if piece.tier else HOT}/{piece.path}"
    if suffix:
        path = path.replace(".data", ".idx")
    node = world.ring.disk.find(path)
    assert isinstance(node, SimFile)
    right = seen(directory, piece, world, NATIVE)
    assert right == seen(directory, piece, world, PURE)
    refused = 0
    for at in rotting(node, every):
        by_c, by_numpy = (seen(directory, piece, world, decoder) for decoder in (NATIVE, PURE))
        assert by_c == by_numpy, at
        if by_c != right:
            assert by_c[-1][0] in (CorruptError, FormatError), (at, by_c)
            refused += 1
        trusting = [seen(directory, piece, world, decoder, verify=False) for decoder in (NATIVE, PURE)]
        assert trusting[0] == trusting[1], at
    assert suffix or refused, "an index that rotted is derived from the data"
    assert seen(directory, piece, world, NATIVE) == right
