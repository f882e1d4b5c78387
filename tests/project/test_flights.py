"""The flights example on a handful of made-up flights: load, resume, kill -9, compare, forget."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import topics
from examples.flights import steps
from examples.flights.data import Flight, flights_in_time_order
from examples.flights.demo import OwnServer

CSV = """year,month,day,dep_time,sched_dep_time,dep_delay,carrier,flight,tailnum,origin,dest,time_hour
2013,1,1,NA,1630,NA,EV,4308,N18120,EWR,RDU,2013-01-01T21:00:00Z
2013,1,1,517,515,2,UA,1545,N14228,EWR,IAH,2013-01-01T10:00:00Z
2013,1,1,533,529,4,UA,1714,N24211,LGA,IAH,2013-01-01T10:00:00Z
2013,1,1,542,540,2,AA,1141,NA,JFK,MIA,2013-01-01T10:00:00Z
2013,1,2,512,515,-3,UA,1545,N14229,EWR,IAH,2013-01-02T10:00:00Z
"""


def flights() -> list[Flight]:
    return flights_in_time_order(csv.DictReader(io.StringIO(CSV)))


def test_flights_come_in_time_order_and_what_is_missing_is_null() -> None:
    made = flights()
    assert [flight.event["flight"] for flight in made] == [1545, 1714, 1141, 4308, 1545]
    assert (made[3].event["dep_time"], made[3].event["dep_delay"]) == (None, None)
    assert (made[2].event["tailnum"], made[4].event["dep_delay"]) == (None, -3)


def test_batches_carry_the_same_keys_every_time() -> None:
    assert [key for _, key, _ in steps.batches(flights())] == [key for _, key, _ in steps.batches(flights())]


def test_the_story_on_a_server_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = OwnServer(tmp_path)
    try:
        with server.connect() as client:
            assert steps.load(client, flights(), quiet=True) == (10, 0)
        server.kill()
        server.start()
        with server.connect() as client:
            assert steps.load(client, flights(), quiet=True) == (0, 10)
            assert steps.compare(client, flights()) == 5
            assert steps.forget(client, "EWR-IAH") == 4
            assert steps.compare(client, flights(), without="EWR-IAH") == 3
            with pytest.raises(SystemExit, match="differs"):
                steps.compare(client, flights())
            with pytest.raises(topics.RequestError, match="none"):
                steps.events(client, "none")
    finally:
        server.kill()
    assert "Traceback" not in capfd.readouterr().err
