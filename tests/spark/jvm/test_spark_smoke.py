"""Spark and the real server together, once: files, HTTP, a stream that is run twice, and the sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.own_server import own_server

pytestmark = [pytest.mark.spark, pytest.mark.smoke]


def test_records_go_through_spark_and_come_back(spark: Any, tmp_path: Path) -> None:
    """Goal: what the user's page shows, works. Method: read by path and url, copy by AvailableNow twice, compare."""
    with own_server(tmp_path) as server:
        server.put("orders", [{"sku": i} for i in range(500)], tag="eu")

        def copy() -> None:
            stream = spark.readStream.format("topics").option("url", server.url).option("subscribe", "orders")
            (
                stream.option("startingOffsets", "earliest")
                .load()
                .select("data", "tag")
                .writeStream.format("topics")
                .option("url", server.url)
                .option("topic", "copies")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )

        copy()
        server.put("orders", [{"sku": i} for i in range(500, 700)], tag="us")
        copy()
        both = spark.read.format("topics").options(url=server.url, path=server.path, subscribe="orders,copies").load()
        rows = both.selectExpr("topic", "seq", "tag", "get_json_object(data, '$.sku') sku").collect()
        expected = [(seq, "eu" if seq <= 500 else "us", str(seq - 1)) for seq in range(1, 701)]
        for topic in ("orders", "copies"):
            assert sorted((row.seq, row.tag, row.sku) for row in rows if row.topic == topic) == expected
        files = spark.read.format("topics").options(path=server.path, subscribe="orders").load()
        assert files.count() == 700
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert last["topics"]["orders"]["next"] == 701
