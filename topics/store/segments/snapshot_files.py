"""Snapshot files: written in two copies, and found again, the newest sound one first.

A checkpoint writes two files of the same content under two numbers, so that one may decay without
loss: the log before it was recycled. An older pair is removed when both are durable, or, on a full
disk, when one is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import xxhash

from topics.common.bounded_steps import result_of
from topics.errors import CorruptError, StorageError
from topics.loop.tasks import Future
from topics.store.disk.disk_space import is_full
from topics.store.disk.time_slices import a_step_a_pass
from topics.store.disk.whole_files import (
    FileCalls,
    in_place,
    list_if_there,
    read_file,
    read_pieces,
    replace_file,
    unlink_if_there,
)
from topics.store.layouts.directory_names import SNAPSHOT_DIRECTORY, numbered, snapshot_path
from topics.store.layouts.snapshot_format import (
    SNAPSHOT_HEADER_BYTES,
    SNAPSHOT_LARGE_BYTES,
    Pieces,
    SnapshotFile,
    pack_snapshot,
    sum_in_steps,
)
from topics.store.segments.store_part import StorePart, unpack_in_steps, unpack_store_part

log = logging.getLogger(__name__)

COPIES = 2


class Loaded(NamedTuple):
    """The newest sound snapshot."""

    number: int
    store: StorePart
    catalog: bytes | memoryview
    skipped: list[str]
    """Paths of newer snapshots that are damaged."""


def snapshot_numbers(files: FileCalls, directory: str) -> list[int]:
    """Return the numbers of all snapshot files, newest first."""
    names = list_if_there(files, f"{directory}/{SNAPSHOT_DIRECTORY}")
    return sorted((n for name in names if (n := numbered(name, "snapshot-")) is not None), reverse=True)


async def load_snapshot(
    files: FileCalls, directory: str, next_pass: Callable[[], Future[None]] | None = None
) -> Loaded | None:
    """Return the newest sound snapshot; None if there is no file of that name at all.

    next_pass: it is decoded in steps, with a pass of the loop between two.

    Raises: CorruptError, there are some and none is sound; FormatError, one is of a newer build.
    """
    found, skipped = await _newest(files, directory, (CorruptError,), next_pass)
    if found is None and skipped:
        raise CorruptError(
            f"{skipped[0]}: no snapshot is sound. Run `topics fsck --rebuild` to restore from segments",
            {"path": skipped[0]},
        )
    return found


async def sound_snapshot(files: FileCalls, directory: str) -> Loaded | None:
    """Return the newest snapshot that can be read; None if there is none."""
    found, _skipped = await _newest(files, directory, (StorageError, msgspec.DecodeError))
    return found


async def read_snapshot(files: FileCalls, path: str) -> SnapshotFile:
    """Return a whole snapshot. Raises FormatError, CorruptError or OSError."""
    size = files.file_size(path)
    if size > SNAPSHOT_LARGE_BYTES:
        SnapshotFile.check_size(await read_file(files, path, SNAPSHOT_HEADER_BYTES), size, path)
    body, skips = xxhash.xxh3_64(), SNAPSHOT_HEADER_BYTES

    def add(piece: memoryview) -> None:
        nonlocal skips
        body.update(piece[skips:])
        skips = max(0, skips - len(piece))

    data = await read_pieces(files, path, add)
    return SnapshotFile.unpack(data, path, body.intdigest())


async def _newest(
    files: FileCalls,
    directory: str,
    passes_over: tuple[type[Exception], ...],
    next_pass: Callable[[], Future[None]] | None = None,
) -> tuple[Loaded | None, list[str]]:
    """Return the newest snapshot that raises none of these, and the paths of those that did."""
    skipped: list[str] = []
    for number in snapshot_numbers(files, directory):
        path = f"{directory}/{snapshot_path(number)}"
        try:
            file = await read_snapshot(files, path)
            if next_pass is None:
                store = unpack_store_part(file.store)
            else:
                store = await a_step_a_pass(next_pass, unpack_in_steps(file.store))
            return Loaded(number, store, file.catalog, skipped), skipped
        except passes_over:
            skipped.append(path)
    return None, skipped


async def write_snapshot(
    files: FileCalls,
    directory: str,
    *,
    after: int,
    now_ms: int,
    store: Pieces,
    catalog: Pieces,
    body_sum: int | None = None,
) -> int:
    """Write both copies durably, then remove older ones. Return the number of the newest.

    With space for only one copy, one has to suffice: it allows more space to be freed than another
    copy takes, and the next checkpoint writes two again. Without space for the first, the second
    copy of the previous snapshot is removed to make some.

    store: from `pack_store_part`, in pieces.
    catalog: from `CheckpointCatalog.snapshot`, of the same instant.
    body_sum: from `sum_in_steps`; None: it is computed at once.
    Raises: OSError.
    """
    newest = after
    if body_sum is None:
        body_sum = result_of(sum_in_steps(store, catalog))
    for number in range(after + 1, after + 1 + COPIES):
        path, data = f"{directory}/{snapshot_path(number)}", pack_snapshot(number, now_ms, store, catalog, body_sum)
        try:
            try:
                await replace_file(files, path, *data)
            except OSError as error:
                if not is_full(error) or not await _give_up_copies(files, directory):
                    raise
                await replace_file(files, path, *data)
        except OSError as error:
            if number == after + 1 or not is_full(error):
                raise
            log.warning("no space for a second copy of snapshot %d: %s", newest, error)
            break
        newest = number
    for number in snapshot_numbers(files, directory):
        if number <= after:
            await _remove(files, f"{directory}/{snapshot_path(number)}")
    return newest


async def _give_up_copies(files: FileCalls, directory: str) -> bool:
    """Remove all snapshots except the newest sound one; return whether one was removed.

    The directory is synced first, because its name may be that of a checkpoint that failed before
    syncing it, and a power cut could remove it.

    Raises: OSError.
    """
    numbers = snapshot_numbers(files, directory)
    found = await sound_snapshot(files, directory) if len(numbers) > 1 else None
    if found is None:
        return False
    await in_place(files.sync_directory(f"{directory}/{SNAPSHOT_DIRECTORY}"))
    for number in numbers:
        if number != found.number:
            await _remove(files, f"{directory}/{snapshot_path(number)}")
    return len(snapshot_numbers(files, directory)) < len(numbers)


async def _remove(files: FileCalls, path: str) -> None:
    """Remove an older snapshot.

    If a full disk has no space for that, the next checkpoint removes it.
    """
    try:
        await unlink_if_there(files, path)
    except OSError as error:
        if not is_full(error):
            raise
        log.warning("removing %s failed, the next checkpoint tries again: %s", path, error)
