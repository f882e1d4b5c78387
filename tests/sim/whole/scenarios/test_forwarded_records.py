"""Forwarded records arrive, once and in order, whatever ends the process or the records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import tombstone
from tests.sim.whole.scenarios.routed import route, routers, topics_by_shard
from tests.sim.world.ring_core import LATENCY_NS
from topics.store.recovery import log_pieces

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_MS = 1_000_000
_CHECKPOINT_MS = 1100


def test_a_checkpoint_copies_what_a_router_copied_by_position() -> None:
    """R-RTR-2. The copies say where they are, as records in memory do."""
    world = SimWorld()
    world.start()
    for name in ("a", "b"):
        world.put(name, durability="fsync")
    assert world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status in {200, 201}
    world.write("a", 1, 2, 3)
    world.advance_ms(10)
    assert world.data("b") == [1, 2, 3]
    assert world.stop() == 0
    world.start()
    assert world.data("b") == [1, 2, 3]


def test_holes_of_a_router_behind_what_a_power_cut_took_are_told_with_their_own_reason() -> None:
    """R-DUR-6, R-TRIM-3: also after a restart, and each by a read of its own."""
    world = SimWorld()
    world.start()
    world.put("s", durability="fsync", cap_records=2)
    world.put("a", durability="disk", cap_records=2, discard="reject")
    assert world.request("PUT", "/v0/routers/r", {"source": "s", "dest": "a"}).status == 201
    world.write("s", 1, 2)
    assert world.data("a") == [1, 2]
    world.advance_ms(5000)
    world.power_cut()
    world.start()
    skipped_upto = world.state("a")["head_seq"]
    assert skipped_upto > 2
    world.write("s", 3, 4, 5, 6)
    for _ in range(2):
        crash, trim = world.diff("a", 2), world.diff("a", skipped_upto)
        assert crash["tombstone"] == tombstone(3, skipped_upto, "crash", skipped_upto + 2)
        assert (crash["next_from_seq"], crash["caught_up"]) == (skipped_upto, False)
        assert trim["tombstone"] == tombstone(skipped_upto + 1, skipped_upto + 2, "source_trim", skipped_upto + 2)
        assert (trim["next_from_seq"], trim["caught_up"]) == (skipped_upto + 2, True)
        world.crash_and_start()


def test_copies_of_records_on_their_way_when_the_router_was_made_survive_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-RTR-16, R-DUR-3. Their frames are before the router's, perhaps in a piece of the log that was read before."""
    monkeypatch.setattr(log_pieces, "PIECE_BYTES", 32768)
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name in "sdo":
        world.put(name)
    world.write("o", 0)
    world.write("s", 0)
    world.advance_ms(100)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    body = {"records": [{"data": "x" * 5000}] * 4}
    early = world.ask("POST", "/v0/topics/s", body)
    world.advance_ms(2)
    world.ask("POST", "/v0/topics/o", body)
    world.advance_ms(1)
    made = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d"})
    assert (early.answer().status, made.answer().status) == (200, 201)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    assert len(world.data("d")) == 4
    world.crash_and_start()
    assert len(world.data("d")) == 4
    world.close()


