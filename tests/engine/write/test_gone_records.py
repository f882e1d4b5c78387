"""A topic that leaves class `ephemeral` states what is gone in parts, over changes and over the end of the process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest

from tests.amount import amount, seeds
from tests.engine.harness import Answer, Harness
from topics.engine.index import chunk, index
from topics.engine.state.control_frames import RemovalPayload
from topics.engine.values.topic_config import make_config
from topics.engine.write import gone_records
from topics.errors import TopicsError
from topics.store.format.rows import RowRecord, pack_rows

EPHEMERAL, DISK = {"durability": "ephemeral"}, {"durability": "disk"}
CHUNK_ROWS = 4


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with patch.object(index, "CHUNK_ROWS_MAX", CHUNK_ROWS), patch.object(chunk, "CHUNK_ROWS_MAX", CHUNK_ROWS):
        yield


def append(h: Harness, rng: random.Random, count: int = 10) -> None:
    """Append records, most of which expire after 1 to 5 s."""
    rows = [
        RowRecord(b"1", tag=b"%d" % rng.randrange(3), ttl_ms=rng.choice((0, 1000, 2000, 5000))) for _ in range(count)
    ]
    answer = h.start_append(pack_rows(rows))
    h.settle()
    answer.get()


def change(h: Harness, rng: random.Random, *, appends: bool) -> None:
    """Change the topic; without `appends`, only records in files are removed."""
    kind = rng.randrange(4 if appends else 3)
    state = h.state()
    if kind == 0:
        h.delete(match=f"{rng.randrange(3)}", before_seq=rng.randrange(1, state.head_seq + 1))
    elif kind == 1:
        h.advance_ms(rng.choice((400, 1000)))
        h.diff(0)
    elif kind == 2:
        h.delete(before_seq=state.earliest_seq + rng.randrange(3))
    else:
        append(h, rng, rng.randrange(1, 2 * CHUNK_ROWS))


def ephemeral_topic(rng: random.Random, *, appends: bool) -> Harness:
    """Return an engine with a topic of class `ephemeral` of which some records are in files, and some are gone."""
    h = Harness()
    h.store.format.end()
    for _ in range(4):
        append(h, rng)
    if rng.random() < 0.5:
        h.checkpoint()
    h.put(**EPHEMERAL)
    for _ in range(6):
        change(h, rng, appends=appends)
    if rng.random() < 0.5:
        h.checkpoint()
    return h


def start_to_leave(h: Harness) -> Answer:
    answer = Answer()
    h.engine.put_topic("t", make_config(**DISK), answer)
    return answer


def left_in_steps(h: Harness, rng: random.Random, *, appends: bool, steps: int = 10_000) -> tuple[Answer, int]:
    """Leave the class; return the answer, if it came in so many steps, and their number."""
    taken = 0
    with patch.object(gone_records, "_ROWS_A_STEP", 1), patch.object(gone_records, "_ROWS_IN_MEMORY", 1):
        answer = start_to_leave(h)
        while not answer.given and taken < steps:
            taken += 1
            h.engine.flush()
            h.store.log.commit()
            if rng.random() < 0.3:
                change(h, rng, appends=appends)
            elif rng.random() < 0.1:
                h.checkpoint()
    return answer, taken


def in_files(h: Harness) -> list[int]:
    """Return the seqs of the live records that are in files."""
    topic, usage = h.engine._core.registry.by_name["t"], h.stored.usage
    found: list[int] = []
    for each, rows, file_ids in topic.index.locations(0, topic.head):
        kept = [not usage.is_memory(file_id) for file_id in file_ids.tolist()]
        found += (rows[np.array(kept)] + each.first).tolist()
    return found


def test_what_goes_while_it_is_stated_stays_gone_and_is_told_alike_after_a_restart() -> None:
    """R-DUR-5, R-RTTL-4: records are deleted and expire between the steps, and a checkpoint may come there."""
    steps = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        h = ephemeral_topic(rng, appends=False)
        answer, taken = left_in_steps(h, rng, appends=False)
        steps += taken
        assert answer.get().config.durability == "disk"
        if rng.random() < 0.5:
            change(h, rng, appends=True)
        before = h.all_seen()
        h.restart()
        assert h.all_seen() == before, seed
    assert steps > amount(100), "most took steps"


def test_no_record_comes_back_of_those_that_were_gone_beside_records_in_memory() -> None:
    """R-DUR-5: of the others, those in files stay."""
    for seed in seeds(40):
        rng = random.Random(seed)
        h = ephemeral_topic(rng, appends=True)
        answer, _ = left_in_steps(h, rng, appends=True)
        answer.get()
        before, head = in_files(h), h.state().head_seq
        h.restart()
        assert in_files(h) == before, seed
        assert h.state().head_seq == head, seed


def test_a_process_that_ends_before_all_is_stated_keeps_the_topic_ephemeral() -> None:
    """R-DUR-5: its records are gone silently, and the next change of class states what is gone anew."""
    ended = 0
    for seed in seeds(40):
        rng = random.Random(seed)
        h = ephemeral_topic(rng, appends=True)
        answer, _ = left_in_steps(h, rng, appends=True, steps=rng.randrange(1, 6))
        if answer.given:
            continue
        ended += 1
        h.restart()
        state = h.state()
        assert (state.config.durability, state.count) == ("ephemeral", 0), seed
        h.store.format.end()
        append(h, rng)
        answer, _ = left_in_steps(h, rng, appends=False)
        answer.get()
        append(h, rng)
        before = in_files(h)
        h.restart()
        assert in_files(h) == before, seed
    assert ended > amount(10)


def test_a_step_states_a_bounded_number_of_rows() -> None:
    """A million holes were one frame of 16 MB and one pass of 0.17 s."""
    rng = random.Random(1)
    h = Harness()
    h.store.format.end()
    for _ in range(30):
        append(h, rng)
    h.put(**EPHEMERAL)
    h.delete(match="1")
    stated: list[int] = []
    take = gone_records.GoneRecords._take

    def counted(self: gone_records.GoneRecords, most: int | None) -> object:
        part = take(self, most)
        stated.append(len(part.seqs))
        return part

    with (
        patch.object(gone_records, "_ROWS_A_STEP", 2 * CHUNK_ROWS),
        patch.object(gone_records.GoneRecords, "_take", counted),
    ):
        answer = start_to_leave(h)
        h.settle()
        while not answer.given:
            h.settle()
    answer.get()
    assert len(stated) > 20
    assert max(stated) <= 2 * (2 * CHUNK_ROWS + 1), "first and last of a run for each row at most"


def topic_of_holes(count: int) -> Harness:
    """Return an ephemeral topic whose second record to the last but one expired and were deleted by turns."""
    h = Harness()
    h.store.format.end()
    rows = [RowRecord(b"1", ttl_ms=1000) if at % 2 else RowRecord(b"1", tag=b"1") for at in range(2 * count)]
    answer = h.start_append(pack_rows([RowRecord(b"1"), *rows, RowRecord(b"1", tag=b"last")]))
    h.settle()
    answer.get()
    h.checkpoint()
    h.put(**EPHEMERAL)
    h.advance_ms(2000)
    h.diff(0)
    h.delete(match="1")
    topic = h.engine._core.registry.by_name["t"]
    assert (len(topic.index.chunks), len(topic.floors.gaps)) == (2, count), "each hole is one of its own"
    return h


@pytest.mark.parametrize("dies", ["nothing", "what is before", "what is after", "all"])
def test_holes_where_no_chunk_is_left_are_stated_some_in_a_step(dies: str) -> None:
    """R-DUR-5, R-RTTL-4: a million holes between two records were one frame and one pass."""
    h = topic_of_holes(100)
    stated: list[int] = []
    stage = gone_records.GoneRecords._stage

    def counted(self: gone_records.GoneRecords, part: RemovalPayload, now_ms: int) -> None:
        stated.append(len(part.holes) // 2)
        stage(self, part, now_ms)

    with (
        patch.object(gone_records, "_ROWS_A_STEP", 8),
        patch.object(gone_records.GoneRecords, "_stage", counted),
    ):
        answer = start_to_leave(h)
        for _ in range(3):
            h.engine.flush()
            h.store.log.commit()
        if dies in ("what is before", "all"):
            h.delete(before_seq=2)
        if dies in ("what is after", "all"):
            h.delete(match="last")
        while not answer.given:
            h.settle()
    assert answer.get().config.durability == "disk"
    assert max(stated) <= 8
    assert len(stated) >= (4 if dies != "nothing" else 100 // 8)
    before = h.all_seen()
    h.restart()
    assert h.all_seen() == before


def test_requests_that_come_meanwhile_wait_for_the_same_steps() -> None:
    h = ephemeral_topic(random.Random(2), appends=False)
    with patch.object(gone_records, "_ROWS_A_STEP", 1):
        first, second = start_to_leave(h), start_to_leave(h)
        while not (first.given and second.given):
            h.settle()
    assert first.get().config.durability == second.get().config.durability == "disk"
    before = h.all_seen()
    h.restart()
    assert h.all_seen() == before


def test_a_topic_deleted_meanwhile_is_made_anew_by_the_request() -> None:
    h = ephemeral_topic(random.Random(2), appends=False)
    with patch.object(gone_records, "_ROWS_A_STEP", 1):
        answer = start_to_leave(h)
        assert h.delete_topic("t").deleted
        h.settle()
    assert answer.get().created
    assert h.state().count == 0
    assert not h.engine._lifecycle._gone


def test_a_log_that_fails_meanwhile_fails_the_request() -> None:
    h = ephemeral_topic(random.Random(3), appends=False)
    with patch.object(gone_records, "_ROWS_A_STEP", 1):
        answer = start_to_leave(h)
        h.settle(TopicsError("no"))
    assert isinstance(answer.results[0], TopicsError)
    assert h.state().config.durability == "ephemeral"
