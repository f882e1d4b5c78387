"""The image of a topic with very many holes: bounded steps, while its holes change."""

from __future__ import annotations

import random
from unittest.mock import patch

from tests.engine.harness import Harness
from topics.engine.shared import topic_snapshot
from topics.store.format.floors import Gap
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


def read(h: Harness) -> list[object]:
    """Return the counts, and all that readers at every cursor see."""
    state = h.state()
    found: list[object] = [state.head_seq, state.earliest_seq, state.count, state.bytes]
    for cursor in range(h.state().head_seq + 1):
        result = h.diff(cursor)
        found.append((result.tombstone, result.records))
    return found


def test_holes_that_change_while_they_are_told_are_the_same_after_a_restart() -> None:
    """R-RTTL, R-TRIM-2: holes open, become one and become part of a floor between the steps."""
    assert sum(is_the_same_after_a_restart(seed) for seed in range(60)) > 200, "most images took steps"


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
        before = read(h)
        h.restart()
        assert read(h) == before, seed
    return steps


def test_each_step_tells_of_a_bounded_share_of_the_holes() -> None:
    h = Harness()
    h.append(1)
    topic = h.engine._core.registry.by_name["t"]
    topic.floors.gaps = [Gap(2 * number, 2 * number, "ttl") for number in range(5, HOLES)]
    checkpoints = h.catalog.checkpoints
    described = list(checkpoints.describe(topic.id))
    assert sum(not piece for piece in described) >= HOLES / topic_snapshot._GAPS_A_STEP - 1, "a step each"
    steps = sum(1 for _ in checkpoints.prepare_snapshot(64))
    assert steps >= HOLES / topic_snapshot._GAPS_A_STEP - 1
    for pieces in (described, checkpoints.snapshot()):
        assert max(map(len, pieces)) <= SHARE_BYTES
