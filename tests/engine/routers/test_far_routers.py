"""Routers between topics of two cores: R-CORE-11, R-CORE-12, R-CORE-13.

Goal: each record is copied once and in order, whichever core ends and whenever, and readers of the destination find
what was acknowledged before.
"""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest

from tests.amount import seeds
from tests.engine.harness import Answer
from tests.engine.routers.far_cores import Cores, core_of
from topics.common.values.configs import Predicate
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.errors import RequestError, TopicsError

GUARANTEES = ["at_least_once", "exactly_once"]


def code_of(refused: Any) -> str:
    with pytest.raises(RequestError) as caught:
        refused()
    return caught.value.code


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", seeds(20))
def test_a_read_of_the_destination_has_what_was_acknowledged_at_the_source(seed: int, guarantee: str) -> None:
    world = Cores(seed)
    assert world.route("r", "s0", "d1", guarantee=guarantee).created
    for number in range(10):
        world.append("s0", number, number + 100)
        if number % 3 == 0:
            world.append("d1", "direct")
        assert [each for each in world.data("d1") if each != "direct"][-2:] == [number, number + 100]
    assert world.router("r", 0).forwarded == 20
    assert world.links(1) == ["r"]


@pytest.mark.parametrize("seed", seeds(20))
def test_chains_and_cycles_lead_over_cores_up_to_the_most_hops(seed: int) -> None:
    """R-RTR-4, R-RTR-12: a write to one of two mirrored topics ends with 5 copies there and 4 in the other."""
    world = Cores(seed, 3)
    for number, (source, dest) in enumerate([("a0", "b1"), ("b1", "c2"), ("c2", "d0"), ("d0", "e0"), ("e0", "f1")]):
        world.route(f"r{number}", source, dest)
    world.append("a0", 1, 2)
    assert world.data("f1") == [1, 2]
    world.route("there", "x0", "y1")
    with pytest.raises(RequestError) as refused:
        world.route("back", "y1", "x0")
    assert refused.value.detail == {"cycle": ["y1", "x0", "y1"]}
    assert world.route("back", "y1", "x0", allow_cycle=True).created
    world.append("x0", "x")
    world.data("y1")
    world.run(lambda: not world.asked and all(not world_lags(world, core) for core in range(3)))
    assert (len(world.data("x0")), len(world.data("y1"))) == (5, 4)


def world_lags(world: Cores, core: int) -> bool:
    return any(router.lags for router in world.worlds[core].stored.routers.by_name.values())


class Life:
    """Writes to a source, reads of its destination, and checkpoints, while cores end."""

    def __init__(self, world: Cores, *, source: str = "s0", dest: str = "d1") -> None:
        self.world = world
        self.source, self.dest = source, dest
        self.asked: list[tuple[list[int], Answer]] = []
        self._reads: list[tuple[set[int], int, Answer]] = []
        self._next = 0

    def write(self) -> None:
        count = self.world.rng.randint(1, 4)
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self.asked.append((numbers, self.world.start_append(self.source, *numbers)))

    def read(self) -> None:
        """Begin to read the destination, which has what is acknowledged now, unless a core ends meanwhile."""
        ends = self.world.killed + self.world.cuts
        self._reads.append((self.acknowledged, ends, self.world.start_read(self.dest)))

    def check_reads(self) -> int:
        """Return how many reads no end of a core has disturbed."""
        ends, whole = self.world.killed + self.world.cuts, 0
        waiting = []
        for acknowledged, before, answer in self._reads:
            if before == ends and answer.given:
                records = msgspec.json.decode(b"[" + answer.get().records + b"]")
                assert acknowledged <= {record["data"] for record in records}, "R-RTR-4"
                whole += 1
            elif before == ends:
                waiting.append((acknowledged, before, answer))
        self._reads = waiting
        return whole

    @property
    def acknowledged(self) -> set[int]:
        return {
            number
            for numbers, answer in self.asked
            if answer.given and not isinstance(answer.results[0], TopicsError)
            for number in numbers
        }

    def check(self) -> None:
        acknowledged, source = self.acknowledged, None
        while source != (now := self.world.data(self.source)):  # some are in flight
            source, dest = now, self.world.data(self.dest)
        assert dest == source, "each record once, in order"
        assert acknowledged <= set(source)


