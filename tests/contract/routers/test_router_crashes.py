"""Destinations over crashes at any moment: what a reader saw is what every later reader sees.

Each seed is a life story of a source `a`, two destinations of it and one more after them: writes to all of them,
deletes, a source that is trimmed, checkpoints, kills and power cuts in the middle of requests. An oracle keeps what was
acknowledged and what was read.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.contract.conftest import sim_options
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from topics.engine.read.frame_read import FrameRead
from topics.engine.routers import evidence, forward
from topics.engine.state.router import UNKNOWN
from topics.engine.state.topic import Router
from topics.loop.loop import Loop
from topics.store.repair.rebuild import rebuild

ROUTERS = (("ab", "a", "b"), ("ac", "a", "c"), ("cd", "c", "d"))
TOPICS = "abcd"
DESTS = "bcd"
REACHED = {"a": "abcd", "b": "b", "c": "cd", "d": "d"}
"""Where what is written to a topic arrives."""


class Story:
    """The world and what must be true of it."""

    def __init__(
        self, seed: int, durability: str, *, shards: int, guarantee: str = "at_least_once", **settings: Any
    ) -> None:
        self.random = random.Random(seed)
        self.classes = {
            t: self.random.choice(["disk", "fsync"]) if durability == "mixed" else durability for t in TOPICS
        }
        options = sim_options() | {"seed": seed, "shuffle": bool(seed % 2), "split": False}
        options |= {"checkpoint_wal_bytes": 24_000, "wal_shards": shards, "hot_tail_bytes": 32_768}
        self.world = SimWorld(**(options | settings))
        self.world.start()
        self.number = 0
        self.expected: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        """Acknowledged, or read further up, and not read there yet."""
        self.gone: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        """Seqs deleted, and acknowledged."""
        self.seen: dict[str, dict[int, str]] = {topic: {} for topic in TOPICS}
        """By topic and seq: what a reader got."""
        self.lost_tail = False
        for topic in TOPICS:
            self.world.put(topic, durability=self.classes[topic])
        for name, source, dest in ROUTERS:
            body = {"source": source, "dest": dest, "guarantee": guarantee}
            assert self.world.request("PUT", f"/v0/routers/{name}", body).status == 201

    # --- what happens ------------------------------------------------------------------------------------------------
    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.45:
            self.write(self.random.choice("aaabcd"))
        elif choice < 0.65:
            self.read(self.random.choice(DESTS))
        elif choice < 0.75:
            self.delete(self.random.choice(DESTS))
        elif choice < 0.8:
            self.trim_source()
        elif choice < 0.85:
            self.world.advance_ms(self.random.choice([1, 20, 1100]))
        else:
            self.end_a_life()

    def records(self) -> list[dict[str, Any]]:
        made = []
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            self.number += 1
            data = f"r{self.number}" + "x" * self.random.choice([0, 10, 300])
            made.append({"data": data, "tag": self.random.choice("mno")})
        return made

    def write(self, topic: str) -> None:
        made = self.records()
        self.world.write_records(topic, made)
        for reached in REACHED[topic]:
            self.expected[reached] |= {record["data"] for record in made}

    def read(self, topic: str) -> None:
        found: dict[int, str] = {}
        told: set[int] = set()
        cursor = 0
        while True:
            page = self.world.diff(topic, cursor, limit=1000)
            if page["tombstone"] is not None:
                told |= set(range(page["tombstone"]["gap_from"], page["tombstone"]["gap_to"] + 1))
            found |= {record["$seq"]: record["data"] for record in page["records"]}
            cursor = page["next_from_seq"]
            if page["caught_up"]:
                break
        self.check_told(topic, told, found)
        seen = self.seen[topic]
        for seq, data in found.items():
            assert seq not in self.gone[topic] or self.lost_tail, f"{topic} {seq} ({data}) came back"
            assert seen.get(seq, data) == data, f"{topic} {seq}: another record took its place"
        if not self.lost_tail:
            assert seen.keys() <= found.keys(), f"{topic} lost {seen.keys() - found.keys()}"
            assert len(set(found.values())) == len(found), "a copy came twice"
            assert self.expected[topic] <= set(found.values()), f"{topic} misses what was acknowledged"
        self.expected[topic].clear()
        self.seen[topic] = found

    def check_told(self, topic: str, told: set[int], found: dict[int, str]) -> None:
        """Check `told`, the seqs that tombstones cover."""
        assert self.lost_tail or not told, f"{topic}: told of {sorted(told)[:5]}"

    def delete(self, topic: str) -> None:
        """In a destination, what a reader saw there; what is to be forwarded from it is read there first."""
        for reached in reversed(REACHED[topic]):
            self.read(reached)
        seen = self.seen[topic]
        if self.random.random() < 0.5 and seen:
            bound = self.random.choice(sorted(seen))
            gone = {seq for seq in seen if seq < bound}
            self.world.delete(topic, before_seq=bound)
        else:
            tag = self.random.choice("mno")
            page = self.world.diff(topic, 0, limit=1000, include_tags=True)
            if not page["caught_up"]:
                return
            gone = {record["$seq"] for record in page["records"] if record["$tag"] == tag}
            assert self.world.delete(topic, match=tag)["deleted"] == len(gone)
        self.gone[topic] |= gone
        self.seen[topic] = {seq: data for seq, data in seen.items() if seq not in gone}

    def trim_source(self) -> None:
        """After everything was forwarded the source forgets nearly all of it."""
        for topic in DESTS:
            self.read(topic)
        self.world.put("a", durability=self.classes["a"], cap_records=2)
        self.world.delete("a", match="m")
        self.world.put("a", durability=self.classes["a"])

    def end_a_life(self) -> None:
        kind = self.random.choice(["crash", "power_cut", "restart"])
        shards = self.random.choice([1, 2, 3]) if self.random.random() < 0.3 else self.world.config.wal_shards
        if kind == "restart":
            self.world.restart(wal_shards=shards)
            return
        pending: list[Connection] = []
        for _ in range(self.random.randrange(4)):
            made = self.records()
            topic = self.random.choice("aabc")
            pending.append(self.world.ask("POST", f"/v0/topics/{topic}", {"records": made}))
            if self.random.random() < 0.5:
                pending.append(self.world.ask("POST", "/v0/topics/b/diff", {}))
            self.world.advance_us(self.random.choice([0, 50, 300, 2000]))
        self.world.advance_us(self.random.choice([0, 10, 100, 1000, 15_000]))
        if kind == "power_cut":
            self.lost_tail = self.lost_tail or "disk" in self.classes.values()
            self.world.power_cut()
        else:
            self.world.crash()
        self.world.start(wal_shards=shards)

    # --- what must be true at the end --------------------------------------------------------------------------------
    def check(self) -> None:
        world = self.world
        for topic in DESTS:
            self.read(topic)
        for name, _, dest in ROUTERS:
            assert world.request("GET", f"/v0/routers/{name}").status == 200, dest
        if self.lost_tail:
            return
        marks = {topic: world.diff(topic, 0, limit=1)["head_seq"] for topic in DESTS}
        world.write("a", "the end")
        for topic in DESTS:
            assert world.data(topic, marks[topic]) == ["the end"], "each is forwarded once, and nothing else came along"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("durability", ["fsync", "disk", "mixed"])
@pytest.mark.parametrize("seed", seeds(2))
def test_destinations_stay_what_their_readers_saw(seed: int, durability: str, guarantee: str) -> None:
    """R-RTR-16, R-RTR-2, R-DUR-2, R-DUR-9: direct writes, deletes, trims, checkpoints, kills and power cuts."""
    story = Story(seed * 7919 + 1, durability, shards=1 + seed % 3, guarantee=guarantee)
    for _ in range(60):
        story.step()
    story.check()
    story.world.close()


class Overtaken(Story):
    """Now and then the source evicts records before they are forwarded, and its destinations have holes for them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.holes = dict.fromkeys(TOPICS, 0)
        self.told: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        super().__init__(*arguments, **options)

    def step(self) -> None:
        if self.random.random() >= 0.12:
            super().step()
            return
        for topic in DESTS:
            self.read(topic)
        self.world.put("a", durability=self.classes["a"], cap_records=2)
        made = [record for _ in range(3) for record in self.records()]
        self.world.write_records("a", made)
        self.world.put("a", durability=self.classes["a"])
        for topic in TOPICS:
            self.expected[topic] |= {record["data"] for record in made[-2:]}
            self.holes[topic] += len(made) - 2
        if self.random.random() < 0.5:
            self.end_a_life()

    def check_told(self, topic: str, told: set[int], found: dict[int, str]) -> None:
        assert not told & found.keys(), f"{topic}: told that {sorted(told & found.keys())[:5]} are lost"
        if not self.lost_tail:
            assert self.told[topic] <= told, f"{topic}: not told of {sorted(self.told[topic] - told)[:5]} any more"
            least = self.holes[topic] if topic in "bc" else 0  # d: a gap between records of c is none of its losses
            assert least <= len(told), f"{topic}: told of {len(told)}, {least} were lost"
            assert self.holes[topic] or not told, f"{topic}: told of {sorted(told)[:5]}"
        self.told[topic] = told


