"""A workload: the values of one TOML file, checked.

An error names the file, the field and the remedy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from topics.common.values.near_names import suggestion
from topics.config import DURABILITIES, OPTIONAL, Config, checked
from topics.errors import UsageError

KINDS = {
    "write": "requests that write records",
    "read": "requests that read `limit` records from places all over the topic",
    "poll": "reads from the end of the topic, where nothing new is",
    "tail": "long polls, each from where the last one ended",
    "watch": "streams (`over`: sse or ws) that hear every record",
    "talk": "people of a room: WebSockets that publish and hear the others",
    "work": "workers of a queue, who claim up to `max` jobs and acknowledge them",
    "idle": "streams on which nothing happens except heartbeats",
    "restart": "starts after kill -9",
    "append": "calls of the library in this process",
}
NETWORK_KINDS = frozenset(KINDS) - {"restart", "append"}
SYNCED = "fsync"
_APPEND_FIELDS = ("name", "kind", "rate", "bytes", "batch", "call")
"""Fields of a load that calls of the library have."""
_REQUEST_BYTES_MAX = 1 << 28
"""A request is made as a whole, in the memory of the command."""
NEVER = "none"
"""The value of a setting that may be off."""


@dataclass(frozen=True, slots=True)
class NumberRule:
    """Allowed numbers of a field, and what it is for."""

    low: float
    high: float
    help: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ChoiceRule:
    """Allowed texts of a field, and what it is for."""

    values: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One `[[load]]`: connections that do the same."""

    name: str = ""
    kind: str = "write"
    connections: int = 1
    rate: float = 0.0
    bytes: int = 100
    batch: int = 1
    limit: int = 1
    max: int = 8
    topics: int = 1
    over: str = "sse"
    topic: str = ""
    hears_itself: bool = True
    heartbeat_ms: int = 15_000
    may_be_throttled: bool = False
    call: str = "append"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """`[topic]`: the topic that all loads use."""

    type: str = "log"
    durability: str = "disk"
    cap_records: int = 0


