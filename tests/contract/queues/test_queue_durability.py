"""Goal: what was acked stays done, what was leased stays fenced, and no job is ever lost, however the process ends.

Method: workers of one queue; kills, power cuts, checkpoints and graceful stops between.
"""

from __future__ import annotations

import pytest

from tests.amount import seeds
from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, deliveries_of, lease_of, seqs_of
from tests.contract.world.world import World

CLASSES = ("memory", "disk", "fsync")


def end(world: World, how: str) -> None:
    if how == "stop":
        world.restart()
    elif how == "kill":
        world.crash_and_start()
    else:
        world.power_cut()
        world.start()


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("durability", CLASSES)
def test_acked_jobs_stay_done(world: World, durability: str, how: str) -> None:
    """R-DUR-10, R-Q-10: over a stop and a kill in every class that writes."""
    queue = Queue(world, durability=durability)
    queue.put(*range(6))
    queue.claim(5)
    queue.ack(1, 2, 4)
    end(world, how)
    if durability == "memory":
        assert set(world.data("jobs")) <= {2, 4, 5}
        return
    assert queue.counters == (3, 3, 0)
    assert deliveries_of(queue.claim(9)) == {3: 1, 5: 1, 6: 1}


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_acked_job_of_an_fsync_queue_survives_power_cuts_done(world: World, rounds: int) -> None:
    """R-DUR-10: it never reappears, whatever number of crashes without a checkpoint between."""
    queue = Queue(world, durability="fsync")
    queue.put(*range(2 * rounds))
    for round_number in range(rounds):
        (seq, _) = seqs_of(queue.claim(2))
        assert queue.ack(seq)["performance"]["fsync_ms"] > 0
        end(world, "power")
        assert queue.counters == (2 * rounds - round_number - 1,) * 2 + (0,)


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_without_durable_leases_every_job_is_ready_again(world: World, how: str) -> None:
    """R-DUR-11, R-DUR-12: deliveries count from the start, moves too."""
    queue = Queue(world, durability="fsync", max_deliveries=2, dead_letter="dlq")
    queue.put(1, 2, 3)
    queue.claim(2)
    queue.nack(1)
    end(world, how)
    assert (queue.counters, queue.dead_lettered) == ((3, 3, 0), 0)
    assert deliveries_of(queue.claim(3)) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_lease_ids_are_never_used_again(world: World, how: str) -> None:
    """R-Q-5: an old token matches no new lease, not even the first ones after a restart."""
    queue = Queue(world, durability="fsync")
    queue.put(*range(4))
    old = queue.claim(4)
    tokens = {job["lease_id"] for job in old["claimed"]}
    for _ in range(3):
        end(world, how)
        new = queue.claim(4)
        for seq in range(1, 5):
            assert queue.ack(seq, lease_ids=[lease_of(old, seq)])["skipped"] == [seq]
        fresh = {job["lease_id"] for job in new["claimed"]}
        assert not tokens & fresh
        tokens |= fresh
        old = new


def test_lease_ids_outlive_their_checkpoints(make_world: MakeWorld) -> None:
    """R-Q-5: thousands of leases, checkpoints that recycle the log, and a power cut at the end."""
    world = make_world(checkpoint_every_ms=1000)
    queue = Queue(world)
    queue.put(*range(200))
    highest = 0
    for _ in range(60):
        claimed = [int(job["lease_id"][6:], 16) for job in queue.claim(200)["claimed"]]
        assert min(claimed) > highest
        highest = max(claimed)
        queue.nack(*range(1, 201))
    world.advance_ms(3000)
    world.restart()
    world.power_cut()
    world.start()
    assert int(queue.claim()["claimed"][0]["lease_id"][6:], 16) > highest


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_durable_leases_survive(world: World, how: str) -> None:
    """R-DUR-11: holder, deadline, lease id, deliveries; a nacked job is ready, its delay forgotten."""
    queue = Queue(world, durability="fsync", leases_durable=True)
    queue.put(*range(6))
    queue.claim(1, node="a")
    queue.nack(1, node="a")
    held = queue.claim(4, node="a", lease_ms=60_000)
    queue.nack(2, node="a", delay_ms=50_000)
    queue.ack(3, node="a")
    deadline = queue.extend(4, node="a", lease_ms=90_000)["deadlines"]["4"]
    end(world, how)
    assert queue.counters == (5, 3, 2)
    assert queue.ack(1, node="b")["skipped"] == [1]
    assert deliveries_of(queue.claim(1, node="b")) == {2: 2}
    assert queue.ack(1, node="a", lease_ids=[lease_of(held, 1)])["acked"] == 1
    world.advance_to_ms(deadline)
    assert queue.ack(5, node="a")["skipped"] == [5]
    assert queue.extend(4, node="a", lease_ms=90_000, lease_ids=[lease_of(held, 4)])["extended"] == 1


