"""Where nothing may be made: below a data directory, a backup, an archive or a mirror.

Each of them takes what is in it for a part of itself, or for damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from topics.store.backup.backup_files import NOTE_NAME
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


def occupied(path: str, is_there: Callable[[str], bool] = os.path.lexists) -> str:
    """Return which directory at or above a path takes what is made at the path for its own.

    path: absolute, without links. is_there: whether there is a file.
    Returns: the end of a sentence, such as "in /b, which is a backup"; "" if there is none.
    """
    while path not in ("", "/"):
        for name, kind in _MARKS.items():
            if is_there(f"{path}/{name}"):
                return f"in {path}, which is {kind}"
        path = os.path.dirname(path)
    return ""


def holder(path: str, is_one: Callable[[str], bool]) -> str:
    """Return the directory at or above a path that has an entry of such a name; "" if none has.

    A directory that this user may not list, such as /home of some systems, counts as one without.

    is_one: whether a name is, for example, that of a timeline.
    """
    while path not in ("", "/"):
        with suppress(PermissionError):
            if os.path.isdir(path) and any(map(is_one, os.listdir(path))):
                return path
        path = os.path.dirname(path)
    return ""
