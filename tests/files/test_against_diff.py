"""Files read after a checkpoint give what `diff` gives then: records and losses, whatever happened before."""

from __future__ import annotations

import random

import pytest

from tests.amount import seeds
from tests.files.files_world import COLD, FilesWorld, Seen, busy, read_all
from topics.files import deleted_seqs
from topics.files.texts import NATIVE, PURE

NAMES = ["big", "small", "capped", "short-lived", "memory", "synced"]


def compare(world: FilesWorld, names: list[str], *, routers: bool = False) -> int:
    """All of these topics; returns how many records there were."""
    count = 0
    directory = world.directory()
    for name in names:
        topic = directory.topics[name]
        by_diff = world.diff_all(name)
        assert topic.incarnation == world.state(name).incarnation, name
        ttl_ms = topic.config["ttl_ms"]
        by_files = read_all(topic, directory)
        horizon = directory.created_ms - ttl_ms
        now = world.ring.clock.now_ms() - ttl_ms
        if ttl_ms and any(horizon <= record[1] < now for record in by_files.records):
            continue  # it expired between the snapshot and the diff
        # What was lost above the last record that was copied is reported with the next one that is.
        told = [(first, min(last, topic.head), why) for first, last, why in by_diff.losses if first <= topic.head]
        copied = [record for record in by_diff.records if record[0] <= topic.head]
        assert by_files == Seen(copied, told), name
        assert len(copied) == len(by_diff.records) or routers, "all was copied, but for what a router wrote since"
        count += len(by_diff.records)
    assert directory.calls.descriptors == 0
    return count


@pytest.mark.parametrize("seed", seeds(5))
def test_after_each_checkpoint_files_give_what_diff_gives(seed: int) -> None:
    """Through deletes, caps, expiry, seals, merges of packs, moves to the cold directory, kills and power cuts."""
    chance = random.Random(seed)
    world = FilesWorld(seed, pack_run_bytes=chance.choice((0, 1000, 100_000)))
    for name, config in {
        "capped": {"cap_records": 25},
        "short-lived": {"ttl_ms": 15_000},
        "memory": {"durability": "memory"},
        "synced": {"durability": "fsync"},
    }.items():
        world.put(name, **config)
    world.put("big")
    world.put("small")
    for _ in range(5):
        for _ in range(25):
            busy(world, chance, ["big", "big", *NAMES])
        if chance.random() < 0.4:
            world.restart(power_lost=chance.random() < 0.5, graceful=chance.random() < 0.3)
        world.checkpoint()
        compare(world, NAMES)
    assert compare(world, NAMES) > 50


@pytest.mark.parametrize("seed", seeds(4))
def test_so_they_do_of_copies_jobs_changed_classes_and_rebuilt_directories(seed: int) -> None:
    chance = random.Random(seed)
    world = FilesWorld(seed, pack_run_bytes=chance.choice((0, 1000, 100_000)))
    names = ["source", "copies", "copies-of-copies", "jobs", "changing"]
    world.put("jobs", type="queue")
    for name in names:
        if name != "jobs":
            world.put(name)
    world.route("source", "copies")
    world.route("copies", "copies-of-copies")
    for _ in range(4):
        for _ in range(20):
            busy(world, chance, ["source", "copies", "jobs", "changing"])
            if chance.random() < 0.2:
                world.work("jobs", chance.choice((1, 3, 10)))
            if chance.random() < 0.1:
                world.put("changing", durability=chance.choice(("memory", "disk", "fsync")))
        what = chance.random()
        if what < 0.3:
            world.restart(power_lost=what < 0.15)
        elif what < 0.5:
            world.rebuild(snapshots=what < 0.4)
            for name in names:  # without snapshots a topic that has no record is gone
                world.append("here again", name=name)
        world.advance_ms(300)  # routers come to rest
        world.checkpoint()
        compare(world, names, routers=True)
    assert compare(world, names, routers=True) > 50


def test_a_topic_of_the_test_lies_in_all_kinds_of_files() -> None:
    """Else the test above shows less than it says."""
    world = FilesWorld(1, pack_run_bytes=3000)
    for number in range(12):
        world.append(*range(33), name="big", tag="a")
        world.append(number, name="small")
        if number % 3 == 2:
            world.checkpoint()
    directory = world.directory()
    pieces = directory.topics["big"].pieces
    assert {(piece.tier, piece.sealed) for piece in pieces} == {(0, True), (0, False), (1, True)}
    assert [piece.kind.name for piece in directory.topics["small"].pieces] == ["RUN"] * 4
    assert world.ring.disk.list_directory(f"{COLD}/topics")


@pytest.mark.parametrize("decoder", [NATIVE, PURE], ids=["C", "numpy"])
def test_both_decoders_give_the_same(decoder) -> None:
    chance = random.Random(5)
    world = FilesWorld(5)
    world.put("big")
    world.put("small")
    for _ in range(80):
        busy(world, chance, ["big", "small"])
    world.checkpoint()
    directory = world.directory()
    for name in ("big", "small"):
        assert read_all(directory.topics[name], directory, decoder) == world.diff_all(name)


@pytest.mark.parametrize("seed", seeds(3))
def test_deleted_records_that_are_still_in_the_files_are_none_that_live(seed: int) -> None:
    chance = random.Random(seed)
    world = FilesWorld(seed, pack_run_bytes=chance.choice((0, 1000)))
    for name in ("big", "small"):
        world.put(name)
    seen = 0
    for _ in range(6):
        for _ in range(25):
            busy(world, chance, ["big", "small"])
        world.checkpoint()
        directory = world.directory()
        for name in ("big", "small"):
            topic = directory.topics[name]
            live = {record[0] for record in read_all(topic, directory).records}
            for piece in topic.pieces:
                found = deleted_seqs(directory.location, piece, calls=directory.calls)
                assert found is not None
                assert not live & set(found.tolist())
                assert all(piece.from_seq <= seq <= piece.to_seq for seq in found.tolist())
                seen += len(found)
    assert seen
    assert directory.calls.descriptors == 0
