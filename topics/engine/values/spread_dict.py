"""A dict of very many keys that grows a small part at a time.

A dict copies itself whenever it has grown by half: at 350,000 keys that takes 20 ms, at ten times as many ten times as
long, in the middle of whatever added the key. Here keys lie in many dicts. Each gets another share of them, from one to
two, so that they do not grow at the same time either.
"""

from __future__ import annotations

DICTS = 64
_PLACES = 1 << 12


class SpreadDict:
    """Bytes to numbers. What it offers of a dict behaves as there, but for the order of `popitem`, which is none."""

    __slots__ = ("_dicts", "_places")

    def __init__(self, items: dict[bytes, int]) -> None:
        """It holds the same, and takes as long as a copy does."""
        self._dicts: list[dict[bytes, int]] = [{} for _ in range(DICTS)]
        self._places = [self._dicts[at] for at in _SHARES]
        """By the last bits of a key's hash."""
        for key, value in items.items():
            self.place(key)[key] = value

    def __len__(self) -> int:
        return sum(map(len, self._dicts))

    def place(self, key: bytes) -> dict[bytes, int]:
        """The dict that has this key, or would have it: to look for it there, and to add it."""
        return self._places[hash(key) & _PLACES - 1]

    def get(self, key: bytes, default: int | None = None) -> int | None:
        return self.place(key).get(key, default)

    def __delitem__(self, key: bytes) -> None:
        del self.place(key)[key]

    def popitem(self) -> tuple[bytes, int]:
        for each in self._dicts:
            if each:
                return each.popitem()
        raise KeyError("it is empty")


def _shares() -> list[int]:
    """To each place its dict: dict i has 2 ** (i / DICTS) times as many as the first one."""
    ends = [round(_PLACES * (2 ** ((at + 1) / DICTS) - 1)) for at in range(DICTS)]
    return [at for at in range(DICTS) for _ in range(ends[at] - (ends[at - 1] if at else 0))]


_SHARES = _shares()
assert len(_SHARES) == _PLACES
