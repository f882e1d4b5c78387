"""The mirrors that ask for an archive: what each has, by its own word."""

from __future__ import annotations

from typing import NamedTuple

MIRRORS_MAX = 100
"""Mirrors that are remembered: those that asked last."""
NAME_CHARS_MAX = 200


class _StatedEnd(NamedTuple):
    has_nothing: bool
    upto_ns: int
    """Time of the loop: all that was acknowledged until then is on the mirror's disk. Of one that
    has nothing it is the time at which it stated that first.
    """


class KnownMirrors:
    """The mirrors of one archive, by name, since the process began."""

    def __init__(self) -> None:
        self._known: dict[str, _StatedEnd] = {}

    def note(self, name: str, upto_ms: int, now_ms: int, now_ns: int, archived_ms: int) -> None:
        """Note what a mirror states that it has. A name that is empty or too long is left out.

        upto_ms: Unix ms; 0: nothing. now_ms, now_ns: Unix time, and that of the loop. archived_ms:
        Unix ms up to which the archive is.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX:
            return
        before, late_ms = self._known.pop(name, None), now_ms - upto_ms
        has_nothing, upto_ns = not upto_ms, now_ns
        if upto_ms and late_ms >= 0:
            upto_ns -= late_ms * 1_000_000
        elif before is not None and before.has_nothing == has_nothing and (has_nothing or upto_ms < archived_ms):
            upto_ns = before.upto_ns  # above now_ms: the clock was set back since
        self._known[name] = _StatedEnd(has_nothing, upto_ns)
        if len(self._known) > MIRRORS_MAX:
            del self._known[next(iter(self._known))]

    def lags_ms(self, now_ns: int) -> list[tuple[str, int]]:
        """Return the name of each mirror, and the age of the newest time that it has, in ms.

        Of one that has nothing yet it is the time since it stated that first. now_ns: time of the
        loop.
        """
        return [(name, (now_ns - known.upto_ns) // 1_000_000) for name, known in sorted(self._known.items())]
