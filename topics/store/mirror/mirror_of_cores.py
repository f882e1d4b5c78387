"""The mirror of several cores: a joint timeline, in which each core's log is followed by itself.

It is laid out as the archive that it follows. Cores are followed at different times, and one may be
away. So the mirror shows, states and promotes the newest time that all of them have, as a restore
of any archive of several cores does (R-CORE-16, R-CORE-19).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from topics.common.values.archive_state import ArchiveOfCores, ArchiveState
from topics.common.values.time_texts import time_text
from topics.errors import CorruptError, NoAnswerError, RequestError, TopicsError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES, NOTE_OF_CORES, ArchiveNote, Hole, OfCore, read_note, write_note
from topics.store.archive.joint_point import Joint
from topics.store.archive.timelines import Base, Timeline, damaged_timelines, noted_bases
from topics.store.backup.backup_manifest import backup_names, read_manifest
from topics.store.cores.core_directories import core_name
from topics.store.cores.slot_map_file import MAP_BYTES, StoredMap
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.disk.whole_files import read_file, replace_file
from topics.store.mirror.mirror import Mirror, MirrorEnd, OneOfCores
from topics.store.mirror.mirror_source import MirrorSource, MissingPartError

SourceOf = Callable[[int], MirrorSource]
"""Returns the archive of a core, by its number."""


class AnotherLogError(NoAnswerError):
    """The server has another log than the one that is followed: what it states."""

    def __init__(self, state: ArchiveState) -> None:
        super().__init__("the server has begun another timeline of its cores")
        self.state = state


class MirrorOfCores:
    """The mirror of one joint timeline."""

    def __init__(
        self, loop: Loop, source_of: SourceOf, root: str, joint: str, *, line: str, retain_ms: int, piece_bytes: int
    ) -> None:
        """root: the directory of the mirror. The others are as of `Mirror`."""
        self._loop = loop
        self._files = loop.files
        self._source_of = source_of
        self._root = root
        self._name = joint
        self._path = f"{root}/{joint}"
        self._line = line
        self._retain_ms = retain_ms
        self._piece_bytes = piece_bytes
        self._stored: StoredMap | None = None
        self._mirrors: list[Mirror] = []
        self._timelines: dict[str, Timeline] = {}
        """By path, those that are here; the manifests of their bases have no files."""
        self._failures: dict[int, Exception] = {}
        """By core, why its last step failed."""
        self._asked_from_ns: dict[int, int] = {}
        """By core that failed, the loop time from which it is asked again."""
        self._upto_ms = 0
        self._waits_for = ""

    @property
    def is_begun(self) -> bool:
        """Whether the slot map is here, so that each core can be asked by itself."""
        return bool(self._mirrors)

    @property
    def end(self) -> MirrorEnd:
        ends = [mirror.end for mirror in self._mirrors]
        waiting = [f"{end.waits_for} (core {core})" for core, end in enumerate(ends) if end.waits_for]
        holes: list[Hole] = [hole for end in ends for hole in end.holes]
        left, copied = sum(end.left_bytes for end in ends), sum(end.copied_bytes for end in ends)
        waits_for = self._waits_for or "; ".join(waiting)
        again_ms, last_ms = self._times_again()
        if not waits_for and again_ms:
            waits_for = f"a time after {time_text(last_ms)}, before which the clock of the server was set back"
        if ends and not waits_for and not self._upto_ms:
            waits_for = "a time that all cores have"
        failures = tuple(sorted(self._failures.items()))
        return MirrorEnd(self._name, self._upto_ms, tuple(holes), waits_for, left, copied, again_ms, failures)

    def _times_again(self) -> tuple[int, int]:
        """Return how many ms after the newest time of all came twice, and the last, Unix ms."""
        again_ms = last_ms = 0
        for mirror in self._mirrors:
            if mirror.timeline is not None and isinstance(of_core := mirror.timeline[1].of_core, OfCore):
                again_ms = max(again_ms, ArchiveOfCores(self._name, of_core.set_back).ms_again(self._upto_ms))
                last_ms = max([last_ms, *(last for _first, last in of_core.set_back)])
        return again_ms, last_ms

    async def open(self, *, may_change: bool = False) -> None:
        """Find what is there. may_change: whether each core may be followed to another timeline.

        Raises: CorruptError, FormatError, OSError.
        """
        path = f"{self._path}/{SLOT_MAP_NAME}"
        try:
            stored = StoredMap.unpack(await read_file(self._files, path), path)
            note = await read_note(self._files, self._path)
        except (FileNotFoundError, CorruptError):
            return  # they are copied anew
        if note is not None:
            await self._open_cores(stored, may_change=may_change)

    async def _open_cores(self, stored: StoredMap, *, may_change: bool) -> None:
        mirrors = []
        for core in range(stored.slots.cores):
            mirror = Mirror(
                self._loop,
                _CoreSource(self._source_of(core), core, self._name, lambda: self._upto_ms),
                f"{self._path}/{core_name(core)}",
                retain_ms=self._retain_ms,
                piece_bytes=self._piece_bytes,
                of_core=OneOfCores(core, self._name, self._line),
            )
            await mirror.open(self._name if may_change else "")
            mirrors.append(mirror)
        found, _damaged = await damaged_timelines(self._loop, self._path, has_files=False)
        # A core whose note is missing begins anew with a base.
        self._timelines = {timeline.path: timeline for timeline in found if timeline.note.upto_ms}
        self._mirrors, self._stored = mirrors, stored
        await self._find_time()

    async def leave(self) -> None:
        """Remove what is there of bases that are being copied."""
        for mirror in self._mirrors:
            await mirror.leave()

    async def step(self, ms: int) -> bool:
        """Let each core make a step. Return, and raise, as `Mirror.step`.

        The cores that can be followed have made theirs before it raises. While one of them knows of
        more, a failure of another one that may pass is only in `end`.
        Raises: AnotherLogError, the cores have another joint timeline now.
        """
        if not self._mirrors and not await self._copy_map():
            self._waits_for = "the slot map, which the server's archive does not have yet"
            return False
        self._waits_for, knows_more = "", False
        for core, mirror in enumerate(self._mirrors):
            knows_more |= await self._step_of(core, mirror, max(1, ms // len(self._mirrors)))
        failures = [*self._failures.values()]
        try:
            await self._find_time()
        except (TopicsError, OSError) as error:
            failures.append(error)
        for mirror in self._mirrors:
            if (failed := await self._removed(mirror)) is not None:
                failures.append(failed)
        for lasting in (AnotherLogError, UsageError, RequestError):
            for each in failures:
                if isinstance(each, lasting):
                    raise each
        if failures and not knows_more:
            raise failures[0]
        return knows_more

    async def _step_of(self, core: int, mirror: Mirror, ms: int) -> bool:
        """Let a core make a step. After a failure it makes none for as long as that took."""
        began_ns = self._loop.clock.monotonic_ns()
        if began_ns < self._asked_from_ns.get(core, 0):
            return False
        try:
            knows_more = await mirror.step(ms)
        except (TopicsError, OSError) as error:
            ended_ns = self._loop.clock.monotonic_ns()
            self._failures[core], self._asked_from_ns[core] = error, 2 * ended_ns - began_ns
            return False
        self._failures.pop(core, None)
        return knows_more

    async def _removed(self, mirror: Mirror) -> TopicsError | OSError | None:
        """Remove what the newest time of all does not need. Return why that failed."""
        try:
            if 0 < mirror.newest_base_ms <= self._upto_ms:  # else the newest time needs one before
                await mirror.remove_old()
        except (TopicsError, OSError) as error:
            return error
        return None

    async def _copy_map(self) -> bool:
        """Have the joint timeline be here, before any log of it. Return whether it is."""
        source, data = self._source_of(0), b""
        try:
            while len(data) < MAP_BYTES and (
                piece := await source.piece(self._name, SLOT_MAP_NAME, len(data), self._piece_bytes)
            ):
                data += piece
        except MissingPartError:
            return False
        stored = StoredMap.unpack(data, f"{self._name}/{SLOT_MAP_NAME} of the server's archive")
        self._files.make_directory(self._path)
        await self._files.sync_directory(self._root)
        await replace_file(self._files, f"{self._path}/{SLOT_MAP_NAME}", data)
        await write_note(self._files, self._path, ArchiveNote(NOTE_OF_CORES, line=self._line))
        await self._open_cores(stored, may_change=False)
        return True

    async def _find_time(self) -> None:
        """Find the newest time that all cores have here: that of a restore of its end."""
        assert self._stored is not None, "its map is there"
        for mirror in self._mirrors:
            if mirror.timeline is not None:
                path, note = mirror.timeline
                bases = await self._bases(path)
                self._timelines[path] = Timeline(path, note, noted_bases(bases, note), [])
        joint = Joint.of(self._path, self._stored, ArchiveNote(line=self._line), self._timelines.values())
        times = joint.times
        self._upto_ms = times[-1][1] if times else 0

    async def _bases(self, timeline: str) -> list[Base]:
        """Return the bases of a timeline. Manifests that were read before are not read again."""
        before = self._timelines.get(timeline)
        known = {base.path: base for base in before.bases} if before is not None else {}
        found = []
        for name in await self._files.to_thread(backup_names, self._files, f"{timeline}/{BASES}"):
            path = f"{timeline}/{BASES}/{name}"
            with suppress(CorruptError, FileNotFoundError):  # a restore does without it, too
                found.append(known.get(path) or await self._read_base(path))
        return found

    async def _read_base(self, path: str) -> Base:
        manifest = await read_manifest(self._files, path)
        return Base(path, msgspec.structs.replace(manifest, files=[]), manifest.first_log_files)


class _CoreSource:
    """The archive of one core, to which the mirror states what it has of all."""

    def __init__(self, source: MirrorSource, core: int, joint: str, upto_ms: Callable[[], int]) -> None:
        self._source = source
        self._core = core
        self._joint = joint
        self._upto_ms = upto_ms

    async def state(self, upto_ms: int) -> ArchiveState:
        del upto_ms  # of this core
        try:
            found = await self._source.state(self._upto_ms())
        except RequestError as error:
            if error.code != "invalid_request" or not self._core:
                raise
            # The server may have fewer cores now, and core 0 says which log it has then.
            raise NoAnswerError(error.message) from error
        if found.of_cores is None or found.of_cores.joint != self._joint:
            raise AnotherLogError(found)
        return found

    async def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        return await self._source.piece(timeline, path, offset, most)
