"""Latencies as a histogram in the layout of HdrHistogram: 3 digits, from 1 ns to an hour.

The load client counts in it, so that each answer costs one addition. `encoded` is the format V2 of
HdrHistogram, which its other implementations read.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topics.bench.load._load import lib

SLOTS = lib.TP_HDR_SLOTS
HIGHEST_NS = lib.TP_HDR_HIGHEST
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)
_HALF = 1024
_DIGITS = 3
_PLAIN_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314


def slot_of(value: int) -> int:
    """Return the slot of a value. This is the model of the C function, in arithmetic."""
    value = min(max(value, 1), HIGHEST_NS)
    bucket = max(0, value.bit_length() - 11)
    return ((bucket + 1) << 10) + (value >> bucket) - _HALF


def lowest_of(slot: int) -> int:
    """Return the lowest value of a slot."""
    bucket = max(0, (slot >> 10) - 1)
    return (slot - (bucket << 10)) << bucket


def highest_of(slot: int) -> int:
    """Return the highest value that counts in a slot, as HdrHistogram reports it."""
    return lowest_of(slot) + (1 << max(0, (slot >> 10) - 1)) - 1


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """Counts by slot. counts: uint64, shape (SLOTS,)."""

    counts: NDArray[np.uint64]

    @classmethod
    def of(cls, values: Iterable[int]) -> LatencyHistogram:
        """Return the histogram of values in ns."""
        counts = np.zeros(SLOTS, np.uint64)
        for value in values:
            counts[slot_of(value)] += np.uint64(1)
        return cls(counts)

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def quantile(self, share: float) -> int:
        """Return the value that `share` of all do not exceed, ns; 0 if there is none."""
        running = np.cumsum(self.counts)
        total = int(running[-1])
        if not total:
            return 0
        wanted = max(1, int(share * total + 0.5))
        return highest_of(int(np.searchsorted(running, wanted)))

    def mean_ns(self) -> float:
        filled = np.flatnonzero(self.counts)
        if not len(filled):
            return 0.0
        middles = np.array([(lowest_of(int(slot)) + highest_of(int(slot))) / 2 for slot in filled])
        weights = self.counts[filled].astype(float)
        return float((middles * weights).sum() / weights.sum())

    def __add__(self, other: LatencyHistogram) -> LatencyHistogram:
        return LatencyHistogram(self.counts + other.counts)

    def encoded(self) -> str:
        """Return the histogram as HdrHistogram V2, compressed, in base64."""
        filled = np.flatnonzero(self.counts)
        payload = bytearray()
        at = 0
        for slot in filled:
            if gap := int(slot) - at:
                payload += _zigzag(-gap)
            payload += _zigzag(int(self.counts[slot]))
            at = int(slot) + 1
        head = struct.pack(">iiiiqqd", _PLAIN_COOKIE, len(payload), 0, _DIGITS, 1, HIGHEST_NS, 1.0)
        body = zlib.compress(head + bytes(payload))
        return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(body)) + body).decode()

    @classmethod
    def decoded(cls, text: str) -> LatencyHistogram:
        """Return the histogram that `encoded` gave."""
        plain = zlib.decompress(base64.b64decode(text)[8:])
        counts = np.zeros(SLOTS, np.uint64)
        at, slot = struct.calcsize(">iiiiqqd"), 0
        while at < len(plain):
            value, at = _unzigzag(plain, at)
            if value < 0:
                slot -= value
            else:
                counts[slot] = value
                slot += 1
        return cls(counts)

    def curve(self) -> list[tuple[float, int]]:
        """Return points (share of all, ns) of the percentile curve, one for each filled slot."""
        running = np.cumsum(self.counts)
        total = int(running[-1])
        return [(int(running[slot]) / total, highest_of(int(slot))) for slot in np.flatnonzero(self.counts)]


def _zigzag(value: int) -> bytes:
    """A signed number as HdrHistogram's LEB128: 7 bits a byte, and 8 in the ninth."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F and len(out) < 8:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _unzigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        if shift == 56:
            value |= byte << shift
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1), at
