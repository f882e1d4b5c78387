"""Keys of writes of one topic: what they answered, and which are still on their way. Source: R-IDEM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from topics.engine.results import AppendRequest, AppendResult, Done


class KeyEntry(NamedTuple):
    first_seq: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on an entry
    started_ms: int
    in_memory: bool = False
    """Its records are of class `ephemeral`: no restart keeps them, nor the entry (R-IDEM-8)."""

    def answer(self) -> AppendResult:
        """What a duplicate gets; the head right after the write was its own last seq."""
        last = self.first_seq + self.count - 1
        return AppendResult(self.first_seq, last, last, self.count, False, True, 0, 0)


Waiting = list[tuple[AppendRequest, Done[AppendResult]]]


class KeyStore:
    """Entries in the order they were stored, which is nearly that of their times: old ones go from the front."""

    __slots__ = ("_entries", "_running")

    def __init__(self) -> None:
        self._entries: dict[bytes, KeyEntry] = {}
        self._running: dict[bytes, Waiting] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes, now_ms: int, window_ms: int) -> KeyEntry | None:
        """The entry of a write that started within the window."""
        entry = self._entries.get(key)
        return entry if entry is not None and now_ms - entry.started_ms <= window_ms else None

    def waiting_for(self, key: bytes) -> Waiting | None:
        """Duplicates behind a write with this key that is not decided yet; None when there is no such write."""
        return self._running.get(key)

    def begin(self, key: bytes) -> None:
        """A write with this key is on its way."""
        assert key not in self._running, "one write of a key at a time"
        self._running[key] = []

    def end(self, key: bytes) -> Waiting:
        """It is decided: those behind it may go on."""
        return self._running.pop(key)

    def store(self, key: bytes, entry: KeyEntry, now_ms: int, window_ms: int) -> None:
        """Stores the entry of a published write and forgets old ones, a few at a time."""
        entries = self._entries
        entries.pop(key, None)
        entries[key] = entry
        for _ in range(min(4, len(entries))):  # with a short window the entry itself may be old by now
            oldest = next(iter(entries))
            if now_ms - entries[oldest].started_ms <= window_ms:
                break
            del entries[oldest]

    def forget_through(self, seq: int) -> None:
        """Forgets the entries of writes up to this seq (recovery)."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.first_seq > seq}

    def within(self, now_ms: int, window_ms: int) -> Iterator[tuple[bytes, KeyEntry]]:
        """Entries a duplicate may still find after a restart (snapshot)."""
        for key, entry in self._entries.items():
            if not entry.in_memory and now_ms - entry.started_ms <= window_ms:
                yield key, entry
