"""The data directory: private, locked, and refused if it is unsafe or another program's.

lock            held by the process that uses the directory
topics.json     the marker: format and core count; the format may be raised (directory_format.py)
slot-map        only in a directory of several cores, which has a core directory for each
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Container

import msgspec

from topics.config import Config
from topics.errors import FSCK_REMEDY, FormatError, LockedError, StorageError
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.store.disk.directory_format import (
    CORES,
    NO_CORE,
    SLOT_MAP_NAME,
    Marker,
    has_slot_map,
    refused_marker,
)
from topics.store.disk.whole_files import read_file, replace_file
from topics.store.format.compressed_segment import require_zstd
from topics.store.layouts.directory_names import (
    COLD_MARK_NAME,
    DIRECTORY_FORMAT,
    FIRST_DIRECTORY_FORMAT,
    MARKER_NAME,
    PACK_DIRECTORY,
    SNAPSHOT_DIRECTORY,
    TOPICS_DIRECTORY,
)

SIGNS = frozenset((MARKER_NAME, SLOT_MAP_NAME, SNAPSHOT_DIRECTORY, TOPICS_DIRECTORY, PACK_DIRECTORY, "wal"))
"""Names in a data directory: a directory with none of them is not one."""
SET_ASIDE = "set-aside-"
"""How the names of directories begin that have the damaged files of a rebuild."""
PROBE_NAME = "doctor.tmp"
"""The file to which `topics doctor` writes, and which one that was killed leaves."""
_BEFORE_SIGNS = frozenset(
    (
        *("lock", f"{MARKER_NAME}.tmp", "session", "session.tmp", PROBE_NAME, "lost+found"),
        *(COLD_MARK_NAME, f"{COLD_MARK_NAME}.tmp"),
    )
)
"""Names in a directory that may become one: a start or a doctor that was killed or failed, or a new
file system, left them.
"""
_PATH_BYTES_MAX = 3500
"""The longest path: the kernel accepts 4096 with the names of the files below."""


class LockedDirectory:
    """A data directory whose lock this process holds, until `release` or the store's end.

    is_frozen: it is locked to be read, perhaps beside other readers: nothing in it changes.
    core: the number of the core whose directory it is, among several.
    number: that of the directory, as its marker has it (see `Marker`).
    """

    def __init__(
        self,
        ring: Ring,
        path: str,
        fd: int,
        made_in: list[str],
        *,
        is_frozen: bool = False,
        core: int = NO_CORE,
        number: int = 0,
    ) -> None:
        self._ring = ring
        self.path = path
        self.core = core
        self.number = number
        self.is_frozen = is_frozen
        self.fd = fd
        self.made_in = made_in
        """Directories whose entries are new; they are synced when the store is opened."""

    def release(self) -> None:
        """Release the lock at once; idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._ring.unlock(fd)


def lock_directory(ring: Ring, config: Config, *, core: int = NO_CORE, number: int = 0) -> LockedDirectory:
    """Create config.data_dir (mode 0700) if it is missing, check it and lock it.

    Blocking, before anything else is started.

    core: it is the directory of this core. number: that of the directory, from the slot map.
    Raises: LockedError or StorageError with the sentence to print.
    """
    path = config.data_dir
    if (length := len(os.fsencode(path))) > _PATH_BYTES_MAX:
        raise StorageError(f"the data directory's path has {length} bytes: use one of at most {_PATH_BYTES_MAX}")
    refuse_unsafe(ring, path)
    _refuse_foreign(ring, config)
    if config.segment_codec == "zstd":
        require_zstd("segment_codec zstd")
    try:
        made_in = make_with_parents(ring, path)
        return LockedDirectory(ring, path, ring.lock(f"{path}/lock"), made_in, core=core, number=number)
    except BlockingIOError as error:
        message = f"data directory {path} is in use, by another process or by this one: stop or close that first"
        raise LockedError(message) from error
    except OSError as error:
        raise not_usable(path, error) from error


def lock_to_read(ring: Ring, config: Config, *, any_owner: bool = False) -> LockedDirectory:
    """Check config.data_dir and lock it beside other readers, without a change. Blocking.

    A directory without a lock file, such as a copy, is used without a lock.

    any_owner: it may belong to another user, as backups do that only have to be readable.

    Raises: LockedError or StorageError with the sentence to print.
    """
    path = config.data_dir
    if not any_owner:
        refuse_unsafe(ring, path)
    try:
        ring.lstat(path)
        fd = ring.lock(f"{path}/lock", shared=True) if "lock" in ring.list_directory(path) else -1
    except BlockingIOError as error:
        message = f"data directory {path} is in use by a writer, another process or this one: stop or close that first"
        raise LockedError(message) from error
    except FileNotFoundError:
        raise no_log_in(path) from None
    except OSError as error:
        raise not_usable(path, error) from error
    return LockedDirectory(ring, path, fd, [], is_frozen=True)


def no_log_in(path: str) -> StorageError:
    """Return the error for a directory that is to be read, and holds no log."""
    return StorageError(f"there is no log in {path}: open it without read_only to make one")


def not_usable(path: str, error: OSError) -> StorageError:
    """Return the error for a directory that the kernel does not let this user use."""
    remedy = "let this user read and write there, or name another directory"
    return StorageError(f"data directory {path} is not usable: {error.strerror or error}: {remedy}")


