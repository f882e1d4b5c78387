"""The layout of an archive, and the note that states how far it is.

    <archive>/2026-11-27T12-13-14Z-5f3a9c01/     a timeline: the archived log of one data directory
                  archive.json                   the note, replaced after each step
                  log/shard-00/wal-....log       log files, from the first block to the note's end
                  bases/2026-11-27T12-13-15Z/    backups, on which a restore puts the log

A data directory names its timeline in the file `archive`. A restored directory names none, so it
begins a timeline of its own, and the old one stays as it is. Both are of one *line*: the timelines
of a data directory, of what was restored from it, and so on. Retention removes those of its own
line only, because logs of several servers may share an archive. Several cores have their timelines
in a joint one (joint_timeline.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec

from topics.loop.loop import Loop
from topics.store.backup.backup_files import (
    NOTE_NAME,
    UnixMs,
    is_timeline_name,
    pack_description,
    time_name,
    time_of_name,
    unpack_description,
)
from topics.store.disk.whole_files import FileCalls, list_if_there, read_file, read_slow_file, replace_file

log = logging.getLogger(__name__)

TIMELINE_NAME = "archive"
"""The file of a data directory that names its timeline."""
BASES = "bases"
LOG = "log"
_LOST = "lost"
_NEW = "new"
_MOUNT = "mount="
REMEDY = f"Name another timeline of the archive, or one of its {BASES} as a backup; `topics verify` shows all damage"
NOTE_VERSION = 1
NOTE_OF_CORES = 2
"""The version of the notes of several cores, which builds that know one core refuse."""


class ShardEnd(msgspec.Struct, array_like=True, frozen=True):
    """The end of what is archived of one shard."""

    file_no: int
    """All files with a lower number are whole."""
    size: int
    """Bytes of this file that are archived."""
    batch_no: int
    """Number of the last batch, which the next one has to follow; HOLE: any may come next."""


class Hole(msgspec.Struct, frozen=True):
    """A time that no restore can lead to, because a part of the log was not archived."""

    from_ms: UnixMs
    """Unix ms up to which the log before the hole is there."""
    to_ms: UnixMs | None = None
    """Unix ms of the base after the hole; None until there is one."""
    batch_nos: dict[int, int] = {}
    """By shard, the number of the last batch before the hole."""
    last_files: dict[int, int] | None = None
    """By shard, the number of the last file before the hole; None: an older build has noted it."""
    next_files: dict[int, int] = {}
    """By shard, the number of the file with which the log after the base begins."""


class OfCore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a note that only a timeline of one of several cores has."""

    number: int
    """The number of the core."""
    set_back: tuple[tuple[UnixMs, UnixMs], ...] = ()
    """The first and the last of the times that came twice, each time that the clock was set back.

    Only the others are in one order on all cores, and can be restored.
    """


class ArchiveNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a note."""

    version: int = NOTE_VERSION
    upto_ms: UnixMs = 0
    """Unix ms: all that was written until then is archived. 0: nothing is."""
    shards: dict[int, ShardEnd] = {}
    holes: tuple[Hole, ...] = ()
    """In the order of their times."""
    line: str = ""
    """The name of the first timeline of its line."""
    of_core: OfCore | msgspec.UnsetType = msgspec.UNSET
    """UNSET: it is the timeline of a directory of one core."""

    def hole_after(self, to_ms: int | None = None, next_files: dict[int, int] | None = None) -> Hole:
        """Return a hole that begins at the end of what is archived.

        to_ms, next_files: of the base after it, if there is one.
        """
        batch_nos = {shard: end.batch_no for shard, end in self.shards.items()}
        last_files = {shard: end.file_no for shard, end in self.shards.items()}
        return Hole(self.upto_ms, to_ms, batch_nos, last_files, next_files or {})

    @property
    def open_hole(self) -> Hole | None:
        """The hole after which there is no base yet; None: there is none."""
        return self.holes[-1] if self.holes and self.holes[-1].to_ms is None else None


def new_timeline(loop: Loop, others: Iterable[str]) -> str:
    """Return a name for a timeline that begins now.

    It sorts after those of `others`, also if the clock was set back since they began.
    """
    newest_ms = max(map(time_of_name, others), default=-1000)
    return f"{time_name(max(loop.clock.now_ms(), newest_ms + 1000))}-{loop.random_bytes(4).hex()}"


def timeline_names(files: FileCalls, archive: str) -> list[str]:
    """Return the names of the timelines in an archive, in the order in which they were begun."""
    return sorted(name for name in list_if_there(files, archive) if is_timeline_name(name))


class OwnTimeline(NamedTuple):
    """The timeline that a data directory names."""

    name: str
    """"": it has to begin one."""
    has_lost: bool = False
    """Whether a replay of the log leads elsewhere since the note was written: a start has found
    losses, changed shards or had no archive; or log files were given up.
    """
    is_new: bool = False
    """Whether the archive has no note of it yet."""
    line: str = ""
    """The name of the first timeline of its line; "": it is the first itself."""
    mount: str = ""
    """The archive's directory, if it was a mount point: it is not used while it is none."""