def test_durable_leases_outlive_checkpoints_and_a_moved_clock(make_world: MakeWorld) -> None:
    """R-DUR-11: the snapshot keeps what the recycled log stated; deadlines are absolute."""
    world = make_world(checkpoint_every_ms=1000)
    queue = Queue(world, leases_durable=True)
    queue.put(*range(5))
    held = queue.claim(3, lease_ms=3_600_000)
    queue.ack(2)
    world.advance_ms(5000)
    world.power_cut()
    world.start()
    assert queue.counters == (4, 2, 2)
    assert queue.ack(1, lease_ids=[lease_of(held, 1)])["acked"] == 1
    world.restart()
    assert queue.counters == (3, 2, 1)
    world.crash()
    world.step_clock_ms(3_600_000)
    world.start()
    assert queue.counters == (3, 3, 0)
    assert deliveries_of(queue.claim(1)) == {3: 2}


def test_an_ephemeral_queue_starts_empty(world: World) -> None:
    """R-DUR-5, R-DUR-11, R-Q-5: no jobs, no leases, and no lease id twice."""
    queue = Queue(world, durability="ephemeral", leases_durable=True)
    queue.put(1, 2)
    old = lease_of(queue.claim(), 1)
    queue.ack(1)
    assert queue.counters == (1, 1, 0)
    world.restart()
    assert queue.counters == (0, 0, 0)
    queue.put(3)
    assert lease_of(queue.claim(), 3) != old


def test_acks_far_behind_checkpoints_stay(make_world: MakeWorld) -> None:
    """R-DUR-10, R-CAP-6: jobs in segments are flagged there; holes under a cap bring nothing back."""
    world = make_world(checkpoint_every_ms=1000)
    queue = Queue(world, cap_records=300, discard="reject")
    queue.put(*range(300))
    world.advance_ms(2500)
    gone = queue.claim(300)
    queue.ack(*[seq for seq in seqs_of(gone) if seq % 3])
    queue.put(*range(300, 400))
    expected = [n for n in range(300) if (n + 1) % 3 == 0] + list(range(300, 400))
    for how in ("kill", "checkpoint", "kill", "stop", "kill"):
        if how == "checkpoint":
            world.advance_ms(2500)
        else:
            end(world, how)
        assert world.data("jobs") == expected
        assert queue.counters == (200, 200, 0)


@pytest.mark.parametrize("microseconds", range(0, 400, 40))
@pytest.mark.parametrize("shards", [1, 3])
def test_a_dead_letter_move_is_never_lost(make_world: MakeWorld, microseconds: int, shards: int) -> None:
    """R-DUR-14, R-Q-27: cut anywhere, the job is in the queue, in the dead-letter topic, or in both."""
    world = make_world(seed=microseconds, wal_shards=shards)
    if not hasattr(world, "advance_us"):
        pytest.skip("only the simulator stops in the middle")
    queue = Queue(world, durability="fsync", max_deliveries=1, dead_letter="dlq")
    queue.put(*range(5))
    queue.claim(5)
    queue.nack(1, 2, 3, 4, 5)
    queue.ask_claim(5)
    world.advance_us(microseconds)
    world.power_cut()
    world.start()
    left = world.data("jobs")
    moved = world.data("dlq") if world.request("GET", "/v0/topics/dlq").status == 200 else []
    assert sorted(set(left) | set(moved)) == list(range(5))


