"""A mirror of servers that are the cores of one, while clients write (R-CORE-19).

Goal: a promotion has one instant of all cores, which is the one that the mirror has stated, or later.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.amount import seeds, stride
from tests.cli.commands.command_runs import run
from tests.server.service.cores.mirrored_cores import MIRROR, HttpArchive, Mirrored
from tests.server.service.cores.test_backup_lives import CORES
from topics.common.values.archive_state import ArchiveState
from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, NoAnswerError, RequestError, StorageError, UsageError
from topics.store.archive.archive_note import BASES, timeline_names
from topics.store.archive.archiver import Archiver
from topics.store.backup.backup_files import NOTE_NAME
from topics.store.backup.backup_manifest import MANIFEST_NAME, backup_names, read_manifest
from topics.store.backup.free_places import FOLLOWED_NAME
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.disk.whole_files import read_file, replace_file
from topics.store.mirror.mirror import EMPTY
from topics.store.mirror.promotion import PROMOTED_NAME

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("seed", seeds(4))
def test_a_promotion_has_the_instant_that_the_mirror_states(seed: int) -> None:
    world = Mirrored(seed)
    for _ in range(3):
        world.catch_up()
        assert world.check_promoted() == world.mirror.end.upto_ms
    assert not world.mirror.end.holes


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_mirror_may_end_at_any_time(power_cut: bool) -> None:
    world = Mirrored(1)
    world.catch_up()
    world.write_on(30)
    passes = 1
    while passes < 200:
        world.killed_after(passes, power_cut=power_cut)
        world.check_promoted()
        world.open()
        passes += stride(20)
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms


@pytest.mark.parametrize("power_cut", [False, True])
def test_the_mirror_may_end_before_it_has_a_time_of_all(power_cut: bool) -> None:
    for passes in range(1, 300, stride(40)):
        world = Mirrored(2)
        world.killed_after(passes, power_cut=power_cut)
        if world.stated_ms:
            world.check_promoted()
        world.open()
        world.catch_up()
        assert world.check_promoted() == world.mirror.end.upto_ms


@pytest.mark.parametrize("dies", range(CORES))
def test_a_core_may_end_while_it_is_followed(dies: int) -> None:
    for effects in range(50, 1000, stride(200)):
        world = Mirrored(3)
        world.catch_up()
        world.dies = dies
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.catch_up()
        world.check_promoted()
        world.write_on(20)
        world.catch_up()
        assert world.check_promoted() == world.mirror.end.upto_ms


@pytest.mark.parametrize("away", range(CORES))
def test_the_others_are_followed_while_one_core_is_away(away: int) -> None:
    world = Mirrored(4)
    world.catch_up()
    world.away = {away}
    world.archived()
    with pytest.raises(NoAnswerError, match=f"core {away}"):
        world.step()
    before_ms = world.mirror.end.upto_ms  # all that the mirror has of the core that is away
    copied = world.mirror.end.copied_bytes
    world.archived()
    with pytest.raises(NoAnswerError, match=f"core {away}"):
        world.step()
    assert world.mirror.end.copied_bytes > copied
    assert world.mirror.end.upto_ms == before_ms == world.check_promoted()
    world.away = set()
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms > before_ms


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_base_is_copied_without_pauses_while_one_core_is_away(is_silent: bool) -> None:
    """One that does not answer at all is asked half of the time at most."""
    world = Mirrored(10)
    world.archived()
    world.away, world.is_silent, world.piece_ms, steps = {1}, is_silent, 3, 0
    with suppress(NoAnswerError):  # which core 1 is once the other one has no more
        while world.step():
            steps += 1
            assert [(core, str(error)) for core, error in world.mirror.end.failures] == [(1, "core 1 does not answer")]
    assert steps > 2, "a base takes more"
    assert bases_here(world, 0)
    assert world.asked[1] == (1 if is_silent else steps + 1)


@pytest.mark.parametrize("how", ["away", "fails", "empty"])
def test_core_0_is_away_as_any_other_one(how: str) -> None:
    world = Mirrored(11)
    world.catch_up()
    if how == "empty":
        world.empty = {0}
    else:
        world.away, world.fails_with = {0}, NoAnswerError if how == "away" else StorageError
    world.archived()
    copied = world.mirror.end.copied_bytes
    with suppress(NoAnswerError, StorageError):
        world.step()
    assert world.mirror.end.copied_bytes > copied
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_a_server_without_an_archive_yet_is_waited_for() -> None:
    world = Mirrored(20)
    world.archived()
    world.empty = {0}
    assert not world.step()
    assert world.mirror.end.waits_for == "the server's archive, which is empty yet"
    world.empty = set()
    world.catch_up()


def test_a_core_that_the_server_may_have_no_more_does_not_end_the_mirror() -> None:
    """Core 0, which each server has, names the log that there is now. So only it may refuse for good."""
    world = Mirrored(21)
    world.catch_up()
    world.fails_with = partial(RequestError, "invalid_request")
    for away, error in ((1, NoAnswerError), (0, RequestError)):
        world.away = {away}
        with pytest.raises(error, match=f"core {away}"):
            world.step()


@pytest.mark.parametrize("core", range(CORES))
def test_a_core_whose_note_is_missing_is_copied_anew(core: int) -> None:
    world = Mirrored(22)
    world.catch_up()
    world.mirror_loop.run_task(world.mirror_loop.files.unlink(f"{path_of(world, core)}/{NOTE_NAME}"))
    world.open()
    assert (world.mirror.end.upto_ms, world.mirror.end.waits_for) == (0, "a time that all cores have")
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_a_timeline_that_cannot_be_opened_is_tried_again() -> None:
    """The state of its log is not taken for that of the one before."""
    world = Mirrored(12)
    world.catch_up()
    before = f"{MIRROR}/{world.joint}"
    world.begin_anew()
    world.archived()
    world.open(world.joint)
    files, path = world.mirror_loop.files, f"{MIRROR}/{world.joint}"
    for directory in (path, f"{path}/core-00", f"{path}/core-01"):
        files.make_directory(directory)
    for name in (SLOT_MAP_NAME, NOTE_NAME):
        data = world.mirror_loop.run_task(read_file(files, f"{before}/{name}"))
        world.mirror_loop.run_task(replace_file(files, f"{path}/{name}", data))
    world.mirror_loop.run_task(replace_file(files, f"{path}/core-01/{FOLLOWED_NAME}", b"{"))
    for _ in range(2):
        with pytest.raises(CorruptError, match=f"/{world.joint}/core-01/{FOLLOWED_NAME}"):
            world.step()


def test_the_log_of_one_core_does_not_hold_up_that_of_the_other() -> None:
    world = Mirrored(13, wal_file_bytes=65536)
    world.catch_up()
    world.fill(4)
    world.archived()
    world.piece_ms, asked, steps = 3, list(world.asked), 1
    assert world.step(), "there is more"
    assert world.asked[1] > asked[1] + 1, "a piece of its log, too"
    while world.step():
        steps += 1
    assert steps > 2
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_a_log_that_grows_as_fast_as_it_is_copied_is_noted() -> None:
    world = Mirrored(15, wal_file_bytes=65536)
    world.catch_up()
    before_ms, world.piece_ms = world.mirror.end.upto_ms, 3
    for files in (4, 3, 3, 3):
        world.fill(files)
        assert world.step(), "there is more"
    assert world.mirror.end.upto_ms > before_ms
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_the_log_after_the_first_base_of_one_core_does_not_hold_up_the_other() -> None:
    world = Mirrored(16, wal_file_bytes=65536)
    world.archived()
    world.fill(4)
    world.piece_ms, waited_for = 3, set[str]()
    while world.step():
        waited_for.add(world.mirror.end.waits_for)
    assert any("the log after its base, which is being copied (core 0)" in each for each in waited_for)
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_cores_without_a_time_together_leave_what_was_followed_before() -> None:
    world = Mirrored(17, archive_base_every_ms=30)
    world.catch_up()
    before = world.mirror.end.timeline
    world.begin_anew()
    world.archived()
    world.open(world.joint)
    for away in (1, 0):
        world.away = {away}
        for _ in range(8):
            with suppress(NoAnswerError):
                world.step()
        world.archived(60)
    assert world.mirror.end.waits_for == "a time that all cores have"
    with pytest.raises(UsageError, match=f"Let the mirror run .*, or use `topics restore --from {MIRROR}/{before}`"):
        world.check_promoted()


def test_a_time_in_a_small_step_of_the_clock_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Steps of less than 100 ms are not noted, so log of after one may hide what is of before."""
    world = Mirrored(18)
    world.catch_up()
    world.archived(100)
    world.write_on(8)
    world.rings[0].clock.step_wall_ms(-80)
    world.write_on(15)
    with suppress(NoAnswerError):
        world.step()
    for path, data in world.mirror_ring.disk.contents(MIRROR).items():
        there = tmp_path / path[1:]
        (there if data is None else there.parent).mkdir(parents=True, exist_ok=True)
        if data is not None:
            there.write_bytes(data)
    mirror, to = tmp_path / "mirror", tmp_path / "new"
    part = f"{mirror}/{world.joint}/core-01"
    refused = run(["promote", "--from", part, "--to", str(to)], tmp_path)
    assert refused.code != 0
    assert f"a part of {mirror}, which has all cores: name that" in refused.err
    refused = run(["promote", "--from", str(mirror), "--to", str(to)], tmp_path)
    remedy = f"name another time, by `topics restore --from {mirror}/{world.joint} --at TIME`"
    assert (refused.code != 0, remedy in refused.err) == (True, True), refused
    assert not to.exists()
    assert not (mirror / PROMOTED_NAME).exists()
    before = time_text(world.mirror.end.upto_ms - 100)
    made = run(["restore", "--from", str(mirror / world.joint), "--at", before, "--to", str(to)], tmp_path)
    assert made.code == 0, made


