"""The records that a rebuild keeps of damaged segments and packs: all that is sound."""

from __future__ import annotations

import copy

import pytest

from tests.amount import stride
from tests.sim import SimRing
from tests.store.repair.rebuilding import IN_PACKS, ended, place, rebuilt, with_and_without_snapshots, write
from tests.store.store_world import StoreWorld, small_config
from topics.store.layouts.segment_format import SegmentHeader


@with_and_without_snapshots
def test_deleted_records_stay_deleted_in_a_pack_that_is_mended(snapshots: bool) -> None:
    world = StoreWorld(config=IN_PACKS).open()
    for topic_id in (1, 2):
        world.create(topic_id)
        world.append(topic_id, 4)
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    path, offset = place(world, 2, 3)
    ring = ended(world)
    ring.corrupt_file(path, offset + 60)
    again, result = rebuilt(ring, IN_PACKS, snapshots=snapshots)
    assert {topic_id: list(topic.rows) for topic_id, topic in again.catalog.topics.items()} == {1: [1, 4], 2: [1, 2, 4]}
    assert (len(result.set_aside), result.records) == (1, 7)
    assert list(again.next_life(power_cut=True).topic(1).rows) == [1, 4]


@with_and_without_snapshots
def test_a_tag_that_looks_like_the_beginning_of_a_run_does_not_make_a_pack_a_damaged_one(snapshots: bool) -> None:
    world = StoreWorld(config=IN_PACKS).open()
    world.create(1)
    world.append(1, 4, tag=b"TPRN-7")
    world.checkpoint()
    world.delete(1, [2, 3])
    world.checkpoint()
    again, result = rebuilt(ended(world), IN_PACKS, snapshots=snapshots)
    assert list(again.topic(1).rows) == [1, 4]
    assert result.set_aside == []


@with_and_without_snapshots
def test_a_mended_segment_goes_on_saying_what_its_footer_said(snapshots: bool) -> None:
    """Records below a floor that the header does not know of stay gone."""
    config = small_config(pack_run_bytes=0, segment_max_events=5)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 3)
    world.checkpoint()
    world.evict(1, 2)
    world.append(1, 2)
    world.checkpoint()
    path, offset = place(world, 1, 4)
    ring = ended(world)
    ring.corrupt_file(path, offset + 60)
    again, _ = rebuilt(ring, config, snapshots=snapshots)
    assert list(again.topic(1).rows) == [3, 5]
    assert b'"floor": 2' in SegmentHeader.unpack(again.ring.file_bytes(path), path).description


@with_and_without_snapshots
@pytest.mark.parametrize("kind", ["segment", "pack", "run"])
def test_a_bit_that_flips_in_a_header_costs_nothing(kind: str, snapshots: bool) -> None:
    config = small_config(pack_run_bytes=0) if kind == "segment" else IN_PACKS
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 50)
    world.checkpoint()
    path, first = place(world, 1, 1)
    begin, size = {"segment": (0, 100), "pack": (0, 32), "run": (4096, first - 4096)}[kind]
    ring = ended(world)
    every = stride(33 if kind == "run" else 9)
    for at in range(begin + snapshots * every // 2, begin + size, every):
        if kind == "segment" and 48 <= at < 56:
            continue  # where the frames begin and padding: no part of what is read
        damaged = SimRing(0, disk=copy.deepcopy(ring.disk))
        damaged.corrupt_file(path, at, 1 << at % 8)
        again, result = rebuilt(damaged, config, snapshots=snapshots)
        assert len(again.topic(1).rows) == 50, at
        assert result.records == 50, at


@with_and_without_snapshots
def test_a_segment_whose_header_is_lost_keeps_its_records(snapshots: bool) -> None:
    """By its footer, or by what the snapshot says of it."""
    config = small_config(pack_run_bytes=0, segment_max_events=50)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 60)
    world.checkpoint()
    sealed, tail = place(world, 1, 1)[0], place(world, 1, 60)[0]
    ring = ended(world)
    write(ring, sealed, bytes(4096))
    if snapshots:
        write(ring, tail, bytes(4096))
    again, _ = rebuilt(ring, config, snapshots=snapshots)
    assert len(again.topic(1).rows) == 60


@pytest.mark.parametrize("at", range(4))
def test_a_bit_that_flips_in_the_length_of_a_record_costs_that_record_alone(at: int) -> None:
    """Without an index, too, that says where the next one is."""
    config = small_config(pack_run_bytes=0)
    world = StoreWorld(config=config).open()
    world.create(1)
    world.append(1, 50)
    world.checkpoint()
    path, offset = place(world, 1, 20)
    ring = ended(world)
    ring.corrupt_file(path, offset + at, 0x10)
    again, _ = rebuilt(ring, config)
    assert sorted(again.topic(1).rows) == [seq for seq in range(1, 51) if seq != 20]
