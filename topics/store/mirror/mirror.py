"""A mirror: a directory that follows the archive of another server, and is an archive itself.

A step copies the log up to the end that the server's archive states, syncs it, and replaces the
note. So what a restore of the mirror gives is the log at one instant, the one that the note states.
A part that the mirror can get no more is a hole, which ends with the next base.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import NamedTuple

import msgspec

from topics.common.values.archive_state import ArchivedEnd, ArchiveState
from topics.errors import CorruptError, FormatError, StorageError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import (
    BASES,
    NOTE_OF_CORES,
    ArchiveNote,
    Hole,
    OfCore,
    ShardEnd,
    read_note,
    timeline_names,
    write_note,
)
from topics.store.archive.archive_retention import begins_before, remove_old
from topics.store.archive.joint_point import Joint, check_bases, joints_of
from topics.store.archive.joint_timeline import core_places
from topics.store.archive.timelines import find_timelines
from topics.store.backup.backup_files import time_name
from topics.store.backup.backup_manifest import BackupManifest, backup_names, read_manifest
from topics.store.disk.data_directory import make_with_parents, sync_parents
from topics.store.mirror.base_pull import BasePull
from topics.store.mirror.followed_log import FollowedLog, read_followed
from topics.store.mirror.log_pull import ChainEnd, LogPull
from topics.store.mirror.mirror_source import MirrorSource, MissingPartError
from topics.store.mirror.promotion import promotion_of

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
EMPTY = "the server's archive, which is empty yet"
_BASES_APART_MS = 86_400_000
"""A server makes a base a day."""
_RETAIN_OF_CORES_MS = 1
"""Keeps the base before the newest one, too: that may be of a time that came twice."""
_BASE_NAME = re.compile(r"[0-9TZ-]{20,40}", re.ASCII)


class OneOfCores(NamedTuple):
    """Which core a mirror is of."""

    number: int
    joint: str
    """The name of the timeline that all cores have together."""
    line: str
    """That of all timelines of the mirror."""


class _Aim(NamedTuple):
    """A state of the server's archive that the log is copied to, maybe in several steps."""

    state: ArchiveState
    reached: dict[int, ChainEnd | int]
    """By shard, the verified end of what is here; or the number of the first wanted file."""
    base: BackupManifest | None = None
    """The base after which the log begins; None: it continues what is noted."""


class MirrorEnd(NamedTuple):
    """How far a mirror is."""

    timeline: str
    upto_ms: int
    """Unix ms by the server's clock: what was acknowledged until then is here; 0: nothing."""
    holes: tuple[Hole, ...]
    waits_for: str
    """For a sentence: it waits for this; "": it follows."""
    left_bytes: int
    """Bytes of a base that are to be copied."""
    copied_bytes: int
    again_ms: int = 0
    """Ms after `upto_ms` that came twice at a server of cores: a promotion lacks these, too."""
    failures: tuple[tuple[int, Exception], ...] = ()
    """Cores of several whose last step failed, and why."""


async def check_not_promoted(loop: Loop, root: str) -> None:
    """Check that no data directory was made of a mirror.

    Raises: UsageError, with its path; CorruptError, FormatError, OSError.
    """
    promotion = await promotion_of(loop, root)
    if promotion is not None:
        raise UsageError(
            f"{root} was promoted to {promotion.path} at {time_name(promotion.began_ms)}: to follow that server, begin "
            f"a mirror in another directory; for a second copy of this one, use `topics restore --from {root}`"
        )


async def newest_timeline(loop: Loop, root: str) -> str:
    """Return the path of what a promotion restores: the timeline that is followed.

    Where that has nothing yet, it is the mirror itself, with those that were followed before, if
    none of them is of several cores.
    Raises: UsageError, there is nothing to promote, or it is older than what is followed, with the
        remedy; CorruptError, FormatError, OSError.
    """
    files, followed = loop.files, await read_followed(loop.files, root)
    if followed is not None and await _has_log(loop, f"{root}/{followed.timeline}"):
        path = f"{root}/{followed.timeline}"
        if (joints := await _joints(loop, path)) and not any(joint.times for joint in joints):
            check_bases(joints, 0)
            raise _without_time(path, joints, await _others(loop, root, followed.timeline))
        return path
    names = await files.to_thread(timeline_names, files, root)
    others = await _others(loop, root, "")
    if not others:
        raise UsageError(f"{root} has nothing to promote: its first base was not copied to the end")
    paths = [f"{root}/{name}" for name in names]
    if followed is not None and any([await files.to_thread(core_places, files, path) for path in paths]):
        raise UsageError(
            f"{root}/{followed.timeline} is followed, and was not copied to the end yet: let the mirror run, or use "
            f"`topics restore --from {others[-1]}` for what was followed before"
        )
    return root


