"""The image of a topic with very many holes or leases: bounded steps, while these change."""

from __future__ import annotations

import random
from unittest.mock import patch

from tests.amount import amount, seeds
from tests.engine.harness import Answer, Harness
from tests.engine.queue.queue_calls import claim, queue, start_ack, start_claim
from topics.engine.queue.queue_results import HeldJobs
from topics.engine.shared import topic_snapshot
from topics.engine.state import leases
from topics.engine.state.leases import Leases
from topics.engine.values import job
from topics.engine.values.job import BLOCK_SEQS
from topics.store.format.floors import Gap, Gaps
from topics.store.format.rows import RowRecord, pack_rows

HOLES = 30_000
SHARE_BYTES = topic_snapshot._GAPS_A_STEP * len(b"[1000000,1000000,'ttl'],")


def append(h: Harness, rng: random.Random) -> None:
    """Append ten records, most of which expire after 1 to 5 s."""
    rows = [RowRecord(b"1", tag=b"%d" % rng.randrange(3), ttl_ms=rng.choice((0, 1000, 2000, 5000))) for _ in range(10)]
    answer = h.start_append(pack_rows(rows))
    h.settle()
    answer.get()


def change(h: Harness, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        append(h, rng)
    elif kind == 1:
        h.delete(match=f"{rng.randrange(3)}", before_seq=rng.randrange(1, h.state().head_seq + 1))
    elif kind == 2:
        h.delete(before_seq=h.state().earliest_seq + rng.randrange(6))
    else:
        h.advance_ms(rng.choice((400, 1000)))


def test_holes_that_change_while_they_are_told_are_the_same_after_a_restart() -> None:
    """R-RTTL, R-TRIM-2: holes open, become one and become part of a floor between the steps."""
    assert sum(is_the_same_after_a_restart(seed) for seed in seeds(60)) > amount(200), "most images took steps"


def is_the_same_after_a_restart(seed: int) -> int:
    """Restart from a snapshot whose steps were between changes; return the number of steps."""
    rng = random.Random(seed)
    h = Harness()
    h.store.format.end()
    with patch.object(topic_snapshot, "_GAPS_A_STEP", rng.randrange(1, 4)):
        for _ in range(6):
            append(h, rng)
            h.advance_ms(rng.choice((0, 1000)))
            h.diff(0)
        h.checkpoint()
        steps = 0
        for _ in h.catalog.checkpoints.prepare_snapshot(64):
            steps += 1
            change(h, rng)
        h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
        before = h.all_seen()
        h.restart()
        assert h.all_seen() == before, seed
    return steps


def test_each_step_tells_of_a_bounded_share_of_the_holes() -> None:
    h = Harness()
    h.append(1)
    topic = h.engine._core.registry.by_name["t"]
    topic.floors.gaps = Gaps([Gap(2 * number, 2 * number, "ttl") for number in range(5, HOLES)])
    checkpoints = h.catalog.checkpoints
    described = list(checkpoints.describe(topic.id))
    assert sum(not piece for piece in described) >= HOLES / topic_snapshot._GAPS_A_STEP - 1, "a step each"
    steps = sum(1 for _ in checkpoints.prepare_snapshot(64))
    assert steps >= HOLES / topic_snapshot._GAPS_A_STEP - 1
    for pieces in (described, checkpoints.snapshot()):
        assert max(map(len, pieces)) <= SHARE_BYTES


# --- leases ----------------------------------------------------------------------------------------------------------
def test_leases_that_change_while_they_are_told_are_the_same_after_a_restart() -> None:
    """R-DUR-11, R-Q-34: jobs are leased, fail, expire and go between the steps."""
    assert sum(leases_after_a_restart(seed) for seed in seeds(80)) > amount(400), "most images took steps"


def leases_after_a_restart(seed: int) -> int:
    """Restart from a snapshot whose steps were between changes; return the number of steps."""
    rng = random.Random(seed)
    h = queue(leases_durable=True, lease_ms=1000)
    h.store.format.end()
    with patch.object(leases, "_ROWS_A_STEP", 1), patch.object(job, "_FAILURE_BITS", 1):
        for _ in range(20):
            change_leases(h, rng)
        h.checkpoint()
        steps = 0
        with patch.object(Leases, "is_long", True):
            for _ in h.catalog.checkpoints.prepare_snapshot(64):
                steps += 1
                for _ in range(rng.randrange(3)):
                    change_leases(h, rng)
        h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
        for _ in range(rng.randrange(4)):
            change_leases(h, rng)
        before = leases_of(h)
        h.restart()
        assert leases_of(h) == before, seed
    return steps


def test_leases_that_expire_between_two_steps_of_a_snapshot_keep_their_attempts() -> None:
    """R-Q-33: no frame states that they expired."""
    for at in range(8):
        h = queue(leases_durable=True, lease_ms=1000)
        h.append(*range(BLOCK_SEQS + 3), name="q")
        claim(h)
        h.advance_ms(900)
        start_ack(h, *claim(h, BLOCK_SEQS // 2)[1:], *claim(h, BLOCK_SEQS // 2))
        assert claim(h, 2) == [BLOCK_SEQS + 2, BLOCK_SEQS + 3]
        h.advance_ms(101)
        assert h.state("q").queue
        h.checkpoint()
        with patch.object(leases, "_ROWS_A_STEP", 1), patch.object(Leases, "is_long", True):
            for step, _ in enumerate(h.catalog.checkpoints.prepare_snapshot(64)):
                if step == at:
                    h.advance_ms(1000)
                    assert h.state("q").queue
        h.snapshot = b"".join(h.catalog.checkpoints.snapshot())
        h.advance_ms(1000)
        before = leases_of(h)
        h.restart()
        assert leases_of(h) == before, at


def change_leases(h: Harness, rng: random.Random) -> None:
    kind = rng.randrange(8)
    if kind < 2:
        h.start_append(pack_rows([RowRecord(b"1", tag=b"%d" % rng.randrange(3)) for _ in range(3)]), "q")
    elif kind < 5:
        start_claim(h, rng.randrange(1, 5))
    elif kind == 5:
        failed = HeldJobs("q", "w", range(1, 60, rng.randrange(1, 4)))
        h.engine.nack(failed, 0, rng.choice(("", "no luck")), Answer())
    elif kind == 6:
        h.advance_ms(rng.choice((10, 400, 1001)))
        h.state("q")  # Leases that have ended are found.
    elif rng.randrange(3):
        start_ack(h, *range(1, 60, rng.randrange(2, 5)))
    else:
        h.start_delete(match=f"{rng.randrange(3)}", name="q")
    h.settle()


def leases_of(h: Harness) -> object:
    state = h.state("q", touch=False)
    topic = h.engine._core.registry.by_name["q"]
    assert topic.queue is not None
    rows = {row.seq: (row.lease_id, row.lease_id and row.until, row.deliveries) for row in topic.queue.image()}
    attempts = {job.seq: job.attempts for job in topic.queue.last_failed(1000)}
    return state.count, state.queue, rows, attempts


def test_each_step_tells_of_a_bounded_share_of_the_leases() -> None:
    h = queue(leases_durable=True)
    for _ in range(10):
        h.append(*range(1000), name="q")
        h.engine.nack(HeldJobs("q", "w", claim(h, 1000)), 1000, "no luck", Answer())
        h.settle()
    checkpoints = h.catalog.checkpoints
    steps = sum(1 for _ in checkpoints.prepare_snapshot(64))
    rows = leases._ROWS_A_STEP + BLOCK_SEQS
    assert steps >= 2 * 10_000 / rows, "a step each"
    assert max(map(len, checkpoints.snapshot())) <= rows * len(
        "[[10000,10000],1,'w','nacked',1700000000000,'no luck'],"
    )