def ends_of_cores(life: Life) -> None:
    """Write and read, while cores end and the sockets between them."""
    world = life.world
    for _ in range(12):
        life.write()
        world.some(30)
        happens = world.rng.randrange(8)
        core, other = world.rng.sample(range(len(world.worlds)), 2)
        if happens == 0:
            world.end_soon(core)
        elif happens in {1, 2}:
            world.cut_amid_steps(core, other)
        elif happens == 3:
            world.checkpoint(core)
        elif happens >= 4:
            life.read()
            world.some(30)
            life.check_reads()
    for each in world.worlds:
        each.ring.stop_at(0)
    life.check()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("seed", seeds(60))
def test_each_record_is_copied_once_whichever_core_ends_and_whenever(
    seed: int, power_lost: bool, guarantee: str
) -> None:
    world = Cores(seed, router_retry_ms=2)
    world.cuts_power = power_lost
    for topic in ("s0", "d1"):
        world.put(topic, durability="fsync" if power_lost else world.rng.choice(["disk", "fsync"]))
    world.route("r", "s0", "d1", guarantee=guarantee)
    ends_of_cores(Life(world))


@pytest.mark.parametrize("seed", seeds(40))
def test_a_chain_over_three_cores_copies_once_whichever_ends(seed: int) -> None:
    world = Cores(seed, 3, router_retry_ms=2)
    world.route("first", "s0", "m1")
    world.route("second", "m1", "n1")
    world.route("third", "n1", "d2")
    ends_of_cores(Life(world, dest="d2"))


@pytest.mark.parametrize("seed", seeds(40))
def test_a_reader_has_what_was_acknowledged_while_another_one_waited(seed: int) -> None:
    """R-RTR-4, R-CORE-12: the order for an earlier reader does not cover it."""
    world = Cores(seed)
    world.route("r", "s0", "d1")
    life = Life(world)
    for _ in range(10):
        life.write()
        life.read()
        world.some(20)
        life.check_reads()
    world.run(lambda: all(answer.given for _, _, answer in life._reads))
    life.check_reads()
    life.check()


LATER_MS = 60_000
"""A delay of routers, or a wait, that is longer than a test."""


@pytest.mark.parametrize("seed", seeds(80))
def test_a_long_poll_gets_a_copy_from_another_core_before_the_timer(seed: int) -> None:
    """R-RTR-3: whenever the record is written."""
    world = Cores(seed, router_delay_ms=LATER_MS)
    world.route("r", "s0", "d1")
    for number in range(6):
        poll = world.start_read("d1", number, wait_ms=LATER_MS)
        world.some(60)
        world.append("s0", number)
        assert world.wait(poll).next_from_seq == number + 1


@pytest.mark.parametrize("seed", seeds(20))
def test_a_long_poll_hurries_each_router_of_a_chain_over_cores(seed: int) -> None:
    world = Cores(seed, 3, router_delay_ms=LATER_MS)
    for name, source, dest in (("first", "s0", "m1"), ("second", "m1", "n1"), ("third", "n1", "d2")):
        world.route(name, source, dest)
    for number in range(4):
        poll = world.start_read("d2", number, wait_ms=LATER_MS)
        world.run(lambda: bool(waiters_of(world, "d2")))
        world.append("s0", number)
        assert world.wait(poll).next_from_seq == number + 1


