"""Compressed segments, read from the files: what a reader gets, what a scrub finds, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.files.files_world import COLD, FilesWorld, busy, read_all, seen_of
from topics.errors import CorruptError, StorageError
from topics.files import COLUMNS, Piece, read_pieces, scan_pieces
from topics.files.texts import NATIVE, PURE
from topics.store.format import compressed_segment
from topics.store.format.compressed_segment import is_compressed
from topics.store.layouts.directory_names import COLD as IN_COLD

NAMES = ["t", "u"]


@pytest.fixture
def world() -> FilesWorld:
    """Topics with all of their older segments compressed, and deletes in them."""
    world = FilesWorld(3, segment_codec="zstd", hot_retain_segments=0, pack_run_bytes=1, compact_below=0.0)
    chance = random.Random(3)
    for name in NAMES:
        world.put(name)
        for _ in range(4):
            world.append(*({"n": n, "pad": "x" * chance.choice((5, 300))} for n in range(25)), name=name, tag="a")
            world.append({"n": -1}, name=name, tag="b")
            world.checkpoint()
    for name in NAMES:
        world.delete(match="b", name=name)
    for _ in range(10):
        busy(world, chance, NAMES)
    world.checkpoint()
    world.checkpoint()
    assert all(is_compressed(world.ring.file_bytes(path)) for path in paths(world))
    return world


def pieces(world: FilesWorld) -> list[Piece]:
    directory = world.directory()
    found = [piece for name in NAMES for piece in directory.topics[name]._all_pieces if piece.tier == IN_COLD]
    assert len(found) >= 4
    return found


def paths(world: FilesWorld) -> list[str]:
    return [f"{COLD}/{piece.path}" for piece in pieces(world)]


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("decoder", [NATIVE, PURE], ids=["C", "numpy"])
def test_a_reader_of_files_gets_what_a_diff_gets(world: FilesWorld, decoder: Any, index: bool) -> None:
    for path in paths(world) if not index else ():
        world.ring.disk.unlink(path.replace(".data", ".idx"))
    directory = world.directory()
    for name in NAMES:
        assert read_all(directory.topics[name], directory, decoder) == world.diff_all(name)


def test_a_scrub_of_sound_segments_finds_nothing_and_of_a_damaged_one_its_block(world: FilesWorld) -> None:
    location, found = world.directory().location, pieces(world)
    reports = list(scan_pieces(location, found, calls=world.calls))
    assert [report.findings for report in reports if report is not None] == [[] for _ in found]
    world.ring.corrupt_file(paths(world)[1], len(world.ring.file_bytes(paths(world)[1])) - 10)
    reports = list(scan_pieces(location, found, calls=world.calls))
    damaged = [finding.message for report in reports if report is not None for finding in report.findings]
    assert len(damaged) == 1
    assert "the compressed block at byte" in damaged[0]
    with pytest.raises(CorruptError, match="is damaged: `topics fsck` shows all damage"):
        seen_of(list(read_pieces(location, found, columns=COLUMNS, calls=world.calls)))


def test_without_the_package_a_read_is_refused_with_the_remedy(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_segment, "zstandard", None)
    with pytest.raises(StorageError, match=r"pip install 'topics-log\[zstd\]'"):
        list(read_pieces(world.directory().location, pieces(world), columns=COLUMNS, calls=world.calls))
