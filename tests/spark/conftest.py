"""One Spark session for all tests with a JVM, set up to start fast; skipped with a reason where it cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAST = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2]. The JVM ends with the process."""
    if os.environ.get("SPARK") == "0":
        pytest.skip("SPARK=0: no test with Spark")
    pytest.importorskip("pyspark", reason="pyspark is missing: pip install -e '.[spark]', or make test")
    from topics.spark.errors import OptionError  # noqa: PLC0415
    from topics.spark.sessions import session  # noqa: PLC0415

    home = str(tmp_path_factory.mktemp("spark") / "home")
    set_up(home)
    config = {**FAST, "spark.sql.warehouse.dir": f"{home}/warehouse", "spark.local.dir": f"{home}/local"}
    try:
        made = session("tests", "local[2]", config)
    except OptionError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


def set_up(home: str) -> None:
    """Environment of a session that starts fast. home: a folder for links, made if absent.

    Without pyspark.zip in SPARK_HOME workers import the installed package, which is compiled, in half the time. The JVM
    uses its first compiler only, which is right for tests and wrong for jobs.
    """
    import pyspark  # noqa: PLC0415 - optional

    for name in ("bin", "jars", "sbin"):
        link = Path(home, name)
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(Path(pyspark.__file__).parent / name)
    os.environ["SPARK_HOME"] = home
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["PYSPARK_SUBMIT_ARGS"] = '--driver-java-options "-XX:TieredStopAtLevel=1" pyspark-shell'
