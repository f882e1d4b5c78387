"""Servers that are the cores of one, and back up all that they have while clients write (R-CORE-14).

Goal: a backup has one instant of all cores. What was acknowledged before the request is in it; what was written in the
knowledge of a record is in it with that record; and no copy of a router is there without its original.
"""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any, Protocol

import pytest

from tests.amount import seeds, stride
from tests.server.service.two_cores import TwoCores, Writer, all_written, request
from tests.sim import SimClient, SimDisk, SimRing
from topics.common.values.backup_result import BackupProgress
from topics.config import tiny_config
from topics.engine.moves.set_cores import set_cores
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.store.backup.backup_manifest import PARTIAL, backup_names
from topics.store.backup.restore_backup import check_backup, copy_backup
from topics.store.cores.new_id import draw_new_id
from topics.store.disk.whole_files import list_if_there

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = "/backups"
CORES = int(os.environ.get("TOPICS_TEST_CORES", "2"))
"""`make mirror` runs these tests with three, too, and those of archives and mirrors."""


def made_disk() -> SimDisk:
    """A disk with a data directory of two cores."""
    ring = SimRing(0)
    loop = Loop(ring, ring.clock)
    ring.make_directory("/data")
    loop.run_task(loop.files.sync_directory("/"))
    loop.run_task(set_cores(loop, tiny_config("/data"), CORES))
    return ring.kill()


class Alternating:
    """A client that writes the next number to the other core once the one before is acknowledged."""

    def __init__(self, world: TwoCores) -> None:
        self.world = world
        self.topics = [world.topic_of(core, "chain") for core in range(CORES)]
        self.next = 0
        self._tcp: SimClient | None = None
        self._received = b""

    def act(self) -> None:
        if self._tcp is None:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return
            self._received = b""
            body = {"records": [{"data": self.next}]}
            path = f"/v0/topics/{self.topics[self.next % CORES]}"
            self._tcp.send(request("POST", path, body, f"Idempotency-Key: {self.next}", "Connection: close"))
        self._received += self._tcp.receive()
        if self._tcp.ended:
            self.next += self._received.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201"))
            self._tcp = None


def routed(world: TwoCores) -> tuple[list[str], list[str]]:
    """Make topics of class `fsync` and a router from each core to the other one. Return sources and destinations."""
    sources = [world.topic_of(core, "s") for core in range(CORES)]
    dests = [world.topic_of((core + 1) % CORES, "d") for core in range(CORES)]
    for topic in (*sources, *dests):
        made = world.ask(world.connect(0), request("PUT", f"/v0/topics/{topic}", {"durability": "fsync"}))
        assert made.status == 201
    for number, (source, dest) in enumerate(zip(sources, dests, strict=True)):
        router = {"source": source, "dest": dest}
        assert world.ask(world.connect(0), request("PUT", f"/v0/routers/r{number}", router)).status == 201
    return sources, dests


class Backed(TwoCores):
    """Two cores with one directory, a router from each to the other one, and clients that write meanwhile."""

    def __init__(self, seed: int) -> None:
        self.paces = [1] * CORES
        super().__init__(seed, cores=CORES, data=(made_disk(), "/data"), backup_dir=ROOT, durability="fsync")
        self.sources, self.dests = routed(self)
        self.chain = Alternating(self)
        self.writers = [Writer(self, source, 200) for source in self.sources]
        self.paces[seed % CORES] = 5
        self.tcp = self.connect(self.rng.randrange(CORES))
        """The connection of the first request for a backup."""

    def next_server(self) -> Server:
        """One makes fewer passes than the other one, so that what they do for a backup ends at other times."""
        return self.rng.choices(self.servers, self.paces)[0]

    def act(self) -> None:
        self.chain.act()
        all_written(self.writers)

    def backed_up(self, dies: int = -1) -> dict[str, Any]:
        """Have a backup made, while the clients write; return its state. dies: the core that may be killed."""
        killed, ring = len(self.killed), self.rings[dies]
        tcp = self.connect(self.rng.randrange(CORES)) if dies < 0 else self.tcp
        before = self.progress
        tcp.send(request("POST", "/v0/backups", {}))

        def has_ended() -> bool:
            self.act()
            now = self.progress
            return now is not None and now.state != "running" and (now != before or len(self.killed) > killed)

        self.run(has_ended, dies)
        ring.stop_at(0)
        self.run(partial(getattr, self, "is_ready"))
        tcp = self.connect(self.rng.randrange(CORES))
        state: dict[str, Any] = self.ask(tcp, request("GET", "/v0/backups", {})).json["backup"]
        return state

    @property
    def progress(self) -> BackupProgress | None:
        engine = self.servers[0].engine
        return None if engine is None else engine.backups.progress


class Routed(Protocol):
    """Servers with a chain of records, and with a router from each core to the other one."""

    chain: Alternating
    sources: list[str]
    dests: list[str]


