"""Topics, queues, routers and readers as objects for programs and as cells for people."""

from __future__ import annotations

from typing import Any

import msgspec

import topics
from topics.cli.output.printer import Row, attempt_text, bytes_text
from topics.common.values.time_texts import time_text

TOPIC_TITLES = ("TOPIC", "TYPE", "CLASS", ">RECORDS", ">BYTES", ">HEAD", "LAST WRITE")
QUEUE_TITLES = ("QUEUE", ">READY", ">LEASED", ">DIED SINCE START", ">JOBS")
FAILED_TITLES = (*QUEUE_TITLES, ">FAILED", "LAST FAILURE")
ROUTER_TITLES = ("ROUTER", "SOURCE", "DEST", "FILTER", "GUARANTEE", ">FORWARDED")
READER_TITLES = ("READER", "DELIVERY", ">COMMITTED", ">POSITION", ">LAG", "HOLDS", "TRIMS")


def config_object(config: topics.TopicConfig) -> dict[str, Any]:
    """Return the fields of a configuration, as on the wire."""
    found: dict[str, Any] = msgspec.json.decode(config.as_json())
    return found


def topic_object(state: topics.TopicState) -> dict[str, Any]:
    """Return a topic's state with the members that it has on the wire."""
    shown: dict[str, Any] = {
        "topic": state.name,
        "type": state.config.type,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "count": state.count,
        "bytes": state.bytes,
        "effective_priority": state.effective_priority,
        "last_write_ts": state.last_write_ts,
        "last_read_ts": state.last_read_ts,
    }
    if state.queue is not None:
        shown["queue"] = queue_object(state.queue)
    if state.incarnation:
        shown["incarnation"] = state.incarnation
    return {**shown, "config": config_object(state.config)}


def queue_object(queue: topics.QueueState) -> dict[str, Any]:
    """Return a queue's counts as on the wire, without the jobs that failed."""
    shown = {"ready": queue.ready, "in_flight": queue.in_flight, "dead_lettered": queue.dead_lettered}
    return shown if queue.delayed is None else {**shown, "delayed": queue.delayed}


def topic_row(state: topics.TopicState) -> Row:
    return Row(
        topic_object(state),
        (
            state.name,
            state.config.type,
            state.config.durability,
            str(state.count),
            bytes_text(state.bytes),
            str(state.head_seq),
            time_text(state.last_write_ts),
        ),
    )


def queue_row(state: topics.TopicState) -> Row:
    queue = state.queue
    assert queue is not None, "it is a queue"
    numbers = (queue.ready, queue.in_flight, queue.dead_lettered, state.count)
    return Row(
        {"queue": state.name, **queue_object(queue), "count": state.count, "dead_letter": state.config.dead_letter},
        (state.name, *map(str, numbers)),
    )


def failed_queue_row(state: topics.TopicState) -> Row:
    """Return the row of a queue with its jobs that failed last."""
    row, queue = queue_row(state), state.queue
    assert queue is not None, "it is a queue"
    failed = [{"$seq": job.seq, "deliveries": job.deliveries, "attempts": job.attempts} for job in queue.failed]
    last = f"job {queue.failed[0].seq} {attempt_text(queue.failed[0].attempts)}" if queue.failed else "-"
    return Row({**row.shown, "failed": failed}, (*row.cells, str(len(failed)), last))


def filter_text(predicate: topics.Predicate | None) -> str | None:
    """Return a predicate on tags as options write it: "a", or "a*" for a prefix."""
    if predicate is None:
        return None
    return predicate.value.decode() + ("*" if predicate.is_prefix else "")


def router_row(state: topics.RouterState) -> Row:
    config, match = state.config, filter_text(state.config.filter)
    shown = {
        "router": state.name,
        "source": config.source,
        "dest": config.dest,
        "filter": match,
        "preserve_node": config.preserve_node,
        "preserve_tag": config.preserve_tag,
        "allow_cycle": config.allow_cycle,
        "guarantee": config.guarantee,
        "forwarded_total": state.forwarded,
    }
    cells = (state.name, config.source, config.dest, match or "-", config.guarantee, str(state.forwarded))
    return Row(shown, cells)


def reader_row(topic: str, state: topics.ReaderState) -> Row:
    config = state.config
    shown = {
        "topic": topic,
        "reader": state.name,
        "delivery": config.delivery,
        "holds": config.holds,
        "trims": config.trims,
        "position": state.position,
        "committed": state.committed,
        "lag_records": state.lag_records,
        "lag_ms": state.lag_ms,
        "pages": state.pages,
    }
    yes = ("no", "yes")
    numbers = (str(state.committed), str(state.position), str(state.lag_records))
    return Row(shown, (state.name, config.delivery, *numbers, yes[config.holds], yes[config.trims]))