def test_a_router_waits_for_the_timer_again_once_no_reader_waits_on_the_other_core() -> None:
    world = Cores(16, router_delay_ms=LATER_MS)
    world.route("r", "s0", "d1")
    poll = world.start_read("d1", wait_ms=LATER_MS)
    world.run(lambda: bool(waiters_of(world, "d1")))
    world.append("s0", 1)
    world.wait(poll)
    world.append("s0", 2)  # whose step finds that the reader has gone
    world.run(lambda: position_of_link(world) == 2 and not world.asked)
    before = world.orders
    world.append("s0", 3)
    for _ in range(3000):
        world.step()
    assert (position_of_link(world), world.orders) == (2, before)
    assert world.data("d1") == [1, 2, 3]


def waiters_of(world: Cores, topic: str) -> dict[Any, None]:
    found: dict[Any, None] = world.worlds[core_of(topic)].stored.registry.by_name[topic].waiters
    return found


@pytest.mark.parametrize("seed", seeds(40))
def test_a_reader_of_the_destination_does_not_end_a_router_that_is_being_made(seed: int) -> None:
    """R-CORE-13: its link is there before it."""
    world = Cores(seed)
    world.put("d1")
    made = world.start_route("r", "s0", "d1")
    while not made.given:
        world.start_read("d1")
        world.some(10)
    assert made.get().created
    world.append("s0", 1)
    assert world.data("d1") == [1]
    assert world.router("r", 0).forwarded == 1


def test_a_refusal_leaves_neither_router_nor_topic() -> None:
    """R-RTR-7, R-RTR-10, R-CORE-13."""
    world = Cores(3)
    assert code_of(lambda: world.route("r", "s0", "d1", create_dest=False)) == "topic_not_found"
    assert [each.engine.topic_count() for each in world.worlds] == [0, 0]
    world.route("other", "x0", "d1")
    assert code_of(lambda: world.route("r", "s0", "d1")) == "topic_exists_incompatible"
    assert code_of(lambda: world.route("r", "s1", "d1")) == "topic_exists_incompatible"
    assert [each.engine.topic_count() for each in world.worlds] == [1, 1]
    assert (world.links(1), world.links(0)) == (["other"], [])


def test_a_deleted_router_stops_and_its_name_and_destination_are_free() -> None:
    """R-RTR-1, R-RTR-11."""
    world = Cores(4)
    world.route("r", "s0", "d1")
    world.append("s0", 1)
    assert world.delete_router("r", 0).deleted
    assert world.links(1) == []
    world.append("s0", 2)
    assert world.data("d1") == []
    assert world.route("r", "x0", "d1").created
    assert world.delete_router("r", 0).deleted
    assert world.route("r", "s0", "d1").created
    world.append("s0", 3)
    assert world.data("d1") == [3]


@pytest.mark.parametrize("gone", ["s0", "d1"])
@pytest.mark.parametrize("dies", [None, 0, 1])
def test_a_deleted_topic_takes_its_routers_along(gone: str, dies: int | None) -> None:
    """R-RTR-11, R-CORE-13: also if the other core dies before it knows."""
    world = Cores(5)
    world.route("r", "s0", "d1")
    world.append("s0", 1)
    assert world.data("d1") == [1]
    assert world.delete(gone).routers_removed == ["r"]
    if dies is not None:
        world.restart(dies)
        world.stale.clear()
    world.put(gone)
    assert world.data("d1") == ([] if gone == "d1" else [1])
    world.append("s0", 2)
    world.run(lambda: not world.asked and not world_lags(world, 0))
    assert world.data("d1") == ([] if gone == "d1" else [1])
    assert "r" not in world.worlds[0].stored.routers.by_name
    assert world.route("r", "x0", "d1").created, "nothing is left of the first one"
    assert world.links(1) == ["r"]


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(30))
def test_a_core_that_ends_while_a_router_is_made_leaves_one_or_none(seed: int, dies: int) -> None:
    """R-CORE-13."""
    world = Cores(seed)
    ring = world.worlds[dies].ring
    ring.stop_at(ring.effects + seed + 1)
    made = world.start_route("r", "s0", "d1")
    world.run(lambda: made.given or world.killed > 0)
    world.worlds[dies].ring.stop_at(0)
    world.stale.clear()
    if made.given and not isinstance(made.results[0], TopicsError):
        assert "r" in world.worlds[0].stored.routers.by_name
    made = world.start_route("r", "s0", "d1")
    assert world.wait(made).created in {True, False}
    world.append("s0", seed)
    assert world.data("d1") == [seed]
    world.run(lambda: world.links(1) == ["r"])  # a link without a router is gone after a read


