"""An executor may have pyarrow, numpy and xxhash only, and the package as a zip without C modules."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys

absent = "msgspec cffi typing_extensions httptools h11 h2 wsproto prometheus_client typer rich pyspark"
rooms = "uring loop engine http ws server embedded cli"
for name in [*absent.split(), *("topics." + room for room in rooms.split())]:
    sys.modules[name] = None

import pyarrow as pa
from tests.spark.fake_server import FakeServer
from topics.spark.reading.batch import plan_batch
from topics.spark.client import SparkClient
from topics.spark.options import BATCH, parse_sink, parse_source
from topics.spark.writing.parts import PartName, PartWriter
from topics.spark.reading.partition_reading import WorkReader
import topics.files, topics.spark.reading.follow

fake = FakeServer()
sink = parse_sink({"url": "http://h", "topic": "a"})
writer = PartWriter(SparkClient(sink.connection, connect=fake.connect), sink, PartName("p", 1, 0, "x"), is_stream=True)
writer.add(["data", "tag"], pa.RecordBatch.from_pydict({"data": ["1", '{"a": "\\u00e9"}'], "tag": ["x", None]}))
writer.finish()
options = parse_source({"url": "http://h", "subscribe": "a"}, BATCH)
client = SparkClient(options.connection, connect=fake.connect)
for work in plan_batch(options, client=client):
    for batch in WorkReader(options, client).read(work):
        print(batch.select(["seq", "tag", "data"]).to_pylist())
"""


def test_reading_and_writing_need_no_more_than_that() -> None:
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == ""
    assert "'data': '1'" in done.stdout
    assert "é" in done.stdout
