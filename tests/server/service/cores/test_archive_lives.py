"""Servers that are the cores of one, and archive what they have while clients write (R-CORE-16, R-CORE-18).

Goal: a restore to a time has one instant of all cores. What was acknowledged by then is in it; what was written in the
knowledge of a record is in it with that record; and no copy of a router is there without its original.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.amount import seeds, stride
from tests.server.service.cores.test_backup_lives import CORES, Alternating, Restored, check_restored, made_disk, routed
from tests.server.service.two_cores import TwoCores, Writer, all_written, request, write
from tests.sim import SimRing
from topics.config import tiny_config
from topics.engine.recovery.known_seqs import IdAndHead
from topics.engine.recovery.time_of_record import time_of_record
from topics.errors import UsageError
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.store.archive.joint_point import Joint, copy_joint, joint_at, joint_points, joints_of
from topics.store.archive.joint_timeline import JOINT_NAME, choose_joint, named_joint
from topics.store.archive.timelines import find_timelines
from topics.store.cores.core_directories import core_config, read_cores
from topics.store.cores.new_id import draw_new_id
from topics.store.disk.whole_files import list_if_there, read_file, replace_file

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = "/archive"


class Moment(NamedTuple):
    """The records that were acknowledged by a time."""

    at_ms: int
    chain: int
    written: list[int]


class Archived(TwoCores):
    """Two cores with one archive, a router from each to the other one, and clients that write meanwhile."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.paces = [1] * CORES
        ring = SimRing(0, disk=made_disk())
        loop = Loop(ring, ring.clock)
        layout = loop.run_task(read_cores(loop.files, "/data"))
        assert layout is not None
        loop.run_task(choose_joint(loop, layout))
        self.joint = loop.run_task(named_joint(loop.files, layout))
        super().__init__(
            seed, cores=CORES, data=(ring.kill(), "/data"), archive_every_ms=10, durability="fsync", **settings
        )
        self.sources, self.dests = routed(self)
        self.chain = Alternating(self)
        self.writers = [Writer(self, source, 200) for source in self.sources]
        self.paces[seed % CORES] = 5
        self.moments: list[Moment] = []

    def begin_anew(self) -> None:
        """Start both with another joint timeline, as with another number of cores, of which nothing is here."""
        for core, ring in enumerate(self.rings):
            self.rings[core] = ring.next_life(power_cut=False)
        ring = SimRing(0, disk=self.rings[0].disk)
        loop = Loop(ring, ring.clock)
        layout = loop.run_task(read_cores(loop.files, "/data"))
        assert layout is not None
        path = f"/data/{JOINT_NAME}"
        words = loop.run_task(read_file(loop.files, path)).split()
        loop.run_task(replace_file(loop.files, path, b" ".join([*words[:2], b"another"])))
        loop.run_task(choose_joint(loop, layout))
        self.joint = loop.run_task(named_joint(loop.files, layout))
        for core in range(CORES):
            self._start(core)
        self.run(lambda: self.is_ready)

    def settings_of(self, core: int) -> dict[str, Any]:
        config = core_config(replace(tiny_config("/data"), archive_dir=ROOT), core, self.joint)
        return self._settings | {"archive_dir": config.archive_dir}

    def next_server(self) -> Server:
        """One makes fewer passes than the other one, so that they archive at other times."""
        return self.rng.choices(self.servers, self.paces)[0]

    @property
    def now_ms(self) -> int:
        return self.rings[0].clock.now_ms()

    def act(self) -> None:
        """Have the clients continue. What is acknowledged now was written in this millisecond, or before."""
        self.chain.act()
        all_written(self.writers)
        if not self.moments or self.now_ms > self.moments[-1].at_ms:
            self.moments.append(Moment(self.now_ms, self.chain.next, [writer.written for writer in self.writers]))

    def archived(self, ms: int = 40, dies: int = -1) -> None:
        """Write for some ms, and until all of that is archived. dies: the core that may be killed."""
        until_ms = self.now_ms + ms

        def is_there() -> bool:
            self.act()
            return all(self.has_archived(core, until_ms) for core in range(CORES))

        self.run(is_there, dies)

    def has_archived(self, core: int, ms: int) -> bool:
        """Whether a core can be restored to a time, as far as it knows."""
        engine = self.servers[core].engine
        state = None if engine is None else engine.archive.state
        if state is None or (state.holes and not self.cuts_power):
            return False
        return bool(state.bases) and state.upto_ms > ms and all(end_ms for _begin_ms, end_ms in state.holes)

    def joints(self) -> list[Joint]:
        loop = Loop(SimRing(3, disk=self.rings[0].disk.copy()), self.rings[0].clock)
        return loop.run_task(joints_of(loop, loop.run_task(find_timelines(loop, ROOT))))

    def restored(self, at_ms: int) -> Restored:
        """Servers on a directory that was made of the archive. Raises as a restore does."""
        ring = SimRing(1, disk=self.rings[0].disk.copy())
        loop = Loop(ring, ring.clock)
        joint, at_ms = joint_at(loop.run_task(joints_of(loop, loop.run_task(find_timelines(loop, ROOT)))), at_ms)
        points = loop.run_task(joint_points(loop, joint, at_ms))
        loop.run_task(copy_joint(loop, joint, points, "/restored"))
        loop.run_task(draw_new_id(loop, "/restored"))
        return Restored(ring.kill())

    def time_of(self, topic: str, seq: int) -> tuple[int, int]:
        """The time of a record, and the last seq of its topic then. It was written after the bases."""
        heads = {}
        for server in self.servers:
            assert server.engine is not None
            topics = server.engine._core.registry.all_but_staging()
            heads |= {each.name: IdAndHead(each.id, 0) for each in topics}
        loop = Loop(SimRing(3, disk=self.rings[0].disk.copy()), self.rings[0].clock)
        joints = loop.run_task(joints_of(loop, loop.run_task(find_timelines(loop, ROOT))))
        try:
            _joint, at_ms = loop.run_task(time_of_record(loop, joints, topic, seq, lambda _base: heads))
        except UsageError as error:
            seq = int(str(error).partition("name seq ")[2].partition(",")[0])
            _joint, at_ms = loop.run_task(time_of_record(loop, joints, topic, seq, lambda _base: heads))
        return at_ms, seq

    def check(self, at_ms: int) -> None:
        """Restore to a time, and compare it with what was acknowledged by then."""
        moment = [moment for moment in self.moments if moment.at_ms < at_ms][-1]
        check_restored(self, self.restored(at_ms), moment.chain, moment.written)


