"""The cold directory: what moves there, what is read and deleted there, and directories that are not the right ones."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import Faults, SimRing, SimStoppedError
from tests.store.store_world import DIRECTORY, StoreWorld, small_config
from topics.errors import StorageError
from topics.loop import Loop
from topics.store.disk.whole_files import write_new_file
from topics.store.repair.rebuild import rebuild
from topics.store.repair.verify_directory import verify
from topics.store.segments.tiers import Tiers, claim_cold

COLD = "cold"


CODEC = ["none"]
"""The codec of the segments that move."""


@pytest.fixture(autouse=True, params=["none", "zstd"])
def _codec(request: pytest.FixtureRequest) -> None:
    CODEC[0] = request.param


def config(**changes: Any) -> Any:
    changes = {"segment_max_events": 10, "pack_run_bytes": 512, "cold_dir": COLD, "hot_retain_segments": 2, **changes}
    return small_config(**{"segment_codec": CODEC[0], **changes})


def filled(ring: SimRing | None = None, **changes: Any) -> StoreWorld:
    """Ten sealed segments of ten records, and a checkpoint after each."""
    world = StoreWorld(ring, config=config(**changes)).open()
    world.create(1)
    for _ in range(10):
        world.append(1, 10, size=100)
        world.checkpoint()
    return world


def segments(world: StoreWorld, root: str) -> list[int]:
    """First seqs of the segments whose data is below a directory."""
    try:
        names = world.ring.disk.list_directory(f"{root}/topics/0000000000000001")
    except FileNotFoundError:
        return []
    return sorted(int(name[4:-5]) for name in names if name.endswith(".data"))


def where(world: StoreWorld) -> tuple[list[int], list[int]]:
    """(cold, hot) first seqs, once what has no reader any more is removed."""
    world.passes(60)
    return segments(world, COLD), segments(world, DIRECTORY)


def test_older_sealed_segments_move_and_the_newest_stay() -> None:
    world = filled()
    cold, hot = where(world)
    assert cold == [1, 11, 21, 31, 41, 51, 61, 71]
    assert hot == [81, 91]
    world.check_every_record()


def test_a_segment_whose_newest_record_is_old_moves_whatever_the_other_bounds_say() -> None:
    world = filled(hot_retain_segments=100, hot_retain_ms=60_000)
    assert where(world)[0] == []
    world.ring.clock.advance_ns(30_000_000_000)
    world.append(1, 10, size=100)
    world.checkpoint()
    assert where(world)[0] == []
    world.ring.clock.advance_ns(40_000_000_000)
    world.append(1, 1)
    world.checkpoint()
    assert where(world) == ([1, 11, 21, 31, 41, 51, 61, 71, 81, 91], [101, 111])
    world.check_every_record()


def test_the_stricter_of_the_two_bounds_holds() -> None:
    world = filled(hot_retain_bytes=1)
    assert where(world)[1] == []
    assert where(filled(hot_retain_segments=9, hot_retain_bytes=18_000))[1] == [71, 81, 91]
    assert where(filled(hot_retain_segments=1, hot_retain_bytes=1 << 30))[1] == [91]


def test_a_stop_does_not_wait_for_all_that_is_to_move() -> None:
    world = filled(hot_retain_segments=100)
    world = world.next_life(config=config(hot_retain_segments=0))
    world.append(1, 1)
    checkpoint = world.loop.spawn(world.store.checkpointer.run(), "checkpoint")
    while not segments(world, COLD):
        world.passes(1)
    world.close()
    assert checkpoint.done
    cold = segments(world, COLD)
    assert 0 < len(cold) < 10
    world = world.next_life()
    world.check_every_record()


def test_a_start_with_other_shards_serves_before_anything_moves() -> None:
    world = filled(hot_retain_segments=100)
    world = world.next_life(config=config(hot_retain_segments=0, wal_shards=2))
    assert where(world)[0] == []
    world.append(1, 1)
    world.checkpoint()
    assert where(world)[0] == [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]
    world.check_every_record()


def test_without_a_cold_directory_nothing_moves() -> None:
    assert len(segments(filled(cold_dir="", hot_retain_segments=0), DIRECTORY)) == 10


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_what_moved_is_read_after_a_restart(power_cut: bool) -> None:
    world = filled().next_life(power_cut=power_cut)
    assert len(world.topic(1).rows) == 100
    world.check_every_record()


def test_a_record_deleted_in_the_cold_directory_stays_deleted() -> None:
    world = filled()
    world.delete(1, [5, 15, 95])
    world.checkpoint()
    world = world.next_life(power_cut=True)
    assert {5, 15, 95}.isdisjoint(world.topic(1).rows)
    assert len(world.topic(1).rows) == 97
    world.check_every_record()


def test_a_segment_that_has_lost_its_index_does_not_move_to_an_older_one() -> None:
    """An earlier move that failed left it in the cold directory: it does not know of the latest deletes."""
    world = filled(hot_retain_segments=100)
    index = f"topics/{1:016x}/seg-{1:020d}.idx"
    old = world.ring.file_bytes(f"{DIRECTORY}/{index}")
    world.delete(1, [3])
    world.checkpoint()
    world = world.next_life(config=config(hot_retain_segments=9))
    files = world.loop.files
    for path in (COLD, f"{COLD}/topics", f"{COLD}/topics/{1:016x}"):
        files.make_directory(path)
    world.run(write_new_file(files, f"{COLD}/{index}", old))
    world.run(files.unlink(f"{DIRECTORY}/{index}"))
    world.append(1, 1)
    world.checkpoint()
    assert where(world)[0] == [1]
    assert 3 not in world.next_life().topic(1).rows


def test_files_without_a_live_record_go_from_the_cold_directory_too() -> None:
    world = filled()
    world.evict(1, 35)
    world.checkpoint()
    assert where(world)[0] == [31, 41, 51, 61, 71]
    world.drop(1)
    world.checkpoint()
    assert where(world) == ([], [])


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_cold_directory_that_fails_costs_space_and_nothing_else(error: int) -> None:
    faults = Faults()
    ring = SimRing(1, faults=faults)
    world = StoreWorld(ring, config=config()).open()
    world.create(1)
    faults.fail("write", error, path_part="cold/", times=1000)
    for _ in range(5):
        world.append(1, 10, size=100)
        world.checkpoint()
    assert not world.store.log.read_only
    assert len(where(world)[1]) == 5
    faults.clear()
    if error == errno.EIO:
        world = world.next_life()
    world.append(1, 10, size=100)
    world.checkpoint()
    assert where(world)[1] == [41, 51], "what could not move before moves now"
    world.check_every_record()


def test_fsck_looks_into_the_cold_directory() -> None:
    world = filled()
    ring = world.end(power_cut=False)
    loop = StoreWorld(ring, config=config()).loop
    assert loop.run_task(verify(loop, DIRECTORY, COLD)).sound


@pytest.mark.parametrize("look", [verify, rebuild])
def test_nothing_is_looked_at_or_mended_without_the_cold_directory_or_with_another(look: Any) -> None:
    """A rebuild that missed it would leave its segments out, and the next start would sweep them away."""
    ring = filled().end(power_cut=False)
    loop = StoreWorld(ring, config=config()).loop
    for cold, sentence in (("", r"set cold_dir \(TOPICS_COLD_DIR\)"), ("elsewhere", "is it mounted")):
        with pytest.raises(StorageError, match=sentence):
            loop.run_task(look(loop, DIRECTORY, cold))
    other = StoreWorld(
        ring.next_life(power_cut=False), config=replace(config(), data_dir="another", cold_dir="theirs")
    ).open()
    other.close()
    loop = StoreWorld(other.end(power_cut=False), config=config()).loop
    with pytest.raises(StorageError, match="is not the one of"):
        loop.run_task(look(loop, DIRECTORY, "theirs"))
    again = StoreWorld(loop.ring.next_life(power_cut=False), config=config()).open()  # type: ignore[attr-defined]
    assert len(again.topic(1).rows) == 100


@pytest.mark.parametrize("look", [verify, rebuild])
@pytest.mark.parametrize("cold", ["", COLD])
def test_a_cold_directory_that_nothing_went_to_yet_is_not_asked_for(look: Any, cold: str) -> None:
    """A start that was killed before it marked it is no damage, nor is one that continues without it."""
    world = filled(cold_dir="")
    ring = world.end(power_cut=False)
    ring.faults.fail("open", errno.EIO, path_part=f"{COLD}/cold-directory")
    with pytest.raises(OSError, match="Input/output"):
        StoreWorld(ring, config=config()).open()
    loop = StoreWorld(ring.next_life(power_cut=False), config=config()).loop
    assert loop.files.file_size(f"{DIRECTORY}/cold-directory")
    loop.run_task(look(loop, DIRECTORY, cold))


def test_a_segment_that_is_missing_refuses_the_start() -> None:
    world = filled()
    world.close()
    world.loop.run_task(world.loop.files.unlink(f"{COLD}/topics/0000000000000001/seg-00000000000000000001.data"))
    with pytest.raises(StorageError, match=r"it is missing.*fsck"):
        StoreWorld(world.end(power_cut=False), config=config()).open()


def test_a_rebuild_takes_what_lies_in_both_and_what_was_being_moved_once() -> None:
    world = filled()
    world.close()
    loop = world.loop
    for name in world.files("snapshots"):
        loop.run_task(loop.files.unlink(f"{DIRECTORY}/snapshots/{name}"))
    result = loop.run_task(rebuild(loop, DIRECTORY, COLD))
    assert result.records == 100
    again = StoreWorld(world.end(power_cut=False), config=config()).open()
    assert len(again.topic(1).rows) == 100


def refusal(world: StoreWorld, **changes: Any) -> str:
    other = StoreWorld(world.end(power_cut=False), config=config(**changes))
    with pytest.raises(StorageError) as refused:
        other.open()
    return str(refused.value)


def test_a_cold_directory_that_is_not_mounted_is_refused_also_before_anything_went_there() -> None:
    """Segments that moved into the bare mount point would be missing once the cold directory is mounted over it."""
    world = filled(hot_retain_segments=100)
    ring = world.end(power_cut=False)
    ring.disk.unlink(f"{COLD}/cold-directory")
    for _ in range(2):
        again = StoreWorld(ring, config=config())
        with pytest.raises(StorageError, match=r"is it mounted.*remove data/cold-directory"):
            again.open()
        assert ring.disk.list_directory(COLD) == []
        ring = again.end(power_cut=False)
    ring.disk.unlink(f"{DIRECTORY}/cold-directory")
    assert len(StoreWorld(ring, config=config()).open().topic(1).rows) == 100


def test_a_bit_that_flips_in_the_mark_of_the_cold_directory_stops_the_start() -> None:
    """Without "both" a bare mount point would be marked as the cold directory."""
    ring = filled(hot_retain_segments=100).end(power_cut=False)
    mark = f"{DIRECTORY}/cold-directory"
    for at in range(len(ring.file_bytes(mark))):
        ring.corrupt_file(mark, at, 1 << at % 7)
        again = StoreWorld(ring, config=config())
        with pytest.raises(StorageError, match=None if at else "is damaged .*: copy the file"):
            again.open()
        ring = again.end(power_cut=False)
        ring.corrupt_file(mark, at, 1 << at % 7)


def claim(ring: SimRing, stop_at: int) -> None:
    """Claim the cold directory in a process that ends at its `stop_at`th effect on the disk, or stays."""
    ring.stop_at(stop_at)
    with contextlib.suppress(SimStoppedError):
        loop = Loop(ring, ring.clock)
        loop.run_task(claim_cold(loop, Tiers(DIRECTORY, COLD), listed=False))


def test_a_start_that_is_killed_while_it_claims_the_cold_directory_is_no_reason_to_refuse_it_after_a_power_cut() -> (
    None
):
    for killed in range(1, 20):
        for cut in range(1, 20):
            ring = SimRing(killed * 20 + cut)
            ring.put_file(f"{DIRECTORY}/topics.json", b"{}")
            claim(ring, killed)
            ring = ring.next_life(power_cut=False)
            claim(ring, cut)
            claim(ring.next_life(power_cut=True), 1000)


def test_a_start_without_the_cold_directory_is_refused_with_the_remedy() -> None:
    assert "set cold_dir (TOPICS_COLD_DIR)" in refusal(filled(), cold_dir="")


def test_a_cold_directory_that_is_not_mounted_is_refused() -> None:
    assert "is it mounted" in refusal(filled(), cold_dir="elsewhere")


def test_the_data_directory_is_no_cold_directory() -> None:
    assert "is the data directory" in refusal(filled(cold_dir=""), cold_dir=DIRECTORY)


def test_a_cold_directory_of_another_user_is_refused() -> None:
    world = filled()
    other = StoreWorld(world.end(power_cut=False), config=replace(config(), data_dir="another"))
    with pytest.raises(StorageError, match="belongs to another data directory"):
        other.open()


def test_a_cold_directory_that_failed_is_given_up_whatever_follows() -> None:
    tiering = filled().store.checkpointer.steps._tiering
    for error in (errno.EIO, errno.EMFILE):
        tiering._on_error(OSError(error, "no"))
    assert tiering.broken
