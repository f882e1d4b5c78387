"""Configurations of topics as clients give them, checked. Source: wire contract, section 5.4."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from topics.common.values import arguments
from topics.common.values.configs import (
    CLAIM_JITTER_MS_MAX,
    DEFAULT,
    DISCARDS,
    FIELDS,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    TYPES,
    TopicConfig,
    check_setting_names,
    interned,
)
from topics.config import DURABILITIES
from topics.engine.json.known_keys import KnownKeys
from topics.engine.values.json_fields import Fields, read_object
from topics.engine.values.name_rules import check_dead_letter
from topics.errors import RequestError, UsageError

__all__ = [
    "DEFAULT",
    "ConfigPatch",
    "TopicConfig",
    "check_dead_letter_of",
    "clamped_lease_ms",
    "config_of_fields",
    "make_config",
    "read_config",
]

CONFIG_KEYS = KnownKeys.of(*FIELDS)
"""The keys of a configuration on the wire."""


def read_config(text: bytes, what: str = "the body", prefix: str = "") -> TopicConfig:
    """Parse a config from its JSON object. Omitted fields and an empty text take defaults.

    what, prefix: as in `read_object`.
    Raises: RequestError invalid_request, which names the field.
    """
    return config_of_fields(read_object(text, what, prefix)) if text else DEFAULT


def config_of_fields(given: Fields) -> TopicConfig:
    """Build a config from an object's fields (types: R-JSON-4 to -8).

    Values out of range are clamped.
    """
    durable = given.boolean("durable", False)
    durability = given.nullable_choice("durability", DURABILITIES)
    return interned(
        TopicConfig(
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


def make_config(**values: Any) -> TopicConfig:
    """Build a config from keyword arguments, for the embedded API.

    Names, types and clamps are those of the wire.
    Raises: UsageError, an unknown name, a value of the wrong type or range, or a dead_letter that
    is no topic name.
    """
    return _checked(values)[1]


@dataclass(frozen=True, slots=True)
class ConfigPatch:
    """A change of some fields of a config (7.17). Build one with `make` or
    `from_fields`, which clamp.
    """

    changes: dict[str, Any]
    """The fields of `TopicConfig` that change, by name. `durable` has become a `durability`."""

    @classmethod
    def from_fields(cls, given: Fields) -> ConfigPatch:
        """Build a patch from an object's fields; `null` means the default.

        Raises: RequestError invalid_request, which names the field.
        """
        return cls._of(given, config_of_fields(given))

    @classmethod
    def _of(cls, given: Fields, named: TopicConfig) -> ConfigPatch:
        """Build a patch from an object's fields, and the config that they and the defaults make."""
        names = {"durability" if name == "durable" else name for name in FIELDS if name in given}
        return cls({name: getattr(named, name) for name in names})

    @classmethod
    def make(cls, **values: Any) -> ConfigPatch:
        """Build a patch from keyword arguments, for the embedded API; as `make_config`."""
        return cls._of(*_checked(values))

    @property
    def dead_letter(self) -> str | None:
        """The dead letter that the patch names, unchecked; None if it names none."""
        named: str | None = self.changes.get("dead_letter")
        return named

    def applied_to(self, config: TopicConfig) -> TopicConfig:
        """Return the config with the patch's fields, and its own values of all others."""
        return interned(replace(config, **self.changes))


def _checked(values: dict[str, Any]) -> tuple[Fields, TopicConfig]:
    """Return keyword arguments as the fields of a config on the wire, and the config.

    Raises: UsageError, as `make_config`.
    """
    check_setting_names(values)
    try:
        given = read_object(msgspec.json.encode(values, enc_hook=arguments.plain_setting), "the config")
        config = config_of_fields(given)
        if config.dead_letter is not None:
            check_dead_letter(config.dead_letter)
    except (RequestError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(str(error)) from None
    return given, config


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
