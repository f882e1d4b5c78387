"""The errors that the engine answers with, each worded in one place.

Source: wire contract, section 3.2.
"""

from __future__ import annotations

from typing import Protocol

from topics.engine.values.name_rules import Allowed, shown
from topics.engine.values.topic_config import TopicConfig
from topics.errors import RequestError, WouldBlockError


class NamedTopic(Protocol):
    """A topic that a message names."""

    name: str


class DescribedTopic(NamedTopic, Protocol):
    """A topic whose state a refusal reports."""

    config: TopicConfig
    head: int

    @property
    def earliest(self) -> int: ...


class NamedPart(Protocol):
    """A part of a producer, or a piece of one, that a refusal names."""

    producer: bytes
    epoch: int
    part: int
    piece: int


class StatedReader(Protocol):
    """A named reader that a refusal names."""

    name: str
    committed: int


class NamedRouter(Protocol):
    """A router that a refusal names, and its ends."""

    name: str

    @property
    def source(self) -> NamedTopic: ...
    @property
    def dest(self) -> NamedTopic: ...


def topic_not_found(name: str) -> RequestError:
    return RequestError("topic_not_found", f"topic {shown(name)} does not exist: create it first", {"topic": name})


def is_absent(error: Exception) -> bool:
    """Return whether an error is the refusal of `topic_not_found`."""
    return isinstance(error, RequestError) and error.code == "topic_not_found"


def incarnation_mismatch(name: str, present: str | None) -> RequestError:
    """Refuse a write that requires another incarnation.

    present: the topic's incarnation, None if there is no such topic.
    """
    found = "does not exist any more" if present is None else "is another one by now, whose seqs name other records"
    message = f"topic {shown(name)} {found}: look at it again, then write with its present incarnation or with none"
    return RequestError("incarnation_mismatch", message, {"topic": name, "incarnation": present})


def not_a_queue(name: str) -> RequestError:
    message = f"topic {shown(name)} is a log: claims and acks need a topic of type queue"
    return RequestError("not_a_queue", message, {"topic": name})


def not_a_queue_for_delays(name: str) -> RequestError:
    message = f"topic {shown(name)} is a log, without delays: leave out delay_ms, or write to a queue"
    return RequestError("not_a_queue", message, {"topic": name})


def incompatible_type(topic: DescribedTopic, requested: str) -> RequestError:
    existing = topic.config.type
    return RequestError(
        "topic_exists_incompatible",
        f"topic {shown(topic.name)} is a {existing}, and its type cannot change: send type {existing!r}",
        {"topic": topic.name, "existing_type": existing, "requested_type": requested},
    )


def topic_not_empty(name: str, count: int) -> RequestError:
    message = f"topic {shown(name)} holds {count} records: delete them first, or leave out if_empty"
    return RequestError("topic_not_empty", message, {"topic": name, "count": count})


def over_whole_cap(topic: DescribedTopic, field: str) -> RequestError:
    limit = getattr(topic.config, field)
    message = f"this write by itself exceeds {field} {limit} of topic {shown(topic.name)}: split it or raise the cap"
    return RequestError("record_too_large", message)


def topic_full(topic: DescribedTopic, field: str, holder: str | None) -> RequestError:
    """Refuse a write for which a cap has no room.

    field: the cap. holder: the reader that holds the records in its way; None: discard is reject.
    """
    config = topic.config
    if holder is None:
        why, remedy = "discard is reject", "delete or consume some first"
    else:
        why, remedy = f"reader {shown(holder)} holds what it has not committed", "commit some of it first"
    return RequestError(
        "topic_full",
        f"topic {shown(topic.name)} is full ({field} is {getattr(config, field)}, and {why}) and refuses writes: "
        f"{remedy}, or raise {field}",
        {
            "topic": topic.name,
            "cap_records": config.cap_records,
            "cap_bytes": config.cap_bytes,
            "head_seq": topic.head,
            "earliest_seq": topic.earliest,
        },
    )


def limit_reached(name: str, maximum: int) -> RequestError:
    """Refuse with 429 for one of the settings that are limits; the wire adds Retry-After."""
    message = f"the limit {name} ({maximum}) is reached: free something, or raise {name} (TOPICS_{name.upper()})"
    return RequestError("throttled", message, {"limit": name, "max": maximum})


