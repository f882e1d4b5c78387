"""Making a Spark session with the source, and registering the source with any session."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from topics.common.extras import install_command
from topics.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
PYSPARK_MIN = (4, 2, 1)
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""A micro-batch takes about 60% of its time with Spark's default class (docs/guides/spark.md)."""


def session(
    app: str = "topics",
    master: str = "local[*]",
    config: Mapping[str, str | int | bool] | None = None,
    *,
    pushdown: bool = False,
) -> SparkSession:
    """Return a session with the source registered: the active session, or a new one.

    Workers run the Python of this process; on a cluster, PYSPARK_PYTHON may name another one. On
    one machine the session has one shuffle partition for each core, because Spark's default of 200
    makes a small stateful query five times slower.

    config: settings of Spark, which override those set here.
    pushdown: see `register`.
    Raises: OptionError without Java 17 or newer, or without pyspark 4.2.1 or newer.
    """
    check_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - checked just now

    if SparkSession.getActiveSession() is None:
        check_java(os.environ, shutil.which("java"))
        if master.startswith("local"):
            os.environ["PYSPARK_PYTHON"] = sys.executable
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**defaults(master), **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark, pushdown=pushdown)
    return spark


def register(spark: SparkSession, pushdown: bool = False) -> None:
    """Register `format("topics")` with a session. It is needed if the package came as a zip.

    pushdown: filters on topic, seq, ts and tag narrow the plan of a batch. The setting of Spark is
        for all Python sources of the session; sources that take no filters are not affected.
    Raises: OptionError if pyspark is missing or too old.
    """
    check_pyspark()
    from topics.spark.data_source import PushdownSource, TopicsSource  # noqa: PLC0415 - checked just now

    if pushdown:
        spark.conf.set(PUSHDOWN_SETTING, "true")
    spark.dataSource.register(PushdownSource if pushdown else TopicsSource)


def defaults(master: str) -> dict[str, str]:
    """Return the settings for a session on `master`."""
    found = {"spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES}
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if local is not None:
        cores = (os.cpu_count() or 1) if local.group(1) == "*" else int(local.group(1) or 1)
        found["spark.sql.shuffle.partitions"] = str(cores)
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
    return found


def check_pyspark() -> None:
    """Check the installed pyspark. Raises: OptionError if it is missing or too old."""
    try:
        from pyspark import __version__ as version  # noqa: PLC0415
    except ImportError:
        raise OptionError(f"pyspark is not installed: {install_command('spark')}") from None
    check_version(version)


def check_version(version: str) -> None:
    """Check a version of pyspark. Raises: OptionError if it is too old."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < PYSPARK_MIN:
        needed = ".".join(map(str, PYSPARK_MIN))
        raise OptionError(
            f"pyspark {version} is too old for streams of Python sources: pip install 'pyspark>={needed},<5'"
        )


def check_java(environ: Mapping[str, str], on_path: str | None) -> None:
    """Check the version of Java by its `release` file, which is faster than running it.

    on_path: the `java` that the PATH finds, or None.
    Raises: OptionError if there is no Java, or it is too old.
    """
    remedy = f"install Java {JAVA_MIN} or newer (on Debian: apt-get install default-jre-headless)"
    home = environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(on_path or "")
    if not home and on_path is None:
        raise OptionError(f"Spark needs Java, and the PATH has none: {remedy}, or set JAVA_HOME")
    if not java.is_file():
        raise OptionError(f"JAVA_HOME is {home}, and there is no bin/java: correct it, or {remedy}")
    major = _java_major(java.resolve().parent.parent)
    if major is not None and major < JAVA_MIN:
        raise OptionError(f"Spark needs Java {JAVA_MIN} or newer, and {java} is {major}: {remedy}, or set JAVA_HOME")


def _java_major(home: Path) -> int | None:
    """Return the major version: 17 for "17.0.15", 8 for "1.8.0_452"; None if no file states it."""
    for folder in (home, home.parent):  # Java 8 may have the file one folder above its runtime
        try:
            text = (folder / "release").read_text(errors="replace")
        except OSError:
            continue
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.M)
        if found:
            return int(found.group(1))
    return None