@pytest.mark.parametrize("seed", seeds(8))
def test_a_restore_to_any_time_has_one_instant_of_all_cores(seed: int) -> None:
    world = Archived(seed)
    world.archived()
    world.archived()
    (joint,) = world.joints()
    ((begin_ms, end_ms),) = joint.times
    assert end_ms - begin_ms > 30
    for at_ms in sorted({world.rng.randint(begin_ms + 1, end_ms) for _ in range(3)} | {end_ms}):
        world.check(at_ms)
    with pytest.raises(UsageError, match=r"not have it of all cores.*or earlier"):
        world.restored(end_ms + 1)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_restore_up_to_a_record_has_all_cores_of_its_millisecond(seed: int) -> None:
    """The record is the last of its topic, or the one that is named in its place."""
    world = Archived(seed)
    world.archived()
    begin_ms = world.now_ms
    world.archived()
    (joint,) = world.joints()
    moments = [moment for moment in world.moments if begin_ms < moment.at_ms < joint.times[-1][1]]
    core = seed % CORES
    written = [moment.written[core] for moment in moments]
    seqs = sorted({world.rng.randint(written[0] + 1, written[-1]) for _ in range(5)})
    for seq in seqs:
        at_ms, last = world.time_of(world.sources[core], seq)
        assert begin_ms <= at_ms <= joint.times[-1][1]
        made = world.restored(at_ms)
        assert seq <= last == len(made.data(world.sources[core], core)), "or of one commit"
        world.check(at_ms)