def test_a_direct_write_goes_with_the_copy_behind_it_though_its_original_lies_in_an_older_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DUR-2, R-RTR-16: a checkpoint empties the original's file, and a start skips what is below the copy's seq."""
    world = SimWorld(wal_shards=2, checkpoint_wal_bytes=1, commit_in_place_max_us=0)
    world.start()
    (source, *_), (dest, *_) = topics_by_shard(world)
    route(world, source, dest)
    world.write(source, 0)
    world.write(dest, 0)
    world.advance_to_ms(world.now_ms() + 900 - world.now_ms() % 1000)
    monkeypatch.setitem(LATENCY_NS, "write", 150 * _MS)
    asked = [world.ask("POST", f"/v0/topics/{dest}", {"records": [{"data": 1}]})]
    world.advance_ms(1)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    asked += [world.ask("POST", f"/v0/topics/{dest}", {"records": [{"data": 2}]})]  # waits for the write on its way
    world.advance_ms(1)
    asked += [world.ask("POST", f"/v0/topics/{source}", {"records": [{"data": 3}]})]  # its copy does, too
    world.advance_ms(200)  # the checkpoint's cut sends both to the next file
    assert [each.answer().status for each in asked] == [200] * 3
    assert world.data(dest)[-3:] == [1, 2, 3]
    world.crash_and_start()
    assert world.data(dest)[-3:] == [1, 2, 3]
    world.close()


def _lose_originals(caps: dict[str, Any], seed: int, chained: bool) -> tuple[SimWorld, str]:
    """A world after a power cut, and the topic whose seqs 4 and 5 were copies of records that it took."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, last, *_) = topics_by_shard(world, durability="disk")
    world.put(dest, durability="fsync", **({} if chained else caps))
    world.put(last, durability="fsync", **caps)
    route(world, source, dest)
    if chained:
        route(world, dest, last, "r2")
        dest = last
    world.write(source, "0")
    world.advance_ms(100)
    world.write(dest, "d1", "d2")
    assert world.data(dest) == ["d1", "d2"]
    world.write(source, "12", "2")
    page = world.diff(dest)
    assert page["tombstone"] == tombstone(1, 3, "cap", 5)
    assert [record["data"] for record in page["records"]] == ["12", "2"]
    world.power_cut()
    world.start()
    return world, dest


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("caps", [{"cap_records": 2}, {"cap_bytes": 8}])
def test_copies_whose_originals_a_power_cut_took_are_told_and_what_they_evicted_stays_so(
    caps: dict[str, Any], chained: bool
) -> None:
    """R-RTR-16, R-FLOOR-2, R-FLOOR-5, R-DUR-8. Also in a restart later, and where copies were copied again."""
    lost = 0
    for seed in range(1, 6):
        world, dest = _lose_originals(caps, seed, chained)
        for _ in range(2):
            page = world.diff(dest)
            assert page["head_seq"] == 5
            if page["records"]:  # written back in time, that is
                assert [record["data"] for record in page["records"]] == ["12", "2"]
                assert page["tombstone"] == tombstone(1, 3, "cap", 5)
            else:
                lost += 1
                assert page["tombstone"] == tombstone(1, 5, "cap", 5, 6)
                assert world.diff(dest, 3)["tombstone"] == tombstone(4, 5, "crash", 5, 6)
            world.crash_and_start()
        world.write(dest, "later")
        assert world.data(dest)[-1] == "later"
        world.close()
    assert lost


