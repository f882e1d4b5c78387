"""A topic whose class, caps and expiry change all the time: what is there after a restart or a kill is what was there.

Less what was in memory, and with the same tombstone: what a replay works out must be what happened (R-DUR-8, -13).
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.sim.world.ring_core import LATENCY_NS

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


CLASSES = ("disk", "fsync", "memory", "ephemeral", "ephemeral")
SEEDS = (1, 2, 3, 1001, 1040, 1041, 1063, 1087, 1113, 1121, 1211, 1212)
"""Most of them find an engine that does not log what records in memory evict, or which keys it forgot."""


class Changing:
    """One run. `keys`: of writes by now, and whether their records are of class `ephemeral`."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        shards, checkpoint = rng.choice((1, 2)), rng.choice((1, 1 << 20))
        self.world = SimWorld(seed, wal_shards=shards, checkpoint_wal_bytes=checkpoint)
        self.world.start()
        self.type = rng.choice(("log", "queue"))
        self.written = 0
        self.keys: dict[str, bool] = {}
        self.change()

    def change(self) -> None:
        rng = self.rng
        self.durability = rng.choice(CLASSES)
        caps: dict[str, Any] = {"cap_records": rng.choice((0, 3, 4, 6)), "cap_bytes": rng.choice((0, 0, 0, 8))}
        self.world.put("a", type=self.type, durability=self.durability, **caps)

    def write(self) -> None:
        self.written += 1
        key = f"key {self.rng.randrange(6)}"
        records = [{"data": self.written, "tag": self.rng.choice("xy")}]
        answer = self.world.write_records("a", records, idempotency_key=key)
        assert answer["deduped"] == (key in self.keys), key
        self.keys.setdefault(key, self.durability == "ephemeral")

    def write_at_once(self) -> None:
        """And a delete and a PUT between them."""
        asked = []
        for at in range(4):
            if at == 2 and self.rng.random() < 0.5:
                asked.append(self.world.ask("POST", "/v0/topics/a/delete", {"match": "x"}))
            elif at == 2:
                config = {"type": self.type, "durability": self.durability, "cap_records": self.rng.choice((2, 4))}
                asked.append(self.world.ask("PUT", "/v0/topics/a", config))
            self.written += 1
            asked.append(self.world.ask("POST", "/v0/topics/a", {"records": [{"data": self.written}]}))
        for connection in asked:
            assert connection.answer().status == 200

    def delete(self) -> None:
        state = self.world.state("a")
        if self.rng.random() < 0.5:
            self.world.delete("a", match=self.rng.choice("xy"))
        elif state["head_seq"] >= state["earliest_seq"]:
            self.world.delete("a", before_seq=self.rng.randint(state["earliest_seq"], state["head_seq"]))

    def ack(self) -> None:
        if self.type == "queue":
            claimed = self.world.request("POST", "/v0/topics/a/claim", {"node": "n", "max": 2}).json["claimed"]
            seqs = [job["$seq"] for job in claimed]
            self.world.request("POST", "/v0/topics/a/ack", {"node": "n", "seqs": seqs})

    def wait(self) -> None:
        self.world.advance_ms(2000)

    def look(self) -> tuple[dict[int, Any], tuple[Any, ...] | None]:
        """Return data by seq, and the tombstone of a reader from 0."""
        page = self.world.diff("a", limit=1000)
        gap = page["tombstone"]
        return (
            {record["$seq"]: record["data"] for record in page["records"]},
            gap and (gap["gap_from"], gap["gap_to"], gap["reason"]),
        )

    def end_life(self) -> None:
        kept, told = self.look()
        assert self.world.server is not None
        assert self.world.server.engine is not None
        engine: Any = self.world.server.engine
        core = engine._core
        for chunk, rows, file_ids in core.registry.by_name["a"].index.locations(0, 1 << 62):
            for row, file_id in zip(rows.tolist(), file_ids.tolist(), strict=True):
                if core.usage.is_memory(file_id):
                    del kept[chunk.first + row]
        self.rng.choice((self.world.restart, self.world.crash_and_start))()
        if self.durability == "ephemeral":
            self.keys.clear()
            assert not self.look()[0]
        else:
            self.keys = {key: False for key, in_memory in self.keys.items() if not in_memory}
            assert self.look() == (kept, told)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_ends_where_the_life_before_it_ended(seed: int) -> None:
    run = Changing(seed)
    steps = (*[run.write] * 6, *[run.change] * 4, run.write_at_once, run.delete, run.ack, run.wait)
    for _ in range(20):
        run.rng.choice((*steps, run.end_life))()
    run.end_life()


def test_what_a_restart_took_from_an_ephemeral_topic_stays_gone_when_its_class_changes() -> None:
    """R-DUR-5: it is in segments, of a time in another class."""
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1, 2)
    world.advance_ms(1100)
    world.put("a", durability="ephemeral")
    world.crash_and_start()
    assert world.data("a") == []
    world.put("a", durability="disk")
    world.write("a", 3)
    world.crash_and_start()
    assert world.data("a") == [3]


