"""The mirror of a server, which may have one core or several."""

from __future__ import annotations

from topics.common.values.archive_state import ArchiveState
from topics.loop.loop import Loop
from topics.store.archive.joint_timeline import core_places
from topics.store.disk.data_directory import make_with_parents, sync_parents
from topics.store.mirror.followed_log import FollowedLog
from topics.store.mirror.mirror import EMPTY, PIECE_BYTES, Mirror, MirrorEnd, check_not_promoted
from topics.store.mirror.mirror_of_cores import AnotherLogError, MirrorOfCores, SourceOf
from topics.store.mirror.promotion import note_promotion


class ServerMirror:
    """The mirror in one directory, which this process has locked."""

    def __init__(
        self, loop: Loop, source_of: SourceOf, root: str, *, retain_ms: int = 0, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """retain_ms: as of `Mirror`."""
        self._loop = loop
        self._source_of = source_of
        self._root = root
        self._retain_ms = retain_ms
        self._piece_bytes = piece_bytes
        self._followed = FollowedLog(loop, root)
        self._may_follow = ""
        self._follower: Mirror | MirrorOfCores | None = None
        """The mirror of what is followed; None: nothing is yet."""
        self._waits_for = ""
        self._copied_before = 0

    @property
    def end(self) -> MirrorEnd:
        if self._follower is None:
            return MirrorEnd("", 0, (), self._waits_for, 0, self._copied_before)
        end = self._follower.end
        copied = self._copied_before + end.copied_bytes
        return end._replace(waits_for=self._waits_for or end.waits_for, copied_bytes=copied)

    async def open(self, timeline: str = "") -> None:
        """Find what is there. timeline: another one that may be followed from now on; "": none.

        Raises: UsageError, it was promoted; CorruptError, FormatError, OSError.
        """
        made_in = make_with_parents(self._loop.ring, self._root)
        if made_in:
            await sync_parents(self._loop, self._root, made_in)
        await check_not_promoted(self._loop, self._root)
        await note_promotion(self._loop, self._root, None)
        self._may_follow = timeline
        await self._followed.open(timeline)
        if self._followed.name:
            is_joint = bool(core_places(self._loop.files, self._followed.path))
            self._follower = await self._opened(is_joint=is_joint)

    async def _opened(self, *, is_joint: bool) -> Mirror | MirrorOfCores:
        """Return the mirror of the timeline that is followed. is_joint: whether it is of cores."""
        if not is_joint:
            mirror = Mirror(
                self._loop,
                self._source_of(0),
                self._root,
                retain_ms=self._retain_ms,
                piece_bytes=self._piece_bytes,
            )
            await mirror.open(self._may_follow)
            return mirror
        cores = MirrorOfCores(
            self._loop,
            self._source_of,
            self._root,
            self._followed.name,
            line=self._followed.line,
            retain_ms=self._retain_ms,
            piece_bytes=self._piece_bytes,
        )
        await cores.open(may_change=self._may_follow == self._followed.name)
        return cores

    async def step(self, ms: int) -> bool:
        """Make a step, as `Mirror.step` does, of each core. Return, and raise, as that does."""
        follower = self._follower
        if not isinstance(follower, MirrorOfCores) or not follower.is_begun:
            state = await self._source_of(0).state(self.end.upto_ms)
            if not state.timeline or not state.upto_ms:
                self._waits_for = EMPTY
                return False
            await self._choose(state)
            if isinstance(self._follower, Mirror):
                return await self._follower.advance(state, ms)
        assert isinstance(self._follower, MirrorOfCores), "it was chosen"
        self._waits_for = ""
        try:
            return await self._follower.step(ms)
        except AnotherLogError as error:
            before = self._follower
            await self._choose(error.state)
            return self._follower is not before

    async def _choose(self, state: ArchiveState) -> None:
        """Follow the log that the server states. Raises: as `FollowedLog.choose`, and `open`."""
        before, is_joint = self._follower, state.of_cores is not None
        name = state.timeline if state.of_cores is None else state.of_cores.joint
        self._waits_for = "" if name else EMPTY
        if not name:
            return
        is_other = await self._followed.choose(name)
        if before is None or is_other or isinstance(before, MirrorOfCores) != is_joint:
            self._follower = None  # what fails now is tried again
            if before is not None:
                await before.leave()
                self._copied_before += before.end.copied_bytes
            self._follower = await self._opened(is_joint=is_joint)