def limit_unknown(name: str, core: int) -> RequestError:
    """Refuse with 503 until a core has said what it uses of a limit (R-CORE-7)."""
    message = f"core {core} of the server has not said yet what it uses of {name}; try again in a second"
    return RequestError("not_ready", message, {"core": core})


def backlogged() -> WouldBlockError:
    return WouldBlockError("admission", "the disk does not keep up with the writes: try again in a second", 1000)


def log_too_long(retry_after_ms: int) -> WouldBlockError:
    message = (
        f"the log is as long as it may be, and a checkpoint is emptying it: try again in {retry_after_ms} ms, or raise "
        "max_log_bytes (TOPICS_MAX_LOG_BYTES)"
    )
    return WouldBlockError("rollover", message, retry_after_ms)


def unsynced_enough() -> WouldBlockError:
    message = (
        "as many bytes as may be are not synced yet, and a sync runs: try again soon, or raise max_unsynced_bytes "
        "(TOPICS_MAX_UNSYNCED_BYTES)"
    )
    return WouldBlockError("admission", message, 100)


def no_file_ready() -> WouldBlockError:
    message = "the next log file is not ready yet: try again soon, or raise wal_spare_files (TOPICS_WAL_SPARE_FILES)"
    return WouldBlockError("rollover", message, 100)


def too_many_pendings(most: int) -> WouldBlockError:
    message = f"{most} appends have no answer yet (max_pendings): wait for results, or raise it"
    return WouldBlockError("admission", message, 100)


def appends_before_it() -> WouldBlockError:
    return WouldBlockError("admission", "appends before this one wait for room: try again soon, or wait longer", 100)


def overloaded() -> RequestError:
    message = "deliveries do not keep up with the writes: try again in a second, or send disable_backpressure"
    return RequestError("throttled", message, {"retry_after_ms": 1000})


def nothing_to_flush(topic: NamedTopic) -> RequestError:
    message = (
        f"topic {shown(topic.name)} has records of class ephemeral, which are only in memory: flush a topic of class "
        "memory, disk or fsync"
    )
    return RequestError("invalid_request", message, {"topic": topic.name})


def not_given_out(topic: NamedTopic, seq: int, last_seq: int) -> RequestError:
    message = f"seq is {seq}, and topic {shown(topic.name)} has records up to {last_seq}: flush one of those, or all"
    return RequestError("invalid_request", message, {"topic": topic.name})


def config_needs_admin(name: str) -> RequestError:
    message = f"creating topic {shown(name)} with a config needs the scope admin: leave config out or create it first"
    return RequestError("forbidden", message, {"topic": name})


def name_forbidden(name: str) -> RequestError:
    """Refuse a name in a body, or of a router, that the key may not use (R-AUTH)."""
    return RequestError("forbidden", f"this key may not use the name {shown(name)}", {"topic": name})


# --- producers -------------------------------------------------------------------------------------------------------
def producer_diverged(topic: str, part: NamedPart) -> RequestError:
    message = (
        f"{_part(topic, part)} was written before with other records: send the same ones, or a part of another epoch"
    )
    return RequestError("producer_diverged", message, _part_detail(topic, part))


def producer_stale(topic: NamedTopic, part: NamedPart, newest: int) -> RequestError:
    message = (
        f"{_part(topic.name, part)} is of an epoch that topic has forgotten, so it may have been written before: the "
        f"newest epoch is {newest}, continue above it"
    )
    return RequestError("producer_stale", message, _part_detail(topic.name, part, newest=newest))


def producer_incomplete(topic: NamedTopic, part: NamedPart, expected: int) -> RequestError:
    remedy = "send that one" if expected else "begin again from it, with another attempt"
    message = f"piece {part.piece} of {_part(topic.name, part)} does not come next: piece {expected} does; {remedy}"
    return RequestError("producer_incomplete", message, {**_part_detail(topic.name, part), "piece": expected})


def part_too_large(topic: NamedTopic, part: NamedPart, limit: str, most: int) -> RequestError:
    unit = limit.rpartition("_")[2]
    remedy = "send larger pieces" if unit == "pieces" else "make smaller parts"
    message = f"{_part(topic.name, part)} would have more than {most} {unit}: {remedy}"
    return RequestError("part_too_large", message, {"limit": limit, "max": most})


