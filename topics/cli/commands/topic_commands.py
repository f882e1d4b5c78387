"""`topics ls`, `stat`, `create`, `set`, `rm`: topics and their settings."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.commands.topic_state import state_if_there
from topics.cli.output.printer import bytes_text, count_text
from topics.cli.output.record_text import json_bytes
from topics.cli.output.shown_state import TOPIC_TITLES, config_object, topic_object, topic_row
from topics.common.values.configs import FIELDS
from topics.common.values.near_names import suggestion
from topics.common.values.time_texts import time_text
from topics.errors import RequestError, UsageError

Prefix = Annotated[str, typer.Argument(help="Names that begin with this; all without it.")]
Settings = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...", help="Settings, as durability=fsync.")]
_WORDS = {"true": True, "false": False, "null": None}
_OTHER_NAMES = {"class": "durability"}
"""Names of settings in prose."""
_OLD = "durable"
"""A field that `durability` replaces; it is on the wire, and people need not see both."""
_TIME = re.compile(r"(\d{1,20})(ms|s|m|h|d)", re.ASCII)
_DIGITS = 100
"""Digits of a number at most: the one that refuses it shows it."""
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@on_topics
def ls(call: CliCall, prefix: Prefix = "") -> None:
    """List topics."""
    with call.log() as log:
        states = log.topics(prefix)
    call.printer.rows(TOPIC_TITLES, map(topic_row, states), none="no topics")


@on_topics
def stat(call: CliCall, names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics.")]) -> None:
    """Show the state of topics: counts, seqs, settings."""
    with call.log() as log:
        states = [log.state(name, touch=False) for name in names]
    for state in states:
        pairs: list[tuple[str, object]] = [
            ("topic", state.name),
            ("records", f"{state.count}, {bytes_text(state.bytes)}"),
            (
                "seqs",
                f"{state.earliest_seq} to {state.head_seq}" if state.count else f"none below {state.head_seq + 1}",
            ),
            ("last write", time_text(state.last_write_ts)),
            ("last read", time_text(state.last_read_ts)),
        ]
        if state.queue is not None:
            queue = state.queue
            delayed = "" if queue.delayed is None else f", {queue.delayed} delayed"
            jobs = f"{queue.ready} ready, {queue.in_flight} leased, {queue.dead_lettered} died since the start"
            pairs.append(("jobs", f"{jobs}{delayed}"))
        pairs += [(name, setting_text(value)) for name, value in config_object(state.config).items() if name != _OLD]
        call.printer.card(topic_object(state), pairs)


@on_topics
def create(
    call: CliCall, topic: Annotated[str, typer.Argument(help="The new topic.")], settings: Settings = None
) -> None:
    """Create a topic. One that exists is refused: `topics set` changes it."""
    given = settings_of(settings or [])
    with call.log(writes=True) as log:
        if state_if_there(log, topic) is not None:
            raise RequestError(
                "topic_exists", f"topic {topic!r} exists: use `topics set {topic} NAME=VALUE` to change it"
            )
        result = log.put_topic(topic, **given)
    config = config_object(result.config)
    call.printer.said(
        {"topic": topic, "created": result.created, "config": config},
        f"{topic}: created, {config['type']}, class {config['durability']}",
    )


@on_topics
def change(call: CliCall, topic: Annotated[str, typer.Argument(help="The topic.")], settings: Settings = None) -> None:
    """Change settings of a topic, which keeps the others."""
    given = settings_of(settings or [])
    if not given:
        raise UsageError("no setting is given: name one as NAME=VALUE, such as durability=fsync")
    with call.log(writes=True) as log:
        result = log.patch_topic(topic, **given)
    before, after = config_object(result.before), config_object(result.after)
    changes = [
        f"{name} {setting_text(before[name])} -> {setting_text(value)}"
        for name, value in after.items()
        if before[name] != value and name != _OLD
    ]
    call.printer.said(
        {"topic": topic, "before": before, "after": after}, f"{topic}: {', '.join(changes) or 'nothing changed'}"
    )


@on_topics
def rm(
    call: CliCall,
    *,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if no record is there.")] = False,
) -> None:
    """Remove topics with all their records, readers and routers."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("no terminal is there to ask whether to remove the topics: add --yes")
        typer.confirm(f"Remove {', '.join(names)} with all records?", abort=True, err=True)
    with call.log(writes=True) as log:
        for name in names:
            result = log.delete_topic(name, if_empty=if_empty)
            routers = f", with {count_text(len(result.routers_removed), 'router')}" if result.routers_removed else ""
            call.printer.said(
                {"topic": name, **result._asdict()},
                f"{name}: {f'removed{routers}' if result.deleted else 'was not there'}",
            )


def settings_of(pairs: list[str]) -> Any:
    """Return settings given as NAME=VALUE. Raises: UsageError for one that does not exist."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"setting {pair!r} has no value: use NAME=VALUE, such as durability=fsync")
        if name not in FIELDS:
            choices = f"use {', '.join(each for each in FIELDS if each != _OLD)}"
            remedy = suggestion(_OTHER_NAMES.get(name, name), FIELDS, choices)
            raise UsageError(f"setting {name!r} is unknown: {remedy}")
        found[name] = _value_of(name, text)
    return found


def _value_of(name: str, text: str) -> Any:
    number, time = text.removeprefix("-"), _TIME.fullmatch(text)
    if number.isascii() and number.isdigit():
        if len(number) > _DIGITS:
            raise UsageError(f"{name} is a number of {len(number)} digits: use a smaller one")
        return int(text)
    if name.endswith("_ms"):
        if time is None:
            raise UsageError(f"{name} is {text!r}: use a number of ms, or a time as 1500ms, 30s, 10m, 2h or 3d")
        return int(time[1]) * _MS[time[2]]
    return _WORDS.get(text, text)


def setting_text(value: object) -> str:
    """Return a value as NAME=VALUE takes it."""
    return value if isinstance(value, str) else json_bytes(value).decode()
