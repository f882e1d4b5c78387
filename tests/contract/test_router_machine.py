"""Routers against a model of a few lines: anything in any order, kills and restarts between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.contract.conftest import sim_options
from tests.contract.sim_world import SimWorld

NAMES = st.sampled_from(["a", "b", "c", "d"])
TAGS = st.sampled_from([None, "x", "y"])
HOPS_MAX = 8


@dataclass
class Record:
    data: int
    tag: str | None
    node: str | None
    hops: int = 0


@dataclass
class Topic:
    cap: int = 0
    reject: bool = False
    head: int = 0
    lost: int = 0
    live: dict[int, Record] = field(default_factory=dict)

    def room(self) -> int:
        return max(0, self.cap - len(self.live)) if self.cap and self.reject else 1 << 30

    def add(self, records: list[Record]) -> None:
        for record in records:
            self.head += 1
            self.live[self.head] = record
        self.evict()

    def evict(self) -> None:
        while self.cap and not self.reject and len(self.live) > self.cap:
            self.lost = min(self.live)
            del self.live[self.lost]


@dataclass
class Router:
    source: str
    dest: str
    tag: str | None
    keep: bool
    position: int
    forwarded: int = 0


class Model:
    """Everything that can be forwarded is, after every change."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.routers: dict[str, Router] = {}

    def settle(self) -> None:
        while any(self._step(router) for router in self.routers.values()):
            pass

    def _step(self, router: Router) -> bool:
        source, dest = self.topics[router.source], self.topics[router.dest]
        before = router.position
        if source.lost > router.position:
            holes = source.lost - router.position
            dest.head += holes
            if not dest.live:
                dest.lost = dest.head
            router.forwarded += holes
            router.position = source.lost
        copies = []
        for seq in sorted(seq for seq in source.live if seq > router.position):
            record = source.live[seq]
            if record.hops < HOPS_MAX and (router.tag is None or record.tag == router.tag):
                if len(copies) == dest.room():
                    break
                kept = (record.tag, record.node) if router.keep else (None, None)
                copies.append(Record(record.data, *kept, record.hops + 1))
            router.position = seq
        else:
            router.position = source.head
        dest.add(copies)
        router.forwarded += len(copies)
        return router.position != before


