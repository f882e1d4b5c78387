"""Bodies that arrive too slowly: one that trickles holds memory and a place among its key's requests in flight."""

from __future__ import annotations


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

    def look(self, number: int, held: int | None, now: int) -> bool:
        """Whether the connection's bodies keep the pace. held: what has come of them, None when none is arriving."""
        if held is None:
            return True
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
