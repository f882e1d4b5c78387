"""Queues where the store is slow, fails, lies or was rebuilt; and that jobs nobody touched cost nothing."""

from __future__ import annotations

from heapq import heapify
from typing import Any

import msgspec
import pytest

from tests.engine.harness import Answer, Harness, records
from tests.engine.real_world import RealWorld
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.state import leases
from topics.errors import CorruptError, RequestError, StorageError
from topics.loop import Loop
from topics.store.repair.rebuild import rebuild


def queue(**config: Any) -> Harness:
    h = Harness()
    h.put("q", type="queue", **config)
    return h


def start_claim(h: Harness, most: int = 1, node: str = "w", lease_ms: int | None = None) -> Answer:
    answer = Answer()
    h.cancel = h.engine.claim(ClaimRequest("q", node, most, lease_ms), answer)
    return answer


def jobs_of(answer: Answer) -> list[dict[str, Any]]:
    return msgspec.json.decode(b"[" + answer.get().records + b"]")


def claim(h: Harness, most: int = 1, node: str = "w") -> list[int]:
    answer = start_claim(h, most, node)
    h.settle()
    return [job["$seq"] for job in jobs_of(answer)]


def start_ack(h: Harness, *seqs: int) -> Answer:
    answer = Answer()
    h.engine.ack(HeldJobs("q", "w", seqs), answer)
    return answer


def counters(h: Harness) -> tuple[int, int, int]:
    state = h.state("q")
    assert state.queue is not None
    return state.count, state.queue.ready, state.queue.in_flight


def test_a_failed_ack_gives_its_jobs_back_with_their_deliveries() -> None:
    h = queue()
    h.append(1, 2, name="q")
    claim(h, 2)
    answer = start_ack(h, 1)
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (2, 1, 1)
    again = start_claim(h)
    h.settle()
    assert jobs_of(again)[0]["deliveries"] == 2


def test_a_job_whose_ack_is_on_its_way_is_nobody_elses() -> None:
    h = queue(lease_ms=100)
    h.append(1, name="q")
    claim(h)
    first, second = start_ack(h, 1), start_ack(h, 1)
    h.advance_ms(500)
    third = start_claim(h, node="other")
    h.settle()
    assert (first.get().done, second.get().skipped, third.get().count) == (1, [1], 0)
    assert counters(h) == (0, 0, 0)


def test_nobody_gets_a_lease_before_its_number_is_safe() -> None:
    h = queue()
    h.append(1, name="q")
    answer = start_claim(h)
    assert not answer.given
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (1, 1, 0)
    assert claim(h) == [1]


def test_a_durable_lease_that_cannot_be_logged_is_none() -> None:
    h = queue(leases_durable=True)
    h.append(1, 2, name="q")
    claim(h)
    answer = start_claim(h)
    h.settle(StorageError("no"))
    with pytest.raises(StorageError):
        answer.get()
    assert counters(h) == (2, 1, 1)
    assert claim(h) == [2]


def test_a_job_deleted_while_its_bytes_are_read_is_not_handed_out() -> None:
    h = queue()
    h.append(1, name="q", tag="a")
    h.append(2, name="q", tag="b")
    claim(h, 1)
    start_ack(h, 99)
    h.engine.nack(HeldJobs("q", "w", [1]), 0, Answer())
    h.store.reader.slow = True
    answer = start_claim(h, 5)
    assert h.delete(match="a", name="q").deleted == 1
    while h.store.reader.held:
        h.store.reader.release()
    h.settle()
    assert [job["$seq"] for job in jobs_of(answer)] == [2]
    assert counters(h) == (1, 0, 1)


def test_a_claimer_that_leaves_during_the_read_leaves_the_jobs() -> None:
    h = queue()
    h.append(1, 2, name="q")
    claim(h, 1)
    h.store.reader.slow = True
    answer = start_claim(h)
    assert counters(h) == (2, 0, 2)
    h.cancel()
    h.store.reader.release()
    assert not answer.given
    assert counters(h) == (2, 1, 1)


