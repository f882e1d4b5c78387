"""Metrics of what the cores of a server of several send each other. Others do not have them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily

from topics.engine.values.results import EngineStats
from topics.server.cores.neighbours import Neighbours


def core_families(neighbours: Neighbours | None, engine: EngineStats) -> Iterator[CounterMetricFamily]:
    """Yield the families; none for a server of one core."""
    if neighbours is None:
        return
    connections = CounterMetricFamily(
        "topics_core_connections_total",
        "Connections handed over between cores, by what became of them",
        labels=["event"],
    )
    requests = CounterMetricFamily(
        "topics_core_requests_total", "Requests that another core was asked for, and those in doubt", labels=["event"]
    )
    for family, counts in ((connections, neighbours.hand_overs()), (requests, neighbours.relayed_requests())):
        for event, count in counts.items():
            family.add_metric([event], count)
        yield family
    yield CounterMetricFamily(
        "topics_core_copies_total", "Copies that routers have written for topics of another core", engine.arrived_copies
    )
