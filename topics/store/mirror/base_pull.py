"""A base of a mirror: files are linked if an older base has them, else copied and compared."""

from __future__ import annotations

import contextlib
import os

import xxhash

from topics.errors import CorruptError, FormatError
from topics.loop.loop import Loop
from topics.store.archive.archive_note import BASES
from topics.store.backup.backup_files import NewTree, remove_tree
from topics.store.backup.backup_manifest import (
    MANIFEST_NAME,
    PARTIAL,
    BackupFile,
    BackupManifest,
    backup_names,
    is_partial,
    read_manifest,
    unpack_manifest,
)
from topics.store.disk.whole_files import list_if_there, write_new_file
from topics.store.mirror.mirror_source import MirrorSource


class BasePull:
    """One base that is being copied."""

    def __init__(self, loop: Loop, source: MirrorSource, timeline: str, name: str, piece_bytes: int) -> None:
        """timeline: the directory of the timeline here."""
        self._loop = loop
        self._files = loop.files
        self._source = source
        self._timeline = os.path.basename(timeline)
        self._bases = f"{timeline}/{BASES}"
        self._piece_bytes = piece_bytes
        self.name = name
        self._raw = b""
        self._left: list[BackupFile] = []
        self._same: dict[tuple[str, int, str], str] = {}
        self._tree = NewTree(loop.files, f"{self._bases}/{name}{PARTIAL}")
        self._fd = -1
        self._at = 0
        self._digest = xxhash.xxh3_64()
        self.copied_bytes = 0

    @property
    def left_bytes(self) -> int:
        return sum(file.bytes for file in self._left) - self._at

    async def look(self) -> BackupManifest:
        """Return the base's manifest. Raises: MissingPartError; CorruptError; FormatError."""
        while piece := await self._piece(MANIFEST_NAME, len(self._raw)):
            self._raw += piece
        path = f"{BASES}/{self.name}/{MANIFEST_NAME} of the server's archive"
        manifest = unpack_manifest(self._raw, path, "See `topics verify` on the server")
        self._left = list(manifest.files)
        return manifest

    async def begin(self) -> None:
        """Make room. Raises: OSError."""
        files = self._files
        for name in list_if_there(files, self._bases):
            if is_partial(name):
                await remove_tree(files, f"{self._bases}/{name}")
        for part in (self._bases, self._tree.root):
            files.make_directory(part)
        for name in backup_names(files, self._bases)[-1:]:
            with contextlib.suppress(CorruptError, FormatError, FileNotFoundError):
                before = await read_manifest(files, f"{self._bases}/{name}")
                self._same = {
                    (file.path, file.bytes, file.xxh3): f"{self._bases}/{name}/{file.path}" for file in before.files
                }

    async def advance(self) -> bool:
        """Copy a piece. Return whether the base is whole, durably.

        Raises: MissingPartError; CorruptError, a file is not what the manifest says; OSError.
        """
        if not self._left:
            await write_new_file(self._files, await self._tree.place(MANIFEST_NAME), self._raw)
            await self._tree.sync()
            await self._files.rename(self._tree.root, f"{self._bases}/{self.name}")
            await self._files.sync_directory(self._bases)
            await self._files.sync_directory(os.path.dirname(self._bases))
            return True
        file = self._left[0]
        if self._fd < 0:
            same = self._same.get((file.path, file.bytes, file.xxh3))
            if same is not None:
                with contextlib.suppress(OSError):
                    self._files.link(same, await self._tree.place(file.path))
                    self._left.pop(0)
                    return False
            self._fd = await self._files.open(await self._tree.place(file.path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._at, self._digest = 0, xxhash.xxh3_64()
        piece = await self._piece(file.path, self._at)
        if piece:
            self._digest.update(piece)
            await self._files.write_all(self._fd, piece, self._at)
            self._at += len(piece)
            self.copied_bytes += len(piece)
        if not piece or self._at >= file.bytes:
            if (self._at, self._digest.hexdigest()) != (file.bytes, file.xxh3):
                path = f"{BASES}/{self.name}/{file.path}"
                raise CorruptError(
                    f"{path} of the server's archive is not what its manifest says: `topics verify` it there",
                    {"path": path},
                )
            await self._files.fsync(self._fd)
            await self._close()
            self._left.pop(0)
            self._at = 0
        return False

    async def give_up(self) -> None:
        """Remove what is there of it, as far as possible."""
        with contextlib.suppress(OSError):
            await self._close()
        with contextlib.suppress(OSError):
            await remove_tree(self._files, self._tree.root)

    async def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            await self._files.close(fd)

    async def _piece(self, path: str, offset: int) -> bytes:
        return await self._source.piece(self._timeline, f"{BASES}/{self.name}/{path}", offset, self._piece_bytes)
