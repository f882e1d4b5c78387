"""Idempotency keys: identities that are texts of the client, and a topic's store of them.

Source: R-IDEM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from topics.clock import Clock
from topics.engine.index.spread_dict import SpreadDict
from topics.engine.values.results import AppendResult, repeated
from topics.engine.values.topic_config import TopicConfig
from topics.store.format.log_format import Idempotency, pack_idempotency
from topics.store.format.rows import Rows

_KEYS_A_STEP = 1000
_MANY = 4096
"""Keys from which on they are spread."""


class KeyCore(Protocol):
    """The part of the core that a key needs."""

    clock: Clock


class KeyedTopic(Protocol):
    """The members of a topic that a key uses."""

    config: TopicConfig
    keys: KeyStore | None

    def key_store(self) -> KeyStore: ...


class KeyEntry(NamedTuple):
    first_seq: int
    records: int
    started_ms: int
    in_memory: bool = False
    """Whether its records are of class `ephemeral`: a restart loses them and the entry
    (R-IDEM-8).
    """

    def answer(self, _request: object) -> AppendResult:
        """Return the answer to a duplicate, whatever its records."""
        return repeated(self.first_seq, self.records)


class Key:
    """The identity of one write that is an idempotency key. See `Identity`."""

    __slots__ = ("_records", "name", "started_ms")
    is_piece = is_last_piece = False

    def __init__(self, name: bytes) -> None:
        self.name = name
        """The text in UTF-8; b"" is a valid key."""
        self.started_ms = 0
        self._records = 0

    @property
    def extension_bytes(self) -> int:
        return len(pack_idempotency(Idempotency(0, 0, self.name)))

    def find(self, core: KeyCore, topic: KeyedTopic, now_ms: int) -> KeyEntry | None:
        keys = topic.keys
        return None if keys is None else keys.find(self.name, now_ms, topic.config.idempotency_window_ms)

    def begin(self, core: KeyCore, topic: KeyedTopic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        self._records = rows.count
        self.started_ms = now_ms
        return pack_idempotency(Idempotency(rows.count, now_ms, self.name))

    def hold(self, core: KeyCore, topic: KeyedTopic) -> None:
        pass

    def publish(self, core: KeyCore, topic: KeyedTopic, first_seq: int, *, in_memory: bool) -> KeyEntry:
        entry = KeyEntry(first_seq, self._records, self.started_ms, in_memory)
        topic.key_store().store(self.name, entry, core.clock.now_ms(), topic.config.idempotency_window_ms)
        return entry

    def fail(self, core: KeyCore, topic: KeyedTopic) -> None:
        pass


class KeyStore:
    """Keys in the order they were stored, which is nearly that of their times.

    Very many are spread over dicts, each in that order, so that none grows in a long step. Old
    entries are removed from the front.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[bytes, KeyEntry] | SpreadDict[bytes, KeyEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes, now_ms: int, window_ms: int) -> KeyEntry | None:
        """Return the entry of a write that started within the window."""
        entry = self._entries.get(key)
        return entry if entry is not None and now_ms - entry.started_ms <= window_ms else None

    def store(self, key: bytes, entry: KeyEntry, now_ms: int, window_ms: int) -> None:
        """Store the entry of a published write, and forget up to four old entries."""
        every = self._entries
        if not isinstance(every, SpreadDict) and len(every) >= _MANY:
            every = self._entries = SpreadDict(every)
        entries = every.place(key) if isinstance(every, SpreadDict) else every
        entries.pop(key, None)
        entries[key] = entry
        # With a short window, the new entry itself may already be too old.
        for _ in range(min(4, len(entries))):
            oldest = next(iter(entries))
            if now_ms - entries[oldest].started_ms <= window_ms:
                break
            del entries[oldest]

    def forget_through(self, seq: int) -> None:
        """Forget the entries of writes up to this seq (recovery)."""
        kept = {key: entry for some in self._slices() for key, entry in some if entry.first_seq > seq}
        self._entries = SpreadDict(kept) if len(kept) >= _MANY else kept

    def released(self) -> Iterator[None]:
        """Forget all entries now, and free them in steps."""
        every, self._entries = self._entries, {}
        for entries in every.dicts if isinstance(every, SpreadDict) else (every,):
            entries.clear()
            yield

    def within(self, now_ms: int, window_ms: int, upto: int) -> Iterator[list[tuple[bytes, KeyEntry]]]:
        """Yield the entries that a duplicate may still find after a restart (for a snapshot).

        They come some at a time, and perhaps none of those that were looked at. upto: entries of
        later writes are left out, which the log has.
        """
        for some in self._slices():
            yield [
                (key, entry)
                for key, entry in some
                if not entry.in_memory and now_ms - entry.started_ms <= window_ms and entry.first_seq <= upto
            ]

    def _slices(self) -> Iterator[list[tuple[bytes, KeyEntry]]]:
        """Yield the entries, some at a time; others may be stored and removed meanwhile."""
        every = self._entries
        for entries in every.dicts if isinstance(every, SpreadDict) else (every,):
            items = list(entries.items())
            for at in range(0, len(items), _KEYS_A_STEP):
                yield items[at : at + _KEYS_A_STEP]
