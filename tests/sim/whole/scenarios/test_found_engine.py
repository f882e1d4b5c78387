"""What a reading of the engine found, each as the scenario it is: classes that change, caps, keys, and queues."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection, tombstone
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_cap_of_an_ephemeral_time_evicts_nothing_in_a_replay_that_it_did_not_evict() -> None:
    """R-DUR-2. That two records were deleted is told behind the frame in question, with the next class."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.write_records("a", [{"data": at, "tag": "gone" if at > 3 else "kept"} for at in range(1, 6)])
    world.put("a", durability="ephemeral")
    world.delete("a", match="gone")
    world.put("a", durability="ephemeral", cap_records=3)
    world.put("a", durability="fsync", cap_records=3)
    for _ in range(2):
        assert (world.data("a"), world.diff("a")["tombstone"]) == ([1, 2, 3], None)
        world.crash_and_start()


def test_a_key_of_an_ephemeral_write_is_forgotten_with_its_records() -> None:
    """R-IDEM-8. Whatever the class is by the time of the stop; a key of another class is kept by a snapshot, too."""
    for class_at_stop in ("ephemeral", "disk"):
        world = SimWorld()
        world.start()
        world.put("a", durability="disk")
        world.write("a", "kept", idempotency_key="of disk")
        world.put("a", durability="ephemeral")
        world.write("a", "gone", idempotency_key="of memory")
        assert world.write("a", "gone", idempotency_key="of memory")["deduped"]
        world.put("a", durability=class_at_stop)
        world.restart()
        assert not world.write("a", "again", idempotency_key="of memory")["deduped"]
        if class_at_stop == "ephemeral":
            assert not world.write("a", "again, too", idempotency_key="of disk")["deduped"]
            assert world.data("a") == ["again", "again, too"]
        else:
            assert world.write("a", "kept", idempotency_key="of disk")["deduped"]
            assert world.data("a") == ["kept", "again"]


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_key_that_a_restart_forgot_does_not_come_back_with_the_next_class(durability: str) -> None:
    """R-IDEM-8. The log still tells of the write, before the change of class that forgot it or in one piece with it."""
    world = SimWorld()
    world.start()
    world.put("a", durability=durability)
    if durability == "disk":
        world.write("a", "reserves seqs")
    world.write("a", "gone", idempotency_key="k")
    world.put("a", durability="ephemeral")
    world.crash_and_start()
    world.put("a", durability="fsync")
    world.crash_and_start()
    assert not world.write("a", "again", idempotency_key="k")["deduped"]
    world.crash_and_start()
    assert world.write("a", "again", idempotency_key="k")["deduped"]
    assert world.data("a") == ["again"]


def test_a_put_that_changes_nothing_is_refused_by_a_log_that_failed() -> None:
    """R-DUR-16: the deletion that failed with the log may be found after a restart."""
    world = SimWorld()
    world.start()
    world.put("a", durability="fsync")
    world.fail_storage("sync", errno.EIO)
    assert world.request("DELETE", "/v0/topics/a").status == 500
    world.heal_storage()
    answer = world.request("PUT", "/v0/topics/a", {"durability": "fsync"})
    assert (answer.status, answer.json["error"]["detail"]) == (500, {"reason": "read_only"})


def test_a_deletion_of_what_was_not_made_is_refused_by_a_log_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-DUR-16. The creation was on its way when another shard failed, and is found after a restart."""
    world = SimWorld(wal_shards=2, commit_in_place_max_us=0, commit="link")
    world.start()
    for name in "abcd":
        world.put(name)
    assert world.server is not None
    assert world.server.engine is not None
    core = world.server.engine._core
    shard_of: Callable[[int], int] = core.log.shard_of  # type: ignore[attr-defined]
    coming = shard_of(core.registry.last_id + 1)
    other = next(name for name in "abcd" if shard_of(core.registry.by_name[name].id) != coming)
    monkeypatch.setitem(LATENCY_NS, "write", 5_000_000)
    monkeypatch.setitem(LATENCY_NS, "sync", 5_000_000)
    world.fail_storage("write", errno.EIO, path_part=f"/shard-0{1 - coming}/")
    failed = world.ask("PUT", f"/v0/topics/{other}", {"priority": 1})
    world.advance_ms(3)
    made = world.ask("PUT", "/v0/topics/new", {})
    assert (failed.answer().status, made.answer().status) == (500, 500)
    world.heal_storage()
    for path in ("/v0/topics/new", "/v0/routers/new"):
        answer = world.request("DELETE", path)
        assert (answer.status, answer.json["error"]["detail"]) == (500, {"reason": "read_only"})
    world.crash_and_start()
    assert world.drop("new")["deleted"]


def test_a_key_of_a_kept_record_outlives_checkpoints_in_an_ephemeral_time() -> None:
    """R-IDEM-8. Its frame is recycled by then, so the snapshot has to tell of it."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="fsync")
    world.write("a", "kept", idempotency_key="k")
    world.put("a", durability="ephemeral")
    world.put("b")
    for at in range(4):
        world.write("b", at)
        world.advance_ms(1000)
    world.put("a", durability="fsync")
    world.crash_and_start()
    assert world.write("a", "kept", idempotency_key="k")["deduped"]
    assert world.data("a") == ["kept"]