@pytest.mark.parametrize("seed", seeds(6))
def test_a_dead_letter_that_was_moved_survives_whatever_its_class(make_world: MakeWorld, seed: int) -> None:
    """R-DUR-14, R-Q-27: queue and dead letters are in different parts of the log, and a power cut takes their ends."""
    world = make_world(seed=seed, wal_shards=4)
    for number in range(4):
        world.write(f"dlq{number}", "before")
        queue = Queue(world, f"jobs{number}", durability="fsync", max_deliveries=1, dead_letter=f"dlq{number}")
        queue.put("poison")
        queue.claim()
        queue.nack(1)
        assert queue.claim()["count"] == 0
        assert queue.dead_lettered == 1
    world.power_cut()
    world.start()
    assert [world.data(f"dlq{number}") for number in range(4)] == [["before", "poison"]] * 4


def test_a_failed_ack_gives_the_jobs_back(world: World) -> None:
    """8.3, R-DUR-16: 500, nothing deleted; with a read-only log nothing is claimed either, reads are answered."""
    queue = Queue(world, durability="fsync")
    queue.put(1, 2)
    queue.claim(2)
    world.advance_ms(1500)  # what claims stage ahead is in the log: the ack is the next commit
    world.fail_storage("write", 5)
    world.fail_storage("sync", 5)
    answer = world.request("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": [1]})
    assert answer.refusal[:2] == (500, "internal")
    assert queue.counters == (2, 1, 1)
    for verb, body in (
        ("claim", {"node": "w"}),
        ("nack", {"node": "w", "seqs": [2]}),
        ("ack", {"node": "w", "seqs": [2]}),
    ):
        status, code, detail = queue.refuse(verb, body)
        assert (status, code, detail) == (500, "internal", {"reason": "read_only"})
    assert world.data("jobs") == [1, 2]


def test_a_full_disk_lets_jobs_be_worked_off(world: World) -> None:
    """R-DUR-16: claims and acks are accepted where appends are refused."""
    queue = Queue(world)
    queue.put(1, 2, 3)
    queue.claim(1)
    world.fill_disk()
    full = world.request("POST", "/v0/topics/jobs", {"records": [{"data": "x" * 200_000}] * 20})
    assert full.status == 500
    assert seqs_of(queue.claim(1)) == [2]
    assert queue.ack(1, 2)["acked"] == 2
    world.free_disk()
    world.advance_ms(3000)
    queue.put(4)
    assert world.data("jobs") == [3, 4]


def test_topics_deleted_and_recreated_do_not_confuse_a_replay(make_world: MakeWorld) -> None:
    """R-REC-1, R-DUR-13: with several shards; acks of the old instance touch nothing of the new."""
    world = make_world(wal_shards=3)
    for number in range(4):
        queue = Queue(world, durability="fsync", leases_durable=True)
        queue.put(*range(5))
        queue.claim(5)
        queue.ack(1, 3)
        if number < 3:
            world.drop("jobs")
    world.crash_and_start()
    assert queue.counters == (3, 0, 3)
    assert world.data("jobs") == [1, 3, 4]


def test_switching_durable_leases_off_forgets_them(world: World) -> None:
    """R-DUR-11: what was logged before is not believed afterwards."""
    queue = Queue(world, leases_durable=True)
    queue.put(1, 2)
    queue.claim(2)
    world.put("jobs", type="queue", leases_durable=False)
    queue.nack(1)
    world.put("jobs", type="queue", leases_durable=True)
    world.crash_and_start()
    assert queue.counters == (2, 1, 1), "the one that is held when they are switched on again survives"
    world.put("jobs", type="queue", leases_durable=False)
    world.crash_and_start()
    assert queue.counters == (2, 2, 0)


def test_switching_durable_leases_on_keeps_those_there_are(world: World) -> None:
    """R-DUR-11: leases taken before the switch, and while it is on its way, survive like later ones."""
    queue = Queue(world, durability="fsync")
    queue.put(1, 2, 3)
    queue.claim(1)
    switching = world.connect()
    switching.start("PUT", "/v0/topics/jobs", {"type": "queue", "durability": "fsync", "leases_durable": True})
    queue.claim(1)
    assert switching.answer("PUT").status == 200
    world.crash_and_start()
    assert queue.counters == (3, 1, 2)
