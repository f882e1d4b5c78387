"""Bodies that arrive too slowly: one that trickles holds memory and a place among its key's requests in flight."""

from __future__ import annotations

from topics.http.connection import HttpConnection, Phase


class BodyPace:
    """In every window of `window` (ticks or nanoseconds, the caller's unit) `least_bytes` of a body must arrive.

    `look` is called with each connection now and then; `forget_others` drops those not looked at since the last time.
    """

    def __init__(self, window: int, least_bytes: int) -> None:
        self._window = window
        self._least_bytes = least_bytes
        self._begun: dict[int, tuple[int, int]] = {}
        """Connection number to (when its window began, bytes held then)."""
        self._seen: dict[int, tuple[int, int]] = {}

    def look(self, number: int, http: HttpConnection, now: int) -> bool:
        """Whether the connection's body, if one is arriving, keeps the pace."""
        if http.phase is not Phase.BODY:
            return True
        held = http.held_bytes
        since, before = self._begun.get(number, (now, held))
        if held < before:  # the body of another request
            since, before = now, held
        kept = True
        if held - before >= self._least_bytes:
            since, before = now, held
        elif now - since >= self._window:
            kept = False
        self._seen[number] = since, before
        return kept

    def forget_others(self) -> None:
        self._begun, self._seen = self._seen, {}