@pytest.mark.parametrize("lies_in", ["log", "segment", "memory"])
def test_what_went_while_a_topic_was_ephemeral_stays_gone_when_its_class_changes(lies_in: str) -> None:
    """R-DEL-1, R-TTL-3, R-CAP-1, R-CFG-3: no frame stated it."""
    world = SimWorld(checkpoint_wal_bytes=1 << 20)
    world.start()
    first = "ephemeral" if lies_in == "memory" else "disk"
    names = ("prefix", "tag", "ttl", "cap")
    for name in names:
        world.put(name, durability=first)
        world.write_records(name, [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    if lies_in == "segment":
        world.restart()
    for name in names:
        world.put(name, durability="ephemeral", ttl_ms=500 if name == "ttl" else 0)
    world.delete("prefix", before_seq=3)
    world.delete("tag", match="gone")
    world.advance_ms(600)
    for name in names:
        world.write(name, 4)
        world.put(name, durability="ephemeral", cap_records=2 if name == "cap" else 0)
    left = {"prefix": [3, 4], "tag": [1, 3, 4], "ttl": [4], "cap": [3, 4]}
    assert {name: world.data(name) for name in names} == left
    for name in names:
        world.put(name, durability="disk")
        world.write(name, 5)
    assert {name: world.data(name) for name in names} == {name: [*found, 5] for name, found in left.items()}
    world.crash_and_start()
    kept = {"prefix": [3, 5], "tag": [1, 3, 5], "ttl": [5], "cap": [3, 5]}
    if lies_in == "memory":
        kept = {name: [5] for name in names}
    assert {name: world.data(name) for name in names} == kept
    world.advance_ms(2200)
    world.crash_and_start()
    assert {name: world.data(name) for name in names} == kept


def test_what_goes_from_an_ephemeral_topic_behind_a_change_on_its_way_stays_gone_when_the_class_changes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-DEL-1, R-CFG-3: the list of what is gone was made before the delete was applied."""
    world = SimWorld()
    world.start()
    world.put("a", durability="disk")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    world.put("a", durability="ephemeral")
    monkeypatch.setitem(LATENCY_NS, "sync", 20_000_000)
    requests = [
        ("PUT", "/v0/topics/a", {"durability": "ephemeral", "cap_records": 10}),
        ("POST", "/v0/topics/a/delete", {"match": "gone"}),
        ("PUT", "/v0/topics/a", {"durability": "disk", "cap_records": 10}),
    ]
    connections = [world.connect() for _ in requests]
    for connection, request in zip(connections, requests, strict=True):
        connection.start(*request)
        world.advance_ms(3)
    assert not any(connection.take_bytes() for connection in connections), "each waits for the one before"
    world.advance_ms(100)
    assert [connection.answer().status for connection in connections] == [200] * 3
    assert world.data("a") == [1, 3]
    world.write("a", 4)
    world.crash_and_start()
    assert world.data("a") == [1, 3, 4]


def test_records_of_a_time_in_another_class_leave_the_log_of_a_topic_that_is_ephemeral_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R-CFG-3. Every checkpoint failed, and so did the stop."""
    caplog.set_level(logging.ERROR)
    world = SimWorld(checkpoint_wal_bytes=1)
    world.start()
    world.put("a", durability="disk")
    world.write("a", 1)
    world.put("a", durability="ephemeral")
    world.write("a", 2)
    world.advance_ms(2200)
    assert not caplog.records, caplog.text
    assert world.data("a") == [1, 2]
    world.put("a", durability="disk")
    world.write("a", 3)
    world.advance_ms(2200)
    assert not caplog.records, caplog.text
    world.crash_and_start()
    assert world.data("a") in ([1, 3], [1, 2, 3])


def test_a_cap_of_an_ephemeral_time_evicts_nothing_in_a_replay_that_it_did_not_evict() -> None:
    """R-DUR-2. The delete of two records is stated after the frame in question, with the next class."""
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
    """R-IDEM-8. The log still has the write, before the change of class that forgot it or in one piece with it."""
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


def test_a_key_of_a_kept_record_outlives_checkpoints_in_an_ephemeral_time() -> None:
    """R-IDEM-8. Its frame is recycled by then, so the snapshot has to state it."""
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
    """Readers get `data` after a tombstone of what a cap took, and after a kill the same of what was `kept`."""
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
    """R-DUR-8. Some share a commit; what comes after a delete waits until that shows what there is to evict."""
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
    """Operations that waited only for each other asked again for ever."""
    world = SimWorld()
    world.start()
    world.put("a", durability="ephemeral")
    world.write("a", 1)
    asked = [world.ask("PUT", "/v0/topics/a", {"durability": "ephemeral", "cap_records": 5})]
    asked += [world.ask("PUT", "/v0/topics/a", {"durability": name}) for name in ("disk", "fsync", "memory")]
    assert [connection.answer().status for connection in asked] == [200] * 4
    assert world.state("a")["config"]["durability"] == "memory"