@pytest.mark.parametrize("durability", ["fsync", "disk", "mixed"])
@pytest.mark.parametrize("seed", seeds(2))
def test_holes_of_what_a_source_lost_are_told_in_every_life(seed: int, durability: str) -> None:
    """R-RTR-16, R-RTR-4: a router's gap outlives every end of a life."""
    story = Overtaken(seed, durability, shards=1 + seed % 3, guarantee=("at_least_once", "exactly_once")[seed % 2])
    for _ in range(60):
        story.step()
    story.check()
    story.world.close()


class Cramped(Story):
    """Now and then the disk is full for a while, and checkpoints make do with what space there is."""

    def step(self) -> None:
        if self.random.random() >= 0.1:
            super().step()
            return
        disk = self.world.ring.disk
        disk.capacity_bytes = self.random.choice([0, disk.used_bytes + 20_000])
        self.world.advance_ms(3000)
        for topic in DESTS:
            self.world.request("POST", f"/v0/topics/{topic}/diff", {})
        self.number += 1
        self.world.request("POST", "/v0/topics/a", {"records": [{"data": f"f{self.number}", "tag": "m"}]})
        self.world.advance_ms(1500)
        self.world.free_disk()
        self.world.advance_ms(3000)


@pytest.mark.parametrize("seed", [14, 29, 31])
def test_destinations_stay_what_they_are_on_a_full_disk(seed: int) -> None:
    """R-RTR-16, R-DUR-16: only some shards' files are emptied then."""
    space = {"disk_low_water_bytes": 65_536, "disk_reserve_bytes": 65_536, "wal_file_bytes": 65_536}
    story = Cramped(seed, "fsync", shards=1 + seed % 3, **space)
    for _ in range(60):
        story.step()
    story.check()
    story.world.close()


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_rebuilt_directory_has_the_routers_and_what_they_forwarded(snapshots: bool) -> None:
    """R-RTR-16: with a sound snapshot and without; what is in segments, what is in the log by position, and what was
    deleted."""
    world = SimWorld(**(sim_options() | {"wal_shards": 2}))
    world.start()
    for topic in "abc":
        world.put(topic, durability="fsync")
    for name, source, dest in (("ab", "a", "b"), ("bc", "b", "c")):
        assert world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}).status == 201
    for end in (world.restart, lambda: None):
        for number in range(5):
            world.write_records("a", [{"data": f"a{number}", "tag": str(number)}])
            assert world.data("c")[-1] == f"a{number}"
            world.write("b", f"b{number}")
        end()
    world.delete("b", match="3")
    before = [world.diff(topic)["records"] for topic in "abc"], world.request("GET", "/v0/routers").json["routers"]
    world.crash()
    disk = world.ring.disk
    for name in disk.list_directory("/srv/topics/snapshots")[snapshots:]:
        disk.unlink(f"/srv/topics/snapshots/{name}")
    loop = Loop(world.ring, world.ring.clock)
    loop.run_task(rebuild(loop, "/srv/topics"))
    world.crash()
    world.start()
    assert before == (
        [world.diff(topic)["records"] for topic in "abc"],
        world.request("GET", "/v0/routers").json["routers"],
    )
    world.write("a", "later")
    assert (world.data("b")[-1], world.data("c")[-1]) == ("later", "later")
    world.close()


