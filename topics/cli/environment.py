"""Settings from a file, from `TOPICS_*` variables, and from options. Source: wire contract, 14.

In variables integers are unsigned decimals, shares are decimals from 0 to 1. Blanks around them are
trimmed, and a text that is no such number means that the variable is not set, except for the port,
where it is an error. Booleans are on for `true` and `1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import NamedTuple

from topics.cli.config_file import CONFIG_VARIABLE, NEVER, read_config_file
from topics.cli.exit_codes import options_named
from topics.common.values.arguments import is_decimal
from topics.common.values.near_names import bracketed
from topics.config import OFF, ON, OPTIONAL, RANGES, Config, is_on
from topics.errors import UsageError

OF_COMMANDS = ("TOPICS_URL", "TOPICS_KEY", "TOPICS_CONTEXT")
"""Variables that commands on topics read, and the server does not."""
_OTHERS = (*OF_COMMANDS, CONFIG_VARIABLE)
_CLAMPED = ("wal_shards", "segment_max_bytes")
"""Settings whose values are cut to the highest one allowed."""
_LIKENESS = 0.8
"""See `near_names`: `TOPICS_` is a part of all names."""
_DIGITS = 1000
"""Digits of a number at most."""
_RECORD_IN_20_MS = 4 << 20
"""Bytes of a record up to which each step of a write or read of it ends within 20 ms."""
_SHARE = re.compile(r"0(\.[0-9]+)?|1(\.0+)?", re.ASCII)


class Settled(NamedTuple):
    """The settings of a process. origins: the file, variable or option of each that has one."""

    config: Config
    origins: Mapping[str, str]


def config_of(env: Mapping[str, str], options: Mapping[str, str] | None = None) -> Config:
    """Return the settings of `settled`."""
    return settled(env, options).config


def settled(env: Mapping[str, str], options: Mapping[str, str] | None = None) -> Settled:
    """Return the settings by the file that `TOPICS_CONFIG` names, the variables and the options.

    A variable overrides the file, and an option overrides both. A host with a port brings the port
    along, which only a source above its own overrides.
    options: those given, as the variables that they override.
    Raises: UsageError for a port that is no number, a value that `Config` refuses, or a file that
    cannot be read or has another error.
    """
    options = options or {}
    named_by = "--config" if CONFIG_VARIABLE in options else CONFIG_VARIABLE
    path = options.get(CONFIG_VARIABLE, env.get(CONFIG_VARIABLE, "")).strip()
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    if path:
        _overlay(values, origins, read_config_file(path, named_by), lambda name: f"{named_by} {path}: {name}")
    _overlay(values, origins, _of_variables(env), _variable)
    _overlay(values, origins, _of_variables(options), lambda name: f"--{name.replace('_', '-')}")
    with options_named(origins):
        config = replace(Config(), **values)  # type: ignore[arg-type]  # parsed by its default's type
    config = replace(
        config,
        wal_shards=config.wal_shards or Config().wal_shards,
        segment_max_events=max(1, config.segment_max_events),
    )
    return Settled(config, origins)


def _variable(name: str) -> str:
    return f"TOPICS_{name.upper()}"


def _overlay(
    values: dict[str, object], origins: dict[str, str], source: Mapping[str, object], named: Callable[[str], str]
) -> None:
    """Let the values of a source override those that are there.

    named(setting): its name in the source. Raises: UsageError for a host whose port is no number.
    """
    values |= source
    origins |= {name: named(name) for name in source}
    host = source.get("host")
    if isinstance(host, str):
        values["host"], port = _host_and_port(host, named("host"))
        if port is not None:
            values["port"], origins["port"] = port, named("host")


def _of_variables(env: Mapping[str, str]) -> dict[str, object]:
    """Return the values of the variables that are set.

    Raises: UsageError for a port that is no number.
    """
    values: dict[str, object] = {}
    for setting in fields(Config):
        raw = env.get(_variable(setting.name))
        if raw is None:
            continue
        default = setting.default
        if setting.name == "port" and _carries_port(env.get("TOPICS_HOST", "")):
            continue
        if setting.name == "port":
            if not is_decimal(raw, _DIGITS):
                raise UsageError(f"TOPICS_PORT is {raw!r}: use a number from 0 to 65535, or unset it")
            values["port"] = int(raw)
        elif isinstance(default, bool):
            values[setting.name] = is_on(raw)
        elif isinstance(default, int):
            text = raw.strip()
            if setting.name in OPTIONAL and text == NEVER:
                values[setting.name] = None
            elif is_decimal(text, _DIGITS):
                most = RANGES[setting.name][1] if setting.name in _CLAMPED else int(text)
                values[setting.name] = min(int(text), most)
        elif isinstance(default, float):
            share = _share_of(raw)
            if share is not None:
                values[setting.name] = share
        elif isinstance(default, tuple):
            values[setting.name] = tuple(part.strip() for part in raw.split(",") if part.strip())
        elif raw.strip():
            values[setting.name] = raw.strip()
    return values


def odd_variables(env: Mapping[str, str]) -> list[str]:
    """Return a sentence for the log about each variable that probably does not do what was meant.

    These are unknown names, booleans of another spelling, and integers that are no number.
    """
    settings = {f"TOPICS_{setting.name.upper()}": setting.default for setting in fields(Config)}
    found = []
    for name in sorted(name for name in env if name.startswith("TOPICS_") and name not in _OTHERS):
        text = env[name].strip()
        if name not in settings:
            found.append(f"{name} is not a setting{bracketed(name, settings, _LIKENESS)}: it is ignored")
            continue
        default = settings[name]
        if isinstance(default, bool):
            if text not in ON + OFF:
                found.append(f"{name} is {text!r}, which means off: use true or false")
        elif name.removeprefix("TOPICS_").lower() in OPTIONAL and text == NEVER:
            continue
        elif isinstance(default, int) and name != "TOPICS_PORT" and text and not is_decimal(text, _DIGITS):
            found.append(f"{name} is {text!r}, which is not a whole number: it is ignored")
        elif isinstance(default, float) and text and _share_of(text) is None:
            found.append(f"{name} is {text!r}, which is no number from 0 to 1: it is ignored")
    return found


def costly_settings(config: Config) -> list[str]:
    """Return a sentence for the log about each setting by which one request may hold up all others
    for longer than a server promises (docs/security.md).
    """
    if config.max_record_bytes <= _RECORD_IN_20_MS:
        return []
    return [
        f"TOPICS_MAX_RECORD_BYTES is {config.max_record_bytes}: a read of one record above {_RECORD_IN_20_MS} bytes "
        "may hold up all other requests for more than 20 ms"
    ]


def _host_and_port(host: str, name: str) -> tuple[str, int | None]:
    """Return the host and the port of `host:port` or `[v6]:port`; no port for a bare host.

    Raises: UsageError for a port that is no number.
    """
    if host.startswith("["):
        bare, _, rest = host[1:].partition("]")
        if rest.startswith(":") and not is_decimal(rest[1:], _DIGITS):
            raise UsageError(f"{name} is {host!r}: the part after the colon must be a port number")
        return bare, int(rest[1:]) if rest.startswith(":") else None
    if host.count(":") != 1:
        return host, None
    bare, _, text = host.partition(":")
    if not is_decimal(text, _DIGITS):
        raise UsageError(f"{name} is {host!r}: the part after the colon must be a port number")
    return bare, int(text)


def _carries_port(host: str) -> bool:
    """Return whether a host is `host:port` or `[v6]:port`; the port variable is then ignored."""
    host = host.strip()
    return "]:" in host if host.startswith("[") else host.count(":") == 1


def _share_of(text: str) -> float | None:
    """Return the number from 0 to 1 that a text states; None if it states none."""
    found = _SHARE.fullmatch(text.strip())
    return float(found[0]) if found is not None else None
