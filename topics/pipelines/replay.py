"""`replay`: Parquet and JSON Lines files into topics of a server, each row once, at a rate.

    run(Options(inputs=("/data/lake",), url="http://localhost:4000", rate=500))

A file is sent in order, in chunks of up to CHUNK_ROWS rows and CHUNK_BYTES. Each chunk is an atomic
append that the server identifies by a producer (a hash of the file's name and contents) and an
epoch (the number of the chunk, from 1). A killed replay can therefore be repeated: the server
answers chunks that it has without appending them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.errors import PipelineError
from topics.pipelines.replay_files import FORMS, Input, RowForm, chunks, find_inputs, producer_of
from topics.pipelines.report import Report, count
from topics.pipelines.values import pointer
from topics.spark.client import SparkClient
from topics.spark.errors import RowError, ServerError
from topics.spark.options import SinkOptions, parse_sink
from topics.spark.writing.parts import PartName, PartWriter

_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a replay.

    inputs: files, and directories that are searched for files with one of replay_files.ENDINGS.
    topic: the topic of all rows, instead of the one named by a row or a directory (`topic=<name>`).
    form: `records` (rows have `data` or bytes, and may have `tag`, `node`, `meta` and `topic`) or
        `data` (a row as a whole is the data).
    tag: with `data`, a JSON pointer to the tag.
    rate: rows a second of all executors together, at most; 0 = unlimited.
    """

    inputs: tuple[str, ...]
    url: str
    token: str = field(default="", repr=False)
    token_file: str = field(default="", repr=False)
    topic: str = ""
    form: str = "records"
    tag: str = ""
    rate: float = 0.0


@dataclass
class ReplayReport(Report):
    """Report of a replay. known: rows that the server had from an earlier run."""

    pipeline: ClassVar[str] = "replay"

    url: str
    files: int = 0
    rows: int = 0
    known: int = 0

    def summary(self) -> str:
        """Return the result in one sentence."""
        summary = f"{self.url}: {count(self.rows, 'row')} of {count(self.files, 'file')} appended"
        return f"{summary}; {count(self.known, 'row')} were there already" if self.known else summary


class Sending(NamedTuple):
    """Options shared by all files."""

    options: SinkOptions
    row_form: RowForm
    rate: float


class Sent(NamedTuple):
    """Counts of the rows of one file."""

    appended: int
    known: int


def run(
    options: Options, *, engine: PipelineEngine | None = None, clock: Clock | None = None, progress: Progress = silent
) -> ReplayReport:
    """Send all files: one after the other, or in parallel on Spark.

    Raises: UsageError; PipelineError, a file cannot be read or has a row that is no record;
        ServerError; StoppedError. Rows appended before an error stay, and the next run continues
        after them.
    """
    clock = clock or SystemClock()
    engine = engine or LocalEngine()
    began = clock.monotonic_ns()
    inputs = list(find_inputs(options.inputs, options.topic))
    report = ReplayReport(options.url, len(inputs))
    at_once = max(1, min(engine.slots, len(inputs)))
    sending = _sending(options)._replace(rate=options.rate / at_once)
    with Stop() as stop:
        work = partial(replay_file, sending)
        # In this process a signal ends the run between two chunks, on Spark between two files.
        if engine.name == "local":
            work = partial(replay_file, sending, check=stop.check)
        for sent in RunContext(engine, stop, progress).results(work, inputs, "sent"):
            report.rows += sent.appended
            report.known += sent.known
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _sending(options: Options) -> Sending:
    if options.form not in FORMS:
        raise UsageError(f"--as is {options.form!r}: use one of {', '.join(FORMS)}")
    if options.tag and options.form != "data":
        raise UsageError("--tag is for --as data: records have a column or a member `tag`")
    if not options.rate >= 0:
        raise UsageError(f"--rate is {options.rate:g}: use rows a second, or 0 for no bound")
    raw = {"url": options.url, "token": options.token, "tokenFile": options.token_file}
    sink = parse_sink({name: value for name, value in raw.items() if value})
    tag = pointer.parse(options.tag, "--tag") if options.tag else None
    return Sending(sink, RowForm(options.form, tag), options.rate)


def replay_file(
    sending: Sending,
    one: Input,
    *,
    check: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Clock | None = None,
) -> Sent:
    """Send one file, on an executor. check: raises to stop between two chunks."""
    clock = clock or SystemClock()
    connection = sending.options.connection
    client = SparkClient(connection, sleep=sleep)
    producer, attempt = producer_of(one), secrets.token_hex(8)
    appended = known = 0
    done_through: dict[str, int] = {}
    began = clock.monotonic_ns()
    try:
        for epoch, rows in enumerate(chunks(one, sending.row_form), 1):
            check()
            for topic, part in _by_topic(one, rows):
                if epoch <= done_through.get(topic, 0):
                    known += part.num_rows
                    continue
                writer = PartWriter(
                    client,
                    _options_for(sending.options, topic),
                    PartName(producer, epoch, 0, attempt),
                    is_stream=False,
                )
                try:
                    writer.add(part.schema.names, part)
                    was_known = bool(writer.finish().deduped)
                except RowError as error:
                    raise PipelineError(f"{one.path}, chunk {epoch} (row 0 is its first): {error}") from None
                except ServerError as error:
                    if error.code != "producer_stale":
                        raise
                    # Epochs of a file increase by one, so all epochs up to the newest that the
                    # server knows were appended.
                    done_through[topic] = int(error.detail.get("newest", epoch))
                    was_known = True
                known += part.num_rows if was_known else 0
                appended += 0 if was_known else part.num_rows
            if sending.rate:
                _pace(began + appended / sending.rate * 1e9, clock, sleep, check)
    finally:
        client.close()
    return Sent(appended, known)


def _pace(until_ns: float, clock: Clock, sleep: Callable[[float], None], check: Callable[[], None]) -> None:
    while (left := (until_ns - clock.monotonic_ns()) / 1e9) > 0:
        check()
        sleep(min(left, _PAUSE_S))


def _options_for(options: SinkOptions, topic: str) -> SinkOptions:
    return SinkOptions(options.connection, topic, None, None, options.create, options.allow_weak)


def _by_topic(one: Input, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a chunk by topic, in the order of the topics' first rows."""
    if one.topic or "topic" not in rows.schema.names:
        if not one.topic:
            raise PipelineError(f"{one.path}: its rows name no topic: give one with --topic")
        yield one.topic, _without_topic(rows)
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise PipelineError(f"{one.path}: a row has no topic: give one for all with --topic")
    for topic in pc.unique(topics).to_pylist():
        yield topic, _without_topic(rows.filter(pc.equal(topics, topic)))


def _without_topic(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name != "topic"])
