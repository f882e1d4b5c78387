"""SimFile against a model: what a power cut may leave is, sector by sector, some state since the last sync of it."""

import random

import pytest

from tests.sim.world.sim_file import SECTOR_BYTES, SimFile

SECTORS = 6


class Model:
    """Per sector the states it had since it was last durable; no cleverness."""

    def __init__(self) -> None:
        self.content = bytearray(SECTORS * SECTOR_BYTES)
        self.possible = [{self.sector(number)} for number in range(SECTORS)]

    def sector(self, number: int) -> bytes:
        return bytes(self.content[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES])

    def changed(self) -> None:
        for number in range(SECTORS):
            self.possible[number].add(self.sector(number))

    def synced(self, numbers: range) -> None:
        for number in numbers:
            self.possible[number] = {self.sector(number)}


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_leaves_of_each_sector_a_state_it_had_since_its_last_sync(seed: int) -> None:
    rng = random.Random(seed)
    file, model = SimFile(), Model()
    for _ in range(rng.randint(1, 15)):
        offset = rng.randrange(SECTORS * SECTOR_BYTES)
        size = rng.randint(1, SECTORS * SECTOR_BYTES - offset)
        action = rng.choice(("write", "write", "write", "sync", "dsync"))
        if action == "sync":
            file.sync(file.order)
            model.synced(range(SECTORS))
            continue
        data = rng.randbytes(size)
        file.write(offset, data)
        model.content[offset : offset + size] = data
        model.changed()
        if action == "dsync":
            file.sync_range(offset, size)
            model.synced(range(offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES)))
    assert bytes(file.live).ljust(len(model.content), b"\0") == model.content
    for _ in range(10):
        image = file.crash_image(rng).ljust(len(model.content), b"\0")
        for number in range(SECTORS):
            assert image[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES] in model.possible[number], f"seed {seed}"


def _sizes_after_crashes(allocated: int, written: int) -> set[int]:
    """Return the sizes of a file of one synced page, preallocated (0: not) and then written to after that page."""
    sizes = set()
    for seed in range(200):
        file = SimFile()
        file.write(0, b"a" * 4096)
        file.sync(file.order)
        file.resize(allocated, shrink=False)
        file.write(4096, b"b" * written)
        sizes.add(len(file.crash_image(random.Random(seed))))
    return sizes


def test_a_crash_leaves_a_size_that_some_page_written_back_gave_the_file() -> None:
    assert _sizes_after_crashes(allocated=0, written=6000) == {4096, 8192, 10_096}


def test_a_write_into_allocated_space_leaves_the_size_to_the_allocation() -> None:
    assert _sizes_after_crashes(allocated=12_288, written=5000) == {4096, 12_288}


def test_what_was_synced_is_not_cut_by_a_preallocation_that_came_before() -> None:
    file = SimFile()
    file.resize(4096, shrink=False)
    file.write(4096, b"d" * 512)
    file.sync_range(4096, 512)
    file.sync(file.order)
    assert file.durable == bytes(4096) + b"d" * 512


def test_a_truncation_and_what_follows_become_durable_together() -> None:
    file = SimFile()
    file.write(0, b"old" * 1000)
    file.sync(file.order)
    file.resize(0, shrink=True)
    file.write(0, b"new")
    file.sync(file.order)
    assert file.durable == b"new"
    assert file.crash_image(random.Random(0)) == b"new"


def test_a_write_after_a_failed_sync_is_kept_by_the_next_one() -> None:
    file = SimFile()
    file.write(0, b"a" * 1024)
    file.lose(file.order)
    file.write(512, b"b" * 512)
    file.sync(file.order)
    assert file.durable == bytes(512) + b"b" * 512
    assert file.read(0, 1024, direct=True) == bytes(512) + b"b" * 512
    assert file.read(0, 1024, direct=False) == b"a" * 512 + b"b" * 512


def test_a_sync_covers_only_what_came_before_it_started() -> None:
    file = SimFile()
    file.write(0, b"a")
    started = file.order
    file.write(1, b"b")
    file.sync(started)
    assert file.durable == b"a"
    assert [change.data for change in file.pending] == [b"b"]