@dataclass(frozen=True, slots=True)
class RunSpec:
    """`[run]`: how long, and how often. Seconds are those of one round of one side."""

    seconds: float = 4.0
    warmup: float = 1.0
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class FillSpec:
    """`[fill]`: what the topic holds before the load."""

    records: int = 0
    bytes: int = 100


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """`[sweep]`: one field that takes each of these values in turn; a curve over them."""

    field: str = ""
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. source: its file; text: the bytes of it, for the report."""

    name: str
    title: str
    question: str = ""
    family: str = ""
    loads: tuple[LoadSpec, ...] = ()
    topic: TopicSpec = field(default_factory=TopicSpec)
    run: RunSpec = field(default_factory=RunSpec)
    fill: FillSpec = field(default_factory=FillSpec)
    sweep: SweepSpec = field(default_factory=SweepSpec)
    destinations: int = 0
    server: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[str, ...] = ()
    source: str = ""
    text: str = ""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(load.kind for load in self.loads)

    @property
    def record_sizes(self) -> frozenset[int]:
        """The sizes of all records that it writes."""
        return frozenset({self.fill.bytes, *(load.bytes for load in self.loads)})

    def cases(self) -> list[Case]:
        """Return the workload once for each value of its sweep, or once."""
        if not self.sweep.field:
            return [Case("", None, self)]
        return [Case(self.sweep.field, value, _with(self, self.sweep.field, value)) for value in self.sweep.values]


@dataclass(frozen=True, slots=True)
class Case:
    """A workload with one value of its sweep."""

    field: str
    value: Any
    workload: Workload

    @property
    def label(self) -> str:
        return f"{self.field.rpartition('.')[2]} {self.value}" if self.field else ""


_SECTIONS: dict[str, dict[str, NumberRule | ChoiceRule | str]] = {
    "": {
        "title": "a few words for the list",
        "question": "the question that it answers, in a sentence",
        "family": "the group that it belongs to in the list",
        "destinations": NumberRule(0, 1000, "routers from the topic, each to a topic of its own"),
    },
    "run": {
        "seconds": NumberRule(0.05, 3600, "measured seconds of a round", whole=False),
        "warmup": NumberRule(0, 600, "seconds of the same load before, which are not measured", whole=False),
        "rounds": NumberRule(1, 1000, "rounds; sides alternate"),
    },
    "topic": {
        "type": ChoiceRule(("log", "queue"), "type of the topic"),
        "durability": ChoiceRule(DURABILITIES, "durability class"),
        "cap_records": NumberRule(0, 1 << 40, "0: no cap"),
    },
    "fill": {
        "records": NumberRule(0, 100_000_000, "records before the load"),
        "bytes": NumberRule(46, 1 << 20, "of each record's data"),
    },
    "load": {
        "name": "a name, where there are several loads",
        "kind": ChoiceRule(tuple(KINDS), "kind of load"),
        "connections": NumberRule(1, 100_000, "connections"),
        "rate": NumberRule(0, 10_000_000, "requests a second of all connections; 0: closed loop", whole=False),
        "bytes": NumberRule(46, 1 << 20, "of each record's data"),
        "batch": NumberRule(1, 10_000, "records of a write"),
        "limit": NumberRule(1, 1000, "records of a read"),
        "max": NumberRule(1, 1000, "jobs of a claim"),
        "topics": NumberRule(1, 10_000_000, "topics that are written to by turns"),
        "over": ChoiceRule(("sse", "ws"), "protocol of a stream"),
        "topic": ChoiceRule(("", "destination"), "what is watched: the topic, or the first destination"),
        "hears_itself": "true, or false: people leave their own records out",
        "heartbeat_ms": NumberRule(1000, 60_000, "interval of heartbeats"),
        "may_be_throttled": "true, or false: answers 429 of a limit are counted, and are no errors",
        "call": ChoiceRule(("append", "append_many"), "call of the library"),
    },
}  # fmt: skip


def parse_workload(text: str, source: str) -> Workload:
    """Return the workload of a file's text.

    Raises: UsageError that names file, field and remedy.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: this is no TOML: {error}") from None
    name = Path(source).stem
    if odd := hidden_character(name):
        raise UsageError(f"{source!r}: the file's name has the character {odd!r}, which no table can show: rename it")
    known = {*_SECTIONS[""], "run", "topic", "fill", "load", "sweep", "server", "peers"}
    for given in document:
        if given not in known:
            raise _unknown(source, given, known)
    top = {given: document[given] for given in _SECTIONS[""] if given in document}
    workload = Workload(
        name=name,
        loads=_loads(document.get("load"), source),
        topic=_section(TopicSpec(), "topic", document, source),
        run=_section(RunSpec(), "run", document, source),
        fill=_section(FillSpec(), "fill", document, source),
        server=_settings(document.get("server", {}), source),
        peers=_texts(document.get("peers", []), "peers", source),
        source=source,
        text=text,
        **{"title": name, **_checked(top, "", "", source)},
    )
    if "sweep" in document:
        workload = replace(workload, sweep=_sweep(document["sweep"], workload, source))
    for case in workload.cases():
        _check_together(case.workload)
    return workload


def _loads(rows: Any, source: str) -> tuple[LoadSpec, ...]:
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{source}: there is no load: add a table [[load]] with a kind: {', '.join(KINDS)}")
    loads = []
    for at, row in enumerate(rows):
        values = _checked(row, "load", f"load[{at}]", source)
        loads.append(LoadSpec(**{"name": values.get("kind", "write"), **values}))
    names = [load.name for load in loads]
    for at, name in enumerate(names):
        if not name:
            raise UsageError(f"{source}: load[{at}].name is empty: give it a name, or leave it out")
        if name in names[:at]:
            raise UsageError(f"{source}: load[{at}].name is {name!r}, as of another load: give each a name of its own")
    return tuple(loads)


def _section(default: Any, name: str, document: dict[str, Any], source: str) -> Any:
    return replace(default, **_checked(document.get(name, {}), name, name, source))