def path_of(world: Mirrored, core: int) -> str:
    """The timeline of a core in the mirror."""
    files, path = world.mirror_loop.files, f"{MIRROR}/{world.joint}/core-{core:02}"
    (timeline,) = timeline_names(files, path)
    return f"{path}/{timeline}"


def bases_of(world: Mirrored, core: int) -> tuple[str, ...]:
    """The names of the bases in the archive of a core that the mirror would take."""
    engine = world.servers[core].engine
    state = engine.archive.state if engine is not None else None
    assert state is not None
    return state.bases


def bases_here(world: Mirrored, core: int) -> list[str]:
    return backup_names(world.mirror_loop.files, f"{path_of(world, core)}/{BASES}")


def newest_bases(world: Mirrored) -> list[str]:
    """Return the name of the newest base of each core in the mirror."""
    return [bases_here(world, core)[-1] for core in range(CORES)]


def taken_ms(world: Mirrored, core: int, at: int) -> int:
    """The time of a base of a core in the mirror. at: its index."""
    loop = world.mirror_loop
    path = f"{path_of(world, core)}/{BASES}/{bases_here(world, core)[at]}"
    return loop.run_task(read_manifest(loop.files, path)).taken_ms


def step_without(world: Mirrored, core: int) -> None:
    """Make a step while a core is away, which the mirror says."""
    world.away = {core}
    with pytest.raises(NoAnswerError, match=f"core {core}"):
        follow(world)


