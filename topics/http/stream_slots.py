"""How many streams may be open: SSE and WebSocket together. Source: wire contract, R-SSE-5."""

from __future__ import annotations

from collections.abc import Callable

from topics.errors import RequestError


class StreamSlots:
    """Counts open streams, in all and per key. most, most_per_key: 0 is no limit."""

    def __init__(self, most: int, most_per_key: int) -> None:
        self._most = most
        self._most_per_key = most_per_key
        self._by_key: dict[int, int] = {}
        self.open = 0

    def take(self, key_id: int | None) -> Callable[[], None]:
        """A slot for a stream about to open; call what is returned when it ends (again does nothing).

        key_id: of the key the stream counts for, None without keys. Raises: RequestError throttled; nothing is held.
        """
        held = self._by_key.get(key_id, 0) if key_id is not None else 0
        if self._most and self.open >= self._most:
            raise RequestError("throttled", f"{self._most} streams are open (TOPICS_MAX_SSE_CONNECTIONS)")
        if self._most_per_key and held >= self._most_per_key:
            message = f"this key has {held} streams open (TOPICS_MAX_SSE_CONNECTIONS_PER_KEY)"
            raise RequestError("throttled", message)
        self.open += 1
        if key_id is not None:
            self._by_key[key_id] = held + 1
        taken = True

        def release() -> None:
            nonlocal taken
            if taken:
                taken = False
                self._release(key_id)

        return release

    def _release(self, key_id: int | None) -> None:
        self.open -= 1
        if key_id is not None:
            left = self._by_key[key_id] - 1
            if left:
                self._by_key[key_id] = left
            else:
                del self._by_key[key_id]