def _checked(values: Any, section: str, path: str, source: str) -> dict[str, Any]:
    """Return the values of a table, each allowed by its rule."""
    if not isinstance(values, dict):
        raise UsageError(f"{source}: {path} is no table: write [{path}]")
    rules = _SECTIONS[section]
    found = {}
    for name, value in values.items():
        full = f"{path}.{name}" if path else name
        if name not in rules:
            raise _unknown(source, full, set(rules))
        found[name] = _allowed(value, rules[name], full, source)
    return found


def _allowed(value: Any, rule: NumberRule | ChoiceRule | str, path: str, source: str = "") -> Any:
    """Return a value that its rule allows. source: a file. Raises: UsageError for any other."""
    where = f"{source}: {path}" if source else path
    if isinstance(rule, ChoiceRule):
        if value not in rule.values:
            allowed = ", ".join(one or '""' for one in rule.values)
            raise UsageError(f"{where} is {value!r}: use one of {allowed} ({rule.help})")
        return value
    if isinstance(rule, NumberRule):
        number = isinstance(value, int if rule.whole else int | float) and not isinstance(value, bool)
        if not number or not rule.low <= value <= rule.high:
            kind = "a whole number" if rule.whole else "a number"
            raise UsageError(f"{where} is {value!r}: use {kind} from {rule.low:,} to {rule.high:,} ({rule.help})")
        return value if rule.whole else float(value)
    if isinstance(value, bool) != rule.startswith("true") or not isinstance(value, str | bool):
        raise UsageError(f"{where} is {value!r}: use {rule}")
    if isinstance(value, str) and (odd := hidden_character(value)):
        raise UsageError(f"{where} is {value!r}: leave out the character {odd!r}, which no table can show")
    return value


def hidden_character(text: str) -> str:
    """Return the first character that moves a cursor or has no shape; empty if there is none."""
    return next((one for one in text if not one.isprintable()), "")


def _unknown(source: str, path: str, known: set[str]) -> UsageError:
    remedy = suggestion(path.rpartition(".")[2], known, f"use one of {', '.join(sorted(known))}")
    return UsageError(f"{source}: {path} is no field of a workload: {remedy}")


def _settings(values: Any, source: str) -> dict[str, str]:
    """Return `[server]` as TOPICS_* variables."""
    if not isinstance(values, dict):
        raise UsageError(f"{source}: server is no table: write [server] and settings, such as max_topics = 100000")
    found = {}
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise UsageError(f"{source}: server.{name} is {value!r}: use a number, a text, true or false")
        _check_setting(name, value, source)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[f"TOPICS_{name.upper()}"] = text
    return found


def _check_setting(name: str, value: str | float, source: str) -> None:
    """Refuse a setting that a server does not have, or does not take with this value."""
    defaults = {setting.name: setting.default for setting in fields(Config)}
    if name not in defaults:
        remedy = suggestion(name, defaults, "docs/settings.md lists them")
        raise UsageError(f"{source}: server.{name} is not a setting: {remedy}")
    if isinstance(defaults[name], tuple) or (name in OPTIONAL and value == NEVER):
        return
    try:
        checked(name, value)
    except UsageError as error:
        raise UsageError(f"{source}: server.{error}") from None


