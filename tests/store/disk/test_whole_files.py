"""Whole files: their pieces, joined for few writes, and read one by one."""

import pytest

from tests.sim.world.sim_file import SimFile
from tests.store.store_world import StoreWorld
from topics.errors import CorruptError, FormatError
from topics.store.disk import whole_files
from topics.store.disk.whole_files import joined, read_pieces, read_slow_file, replace_file
from topics.store.layouts.directory_names import snapshot_path
from topics.store.segments.snapshot_files import read_snapshot


def test_small_pieces_are_written_together_and_large_ones_as_they_are() -> None:
    large = bytes(1 << 20)
    pieces = [b"a", memoryview(b"bc"), large, b"", b"d", b"e"]
    assert list(joined(pieces)) == [b"abc", large, b"de"]
    assert next(iter(joined([large]))) is large
    assert list(joined([])) == []


def test_a_snapshot_is_read_and_summed_in_pieces_and_damage_in_any_of_them_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was read, copied and summed in one pass, however many topics it has."""
    world = StoreWorld().open()
    for topic_id in range(1, 6):
        world.create(topic_id)
        world.append(topic_id, 2)
    world.checkpoint()
    disk = world.ring.disk
    path = f"{world.config.data_dir}/{snapshot_path(world.store.checkpointer.snapshot_number)}"
    node = disk.find(path)
    assert isinstance(node, SimFile)
    whole, files = bytes(node.live), world.loop.files
    pieces: list[bytes] = []
    for size in (1, 7, 64, 100, len(whole) - 1, len(whole), len(whole) + 1):
        monkeypatch.setattr(whole_files, "PIECE_BYTES", size)
        pieces.clear()
        found = world.run(read_pieces(files, path, lambda piece: pieces.append(bytes(piece))))
        assert bytes(found) == b"".join(pieces) == whole
        assert max(map(len, pieces)) <= size
        assert world.run(read_snapshot(files, path)).pack() == whole
    monkeypatch.setattr(whole_files, "PIECE_BYTES", 64)
    for at in range(0, len(whole), 50):
        world.ring.corrupt_file(path, at)
        with pytest.raises((CorruptError, FormatError)):
            world.run(read_snapshot(files, path))
        world.ring.corrupt_file(path, at)
    assert world.run(read_snapshot(files, path)).pack() == whole


def test_a_description_that_is_replaced_by_a_longer_one_while_it_is_read_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restore beside the server took such a note of an archive for damage, and named another timeline."""
    world = StoreWorld().open()
    files, path = world.loop.files, f"{world.config.data_dir}/note"
    world.run(replace_file(files, path, b"short"))
    size_of = files.file_size

    def size_and_replace(asked: str) -> int:
        size = size_of(asked)
        node = world.ring.disk.find(path)
        assert isinstance(node, SimFile)
        node.live[:] = longer
        return size

    for longer in (b"longer than before", b"x" * 1000, b"less"):
        monkeypatch.setattr(files, "file_size", size_and_replace)
        assert world.run(read_slow_file(files, path, "")) == longer
