"""A backup of a directory of several cores, of which none runs. Source: docs/backup.md.

Nothing is written meanwhile, so what the cores have is of one instant. Each is recovered, as at its
start, and stays open until its files are copied.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

import msgspec

from topics.common.values.backup_result import BackupResult
from topics.config import Config
from topics.engine.stored_engine import recover_store
from topics.errors import FSCK_REMEDY, FormatError, StorageError
from topics.loop.loop import Loop
from topics.store.backup.backup_logs import check_log
from topics.store.backup.backup_mounts import check_mounted, note_mount
from topics.store.backup.backups import real_place
from topics.store.backup.capture_copy import Captured
from topics.store.backup.write_backup import BackupWriter, OwnCopies
from topics.store.checkpoint.capture import Capture
from topics.store.cores.core_directories import CoreDirectories, core_config, core_marker, core_name, marker_or_none
from topics.store.cores.slot_map_file import COPY_PATH
from topics.store.disk.data_directory import lock_directory
from topics.store.disk.directory_format import SLOT_MAP_NAME, DirectoryFormat, Marker
from topics.store.layouts.directory_names import MARKER_NAME


async def back_up_cores(loop: Loop, config: Config, cores: CoreDirectories, root: str) -> BackupResult:
    """Make a backup of a directory below `root`. The caller holds the lock of the directory.

    Raises: UsageError, no backup can be there; LockedError, a core runs; StorageError; OSError.
    """
    files, lstat = loop.files, loop.ring.lstat
    root = real_place(loop.ring, config, root)
    await check_mounted(files, lstat, cores.path, root)
    marker = await _named_marker(loop, cores.path)
    await check_log(files, root, marker.log)
    stored = cores.stored
    shared = {name: stored.pack() for name in (SLOT_MAP_NAME, COPY_PATH)}
    shared[MARKER_NAME] = msgspec.json.encode(marker)
    async with AsyncExitStack() as stack:
        logs = []
        for core in range(stored.slots.cores):
            own = core_config(config, core)
            capture = await _captured(loop, own, core, cores.number_of(core), stack)
            logs.append(Captured(capture, core_marker(capture.format_number, core, stored), f"{core_name(core)}/"))
        made = await BackupWriter(loop, OwnCopies(loop, logs, lambda: False), root, shared).write()
    with suppress(OSError):  # the backup is there; the next one notes it again
        await note_mount(files, lstat, cores.path, root)
    return made


async def _named_marker(loop: Loop, path: str) -> Marker:
    """Return the marker of the directory, with the id of its log, which is drawn if it has none.

    Raises: FormatError, the marker is missing or damaged; StorageError.
    """
    marker = await marker_or_none(loop.files, path)
    if marker is None:
        raise FormatError(f"{path}/{MARKER_NAME} is missing or damaged: {FSCK_REMEDY}")
    log_id = await DirectoryFormat(loop, path, marker).name_log()
    return msgspec.structs.replace(marker, log=log_id)


async def _captured(loop: Loop, config: Config, core: int, number: int, stack: AsyncExitStack) -> Capture:
    """Recover a core, and return a capture of it. The stack releases it, and closes the core.

    config: of the core. number: that of its directory.
    Raises: LockedError, it runs; StorageError.
    """
    directory = lock_directory(loop.ring, config, core=core, number=number)
    store = await recover_store(loop, config, directory)
    stack.push_async_callback(store.close)
    taken: list[Capture] = []
    await store.checkpointer.run(moves=False, whole=True, on_captured=taken.append)
    if not taken:
        raise StorageError(f"{config.data_dir}: its log could not be copied to its files, with which a backup begins")
    stack.callback(taken[0].release)
    return taken[0]