@pytest.mark.parametrize("seed", range(4))
def test_a_later_cap_of_bytes_counts_copies_whose_originals_a_power_cut_took(seed: int) -> None:
    """R-DUR-8, R-FLOOR-5. What they evicted stays so: their sizes are stated though no cap counted them at the time."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, *_) = topics_by_shard(world)
    world.put(dest, durability="fsync")
    world.write(dest, "a" * 10, "b" * 10)
    route(world, source, dest)
    world.write(source, "x" * 10)
    assert len(world.data(dest)) == 3
    world.write(source, "y" * 10, "z" * 20)
    assert len(world.data(dest)) == 5
    world.put(dest, durability="fsync", cap_bytes=56)
    told = world.diff(dest)["tombstone"]
    assert (told["reason"], told["gap_to"]) == ("cap", 2)
    world.power_cut()
    world.start()
    again = world.diff(dest)["tombstone"]
    assert (again["reason"], again["gap_to"]) == ("cap", 2) or again["gap_to"] == 5
    world.close()


def test_what_comes_into_an_ephemeral_source_after_a_kill_is_forwarded_whatever_its_class_becomes() -> None:
    """R-RTR-1. The router's position is of the life before: seqs up to there are not given out again."""
    world = SimWorld()
    world.start()
    world.put("s", durability="ephemeral")
    world.put("d", durability="disk")
    route(world, "s", "d")
    world.write("s", 1, 2, 3, 4, 5)
    assert world.data("d") == [1, 2, 3, 4, 5]
    world.crash_and_start()
    world.put("s", durability="disk")
    world.write("s", "a", "b", "c")
    world.crash_and_start()
    assert world.data("s") == ["a", "b", "c"]
    assert world.data("d") == [1, 2, 3, 4, 5, "a", "b", "c"]
    world.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_comes_into_a_source_after_a_power_cut_is_forwarded_whatever_the_router_had_seen(seed: int) -> None:
    """R-RTR-1, R-RTR-16. Class `memory`, and a kill before the router has come that far again."""
    world = SimWorld(seed, wal_shards=2, sync_every_ms=60_000, commit="link")
    world.start()
    (source, *_), (dest, *_) = topics_by_shard(world, durability="memory")
    world.put(dest, durability="fsync")
    route(world, source, dest)
    world.write(source, 1, 2, 3, 4, 5)
    assert world.data(dest) == [1, 2, 3, 4, 5]
    world.power_cut()
    world.start()
    world.write(source, "a", "b", "c")
    world.crash_and_start()
    world.advance_ms(500)
    assert world.data(source)[-3:] == ["a", "b", "c"]
    assert world.data(dest) == [1, 2, 3, 4, 5, "a", "b", "c"]
    world.close()


def test_frames_kept_of_an_ephemeral_queue_do_not_take_the_place_of_what_comes_after_a_kill() -> None:
    """R-RTR-1, R-RTR-18."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", durability="ephemeral")
    world.put("d", discard="reject", cap_records=1)
    route(world, "q", "d")
    world.write("q", 1, 2, 3)
    assert world.data("d") == [1]
    world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 3})
    assert world.request("POST", "/v0/topics/q/ack", {"node": "n", "seqs": [2, 3]}).json["acked"] == 2
    world.crash_and_start()
    last = world.write("q", "gone")["last_seq"]
    world.delete("q", before_seq=last + 1)
    world.put("d")
    world.advance_ms(500)
    assert world.data("d") == [1, 2, 3]
    world.write("q", "new 2", "new 3", "new 4")
    assert world.data("d") == [1, 2, 3, "new 2", "new 3", "new 4"]
    world.close()


def test_what_is_written_to_ephemeral_mirrors_after_a_kill_has_no_hops_of_what_was_there_before() -> None:
    """R-RTR-12."""
    world = SimWorld()
    world.start()
    for name in "ab":
        world.put(name, durability="ephemeral")
    route(world, "a", "b", "ab", allow_cycle=True)
    route(world, "b", "a", "ba", allow_cycle=True)
    world.write("a", "x")
    world.advance_ms(1000)
    world.crash_and_start()
    world.write("a", *range(5))
    world.advance_ms(2000)
    assert Counter(world.data("a")) == dict.fromkeys(range(5), 5)
    assert Counter(world.data("b")) == dict.fromkeys(range(5), 4)
    world.close()


def test_a_stop_drives_a_chain_to_its_end_on_a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-LIFE-7. What comes into the second router's source while it is driven is forwarded, too."""
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name, durability in (("a", "disk"), ("b", "ephemeral"), ("c", "disk"), ("d", "ephemeral"), ("e", "disk")):
        world.put(name, durability=durability)
    for source, dest in ("de", "cd", "bc", "ab"):
        route(world, source, dest, source + dest)
    world.advance_ms(200)
    monkeypatch.setitem(LATENCY_NS, "write", 300 * _MS)
    assert world.request("POST", "/v0/topics/a", {"records": [{"data": 1}]}).status == 200
    assert world.stop() == 0
    monkeypatch.undo()
    world.start()
    assert [world.data(name) for name in "abcde"] == [[1], [], [1], [], [1]]
    world.close()


