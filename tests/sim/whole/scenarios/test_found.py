"""What the simulation found, each as the scenario it is, so that it stays found whatever the seeds become.

What checkpoints did wrong is in test_found_checkpoints.py.
"""

from __future__ import annotations

import contextlib
import errno
import itertools

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim import SimStoppedError
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_first_start_killed_anywhere_leaves_no_directory_that_a_power_cut_takes_later() -> None:
    """R-DUR-2. The process that made a directory may be killed before it synced its name; the next one has to."""
    for effects, seed in itertools.product(range(1, 40), range(2)):
        world = SimWorld(seed)
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start()
        world.crash_and_start()
        world.put("a", durability="fsync")
        world.write("a", "kept")
        world.power_cut()
        world.start()
        assert world.data("a") == ["kept"], f"killed after {effects} operations, seed {seed}"
        world.close()


def test_the_config_of_before_is_not_acknowledged_by_itself_after_a_change_that_failed() -> None:
    """R-DUR-1, R-DUR-16: the failed change may be found after a restart, so this one has to be written, too."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.fail_storage("sync", errno.EIO)
    assert world.request("PUT", "/v0/topics/a", {"durability": "disk"}).status == 500
    assert world.request("PUT", "/v0/topics/a", {"durability": "fsync"}).status == 500


def test_a_record_that_expires_while_it_is_written_is_not_shown_to_a_read_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-TTL-3. The expiry of the first record, which the read waits for, is committed with the second."""
    world = SimWorld()
    world.start()
    world.put("b", durability="fsync")
    world.put("a", durability="fsync", ttl_ms=20)
    world.write("a", 1)
    monkeypatch.setitem(LATENCY_NS, "sync", 60_000_000)
    world.ask("POST", "/v0/topics/b", {"records": [{"data": 0}]})
    world.advance_ms(1)  # its commit is under way: what follows shares the next one
    writer = world.ask("POST", "/v0/topics/a", {"records": [{"data": 2}]})
    world.advance_ms(25)
    assert world.diff("a")["records"] == []
    assert writer.answer().status == 200


def test_a_sync_that_fails_while_the_server_stops_is_noted_like_any_other() -> None:
    """R-DUR-6: the seqs of what it lost are told to be lost, and are not given out again."""
    world = SimWorld(commit="link")
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    world.advance_ms(2000)
    assert world.write("a", 2, 3)["last_seq"] == 3
    world.fail_storage("sync", errno.EIO, path_part="/wal-")
    world.begin_stop()
    world.finish_stop()
    assert world.ring.faults.struck["sync"] == 1
    world.heal_storage()
    world.start()
    assert world.write("a", 4)["first_seq"] > 3
    assert world.diff("a", 1)["tombstone"]["reason"] == "crash"


def test_seqs_that_a_router_has_copied_are_not_given_out_again_after_a_failed_sync_that_nobody_could_note() -> None:
    """R-SEQ-4, R-RTR-2: the router would take the new records for those it had copied."""
    world = SimWorld(wal_shards=2, commit="link")
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="disk")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b", "guarantee": "exactly_once"})
    world.write("a", 1)
    world.advance_ms(2000)
    world.write("a", 2, 3)
    assert world.data("b") == [1, 2, 3]
    world.fail_storage("sync", errno.EIO, path_part="/shard-00/")
    while not world.ring.faults.struck["sync"]:
        world.ring.stop_at(world.ring.effects + 1)
        with contextlib.suppress(SimStoppedError):
            world.advance_ms(1000)
    world.crash_and_start()
    assert world.write("a", 4)["first_seq"] == 4
    for _ in range(2):
        page = world.diff("a", 1)
        assert [page["tombstone"][name] for name in ("gap_from", "gap_to", "reason")] == [2, 3, "crash"]
        world.crash_and_start()
    assert world.data("b") == [1, 2, 3, 4]


