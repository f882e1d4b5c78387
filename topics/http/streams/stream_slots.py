"""Limits on the open streams, SSE and WebSocket together, in all and by key."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from topics.engine.shared.limits import AskForRoom, Limit
from topics.engine.values.ports import TimersPort
from topics.errors import RequestError
from topics.http.streams.key_limits import CountedKey, KeyLimit, KeyLimits

KEYS_GONE_A_PASS = 64
"""Streams of keys that are gone that a pass ends, for which the kernel has work, too."""


class Slot:
    """The slot of one open stream. key: the one that it is open for; None without keys.

    of_key: the limit of the key for which it counts. is_of_client: whether its client is connected
    to this core, and not to another one.
    """

    __slots__ = ("_give_back", "is_of_client", "key_id", "of_key", "on_key_gone", "on_shutdown")

    def __init__(
        self,
        give_back: Callable[[Slot], None],
        key: CountedKey | None,
        of_key: KeyLimit | None = None,
        *,
        is_of_client: bool,
    ) -> None:
        self._give_back = give_back
        self.key_id = None if key is None else key.key_id
        self.of_key = of_key
        self.is_of_client = is_of_client
        self.on_key_gone: Callable[[], None] = _nothing
        """Ends the stream, and so releases the slot, when its key is not valid any more.

        The code that opens the stream sets it.
        """
        self.on_shutdown: Callable[[], None] = _nothing
        """Ends the stream as a stop of the server does, which another core may ask for."""

    def release(self) -> None:
        """Free the slot of a stream that has ended. Later calls do nothing."""
        self._give_back(self)


def _nothing() -> None:
    """Stand in for the callbacks of a slot after the end of its stream.

    It breaks the cycle of stream and slot, so that neither waits for the garbage collector.
    """


class StreamSlots:
    """Counts of open streams, in all and per key. most, most_per_key: 0 for no limit.

    Those whose clients are connected to this core count; of the others, their own core counts them.
    ask: see `Limit`.
    """

    def __init__(self, most: int, most_per_key: int, ask: AskForRoom | None = None) -> None:
        self.limit = Limit("max_sse_connections", most, lambda: self.of_clients, ask, _too_many)
        self.of_keys = KeyLimits("max_sse_connections_per_key", most_per_key, ask, _too_many_of_key)
        self._taken: dict[Slot, None] = {}
        self.of_clients = 0
        """The open streams whose clients are connected to this core."""

    @property
    def open(self) -> int:
        return len(self._taken)

    def take(self, key: CountedKey | None, *, is_of_client: bool = True) -> Slot:
        """Take a slot for a stream that is about to open. key: see `Slot`.

        Raises: RequestError throttled; nothing is taken.
        """
        of_key = None
        if is_of_client:
            self.limit.check()
            of_key = self.of_keys.of(key)
            if of_key is not None:
                of_key.check()
                of_key.count += 1
            self.of_clients += 1
        slot = Slot(self._give_back, key, of_key, is_of_client=is_of_client)
        self._taken[slot] = None
        return slot

    def _give_back(self, slot: Slot) -> None:
        if slot not in self._taken:
            return
        del self._taken[slot]
        self.of_clients -= slot.is_of_client
        slot.on_key_gone = slot.on_shutdown = _nothing
        if slot.of_key is not None:
            slot.of_key.count -= 1

    def end_others(self, key_ids: Container[int], timers: TimersPort) -> int:
        """End the streams of keys other than these, some at once and the others in later passes.

        Return their number. Streams without a key stay.
        """
        gone = [slot for slot in self._taken if slot.key_id is not None and slot.key_id not in key_ids]
        _end_some(iter(gone), timers)
        return len(gone)


def _too_many(_name: str, most: int) -> RequestError:
    return RequestError("throttled", f"{most} streams are open (TOPICS_MAX_SSE_CONNECTIONS)")


def _too_many_of_key(_name: str, most: int) -> RequestError:
    return RequestError("throttled", f"this key has {most} streams open (TOPICS_MAX_SSE_CONNECTIONS_PER_KEY)")


def _end_some(gone: Iterator[Slot], timers: TimersPort) -> None:
    for number, slot in enumerate(gone, 1):
        slot.on_key_gone()
        if number == KEYS_GONE_A_PASS:
            timers.call_later(0, lambda: _end_some(gone, timers))
            return