def test_a_job_that_cannot_be_read_is_named_and_put_aside() -> None:
    """The others of its claim come at once, it comes again after the lease."""
    h = queue(lease_ms=1000)
    h.append("aaaa", "bbbb", "cccc", name="q")
    memory = h.store.log.file.memory
    assert memory is not None
    memory[bytes(memory).index(b"bbbb")] ^= 1
    answer = start_claim(h, 3)
    h.settle()
    with pytest.raises(CorruptError) as caught:
        answer.get()
    assert caught.value.detail == {"topic": "q", "seq": 2}
    assert counters(h) == (3, 2, 0)
    assert claim(h, 3) == [1, 3]
    h.advance_ms(1001)
    assert counters(h) == (3, 3, 0)


def test_a_topic_deleted_during_an_ack_answers_both() -> None:
    h = queue()
    h.append(1, name="q")
    claim(h)
    gone = Answer()
    h.engine.delete_topic("q", if_empty=False, done=gone)
    late = start_ack(h, 1)
    h.settle()
    assert gone.get().deleted
    with pytest.raises(Exception, match="does not exist"):
        late.get()


def test_jobs_nobody_touched_cost_nothing() -> None:
    h = queue()
    for _ in range(20):
        h.append(*range(500), name="q")
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    assert not topic.queue.jobs
    done = 0
    while seqs := claim(h, 700):
        assert len(topic.queue.jobs) == len(seqs)
        answer = start_ack(h, *seqs)
        h.settle()
        done += answer.get().done
    assert done == 10_000
    assert not topic.queue.jobs
    assert len(topic.queue._times) + len(topic.queue._by_seq) < 5000


def test_heaps_of_jobs_long_gone_shrink() -> None:
    h = queue()
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    h.append("stays", name="q")
    claim(h)
    for _ in range(30):
        h.append(*range(200), name="q")
        seqs = claim(h, 200)
        start_ack(h, *seqs)
        h.settle()
    assert len(topic.queue._times) < 2500
    assert len(topic.queue._by_seq) < 2500
    for _ in range(3000):
        h.engine.extend(HeldJobs("q", "w", [1]), 3_600_000, Answer())
    assert len(topic.queue._times) < 2500
    assert counters(h) == (1, 0, 1)


def test_leases_of_jobs_long_gone_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that vanish, with leases of a day: a cap takes their jobs, and the leases stay until they end."""
    made_anew: list[int] = []
    monkeypatch.setattr(leases, "heapify", lambda heap: (made_anew.append(len(heap)), heapify(heap)))
    h = queue(cap_records=100, lease_ms=86_400_000)
    for _ in range(30):
        h.append(*range(100), name="q")
        claim(h, 100)
    assert counters(h) == (100, 0, 100)
    made_anew.clear()
    for _ in range(50):
        h.append("new", name="q")
        assert len(claim(h)) == 1
    assert not made_anew


@pytest.mark.parametrize("keep", ["log", "nothing", "checkpointed log", "snapshots"])
def test_lease_ids_are_new_in_a_rebuilt_directory(keep: str) -> None:
    """R-Q-5: segments do not tell which were used, and neither log nor snapshot may be there to do it; or a snapshot is
    there, and the log that told which were used since is damaged."""
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


def test_a_topic_deleted_during_a_move_of_dead_letters_answers_everybody() -> None:
    h = queue(max_deliveries=1, dead_letter="dlq")
    h.append(1, 2, name="q")
    claim(h)
    h.engine.nack(HeldJobs("q", "w", [1]), 0, Answer())
    late = start_claim(h, 2)
    gone = Answer()
    h.engine.delete_topic("q", if_empty=False, done=gone)
    for _ in range(4):
        h.settle()
    assert gone.get().deleted
    with pytest.raises(RequestError) as caught:
        late.get()
    assert caught.value.code == "topic_not_found"


def test_the_jobs_of_a_claim_have_a_limit_of_bytes_together() -> None:
    h = Harness(max_claim_bytes=100)
    h.put("q", type="queue")
    h.append(*["x" * 38] * 6, name="q")
    assert claim(h, 5) == [1, 2]
    assert counters(h) == (6, 4, 2)
    assert claim(h, 5) == [3, 4]
    h.append("y" * 500, name="q")
    assert claim(h, 5) == [5, 6]
    assert claim(h, 5) == [7]


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
