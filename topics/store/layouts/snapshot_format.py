"""The layout of a snapshot, `snapshots/snapshot-<number:016x>`.

It is a header of 64 bytes, the store's part (JSON) and the catalog's part (JSON).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from itertools import chain
from typing import NamedTuple

import xxhash

from topics.common.bounded_steps import result_of
from topics.errors import CorruptError, FormatError
from topics.store.layouts.file_kind import VERSION, check_kind

SNAPSHOT_VERSION = 2
"""Version 2 has topics as columns, which a build that only knows 1 would ignore. Both are read."""
SNAPSHOT_MAGIC = b"TPSN"
_SNAPSHOT_HEADER = struct.Struct("<4sHHQQQQ16x")
"""magic, version, 0, number, created_ms, store bytes, catalog bytes; u64 checksum."""
SNAPSHOT_HEADER_BYTES = _SNAPSHOT_HEADER.size + 8
SUMMED_A_STEP = 1 << 20
"""Bytes of a snapshot after which a step of its sum ends."""
Pieces = Sequence[bytes | memoryview]
SNAPSHOT_LARGE_BYTES = 64 << 20
"""A larger snapshot is not read in one step: its header is read first, which has its size."""
assert SNAPSHOT_HEADER_BYTES == 64


class SnapshotFile(NamedTuple):
    """A whole snapshot file."""

    number: int
    created_ms: int
    store: bytes | memoryview
    catalog: bytes | memoryview

    def pack(self) -> bytes:
        return b"".join(pack_snapshot(self.number, self.created_ms, [self.store], [self.catalog]))

    @staticmethod
    def check_size(header: bytes | memoryview, size: int, path: str) -> None:
        """Check that a file of `size` bytes is as large as its header says.

        A file whose magic or version is unknown passes if it has the size of a snapshot. `unpack`,
        which takes the whole file, distinguishes damage from a file of a newer build.

        Raises: FormatError or CorruptError.
        """
        if len(header) >= SNAPSHOT_HEADER_BYTES:
            *_, store_bytes, catalog_bytes = _SNAPSHOT_HEADER.unpack_from(header)
            expected = SNAPSHOT_HEADER_BYTES + store_bytes + catalog_bytes
            if size == expected:
                return
        check_kind(header, SNAPSHOT_HEADER_BYTES, SNAPSHOT_MAGIC, "a snapshot", path, newest=SNAPSHOT_VERSION)
        raise CorruptError(f"{path}: the snapshot has {size} bytes; its header says {expected}", {"path": path})

    @classmethod
    def unpack(cls, data: bytes | memoryview, path: str, body_sum: int | None = None) -> SnapshotFile:
        """Parse and verify a snapshot file. Raises FormatError or CorruptError.

        body_sum: XXH3-64 of what follows the header, and the parts are views of `data`; None: it is
            computed here, and the parts are copies.
        """
        body = memoryview(data)[SNAPSHOT_HEADER_BYTES:]
        if body_sum is None:
            body, body_sum = memoryview(bytes(body)), xxhash.xxh3_64_intdigest(body)
        try:
            check_kind(data, SNAPSHOT_HEADER_BYTES, SNAPSHOT_MAGIC, "a snapshot", path, newest=SNAPSHOT_VERSION)
        except FormatError:
            # A newer build's checksum covers its own version, so it never fits one that this build
            # knows.
            if any(_is_sound(data, kind, body_sum) for kind in _SNAPSHOT_KINDS):
                raise CorruptError(f"{path}: magic or version of the snapshot is damaged", {"path": path}) from None
            raise
        if not _is_sound(data, bytes(data[: len(_SNAPSHOT_KINDS[0])]), body_sum):
            raise CorruptError(f"{path}: checksum of the snapshot is wrong", {"path": path})
        _, _, _, number, created_ms, store_bytes, _ = _SNAPSHOT_HEADER.unpack_from(data)
        return cls(number, created_ms, body[:store_bytes], body[store_bytes:])


_SNAPSHOT_KINDS = [struct.pack("<4sH", SNAPSHOT_MAGIC, version) for version in range(VERSION, SNAPSHOT_VERSION + 1)]
"""Magic and version: the first bytes of each kind of snapshot that this build reads."""


def _is_sound(data: bytes | memoryview, kind: bytes, body_sum: int) -> bool:
    """Return whether a snapshot is sound if its magic and version are `kind`.

    Its length and its checksum are compared.
    """
    *_, store_bytes, catalog_bytes = _SNAPSHOT_HEADER.unpack_from(data)
    if len(data) != SNAPSHOT_HEADER_BYTES + store_bytes + catalog_bytes:
        return False
    stored = int.from_bytes(data[_SNAPSHOT_HEADER.size : SNAPSHOT_HEADER_BYTES], "little")
    return stored == xxhash.xxh3_64_intdigest(kind + bytes(data[len(kind) : _SNAPSHOT_HEADER.size]), seed=body_sum)


def pack_snapshot(
    number: int,
    created_ms: int,
    store: Pieces,
    catalog: Pieces,
    body_sum: int | None = None,
) -> list[bytes | memoryview]:
    """Return a `SnapshotFile`, whose parts come in pieces, as pieces of the file.

    body_sum: from `sum_in_steps`; None: it is computed here.
    """
    if body_sum is None:
        body_sum = result_of(sum_in_steps(store, catalog))
    sizes = sum(map(len, store)), sum(map(len, catalog))
    head = _SNAPSHOT_HEADER.pack(SNAPSHOT_MAGIC, SNAPSHOT_VERSION, 0, number, created_ms, *sizes)
    checksum = xxhash.xxh3_64_intdigest(head, seed=body_sum)
    return [head + checksum.to_bytes(8, "little"), *store, *catalog]


def sum_in_steps(store: Pieces, catalog: Pieces) -> Generator[None, None, int]:
    """Return the sum of a snapshot's parts, some MiB a step: those of 10^6 topics have 90."""
    body, summed = xxhash.xxh3_64(), 0
    for piece in chain(store, catalog):
        for at in range(0, len(piece), SUMMED_A_STEP):
            if summed >= SUMMED_A_STEP:
                summed = 0
                yield
            part = memoryview(piece)[at : at + SUMMED_A_STEP]
            body.update(part)
            summed += len(part)
    return body.intdigest()
