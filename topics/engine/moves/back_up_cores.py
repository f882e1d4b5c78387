"""A backup of a directory of several cores, of which none runs. Source: docs/backup.md.

Nothing is written meanwhile, so what the cores have is of one instant. Each is recovered, as at its
start, and stays open until its files are copied.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

from topics.common.values.backup_result import BackupResult
from topics.config import Config
from topics.engine.stored_engine import recover_store
from topics.errors import StorageError
from topics.loop.loop import Loop
from topics.store.archive.joint_timeline import named_joint
from topics.store.backup.backup_mounts import note_mount
from topics.store.backup.backups import real_place
from topics.store.backup.capture_copy import Captured
from topics.store.backup.shared_files import shared_files
from topics.store.backup.write_backup import BackupWriter, OwnCopies
from topics.store.checkpoint.capture import Capture
from topics.store.cores.core_directories import CoreDirectories, core_config, core_marker, core_name
from topics.store.disk.data_directory import lock_directory


async def back_up_cores(loop: Loop, config: Config, cores: CoreDirectories, root: str) -> BackupResult:
    """Make a backup of a directory below `root`. The caller holds the lock of the directory.

    Raises: UsageError, no backup can be there; LockedError, a core runs; StorageError; OSError.
    """
    root, stored = real_place(loop.ring, config, root), cores.stored
    joint = await named_joint(loop.files, cores)
    shared = await shared_files(loop, cores, root)
    async with AsyncExitStack() as stack:
        logs = []
        for core in range(stored.slots.cores):
            own = core_config(config, core, joint)
            capture = await _captured(loop, own, core, cores.number_of(core), stack)
            logs.append(Captured(capture, core_marker(capture.format_number, core, stored), f"{core_name(core)}/"))
        made = await BackupWriter(loop, OwnCopies(loop, logs, lambda: False), root, shared).write()
    with suppress(OSError):  # the backup is there; the next one notes it again
        await note_mount(loop.files, loop.ring.lstat, cores.path, root)
    return made


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