def follow(world: Mirrored) -> None:
    """Make steps until the mirror knows of no more."""
    for _ in range(200):
        if not world.step():
            return
    raise AssertionError(f"there is always more: {world.mirror.end}")


def damage(world: Mirrored, path: str) -> None:
    files = world.mirror_loop.files
    text = world.mirror_loop.run_task(read_file(files, path))
    world.mirror_loop.run_task(replace_file(files, path, text[: len(text) // 2]))


@pytest.mark.skipif(CORES > 2, reason="so many bases of more cores are not copied as fast as they are made")
def test_bases_that_the_newest_time_needs_stay_while_one_core_is_away() -> None:
    world = Mirrored(5, archive_base_every_ms=30)
    world.catch_up()
    world.away, (before,) = {1}, bases_here(world, 0)
    newer = {before}
    while len(newer) < 3:  # one is kept in any case
        world.write_on(20)
        with suppress(NoAnswerError):
            follow(world)
        newer.add(bases_here(world, 0)[-1])
    assert world.check_promoted() == world.mirror.end.upto_ms, "it is before the newer bases"
    world.away, world.is_quiet = set(), True
    while before in bases_here(world, 0):
        world.write_on(5)
        world.step()
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_the_base_before_the_newest_one_stays_for_times_before_a_step_of_the_clock() -> None:
    world = Mirrored(19, archive_base_every_ms=110)
    world.catch_up()
    first = [bases_here(world, core)[0] for core in range(CORES)]
    while not all(newest > base for newest, base in zip(newest_bases(world), first, strict=True)):
        world.catch_up()
    assert [bases_here(world, core)[-2] for core in range(CORES)] == first
    before_ms, to_ms = (pick(taken_ms(world, core, at) for core in range(CORES)) for at, pick in ((0, max), (-1, min)))
    world.write_on(max(0, to_ms + 110 - world.now_ms))  # a step of less is not noticed
    moments, world.moments = world.moments, []
    world.rings[0].clock.step_wall_ms(to_ms - 5 - world.now_ms)
    for _ in range(3):
        world.write_on(3)
        world.step()
    world.moments = [moment for moment in moments if moment.at_ms < to_ms - 5]
    world.stated_ms = world.mirror.end.upto_ms
    assert before_ms <= world.check_promoted() == world.mirror.end.upto_ms < to_ms - 5


def test_another_joint_timeline_is_followed_once_it_is_named() -> None:
    world = Mirrored(6)
    world.catch_up()
    world.begin_anew()
    world.archived()
    with pytest.raises(UsageError, match=f"another log now, {world.joint}.*give --timeline {world.joint}"):
        world.step()
    before, before_ms = world.mirror.end.timeline, world.check_promoted()
    world.open(world.joint)
    world.away = {1}
    for _ in range(4):
        with suppress(NoAnswerError):
            world.step()
    remedy = f"/{world.joint} is followed, and .* use `topics restore --from {MIRROR}/{before}`"
    with pytest.raises(UsageError, match=remedy):
        world.check_promoted()
    world.away = set()
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms > before_ms
    assert world.mirror.end.timeline == world.joint
    (timeline,) = timeline_names(world.mirror_loop.files, f"{MIRROR}/{before}/core-00")
    damage(world, f"{MIRROR}/{before}/core-00/{timeline}/{NOTE_NAME}")
    world.check_promoted()  # what was followed before does not matter
    (base,) = bases_here(world, 1)
    damage(world, f"{path_of(world, 1)}/{BASES}/{base}/{MANIFEST_NAME}")
    with pytest.raises(CorruptError, match=f"/{world.joint}/core-01/.* is the newest, and its bases are damaged"):
        world.check_promoted()


def test_a_request_names_a_core_and_any_core_answers_for_each() -> None:
    """7.20/3, R-CORE-19."""
    world = Mirrored(7)
    world.archived()
    for path in ("/v0/archive", f"/v0/archive?core={CORES}", "/v0/archive/file?path=slot-map"):
        answer = world.get(path)
        assert answer.status == 400
        assert (
            f"an archive for each of its cores: name one by core (0 to {CORES - 1})" in answer.json["error"]["message"]
        )
    states = [world.get(f"/v0/archive?core={core}").json["archive"] for core in range(CORES) for _ in range(4)]
    assert {state["of_cores"]["joint"] for state in states} == {world.joint}
    assert len({state["timeline"] for state in states}) == CORES
    found = world.get(f"/v0/archive/file?core=1&timeline={world.joint}&path=slot-map")
    assert (found.status, found.body) == (
        200,
        world.rings[0].disk.contents("/archive")[f"/archive/{world.joint}/slot-map"],
    )
    other = states[-1]["timeline"]
    assert (
        world.get(f"/v0/archive/file?core=0&timeline={other}&path=log/shard-00/wal-0000000000000001.log").status == 404
    )


def test_a_promotion_is_of_no_time_that_came_twice() -> None:
    """The mirror states the newest time before those, until there is one after them."""
    world = Mirrored(8)
    world.catch_up()
    world.write_on(150)
    world.catch_up()
    before_ms = world.now_ms
    moments, world.moments = world.moments, []
    world.rings[0].clock.step_wall_ms(-120)
    back_ms = world.now_ms
    world.stated_ms = 0
    world.write_on(40)
    for _ in range(4):
        world.step()
        world.write_on(5)
    end = world.mirror.end
    assert back_ms - 30 < end.upto_ms < back_ms
    assert world.now_ms + end.again_ms - end.upto_ms >= 120, "what a promotion lacks"
    assert end.waits_for.endswith("before which the clock of the server was set back")
    assert world.shown_lag_ms() >= 120
    world.moments = [moment for moment in moments if moment.at_ms < back_ms]
    world.stated_ms = world.mirror.end.upto_ms
    assert world.check_promoted() == world.mirror.end.upto_ms
    world.moments = []
    world.write_on(before_ms - world.now_ms + 40)
    world.catch_up()
    world.moments = [moment for moment in world.moments if moment.at_ms > before_ms]
    assert world.check_promoted() == world.mirror.end.upto_ms > before_ms
    assert (world.mirror.end.again_ms, world.mirror.end.waits_for) == (0, "")
    world.rings[0].clock.step_wall_ms(-10_000)
    world.stated_ms = 0
    for _ in range(4):
        world.write_on(20)
        world.step()
    with pytest.raises(UsageError, match=r"came once: the clock was set back. Let the mirror run"):
        world.check_promoted()


def test_a_time_is_stated_only_once_the_server_would_notice_that_it_came_again() -> None:
    """It looks for that from the time of its last note on. One of two cores is away after that."""
    world = Mirrored(9)
    world.catch_up()
    world.is_quiet = True
    world.archived()
    world.write_on(200)
    world.step()
    world.end_all()
    world.rings[0].clock.step_wall_ms(-100)
    back_ms = world.now_ms
    world.stated_ms, moments = 0, world.moments
    world.start_all()
    world.is_quiet = False
    world.archived()
    step_without(world, 0)
    world.moments = [moment for moment in moments if moment.at_ms < world.now_ms - 100]
    assert world.check_promoted() == world.mirror.end.upto_ms < back_ms


def test_a_clock_set_back_is_noticed_by_an_archive_that_opens_once_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its directory may be mounted later than the server starts."""
    world = Mirrored(9)
    world.catch_up()
    world.archived()
    world.step()
    world.end_all()
    before_ms = world.now_ms
    world.rings[0].clock.step_wall_ms(-100)
    back_ms = world.now_ms

    async def nothing(_archiver: Archiver) -> None:
        pass

    moments = world.moments
    with monkeypatch.context() as patched:
        patched.setattr(Archiver, "_step", nothing)
        world.start_all()
        ready_ms = world.now_ms
        world.write_on(200)
        world.run(lambda: world.now_ms > before_ms + 10)
    world.archived()
    step_without(world, 0)
    world.stated_ms = 0
    world.moments = [moment for moment in moments if moment.at_ms < back_ms]
    assert world.check_promoted() == world.mirror.end.upto_ms < ready_ms


def test_a_clock_set_back_to_between_the_notes_of_two_cores_is_noticed_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one with the earlier note states it to the mirror, too, while the other one is away."""
    world = Mirrored(14)
    world.catch_up()
    step = Archiver._step

    async def step_of_core_0(archiver: Archiver) -> None:
        if archiver._config.archive_dir.endswith("core-00"):
            await step(archiver)

    with monkeypatch.context() as patched:
        patched.setattr(Archiver, "_step", step_of_core_0)
        world.write_on(200)
        step_without(world, 1)
        world.end_all()
    world.rings[0].clock.step_wall_ms(-100)
    back_ms = world.now_ms
    world.stated_ms, moments = 0, world.moments
    world.start_all()
    ready_ms = world.now_ms
    world.archived()
    step_without(world, 0)
    world.moments = [moment for moment in moments if moment.at_ms < back_ms]
    assert world.check_promoted() == world.mirror.end.upto_ms < ready_ms


@pytest.mark.parametrize("flaw", ["missing", "damaged"])
def test_a_core_that_is_copied_anew_has_no_time_of_before_its_new_base(flaw: str) -> None:
    """Its log may lack a part up to that base, and the other core may have no later time."""
    world = Mirrored(23, archive_base_every_ms=30, archive_retain_ms=1)
    world.catch_up()
    (old,) = bases_here(world, 1)
    path = f"{path_of(world, 1)}/{NOTE_NAME}"
    world.archived()
    step_without(world, 1)
    if flaw == "damaged":
        damage(world, path)
    else:
        world.mirror_loop.run_task(world.mirror_loop.files.unlink(path))
    world.stated_ms = 0
    world.open()
    world.away = {0}
    world.archived(60)
    while not world.mirror.end.holes:
        with suppress(NoAnswerError):
            world.step()
        world.write_on(5)
    assert old in bases_here(world, 1)
    hole = world.mirror.end.holes[0]
    assert hole.to_ms is not None
    assert hole.from_ms < min(taken_ms(world, 1, 0), hole.to_ms), "the older base is in it"
    assert not world.mirror.end.upto_ms, "the other core ends before the new base"
    world.away = set()
    world.catch_up()
    assert world.check_promoted() == world.mirror.end.upto_ms


def test_the_hole_before_a_new_base_of_an_earlier_time_begins_before_both() -> None:
    """The clock was set back between the two, whose order is that of the log."""
    world = Mirrored(26, archive_base_every_ms=400, wal_file_bytes=65536)
    world.catch_up()
    world.fill(3)
    world.archived()
    world.rings[0].clock.step_wall_ms(-300)
    while len(bases_of(world, 0)) < 2:
        world.write_on(5)
    world.mirror_loop.run_task(world.mirror_loop.files.unlink(f"{path_of(world, 0)}/{NOTE_NAME}"))
    world.open()
    world.stated_ms = 0
    for _ in range(10):
        world.step()
        world.write_on(5)
    (hole,) = world.mirror.end.holes
    assert hole.to_ms is not None
    assert hole.from_ms < hole.to_ms < taken_ms(world, 0, 0)


def test_a_mirror_that_has_waited_for_an_archive_says_so_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was started with one core, and then with two again, had none of one core yet."""
    world = Mirrored(25)
    world.catch_up()

    async def empty(_archive: HttpArchive, _upto_ms: int) -> ArchiveState:
        return ArchiveState("", 0, 0, {}, (), ())

    with monkeypatch.context() as patched:
        patched.setattr(HttpArchive, "state", empty)
        assert not world.step()
        assert world.mirror.end.waits_for == EMPTY
    world.step()
    assert world.mirror.end.waits_for == ""


def test_log_that_was_copied_before_the_disk_was_full_is_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Mirrored(24, wal_file_bytes=65536)
    world.catch_up()
    world.fill(6)
    world.archived()
    world.is_quiet, world.piece_ms = True, 3
    timeline_of_0, asked = os.path.basename(path_of(world, 0)), list[str]()
    piece = HttpArchive.piece

    async def noted(self: HttpArchive, timeline: str, path: str, offset: int, most: int) -> bytes:
        if timeline_of_0 in f"{timeline}/{path}":
            asked.append(path)
        return await piece(self, timeline, path, offset, most)

    monkeypatch.setattr(HttpArchive, "piece", noted)
    assert world.step(), "there is more"
    *whole, _last = sorted(set(asked))
    assert whole
    asked.clear()
    world.mirror_ring.faults.fail("write", errno.ENOSPC, path_part="core-00")
    with pytest.raises(OSError, match="No space"):
        world.step()
    while world.step():
        pass
    assert not set(whole) & set(asked)
    assert world.check_promoted() == world.mirror.end.upto_ms