async def own_timeline(files: FileCalls, data_dir: str) -> OwnTimeline | None:
    """Return the timeline of a data directory; None if it has none. Raises: OSError."""
    try:
        text = (await read_file(files, f"{data_dir}/{TIMELINE_NAME}")).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    words = [*text.split(), "", ""]
    name, line = (word if is_timeline_name(word) else "" for word in words[:2])
    quoted = next((word.removeprefix(_MOUNT) for word in words if word.startswith(_MOUNT)), "")
    mount = os.fsdecode(unquote_to_bytes(quoted))
    return OwnTimeline(name, _LOST in words, _NEW in words, line, mount) if name or line else None


async def name_timeline(files: FileCalls, data_dir: str, timeline: OwnTimeline) -> None:
    """Have a data directory name its timeline, durably. Raises: OSError."""
    marks = [_NEW] if timeline.is_new else [_LOST] if timeline.has_lost else []
    if timeline.mount:
        marks.append(_MOUNT + quote(os.fsencode(timeline.mount)))
    text = " ".join([timeline.name or "-", timeline.line or timeline.name, *marks])
    await replace_file(files, f"{data_dir}/{TIMELINE_NAME}", text.encode())


async def continued_timeline(files: FileCalls, data_dir: str) -> str:
    """Return the name of the timeline that a data directory continues without a hole; "": none.

    Raises: OSError.
    """
    own = await own_timeline(files, data_dir)
    return "" if own is None or own.has_lost or own.is_new else own.name


async def mark_losses(files: FileCalls, data_dir: str, why: str = "") -> None:
    """Have the archive get a hole, if there is one, before a snapshot hides what the log has not.

    why: for the server's log; "": it has it.
    Raises: OSError.
    """
    own = await own_timeline(files, data_dir)
    if own is not None and not (own.has_lost or own.is_new):
        if why and own.name:
            log.warning("the archive gets a hole in %s, up to its next base: %s", own.name, why)
        await name_timeline(files, data_dir, own._replace(has_lost=True))


async def read_note(files: FileCalls, timeline: str) -> ArchiveNote | None:
    """Return the note of a timeline; None if there is none.

    Raises: CorruptError, FormatError, OSError.
    """
    path = f"{timeline}/{NOTE_NAME}"
    try:
        return unpack_note(await read_slow_file(files, path, REMEDY), path)
    except FileNotFoundError:
        return None


def unpack_note(data: bytes, path: str, remedy: str = REMEDY) -> ArchiveNote:
    """Return a note, decoded. path, remedy: for messages.

    Raises: CorruptError; FormatError, it is of a newer build.
    """
    return unpack_description(data, path, ArchiveNote, NOTE_OF_CORES, remedy)


async def write_note(files: FileCalls, timeline: str, note: ArchiveNote) -> None:
    """Replace the note, durably. Raises: OSError."""
    await replace_file(files, f"{timeline}/{NOTE_NAME}", pack_description(note))
