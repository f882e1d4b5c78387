"""Pipelines on Spark without a JVM: what a signal does, and the sentence that is made of an exception of Spark."""

from __future__ import annotations

import signal
from threading import Event, current_thread, main_thread
from typing import Any, cast

import pytest

from topics.pipelines.engines import SparkEngine, Stop, cause_of, why_not_started
from topics.pipelines.errors import StoppedError

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe."
LOST = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, "
    "most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 0): "
)


class Context:
    """A Spark context whose job continues until it is cancelled, and which a signal reaches."""

    defaultParallelism = 2

    def __init__(self) -> None:
        self.cancelled = Event()
        self.cancelled_in: Any = None

    def parallelize(self, _units: object, _count: int) -> Context:
        return self

    def map(self, _function: object) -> Context:
        return self

    def collect(self) -> list[object]:
        signal.raise_signal(signal.SIGINT)
        assert self.cancelled.wait(10)
        raise RuntimeError("Job 0 cancelled")

    def cancelAllJobs(self) -> None:
        self.cancelled_in = current_thread()
        self.cancelled.set()


class Session:
    def __init__(self, context: Context) -> None:
        self.sparkContext = context


def test_a_signal_cancels_the_job_from_another_thread_than_the_one_that_waits_for_it() -> None:
    """py4j cannot send a call while the same thread waits for an answer: it fails with a page of traces."""
    context = Context()
    with Stop() as stop, pytest.raises(StoppedError):
        list(SparkEngine(lambda: cast("Any", Session(context))).run(len, ["unit"], stop))
    assert context.cancelled_in is not main_thread()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            f"{CALL}\n{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider\n"
            "\tat org.apache.spark.x",
            "Spark gave the job up: SparkException: Python worker exited unexpectedly (crashed). Consider",
        ),
        (
            f'{CALL}\n{LOST}java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file\n'
            "\tat java.base/x",
            'an executor has no Python where PYSPARK_PYTHON says (IOException: Cannot run program "./env/bin/python": '
            "error=2, No such file): set it to one that all machines have",
        ),
        (
            f"{CALL}\n{LOST}ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: "
            "killed\n",
            "Spark gave the job up: ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: "
            "killed",
        ),
        ("Job 0 cancelled", "Spark gave the job up: Job 0 cancelled"),
    ],
)
def test_what_java_says_of_a_job_is_told(said: str, sentence: str) -> None:
    assert cause_of(RuntimeError(said)) == sentence


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: java.io.FileNotFound"
            "Exception: File file:/z does not exist\n\tat org.apache.x",
            "Spark does not start (FileNotFoundException: File file:/z does not exist): correct --master and --conf",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
            "Spark does not start, and Java wrote the reason above: correct --master and --conf",
        ),
    ],
)
def test_a_spark_that_does_not_start_is_told_in_one_sentence(said: str, sentence: str) -> None:
    assert why_not_started(RuntimeError(said)) == f"{sentence}, or start the cluster"
