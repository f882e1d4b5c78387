"""The format of a data directory is raised once, durably, and before anything that needs it."""

from __future__ import annotations

import errno

import msgspec
import pytest

from tests.sim import SimRing
from tests.store.store_world import DIRECTORY, StoreWorld
from topics.errors import DiskFullError, FormatError, StorageError
from topics.loop import Loop
from topics.store.disk.directory_format import Marker
from topics.store.layouts.directory_names import DIRECTORY_FORMAT, SECOND_DIRECTORY_FORMAT
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify

MARKER = f"{DIRECTORY}/topics.json"


def stored(ring: SimRing) -> Marker:
    return msgspec.json.decode(ring.file_bytes(MARKER), type=Marker)


def raised() -> StoreWorld:
    world = StoreWorld().open()
    world.run(world.store.format.raise_to(DIRECTORY_FORMAT))
    return world


def test_a_new_directory_has_the_first_format_until_it_is_raised() -> None:
    world = StoreWorld().open()
    assert stored(world.ring) == Marker(1, 1)
    assert not world.store.format.takes_all
    world.run(world.store.format.raise_to(DIRECTORY_FORMAT))
    assert stored(world.ring) == Marker(DIRECTORY_FORMAT, 1)
    assert world.store.format.takes_all


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_raised_format_lasts(power_cut: bool) -> None:
    world = raised().next_life(power_cut=power_cut)
    assert world.store.format.takes_all
    assert stored(world.ring) == Marker(DIRECTORY_FORMAT, 1)


def test_callers_at_the_same_time_share_one_raise() -> None:
    world = StoreWorld().open()
    seen: list[StorageError | None] = []
    before = world.ring.faults.seen["rename"]
    for _ in range(3):
        world.store.format.when_raised(DIRECTORY_FORMAT, seen.append)
    assert seen == []
    world.loop.run_until(lambda: len(seen) == 3)
    world.store.format.when_raised(DIRECTORY_FORMAT, seen.append)
    assert seen == [None] * 4
    assert world.ring.faults.seen["rename"] == before + 1


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename"])
@pytest.mark.parametrize(("error", "refusal"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFullError)])
def test_a_disk_that_fails_refuses_every_caller_and_the_next_one_tries_again(
    kind: str, error: int, refusal: type[StorageError]
) -> None:
    world = StoreWorld().open()
    seen: list[StorageError | None] = []
    world.ring.faults.fail(kind, error, path_part="topics.json")
    for _ in range(2):
        world.store.format.when_raised(DIRECTORY_FORMAT, seen.append)
    world.loop.run_until(lambda: len(seen) == 2)
    assert [type(each) for each in seen] == [refusal] * 2
    assert not world.store.format.takes_all
    assert world.next_life(power_cut=True).store.format.takes_all is False
    world = StoreWorld().open()
    world.ring.faults.fail(kind, error, path_part="topics.json")
    with pytest.raises(refusal):
        world.run(world.store.format.raise_to(DIRECTORY_FORMAT))
    world.run(world.store.format.raise_to(DIRECTORY_FORMAT))
    assert world.next_life(power_cut=True).store.format.takes_all


def test_a_directory_is_raised_to_what_is_needed_and_no_further() -> None:
    world = StoreWorld().open()
    seen: list[tuple[int, int]] = []
    for number in (SECOND_DIRECTORY_FORMAT, DIRECTORY_FORMAT, SECOND_DIRECTORY_FORMAT):
        world.store.format.when_raised(number, lambda _error, n=number: seen.append((n, stored(world.ring).format)))  # type: ignore[misc]
    world.loop.run_until(lambda: len(seen) == 3)
    assert sorted(seen) == [(2, 2), (2, 2), (DIRECTORY_FORMAT, DIRECTORY_FORMAT)]
    world = StoreWorld().open()
    world.run(world.store.format.raise_to(SECOND_DIRECTORY_FORMAT))
    assert stored(world.ring) == Marker(SECOND_DIRECTORY_FORMAT, 1)
    assert not world.store.format.takes_all
    world.run(world.store.format.raise_to(DIRECTORY_FORMAT))
    assert stored(world.ring) == Marker(DIRECTORY_FORMAT, 1)


def test_closing_waits_for_a_raise() -> None:
    world = StoreWorld().open()
    seen: list[StorageError | None] = []
    world.store.format.when_raised(DIRECTORY_FORMAT, seen.append)
    world.close()
    assert seen == [None]


def test_a_used_directory_that_lost_its_marker_gets_the_newest_format() -> None:
    ring = StoreWorld().open().end(power_cut=False)
    ring.disk.unlink(MARKER)
    world = StoreWorld(ring).open()
    assert stored(world.ring) == Marker(DIRECTORY_FORMAT, 1)


def test_a_rebuild_and_a_check_keep_the_format() -> None:
    world = raised()
    world.create(1)
    world.append(1, 3)
    ring = world.end(power_cut=False)
    loop = Loop(ring, ring.clock)
    assert loop.run_task(verify(loop, DIRECTORY)).findings == []
    loop.run_task(rebuild(loop, DIRECTORY))
    assert stored(ring) == Marker(DIRECTORY_FORMAT, 1)
    assert sorted(StoreWorld(ring).open().topic(1).rows) == [1, 2, 3]


def test_a_build_that_knows_the_first_format_only_refuses_the_next_one_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = raised().end(power_cut=False)
    monkeypatch.setattr("topics.store.disk.directory_format.KNOWN_FORMATS", range(1, 2))
    with pytest.raises(
        FormatError,
        match=rf"^data: format {DIRECTORY_FORMAT}; this build knows 1 to 1: use the version of topics that made it$",
    ):
        StoreWorld(ring).open()
