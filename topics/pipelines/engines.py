"""Engines, which run units of work: in this process, or on the executors of a Spark cluster."""

from __future__ import annotations

import functools
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from topics import errors as common
from topics.errors import TopicsError, UsageError
from topics.files import errors as reading
from topics.pipelines import errors
from topics.pipelines.errors import PipelineError, StoppedError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

U = TypeVar("U")
R = TypeVar("R")

ENGINES = ("local", "spark")
Progress = Callable[[str], None]
"""A function that shows a sentence about the progress of a run."""


def silent(_: str) -> None:
    """Show no progress."""


class Stop:
    """A context that notes SIGINT and SIGTERM, so that a run ends between two units.

    A second signal of the same kind has its previous effect. A signal with a handler in C is left
    to that handler.
    """

    def __init__(self) -> None:
        self.requested = False
        self.on_request: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in (signal.SIGINT, signal.SIGTERM):
                    handler = signal.getsignal(number)
                    if handler is not None:  # a handler in C could not be restored
                        self._before[number] = handler
                        signal.signal(number, self._note)
            except BaseException:  # the handler of another signal raised
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def check(self) -> None:
        """Raise StoppedError if a signal has arrived."""
        if self.requested:
            raise StoppedError(
                "stopped by a signal: what was committed before stays, and the next run continues from there"
            )

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        self._restore()
        if self.on_request is not None:
            self.on_request()

    def _restore(self) -> None:
        try:
            for number in list(self._before):
                handler = self._before.get(number)
                if handler is not None and signal.getsignal(number) == self._note:
                    signal.signal(number, handler)
                self._before.pop(number, None)
        # A handler raised: its exception must end the caller, but not this loop.
        except BaseException:
            self._restore()
            raise


class PipelineEngine(Protocol):
    """An engine that runs a function over units."""

    name: str

    @property
    def slots(self) -> int:
        """Estimate how many units run at the same time."""
        ...

    def run(self, function: Callable[[U], R], units: Sequence[U], stop: Stop) -> Iterator[R]:
        """Yield the results, in the order of the units. Errors of this package keep their class."""


class LocalEngine:
    """An engine that runs units in this process, one after the other."""

    name = "local"
    slots = 1

    def run(self, function: Callable[[U], R], units: Sequence[U], stop: Stop) -> Iterator[R]:
        """Yield each result as soon as its unit is done."""
        for unit in units:
            stop.check()
            yield function(unit)


class RunContext(NamedTuple):
    """The engine of a run, the signal to stop it, and the receiver of its progress."""

    engine: PipelineEngine
    stop: Stop
    progress: Progress

    def results(self, function: Callable[[U], R], units: Sequence[U], done: str) -> Iterator[R]:
        """Yield the results, in the order of the units.

        done: the word for a finished unit in the progress, such as "checked".
        """
        for number, result in enumerate(self.engine.run(function, units, self.stop), 1):
            yield result
            self.progress(f"{done} {number} of {len(units)} unit{'s' if len(units) != 1 else ''}")


class _Refused(NamedTuple):
    """An error on an executor that a retry would not heal: its class and its message."""

    kind: str
    message: str


def open_engine(name: str = "", master: str = "", config: Sequence[str] = ()) -> PipelineEngine:
    """Return the engine that the options name: Spark if there is a master or a setting of Spark.

    Args: name, one of ENGINES or ""; config, "key=value" each.
    Raises: UsageError, the options contradict each other.
    """
    if name not in ("", *ENGINES):
        raise UsageError(f"--engine is {name!r}: use one of {', '.join(ENGINES)}")
    if name == "local" and (master or config):
        raise UsageError("--engine local runs in this process: leave out --master and --conf, or use --engine spark")
    settings: dict[str, str] = {}
    for setting in config:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--conf {setting!r} is no setting: write key=value")
        settings[key.strip()] = value
    if name != "spark" and not master and not settings:
        return LocalEngine()
    return SparkEngine(partial(_start_spark, master or "local[*]", settings))


