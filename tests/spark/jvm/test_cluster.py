"""Pipelines on a real cluster: executors in processes of their own, which have the package only from a zip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.pipeline_world import exported_rows, fill, log_rows
from tests.spark.jvm.cluster import bare_python, cluster, packed_environment
from tests.spark.own_server import own_server
from topics.pipelines.target.target_manifest import ManifestLayout

COPY = """
import sys
from topics.spark import session
master, setting, archive, url, path = sys.argv[1:]
spark = session("copy", master, {setting: archive})
for topic, source in (("by-url", {"url": url}), ("by-both", {"url": url, "path": path})):
    rows = spark.read.format("topics").options(subscribe="orders", minPartitions=2, **source).load()
    rows.select("data").write.format("topics").mode("append").options(url=url, topic=topic).save()
for topic, source in (("stream-by-url", {"url": url}), ("stream-by-both", {"url": url, "path": path})):
    rows = spark.readStream.format("topics").options(subscribe="orders", startingOffsets="earliest", **source).load()
    sink = rows.select("data").writeStream.format("topics").trigger(availableNow=True)
    sink.options(url=url, topic=topic, checkpointLocation=f"{path}-checkpoints/{topic}").start().awaitTermination()
spark.stop()
"""

pytest.importorskip("pyspark", reason="pyspark is missing: pip install -e '.[spark]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bare_python(tmp_path_factory.mktemp("bare") / "env")


def environment(python: str) -> dict[str, str]:
    """The environment of a driver whose executors run this Python."""
    env = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        env.pop(name, None)
    return env


def pipeline(python: str, *options: str | Path, cwd: Path | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "topics", "pipeline", *map(str, options), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(python), cwd=cwd)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_executors_that_have_the_package_from_a_zip_export_and_scrub(master: str, python: str, tmp_path: Path) -> None:
    data = fill(tmp_path / "data")
    pipeline(python, "bundle", tmp_path / "topics.zip")
    spark = ["--master", master, "--conf", f"spark.submit.pyFiles={tmp_path}/topics.zip"]
    rows = {topic: log_rows(data, topic) for topic in ("orders", "prices:eur")}
    report = pipeline(python, "export", "--path", data, "--to", tmp_path / "lake", *spark)
    assert report["rows"] == sum(table.num_rows for table in rows.values())
    for topic, wanted in rows.items():
        assert exported_rows(tmp_path / "lake", ManifestLayout(str(tmp_path / "lake")), topic).equals(wanted)
    assert pipeline(python, "scrub", "--path", data, *spark)["bad"] == 0


def copied(
    python: str, master: str, setting: str, archive: str | Path, directory: Path, *, cwd: Path | None = None
) -> None:
    """Copy a topic by batches and by streams, and look at the copies. setting: what brings the archive to executors."""
    with own_server(directory) as server:
        server.put("orders", [{"n": n} for n in range(100)], "a")
        command = [sys.executable, "-c", COPY, master, setting, str(archive), server.url, server.path]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(python), cwd=cwd)
        assert done.returncode == 0, done.stderr
        for topic in ("by-url", "by-both", "stream-by-url", "stream-by-both"):
            assert sorted(record["data"]["n"] for record in server.records(topic)) == list(range(100))


def test_executors_that_have_the_package_from_a_zip_read_and_write_topics(
    master: str, python: str, tmp_path: Path
) -> None:
    pipeline(python, "bundle", tmp_path / "topics.zip")
    copied(python, master, "spark.submit.pyFiles", tmp_path / "topics.zip", tmp_path)


def test_executors_that_have_all_from_a_packed_environment_read_and_write_topics(master: str, tmp_path: Path) -> None:
    archive = packed_environment(tmp_path)
    copied("./env/bin/python", master, "spark.archives", f"{archive}#env", tmp_path, cwd=tmp_path)


def test_executors_without_the_package_are_told_of_the_bundle(master: str, python: str, tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with pytest.raises(AssertionError, match="make one with `topics pipeline bundle topics.zip`"):
        pipeline(python, "scrub", "--path", tmp_path / "data", "--master", master)


def test_executors_that_have_all_from_a_packed_environment_export(master: str, tmp_path: Path) -> None:
    """The driver sees the environment under the same relative path, because it runs that Python, too."""
    data = fill(tmp_path / "data")
    archive = packed_environment(tmp_path)
    spark = ["--master", master, "--conf", f"spark.archives={archive}#env"]
    report = pipeline("./env/bin/python", "export", "--path", data, "--to", tmp_path / "lake", *spark, cwd=tmp_path)
    assert report["rows"] == sum(log_rows(data, topic).num_rows for topic in ("orders", "prices:eur"))
