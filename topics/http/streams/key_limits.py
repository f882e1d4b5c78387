"""Limits that each key has for itself.

A key is known by its mark: on several cores its number differs, and so do its numbers before and
after its rights were changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topics.engine.shared.limits import AskForRoom, Limit
from topics.engine.state import refusals
from topics.errors import RequestError


class CountedKey(Protocol):
    """The part of `topics.http.access.principal.Principal` for which streams and sessions count."""

    key_id: int | None
    mark: bytes
    is_valid: bool


class KeyLimit(Limit):
    """The limit of one key. count: what is in use of it here."""

    __slots__ = ("count",)

    def __init__(
        self,
        setting: str,
        whole: int,
        ask: AskForRoom | None,
        refuse: Callable[[str, int], RequestError],
        mark: str,
    ) -> None:
        self.count = 0
        super().__init__(setting, whole, lambda: self.count, ask, refuse, of=mark)


class KeyLimits:
    """The limits of all keys by one setting. Keys keep theirs for as long as the server lives."""

    def __init__(
        self,
        setting: str,
        whole: int,
        ask: AskForRoom | None = None,
        refuse: Callable[[str, int], RequestError] = refusals.limit_reached,
    ) -> None:
        """whole: of each key; 0 for no limit. ask, refuse: see `Limit`."""
        self._setting = setting
        self._whole = whole
        self._ask = ask
        self._refuse = refuse
        self._by_mark: dict[str, KeyLimit] = {}
        self._divide: Callable[[Limit], None] | None = None

    def divide(self, divide: Callable[[Limit], None]) -> None:
        """Let other cores have parts of each. divide(limit): is called with one before its use."""
        self._divide = divide
        for limit in self._by_mark.values():
            divide(limit)

    def of(self, key: CountedKey | None) -> KeyLimit | None:
        """Return the limit of a key; None: there is no limit, or no key."""
        return self._of(key.mark.hex()) if key is not None and key.mark and self._whole else None

    def named(self, name: str) -> KeyLimit | None:
        """Return the limit of this name, which another core has used; None: it is none of these."""
        setting, _, mark = name.partition(" ")
        return self._of(mark) if mark and setting == self._setting and self._whole else None

    def _of(self, mark: str) -> KeyLimit:
        limit = self._by_mark.get(mark)
        if limit is None:
            limit = self._by_mark[mark] = KeyLimit(self._setting, self._whole, self._ask, self._refuse, mark)
            if self._divide is not None:
                self._divide(limit)
        return limit
