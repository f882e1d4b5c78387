"""Goal: whatever is asked in whatever order, with checkpoints and restarts between, a topic is what the contract says.

Method: one topic and its model take the same random steps; writes and deletes are also staged several at a time and
committed together. After each step every cursor is read.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.amount import amount
from tests.engine.harness import Answer, Harness
from tests.engine.real_world import RealWorld
from tests.long.model.model_topic import Record as ModelRecord
from tests.long.model.model_topic import Topic as Model
from topics.errors import RequestError
from topics.store.format.rows import RowRecord, Rows, pack_rows

tags = st.sampled_from([None, "", "a", "a:1", "a:2", "b"])
nodes = st.sampled_from([None, "n", "m"])
records = st.lists(st.tuples(st.integers(1, 40), tags, nodes), min_size=1, max_size=5)


def rows_of(batch: list[tuple[int, str | None, str | None]]) -> Rows:
    return pack_rows(
        [
            RowRecord(b'"' + b"x" * (size - 2) + b'"' if size > 1 else b"1", _text(tag), _text(node))
            for size, tag, node in batch
        ]
    )


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class TopicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = self.world()
        self.model = Model()
        self.staged: list[tuple[Answer, Any]] = []

    def world(self) -> Harness:
        return Harness()

    @property
    def now(self) -> int:
        return self.h.loop.clock.now_ms()

    @initialize(durability=st.sampled_from(["memory", "disk", "fsync"]))
    def create(self, durability: str) -> None:
        self.durability = durability
        self.h.put(durability=durability)

    @rule(batch=records)
    def append(self, batch: list[tuple[int, str | None, str | None]]) -> None:
        if self.model.discard == "reject" and self.staged:
            self.commit()  # admission counts what is staged, which is not what the model knows
        answer = self.h.start_append(rows_of(batch))
        refused = self.model.append(self.now, [ModelRecord(*each) for each in batch])
        self.staged.append((answer, refused or (self.model.head - len(batch) + 1, self.model.head)))

    @rule(before=st.one_of(st.none(), st.integers(0, 60)), match=st.sampled_from([None, "", "a", "a:*", "*", "b"]))
    def delete(self, before: int | None, match: str | None) -> None:
        if before is None and match is None:
            return
        answer = self.h.start_delete(before, match)
        deleted = self.model.delete(self.now, before, match)
        m = self.model
        self.staged.append((answer, (deleted, m.earliest, m.head, m.count, m.bytes)))

    @rule()
    def commit(self) -> None:
        self.h.settle()
        staged, self.staged = self.staged, []
        for answer, expected in staged:
            if isinstance(expected, str):
                assert isinstance(answer.results[0], RequestError)
                assert answer.results[0].code == expected
            else:
                assert tuple(answer.get())[: len(expected)] == expected

    @rule(
        ttl=st.sampled_from([0, 0, 100, 300]),
        cap_records=st.sampled_from([0, 0, 3, 7]),
        cap_bytes=st.sampled_from([0, 0, 30, 100]),
        discard=st.sampled_from(["old", "old", "reject"]),
    )
    def configure(self, ttl: int, cap_records: int, cap_bytes: int, discard: str) -> None:
        self.commit()
        self.h.put(
            durability=self.durability, ttl_ms=ttl, cap_records=cap_records, cap_bytes=cap_bytes, discard=discard
        )
        self.model.expire(self.now)
        self.model.ttl_ms, self.model.cap_records, self.model.cap_bytes = ttl, cap_records, cap_bytes
        self.model.discard = discard
        self.model.evict()

    @rule(ms=st.integers(0, 150))
    def pass_time(self, ms: int) -> None:
        self.commit()
        self.h.advance_ms(ms)

    @rule()
    def checkpoint(self) -> None:
        self.commit()
        self.h.checkpoint()

    @rule()
    def checkpoint_while_staged(self) -> None:
        self.h.checkpoint()

    @rule()
    def restart(self) -> None:
        self.commit()
        self.model.expire(self.now)
        self.h.state()  # what time has taken is durable only once a client was answered
        self.next_life()

    def next_life(self) -> None:
        self.h.restart()

    @invariant()
    def every_cursor_reads_what_the_model_says(self) -> None:
        if self.staged:
            return
        self.model.expire(self.now)
        m, state = self.model, self.h.state()
        assert (state.head_seq, state.earliest_seq, state.count, state.bytes) == (m.head, m.earliest, m.count, m.bytes)
        for from_seq in {0, m.lost - 1, m.lost, m.earliest - 1, m.earliest, m.head // 2, m.head, m.head + 1} - {-1}:
            for limit, node in ((1000, None), (2, None), (3, "n")):
                nodes = (node.encode(),) if node else ()
                self.model.expire(self.now)
                result = self.h.diff(from_seq, limit=limit, nodes=nodes)
                delivered = [r["$seq"] for r in msgspec.json.decode(b"[" + result.records + b"]")]
                seqs, next_from_seq, tombstone = m.read(from_seq, limit, node)
                assert (delivered, result.tombstone) == (seqs, tombstone)
                assert result.next_from_seq == next_from_seq
        usage = self.h.engine._core.usage
        assert (usage.records, usage.bytes, usage.pending_bytes) == (m.count, m.bytes, 0)
        assert sum(file.live_rows for file in self.h.store.files) == m.count


class RealTopicMachine(TopicMachine):
    """The machine on the real store; class `fsync` loses nothing in a power cut either."""

    def world(self) -> Harness:
        return RealWorld()

    @rule(power_lost=st.booleans(), graceful=st.booleans())
    def end_in_some_way(self, power_lost: bool, graceful: bool) -> None:
        self.commit()
        self.model.expire(self.now)
        self.h.state()
        assert isinstance(self.h, RealWorld)
        self.h.restart(power_lost=power_lost and (graceful or self.durability == "fsync"), graceful=graceful)


TestTopic = TopicMachine.TestCase
TestRealTopic = RealTopicMachine.TestCase
TestRealTopic.settings = settings(max_examples=amount(4), stateful_step_count=25, deadline=None)
TestTopic.settings = settings(max_examples=amount(12), stateful_step_count=30, deadline=None)
