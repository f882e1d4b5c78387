"""Settings from `TOPICS_*` variables. Source: the wire contract, section 14.

Integers are unsigned decimals, shares are decimals from 0 to 1. Blanks around them are trimmed, and
a text that is no such number means the default, except for the port, where it is an error. Booleans
are on for `true` and `1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches

from topics.config import OFF, ON, OPTIONAL, RANGES, Config, is_on
from topics.errors import UsageError

NEVER = "none"
"""The text for None, of a setting in `OPTIONAL`."""
OF_COMMANDS = ("TOPICS_URL", "TOPICS_KEY", "TOPICS_CONTEXT")
"""Variables that commands on topics read, and the server does not."""
_CLAMPED = ("wal_shards", "segment_max_bytes")
"""Settings whose values are cut to the highest one allowed."""
_SHARE = re.compile(r"0(\.[0-9]+)?|1(\.0+)?", re.ASCII)


def config_of(env: Mapping[str, str]) -> Config:
    """Return the settings that the `TOPICS_*` variables give.

    Raises: UsageError for a port that is no number, or a value that `Config` refuses.
    """
    values: dict[str, object] = {}
    for setting in fields(Config):
        raw = env.get(f"TOPICS_{setting.name.upper()}")
        if raw is None:
            continue
        default = setting.default
        if setting.name == "port" and _carries_port(env.get("TOPICS_HOST", "")):
            continue
        if setting.name == "port":
            if not _is_decimal(raw):
                raise UsageError(f"TOPICS_PORT is {raw!r}: use a number from 0 to 65535")
            values["port"] = int(raw)
        elif isinstance(default, bool):
            values[setting.name] = is_on(raw)
        elif isinstance(default, int):
            text = raw.strip()
            if setting.name in OPTIONAL and text == NEVER:
                values[setting.name] = None
            elif _is_decimal(text):
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
    config = replace(Config(), **values)  # type: ignore[arg-type]  # parsed by its default's type
    config = _with_host_port(config)
    return replace(
        config,
        wal_shards=config.wal_shards or Config().wal_shards,
        segment_max_events=max(1, config.segment_max_events),
    )


def odd_variables(env: Mapping[str, str]) -> list[str]:
    """Return a sentence for the log about each variable that probably does not do what was meant.

    These are unknown names, booleans of another spelling, and integers that are no number.
    """
    settings = {f"TOPICS_{setting.name.upper()}": setting.default for setting in fields(Config)}
    found = []
    for name in sorted(name for name in env if name.startswith("TOPICS_") and name not in OF_COMMANDS):
        text = env[name].strip()
        if name not in settings:
            near = get_close_matches(name, settings, 1, 0.8)
            found.append(f"{name} is not a setting{f' (did you mean {near[0]}?)' if near else ''}: it is ignored")
            continue
        default = settings[name]
        if isinstance(default, bool):
            if text not in ON + OFF:
                found.append(f"{name} is {text!r}, which means off: use true or false")
        elif name.removeprefix("TOPICS_").lower() in OPTIONAL and text == NEVER:
            continue
        elif isinstance(default, int) and name != "TOPICS_PORT" and text and not _is_decimal(text):
            found.append(f"{name} is {text!r}, which is not a whole number: the default, {default}, is used")
        elif isinstance(default, float) and text and _share_of(text) is None:
            found.append(f"{name} is {text!r}, which is no number from 0 to 1: the default, {default}, is used")
    return found


def _with_host_port(config: Config) -> Config:
    """Move a port from the host to `port`: of `host:port` or `[v6]:port`.

    A bare IPv6 address is a host without a port. Raises: UsageError for a port that is no number.
    """
    host, port = config.host, config.port
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        if rest.startswith(":") and rest[1:].isdigit():
            port = int(rest[1:])
    elif host.count(":") == 1:
        host, _, text = host.partition(":")
        if not text.isdigit():
            raise UsageError(f"TOPICS_HOST is {config.host!r}: the part after the colon must be a port number")
        port = int(text)
    return replace(config, host=host, port=port)


def _carries_port(host: str) -> bool:
    """Return whether a host is `host:port` or `[v6]:port`; the port variable is then ignored."""
    host = host.strip()
    return "]:" in host if host.startswith("[") else host.count(":") == 1


def _share_of(text: str) -> float | None:
    """Return the number from 0 to 1 that a text states; None if it states none."""
    found = _SHARE.fullmatch(text.strip())
    return float(found[0]) if found is not None else None


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()
