"""Where nothing may be made: below a data directory, a backup, an archive or a mirror.

Each of them takes what is in it for a part of itself, or for damage.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from topics.store.backup.backup_files import NOTE_NAME, is_timeline_name
from topics.store.backup.backup_manifest import MANIFEST_NAME
from topics.store.format.segment_format import MARKER_NAME

FOLLOWED_NAME = "mirror.json"
"""The file in a mirror that says which log it follows."""
_MARKS = {
    MANIFEST_NAME: "a backup",
    NOTE_NAME: "of an archive",
    FOLLOWED_NAME: "a mirror",
    MARKER_NAME: "a data directory",
}
"""Files by which a directory is known. A backup has the last one, too."""


def _listed(path: str) -> list[str]:
    return os.listdir(path)


def occupied(
    path: str,
    is_there: Callable[[str], bool] = os.path.lexists,
    list_directory: Callable[[str], list[str]] = _listed,
) -> str:
    """Return which directory at or above a path takes what is made at the path for its own.

    path: absolute, without links. is_there: whether there is a file. list_directory: its entries.
    Returns: the end of a sentence, such as "in /b, which is a backup"; "" if there is none.
    """
    while path not in ("", "/"):
        for name, kind in _MARKS.items():
            if is_there(f"{path}/{name}"):
                return f"in {path}, which is {kind}"
        if _has_entry(path, is_timeline_name, list_directory):
            return f"in {path}, which is an archive"
        path = os.path.dirname(path)
    return ""


def holder(path: str, is_one: Callable[[str], bool]) -> str:
    """Return the directory at or above a path that has an entry of such a name; "" if none has."""
    while path not in ("", "/"):
        if _has_entry(path, is_one, _listed):
            return path
        path = os.path.dirname(path)
    return ""


def _has_entry(path: str, is_one: Callable[[str], bool], list_directory: Callable[[str], list[str]]) -> bool:
    """Return whether a directory has an entry of such a name.

    One that this user may not list, such as /home of some systems, counts as one without. So does a
    path that can be that of no directory: what is made there fails, and names the path.
    """
    try:
        return any(map(is_one, list_directory(path)))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENAMETOOLONG}:
            raise
        return False
