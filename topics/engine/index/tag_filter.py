"""The tag numbers of a chunk in at most a byte a row: a search skips chunks without the tag.

The filter is built once, when a chunk takes no more rows. A row that dies stays in it, so the
filter may answer "perhaps" for a tag that is gone, but never "no" for a tag that exists.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topics.store.format.catalog import NO_TAG

_BITS = 1 << 16
"""Bits of a filter: 8 for each row of a full chunk. With two hashes, one in twenty lookups in a
full chunk gives a false "perhaps".
"""
_SHIFT = 16
_FACTOR = 2_654_435_761
"""The factor of Knuth's 32-bit multiplicative hash; the upper 16 bits are used."""


class TagFilter:
    """A filter of one column of tag numbers. `has_untagged`: some row has no tag."""

    __slots__ = ("_bits", "_first", "_is_exact", "_last", "has_untagged")

    def __init__(self, column: NDArray[np.uint32]) -> None:
        """column: shape (n,), NO_TAG in rows without a tag."""
        numbers = column[column != NO_TAG]
        self.has_untagged = len(numbers) < len(column)
        self._first, self._last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
        span = self._last - self._first + 1
        self._is_exact = span <= _BITS
        bits = np.zeros(span if self._is_exact else _BITS, np.bool_)
        if self._is_exact:
            bits[numbers - np.uint32(self._first)] = True
        else:
            bits[numbers & np.uint32(_BITS - 1)] = True
            bits[(numbers * np.uint32(_FACTOR)) >> np.uint32(_SHIFT)] = True
        self._bits = np.packbits(bits, bitorder="little").tobytes()

    def may_hold(self, number: int) -> bool:
        """Return whether a row may have the tag of this number; False is certain."""
        if not self._first <= number <= self._last:
            return False
        if self._is_exact:
            return self._has(number - self._first)
        return self._has(number & (_BITS - 1)) and self._has(((number * _FACTOR) & 0xFFFFFFFF) >> _SHIFT)

    def _has(self, bit: int) -> bool:
        return bool(self._bits[bit >> 3] >> (bit & 7) & 1)