def test_what_a_restart_took_from_an_ephemeral_topic_stays_gone_when_its_class_changes() -> None:
    """R-DUR-5: it lies in segments, of a time in another class."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1, 2)
    world.advance_ms(1100)
    world.put("a", durability="ephemeral")
    world.crash_and_start()
    assert world.data("a") == []
    world.put("a", durability="disk")
    world.write("a", 3)
    world.crash_and_start()
    assert world.data("a") == [3]


@pytest.mark.parametrize("lies_in", ["log", "segment", "memory"])
def test_what_went_while_a_topic_was_ephemeral_stays_gone_when_its_class_changes(lies_in: str) -> None:
    """R-DEL-1, R-TTL-3, R-CAP-1, R-CFG-3: no frame told of it."""
    world = SimWorld(checkpoint_wal_bytes=1 << 20)
    world.start()
    first = "ephemeral" if lies_in == "memory" else "disk"
    names = ("prefix", "tag", "ttl", "cap")
    for name in names:
        world.put(name, durability=first)
        world.write_records(name, [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    if lies_in == "segment":
        world.restart()
    for name in names:
        world.put(name, durability="ephemeral", ttl_ms=500 if name == "ttl" else 0)
    world.delete("prefix", before_seq=3)
    world.delete("tag", match="gone")
    world.advance_ms(600)
    for name in names:
        world.write(name, 4)
        world.put(name, durability="ephemeral", cap_records=2 if name == "cap" else 0)
    left = {"prefix": [3, 4], "tag": [1, 3, 4], "ttl": [4], "cap": [3, 4]}
    assert {name: world.data(name) for name in names} == left
    for name in names:
        world.put(name, durability="disk")
        world.write(name, 5)
    assert {name: world.data(name) for name in names} == {name: [*found, 5] for name, found in left.items()}
    world.crash_and_start()
    kept = {"prefix": [3, 5], "tag": [1, 3, 5], "ttl": [5], "cap": [3, 5]}
    if lies_in == "memory":
        kept = {name: [5] for name in names}
    assert {name: world.data(name) for name in names} == kept
    world.advance_ms(2200)
    world.crash_and_start()
    assert {name: world.data(name) for name in names} == kept


def test_what_goes_from_an_ephemeral_topic_behind_a_change_on_its_way_stays_gone_when_the_class_changes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-1, R-CFG-3: the list of what is gone was made before the delete was applied."""
    world = SimWorld()
    world.start()
    world.put("a", durability="disk")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.put("a", durability="ephemeral")
    monkeypatch.setitem(LATENCY_NS, "sync", 20_000_000)
    requests = [
        ("PUT", "/v0/topics/a", {"durability": "ephemeral", "cap_records": 10}),
        ("POST", "/v0/topics/a/delete", {"match": "gone"}),
        ("PUT", "/v0/topics/a", {"durability": "disk", "cap_records": 10}),
    ]
    connections = [world.connect() for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.start(*request)
        world.advance_ms(3)
    assert not any(connection.take_bytes() for connection in connections), "each waits for the one before"
    world.advance_ms(100)
    assert [connection.answer().status for connection in connections] == [200] * 3
    assert world.data("a") == [1, 3]
    world.write("a", 4)
    world.crash_and_start()
    assert world.data("a") == [1, 3, 4]


def test_a_record_that_a_killed_start_with_other_shards_copied_is_copied_once() -> None:
    """R-DUR-13, R-DUR-15: `count`, `bytes`. The snapshot before the flags lists the copy, and the log has it, too."""
    for effects in range(60, 160, 2):
        world = SimWorld(wal_shards=4, sync_every_ms=60_000, pack_run_bytes=0)
        world.start()
        world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}])
        world.stop()
        world.start()
        world.delete("a", match="gone")
        world.write("a", 3)
        world.crash()
        world.ring.stop_at(effects)
        with contextlib.suppress(SimStoppedError):
            world.start(wal_shards=1)
        world.crash()
        world.start(wal_shards=4)
        world.crash_and_start()
        assert world.data("a") == [1, 3]
        assert world.state("a")["count"] == 2, f"killed {effects} operations into a start"
        world.close()


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("left", [0, 4096, 20_000])
def test_a_start_on_a_full_disk_uses_the_reserve(left: int, power_cut: bool) -> None:
    """R-DUR-16: whoever is to delete needs a server."""
    world = SimWorld(checkpoint_wal_bytes=1, disk_reserve_bytes=64 << 10)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1, 2, 3)
    world.ring.disk.capacity_bytes = world.ring.disk.used_bytes + left
    if power_cut:
        world.power_cut()
        world.start()
    else:
        world.crash_and_start()
    assert world.data("a") == [1, 2, 3]
    world.delete("a", before_seq=2)
    world.crash_and_start()
    assert world.data("a") == [2, 3]
    world.ring.disk.capacity_bytes = None
    world.advance_ms(2500)
    world.write("a", 4)
    assert world.data("a") == [2, 3, 4]


@pytest.mark.parametrize("match", [False, True])
def test_a_record_is_not_taken_by_a_delete_that_came_before_it_and_behind_a_write_that_failed(match: bool) -> None:
    """R-DEL-4, R-SEQ-6. Seed 3071600: the seq of the write that failed was given out again by the next start."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.fill_disk()
    failed = world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 300_000, "tag": "t"}]})
    assert failed.status == 500
    world.delete("a", **({"match": "t"} if match else {"before_seq": 100}))
    world.free_disk()
    world.crash_and_start()
    answer = world.write_records("a", [{"data": 2, "tag": "t"}])
    assert answer["first_seq"] > 1
    world.crash_and_start()
    assert world.data("a") == ([1, 2] if match else [2])
    state = world.state("a")
    assert state["earliest_seq"] <= state["head_seq"]


def test_a_spare_log_file_never_gets_the_number_back_under_which_it_was_written() -> None:
    """On a disk that lies a power cut takes the snapshot it was given up for: a second start must show what the first
    did. Seed 7800049 of ones with more faults than usual."""
    world = SimWorld(checkpoint_wal_bytes=1 << 30)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", 1)
    world.crash()
    directory = "/srv/topics/wal/shard-00"
    used = "wal-0000000000000001.log"
    for name in world.ring.list_directory(directory):
        if name != used:
            world.ring.disk.unlink(f"{directory}/{name}")
    world.ring.disk.rename(f"{directory}/{used}", f"{directory}/spare-{used[4:]}")
    for _ in range(3):
        world.start()
        assert world.request("GET", "/v0/topics/a").status == 404
        world.crash()