def test_records_that_expired_unread_do_not_hold_a_router_under_the_quota() -> None:
    """R-RTR-13, R-TTL-3. No request asks for the topic they are in."""
    world = SimWorld(max_total_bytes=100)
    world.start()
    world.put("x", ttl_ms=500)
    world.put("s")
    world.put("d")
    route(world, "s", "d")
    world.write("x", "x" * 78)
    world.write("s", "0123456789")
    assert world.data("d") == []
    world.advance_ms(5000)
    assert world.data("d") == ["0123456789"]
    world.close()


def test_a_loss_goes_down_a_chain_by_itself_and_wakes_who_waits_at_its_end() -> None:
    """R-RTR-5, R-TRIM-1, 7.6. A step that brings nothing but holes brings something to forward, too."""
    world = SimWorld()
    world.start()
    world.put("s", ttl_ms=1000)
    world.put("a", discard="reject", cap_bytes=10)
    world.put("b")
    route(world, "s", "a", "sa")
    route(world, "a", "b", "ab")
    poll = world.ask("POST", "/v0/topics/b/diff", {"wait_ms": 30_000})
    world.write("s", "x" * 50, "y" * 50)
    assert poll.waiting
    world.advance_ms(2000)
    assert [router["forwarded_total"] for router in routers(world)] == [2, 2]
    assert poll.answer(within_ms=100).json["tombstone"] == tombstone(1, 2, "source_trim", 2)
    world.close()


def test_a_loss_goes_round_in_a_mirror_no_further_than_records_do() -> None:
    """R-TRIM-1, R-RTR-12. Each side reported to the other, for ever, what the other had reported: 20 steps a second."""
    world = SimWorld()
    world.start()
    world.put("a", ttl_ms=1000)
    world.put("b", discard="reject", cap_bytes=10)
    route(world, "a", "b", "ab", allow_cycle=True)
    route(world, "b", "a", "ba", allow_cycle=True)
    world.write("a", "x" * 50, "y" * 50)
    for _ in range(2):
        world.advance_ms(10_000)
        assert [world.diff(name)["head_seq"] for name in "ab"] == [10, 10]
        assert [router["forwarded_total"] for router in routers(world)] == [10, 8]
    world.crash_and_start()
    world.advance_ms(10_000)
    assert [world.diff(name)["head_seq"] for name in "ab"] == [10, 10]
    world.close()


def test_hops_outlive_a_checkpoint_while_a_router_is_blocked() -> None:
    """R-RTR-12, R-RTR-16: a mirror ends after eight, wherever its records were when the log was recycled."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("b", cap_records=1, discard="reject")
    for source, dest in ("ab", "ba"):
        router = {"source": source, "dest": dest, "allow_cycle": True}
        assert world.request("PUT", f"/v0/routers/{source}{dest}", router).status == 201
    world.write("a", 1)
    for _ in range(8):
        world.advance_ms(_CHECKPOINT_MS)
        world.crash_and_start()
        world.delete("b", before_seq=100)
    world.advance_ms(_CHECKPOINT_MS)
    assert (world.state("a")["head_seq"], world.state("b")["head_seq"]) == (5, 4)


def test_a_record_deleted_while_a_router_reads_it_and_then_passed_by_an_eviction_is_not_forwarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-9: the step that read it is planned again."""
    world = SimWorld(checkpoint_wal_bytes=1, hot_tail_bytes=0)
    world.start()
    world.put("a", cap_records=3)
    world.put("d", discard="reject", cap_records=1)
    world.write("d", "full")
    world.request("PUT", "/v0/routers/r", {"source": "a", "dest": "d"})
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.advance_ms(_CHECKPOINT_MS)
    assert world.data("d") == ["full"]
    with monkeypatch.context() as slowly:
        slowly.setitem(LATENCY_NS, "read", 500 * _MS)
        world.put("d")
        world.advance_ms(200)
        assert world.request("POST", "/v0/topics/a/delete", {"match": "gone"}).status == 200
        world.write("a", 4, 5, 6)
    world.advance_ms(1000)
    assert world.data("d") == ["full", 4, 5, 6]
