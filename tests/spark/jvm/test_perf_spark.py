"""The measurements with Spark run, tiny, so that they do not rot."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark


def test_a_tiny_run_of_the_measurement_gives_its_figures() -> None:
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "perf.spark", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| **") == 3
    assert "requests in 5 s" in done.stdout


def test_a_tiny_run_of_exports_on_spark_gives_its_figures() -> None:
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "perf.pipelines", "--spark", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "export on Spark beside prebuilt batches" in done.stdout
