"""The files that the cores of a directory share, as its backups have them."""

from __future__ import annotations

import msgspec

from topics.errors import FSCK_REMEDY, FormatError
from topics.loop.loop import Loop
from topics.store.backup.backup_logs import check_log
from topics.store.backup.backup_mounts import check_mounted
from topics.store.cores.core_directories import CoreDirectories, marker_or_none
from topics.store.cores.slot_map_file import COPY_PATH
from topics.store.disk.directory_format import SLOT_MAP_NAME, DirectoryFormat, Marker
from topics.store.layouts.directory_names import MARKER_NAME


async def shared_files(loop: Loop, cores: CoreDirectories, root: str) -> dict[str, bytes]:
    """Return the files that the cores share in a backup below `root`, by name.

    Raises: UsageError, no backup of this directory can be there; FormatError, its marker is missing
        or damaged; StorageError; OSError.
    """
    await check_mounted(loop.files, loop.ring.lstat, cores.path, root)
    marker = await _named_marker(loop, cores.path)
    await check_log(loop.files, root, marker.log)
    shared = {name: cores.stored.pack() for name in (SLOT_MAP_NAME, COPY_PATH)}
    shared[MARKER_NAME] = msgspec.json.encode(marker)
    return shared


async def _named_marker(loop: Loop, path: str) -> Marker:
    """Return the marker of the directory, with the id of its log, which is drawn if it has none.

    Raises: FormatError, the marker is missing or damaged; StorageError.
    """
    marker = await marker_or_none(loop.files, path)
    if marker is None:
        raise FormatError(f"{path}/{MARKER_NAME} is missing or damaged: {FSCK_REMEDY}")
    log_id = await DirectoryFormat(loop, path, marker).name_log()
    return msgspec.structs.replace(marker, log=log_id)
