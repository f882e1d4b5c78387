"""The steps of the example: load, count and compare, forget one route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import topics
from examples.flights.data import Flight

ALL = "flights.all"
BATCH = 1000
ONE_DAY_MS = 86_400_000


def topic_of(carrier: str) -> str:
    return f"flights.{carrier}"


def create_topics(client: topics.Client, carriers: set[str]) -> None:
    """One topic an airline and one for all; keys are remembered for a day, so a load may be repeated all day."""
    for topic in (ALL, *map(topic_of, sorted(carriers))):
        client.put_topic(topic, durability="fsync", idempotency_window_ms=ONE_DAY_MS)


def batches(flights: list[Flight]) -> Iterator[tuple[str, str, list[Flight]]]:
    """(topic, idempotency key, flights): the same batches with the same keys every time, in time order."""
    pending: dict[str, list[Flight]] = {}
    numbers: Counter[str] = Counter()
    for flight in flights:
        for topic in (ALL, topic_of(flight.carrier)):
            waiting = pending.setdefault(topic, [])
            waiting.append(flight)
            if len(waiting) == BATCH:
                yield topic, f"{topic}#{numbers[topic]}", waiting
                numbers[topic] += 1
                pending[topic] = []
    for topic, waiting in pending.items():
        if waiting:
            yield topic, f"{topic}#{numbers[topic]}", waiting


def load(client: topics.Client, flights: list[Flight], quiet: bool = False) -> tuple[int, int]:
    """Writes every flight twice (airline and all). Returns (records written, records already there).

    A load that was cut off is resumed by running it again: a batch whose answer was lost carries the same key, so
    the server answers with the seqs it gave the first time.
    """
    create_topics(client, {flight.carrier for flight in flights})
    written = repeated = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=quiet) as progress:
        bar = progress.add_task("loading flights", total=2 * len(flights))
        for topic, key, batch in batches(flights):
            records = [topics.NewRecord(flight.event, tag=flight.route) for flight in batch]
            if client.append(topic, records, key=key).deduped:
                repeated += len(batch)
            else:
                written += len(batch)
            progress.advance(bar, len(batch))
    return written, repeated


def events(client: topics.Client, topic: str) -> list[Any]:
    """Every event of a topic from the start. Raises: GapError, records were lost."""
    return [record.data for record in client.read(topic)]


def compare(client: topics.Client, flights: list[Flight], without: str = "") -> int:
    """Compares what the server holds with the CSV, airline by airline. Returns the flights compared.

    without: the route that was deleted.
    """
    flights = [flight for flight in flights if flight.route != without]
    expected = Counter(flight.carrier for flight in flights)
    from_all = Counter(event["carrier"] for event in events(client, ALL))
    if from_all != expected:
        raise SystemExit(f"{ALL} differs from the CSV: {from_all - expected} too many, {expected - from_all} missing")
    for carrier, count in sorted(expected.items()):
        found = events(client, topic_of(carrier))
        if found != [flight.event for flight in flights if flight.carrier == carrier]:
            raise SystemExit(f"{topic_of(carrier)} differs from the CSV ({len(found)} of {count} flights)")
        print(f"  {carrier}  {count:>7,}  equal to the CSV, in order")
    print(f"  all {len(flights):>7,}")
    return len(flights)


def forget(client: topics.Client, route: str) -> int:
    """Deletes one route everywhere, by tag. Returns how many records went."""
    return sum(client.delete(topic.name, match=route).deleted for topic in client.topics("flights."))
