"""Which log the backups in a directory are of: their markers have its id.

The newest backup there is what a restore takes, and the next one links its files. So a directory
has the backups of one log. Those that an older build made have no id, and pass for any log's.
"""

from __future__ import annotations

import msgspec

from topics.errors import CorruptError, UsageError
from topics.store.backup.backup_manifest import backup_names
from topics.store.disk.directory_format import Marker
from topics.store.disk.whole_files import FileCalls, read_slow_file
from topics.store.layouts.directory_names import MARKER_NAME


async def check_log(files: FileCalls, root: str, log_id: str) -> None:
    """Check that the newest backup with an id is of this log. Raises: UsageError; OSError."""
    for name in reversed(await files.to_thread(backup_names, files, root)):
        if found := await _log_of(files, f"{root}/{name}"):
            if found != log_id:
                raise UsageError(
                    f"backups cannot be in {root}, which has those of another log, such as {name}: name a directory of "
                    "its own for each log (TOPICS_BACKUP_DIR, or --to)"
                )
            return


async def check_one_log(files: FileCalls, root: str) -> None:
    """Check that all backups in a directory are of one log.

    Raises: UsageError, with the newest of each log; OSError.
    """
    newest: dict[str, str] = {}
    for name in backup_names(files, root):
        if found := await _log_of(files, f"{root}/{name}"):
            newest[found] = f"{root}/{name}"
    if len(newest) > 1:
        listed = ", ".join(sorted(newest.values()))
        raise UsageError(f"{root} has the backups of several logs: name a backup of one of them: {listed}")


async def _log_of(files: FileCalls, backup: str) -> str:
    """Return the id of the log that a backup is of; "": it states none, or is damaged."""
    try:
        return log_id_in(await read_slow_file(files, f"{backup}/{MARKER_NAME}", ""))
    except (CorruptError, FileNotFoundError, NotADirectoryError):
        return ""


def log_id_in(marker: bytes) -> str:
    """Return the id of a log in the marker of a backup; "": it has none, or is damaged."""
    try:
        return msgspec.json.decode(marker, type=Marker).log
    except (msgspec.DecodeError, ValueError):
        return ""