async def _others(loop: Loop, root: str, followed: str) -> list[str]:
    """Return the paths of the timelines that have log, beside the one that is followed.

    Raises: as `newest_timeline`.
    """
    names = await loop.files.to_thread(timeline_names, loop.files, root)
    return [path for name in names if name != followed and await _has_log(loop, path := f"{root}/{name}")]


async def _has_log(loop: Loop, path: str) -> bool:
    """Return whether a timeline has log, one of several cores of each.

    Raises: as `newest_timeline`.
    """
    if not await loop.files.to_thread(core_places, loop.files, path):
        note = await read_note(loop.files, path)
        return note is not None and note.upto_ms > 0
    joints = await _joints(loop, path)
    return any(all(any(each.note.upto_ms for each in core) for core in joint.cores) for joint in joints)


async def _joints(loop: Loop, path: str) -> list[Joint]:
    return await joints_of(loop, await find_timelines(loop, path, has_files=False))


def _without_time(path: str, joints: list[Joint], others: list[str]) -> UsageError:
    """Return the refusal of cores without a time together. others: what was followed before."""
    once = ", and that came once: the clock was set back" if any(joint.came_twice for joint in joints) else ""
    remedy = "Let the mirror run until `topics mirror --status` shows one"
    if others:
        remedy += f", or use `topics restore --from {others[-1]}` for what was followed before"
    return UsageError(f"{path} has no time that all cores have{once}. {remedy}")


