"""Names of the simulated disk: what a power cut may do to a directory."""

import errno
import os
import random

import pytest

from tests.sim.world.sim_disk import SimDirectory, SimDisk


def cut(seed: int, *, sync_at: int = 0) -> tuple[str, ...]:
    """Creates a, b and c in a durable directory, syncs it after `sync_at` of them; what a cut leaves."""
    disk = SimDisk()
    disk.make_directory("/d")
    disk.sync_everything()
    for number, name in enumerate("abc", 1):
        disk.open(f"/d/{name}", os.O_CREAT | os.O_RDWR)
        if number == sync_at:
            directory = disk.find("/d")
            assert isinstance(directory, SimDirectory)
            disk.sync_directory(directory, disk.order)
    return tuple(disk.after_power_cut(random.Random(seed)).list_directory("/d"))


def test_unsynced_names_survive_in_any_combination() -> None:
    assert {cut(seed) for seed in range(100)} >= {(), ("a",), ("a", "b"), ("a", "b", "c"), ("b",), ("c",), ("a", "c")}


def test_names_before_the_sync_are_there_for_certain() -> None:
    assert all(cut(seed, sync_at=2)[:2] == ("a", "b") for seed in range(50))


def test_a_recycled_name_never_shows_another_file_than_one_of_the_two() -> None:
    """rename(old, new) and then a new file under the old name: every outcome is a state some order allows."""
    seen = set()
    for seed in range(100):
        disk = SimDisk()
        first = disk.open("/old", os.O_CREAT | os.O_RDWR)
        first.write(0, b"first")
        first.sync(first.order)
        disk.sync_everything()
        disk.rename("/old", "/new")
        second = disk.open("/old", os.O_CREAT | os.O_RDWR)
        second.write(0, b"second")
        second.sync(second.order)
        after = disk.after_power_cut(random.Random(seed))
        seen.add(tuple((name, bytes(after.find(name).live)) for name in after.list_directory("/")))
    assert seen == {
        (("old", b"first"),),
        (("new", b"first"),),
        (("new", b"first"), ("old", b"second")),
    }


def test_errors_are_those_of_the_kernel() -> None:
    disk = SimDisk()
    disk.open("/file", os.O_CREAT | os.O_RDWR)
    disk.make_directory("/directory")
    for call, number in (
        (lambda: disk.open("/none", os.O_RDONLY), errno.ENOENT),
        (lambda: disk.open("/none/file", os.O_CREAT), errno.ENOENT),
        (lambda: disk.open("/file/below", os.O_CREAT), errno.ENOTDIR),
        (lambda: disk.open("/file", os.O_CREAT | os.O_EXCL), errno.EEXIST),
        (lambda: disk.open("/file", os.O_DIRECTORY), errno.ENOTDIR),
        (lambda: disk.open("/directory", os.O_RDWR), errno.EISDIR),
        (lambda: disk.unlink("/directory"), errno.EISDIR),
        (lambda: disk.rename("/none", "/new"), errno.ENOENT),
        (lambda: SimDisk(direct_block_bytes=0).open("/f", os.O_CREAT | os.O_DIRECT), errno.EINVAL),
    ):
        with pytest.raises(OSError, match="Errno") as caught:
            call()
        assert caught.value.errno == number


def test_space_of_an_unlinked_file_is_free_after_its_last_descriptor() -> None:
    disk = SimDisk(capacity_bytes=8192)
    file = disk.open("/file", os.O_CREAT | os.O_RDWR)
    file.opens += 1
    disk.write(file, 0, bytes(8192))
    disk.unlink("/file")
    assert disk.free_bytes() == 0
    file.opens -= 1
    disk.forget(file)
    assert disk.free_bytes() == 8192
