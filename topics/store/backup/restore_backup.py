"""The copy of a backup in the place of a data directory, with every checksum compared."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

import xxhash

from topics.errors import CorruptError, UsageError
from topics.loop.loop import Loop
from topics.store.backup.backup_files import NewTree
from topics.store.backup.backup_manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    PARTIAL,
    BackupFile,
    BackupManifest,
    backup_names,
    is_backup_name,
    read_manifest,
)
from topics.store.disk.data_directory import make_with_parents, sync_parents
from topics.store.disk.whole_files import list_if_there

_CHUNK_BYTES = 1 << 20
_REMEDY = "restore another backup; `topics verify` shows all damage"


def find_backup(loop: Loop, path: str) -> str:
    """Return the directory of a backup: `path`, or the newest one below it.

    Raises: UsageError, there is none; CorruptError, it has no manifest; OSError.
    """
    if MANIFEST_NAME in list_if_there(loop.files, path):
        return path
    if found := backup_names(loop.files, path):
        path = f"{path}/{found[-1]}"
        if MANIFEST_NAME in list_if_there(loop.files, path):
            return path
    if is_backup_name(os.path.basename(path.rstrip("/"))):
        message = f"{path}/{MANIFEST_NAME} is missing, and nothing else says what the backup has: {_REMEDY}"
        raise CorruptError(message, {"path": path})
    if path.rstrip("/").endswith(PARTIAL):
        raise UsageError(f"{path} is a backup that was not completed: name another one")
    raise UsageError(f"there is no backup in {path}: name the directory of one, or the one that backups are made in")


async def check_backup(loop: Loop, directory: str) -> list[str]:
    """Compare every file of a backup with its manifest; return what differs, a sentence each.

    Raises: CorruptError, the manifest is damaged; FormatError; OSError.
    """
    found: list[str] = []
    manifest = await read_manifest(loop.files, directory)
    for file in manifest.files:
        try:
            _check_kind(loop, f"{directory}/{file.path}")
            await _read_all(loop, directory, file, None)
        except CorruptError as error:
            found.append(str(error))
    return found + _unlisted(loop, directory, manifest)


def has_only_files(loop: Loop, directory: str, manifest: BackupManifest) -> bool:
    """Return whether all that a backup lists can be opened: not so a pipe, which may never end."""
    try:
        for file in manifest.files:
            _check_kind(loop, f"{directory}/{file.path}")
    except CorruptError:
        return False
    return True


def _unlisted(loop: Loop, directory: str, manifest: BackupManifest) -> list[str]:
    """Return a sentence for each file that is in a backup, and not in its list.

    A program that opened the directory may have left its lock.
    """
    known = {MANIFEST_NAME, LOCK_NAME}
    directories = {""}
    for file in manifest.files:
        known.add(file.path)
        at = os.path.dirname(file.path)
        while at and at not in directories:
            directories.add(at)
            at = os.path.dirname(at)
    found = []
    for below in sorted(directories):
        for name in list_if_there(loop.files, f"{directory}/{below}" if below else directory):
            path = f"{below}/{name}" if below else name
            if path not in known and path not in directories:
                found.append(f"{directory}/{path} is not in the list of the backup: no restore copies it")
    return found


async def copy_backup(
    loop: Loop, directory: str, target: str, *, wants: Callable[[str], bool] = lambda _path: True
) -> BackupManifest:
    """Copy a backup to `target`, durably except for the name of `target`, which must not exist.

    wants: returns whether to copy a file, by its path in the backup.
    Raises: CorruptError, a file is not what the manifest says; FormatError; OSError.
    """
    files = loop.files
    manifest = await read_manifest(files, directory)
    made_in = make_with_parents(loop.ring, target)
    await sync_parents(loop, target, made_in)
    copies = NewTree(files, target)
    for file in manifest.files:
        if wants(file.path):
            _check_kind(loop, f"{directory}/{file.path}")
            await _read_all(loop, directory, file, copies)
    await copies.sync()
    return manifest


def _check_kind(loop: Loop, path: str) -> None:
    """Raises: CorruptError, this is there and no regular file: to open a pipe may never end."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(loop.ring.lstat(path).st_mode):
            raise CorruptError(f"{path} of the backup is no regular file: {_REMEDY}", {"path": path})


async def _read_all(loop: Loop, directory: str, file: BackupFile, copies: NewTree | None) -> None:
    """Read a file of a backup, compare its checksum, and copy it, if there is where to.

    Raises: CorruptError, it is not what the manifest says; OSError of the copy.
    """
    files, path, digest = loop.files, f"{directory}/{file.path}", xxhash.xxh3_64()
    try:
        fd = await files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise CorruptError(f"{path} of the backup is missing: {_REMEDY}", {"path": path}) from None
    write_fd = -1
    try:
        if copies is not None:
            write_fd = await files.open(await copies.place(file.path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        buffer = memoryview(bytearray(min(_CHUNK_BYTES, file.bytes + 1)))
        at = 0
        while count := await files.read_into(fd, buffer, at):
            digest.update(buffer[:count])
            if write_fd >= 0:
                await files.write_all(write_fd, buffer[:count], at)
            at += count
        if (at, digest.hexdigest()) != (file.bytes, file.xxh3):
            what = f"has {at} bytes, not {file.bytes}" if at != file.bytes else "does not match its checksum"
            raise CorruptError(f"{path} of the backup {what}: {_REMEDY}", {"path": path})
        if write_fd >= 0:
            await files.fsync(write_fd)
    finally:
        await files.close(fd)
        if write_fd >= 0:
            await files.close(write_fd)