class Mirror:
    """The mirror of one log: that of a server of one core, or of one of several cores."""

    def __init__(
        self,
        loop: Loop,
        source: MirrorSource,
        root: str,
        *,
        retain_ms: int = 0,
        piece_bytes: int = PIECE_BYTES,
        of_core: OneOfCores | None = None,
    ) -> None:
        """retain_ms: age of what is removed here; 0: what a restore of the end does not need.

        of_core: of a mirror of the log of one of several cores.
        """
        self._loop = loop
        self._files = loop.files
        self._source = source
        self._root = root
        self._retain_ms = retain_ms
        self._piece_bytes = piece_bytes
        self._core = of_core
        self._followed = FollowedLog(loop, root)
        if of_core is not None:
            self._followed = FollowedLog(loop, root, line=of_core.line, joint=of_core.joint)
        self._note: ArchiveNote | None = None
        self._chains: dict[int, ChainEnd] | None = None
        """Verified ends of the log that is noted, by shard; None: begin anew with a base."""
        self._aim: _Aim | None = None
        self._base: BasePull | None = None
        self._log: LogPull | None = None
        self._waits_for = ""
        self._copied_bytes = 0
        self.newest_base_ms = 0
        """Unix ms of a base: once all cores have that time, `remove_old` is due. 0: it is not."""

    @property
    def timeline(self) -> tuple[str, ArchiveNote] | None:
        """The path and the note of the timeline that is followed; None while it has no note."""
        return None if self._note is None else (self._followed.path, self._note)

    @property
    def end(self) -> MirrorEnd:
        note, log, base = self._note or ArchiveNote(), self._log, self._base
        copied = self._copied_bytes + (log.copied_bytes if log else 0) + (base.copied_bytes if base else 0)
        left = base.left_bytes if base else 0
        return MirrorEnd(self._followed.name, note.upto_ms, note.holes, self._waits_for, left, copied)

    async def open(self, timeline: str = "") -> None:
        """Find what is there. timeline: another one that may be followed from now on; "": none.

        Raises: CorruptError, FormatError, OSError.
        """
        made_in = make_with_parents(self._loop.ring, self._root)
        if made_in:
            await sync_parents(self._loop, self._root, made_in)
        await self._followed.open(timeline)
        if self._followed.name:
            await self._find_note()

    async def _find_note(self) -> None:
        self._log = LogPull(self._loop, self._source, self._root, self._followed.name, self._piece_bytes)
        self._note = self._chains = None
        try:
            self._note = await read_note(self._files, self._followed.path)
        except CorruptError as error:
            if self._core is None:
                raise
            # A core without a note is copied anew, too, and the other cores are followed meanwhile.
            log.warning("core %d is copied anew, from the next base on: %s", self._core.number, error)
        if self._note is not None and self._note.upto_ms:
            # A part that is damaged here is copied anew.
            with contextlib.suppress(CorruptError, FormatError, FileNotFoundError):
                self._chains = {
                    shard: await self._log.local_end(shard, ArchivedEnd(end.file_no, end.size, end.batch_no))
                    for shard, end in self._note.shards.items()
                    if end.file_no
                }

    async def step(self, ms: int) -> bool:
        """Copy what is new, and then a base for at most so long. Return whether more is known of.

        Raises: UsageError, the server has another log now; CorruptError, FormatError, the archive
            is not sound; StorageError, OSError, this disk failed; TopicsError, there is no answer.
        """
        return await self.advance(await self._source.state(self.end.upto_ms), ms)

    async def advance(self, state: ArchiveState, ms: int) -> bool:
        """Do as `step` does, with what the server has just stated."""
        if not state.timeline or not state.upto_ms:
            self._waits_for = EMPTY
            return False
        await self._check(state)
        try:
            if self._core is None or (self._aim is not None and self._aim.state.holes != state.holes):
                self._aim = None  # after a hole the log to it is needed no more
            if self._aim is None:
                if self._chains is None or self._followed.holes != len(state.holes):
                    more = await self._begin(state, ms)
                    if self._aim is None:
                        return more
                else:
                    self._aim = _Aim(state, {**self._chains})
            return await self._copy_log(self._aim, state, ms)
        except MissingPartError as error:
            await self.leave()
            if self._chains is not None and self._note is not None:
                self._waits_for = f"a base, because the server's archive has no more {error}"
            self._chains = None
            return False
        except OSError:
            await self._leave_base()  # the log up to what an aim has reached is synced, and stays
            raise

    async def _check(self, state: ArchiveState) -> None:
        if await self._followed.choose(state.timeline):
            await self.leave()
            await self._find_note()
        for shard, end in (self._note.shards if self._note is not None else {}).items():
            there = state.shards.get(shard)
            if there is not None and (there.file, there.bytes) < (end.file_no, end.size):
                raise UsageError(
                    f"the archive of the server ends before this mirror in shard {shard}: it was put back to an older "
                    "copy; begin a mirror in another directory, and keep this one until you know which is right"
                )

    # --- the log -----------------------------------------------------------------------------------------------------
    async def _copy_log(self, aim: _Aim, state: ArchiveState, ms: int) -> bool:
        """Copy the log up to the aim, and note it. Return whether more is known of.

        That of one of several cores is copied for so long, or to the end of a file, because the
        others wait for it. Its aim stays until it is reached: else a log that grows as fast as it
        is copied would never be noted.
        """
        until_ns = None if self._core is None else self._loop.clock.monotonic_ns() + ms * 1_000_000
        chains = await self._copied(aim.state, aim.reached, until_ns)
        if any(chain.file_no != aim.state.shards[shard].file for shard, chain in chains.items()):
            self._aim = aim._replace(reached={**chains})
            if aim.base is not None:
                self._waits_for = "the log after its base, which is being copied"
            return True
        note, self._aim = self._note or ArchiveNote(), None
        holes = note.holes
        if aim.base is not None and not note.upto_ms:
            holes = await self._hole_before(aim.base)
        elif aim.base is not None and note.upto_ms < aim.base.taken_ms:
            holes = (*holes, note.hole_after(aim.base.taken_ms, aim.base.first_log_files))
        await self._write_note(aim.state, holes)
        self._chains, self._waits_for = chains, ""
        if aim.base is not None:
            await self._followed.follow(aim.state.timeline, len(aim.state.holes))
            await self._has_base(aim.base.taken_ms)
            return False
        return await self._copy_newer_base(state, ms) or aim.state is not state

    async def _hole_before(self, base: BackupManifest) -> tuple[Hole, ...]:
        """Return the hole that older bases here are in; none without them.

        No end of their log was noted, or the note was lost, so a part may lack up to this base.
        """
        root, older_ms = f"{self._followed.path}/{BASES}", list[int]()
        for name in await self._files.to_thread(backup_names, self._files, root):
            with contextlib.suppress(CorruptError, FileNotFoundError):
                older = await read_manifest(self._files, f"{root}/{name}")
                if begins_before(older, base.first_log_files):
                    older_ms.append(older.taken_ms)
        if not older_ms:
            return ()
        from_ms = max(0, min(*older_ms, base.taken_ms) - 1)
        return (Hole(from_ms, base.taken_ms, last_files={}, next_files=base.first_log_files),)

    async def _copied(
        self, state: ArchiveState, begin: dict[int, ChainEnd | int], until_ns: int | None
    ) -> dict[int, ChainEnd]:
        assert self._log is not None, "the log is opened with the timeline"
        chains = {}
        for shard, end in sorted(state.shards.items()):
            if end.file and shard in begin:
                chains[shard] = await self._log.shard(shard, begin[shard], end, until_ns=until_ns)
        return chains

    async def _write_note(self, state: ArchiveState, holes: tuple[Hole, ...]) -> None:
        shards = {shard: ShardEnd(end.file, end.bytes, end.batch) for shard, end in state.shards.items()}
        # A server that was killed states an earlier time at first.
        upto_ms = max(state.upto_ms, self._note.upto_ms if self._note is not None else 0)
        note = self._as_noted(ArchiveNote(upto_ms=upto_ms, shards=shards, holes=holes), state)
        if note != self._note:
            await write_note(self._files, self._followed.path, note)
            self._note = note

    def _as_noted(self, note: ArchiveNote, state: ArchiveState) -> ArchiveNote:
        """Return a note with what all notes of this log have."""
        if self._core is None or state.of_cores is None:
            return msgspec.structs.replace(note, line=self._followed.line)
        of_core = OfCore(self._core.number, state.of_cores.set_back)
        return msgspec.structs.replace(note, version=NOTE_OF_CORES, line=self._followed.line, of_core=of_core)

    # --- bases -------------------------------------------------------------------------------------------------------
    async def _begin(self, state: ArchiveState, ms: int) -> bool:
        """Copy the newest base, after which the log begins: nothing of before is needed then.

        Return whether more is known of. Once the base is here, there is an aim.
        """
        hole_to_ms = state.holes[-1][1] if state.holes else 0
        if hole_to_ms is None:
            self._waits_for = "the server's next base, because its archive has a hole"
            return False
        if self._base is None and not await self._find_base(state, hole_to_ms):
            self._waits_for = "a base, which the server's archive does not have yet"
            return False
        assert self._base is not None, "one was found"
        if not await self._advance(self._base, ms):
            self._waits_for = f"base {self._base.name}, which is being copied"
            return True
        name = self._base.name
        self._base = None
        manifest = await read_manifest(self._files, f"{self._followed.path}/{BASES}/{name}")
        state = await self._source.state(self.end.upto_ms)  # it is later now
        await self._check(state)
        newest_hole = state.holes[-1][1] if state.holes else 0
        if newest_hole is None or newest_hole > manifest.taken_ms:
            return True
        self._aim = _Aim(state, {**manifest.first_log_files}, manifest)
        return True

    async def _find_base(self, state: ArchiveState, after_ms: int) -> bool:
        """Begin to copy the newest base that the state counts, if there is one."""
        for name in reversed(state.bases):
            if _BASE_NAME.fullmatch(name) is None:
                continue
            base = BasePull(self._loop, self._source, self._followed.path, name, self._piece_bytes)
            manifest = await base.look()
            if after_ms <= manifest.taken_ms <= state.upto_ms:
                self._files.make_directory(self._followed.path)
                await self._files.sync_directory(self._root)
                if self._note is None:  # without one, its bases would be no part of an archive
                    self._note = self._as_noted(ArchiveNote(), state)
                    await write_note(self._files, self._followed.path, self._note)
                await base.begin()
                self._base = base
                return True
        return False

    async def _copy_newer_base(self, state: ArchiveState, ms: int) -> bool:
        """Copy a base that is newer than those here, if there is one, for a while."""
        if self._base is None:
            here = backup_names(self._files, f"{self._followed.path}/{BASES}")
            name = state.bases[-1] if state.bases else ""
            if name in ("", *here) or _BASE_NAME.fullmatch(name) is None:
                return False
            base = BasePull(self._loop, self._source, self._followed.path, name, self._piece_bytes)
            if (await base.look()).taken_ms > min(state.upto_ms, self._note.upto_ms if self._note is not None else 0):
                return False
            await base.begin()
            self._base = base
        if not await self._advance(self._base, ms):
            return True
        name, self._base = self._base.name, None
        manifest = await read_manifest(self._files, f"{self._followed.path}/{BASES}/{name}")
        await self._has_base(manifest.taken_ms)
        return False

    async def _advance(self, base: BasePull, ms: int) -> bool:
        """Copy a base for a while. Return whether it is whole."""
        if base.name in backup_names(self._files, f"{self._followed.path}/{BASES}"):
            await base.give_up()
            return True
        until = self._loop.clock.monotonic_ns() + ms * 1_000_000
        while not await base.advance():
            if self._loop.clock.monotonic_ns() >= until:
                return False
            await self._loop.next_pass()
        self._copied_bytes += base.copied_bytes
        return True

    async def leave(self) -> None:
        """Give up what is being copied, and remove what is there of a base."""
        self._aim = None
        await self._leave_base()

    async def _leave_base(self) -> None:
        if self._base is not None:
            await self._base.give_up()
            self._base = None

    async def _has_base(self, taken_ms: int) -> None:
        """Remove what the base replaces. Several cores need that until all have its time."""
        if self._core is not None:
            self.newest_base_ms = taken_ms
        else:
            await self.remove_old()

    async def remove_old(self) -> None:
        """Remove what no restore needs that is to be possible. Raises: OSError."""
        assert self._note is not None, "a note was written"
        self.newest_base_ms = 0
        before_ms = self._note.upto_ms - self._retain_ms
        retain_ms = self._retain_ms if self._core is None else max(self._retain_ms, _RETAIN_OF_CORES_MS)
        try:
            await remove_old(self._loop, self._followed.path, before_ms, retain_ms, _BASES_APART_MS)
        except StorageError as error:
            self._waits_for = f"room: {error}"
