"""The flights example's roll-up on a handful of made-up flights: right, and in its topic once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import topics
from examples.flights import delays, steps
from examples.flights.delays import Delay
from tests.project.test_flights import flights
from tests.spark.own_server import own_server

pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install -e '.[examples]'")
pytestmark = pytest.mark.spark


def test_delays_are_rolled_up_once_for_the_same_flights(spark: Any, tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        client = topics.connect(server.url)
        steps.load(client, flights(), quiet=True)
        for _ in range(2):
            rows = delays.delays(client, spark, {"url": server.url, "path": server.path}, tmp_path / "out")
            assert rows == [Delay("AA", 1, 1, 0, 0, 2.0), Delay("EV", 1, 1, 1, 0, None), Delay("UA", 1, 3, 0, 0, 1.0)]
            wanted = [{key: value for key, value in row._asdict().items() if value is not None} for row in rows]
            assert delays.stored(client) == wanted
        steps.forget(client, flights()[0].route)
        again = delays.delays(client, spark, {"url": server.url}, tmp_path / "out")
        assert sum(row.flights for row in again) < sum(row.flights for row in rows)
        assert len(delays.stored(client)) == len(wanted) + len(again)
    assert (tmp_path / "out" / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_printed_has_the_worst_airline_first() -> None:
    rows = [Delay("AA", 1, 10, 1, 2, 3.0), Delay("UA", 1, 10, 0, 1, 4.0), Delay("UA", 2, 10, 0, 9, 30.0)]
    assert [line.split()[0] for line in delays.told(rows).splitlines()] == ["UA", "AA"]