def _start_spark(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark, which takes some 10 s.

    Raises: UsageError, this machine cannot run Spark; PipelineError, Spark does not start, for
        example because the master does not answer or a setting is refused.
    """
    from topics.spark.sessions import session  # noqa: PLC0415 - only this function needs pyspark

    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    try:
        return session("topics pipeline", master, {**quiet, **settings})
    except TopicsError:
        raise
    except Exception as error:
        raise PipelineError(why_not_started(error)) from None


_HEALS = (reading.DirectoryBusyError, PermissionError)


class SparkEngine:
    """An engine that runs units as one job on Spark, a task for each unit.

    Spark retries a task that died; an error of this package in a task ends the run at once. Spark
    starts when a pipeline first needs it, so that a pipeline refuses invalid options without
    waiting for a JVM.
    """

    name = "spark"

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start

    @functools.cached_property
    def _context(self) -> SparkContext:
        context = getattr(self._start(), "sparkContext", None)
        if context is None:
            raise UsageError("a pipeline needs a classic Spark session, not Spark Connect: name --master")
        return cast("SparkContext", context)

    @property
    def slots(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, function: Callable[[U], R], units: Sequence[U], stop: Stop) -> Iterator[R]:
        """Yield all results once the job has ended. They are small: statistics, not rows."""
        if not units:
            return
        stop.check()
        # A signal handler runs while this thread waits for an answer of the JVM, on the only
        # connection that the thread has. Another thread has a connection of its own.
        stop.on_request = Thread(target=self._context.cancelAllJobs, daemon=True).start
        rows = self._context.parallelize(list(units), len(units))
        try:
            results = rows.map(partial(_attempt, function)).collect()
        except Exception as error:
            stop.check()
            raise PipelineError(cause_of(error)) from error
        finally:
            stop.on_request = None
        for result in results:
            if isinstance(result, _Refused):
                raise _raised(result)
        yield from results


def _attempt(function: Callable[[U], R], unit: U) -> R | _Refused:
    """Run a unit on an executor. An error is returned, because Spark would lose its class."""
    try:
        return function(unit)
    except TopicsError as error:
        if isinstance(error, _HEALS):
            raise
        return _Refused(type(error).__name__, str(error))


def _raised(refused: _Refused) -> TopicsError:
    for module in (errors, common, reading):
        kind = getattr(module, refused.kind, None)
        if isinstance(kind, type) and issubclass(kind, TopicsError) and kind is not common.RequestError:
            return kind(refused.message)
    return PipelineError(refused.message)


def cause_of(error: Exception) -> str:
    """Return the message of an exception of Spark: the last line of the Python traceback in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "Caused by", "File "))]
    sentence = named[-1].rpartition("Error: ")[2] if named else _javas_words(lines) or type(error).__name__
    if "No module named 'topics" in sentence:
        return (
            "the executors have no package topics: make one with `topics pipeline bundle topics.zip` and add "
            "--conf spark.submit.pyFiles=topics.zip"
        )
    if "No module named" in sentence:
        return f"the executors lack a module ({sentence}): they need pyarrow, numpy and xxhash"
    if "Cannot run program" in sentence:
        return f"an executor has no Python where PYSPARK_PYTHON says ({sentence}): set it to one that all machines have"
    return f"Spark gave the job up: {sentence}"


def why_not_started(error: Exception) -> str:
    """Return one sentence for the exception of a Spark session that could not be started."""
    remedy = "correct --master and --conf, or start the cluster"
    if "JAVA_GATEWAY_EXITED" in str(error):
        return f"Spark does not start, and Java wrote the reason above: {remedy}"
    said = _javas_words([line.strip() for line in str(error).splitlines() if line.strip()]) or type(error).__name__
    return f"Spark does not start ({said}): {remedy}"


def _javas_words(lines: Sequence[str]) -> str:
    """Return the message of Java's exception.

    py4j writes it in a line that begins with a colon, Spark after the name of the task.
    """
    said = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "")
    said = re.sub(r"^Lost task .*?\): ", "", said.rpartition("most recent failure: ")[2])
    return re.sub(r"\b(?:[a-z]\w*\.)+([A-Z]\w*): ", r"\1: ", said)
