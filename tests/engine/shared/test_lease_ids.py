"""Lease ids are reserved before they are used, and none is given out twice. Source: R-Q-5."""

from __future__ import annotations

import pytest

from tests.engine.harness import records
from tests.engine.queue.queue_calls import claim, counters, jobs_of, queue, start_claim
from tests.engine.real_world import RealWorld
from topics.errors import StorageError
from topics.loop import Loop
from topics.store.repair.rebuild import rebuild


def test_no_worker_gets_a_lease_before_its_number_is_safe() -> None:
    h = queue()
    h.append(1, name="q")
    answer = start_claim(h)
    assert not answer.given
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (1, 1, 0)
    assert claim(h) == [1]


@pytest.mark.parametrize("keep", ["log", "nothing", "checkpointed log", "snapshots"])
def test_lease_ids_are_new_in_a_rebuilt_directory(keep: str) -> None:
    """R-Q-5: segments do not show which were used, and neither log nor snapshot may be there to do it; or a snapshot is
    there, and the log that shows which were used since is damaged."""
    world = RealWorld()
    world.put("q", type="queue", durability="fsync", leases_durable=True)
    world.append(*range(300), name="q")
    if keep == "snapshots":
        world.checkpoint()
    seen: set[str] = set()
    for _ in range(4):
        answer = start_claim(world, 50)
        world.until(lambda answer=answer: answer.given)  # type: ignore[misc]
        tokens = {job["lease_id"] for job in jobs_of(answer)}
        assert len(tokens) == 50
        assert not seen & tokens
        seen |= tokens
        if keep not in ("log", "snapshots"):
            world.checkpoint()
        ring = world.ring.next_life(power_cut=False)
        for name in ring.disk.list_directory("data/snapshots") if keep != "snapshots" else ():
            ring.disk.unlink(f"data/snapshots/{name}")
        if keep == "snapshots":
            for name in ring.disk.list_directory("data/wal/shard-00"):
                if any(ring.file_bytes(f"data/wal/shard-00/{name}")[4096:]):
                    ring.corrupt_file(f"data/wal/shard-00/{name}", 4096 + 70)
        if keep == "nothing":
            for name in ring.disk.list_directory("data/wal/shard-00"):
                ring.disk.unlink(f"data/wal/shard-00/{name}")
        loop = Loop(ring, ring.clock)
        loop.run_task(rebuild(loop, "data"))
        world._open(ring)
        world.advance_ms(30_001)


def test_claims_that_wait_for_the_same_range_of_lease_ids_all_get_theirs() -> None:
    """The first range is smaller than what they take together."""
    h = queue()
    h.append(1, name="q")
    for _ in range(3):
        h.start_append(records(*range(4000)), "q")
    answers = [start_claim(h, 1000, f"w{number}") for number in range(12)]
    for _ in range(6):
        h.settle()
    tokens = [job["lease_id"] for answer in answers for job in jobs_of(answer)]
    assert len(tokens) == len(set(tokens)) == 12_000
