"""The log of a server that a directory follows, which a file in it names."""

from __future__ import annotations

import msgspec

from topics.errors import FormatError, UsageError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import timeline_names
from topics.store.backup.backup_files import is_timeline_name, pack_description, unpack_description
from topics.store.backup.free_places import FOLLOWED_NAME
from topics.store.disk.whole_files import FileCalls, read_file, replace_file

_FOLLOWED_VERSION = 1
_REMEDY = "Begin a mirror in another directory; `topics restore --from {root}` makes a data directory of this one"


class Followed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the file that names what a mirror follows."""

    timeline: str
    holes: int
    """Holes of the server's archive that the mirror has gone past."""
    line: str
    """The first timeline that was followed here: those after it continue it."""
    version: int = _FOLLOWED_VERSION


async def read_followed(files: FileCalls, root: str) -> Followed | None:
    """Return what a mirror follows; None: nothing yet.

    Raises: CorruptError, FormatError, OSError.
    """
    path = f"{root}/{FOLLOWED_NAME}"
    try:
        remedy = _REMEDY.format(root=root)
        return unpack_description(await read_file(files, path), path, Followed, _FOLLOWED_VERSION, remedy)
    except FileNotFoundError:
        return None


class FollowedLog:
    """The timeline that a directory follows, which is named there before anything is copied."""

    def __init__(self, loop: Loop, root: str, *, line: str = "", joint: str = "") -> None:
        """line: that of the timelines here; "": they begin one.

        joint: of one of several cores, the timeline that all of them follow.
        """
        self._files = loop.files
        self._root = root
        self._given_line = line
        self._joint = joint
        self._followed: Followed | None = None
        self._may_follow = ""

    @property
    def name(self) -> str:
        """The name of the timeline; "": none yet."""
        return self._followed.timeline if self._followed is not None else ""

    @property
    def path(self) -> str:
        """The path of the timeline, of which there is one."""
        assert self._followed is not None, "a timeline is followed"
        return f"{self._root}/{self._followed.timeline}"

    @property
    def holes(self) -> int:
        return self._followed.holes if self._followed is not None else 0

    @property
    def line(self) -> str:
        """The line of what is here; "": there is none yet."""
        return self._followed.line if self._followed is not None else self._given_line

    async def open(self, may_follow: str = "") -> None:
        """Find what is there.

        may_follow: another timeline, or of cores the joint one, that may be followed from now on.
        Raises: CorruptError, FormatError, OSError.
        """
        self._followed = await read_followed(self._files, self._root)
        self._may_follow = may_follow

    async def follow(self, timeline: str, holes: int) -> None:
        """Have the directory name what it follows, durably. Raises: OSError."""
        followed = Followed(timeline, holes, self.line or timeline)
        await replace_file(self._files, f"{self._root}/{FOLLOWED_NAME}", pack_description(followed))
        self._followed = followed

    async def choose(self, timeline: str) -> bool:
        """Follow the timeline that the server states. Return whether it is another than before.

        Raises: UsageError, it is another one, which may not be followed; FormatError; OSError.
        """
        if not is_timeline_name(timeline):
            raise FormatError(f"the server's archive has a timeline {timeline!r}, which is no name of one")
        allows = self._may_follow in {timeline, self._joint or timeline}
        if self._may_follow and not allows:
            if self._may_follow not in await self._files.to_thread(timeline_names, self._files, self._root):
                raise UsageError(
                    f"the log of the server is {timeline}, and --timeline is {self._may_follow}: give the "
                    "former, or leave out --timeline"
                )
            self._may_follow = ""  # one that was followed before
        if self._joint:
            self._may_follow = ""  # it names what all follow, and allows one change of each
        if self._followed is None or (allows and timeline != self.name):
            await self.follow(timeline, 0)
            return True
        if self.name != timeline:
            raise UsageError(
                f"the server has another log now, {timeline}, and {self._root} follows "
                f"{self.name}: it was restored or replaced, or its archive began anew; to follow it, "
                f"give --timeline {self._joint or timeline}, or name another directory"
            )
        return False