@pytest.mark.parametrize("between", ["memory", "ephemeral", "fsync"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_class_that_leaves_disk_and_is_back_before_it_was_another_reserves_seqs_anew(seed: int, between: str) -> None:
    """R-SEQ-4, R-DUR-6. The change released the reservations there were."""
    world = SimWorld(seed, sync_every_ms=60_000, commit="link")
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    asked = [world.ask("PUT", "/v0/topics/a", {"durability": durability}) for durability in (between, "disk")]
    assert [connection.answer().status for connection in asked] == [200, 200]
    for at in range(2, 6):
        world.write("a", at)
    world.power_cut()
    world.start()
    assert world.state("a")["head_seq"] >= 5


def claim_while_a_poison_job_is_read(monkeypatch: pytest.MonkeyPatch, **settings: int) -> tuple[SimWorld, Connection]:
    """A queue of three jobs, the first of them poison; a claim of all three waits for the disk."""
    world = SimWorld(hot_tail_bytes=4096, **settings)
    world.start()
    world.put("q", type="queue", lease_ms=100, cap_records=3, max_deliveries=1, dead_letter="dl", leases_durable=True)
    world.write("q", 1, 2, 3)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n"}).json["count"] == 1
    world.advance_ms(200)
    world.restart()  # nothing is in memory any more
    monkeypatch.setitem(LATENCY_NS, "read", 20_000_000)
    claim = world.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 3})
    world.advance_ms(5)
    assert claim.nothing_came
    return world, claim


@pytest.mark.parametrize("by_cap", [False, True])
def test_jobs_that_go_while_a_poison_job_cannot_be_moved_are_not_handed_out(
    monkeypatch: pytest.MonkeyPatch, by_cap: bool
) -> None:
    """R-DEL-7, R-TTL-3, R-Q-26. There is no room for the dead-letter topic."""
    world, claim = claim_while_a_poison_job_is_read(monkeypatch, max_topics=1)
    if by_cap:
        world.write("q", 4, 5, 6)
    else:
        assert world.delete("q", before_seq=4)["deleted"] == 3
    answer = claim.answer().json
    assert (answer["claimed"], answer["ready"]) == ([], 3 if by_cap else 0)