def test_an_idle_core_does_not_hold_the_end_of_the_archive_back() -> None:
    world = Archived(1)
    world.archived()
    world.run(lambda: all_written(world.writers))
    topic = world.topic_of(0, "busy")
    for number in range(3):
        tcp, begin_ms = world.connect(0), world.now_ms
        assert world.ask(tcp, write(topic, number)).status in {200, 201}
        now_ms = world.now_ms
        world.run(lambda now_ms=now_ms: world.now_ms > now_ms + 60)
        assert world.joints()[0].times[-1][1] >= begin_ms


def test_a_time_that_came_twice_is_refused() -> None:
    world = Archived(2)
    world.archived(200)
    before_ms = world.now_ms
    world.rings[0].clock.step_wall_ms(-120)
    back_ms = world.now_ms
    world.archived(150)
    (_, first_end), (second_begin, second_end) = world.joints()[0].times
    assert back_ms - 30 < first_end < back_ms
    assert before_ms <= second_begin < before_ms + 30
    for at_ms in (back_ms, before_ms - 60, before_ms):
        with pytest.raises(UsageError, match=r"more than once: name .* or earlier, or .* or later"):
            world.restored(at_ms)
    moments = world.moments
    world.moments = [moment for moment in moments if moment.at_ms > before_ms]
    world.check(second_end)
    world.moments = [moment for moment in moments if moment.at_ms < back_ms]
    world.check(first_end)


@pytest.mark.parametrize("seed", seeds(2))
def test_a_backup_of_all_is_made_beside_it(seed: int) -> None:
    world = Archived(seed, backup_dir="/backups", archive_base_every_ms=5)
    world.archived()
    before = [len(timelines[-1].bases) for timelines in world.joints()[0].cores]
    tcp = world.connect(0)
    while (answer := world.ask(tcp, request("POST", "/v0/backups", {}))).status == 409:
        assert answer.code == "backup_running", "core 0 makes a base"
    assert answer.status == 200
    engine = world.servers[0].engine
    assert engine is not None

    def has_ended() -> bool:
        world.act()
        return engine.backups.progress.state not in {"none", "running"}

    world.run(has_ended)
    assert engine.backups.progress.state == "done", engine.backups.progress
    world.archived()
    (joint,) = world.joints()
    made = [len(timelines[-1].bases) - count for timelines, count in zip(joint.cores, before, strict=True)]
    assert min(made) > 0, "each made a base beside the backup, or after it"
    world.check(joint.times[-1][1])


@pytest.mark.parametrize("cuts_power", [False, True])
@pytest.mark.parametrize("dies", range(CORES))
@pytest.mark.parametrize("seed", seeds(2))
def test_a_core_may_end_at_any_time_and_what_was_archived_can_be_restored(
    seed: int, dies: int, cuts_power: bool
) -> None:
    for effects in range(100, 2100, stride(400)):
        world = Archived(seed)
        world.cuts_power = cuts_power
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.archived(dies=dies)
        world.archived(dies=dies)
        if not world.killed:
            assert effects > 100, "there was a run to cut short"
            return
        for begin_ms, end_ms in world.joints()[0].times:
            world.check(world.rng.randint(begin_ms + 1, end_ms))
            world.check(end_ms)


def removed_by_now(seed: int, effects: int) -> tuple[Archived, int]:
    """Cores that have removed the joint timeline of before. Core 0 ends after so many effects, unless that is 0.

    Return also how many effects it took, of one that does not end.
    """
    world = Archived(seed, archive_base_every_ms=5, archive_retain_ms=5)
    world.archived()
    world.begin_anew()
    ring = world.rings[0]
    before = ring.effects
    if effects:
        ring.stop_at(before + effects)

    def is_gone() -> bool:
        world.act()
        return list_if_there(world.servers[1].loop.files, ROOT) == [world.joint]

    world.run(is_gone, dies=0)
    return world, ring.effects - before


@pytest.mark.parametrize("seed", seeds(2))
def test_core_0_may_end_while_what_was_before_is_removed(seed: int) -> None:
    """It is removed in the end, and all cores lead back as far by then."""
    _, last = removed_by_now(seed, 0)
    for effects in range(last, max(0, last - 120), -stride(20)):
        world, _ = removed_by_now(seed, effects)
        assert world.killed == [0]
        (joint,) = world.joints()
        assert joint.times[0][0] <= world.now_ms - 5
        world.check(world.rng.randint(*joint.times[-1]))
