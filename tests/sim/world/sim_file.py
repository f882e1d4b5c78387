"""One file of the simulated disk: what reads see, what is on stable storage, and what is between."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

SECTOR_BYTES = 512
BLOCK_BYTES = 4096
_ZEROS = memoryview(bytes(1 << 18))


class Pending(NamedTuple):
    """A change not yet durable: bytes at `offset`, or (`data` None) a new size `offset`; `cut`: a smaller one."""

    order: int
    offset: int
    data: bytes | None
    cut: bool = False


class SimFile:
    """`live` is what buffered reads see; `durable` what survives a power cut for certain; `pending` is between.

    Buffered and direct writes both wait in `pending`: a direct write has left the page cache but not the device's.
    `lost` are ranges whose sync failed: clean in the page cache, never to be written again.
    """

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = bytearray()
        self.pending: list[Pending] = []
        self.lost: list[tuple[int, int]] = []
        self.newest = (0, 0)
        """Range that became durable last."""
        self.syncs = 0
        """How often `durable` may have changed."""
        self.changed = 0
        """Number of the disk's last change of it, in the place of the time that lstat(2) gives."""
        self.links = 0
        self.opens = 0
        self.locked_by: list[object] = []
        self.lock_is_shared = False
        self._order = 0

    @property
    def space_bytes(self) -> int:
        """Space taken, in whole blocks."""
        return -(-len(self.live) // BLOCK_BYTES) * BLOCK_BYTES

    def write(self, offset: int, data: bytes) -> None:
        """Takes the bytes into the caches."""
        if not data:
            return
        end = offset + len(data)
        _grow(self.live, offset)
        self.live[offset:end] = data
        self._add(offset, data)
        if self.lost:
            self.lost = [piece for lost in self.lost for piece in _without(lost, offset, end)]

    def resize(self, size: int, *, shrink: bool) -> None:
        """Grows with zeros (fallocate), or cuts to `size` (O_TRUNC)."""
        if size > len(self.live):
            _grow(self.live, size)
            self._add(size, None)
        elif shrink and size < len(self.live):
            del self.live[size:]
            self._add(size, None, cut=True)

    def read(self, offset: int, size: int, *, direct: bool) -> bytes:
        """Return what `read_into` reads."""
        data = bytearray(min(size, max(0, len(self.live) - offset)))
        self.read_into(memoryview(data), offset, direct=direct)
        return bytes(data)

    def read_into(self, view: memoryview, offset: int, *, direct: bool) -> int:
        """Buffered reads see the page cache; direct ones the device, which never got what a failed sync lost."""
        with memoryview(self.live) as live, live[offset : offset + len(view)] as piece:
            size = len(piece)
            view[:size] = piece
        if direct:
            for start, end in self.lost:
                first, last = max(start, offset), min(end, offset + size)
                if first < last:
                    stored = bytes(self.durable[first:last]).ljust(last - first, b"\0")
                    view[first - offset : last - offset] = stored
        return size

    @property
    def order(self) -> int:
        """Number of the latest change; a sync covers what came before it started."""
        return self._order

    def sync(self, upto: int) -> None:
        """Makes all changes up to number `upto` durable."""
        self.syncs += 1
        for change in self.pending:
            if change.order <= upto:
                _apply(self.durable, change.offset, change.data, cut=change.cut)
                if change.data is not None:
                    self.newest = change.offset, change.offset + len(change.data)
        self.pending = [change for change in self.pending if change.order > upto]

    def lose(self, upto: int, rng: random.Random | None = None) -> None:
        """A sync failed: its pages are marked clean although the disk never got them; with `rng`, some of them."""
        all_of_them = rng is None or rng.random() < 0.5
        for change in self.pending:
            if change.order > upto or change.data is None:
                continue
            for first, last in _pages(change.offset, change.offset + len(change.data)):
                if all_of_them or (rng is not None and rng.random() < 0.5):
                    self.lost.append((first, last))
                else:
                    _apply(self.durable, first, change.data[first - change.offset : last - change.offset])
        self.pending = [change for change in self.pending if change.order > upto or change.data is None]

    def sync_range(self, offset: int, size: int) -> None:
        """RWF_DSYNC: makes the sectors of one range durable, nothing else of the file."""
        self.sync(max((change.order for change in self.pending if change.cut), default=0))  # a cut precedes it
        self.syncs += 1
        start = offset // SECTOR_BYTES * SECTOR_BYTES
        end = min(len(self.live), -(-(offset + size) // SECTOR_BYTES) * SECTOR_BYTES)
        _apply(self.durable, start, bytes(self.live[start:end]))
        self.newest = start, end
        rest: list[Pending] = []
        for change in self.pending:
            if change.data is None:
                rest.append(change)
                continue
            for first, last in _without((change.offset, change.offset + len(change.data)), start, end):
                piece = change.data[first - change.offset : last - change.offset]
                rest.append(Pending(change.order, first, piece))
        self.pending = rest

    def crash_image(self, rng: random.Random) -> bytes:
        """Return what a power cut may leave: each sector as durable or as any unsynced write of it left it.

        The size is the durable one or the one after any of the unsynced changes of it. In between it moves by blocks:
        ext4 and XFS note a size with the page that was written back, not with the sector. A write into space that was
        allocated before it changes no size: what is there of it is seen if the allocation is there.
        """
        image = bytearray(self.durable)
        # Per sector the changes come in their order; a coin for each decides which prefix the disk
        # got. The coin is the file's: with only even ones a large write would never survive beside
        # one that did not.
        kept = rng.choice((0.0, 0.5, 0.5, 0.9, 1.0))
        stopped: set[int] = set()
        size = len(self.durable)
        allocated = 0
        for change in self.pending:
            if change.data is None:
                allocated = 0 if change.cut else max(allocated, change.offset)
                if rng.random() < kept:
                    _apply(image, change.offset, None, cut=change.cut)
                    size = len(image) if change.cut else max(size, change.offset)
                continue
            end = change.offset + len(change.data)
            for sector in range(change.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
                if sector in stopped or rng.random() >= kept:
                    stopped.add(sector)
                    continue
                start = max(change.offset, sector * SECTOR_BYTES)
                stop = min(end, (sector + 1) * SECTOR_BYTES)
                _apply(image, start, change.data[start - change.offset : stop - change.offset])
                if end > allocated:
                    size = max(size, min(end, -(-stop // BLOCK_BYTES) * BLOCK_BYTES))
            if end > max(size, allocated) and rng.random() < 0.5:
                size = end
        if len(image) < size:
            image.extend(bytes(size - len(image)))
        return bytes(image[:size])

    def _add(self, offset: int, data: bytes | None, *, cut: bool = False) -> None:
        self._order += 1
        self.pending.append(Pending(self._order, offset, data, cut))


def _grow(image: bytearray, size: int) -> None:
    """Adds zeros up to this size."""
    while len(image) < size:
        image.extend(_ZEROS[: size - len(image)])


def _apply(image: bytearray, offset: int, data: bytes | None, *, cut: bool = False) -> None:
    if offset > len(image):
        _grow(image, offset)
    elif cut:
        del image[offset:]
    if data is not None:
        image[offset : offset + len(data)] = data


def _pages(start: int, end: int) -> list[tuple[int, int]]:
    """[start, end) cut at the bounds of pages."""
    cuts = [start, *range(start // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES, end, BLOCK_BYTES), end]
    return list(itertools.pairwise(cuts))


def _without(piece: tuple[int, int], start: int, end: int) -> list[tuple[int, int]]:
    """Return what is left of [piece) without [start, end)."""
    first, last = piece
    if last <= start or first >= end:
        return [piece]
    return [p for p in ((first, start), (end, last)) if p[0] < p[1]]
