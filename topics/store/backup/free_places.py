"""Whether a directory may be used as something: one answer for settings, commands and the library.

A data directory, a backup, an archive and a mirror take what is in them for a part of themselves,
or for damage. So nothing else may be made there.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from topics.config import Config, is_in
from topics.errors import UsageError
from topics.store.backup.backup_files import NOTE_NAME, is_timeline_name
from topics.store.backup.backup_manifest import MANIFEST_NAME, is_backup_name, is_partial
from topics.store.disk.data_directory import is_used
from topics.store.disk.directory_format import SLOT_MAP_NAME
from topics.store.layouts.directory_names import MARKER_NAME

log = logging.getLogger(__name__)

FOLLOWED_NAME = "mirror.json"
"""The file in a mirror that says which log it follows."""
_BACKUP, _MIRROR, _ARCHIVE, _DATA = "a backup", "a mirror", "an archive", "a data directory"
_HAS_BACKUPS = "which has backups"
_MARKS = {
    MANIFEST_NAME: _BACKUP,
    NOTE_NAME: "of an archive",
    FOLLOWED_NAME: _MIRROR,
    MARKER_NAME: _DATA,
    SLOT_MAP_NAME: _DATA,
}
"""Files by which a directory is known. A backup has a marker, too."""


class Use(NamedTuple):
    """The use of a directory that is to be made."""

    may_be: tuple[str, ...] = ()
    """The kinds that it may be of already."""
    is_apart: bool = False
    """Whether it may not be at or below a directory that has backups either."""


NEW_DATA = Use(is_apart=True)
DATA = Use((_DATA,), is_apart=True)
"""A data directory, which may be there already."""
ARCHIVE = Use((_ARCHIVE,))
BACKUPS = Use()
SEGMENTS = Use()
"""The cold directory."""
MIRROR = Use((_MIRROR, _ARCHIVE), is_apart=True)
COPY = Use((_ARCHIVE,))
"""A copy of what a bucket has."""


def _listed(path: str) -> list[str]:
    return os.listdir(path)


def taken(
    path: str,
    use: Use,
    is_there: Callable[[str], bool] = os.path.lexists,
    list_directory: Callable[[str], list[str]] = _listed,
) -> str:
    """Return why a directory may not be used: what it is, or what one above it is.

    path: absolute, without links; it need not be there. is_there: whether there is a file.
    list_directory: its entries.
    Returns: the end of a sentence, such as "in /b, which is a backup"; "" if it may.
    """
    at = path
    while at not in ("", "/"):
        allowed = use.may_be if at == path else ()
        kind = next((kind for name, kind in _MARKS.items() if is_there(f"{at}/{name}")), "")
        if kind and kind not in allowed:
            return f"in {at}, which is {kind}"
        names = _names(at, list_directory) if use.is_apart or not kind else []
        if not kind and _ARCHIVE not in allowed and any(map(is_timeline_name, names)):
            return f"in {at}, which is {_ARCHIVE}"
        if use.is_apart and any(map(is_backup_name, names)):
            return f"in {at}, {_HAS_BACKUPS}"
        if not kind and (named := _named(os.path.basename(at))):
            return f"in {at}, which has the name of {named}"
        at = os.path.dirname(at)
    return ""


def _named(name: str) -> str:
    """Return what a directory of this name would be taken for beside others; "": for nothing."""
    if is_backup_name(name) or is_partial(name):
        return _BACKUP
    return f"a part of {_ARCHIVE}" if is_timeline_name(name) else ""


def check_places(config: Config) -> None:
    """Check the directories that settings name, before anything is made in them.

    Raises: UsageError, with the setting.
    """
    if os.path.lexists(f"{config.data_dir}/{MANIFEST_NAME}") and is_used(os.lstat, config.data_dir):
        raise UsageError(
            f"data directory {config.data_dir} is a backup, and others have files in common with it: make a data "
            f"directory of it (`topics restore --from {config.data_dir} --to NEW`)"
        )
    _check_data_directory(config.data_dir)
    _check_place("archive_dir", config.archive_dir, ARCHIVE)
    if config.archive_dir and _holds(config.archive_dir) == _HAS_BACKUPS:
        raise UsageError(f"is {config.archive_dir!r}, {_HAS_BACKUPS}: name a directory elsewhere", "archive_dir")
    for setting, place in (("archive_dir", config.archive_dir), ("backup_dir", config.backup_dir)):
        # A place that has copies already is in use, so it is kept.
        if place and is_in(config.data_dir, place) and not _holds(place):
            raise UsageError(
                f"is {place!r}, and the data directory {config.data_dir!r} is in it: name a directory elsewhere, or no "
                "restore can be made beside the data directory",
                setting,
            )
    for mine in filter(None, (config.data_dir, config.cold_dir)):
        if config.backup_dir and is_in(config.backup_dir, mine):
            raise UsageError(
                f"is {config.backup_dir!r}, in {mine}, which backups are to replace: name a directory elsewhere",
                "backup_dir",
            )
    _check_place("backup_dir", config.backup_dir, BACKUPS)
    if config.cold_dir and not is_in(config.cold_dir, config.data_dir):
        _check_place("cold_dir", config.cold_dir, SEGMENTS)


def _check_data_directory(path: str) -> None:
    """Check that a data directory is apart; warn if it is not and has a log, which can be read.

    Raises: UsageError, there is no log in it.
    """
    if found := taken(os.path.realpath(path), DATA):
        if not is_used(os.lstat, path):
            raise UsageError(f"is {path!r}, {found}: name a directory elsewhere", "data_dir")
        log.warning(
            "the data directory %s is %s, which takes it for a part or for damage: stop, and move it elsewhere",
            path,
            found,
        )


def _holds(path: str) -> str:
    """Return whether a directory is an archive or has backups; "": neither."""
    names = _names(os.path.realpath(path), _listed)
    if any(map(is_timeline_name, names)):
        return _ARCHIVE
    return _HAS_BACKUPS if any(map(is_backup_name, names)) else ""


def _check_place(setting: str, path: str, use: Use) -> None:
    """Raises: UsageError."""
    if path and (found := taken(os.path.realpath(path), use)):
        raise UsageError(f"is {path!r}, {found}: name a directory elsewhere", setting)


def _names(path: str, list_directory: Callable[[str], list[str]]) -> list[str]:
    """Return the entries of a directory.

    One that this user may not list, such as /home of some systems, counts as empty. So does a path
    that can be that of no directory: what is made there fails, and names the path.
    """
    try:
        return list_directory(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENAMETOOLONG}:
            raise
        return []
