"""Counts of distinct texts: exact, or within about 2% from some thousand texts on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
SKETCH_FROM = 4096
"""Number of distinct texts above which an approximate count uses registers instead of hashes.

Both take 32 KiB at about this number.
"""
_BITS = 14
"""2^14 registers of a byte: HyperLogLog's standard error is 1.04 / sqrt(2^14) = 0.8%."""
_REGISTERS = 1 << _BITS


class Distinct:
    """The distinct texts that were added, as 64-bit hashes or as HyperLogLog registers."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._registers: NDArray[np.uint8] | None = None

    def add(self, texts: Iterable[str]) -> None:
        """Add texts; each may occur any number of times."""
        digest = xxhash.xxh3_64_intdigest
        self._add_hashes(np.fromiter((digest(text.encode()) for text in texts), np.uint64))

    def merge(self, other: Distinct) -> None:
        """Add the texts that another object counted."""
        if other._registers is not None:
            np.maximum(self._sketched(), other._registers, out=self._registers)
        else:
            self._add_hashes(other._hashes)

    def count(self) -> int:
        """Return the number of distinct texts, exact or estimated."""
        if self._registers is None:
            return len(self._hashes)
        zeros = int((self._registers == 0).sum())
        raw = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / float((0.5 ** self._registers.astype(float)).sum())
        if raw <= 2.5 * _REGISTERS and zeros:
            return round(_REGISTERS * float(np.log(_REGISTERS / zeros)))
        return round(raw)

    def _add_hashes(self, hashes: Hashes) -> None:
        if self._registers is not None:
            _register(self._registers, hashes)
            return
        self._hashes = np.union1d(self._hashes, hashes)
        if not self._exact and len(self._hashes) > SKETCH_FROM:
            self._sketched()

    def _sketched(self) -> NDArray[Any]:
        """Return the registers, built from the hashes if there are none yet."""
        if self._registers is None:
            self._registers = np.zeros(_REGISTERS, np.uint8)
            _register(self._registers, self._hashes)
            self._hashes = np.empty(0, np.uint64)
        return self._registers


def _register(registers: NDArray[np.uint8], hashes: Hashes) -> None:
    """Update each register to the longest run of zeros, plus one, seen after its number."""
    rest = (hashes << np.uint64(_BITS)) | np.uint64(1 << (_BITS - 1))
    runs = (65 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)
    np.maximum.at(registers, (hashes >> np.uint64(64 - _BITS)).astype(np.intp), runs)
