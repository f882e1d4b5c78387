"""The images that a power cut may leave of a disk: all that was flushed, and of what came after, what the seed decides.

A write after the last flush is there, not there, or there up to some sector. Source: RELIABILITY, T8.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_ENTRY = struct.Struct("<QQQ")
_SECTOR_BYTES = 512


class Entry(NamedTuple):
    """One line of the disk's log. `data` None with a length: zeros. kind: "W", "Z" or "F"."""

    kind: str
    offset: int
    length: int
    data: memoryview | None


def read_log(path: Path) -> list[Entry]:
    """The log of disk.c; a torn last entry is dropped."""
    text = memoryview(path.read_bytes())
    entries: list[Entry] = []
    at = 0
    while at + _ENTRY.size <= len(text):
        kind, offset, length = _ENTRY.unpack_from(text, at)
        at += _ENTRY.size
        data = None
        if kind == ord("W"):
            data = text[at : at + length]
            at += length
            if len(data) < length:
                break
        entries.append(Entry(chr(kind), offset, length, data))
    return entries


def images(entries: Sequence[Entry], cuts: Sequence[int], size: int, seed: int) -> Iterator[tuple[int, bytearray]]:
    """(cut, disk) for each cut, ascending: `cut` entries had reached the disk when the power went."""
    base = bytearray(size)
    applied = 0
    for cut in sorted(cuts):
        flushed = applied
        for at in range(cut - 1, applied - 1, -1):
            if entries[at].kind == "F":
                flushed = at + 1
                break
        for entry in entries[applied:flushed]:
            _apply(base, entry, entry.length)
        applied = flushed
        rng = random.Random(f"{seed} {cut}")
        image = bytearray(base)
        for entry in entries[flushed:cut]:
            fate = rng.random()
            if fate < 0.5:
                _apply(image, entry, entry.length)
            elif fate < 0.65:
                _apply(image, entry, rng.randrange(entry.length // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
        yield cut, image


def _apply(image: bytearray, entry: Entry, length: int) -> None:
    if entry.kind != "F":
        image[entry.offset : entry.offset + length] = bytes(length) if entry.data is None else entry.data[:length]