class Routers(RuleBasedStateMachine):
    @initialize(shards=st.sampled_from([1, 3]), seed=st.integers(0, 1000))
    def begin(self, shards: int, seed: int) -> None:
        options = sim_options() | {"seed": seed, "shuffle": True, "split": False}
        self.world = SimWorld(**(options | {"wal_shards": shards, "checkpoint_wal_bytes": 24_000}))
        self.world.start()
        self.model = Model()
        self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()

    def topic(self, name: str) -> Topic:
        """Made where it is missing: of class fsync, so that a power cut takes nothing."""
        if name not in self.model.topics:
            self.world.put(name, durability="fsync")
            self.model.topics[name] = Topic()
        return self.model.topics[name]

    def in_the_middle(self, name: str) -> bool:
        """Fed, and feeding others: how many records arrive at once decides there what a cap evicts."""
        routers = self.model.routers.values()
        return any(router.dest == name for router in routers) and any(router.source == name for router in routers)

    @rule(name=NAMES, cap=st.integers(0, 4), reject=st.booleans())
    def configure(self, name: str, cap: int, reject: bool) -> None:
        if cap and not reject and self.in_the_middle(name):
            return
        discard = "reject" if reject else "old"
        topic = self.topic(name)
        self.world.put(name, cap_records=cap, discard=discard, durability="fsync")
        topic.cap, topic.reject = cap, reject
        topic.evict()

    @rule(name=NAMES, tags=st.lists(TAGS, min_size=1, max_size=4), node=st.sampled_from([None, "n"]))
    def write(self, name: str, tags: list[str | None], node: str | None) -> None:
        topic = self.topic(name)
        records = []
        for tag in tags:
            self.number += 1
            records.append(Record(self.number, tag, node))
        made = [{"data": record.data, "tag": record.tag, "node": record.node} for record in records]
        answer = self.world.request("POST", f"/v0/topics/{name}", {"records": made})
        if answer.status in (200, 201):
            topic.add(records)
        else:
            assert topic.reject, answer.text
            assert len(records) > topic.room(), answer.text

    @rule(name=NAMES, tag=st.sampled_from(["x", "y"]))
    def delete(self, name: str, tag: str) -> None:
        if name in self.model.topics:
            topic = self.model.topics[name]
            gone = [seq for seq, record in topic.live.items() if record.tag == tag]
            assert self.world.delete(name, match=tag)["deleted"] == len(gone)
            topic.live = {seq: record for seq, record in topic.live.items() if seq not in gone}

    @rule(name=NAMES, part=st.integers(0, 4))
    def delete_front(self, name: str, part: int) -> None:
        if name in self.model.topics:
            topic = self.model.topics[name]
            bound = topic.head - part
            self.world.delete(name, before_seq=max(0, bound))
            topic.live = {seq: record for seq, record in topic.live.items() if seq >= bound}

    @rule(source=NAMES, dest=NAMES, tag=TAGS, keep=st.booleans(), exactly=st.booleans())
    def route(self, source: str, dest: str, tag: str | None, keep: bool, exactly: bool) -> None:
        name = f"to-{dest}"
        middle = [source] if any(router.dest == source for router in self.model.routers.values()) else []
        middle += [dest] if any(router.source == dest for router in self.model.routers.values()) else []
        if any(self.topic(each).cap and not self.topic(each).reject for each in middle if each in self.model.topics):
            return
        self.topic(source)
        self.topic(dest)
        body: dict[str, Any] = {"source": source, "dest": dest, "allow_cycle": True, "filter": tag}
        body |= {"preserve_tag": keep, "preserve_node": keep}
        body["guarantee"] = "exactly_once" if exactly else "at_least_once"
        status = self.world.request("PUT", f"/v0/routers/{name}", body).status
        known = self.model.routers.get(name)
        if source == dest:
            assert status == 400
        elif known is None:
            assert status == 201
            self.model.routers[name] = Router(source, dest, tag, keep, self.topic(source).head)
            self.topic(dest)
        elif known.source != source:
            assert status == 409
        else:
            assert status == 200
            known.tag, known.keep = tag, keep

    @rule(dest=NAMES)
    def end_route(self, dest: str) -> None:
        deleted = self.world.request("DELETE", f"/v0/routers/to-{dest}").json["deleted"]
        assert deleted == (self.model.routers.pop(f"to-{dest}", None) is not None)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        tied = [key for key, router in self.model.routers.items() if name in (router.source, router.dest)]
        assert self.world.drop(name)["routers_removed"] == sorted(tied)
        self.model.topics.pop(name, None)
        for key in tied:
            del self.model.routers[key]

    @precondition(lambda self: self.number)
    @rule(kind=st.sampled_from(["crash", "power_cut", "stop"]))
    def restart(self, kind: str) -> None:
        getattr(self.world, kind)()
        self.world.start()

    @rule()
    def checkpoint(self) -> None:
        self.world.advance_ms(61_000)

    def check_invariants(self, settings: Any, name_output: Any = None, runtimes: Any = None) -> None:
        """After every rule."""
        if not hasattr(self, "model"):
            return
        self.model.settle()
        self.world.advance_ms(600)
        for name, router in self.model.routers.items():
            assert self.world.request("GET", f"/v0/routers/{name}").json["forwarded_total"] == router.forwarded
        for name, topic in self.model.topics.items():
            page = self.world.diff(name, topic.lost, limit=1000, include_tags=True)
            found: dict[int, Any] = {}
            while True:
                found |= {record["$seq"]: record for record in page["records"]}
                if page["caught_up"]:
                    break
                page = self.world.diff(name, page["next_from_seq"], limit=1000, include_tags=True)
            wanted = {seq: (record.data, record.tag, record.node) for seq, record in topic.live.items()}
            shown = {seq: (each["data"], each.get("$tag"), each.get("$node")) for seq, each in found.items()}
            assert shown == wanted, name
            assert page["head_seq"] == topic.head, name


@pytest.mark.filterwarnings("ignore")
def test_routers_do_what_a_model_does() -> None:
    """R-RTR-2, R-RTR-6, R-RTR-12, R-RTR-13, R-RTR-15, R-RTR-16, R-TRIM-1: kills and power cuts included."""
    quick = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(Routers, settings=quick)  # type: ignore[no-untyped-call]