def _part(topic: str, part: NamedPart) -> str:
    producer = shown(part.producer.decode())
    return f"part {part.part} of epoch {part.epoch} of producer {producer} in topic {shown(topic)}"


def _part_detail(topic: str, part: NamedPart, **more: int) -> dict[str, str | int]:
    """Build the detail of a refusal. more: replaces the number of the part."""
    detail: dict[str, str | int] = {"topic": topic, "producer": part.producer.decode(), "epoch": part.epoch}
    return detail | (more or {"part": part.part})


# --- named readers ---------------------------------------------------------------------------------------------------
def reader_not_found(topic: str, name: str) -> RequestError:
    message = f"topic {shown(topic)} has no reader {shown(name)}: make it first"
    return RequestError("reader_not_found", message, {"topic": topic, "reader": name})


def reader_recreated(topic: str, name: str) -> RequestError:
    message = (
        f"topic {shown(topic)} was deleted and created again (recreated), and its reader {shown(name)} went with it: "
        "create the reader"
    )
    return RequestError("reader_not_found", message, {"topic": topic, "reader": name, "reason": "recreated"})


def reader_fenced(topic: str, reader: StatedReader) -> RequestError:
    message = (
        f"the page of reader {shown(reader.name)} is no longer handed out to this caller (its lease ended, it was "
        f"committed, or a seek moved the reader); the committed position is {reader.committed}: read the next page"
    )
    detail = {"topic": topic, "reader": reader.name, "committed": reader.committed}
    return RequestError("reader_fenced", message, detail)


def above_head(field: str, seq: int, topic: DescribedTopic) -> RequestError:
    message = f"{field} is {seq}, and topic {shown(topic.name)} ends at {topic.head}: use a seq from 0 to {topic.head}"
    return RequestError("invalid_request", message)


def above_position(seq: int, position: int, reader: StatedReader) -> RequestError:
    message = (
        f"seq is {seq}, and this caller of reader {shown(reader.name)} got records up to {position} only: commit up to "
        "that, or seek"
    )
    return RequestError("invalid_request", message)


# --- routers ---------------------------------------------------------------------------------------------------------
def router_not_found(name: str) -> RequestError:
    return RequestError("router_not_found", f"router {shown(name)} does not exist: create it first", {"router": name})


def router_fan_in(dest: str, other: str, allowed: Allowed) -> RequestError:
    named = f"router {shown(other)}" if allowed(other) else "a router"
    message = f"topic {shown(dest)} is fed by {named} from another source: a destination has one source"
    return RequestError("topic_exists_incompatible", message, {"topic": dest, "reason": "router_dest_fan_in"})


def router_keeps_enough(router: NamedRouter) -> RequestError:
    message = (
        f"a router out of topic {shown(router.source.name)} has not forwarded these jobs, and keeps as much as it may "
        "of those acknowledged: make room in its destination, or try again in a second"
    )
    return RequestError("throttled", message, {"retry_after_ms": 1000})


def router_between_weak(topic: str) -> RequestError:
    message = (
        f"topic {shown(topic)} is an end of a router between two cores of the server, so its durability has to be disk "
        "or fsync: set it, give one of the ends another name, or serve with one core"
    )
    return RequestError("invalid_request", message)


def router_repoint(router: NamedRouter, allowed: Allowed) -> RequestError:
    source, dest = router.source.name, router.dest.name
    ends = [shown(name) if allowed(name) else "another topic" for name in (source, dest)]
    message = f"router {shown(router.name)} leads from {ends[0]} to {ends[1]}: delete it to change that"
    detail = {"router": router.name, "reason": "router_repoint_forbidden"}
    if allowed(source):
        detail["existing_source"] = source
    if allowed(dest):
        detail["existing_dest"] = dest
    return RequestError("topic_exists_incompatible", message, detail)


def router_cycle(way: list[str], allowed: Allowed) -> RequestError:
    cycle = [name for name in way if allowed(name)]
    message = f"the router would close a cycle ({' -> '.join(cycle)}): set allow_cycle if that is meant"
    return RequestError("router_cycle", message, {"cycle": cycle})


def shutting_down() -> RequestError:
    return RequestError("shutting_down", "a shutdown has begun: ask again after the next start")