def test_the_settings_of_a_router_between_cores_change() -> None:
    """R-RTR-8, R-EO-1."""
    world = Cores(7)
    world.route("r", "s0", "d1")
    world.append("s0", 1, tag="t")
    assert world.data("d1") == [1]
    more = {"guarantee": "exactly_once", "filter": Predicate(False, b"u")}
    assert not world.route("r", "s0", "d1", **more).created
    world.append("s0", 2, tag="u")
    world.append("s0", 3, tag="t")
    first, second = world.read("d1")
    assert "meta" not in first
    assert second["meta"]["_topics_router"]["source_seq"] == 2
    assert code_of(lambda: world.route("r", "s0", "e1")) == "topic_exists_incompatible"


def test_a_router_without_room_continues_when_there_is_some() -> None:
    """R-RTR-13."""
    world = Cores(8, router_retry_ms=2)
    world.put("d1", cap_records=2, discard="reject")
    world.route("r", "s0", "d1")
    world.append("s0", 1, 2, 3)
    assert world.data("d1") == [1, 2]
    answer = Answer()
    world.engine_of("d1").delete_records("d1", 2, None, answer)
    world.wait(answer)
    assert world.data("d1") == [2, 3]


def test_what_the_source_lost_is_a_hole_of_the_destination() -> None:
    """R-TRIM-1."""
    world = Cores(9)
    world.put("s0", cap_records=2)
    world.route("r", "s0", "d1")
    world.append("s0", *range(6))
    result = world.wait(world.start_read("d1"))
    assert (result.tombstone.gap_from, result.tombstone.gap_to) == (1, 4)
    assert world.router("r", 0).forwarded == 6


def test_jobs_are_copied_before_they_are_consumed() -> None:
    """R-RTR-18."""
    world = Cores(10)
    world.put("q0", type="queue")
    world.route("r", "q0", "d1")
    world.append("q0", 1, 2)
    claimed = Answer()
    world.engine_of("q0").claim(ClaimRequest("q0", "w", 2, None), claimed)
    assert world.wait(claimed).count == 2
    world.cut(0, 1)
    acked = Answer()
    world.engine_of("q0").ack(HeldJobs("q0", "w", (1, 2)), acked)
    assert world.wait(acked).done == 2
    assert world.data("d1") == [1, 2]


def test_a_power_cut_of_all_loses_copies_and_position_together() -> None:
    """R-CORE-11, class `disk`."""
    for seed in seeds(40):
        world = Cores(seed)
        world.route("r", "s0", "d1")
        life = Life(world)
        for _ in range(6):
            life.write()
            world.some(40)
            if world.rng.random() < 0.3:
                world.checkpoint(world.rng.randrange(2))
        world.cut_power()
        world.append("s0", "after")
        source = [record["data"] for record in surviving(world, "s0")]
        dest = [record["data"] for record in surviving(world, "d1")]
        assert len(set(dest)) == len(dest)
        assert set(source) <= set(dest), "copied again, unless the copy is there"
        assert dest == [number for number in dest if number == "after" or number < life._next]
        numbers = [number for number in dest if number != "after"]
        assert numbers == sorted(numbers)


def surviving(world: Cores, topic: str) -> list[dict[str, Any]]:
    """The records of a topic, of which a power cut may have taken some."""
    found: list[dict[str, Any]] = []
    cursor = 0
    while True:
        result = world.wait(world.start_read(topic, cursor))
        found += msgspec.json.decode(b"[" + result.records + b"]")
        if result.caught_up:
            return found
        cursor = result.next_from_seq


