"""Parts of a copy in a bucket, copied to a directory: each file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy
from topics.embedded.bucket.bucket_manifest import (
    REMEDY,
    BucketManifest,
    at_once,
    base_timeline,
    piece_bytes,
    piece_name,
)
from topics.embedded.bucket.needed_parts import log_after
from topics.errors import CorruptError, UsageError
from topics.store.backup.backup_manifest import PARTIAL


class Fetched(NamedTuple):
    """The outcome of a copy from a bucket."""

    files: int
    bytes: int
    """Bytes that were read from the bucket: what the directory had was not."""


async def fetch(copy: BucketCopy, to: str, options: BucketOptions) -> Fetched:
    """Copy parts below the directory `to`, each under its path. What is there is not read again.

    A backup is whole once it has its name, and a timeline once it has its note.
    Raises: UsageError, something else is there; CorruptError, a piece is damaged or missing;
        StorageError, the bucket fails or is slow; OSError. What was copied stays then, and the next
        call continues.
    """
    fetching = CopyFetch(copy, to, options)
    await fetching.fetch(copy.parts)
    return Fetched(fetching.files, fetching.bytes)


class _FetchedPiece(NamedTuple):
    """A piece of a file that is to be written."""

    path: str
    offset: int
    key: str


class CopyFetch:
    """Reads parts of a copy to one directory, and no file of them twice.

    Its calls raise as `fetch`.
    """

    def __init__(self, copy: BucketCopy, to: str, options: BucketOptions) -> None:
        self._copy = copy
        self._to = to
        self._bucket = copy.bucket
        self._options = options
        self._copies: dict[tuple[str, tuple[str, ...]], str] = {}
        """Files that are there by now, by their key and pieces."""
        self.files = 0
        self.bytes = 0

    async def fetch(self, parts: Iterable[BucketManifest]) -> None:
        """Copy parts, each under its path."""
        for part in parts:
            await self._fetch(part, f"{self._to}/{part.path}")

    async def fetch_after(self, base: str) -> None:
        """Copy a base, and the log after it, without the note of the timeline, which is not whole.

        base: its path in the copy. Those after it are there.
        """
        (manifest,) = (each for each in self._copy.backups if each.path == base)
        (log,) = (each for each in self._copy.logs if each.path == base_timeline(base))
        await self.fetch([manifest])
        timeline, files = f"{self._to}/{log.path}", log_after(log, [manifest]).files
        missing = {name: pieces for name, pieces in files.items() if not os.path.lexists(f"{timeline}/{name}")}
        await self._fetch_files(BucketManifest.of(log.path, log.kind, log.description, missing), timeline)

    async def _fetch(self, part: BucketManifest, target: str) -> None:
        """Copy one part to a directory."""
        described = f"{target}/{part.kind}"
        if os.path.lexists(described):
            if Path(described).read_bytes() != part.description.encode():
                raise UsageError(f"{described} is of another copy: use a directory where it is not")
            self._note(part, target)
            return
        if part.is_backup and os.path.lexists(target):
            raise UsageError(f"{target} exists, and is no backup: use another directory, or remove it")
        made = f"{target}{PARTIAL}" if part.is_backup else target
        await self._fetch_files(part, made)
        _write_whole(f"{made}/{part.kind}", part.description.encode())
        _sync_directories(made)
        if part.is_backup:
            os.rename(made, target)
        _sync(os.path.dirname(target) or ".")
        self._note(part, target)

    async def _fetch_files(self, part: BucketManifest, made: str) -> None:
        """Copy the files of a part to a directory, without the one that describes it."""
        os.makedirs(made, exist_ok=True)
        missing: list[_FetchedPiece] = []
        links: list[tuple[str, str]] = []
        for name, pieces in part.files.items():
            path = f"{made}/{name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            same = (part.key(name, ""), tuple(pieces))
            if pieces and same in self._copies:
                links.append((self._copies[same], path))
                continue
            missing += _missing_pieces(part, name, path)
        await at_once(self._options.parallel, missing, self._write_piece)
        for original, path in links:
            _link(original, path)
        self.files += len(part.files)
        _sync_all(f"{made}/{name}" for name in part.files)

    def _note(self, part: BucketManifest, target: str) -> None:
        """Note files that are there: an equal one of a later backup becomes a link to it."""
        self._copies.update(((part.key(name, ""), tuple(part.files[name])), f"{target}/{name}") for name in part.files)

    async def _write_piece(self, piece: _FetchedPiece) -> None:
        data = await self._bucket.get(piece.key)
        if (fault := fault_of(piece.key, data)) or data is None:
            where = f"{self._bucket.url}/{piece.key}"
            raise CorruptError(f"{where} {fault}: {REMEDY}", {"path": where})
        with _opened(piece.path, os.O_WRONLY | os.O_CREAT) as fd:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, piece.offset + len(data) - len(view))
                view = view[done:]
        self.bytes += len(data)


def fault_of(key: str, data: bytes | None) -> str:
    """Return what is wrong with the bytes of a piece; "" if nothing is."""
    piece = key.rpartition("/")[2]
    if data is None:
        return "is missing"
    if len(data) != piece_bytes(piece):
        return f"has {len(data)} bytes, and {piece_bytes(piece)} were written"
    return "" if piece_name(data) == piece else "does not match the SHA-256 in its name"


def _missing_pieces(part: BucketManifest, name: str, path: str) -> list[_FetchedPiece]:
    """Return the pieces of a file that are not there yet, and cut off what is too much."""
    pieces = part.files[name]
    size = sum(map(piece_bytes, pieces))
    with _opened(path, os.O_RDWR | os.O_CREAT) as fd:
        is_new = not os.fstat(fd).st_size
        os.ftruncate(fd, size)
        found, at = [], 0
        for piece in pieces:
            if is_new or piece_name(os.pread(fd, piece_bytes(piece), at)) != piece:
                found.append(_FetchedPiece(path, at, part.key(name, piece)))
            at += piece_bytes(piece)
        return found


def _link(original: str, path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    os.link(original, path)


def _write_whole(path: str, data: bytes) -> None:
    """Write a file that is there under its name only with all of its bytes."""
    with _opened(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd, open(fd, "wb", closefd=False) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(fd)
    os.rename(f"{path}.new", path)


def _sync_all(paths: Iterable[str]) -> None:
    for path in paths:
        _sync(path)


def _sync_directories(root: str) -> None:
    for directory, _, _ in os.walk(root, topdown=False):
        _sync(directory)


def _sync(path: str) -> None:
    with _opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """Yield a descriptor of a file, closed in the end. Raises: OSError, with the path."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield fd
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)
