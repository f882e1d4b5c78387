"""Bodies that arrive too slowly: one that trickles holds memory and a place among its key's requests in flight."""

from __future__ import annotations

from topics.http.transport import Arriving


class BodyPace:
    """In every window of `window` (ticks or nanoseconds, the caller's unit) `least_bytes` of a body must arrive.

    `look` is called with each connection now and then; `forget_others` drops those not looked at since the last time.
    """

    def __init__(self, window: int, least_bytes: int) -> None:
        self._window = window
        self._least_bytes = least_bytes
        self._begun: dict[int, tuple[int, int, int]] = {}
        """Connection number to (which body, when its window began, bytes of it then)."""
        self._seen: dict[int, tuple[int, int, int]] = {}

    def look(self, number: int, arriving: Arriving | None, now: int) -> bool:
        """Whether the body that is arriving on a connection keeps the pace; None: there is none."""
        if arriving is None:
            return True
        body, since, before = self._begun.get(number, (-1, now, 0))
        kept = True
        if arriving.body != body or arriving.bytes - before >= self._least_bytes:
            since, before = now, arriving.bytes
        elif now - since >= self._window:
            kept = False
        self._seen[number] = arriving.body, since, before
        return kept

    def forget_others(self) -> None:
        self._begun, self._seen = self._seen, {}