def refuse_unsafe(ring: Ring, path: str) -> None:
    """Refuse a data directory that is a link, is another user's, or is writable by others.

    Raises StorageError.
    """
    try:
        info = ring.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise not_usable(path, error) from error
    if not stat.S_ISDIR(info.st_mode):
        raise StorageError(f"data directory {path} is not a directory (a link is not followed)")
    if info.st_uid != os.geteuid():
        remedy = f"run this as its owner (`sudo -u '#{info.st_uid}' ...`)"
        raise StorageError(f"data directory {path} belongs to user {info.st_uid}, not to {os.geteuid()}: {remedy}")
    if info.st_mode & 0o022:
        remedy = (
            f"run `chmod go-w {path}`" if is_used(ring.lstat, path) else f"use one of its own, such as {path}/topics"
        )
        raise StorageError(f"data directory {path} may be written to by others: {remedy}")


def is_used(lstat: Callable[[str], object], path: str) -> bool:
    """Return whether a directory is or was a data directory.

    lstat: raises OSError for a path at which nothing is.
    """
    for name in SIGNS:
        with contextlib.suppress(OSError):
            lstat(f"{path}/{name}")
            return True
    return False


def _refuse_foreign(ring: Ring, config: Config) -> None:
    """Refuse a directory that was never a data directory and holds files of others.

    Names that begin with a dot, and files that settings name, may be there.

    Raises StorageError.
    """
    path = config.data_dir
    if is_used(ring.lstat, path):
        return
    try:
        names = ring.list_directory(path)
    except OSError:  # It is not there, or what follows says why it cannot be used.
        return
    set_paths = [os.path.abspath(each) for each in (config.port_file, config.api_keys_file, config.cold_dir) if each]
    for name in names:
        below = os.path.abspath(f"{path}/{name}")
        is_set = any(f"{each}/".startswith(f"{below}/") for each in set_paths)
        if not (name.startswith(".") or name in _BEFORE_SIGNS or is_set):
            raise StorageError(
                f"data directory {path} was never one of topics, and holds other files, such as {name}: "
                f"use an empty directory, or a new one, such as {path}/topics"
            )


def refuse_links(path: str) -> None:
    """Refuse a data directory with links below it, because a rebuild would write to their targets.
    Raises StorageError.
    """
    for directory, names, files in os.walk(path):
        for name in (*names, *files):
            below = os.path.join(directory, name)
            if os.path.islink(below):
                raise StorageError(
                    f"{below} is a link, which a rebuild does not follow: put what it points to in its place"
                )


def make_with_parents(ring: Ring, path: str) -> list[str]:
    """Create a directory and its missing parents (mode 0700).

    Return the directories in which one was created.
    """
    parent = os.path.dirname(path.rstrip("/")) or "."
    try:
        return [parent] if ring.make_directory(path) else []
    except FileNotFoundError:
        if parent in (path, "."):
            raise
        made_in = make_with_parents(ring, parent)
        ring.make_directory(path)
        return [*made_in, parent]


async def check_marker(loop: Loop, locked: LockedDirectory) -> Marker:
    """Write the marker of a new directory, or compare that of a used one; return it.

    A used directory that has lost its marker gets the newest format, because what it holds is not
    known yet, and an older build must not misread it. A frozen directory is left without one. A
    directory of several cores is refused, also if its marker is lost.

    Raises FormatError, StorageError or OSError.
    """
    path = f"{locked.path}/{MARKER_NAME}"
    names = loop.files.list_directory(locked.path)
    try:
        marker = msgspec.json.decode(await read_file(loop.files, path), type=Marker)
    except FileNotFoundError:
        if refusal := _refused_without_marker(locked, names):
            raise FormatError(refusal) from None
        used = SNAPSHOT_DIRECTORY in names
        marker = Marker(DIRECTORY_FORMAT if used else FIRST_DIRECTORY_FORMAT, CORES)
        if locked.is_frozen:
            if not used:
                raise no_log_in(locked.path) from None
            return marker
        await sync_parents(loop, locked.path, locked.made_in)
        locked.made_in.clear()
        await replace_file(loop.files, path, msgspec.json.encode(marker))
        return marker
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}: {error}: {FSCK_REMEDY}") from error
    refusal = refused_marker(marker, locked.path, locked.core, locked.number)
    if not refusal and SLOT_MAP_NAME in names:
        refusal = has_slot_map(locked.path)
    if refusal:
        raise FormatError(refusal)
    return marker


def _refused_without_marker(locked: LockedDirectory, names: Container[str]) -> str:
    """Return why a directory that has no marker gets no new one; "" if it does."""
    if SLOT_MAP_NAME in names:
        return has_slot_map(locked.path)
    if locked.core != NO_CORE:
        return f"{locked.path}: the marker of core {locked.core} is missing: restore {MARKER_NAME} from a copy of it"
    return ""


async def sync_parents(loop: Loop, path: str, made_in: Container[str]) -> None:
    """Make the path of a new directory durable.

    It syncs the directories that this process created entries in, and those that a killed process
    may have. Parents that belong to another user, and cannot be read, existed before.

    made_in: from `make_with_parents`.
    """
    parent = path.rstrip("/")
    while (above := os.path.dirname(parent) or ".") != parent:
        parent = above
        try:
            await loop.files.sync_directory(parent)
        except PermissionError:
            if parent in made_in:
                raise