def _texts(values: Any, path: str, source: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UsageError(f'{source}: {path} is {values!r}: use a list of names, such as ["redis", "nats"]')
    return tuple(values)


def _sweep(table: Any, workload: Workload, source: str) -> SweepSpec:
    if not isinstance(table, dict) or set(table) != {"field", "values"}:
        raise UsageError(f'{source}: sweep has two fields: field, such as "topic.durability", and values, a list')
    name, values = table["field"], table["values"]
    if not isinstance(values, list) or not values:
        raise UsageError(f"{source}: sweep.values is {values!r}: use a list of values that {name} takes by turns")
    found: list[Workload] = []
    for value in values:
        case = _with(workload, name, value)
        if case in found:
            raise UsageError(f"{source}: sweep.values has {value!r} twice: give each value once, since it is one case")
        found.append(case)
    return SweepSpec(name, tuple(values))


def _with(workload: Workload, path: str, value: Any) -> Workload:
    """Return a workload with one field changed, such as `load.NAME.connections`."""
    source = workload.source
    section, _, name = str(path).partition(".")
    if section in ("topic", "run", "fill") and name in _SECTIONS[section]:
        changed = replace(getattr(workload, section), **{name: _allowed(value, _SECTIONS[section][name], path, source)})
        return replace(workload, **{section: changed})
    if section == "load":
        load_name, _, name = name.rpartition(".")
        loads = {load.name: load for load in workload.loads}
        if load_name in loads and name in _SECTIONS["load"] and name != "name":
            loads[load_name] = replace(
                loads[load_name], **{name: _allowed(value, _SECTIONS["load"][name], path, source)}
            )
            return replace(workload, loads=tuple(loads.values()))
        names = ", ".join(loads)
        raise UsageError(
            f"{source}: sweep.field is {path!r}: use load.NAME.FIELD, with a name of {names} and a field that changes "
            "what is measured"
        )
    if path == "destinations":
        return replace(workload, destinations=_allowed(value, _SECTIONS[""]["destinations"], path, source))
    raise UsageError(
        f"{source}: sweep.field is {path!r}: use topic.FIELD, run.FIELD, fill.FIELD, load.NAME.FIELD or destinations"
    )


def checked_option(name: str, value: float) -> Any:
    """Return a time of `[run]` that an option gives.

    Raises: UsageError for one that no file may have.
    """
    return _allowed(value, _SECTIONS["run"][name], f"--{name}")


def _check_together(workload: Workload) -> None:
    """Refuse values that contradict each other. Raises: UsageError."""
    source, kinds = workload.source, workload.kinds
    single = kinds - NETWORK_KINDS
    if single and len(workload.loads) > 1:
        raise UsageError(f"{source}: a load of kind {min(single)} is the only one of its workload: move the others")
    if "append" in kinds:
        _check_append(workload)
    if "work" in kinds and workload.topic.type != "queue":
        raise UsageError(f'{source}: load of kind work needs jobs: set topic.type = "queue"')
    if kinds & {"read", "restart"} and not workload.fill.records:
        raise UsageError(f"{source}: fill.records is 0, and there is nothing to read: set it, such as 100000")
    there = min(workload.fill.records, workload.topic.cap_records or workload.fill.records)
    for at, load in enumerate(workload.loads):
        if load.batch * load.bytes > _REQUEST_BYTES_MAX:
            raise UsageError(
                f"{source}: load[{at}].batch is {load.batch:,}, of load[{at}].bytes {load.bytes:,} each: use at most "
                f"{_REQUEST_BYTES_MAX:,} bytes together, which are one request"
            )
        if load.kind == "read" and load.limit > there:
            raise UsageError(
                f"{source}: load[{at}].limit is {load.limit:,}, and the topic has {there:,} records: use at most "
                "fill.records and topic.cap_records"
            )
        if load.topic == "destination" and not workload.destinations:
            raise UsageError(f"{source}: load[{at}].topic is the destination of a router: set destinations = 1")
        if load.topics > 1 and kinds != {"write"}:
            raise UsageError(f"{source}: load[{at}].topics is {load.topics}: only a workload of writes has many topics")
    if kinds <= {"watch", "tail"}:
        raise UsageError(f"{source}: no load writes, so load[0] receives nothing: add a [[load]] of kind write or talk")


def _check_append(workload: Workload) -> None:
    """Refuse what calls of the library would leave out: they are one thread's, on a plain log."""
    source, load = workload.source, workload.loads[0]
    for one in fields(LoadSpec):
        value = getattr(load, one.name)
        if one.name not in _APPEND_FIELDS and value != one.default:
            raise UsageError(
                f"{source}: load[0].{one.name} is {value!r}: calls of the library are one thread's, which write: "
                "leave it out"
            )
    given = {
        "topic.type": workload.topic.type != "log",
        "topic.cap_records": workload.topic.cap_records,
        "fill.records": workload.fill.records,
        "destinations": workload.destinations,
    }
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{source}: {name} is not for kind append, which writes to a new, plain log: leave it out")


def field_names() -> dict[str, list[str]]:
    """Return the fields by section, for the guide's test."""
    return {section: list(rules) for section, rules in _SECTIONS.items()}


assert {one.name for one in fields(LoadSpec)} == set(_SECTIONS["load"]), "each field of a load has a rule"