def test_a_poison_job_that_is_deleted_while_it_is_read_becomes_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-7. The other jobs are handed out."""
    world, claim = claim_while_a_poison_job_is_read(monkeypatch)
    assert world.delete("q", before_seq=2)["deleted"] == 1
    assert [job["data"] for job in claim.answer().json["claimed"]] == [2, 3]
    assert world.request("GET", "/v0/topics/dl").status == 404


def test_a_job_whose_ack_failed_goes_to_a_stream_with_a_free_slot_at_once() -> None:
    """R-Q-28, R-DUR-7."""
    world = SimWorld()
    world.start()
    world.put("q", type="queue", lease_ms=20_000, durability="fsync")
    world.write("q", 1)
    assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
    stream = world.ask("GET", "/v0/topics/q/work?node=a&max=1")
    world.advance_ms(100)
    world.fail_storage("write", errno.ENOSPC)
    assert world.request("POST", "/v0/topics/q/ack", {"node": "b", "seqs": [1]}).status == 500
    world.heal_storage()
    world.advance_ms(250)
    assert b"event: job" in stream.take_bytes()


def test_a_poison_job_that_could_not_be_moved_is_tried_again_by_an_open_stream() -> None:
    """R-Q-26, R-Q-28: the stream is a claim that does not end. There is no room for the dead-letter topic at first."""
    world = SimWorld(max_topics=2)
    world.start()
    world.put("other")
    world.put("q", type="queue", lease_ms=100, max_deliveries=1, dead_letter="dl")
    world.write("q", "poison")
    assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
    world.ask("GET", "/v0/topics/q/work?node=a&max=1")
    world.advance_ms(1000)
    assert world.request("GET", "/v0/topics/dl").status == 404
    world.drop("other")
    world.advance_ms(6000)
    assert (world.data("dl"), world.data("q")) == (["poison"], [])


@pytest.mark.parametrize("poison", [False, True])
def test_a_job_that_comes_while_a_stream_reads_one_that_goes_is_pushed_at_once(
    monkeypatch: pytest.MonkeyPatch, poison: bool
) -> None:
    """R-Q-28. The stream is told of the new job while its claim, which brings nothing, is on its way."""
    world = SimWorld(hot_tail_bytes=4096)
    world.start()
    world.put("q", type="queue", lease_ms=100, leases_durable=True, max_deliveries=1, dead_letter="dl")
    world.write("q", "gone")
    if poison:
        assert world.request("POST", "/v0/topics/q/claim", {"node": "b"}).json["count"] == 1
        world.advance_ms(200)
    world.restart()
    monkeypatch.setitem(LATENCY_NS, "read", 20_000_000)
    stream = world.ask("GET", "/v0/topics/q/work?node=a&max=1&lease_ms=60000")
    world.advance_ms(5)
    if not poison:
        assert world.delete("q", before_seq=2)["deleted"] == 1
    world.write("q", "new")
    world.advance_ms(250)
    assert b'"data":"new"' in stream.take_bytes()


def topic_with_records_in_memory(**config: object) -> SimWorld:
    """1 and 2 are in the log; 3 and 4, of a time in class `ephemeral`, in memory; the class is another since."""
    world = SimWorld()
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1, 2)
    world.put("a", durability="ephemeral")
    world.write("a", 3, 4)
    world.put("a", durability="disk", **config)
    return world


def assert_kept(world: SimWorld, data: list[int], lost_upto: int, kept: list[int]) -> None:
    """Readers get `data` behind a tombstone of what a cap took, and after a kill the same of what was `kept`."""
    for expected in (data, kept, kept):
        gap = world.diff("a")["tombstone"]
        assert (gap and (gap["gap_from"], gap["gap_to"], gap["reason"])) == (1, lost_upto, "cap")
        assert world.data("a") == expected
        world.crash_and_start()


@pytest.mark.parametrize("config", [{"cap_records": 3}, {"cap_bytes": 3}, {"cap_records": 3, "cap_bytes": 4}])
def test_what_a_cap_evicted_because_of_records_in_memory_stays_lost(config: dict[str, int]) -> None:
    """R-DUR-8, R-FLOOR-5. A replay sees no records of class `ephemeral`, so it would evict less."""
    assert_kept(topic_with_records_in_memory(**config), [2, 3, 4], 1, [2])
    world = topic_with_records_in_memory(**config)
    world.write("a", 5)
    assert_kept(world, [3, 4, 5], 2, [5])
    world = topic_with_records_in_memory()
    world.put("a", durability="fsync", **config)
    world.write("a", 5, 6)
    assert_kept(world, [4, 5, 6], 3, [5, 6])


def test_writes_that_are_made_at_once_evict_for_good_what_each_of_them_evicts() -> None:
    """R-DUR-8. Some share a commit; what comes behind a delete waits until that tells what there is to evict."""
    world = topic_with_records_in_memory(cap_records=3)
    asked = [world.ask("POST", "/v0/topics/a", {"records": [{"data": at, "tag": "x"}]}) for at in (5, 6)]
    asked += [world.ask("POST", "/v0/topics/a/delete", {"match": "x"})]
    asked += [world.ask("POST", "/v0/topics/a", {"records": [{"data": at}]}) for at in (7, 8)]
    assert [connection.answer().status for connection in asked] == [200] * 5
    assert_kept(world, [4, 7, 8], 3, [7, 8])


def test_what_copies_of_a_router_evict_because_of_records_in_memory_stays_lost() -> None:
    """R-DUR-8, R-RTR-13. The copies come while a delete is on its way."""
    world = topic_with_records_in_memory(cap_records=3)
    world.put("s", durability="fsync")
    assert world.request("PUT", "/v0/routers/r", {"source": "s", "dest": "a"}).status == 201
    asked = [
        world.ask("POST", "/v0/topics/s", {"records": [{"data": 5}, {"data": 6}]}),
        world.ask("POST", "/v0/topics/a/delete", {"match": "none"}),
        world.ask("POST", "/v0/topics/a", {"records": [{"data": 7}]}),
    ]
    assert [connection.answer().status for connection in asked] == [200] * 3
    world.advance_ms(500)
    data = world.data("a")
    assert sorted(data) == [5, 6, 7]
    assert_kept(world, data, 4, data)


def test_changes_of_class_that_wait_for_another_come_one_after_the_other() -> None:
    """Those that waited for each other alone asked again for ever."""
    world = SimWorld()
    world.start()
    world.put("a", durability="ephemeral")
    world.write("a", 1)
    asked = [world.ask("PUT", "/v0/topics/a", {"durability": "ephemeral", "cap_records": 5})]
    asked += [world.ask("PUT", "/v0/topics/a", {"durability": name}) for name in ("disk", "fsync", "memory")]
    assert [connection.answer().status for connection in asked] == [200] * 4
    assert world.state("a")["config"]["durability"] == "memory"


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
