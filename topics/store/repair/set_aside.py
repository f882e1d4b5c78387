"""Copies of damaged files, made before a rebuild replaces or removes them.

They are in `set-aside-<ms>` in the data directory.
"""

from __future__ import annotations

from topics.store.disk.data_directory import SET_ASIDE
from topics.store.disk.whole_files import FileCalls, write_new_file
from topics.store.layouts.directory_names import COLD
from topics.store.segments.tiers import Tiers


class SetAside:
    """The copies of one rebuild. The directory is created with the first copy."""

    def __init__(self, files: FileCalls, tiers: Tiers, now_ms: int) -> None:
        self._files = files
        self._tiers = tiers
        self._path = f"{tiers.hot}/{SET_ASIDE}{now_ms}"
        self.copies: list[str] = []
        """Paths of the copies."""

    async def copy(self, path: str, data: bytes) -> None:
        """Copy a file durably; the first copy of a file stays as it is. Raises OSError."""
        if self._files.make_directory(self._path):
            await self._files.sync_directory(self._tiers.hot)
        tier, root = next((tier, root) for tier, root in self._tiers.roots() if path.startswith(f"{root}/"))
        name = ("cold/" if tier == COLD else "") + path[len(root) + 1 :]
        copy = f"{self._path}/{name.replace('/', '-')}"
        if copy in self.copies:
            return
        await write_new_file(self._files, copy, data)
        await self._files.sync_directory(self._path)
        self.copies.append(copy)
