"""The configuration of a topic: 17 fields, always complete. Source: wire contract, section 5.4."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec

from topics.config import DURABILITIES
from topics.engine.values.json_fields import Fields, read_object
from topics.engine.values.name_rules import check_dead_letter
from topics.errors import RequestError, UsageError

TYPES = ("log", "queue")
DISCARDS = ("old", "reject")

LEASE_MS_MIN, LEASE_MS_MAX = 100, 86_400_000
CLAIM_JITTER_MS_MAX = 5000


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TopicConfig:
    """One topic's configuration, normalized: equal configs from `parse` or `make` are one object.

    Times are in milliseconds; 0 switches a limit off. Build a config with `make` or `parse`, which
    clamp; the constructor does not.
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

        `parse` of it gives this object.
        """
        return self._json

    def _render(self) -> bytes:
        shown: dict[str, Any] = {}
        for name in _ORDER:
            shown[name] = self.durable if name == "durable" else getattr(self, name)
        return msgspec.json.encode(shown)

    @classmethod
    def parse(cls, text: bytes, what: str = "the body", prefix: str = "") -> TopicConfig:
        """Parse a config from its JSON object. Omitted fields and an empty text take defaults.

        what, prefix: as in `read_object`.
        Raises: RequestError invalid_request, which names the field.
        """
        return cls.from_fields(read_object(text, what, prefix)) if text else DEFAULT

    @classmethod
    def from_fields(cls, given: Fields) -> TopicConfig:
        """Build a config from an object's fields (types: R-JSON-4 to -8).

        Values out of range are clamped.
        """
        durable = given.boolean("durable", False)
        durability = given.nullable_choice("durability", DURABILITIES)
        return _interned(
            cls(
                type=given.choice("type", TYPES, "log"),
                ttl_ms=given.u64("ttl_ms", 0),
                cap_records=given.u64("cap_records", 0),
                cap_bytes=given.u64("cap_bytes", 0),
                discard=given.choice("discard", DISCARDS, "old"),
                durability=durability or ("fsync" if durable else "disk"),
                priority=given.nullable_i32("priority"),
                auto_priority=given.boolean("auto_priority", True),
                auto_create=given.boolean("auto_create", True),
                idempotency_window_ms=given.u64("idempotency_window_ms", 120_000),
                dedupe_node=given.boolean("dedupe_node", True),
                lease_ms=clamped_lease_ms(given.u64("lease_ms", 30_000)),
                claim_jitter_ms=min(given.u64("claim_jitter_ms", 0), CLAIM_JITTER_MS_MAX),
                max_deliveries=given.u64("max_deliveries", 0),
                dead_letter=given.nullable_string("dead_letter"),
                leases_durable=given.boolean("leases_durable", False),
            )
        )

    @classmethod
    def make(cls, **values: Any) -> TopicConfig:
        """Build a config from keyword arguments, for the embedded API.

        Names, types and clamps are those of the wire.
        Raises: UsageError, an unknown name, a value of the wrong type or range, or a dead_letter
        that is no topic name.
        """
        return cls.from_fields(_checked_fields(values))


@dataclass(frozen=True, slots=True)
class ConfigPatch:
    """A change of some fields of a config (7.17). Build one with `make` or `parse`, which clamp."""

    changes: dict[str, Any]
    """The fields of `TopicConfig` that change, by name. `durable` has become a `durability`."""

    @classmethod
    def parse(cls, text: bytes) -> ConfigPatch:
        """Parse a patch from the JSON object of a body.

        Raises: RequestError invalid_request, which names the field.
        """
        return cls.from_fields(read_object(text))

    @classmethod
    def from_fields(cls, given: Fields) -> ConfigPatch:
        """Build a patch from an object's fields; `null` means the default."""
        named = TopicConfig.from_fields(given)
        names = {"durability" if name == "durable" else name for name in _ORDER if name in given}
        return cls({name: getattr(named, name) for name in names})

    @classmethod
    def make(cls, **values: Any) -> ConfigPatch:
        """Build a patch from keyword arguments, for the embedded API; as `TopicConfig.make`."""
        return cls.from_fields(_checked_fields(values))

    @property
    def dead_letter(self) -> str | None:
        """The dead letter that the patch names, unchecked; None if it names none."""
        named: str | None = self.changes.get("dead_letter")
        return named

    def applied_to(self, config: TopicConfig) -> TopicConfig:
        """Return the config with the patch's fields, and its own values of all others."""
        return _interned(replace(config, **self.changes))


def _checked_fields(values: dict[str, Any]) -> Fields:
    """Return keyword arguments as the fields of a config on the wire.

    Raises: UsageError, as `TopicConfig.make`.
    """
    if unknown := values.keys() - set(_ORDER):
        raise UsageError(f"unknown topic setting {sorted(unknown)[0]!r}: use one of {', '.join(_ORDER)}")
    try:
        given = read_object(msgspec.json.encode(values), "the config")
        dead_letter = TopicConfig.from_fields(given).dead_letter
        if dead_letter is not None:
            check_dead_letter(dead_letter)
    except (RequestError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(str(error)) from None
    return given


def clamped_lease_ms(lease_ms: int) -> int:
    """Clamp a lease time to the bounds for config, claim, extend and the push stream."""
    return max(LEASE_MS_MIN, min(lease_ms, LEASE_MS_MAX))


def check_dead_letter_of(config: TopicConfig, topic: str) -> None:
    """Check the dead letter of a create or reconfigure of `topic`: checks 3 and 4 of contract 7.1.

    Raises: RequestError invalid_request, dead_letter is no topic name (detail {dead_letter}), or it
    is the queue itself.
    """
    if config.dead_letter is None:
        return
    check_dead_letter(config.dead_letter)
    if config.is_queue and config.dead_letter == topic:
        message = "dead_letter must name another topic: a queue cannot be its own dead letter"
        raise RequestError("invalid_request", message)


def _interned(config: TopicConfig) -> TopicConfig:
    return _INTERNED.setdefault(config.as_json(), config)


_ORDER = tuple(
    name
    for spec in fields(TopicConfig)
    if spec.name != "_json"
    for name in (("durable", "durability") if spec.name == "durability" else (spec.name,))
)
_INTERNED: weakref.WeakValueDictionary[bytes, TopicConfig] = weakref.WeakValueDictionary()
DEFAULT = _interned(TopicConfig())
"""The config of an empty body."""
