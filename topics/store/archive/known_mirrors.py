"""The mirrors that ask for an archive: what each has, by its own word."""

from __future__ import annotations

from typing import NamedTuple

MIRRORS_MAX = 100
"""Mirrors that are remembered: those that asked last."""
NAME_CHARS_MAX = 200


class _StatedEnd(NamedTuple):
    upto_ms: int
    """Unix ms: all that was acknowledged until then is on the mirror's disk; 0: nothing is."""
    since_ms: int
    """Unix ms since which it has stated that it has nothing, if so."""


class KnownMirrors:
    """The mirrors of one archive, by name, since the process began."""

    def __init__(self) -> None:
        self._known: dict[str, _StatedEnd] = {}

    def note(self, name: str, upto_ms: int, now_ms: int) -> None:
        """Note what a mirror states that it has. A name that is empty or too long is left out."""
        if not 0 < len(name) <= NAME_CHARS_MAX:
            return
        before = self._known.pop(name, None)
        since_ms = now_ms if before is None or before.upto_ms else before.since_ms
        self._known[name] = _StatedEnd(upto_ms, since_ms)
        if len(self._known) > MIRRORS_MAX:
            del self._known[next(iter(self._known))]

    def lags_ms(self, now_ms: int) -> list[tuple[str, int]]:
        """Return the name of each mirror, and the age of the newest time that it has, in ms.

        Of one that has nothing yet it is the time since it stated that first.
        """
        return [
            (name, max(0, now_ms - (known.upto_ms or known.since_ms))) for name, known in sorted(self._known.items())
        ]
