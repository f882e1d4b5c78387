"""The file of a mirror that names the data directory which was made of it.

It is there before the directory is. So two servers never continue the same mirror, also if the
promotion is killed, and no mirror follows on from where another server has taken over.
"""

from __future__ import annotations

import contextlib

import msgspec

from topics.loop.loop import Loop
from topics.store.backup.backup_files import UnixMs, pack_description, unpack_description
from topics.store.disk.whole_files import read_file, replace_file, unlink_if_there

PROMOTED_NAME = "promoted.json"
_VERSION = 1
_REMEDY = "`topics restore` makes a data directory of the mirror as it is"


class Promotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A promotion that has begun."""

    path: str
    """The data directory, absolute."""
    began_ms: UnixMs
    is_made: bool = False
    """Whether the data directory was there in the end. It may have been moved since."""
    version: int = _VERSION


async def promotion_of(loop: Loop, mirror: str) -> Promotion | None:
    """Return the promotion of a mirror; None if there is none, or if it was killed before its end.

    Raises: CorruptError, FormatError, OSError.
    """
    path = f"{mirror}/{PROMOTED_NAME}"
    try:
        data = await read_file(loop.files, path)
    except FileNotFoundError:
        return None
    found = unpack_description(data, path, Promotion, _VERSION, _REMEDY)
    if not found.is_made:
        try:
            loop.ring.lstat(found.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return found


async def note_promotion(loop: Loop, mirror: str, promotion: Promotion | None) -> None:
    """Replace the file, durably; None: remove it. Raises: OSError."""
    path = f"{mirror}/{PROMOTED_NAME}"
    if promotion is not None:
        await replace_file(loop.files, path, pack_description(promotion))
        return
    with contextlib.suppress(FileNotFoundError):
        await unlink_if_there(loop.files, path)
        await loop.files.sync_directory(mirror)
