"""A dict for very many keys that grows a small part at a time.

A plain dict copies itself whenever it has grown by half. With 350,000 keys that takes 20 ms, and
ten times as long with ten times as many, in the middle of the operation that adds a key. Here the
keys are spread over many dicts with different shares of them (from one to two times the smallest),
so that the dicts do not grow at the same time either.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

DICTS = 64
_PLACES = 1 << 12
PLACES_MASK = _PLACES - 1
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class SpreadDict(Generic[_K, _V]):
    """A dict with keys whose hashes are spread, as those of bytes and texts are.

    The methods it has behave as a dict's, except that `popitem` has no order.
    """

    __slots__ = ("dicts", "places")

    def __init__(self, items: dict[_K, _V]) -> None:
        """Copy `items`; takes as long as a dict's copy."""
        self.dicts: list[dict[_K, _V]] = [{} for _ in range(DICTS)]
        self.places = [self.dicts[at] for at in _SHARES]
        """The dict for each value of the last bits of a key's hash, `hash(key) & PLACES_MASK`."""
        for key, value in items.items():
            self.place(key)[key] = value

    def __len__(self) -> int:
        return sum(map(len, self.dicts))

    def place(self, key: _K) -> dict[_K, _V]:
        """Return the dict to look up or add this key in."""
        return self.places[hash(key) & PLACES_MASK]

    def get(self, key: _K, default: _V | None = None) -> _V | None:
        return self.place(key).get(key, default)

    def __delitem__(self, key: _K) -> None:
        del self.place(key)[key]

    def popitem(self) -> tuple[_K, _V]:
        for each in self.dicts:
            if each:
                return each.popitem()
        raise KeyError("it is empty")


def _shares() -> list[int]:
    """Return the index of the dict for each place.

    Dict i has 2 ** (i / DICTS) times as many places as dict 0.
    """
    ends = [round(_PLACES * (2 ** ((at + 1) / DICTS) - 1)) for at in range(DICTS)]
    return [at for at in range(DICTS) for _ in range(ends[at] - (ends[at - 1] if at else 0))]


_SHARES = _shares()
assert len(_SHARES) == _PLACES
