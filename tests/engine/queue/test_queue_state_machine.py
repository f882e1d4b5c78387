"""Goal: whatever workers, producers and deletes do, with checkpoints, restarts and time between, a queue is what the
contract says, and no lease id is given out twice.

Method: one queue and its model take the same random steps; after each, counters and every job's fate agree.
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
from tests.long.model.model_jobs import Jobs
from tests.long.model.model_topic import Record as ModelRecord
from tests.long.model.model_topic import Topic
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.store.format.rows import RowRecord, pack_rows

nodes = st.sampled_from(["a", "b"])
seqs = st.lists(st.integers(1, 25), max_size=6)
fenced = st.sampled_from(["none", "right", "wrong"])
lease_times = st.sampled_from([None, 100, 400])


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = self.world()
        self.topic = Topic()
        self.model = Jobs(self.topic)
        self.seen: set[int] = set()
        """Lease numbers."""

    def world(self) -> Harness:
        return Harness()

    @property
    def now(self) -> int:
        return self.h.loop.clock.now_ms()

    @initialize(
        durability=st.sampled_from(["disk", "fsync"]),
        durable=st.booleans(),
        cap=st.sampled_from([0, 0, 4]),
        poison=st.booleans(),
    )
    def create(self, durability: str, durable: bool, cap: int, poison: bool) -> None:
        self.durability, self.durable = durability, durable
        self.topic.cap_records = cap
        self.model.lease_ms = 200
        config: dict[str, Any] = {"lease_ms": 200, "cap_records": cap, "leases_durable": durable}
        if poison:
            self.model.max_deliveries = 2
            config |= {"max_deliveries": 2, "dead_letter": "dlq"}
        self.config = {"type": "queue", "durability": durability, **config}
        self.h.put("q", **self.config)

    def ask(self, start: Any, *args: Any) -> Any:
        answer = Answer()
        start(*args, answer)
        self.h.settle()
        if not answer.given:  # a dead letter takes several commits
            self.h.until(lambda: answer.given) if isinstance(self.h, RealWorld) else self.h.settle()
        return answer.get()

    @rule(tags=st.lists(st.sampled_from("xyz"), min_size=1, max_size=5))
    def put(self, tags: list[str]) -> None:
        answer = self.h.start_append(
            pack_rows([RowRecord(b'"%d"' % at, tag.encode()) for at, tag in enumerate(tags)]), "q"
        )
        self.h.settle()
        answer.get()
        self.topic.append(self.now, [ModelRecord(3, tag) for tag in tags])

    @rule(node=nodes, most=st.integers(1, 6), lease_ms=lease_times)
    def claim(self, node: str, most: int, lease_ms: int | None) -> None:
        now = self.now
        expected = self.model.claim(now, node, most, lease_ms or self.model.lease_ms)
        result = self.ask(self.h.engine.claim, ClaimRequest("q", node, most, lease_ms, with_attempts=True))
        jobs = msgspec.json.decode(b"[" + result.records + b"]")
        assert [(job["$seq"], job["deliveries"]) for job in jobs] == expected
        for job in jobs:
            number = int(job["lease_id"][6:], 16)
            assert number not in self.seen
            self.seen.add(number)
            lease = self.model.leases[job["$seq"]]
            lease.number = number
            assert job["deadline"] >= lease.deadline
            lease.deadline = job["deadline"]
            assert self.model.is_told(job["$seq"], job["attempts"])
            assert job["$tag"] == self.topic.live[job["$seq"]].tag
        assert result.count == len(jobs)

    def fences(self, kind: str, asked: list[int]) -> list[int | None]:
        if kind == "none":
            return []
        known = [self.model.leases[seq].number if seq in self.model.leases else None for seq in asked]
        return known if kind == "right" else [None if number is None else number + 1 for number in known]

    @rule(node=nodes, asked=seqs, kind=fenced)
    def ack(self, node: str, asked: list[int], kind: str) -> None:
        fences = self.fences(kind, asked)
        expected = self.model.ack(self.now, node, asked, fences)
        assert self.ask(self.h.engine.ack, HeldJobs("q", node, asked, fences))[:2] == expected

    @rule(
        node=nodes,
        asked=seqs,
        kind=fenced,
        delay_ms=st.sampled_from([0, 0, 50, 500]),
        reason=st.sampled_from(["", "r"]),
    )
    def nack(self, node: str, asked: list[int], kind: str, delay_ms: int, reason: str) -> None:
        fences = self.fences(kind, asked)
        expected = self.model.nack(self.now, node, asked, fences, delay_ms, reason=reason)
        assert self.ask(self.h.engine.nack, HeldJobs("q", node, asked, fences), delay_ms, reason)[:2] == expected

    @rule(node=nodes, asked=seqs, kind=fenced, lease_ms=st.sampled_from([100, 1000]))
    def extend(self, node: str, asked: list[int], kind: str, lease_ms: int) -> None:
        fences = self.fences(kind, asked)
        now = self.now
        acted, skipped = self.model.extend(now, node, asked, fences, lease_ms)
        deadlines, passed = self.ask(self.h.engine.extend, HeldJobs("q", node, asked, fences), lease_ms)
        assert (sorted(deadlines), passed) == (sorted(acted), skipped)
        assert all(deadline == now + lease_ms for deadline in deadlines.values())

    @rule(before=st.one_of(st.none(), st.integers(1, 25)), match=st.sampled_from([None, "x", "y"]))
    def delete(self, before: int | None, match: str | None) -> None:
        if before is None and match is None:
            return
        self.h.delete(before, match, "q")
        self.topic.delete(self.now, before, match)

    @rule(ms=st.sampled_from([1, 40, 101, 250]))
    def pass_time(self, ms: int) -> None:
        self.h.advance_ms(ms)

    @rule()
    def checkpoint(self) -> None:
        self.h.checkpoint()

    @rule()
    def restart(self) -> None:
        self.next_life()
        self.model.restart(self.now, durable=self.durable)

    def next_life(self) -> None:
        self.h.restart()

    @invariant()
    def counters_agree(self) -> None:
        if not hasattr(self, "config"):
            return
        state = self.h.state("q")
        assert state.queue is not None
        assert (state.count, state.queue.ready, state.queue.in_flight) == self.model.counters(self.now)
        topic = self.h.engine._core.registry.by_name["q"]
        assert topic.queue is not None
        failed = {job.seq: msgspec.to_builtins(job.attempts) for job in topic.queue.last_failed(1000)}
        assert failed.keys() == self.model.attempts.keys()
        assert all(self.model.is_told(seq, list(told)) for seq, told in failed.items())
        touched = set(self.model.deliveries) & set(self.topic.live) | set(self.model.leases)
        assert set(topic.queue.jobs) <= touched, "no object for a job nobody touched, nor for one that is done"

    @invariant()
    def dead_letters_are_there(self) -> None:
        if self.model.dead:
            records = self.h.read(name="dlq", limit=1000)
            assert [int(record["meta"]["$dead_letter_src_seq"]) for record in records] == self.model.dead

    def teardown(self) -> None:
        """All that is left can be worked off."""
        if not hasattr(self, "config"):
            return
        self.h.put("q", **self.config | {"max_deliveries": 0})
        self.h.advance_ms(2000)
        result = self.ask(self.h.engine.claim, ClaimRequest("q", "z", 1000, None))
        left = [job["$seq"] for job in msgspec.json.decode(b"[" + result.records + b"]")]
        assert left == sorted(self.topic.live)
        assert self.ask(self.h.engine.ack, HeldJobs("q", "z", left)).done == len(left)
        assert self.h.state("q").count == 0


class RealQueueMachine(QueueMachine):
    """The machine on the real store; class `fsync` loses nothing in a power cut either."""

    def world(self) -> Harness:
        return RealWorld()

    @rule(power_lost=st.booleans(), graceful=st.booleans())
    def end_in_some_way(self, power_lost: bool, graceful: bool) -> None:
        assert isinstance(self.h, RealWorld)
        self.h.restart(power_lost=power_lost and (graceful or self.durability == "fsync"), graceful=graceful)
        self.model.restart(self.now, durable=self.durable)


TestQueue = QueueMachine.TestCase
TestRealQueue = RealQueueMachine.TestCase
TestRealQueue.settings = settings(max_examples=amount(5), stateful_step_count=30, deadline=None)
TestQueue.settings = settings(max_examples=amount(20), stateful_step_count=40, deadline=None)