class Restored(TwoCores):
    """Servers on a directory that was restored."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(2, cores=CORES, data=(disk, "/restored"))

    @classmethod
    def of(cls, world: Backed, path: str) -> Restored:
        """Return those of a backup."""
        ring = SimRing(1, disk=world.rings[0].disk.copy())
        loop = Loop(ring, ring.clock)
        assert loop.run_task(check_backup(loop, path)) == []
        loop.run_task(copy_backup(loop, path, "/restored"))
        loop.run_task(draw_new_id(loop, "/restored"))
        return cls(ring.kill())

    def data(self, topic: str, core: int) -> list[Any]:
        """The records of a topic. core: that of the connection."""
        data, tcp, page = list[Any](), self.connect(core), {"next_from_seq": 0, "caught_up": False}
        while not page["caught_up"]:  # a page ends before seqs that a power cut has left out
            asked = {"limit": 1000, "from_seq": page["next_from_seq"]}
            answer = self.ask(tcp, request("POST", f"/v0/topics/{topic}/diff", asked))
            if answer.status == 404:
                break
            page = answer.json
            data += [record["data"] for record in page["records"]]
        return data

    def stored(self, topic: str) -> int:
        """How many records there are before a reader has routers catch up."""
        engines = [server.engine for server in self.servers]
        states = [state for engine in engines if engine is not None for state in engine.topic_states("", (), 100)]
        return next((state.count for state in states if state.name == topic), 0)


def check(world: Backed, path: str, chain: int, written: list[int]) -> None:
    """Restore a backup, and compare it with what was acknowledged before it was asked for."""
    check_restored(world, Restored.of(world, path), chain, written)


def check_restored(world: Routed, made: Restored, chain: int, written: list[int]) -> None:
    """Compare what was restored with what was acknowledged by then."""
    found = sorted(number for topic in world.chain.topics for number in made.data(topic, 0))
    assert found == list(range(len(found))), "a record is there without one that its client knew"
    assert len(found) >= chain
    for core, (source, dest) in enumerate(zip(world.sources, world.dests, strict=True)):
        records = made.data(source, core)
        assert records == list(range(len(records)))
        assert len(records) >= written[core]
        assert made.stored(dest) <= len(records), "a copy without its original"
        assert made.data(dest, core) == records, "each is copied once, and in order"


def complete(world: Backed) -> list[str]:
    loop = Loop(SimRing(3, disk=world.rings[0].disk.copy()), world.rings[0].clock)
    return [f"{ROOT}/{name}" for name in backup_names(loop.files, ROOT)]


@pytest.mark.parametrize("seed", seeds(12))
def test_a_backup_of_cores_that_are_written_to_has_one_instant(seed: int) -> None:
    world = Backed(seed)
    passes = random.Random(seed).randrange(400)
    for _ in range(2):
        for _ in range(passes):
            world.act()
            world.next_server().loop.run_pass(20_000)
        acknowledged = world.chain.next, [writer.written for writer in world.writers]
        made = world.backed_up()
        assert made["state"] == "done", made
        assert world.chain.next > acknowledged[0], "the clients wrote meanwhile"
        check(world, made["path"], *acknowledged)
    assert complete(world)[-1] == made["path"]


def test_what_has_not_changed_since_the_backup_before_is_shared_with_it() -> None:
    world = Backed(1)
    world.run(lambda: all_written(world.writers))
    made = [world.backed_up()]
    for _ in range(2):
        world.rings[0].clock.advance_ns(3_000_000_000)  # a file that has just been written may be written again
        made.append(world.backed_up())
    assert [each["state"] for each in made] == ["done"] * 3
    assert (made[0]["linked_files"], made[2]["linked_files"] > CORES) == (0, True)
    assert made[2]["copied_bytes"] < made[0]["copied_bytes"]


def test_a_clock_that_is_set_back_meanwhile_ends_it_with_a_sentence() -> None:
    world = Backed(2)
    act = world.act

    def set_back() -> None:
        world.rings[0].clock.step_wall_ms(-200)
        act()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world, "act", set_back)
        assert "the clock was set back" in world.backed_up()["error"]
    assert complete(world) == []
    assert world.backed_up()["state"] == "done"


@pytest.mark.parametrize("cuts_power", [False, True])
@pytest.mark.parametrize("dies", range(CORES))
@pytest.mark.parametrize("seed", seeds(2))
def test_a_core_may_end_amid_a_backup_and_what_is_there_is_whole(seed: int, dies: int, cuts_power: bool) -> None:
    for effects in range(1, 2000, stride(50)):
        world = Backed(seed)
        world.cuts_power = cuts_power
        acknowledged = world.chain.next, [writer.written for writer in world.writers]
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        state = world.backed_up(dies)["state"]
        assert state == "done" or world.killed
        for path in complete(world):
            check(world, path, *acknowledged)
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
        again = world.backed_up()
        assert again["state"] == "done", again.get("error")
        check(world, again["path"], *acknowledged)
        names = list_if_there(world.servers[0].loop.files, ROOT)
        assert not [name for name in names if name.endswith(PARTIAL)]
    raise AssertionError("it never ran to its end")