def _rebuilt_behind_its_copies(world: SimWorld) -> None:
    """A directory of which only segments and packs are left: the router stands where it stood when those were begun."""
    world.crash()
    disk = world.ring.disk
    shards = [f"wal/{name}" for name in disk.list_directory("/srv/topics/wal")]
    for directory in ("snapshots", *shards):
        for name in disk.list_directory(f"/srv/topics/{directory}"):
            disk.unlink(f"/srv/topics/{directory}/{name}")
    loop = Loop(world.ring, world.ring.clock)
    loop.run_task(rebuild(loop, "/srv/topics"))
    world.crash()
    world.start()


@pytest.mark.parametrize("former", [False, True], ids=["", "of a former build"])
@pytest.mark.parametrize("run_bytes", [0, 1 << 20], ids=["segments", "packs"])
def test_copies_are_known_by_their_frames_after_restarts_merges_and_a_rebuild(
    run_bytes: int, former: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-EO-3: copies above the position are not created again, and forged ones are no copies. Of a build that did not
    mark its copies only the meta counts."""
    world = SimWorld(5, **(sim_options() | {"pack_run_bytes": run_bytes, "segment_max_events": 1000}))
    if former:
        monkeypatch.setattr(forward, "EXACTLY_ONCE", "never")
        monkeypatch.setattr(Router, "unmarked", property(lambda _self: UNKNOWN, lambda _self, _value: None))
    world.start()
    for topic in "ab":
        world.put(topic, durability="fsync")
    route = {"source": "a", "dest": "b", "guarantee": "exactly_once"}
    assert world.request("PUT", "/v0/routers/ab", route).status == 201
    for number in range(1, 9):
        world.write("a", number)
        assert world.data("b")[-1] == number
        world.restart()
    evidence_of = world.diff("b")["records"][0]["meta"]["_topics_router"]
    forged = evidence_of | {"idempotency_key": evidence_of["idempotency_key"].removesuffix("1") + "10"}
    world.write_records("b", [{"data": "forged", "meta": {"_topics_router": forged}}])
    world.restart()
    monkeypatch.undo()
    _rebuilt_behind_its_copies(world)
    world.write("a", 9, 10)
    copied = [9] if former else [9, 10]
    assert world.data("b") == [*range(1, 9), "forged", *copied]
    world.write("b", "direct")
    world.restart()
    world.write("a", 11)
    assert world.data("b") == [*range(1, 9), "forged", *copied, "direct", 11]
    world.close()


@pytest.mark.parametrize("moment_us", [0, 500, 31_000, 45_000])
@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_end_of_a_chain_keeps_its_records_when_the_middle_is_deleted(
    shards: int, made_again: bool, moment_us: int
) -> None:
    """R-RTR-16, R-RTR-11, R-DUR-3: after a kill, before and in the middle of a checkpoint."""
    world = SimWorld(3, wal_shards=shards, checkpoint_every_ms=30, checkpoint_wal_bytes=24_000)
    world.start()
    for name, source, dest in (("ab", "a", "b"), ("bc", "b", "c")):
        assert world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}).status == 201
    world.write("a", 1, 2, 3)
    assert world.data("c") == [1, 2, 3]
    world.restart()
    world.write("a", 4)
    assert world.data("c") == [1, 2, 3, 4]
    world.drop("b")
    if made_again:
        world.write("b", "new")
    world.advance_us(moment_us)
    world.crash_and_start()
    assert world.data("c") == [1, 2, 3, 4]
    world.close()


@pytest.mark.parametrize("direct", [0, 3])
def test_a_router_that_forwards_exactly_once_goes_on_at_once_after_a_kill(
    monkeypatch: pytest.MonkeyPatch, direct: int
) -> None:
    """R-RTR-5, R-EO-3: within 100 ms of the start, without looking at the copies that the log says it made itself."""
    looked = 0

    def counted(*arguments: Any) -> Any:
        nonlocal looked
        looked += 1
        return FrameRead(*arguments)

    monkeypatch.setattr(evidence, "FrameRead", counted)
    world = SimWorld(3, wal_shards=3)
    world.start()
    body = {"source": "a", "dest": "b", "guarantee": "exactly_once"}
    assert world.request("PUT", "/v0/routers/ab", body).status == 201
    for part in range(4):
        world.write("a", *range(500 * part, 500 * part + 500))
        assert world.state("b")["count"] == 500 * (part + 1) + (direct if part > 1 else 0)
        if part == 1 and direct:
            world.write_records("b", [{"data": "direct", "meta": {"k": 1}}] * direct)
    world.write("a", "last")
    looked = 0
    world.crash_and_start()
    world.advance_ms(100)
    heads = {row["topic"]: row["head_seq"] for row in world.request("GET", "/v0/topics").json["topics"]}
    assert heads == {"a": 2001, "b": 2001 + direct}
    assert looked == 0, "neither at its copies nor at what is none"
    assert world.data("b", 1999 + direct) == [1999, "last"]
    world.close()
