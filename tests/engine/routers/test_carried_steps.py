"""The step of a router in the batch of the write that it forwards: the copies of a later step, with one commit."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.harness import Answer, records
from tests.engine.real_world import RealWorld
from topics.common.values.configs import EXACTLY_ONCE, Predicate, RouterConfig
from topics.common.values.written import NewRecord
from topics.engine.bodies.value_rows import rows_from_values
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.hops import Hops
from topics.engine.state.router_work import RouterWork
from topics.engine.values.results import AppendResult
from topics.errors import StorageError
from topics.store.format.rows import Rows

WAITS_MS = 20_000


class Routed(RealWorld):
    """A source, and a router to a destination, whose next write finds nothing else in progress."""

    def __init__(self, source: str = "disk", dest: str = "disk", seed: int = 0, **settings: Any) -> None:
        super().__init__(seed, wal_file_bytes=1 << 20)
        self.put("source", durability=source)
        self.put("dest", durability=dest)
        self.route("router", "dest", **settings)
        for value in (0, 1):
            self.append(value, name="source", tag="ab")
            self.append(f"direct {value}", name="dest")
            assert self.state("dest").head_seq == 2 * value + 2
        self.advance_ms(2000)

    def route(self, name: str, dest: str, **settings: Any) -> None:
        made = Answer()
        self.engine.put_router(name, RouterConfig("source", dest, **settings), lambda _name: True, made)
        self.wait(made)

    def write(self, rows: Rows, node: bytes | None = None) -> AppendResult | None:
        """A lone write. Its answer is sent before its records are visible."""
        return self.engine.append_lone(AppendRequest("source", rows, node), lambda _result: None)

    def poll(self) -> Answer:
        """Begin a read of the destination that waits for the next record."""
        return self.start_diff(self.state("dest").head_seq, "dest", wait_ms=WAITS_MS)

    def source_hops(self) -> Hops:
        """The hops of copies in the source, which counts them from here on."""
        source = self.engine._core.registry.by_name["source"]
        if source.hops is None:
            source.hops = Hops()
        return source.hops

    @property
    def head(self) -> int:
        """The last visible record of the destination, without a read, for which routers would catch up."""
        return self.engine._core.registry.by_name["dest"].head

    @property
    def router(self) -> Any:
        return self.engine._core.routers.by_name["router"]

    def everything(self, topic: str = "dest") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at = -1
        while at < (page := self.diff(max(at, 0), topic, limit=1000, include_tags=True)).next_from_seq:
            found += msgspec.json.decode(b"[" + page.records + b"]")
            at = page.next_from_seq
        return [{name: value for name, value in row.items() if name != "$ts"} for row in found]


CLASSES = [("memory", "memory"), ("memory", "disk"), ("disk", "memory"), ("disk", "disk"), ("fsync", "disk")]
CLASSES += [("fsync", "fsync")]


@pytest.mark.parametrize(("source", "dest"), CLASSES)
def test_a_copy_is_there_when_the_write_is_and_costs_no_commit_of_its_own(source: str, dest: str) -> None:
    """R-RTR-17: the write counts as one frame."""
    world = Routed(source, dest)
    poll = world.poll()
    counters = world.real_store.log.counters
    before = world.head, counters.commit.count, counters.frames
    assert world.write(records(2, 3)) is not None
    assert (world.head, counters.commit.count, counters.frames) == (before[0] + 2, before[1] + 1, before[2] + 2)
    assert world.router.position == 4
    assert world.router.work is RouterWork.IDLE
    synced = world.state("dest").synced_seq
    assert synced == (world.head if source == "fsync" else before[0])
    world.real_loop.run_pass(0)
    assert [row["data"] for row in msgspec.json.decode(b"[" + poll.get().records + b"]")] == [2, 3]


@pytest.mark.parametrize(("source", "dest"), [pair for pair in CLASSES if pair[0] != "memory"])
@pytest.mark.parametrize("count", [1, 40])
def test_the_batch_of_writes_that_came_in_one_pass_carries_the_step_of_them_all(
    source: str, dest: str, count: int
) -> None:
    world = Routed(source, dest)
    poll, counters = world.poll(), world.real_store.log.counters
    before = world.head, counters.commit.count, counters.frames
    answers = [world.start_append(records(*range(2, 2 + count)), "source") for _ in range(2)]
    world.engine.flush()
    assert world.router.work is RouterWork.COMMITTING
    world.settle()
    assert [answer.get().count for answer in answers] == [count, count]
    assert counters.commit.count == before[1] + 1
    assert counters.frames == before[2] + 2 * count
    assert (world.head, world.router.position) == (before[0] + 2 * count, 2 + 2 * count)
    assert world.router.work is RouterWork.IDLE
    assert world.wait(poll).count == 2 * count
    copies = world.everything()
    assert [row["data"] for row in copies[4:]] == 2 * list(range(2, 2 + count))
    world.restart()
    assert world.everything() == copies


def test_writes_of_a_pass_that_fail_end_the_step_that_they_carry() -> None:
    world = Routed()
    poll, before = world.poll(), (world.head, world.router.position, world.router.forwarded)
    world.ring.faults.fail("write", errno.ENOSPC, times=9, path_part="/wal/")
    answers = [world.start_append(records(3), "source") for _ in range(2)]
    world.engine.flush()
    assert world.router.work is RouterWork.COMMITTING
    world.settle()
    for answer in answers:
        with pytest.raises(StorageError):
            answer.get()
    assert (world.head, world.router.position, world.router.forwarded) == before
    assert world.router.work is RouterWork.IDLE
    assert not poll.given


def test_a_delete_in_the_same_pass_is_not_passed_by_a_carried_step() -> None:
    """R-DEL-9: what was deleted before it was forwarded is not forwarded."""
    world = Routed()
    world.poll()
    world.start_append(records(2), "source")
    world.start_delete(before_seq=4, name="source")
    world.engine.flush()
    assert world.router.work is RouterWork.IDLE
    world.settle()
    assert [row["data"] for row in world.everything()] == ["direct 0", 0, "direct 1", 1]


def test_a_step_is_in_the_batch_of_its_write_or_in_one_of_its_own() -> None:
    """A large body begins another batch in the middle of a pass."""
    world = Routed()
    world.poll()
    world.start_append(records(2), "source")
    world.real_store.log.begin_batch(world.router.dest.id)
    world.engine._carrier.carry()
    assert world.router.work is RouterWork.IDLE
    world.settle()
    assert [row["data"] for row in world.everything()][4:] == [2]


NOT_CARRIED: dict[str, Callable[[Routed], object]] = {
    "no reader waits": lambda world: world.cancel(),
    "a write to the destination is on its way": lambda world: world.start_append(records(5), "dest"),
    "an expiry in the destination": lambda world: world.put("dest", durability="disk", ttl_ms=10_000),
    "a destination that may refuse": lambda world: world.put(
        "dest", durability="disk", cap_records=99, discard="reject"
    ),
    "a destination in memory": lambda world: world.put("dest", durability="ephemeral"),
    "a stronger class of the destination": lambda world: world.put("dest", durability="fsync"),
    "another router": lambda world: (world.put("elsewhere"), world.route("other", "elsewhere")),
    "a filter that does not match": lambda world: world.route("router", "dest", filter=Predicate(False, b"a")),
    "seqs that are not reserved": lambda world: world.engine._core.registry.by_name["dest"].lose_reservation(),
    "exactly once": lambda world: world.route("router", "dest", guarantee=EXACTLY_ONCE),
    "a router with work": lambda world: world.router.enter(RouterWork.LAGGING),
    "copies in the source, whose hops count": lambda world: world.source_hops().add(1, 9, 8),
}


@pytest.mark.parametrize("why", NOT_CARRIED)
def test_a_write_that_carries_no_step_is_forwarded_by_one_after_it(why: str) -> None:
    world = Routed()
    source = world.engine._core.registry.by_name["source"]
    world.source_hops()
    poll = world.poll()
    rows = records(2)
    step_of = world.engine._lone_appender._step_of
    assert step_of(source, rows, None, 0) is not None
    NOT_CARRIED[why](world)
    assert step_of(source, rows, None, 0) is None
    work = world.router.work
    if why not in {"no reader waits", "a filter that does not match"}:
        started = world.start_append(records("staged"), "source")
        world.engine._carrier.carry()
        assert world.router.work is work
        world.settle()
        assert started.given
    if world.write(rows) is None:
        world.append(2, name="source")
    copies = [row["data"] for row in world.everything()]
    assert copies.count(2) == (why not in {"a filter that does not match", "copies in the source, whose hops count"})
    assert poll.given == (why != "no reader waits" and len(copies) > 4)


def test_a_step_is_carried_past_no_record_that_waits_for_its_own() -> None:
    """Two writes in a pass, of which the first carries none."""
    world = Routed(filter=Predicate(True, b"a"))
    world.poll()
    world.write(records(2))
    assert world.write(records(3, tag="ab")) is not None
    assert world.router.position == 2
    world.write(records(4, tag="ab"))
    assert [row["data"] for row in world.everything()][4:] == [3, 4]


def test_a_reader_that_waits_at_the_source_is_woken_by_a_write_that_carries_a_step() -> None:
    world = Routed()
    polls = world.poll(), world.start_diff(world.state("source").head_seq, "source", wait_ms=WAITS_MS)
    assert world.write(records(2)) is not None
    world.real_loop.run_pass(0)
    assert [poll.get().count for poll in polls] == [1, 1]


def test_a_step_of_its_own_reserves_ahead_so_that_the_next_writes_carry_theirs() -> None:
    """No step reserved seqs before the last one was used, and until then, for a third of all seqs, none was carried."""
    world = Routed()
    world.write(records(*range(2, 40)))
    assert len(world.everything()) == 42
    dest = world.engine._core.registry.by_name["dest"]
    dest.reserve(dest.next_seq + 5)
    assert dest.is_short(dest.next_seq)
    for value, is_carried in ((40, False), (41, True), (42, True)):
        poll, head = world.poll(), world.head
        assert world.write(records(value)) is not None
        assert (world.head > head) is is_carried
        assert world.wait(poll).count == 1
    world.advance_ms(2000)
    assert dest.ample > dest.next_seq + 5


def test_what_a_reader_at_the_next_destination_waits_for_comes_with_a_step_of_its_own() -> None:
    world = Routed()
    world.put("further")
    made = Answer()
    world.engine.put_router("next", RouterConfig("dest", "further"), lambda _name: True, made)
    world.wait(made)
    world.state("further")
    world.poll()
    poll = world.start_diff(0, "further", wait_ms=WAITS_MS)
    assert world.write(records(2)) is not None
    assert [row["data"] for row in msgspec.json.decode(b"[" + world.wait(poll).records + b"]")] == [2]
    world.restart()
    assert [row["data"] for row in world.everything("further")] == [2]


def chosen(rng: random.Random, world: RealWorld, value: int) -> Rows:
    tag, node, meta = rng.choice((None, "a", "ab")), rng.choice((None, "n")), rng.choice((None, {"m": [1]}))
    count = rng.choice((1, 1, 2, 40))
    many = [NewRecord([value, at], tag=tag if at % 3 else None, node=node, meta=meta) for at in range(count)]
    return rows_from_values(many, WriteScanner(world.config))


@pytest.mark.parametrize("seed", seeds(12))
def test_carried_copies_are_those_of_a_step_after_the_write(seed: int) -> None:
    """Two worlds with the same writes: in one of them a reader waits. Also after a kill, by each replay of the log."""
    rng = random.Random(f"carried {seed}")
    source, dest = CLASSES[seed % len(CLASSES)]
    settings: dict[str, Any] = {"preserve_tag": rng.random() < 0.7, "preserve_node": rng.random() < 0.7}
    if rng.random() < 0.4:
        settings["filter"] = Predicate(True, b"a")
    waited, plain = (Routed(source, dest, seed, **settings) for _ in range(2))
    carried = 0
    for life in range(3):
        for value in range(30):
            rows, node = chosen(rng, waited, value), rng.choice((None, b"from a header"))
            waited.poll()
            position = waited.router.position
            is_lone = rng.random() < 0.5
            for world in (waited, plain):
                if not is_lone or world.write(rows, node) is None:
                    world.start_append(rows, "source", node=node)
                    world.settle()
            carried += waited.router.position > position
            assert waited.everything() == plain.everything()
            waited.cancel()
            if rng.random() < 0.1:
                for world in (waited, plain):
                    world.append("direct", name="dest")
            if rng.random() < 0.1:
                waited.delete(before_seq=value, name="source")
                plain.delete(before_seq=value, name="source")
            if rng.random() < 0.03:
                waited.checkpoint()
        assert (waited.router.position, waited.router.forwarded) == (plain.router.position, plain.router.forwarded)
        for world in (waited, plain):
            world.restart()
        assert waited.everything() == plain.everything(), f"life {life}"
    assert carried > 10 or "filter" in settings, "too few steps were carried for this test to mean anything"


@pytest.mark.parametrize("seed", seeds(12))
def test_a_power_cut_leaves_no_copy_without_its_original_and_repeats_none(seed: int) -> None:
    rng = random.Random(f"cut {seed}")
    source, dest = CLASSES[seed % len(CLASSES)]
    world = Routed(source, dest, seed)
    value = 2
    for _life in range(4):
        for _ in range(rng.randint(1, 12)):
            world.poll()
            assert world.write(records(value)) or world.append(value, name="source")
            value += 1
            if rng.random() < 0.1:
                world.advance_ms(rng.choice((1, 2000)))
        world.restart(power_lost=True)
        originals = [row["data"] for row in world.everything("source")]
        copies = [row["data"] for row in world.everything() if isinstance(row["data"], int)]
        if source != "memory":
            assert copies == originals[: len(copies)], "of the log a prefix is left"
            assert copies == originals, "a router forwards what is left"
        assert len(set(copies)) == len(copies)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_write_that_fails_leaves_neither_a_record_nor_a_copy(error: int) -> None:
    world = Routed()
    poll, before = world.poll(), (world.head, world.router.position, world.router.forwarded)
    world.ring.faults.fail("write", error, times=9, path_part="/wal/")
    assert world.write(records(2)) is None
    answer = world.start_append(records(3), "source")
    world.settle()
    with pytest.raises(StorageError):
        answer.get()
    assert (world.head, world.router.position, world.router.forwarded) == before
    assert not poll.given
    world.ring.faults.clear()
    world.restart()
    assert [row["data"] for row in world.everything()] == ["direct 0", 0, "direct 1", 1]


def test_a_write_that_is_not_published_ends_all_others() -> None:
    """The seqs of its copies would be given out again, as those of the write would."""
    world = Routed()
    world.poll()
    rows = records(2)
    within: list[Answer] = []
    with pytest.raises(AssertionError, match="given out again"):
        world.engine.append_lone(
            AppendRequest("source", rows), lambda _result: within.append(world.start_append(records(9), "dest"))
        )
    answer = world.start_append(records(3), "source")
    world.settle()
    with pytest.raises(StorageError, match="was not published"):
        answer.get()
    world.restart()
    assert [row["data"] for row in world.everything()] == ["direct 0", 0, "direct 1", 1, 2]
