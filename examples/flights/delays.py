"""Delays per airline and month, rolled up by Spark: as Parquet, in a topic of their own, and as a chart.

The topic is written exactly once: its producer's epoch is a number that grows with each flight that is written or
deleted, so the same flights give the same epoch, and a run that is repeated, or killed at any place and repeated,
appends nothing twice.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import topics
from examples.flights.steps import ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULT = "flights.delays"
PRODUCER = "examples.flights.delays"
LATE_MINUTES = 15
SCHEMA = "carrier string, month int, dep_delay int"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Delay(NamedTuple):
    """A row of the result: the flights of one airline in one month."""

    carrier: str
    month: int
    flights: int
    cancelled: int
    late: int
    """Flights that departed more than LATE_MINUTES late."""
    mean_delay: float | None
    """Minutes, of those that departed; None when none did."""


def roll_up(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    """Return a row for each airline and month, in that order, in one partition. source: options of the reader."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the other steps need no Spark

    records = spark.read.format("topics").options(subscribe=ALL, columns="data", **source).load()
    flights = records.select(f.from_json("data", SCHEMA).alias("flight")).select("flight.*")
    return (
        flights.groupBy("carrier", "month")
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
            f.count_if(f.col("dep_delay") > LATE_MINUTES).alias("late"),
            f.round(f.avg("dep_delay"), 2).alias("mean_delay"),
        )
        .coalesce(1)
        .sortWithinPartitions("carrier", "month")
    )


def delays(client: topics.Client, spark: SparkSession, source: dict[str, str], out: Path) -> list[Delay]:
    """Roll up, write Parquet, the topic and the chart; returns the rows. source: `url`, options of the reader."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    out.mkdir(parents=True, exist_ok=True)
    state = client.state(ALL)
    head, gone = state.head_seq, state.head_seq - state.count
    table = out / "delays"
    flights = {
        **source,
        "endingOffsets": json.dumps({ALL: head + 1}),
    }  # what is written from now on is for the next run
    roll_up(spark, flights).write.mode("overwrite").parquet(str(table))
    result = spark.read.parquet(str(table)).coalesce(1).sortWithinPartitions("carrier", "month")
    (
        result.select(f.col("carrier").alias("tag"), f.to_json(f.struct("*")).alias("data"))
        .write.format("topics")
        .mode("append")
        .options(url=source["url"], topic=RESULT, producerId=PRODUCER, epoch=head + gone)
        .save()
    )
    rows = [Delay(**row.asDict()) for row in result.collect()]
    draw(rows, out / "delays.png")
    return rows


def draw(rows: list[Delay], path: Path) -> None:
    """Draw the mean delays as a map of airlines and months."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - as above

    carriers = sorted({row.carrier for row in rows})
    grid: list[list[float]] = [[float("nan")] * 12 for _ in carriers]
    for row in rows:
        if row.mean_delay is not None:
            grid[carriers.index(row.carrier)][row.month - 1] = row.mean_delay
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(carriers) + 1.2), layout="constrained")
    image = axes.imshow(grid, cmap="RdYlBu_r", vmin=-10, vmax=40, aspect="auto")
    axes.set_xticks(range(12), MONTHS)
    axes.set_yticks(range(len(carriers)), carriers)
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            if not math.isnan(value):
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=7)
    axes.set_title("Mean delay at departure from New York, 2013, minutes by airline and month", fontsize=10)
    figure.colorbar(image, ax=axes, label="minutes")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def told(rows: list[Delay]) -> str:
    """Return what a run prints: the airlines, the worst first."""
    totals: dict[str, list[float]] = {}
    for row in rows:
        total = totals.setdefault(row.carrier, [0, 0, 0])
        total[0] += row.flights
        total[1] += row.late
        total[2] += row.cancelled
    worst = sorted(totals.items(), key=lambda item: -item[1][1] / item[1][0])
    return "\n".join(
        f"  {carrier}  {flights:>7,.0f} flights  {late / flights:>6.1%} late  {cancelled / flights:>6.1%} cancelled"
        for carrier, (flights, late, cancelled) in worst
    )


def stored(client: topics.Client) -> list[Any]:
    """Return what the result topic holds, oldest first."""
    return [record.data for record in client.read(RESULT)]
