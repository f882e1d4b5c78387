"""Configurations of topics and routers as plain values. Source: wire contract, 5.4, 7.7, 9.1."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgspec

from topics.common.values.near_names import suggestion
from topics.config import DURABILITIES
from topics.errors import UsageError

TYPES = ("log", "queue")
DISCARDS = ("old", "reject")

LEASE_MS_MIN, LEASE_MS_MAX = 100, 86_400_000
CLAIM_JITTER_MS_MAX = 5000

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
GUARANTEES = (AT_LEAST_ONCE, EXACTLY_ONCE)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TopicConfig:
    """One topic's configuration, normalized: equal configs that are `interned` are one object.

    Times are in milliseconds; 0 switches a limit off. The constructor clamps nothing.
    """

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    durability: str = "disk"
    """The commit class. `durable` on the wire states whether it is "fsync"."""
    priority: int | None = None
    """The priority as given, unclamped."""
    auto_priority: bool = True
    auto_create: bool = True
    """Consulted only in the `config` of a creating write."""
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    """Unchecked text: `check_dead_letter_of` checks after parsing that it is a topic name."""
    leases_durable: bool = False
    _json: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.type in TYPES
        assert self.discard in DISCARDS
        assert self.durability in DURABILITIES
        assert LEASE_MS_MIN <= self.lease_ms <= LEASE_MS_MAX
        assert 0 <= self.claim_jitter_ms <= CLAIM_JITTER_MS_MAX
        object.__setattr__(self, "_json", self._render())

    @property
    def durable(self) -> bool:
        return self.durability == "fsync"

    @property
    def is_queue(self) -> bool:
        return self.type == "queue"

    def as_json(self) -> bytes:
        """Return compact JSON of the 17 fields in the wire contract's order.

        Read again, it gives this object once it is `interned`.
        """
        return self._json

    def _render(self) -> bytes:
        shown: dict[str, Any] = {}
        for name in FIELDS:
            shown[name] = self.durable if name == "durable" else getattr(self, name)
        return msgspec.json.encode(shown)


def interned(config: TopicConfig) -> TopicConfig:
    """Return the one object of all equal configs."""
    return _INTERNED.setdefault(config.as_json(), config)


def check_setting_names(names: Iterable[str]) -> None:
    """Check keyword arguments of `put_topic`. Raises: UsageError, one is no setting of a topic."""
    if unknown := sorted(set(names) - set(FIELDS)):
        advice = suggestion(unknown[0], FIELDS, f"use one of {', '.join(FIELDS)}")
        raise UsageError(f"unknown topic setting {unknown[0]!r}: {advice}")


FIELDS = tuple(
    name
    for spec in fields(TopicConfig)
    if spec.name != "_json"
    for name in (("durable", "durability") if spec.name == "durability" else (spec.name,))
)
_INTERNED: weakref.WeakValueDictionary[bytes, TopicConfig] = weakref.WeakValueDictionary()
DEFAULT = interned(TopicConfig())
"""The config of an empty body."""


class Predicate(NamedTuple):
    """A test of a tag against `value` (UTF-8).

    is_prefix False (Eq): the tag equals `value`. True (Glob): the tag starts with `value`, which
    has no `*`.
    """

    is_prefix: bool
    value: bytes

    @classmethod
    def of(cls, text: str) -> Predicate:
        """Build a predicate from the bare form: a Glob if it ends in `*`, otherwise an Eq."""
        if text.endswith("*"):
            return cls(True, text[:-1].encode())
        return cls(False, text.encode())

    def matches(self, tag: bytes | None) -> bool:
        """Return whether a tag matches; None, an untagged record, never does."""
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value

    def as_json(self) -> bytes:
        """Return the compact three-element form, the inverse of `parse_predicate`."""
        operator, text = ("Glob", self.value.decode() + "*") if self.is_prefix else ("Eq", self.value.decode())
        return msgspec.json.encode(["tag", operator, text])


class RouterConfig(NamedTuple):
    """A client's settings for a router. Source: wire contract, section 9.1."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Predicate | None = None
    allow_cycle: bool = False
    guarantee: str = AT_LEAST_ONCE
