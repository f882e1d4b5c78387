"""The zip that `topics pipeline bundle` makes works where there is nothing but pyarrow, numpy and xxhash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pipelines.pipeline_world import fill, log_rows
from topics.clock import ManualClock
from topics.errors import UsageError
from topics.pipelines import bundle
from topics.pipelines.errors import TargetError

ALONE = """
import json, sys
zip_path, data, lake = sys.argv[1:]

class Blocked:
    names = {"cffi", "_cffi_backend", "typing_extensions", "h11", "httptools", "h2", "wsproto", "msgspec",
             "prometheus_client", "typer", "rich", "pyspark", "py4j"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, zip_path)
import topics
assert topics.__file__.startswith(zip_path), topics.__file__
from topics.pipelines import check, compact, export, rollup, scrub
from topics.pipelines.source import Origin
origin = Origin(path=data)
rows = export.run(export.Options(origin, lake)).rows
wrong = check.run(check.Options(origin, export=lake)).wrong
scrubbed = scrub.run(scrub.Options(data)).summary()
print(json.dumps([rows, wrong, scrubbed, rollup.run(rollup.Options(origin)).records,
                  compact.run(compact.Options(origin, lake + "-newest")).files]))
assert "topics.store.format._codec" not in sys.modules
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "topics.zip"
    bundle.run(str(path), clock=ManualClock())
    return path


def test_pipelines_run_from_the_zip_alone(archive: Path, tmp_path: Path) -> None:
    data = fill(tmp_path / "data")
    command = [sys.executable, "-c", ALONE, str(archive), str(data), str(tmp_path / "lake")]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    rows = sum(log_rows(data, topic).num_rows for topic in ("orders", "prices:eur"))
    exported, wrong, scrubbed, counted, files = json.loads(done.stdout)
    assert (exported, wrong, counted, files) == (rows, [], rows, 2)
    assert scrubbed.endswith("all sound")


def test_the_zip_has_modules_alone_and_neither_engine_nor_server(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    assert all(name.endswith(".py") for name in names)
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert {"files", "pipelines", "store"} <= rooms
    assert not rooms & {"engine", "server", "http", "ws", "cli", "embedded", "uring"}


def test_the_same_code_makes_the_same_zip(archive: Path, tmp_path: Path) -> None:
    report = bundle.run(str(tmp_path / "again.zip"), clock=ManualClock())
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert report.bytes == archive.stat().st_size
    assert [entry.name for entry in tmp_path.iterdir()] == ["again.zip"]


def test_a_name_that_spark_would_not_take_and_a_directory_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'out' does not end in \.zip"):
        bundle.run("out")
    with pytest.raises(TargetError, match="No such file or directory"):
        bundle.run(str(tmp_path / "no" / "out.zip"))
