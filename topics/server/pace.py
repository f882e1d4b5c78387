"""How fast clients give and take: bodies that trickle in, and answers that are not taken.

A body that trickles holds memory and a place among its key's requests in flight; so does an answer.
"""

from __future__ import annotations

from topics.http.wire.transport import Arriving


class BodyPace:
    """In every window of `window` (ticks or nanoseconds, the caller's unit) `least_bytes` of a body must arrive.

    `look` is called with each body now and then; `forget_others` drops those not looked at since the last time.
    """

    def __init__(self, window: int, least_bytes: int) -> None:
        self._window = window
        self._least_bytes = least_bytes
        self._begun: dict[tuple[int, int], tuple[int, int]] = {}
        """Connection number and body to (when its window began, bytes of it then)."""
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}

    def look(self, number: int, arriving: Arriving, now: int) -> bool:
        """Whether a body that is arriving on a connection keeps the pace."""
        key = number, arriving.body
        since, before = self._begun.get(key, (now, arriving.bytes))
        kept = True
        if arriving.bytes - before >= self._least_bytes:
            since, before = now, arriving.bytes
        elif now - since >= self._window:
            kept = False
        self._seen[key] = since, before
        return kept

    def forget_others(self) -> None:
        self._begun, self._seen = self._seen, {}


class Stalls:
    """For how long connections have taken nothing of what was written for them. Called like `BodyPace`."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}
        """Connection number to (bytes not taken, since when so many or more)."""
        self._seen: dict[int, tuple[int, int]] = {}

    def look(self, number: int, outbound_bytes: int, now: int) -> int:
        """How long ago some of it was taken or, when that was never seen, it was looked at first."""
        before, since = self._before.get(number, (0, now))
        if outbound_bytes < before:
            since = now
        self._seen[number] = outbound_bytes, since
        return now - since

    def forget_others(self) -> None:
        self._before, self._seen = self._seen, {}
