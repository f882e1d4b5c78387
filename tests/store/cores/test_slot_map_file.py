"""The slot map on disk: either file suffices, and a damaged one is never read as a map."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.sim import SimRing, SimStoppedError
from topics.errors import CorruptError, FormatError, StorageError
from topics.loop import Loop
from topics.store.cores.slot_map import SlotMap
from topics.store.cores.slot_map_file import (
    COPY_PATH,
    MAP_BYTES,
    FoundMap,
    MapState,
    StoredMap,
    read_slot_map,
    write_slot_map,
    write_without_copy,
)
from topics.store.layouts.snapshot_format import SnapshotFile, pack_snapshot

DATA = "data"
PLACES = (f"{DATA}/slot-map", f"{DATA}/{COPY_PATH}")
STORED = StoredMap(bytes(range(16)), 7, MapState.WHOLE, SlotMap.balanced(3), (1, 2, 5), 6, 3)


def begun() -> tuple[SimRing, Loop]:
    ring = SimRing(1)
    loop = Loop(ring, ring.clock)
    loop.files.make_directory(DATA)
    ring.disk.sync_everything()
    return ring, loop


def written(*generations: int) -> tuple[SimRing, Loop]:
    ring, loop = begun()
    for generation in generations or (7,):
        loop.run_task(write_slot_map(loop.files, DATA, STORED._replace(generation=generation)))
    return ring, loop


def read(loop: Loop) -> FoundMap | None:
    return loop.run_task(read_slot_map(loop.files, DATA))


def test_what_was_written_is_read() -> None:
    _ring, loop = written()
    assert read(loop) == FoundMap(STORED, [])
    assert len(STORED.pack()) == MAP_BYTES == 64 + 4096


def test_the_bytes_are_fixed() -> None:
    """Directories that exist have them."""
    data = STORED.pack()
    assert data[:20] == b"TPSN" + struct.pack("<HHQI", 1000, 2, 7, 3)
    assert data[20:24] == struct.pack("<I", 6)
    assert data[40:56] == struct.pack("<I", 3) + bytes(12)
    assert data[24:40] == bytes(range(16))
    assert data[64:72] == struct.pack("<4H", 0, 1, 2, 0)
    assert data[2112:2122] == struct.pack("<5H", 1, 2, 5, 0, 0)
    assert data[56:64].hex() == "ba8a1acd7d259da5"


def test_a_directory_of_one_core_has_none() -> None:
    ring, loop = begun()
    assert read(loop) is None
    ring.put_file(PLACES[1], b"".join(bytes(part) for part in pack_snapshot(1, 0, [b"{}"], [b"[]"])))
    assert read(loop) is None
    ring.corrupt_file(PLACES[1], 70)
    assert read(loop) is None
    ring.corrupt_file(PLACES[1], 2)
    assert read(loop) is None


@examples(200)
@given(st.integers(0, MAP_BYTES - 1), st.integers(1, 255))
def test_no_changed_byte_is_read_as_a_map(at: int, mask: int) -> None:
    data = bytearray(STORED.pack())
    data[at] ^= mask
    with pytest.raises(StorageError, match="x: "):
        StoredMap.unpack(bytes(data), "x")


@examples(100)
@given(st.binary(max_size=100), st.integers(0, MAP_BYTES))
def test_neither_are_other_bytes_nor_a_map_that_was_cut(tail: bytes, kept: int) -> None:
    for data in (STORED.pack()[:kept] + tail, tail):
        if data != STORED.pack():
            with pytest.raises(StorageError, match="x: "):
                StoredMap.unpack(data, "x")


@pytest.mark.parametrize("place", PLACES)
def test_one_damaged_or_missing_file_is_named_and_the_other_one_is_read(place: str) -> None:
    ring, loop = written()
    ring.corrupt_file(place, 100)
    assert read(loop) == FoundMap(STORED, [f"{place}: the checksum of the slot map is wrong"])
    ring.disk.unlink(place)
    assert read(loop) == FoundMap(STORED, [f"{place}: missing"])


def test_two_damaged_files_are_refused_with_what_to_do() -> None:
    ring, loop = written()
    for place in PLACES:
        ring.corrupt_file(place, 100)
    with pytest.raises(CorruptError, match=r"^data: the slot map and its copy are damaged, .* `topics restore`$"):
        read(loop)


def test_files_of_two_directories_are_refused() -> None:
    ring, loop = written()
    ring.put_file(PLACES[0], STORED._replace(id=bytes(16)).pack())
    with pytest.raises(CorruptError, match="are of two data directories: remove the file that was put there"):
        read(loop)


@pytest.mark.parametrize("place", PLACES)
def test_a_map_of_a_newer_version_is_refused_as_one(place: str) -> None:
    ring, loop = written()
    data = bytearray(STORED.pack())
    data[4:6] = struct.pack("<H", 1001)
    ring.put_file(place, bytes(data))
    with pytest.raises(FormatError, match="a slot map of version 1001; this build knows 1000: use the version"):
        read(loop)


def test_so_is_a_state_that_this_build_does_not_know() -> None:
    data = STORED._replace(state=6).pack()  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="a slot map in state 6, which this build does not know: use the version"):
        StoredMap.unpack(data, "x")


def test_while_directories_are_made_a_snapshot_may_be_in_the_place_of_the_copy() -> None:
    ring, loop = begun()
    making = STORED._replace(state=MapState.MAKING)
    loop.run_task(write_without_copy(loop.files, DATA, making))
    assert read(loop) == FoundMap(making, [])
    ring.put_file(PLACES[1], b"".join(bytes(part) for part in pack_snapshot(1, 0, [b"{}"], [b"[]"])))
    assert read(loop) == FoundMap(making, [])
    ring.corrupt_file(PLACES[1], 0)
    assert read(loop) == FoundMap(making, [])


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_after_any_operation_leaves_the_old_map_or_the_new_one(power_cut: bool) -> None:
    """And with either file damaged it is not older than what was acknowledged."""
    before, after = (
        STORED,
        STORED._replace(generation=8, slots=SlotMap.balanced(4), numbers=(1, 2, 5, 6), next_number=7, directories=4),
    )
    ring, loop = written()
    first = ring.effects
    loop.run_task(write_slot_map(loop.files, DATA, after))
    effects = ring.effects - first
    assert effects >= 10
    seen = []
    for stop in range(1, effects + 1):
        ring, loop = written()
        ring.stop_at(ring.effects + stop)
        is_written = True
        try:
            loop.run_task(write_slot_map(loop.files, DATA, after))
        except SimStoppedError:
            is_written = False
        ring = ring.next_life(power_cut=power_cut)
        for damaged in (None, *PLACES):
            if damaged is not None:
                ring.corrupt_file(damaged, 100)
            found = read(Loop(ring, ring.clock))
            assert found is not None
            assert found.stored in {before, after}
            assert found.stored == after or not is_written
            if damaged is None:
                seen.append(found.stored.generation)
            else:
                ring.corrupt_file(damaged, 100)  # back to what it was
    assert set(seen) == {7, 8}
    assert power_cut or seen == sorted(seen)


def test_a_build_that_knows_no_slot_map_takes_both_files_for_snapshots_of_another_version() -> None:
    """The check of snapshots is the one that all builds so far have."""
    with pytest.raises(FormatError, match="a snapshot of version 1000; this build knows 2: use the version of topics"):
        SnapshotFile.unpack(STORED.pack(), "x")
