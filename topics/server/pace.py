"""The pace of clients: bodies that arrive too slowly, and answers that are not taken.

A slow body holds memory and one of its key's requests in flight; so does an answer.
"""

from __future__ import annotations

from topics.http.wire.transport import Arriving


class BodyPace:
    """The rule that `least_bytes` of a body must arrive in every window.

    window: in the unit of `now`, which the caller chooses (ticks or ns). The caller calls `look`
        with each body regularly; `forget_others` then drops bodies that were not looked at since
        its last call.
    """

    def __init__(self, window: int, least_bytes: int) -> None:
        self._window = window
        self._least_bytes = least_bytes
        self._begun: dict[tuple[int, int], tuple[int, int]] = {}
        """(connection number, body) to (start of its window, bytes received by then)."""
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}

    def look(self, number: int, arriving: Arriving, now: int) -> bool:
        """Return whether a body that is arriving on a connection keeps the pace."""
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
    """The times since connections last took output. It is called like `BodyPace`."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}
        """Connection number to (bytes not taken, time since when there are at least so many)."""
        self._seen: dict[int, tuple[int, int]] = {}

    def look(self, number: int, outbound_bytes: int, now: int) -> int:
        """Return the time since the connection last took output, or since the first look."""
        before, since = self._before.get(number, (0, now))
        if outbound_bytes < before:
            since = now
        self._seen[number] = outbound_bytes, since
        return now - since

    def forget_others(self) -> None:
        self._before, self._seen = self._seen, {}