@pytest.mark.parametrize("seed", seeds(40))
def test_copies_that_a_power_cut_took_are_made_again_without_a_reader(seed: int) -> None:
    """R-RTR-5, R-CORE-11: also if the source's core has stored that they were there."""
    world = Cores(seed, router_retry_ms=2, sync_every_ms=None)
    world.route("r", "s0", "d1")
    for number in range(4):  # the first one has reserved seqs, which is synced
        world.append("s0", number)
        world.run(lambda number=number: position_of_link(world) == number + 1)
    world.run(lambda: not world.asked and not world_lags(world, 0))
    world.checkpoint(0)
    world.restart(1, power_lost=True)
    world.restart(0)
    world.run(lambda: position_of_link(world) == 4)
    assert [record["data"] for record in surviving(world, "d1")] == list(range(4))


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(40))
def test_a_reader_after_a_restart_has_what_was_acknowledged(seed: int, dies: int) -> None:
    """R-CORE-12: also if the first order to the new life is sent to the one before."""
    world = Cores(seed)
    world.route("r", "s0", "d1")
    world.append("s0", 1)
    world.some(30)
    world.restart(dies)
    world.append("s0", 2)
    world.some(30)
    assert world.data("d1") == [1, 2]


def test_a_core_that_stops_is_not_asked_again_and_again() -> None:
    """Its answer is the position as it was."""
    world = Cores(11)
    world.route("r", "s0", "d1")
    world.worlds[1].engine._forwarding.stop()
    before = world.orders
    world.append("s0", 1)
    for _ in range(3000):
        world.step()
    assert 0 < world.orders - before < 60, "each 100 ms, and not with each answer"


def test_what_waits_for_other_cores_is_bounded() -> None:
    """A hundred routers with a record each take turns."""
    world = Cores(12)
    for number in range(100):
        world.route(f"r{number}", "s0", "d1")
    world.append("s0", 1)
    most = 0
    while world_lags(world, 0):
        world.step()
        most = max(most, len(world.asked))
    assert 1 < most <= 16
    assert world.data("d1") == [1] * 100


def test_a_source_that_was_rebuilt_below_the_position_gives_its_link_no_other_records() -> None:
    """R-CORE-11: what is written to it since has the seqs of records that are in the destination."""
    world = Cores(13)
    world.route("r", "s0", "d1")
    world.append("s0", 1, 2)
    assert world.data("d1") == [1, 2]
    world.restart(0)
    router = world.worlds[0].stored.routers.by_name["r"]
    assert router.known_head == 2
    router.known_head = 1  # as a rebuild without the last record would begin
    world.append("s0", 3)
    assert world.data("d1") == [1, 2]
    assert router.blocked
    assert world.delete_router("r", 0).deleted
    assert world.route("r", "s0", "d1").created
    world.append("s0", 4)
    assert world.data("d1") == [1, 2, 4]


def test_older_builds_refuse_the_directories_of_both_cores() -> None:
    """They would drop both halves. A router that is refused leaves the format as it is."""
    world = Cores(14)
    assert code_of(lambda: world.route("r", "s0", "d1", create_dest=False)) == "topic_not_found"
    assert [each.store.format.number for each in world.worlds] == [1, 1]
    world.route("r", "s0", "d1")
    assert [each.store.format.number for each in world.worlds] == [4, 4]


@pytest.mark.parametrize("core", [0, 1])
def test_a_format_that_cannot_be_raised_refuses_the_router(core: int) -> None:
    world = Cores(15)
    world.put("s0")
    world.put("d1")
    world.worlds[core].ring.faults.fail("rename", errno.EIO, path_part="topics.json")
    with pytest.raises(TopicsError):
        world.route("r", "s0", "d1")
    assert world.links(1) == []
    assert world.worlds[0].stored.routers.by_name == {}
    assert world.route("r", "s0", "d1").created


def position_of_link(world: Cores) -> int:
    (link,) = world.worlds[1].stored.routers.links.values()
    return link.position
