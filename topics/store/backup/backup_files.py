"""Directories of many files: made file by file and synced in the end, or removed."""

from __future__ import annotations

import os

from topics.store.disk.whole_files import FileCalls, list_if_there, make_directories


class NewTree:
    """A new directory whose files are written one after the other. `root` exists."""

    def __init__(self, files: FileCalls, root: str) -> None:
        self._files = files
        self.root = root
        self._unsynced: dict[str, None] = {root: None}
        """The directories on the way to the files, each after the one that it is in.

        All are synced, because an attempt that failed may have made them.
        """

    def place(self, name: str) -> str:
        """Return the path of a file below the root, whose directory is there. Raises: OSError."""
        path = f"{self.root}/{name}"
        if os.path.dirname(path) not in self._unsynced:
            make_directories(self._files, self.root, os.path.dirname(name), {})
            at = self.root
            for part in os.path.dirname(name).split("/"):
                at = f"{at}/{part}"
                self._unsynced[at] = None
        return path

    async def sync(self) -> None:
        """Sync the directories of all new files, innermost first. Raises: OSError."""
        for directory in reversed(self._unsynced):
            await self._files.sync_directory(directory)


async def remove_tree(files: FileCalls, path: str) -> None:
    """Remove a directory with all that is in it. Raises: OSError."""
    for name in list_if_there(files, path):
        below = f"{path}/{name}"
        try:
            await files.unlink(below)
        except IsADirectoryError:
            await remove_tree(files, below)
    files.remove_directory(path)
