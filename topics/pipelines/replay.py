"""`replay`: Parquet and JSON Lines files into topics of a server, each row once, at a rate.

    run(Options(inputs=("/data/lake",), url="http://localhost:4000", rate=500))

A file is sent in order, in chunks of up to CHUNK_ROWS rows and CHUNK_BYTES. Each chunk is an atomic
append that the server identifies by a producer (a hash of the file's name and contents) and an
epoch (the number of the chunk, from 1). A killed replay can therefore be repeated: the server
answers chunks that it has without appending them.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.pipelines.chunks import CHUNK_BYTES, cut
from topics.pipelines.engines import LocalEngine, PipelineEngine, Progress, RunContext, Stop, silent
from topics.pipelines.errors import PipelineError
from topics.pipelines.report import Report, count
from topics.pipelines.target.file_names import topic_of
from topics.pipelines.values import pointer
from topics.spark.client import SparkClient
from topics.spark.errors import RowError, ServerError
from topics.spark.options import SinkOptions, parse_sink
from topics.spark.writing.parts import PartName, PartWriter

CHUNK_ROWS = 1000
"""Rows of a chunk at most.

It must not change, because a server remembers the chunks of a file.
"""
FORMS = ("records", "data")
ENDINGS = (".parquet", ".jsonl", ".ndjson")
COLUMNS = ("data", "bytes", "tag", "node", "meta", "topic")
_IN_LINES = ("tag", "node", "meta", "topic")
_BASE64 = "data_base64"
"""The member of JSON Lines that holds bytes, as on the wire."""
_BLOCK_BYTES = 1 << 20
_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a replay.

    inputs: files, and directories that are searched for files with one of ENDINGS.
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


class Input(NamedTuple):
    """A file to send. name: its path below the named directory, the same on every run."""

    path: str
    name: str
    topic: str


class Sending(NamedTuple):
    """Options shared by all files."""

    options: SinkOptions
    form: str
    tag: pointer.Pointer | None
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
    inputs = list(find_inputs(options))
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
    return Sending(sink, options.form, pointer.parse(options.tag, "--tag") if options.tag else None, options.rate)


def find_inputs(options: Options) -> Iterator[Input]:
    """Yield the files that the options name, by name.

    Raises: UsageError, an input does not exist, or there is no file.
    """
    found: list[Input] = []
    for given in options.inputs:
        if os.path.isfile(given):
            found.append(_input(os.path.dirname(os.path.abspath(given)), os.path.abspath(given), options.topic))
        elif os.path.isdir(given):
            root = os.path.abspath(given)
            for directory, below, names in os.walk(root):
                # Directories of the logs of commits have such names.
                below[:] = [name for name in below if not name.startswith((".", "_"))]
                found += [
                    _input(root, os.path.join(directory, name), options.topic)
                    for name in names if name.endswith(ENDINGS) and not name.startswith((".", "_"))
                ]  # fmt: skip
        else:
            raise UsageError(f"{given} does not exist: name files, or directories of files")
    if not found:
        raise UsageError(f"no file that ends in {', '.join(ENDINGS)} in {', '.join(options.inputs) or 'nothing'}")
    yield from sorted(set(found), key=lambda one: (one.name, one.path))


def _input(root: str, path: str, topic: str) -> Input:
    if not path.endswith(ENDINGS):
        raise UsageError(f"{path} does not end in {' or '.join(ENDINGS)}: name it by its format")
    name = os.path.relpath(path, root)
    by_directory = [found for step in path.split(os.sep)[:-1] if (found := topic_of(step))]
    return Input(path, name, topic or (by_directory[-1] if by_directory else ""))


def producer_of(one: Input) -> str:
    """Return the producer id of a file, which depends on its contents and its name.

    Raises: PipelineError, the file cannot be read.
    """
    digest = xxhash.xxh3_128(one.name.encode(errors="surrogateescape") + b"\0")
    try:
        with open(one.path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise PipelineError(f"{one.path} cannot be read: {error.strerror}") from None
    return f"replay:{digest.hexdigest()}"


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
        for epoch, rows in enumerate(chunks(one, sending), 1):
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


# --- files as chunks


def chunks(one: Input, sending: Sending) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with some of COLUMNS: `bytes` is binary, the others are strings.

    A chunk also ends at the end of a row group of Parquet.
    Raises: PipelineError, the file cannot be read, or a row is no record.
    """
    try:
        if one.path.endswith(".parquet"):
            yield from _of_parquet(one, sending)
        else:
            yield from _of_lines(one, sending)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise PipelineError(f"{one.path} cannot be read: {error}") from None


def _of_parquet(one: Input, sending: Sending) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(one.path) as file:
        schema = file.schema_arrow
        names = [name for name in COLUMNS if name in schema.names]
        if "bytes" in names and schema.field("bytes").type not in _BINARY:
            names.remove("bytes")  # a column of another program, as a size
        if sending.form == "records" and "data" not in names and "bytes" not in names:
            raise PipelineError(f"{one.path} has no column `data`: add --as data to send whole rows")
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=names if sending.form == "records" else None)
            for start in range(0, table.num_rows, CHUNK_ROWS):
                part = table.slice(start, CHUNK_ROWS)
                if sending.form == "data":
                    rows = _of_documents([(row, _text(row)) for row in part.to_pylist()], sending)
                else:
                    rows = pa.table({name: part.column(name).cast(_type_of(name)) for name in names})
                yield from cut(rows, CHUNK_BYTES)


def _of_lines(one: Input, sending: Sending) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[Any, str]] = []
    filled = 0
    with open(one.path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text:
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise PipelineError(f"{one.path}, line {number} is no JSON ({error}): {text[:60]!r}") from None
            if sending.form == "records" and not (isinstance(value, dict) and ("data" in value) != (_BASE64 in value)):
                raise PipelineError(
                    f'{one.path}, line {number} is no record: write {{"data": .., "tag": ..}}, or add --as data '
                    "(bytes have data_base64 instead of data)"
                )
            if sending.form == "records" and _BASE64 in value:
                value[_BASE64] = _decoded(value[_BASE64], f"{one.path}, line {number}")
            if waiting and (len(waiting) == CHUNK_ROWS or filled + len(text) > CHUNK_BYTES):
                yield from cut(_of_values(waiting, sending), CHUNK_BYTES)
                waiting, filled = [], 0
            waiting.append((value, text))
            filled += len(text)
    if waiting:
        yield from cut(_of_values(waiting, sending), CHUNK_BYTES)


def _of_values(rows: Sequence[tuple[Any, str]], sending: Sending) -> pa.Table:
    """Return the rows of JSON Lines, given as (value, its text), as a table."""
    if sending.form == "data":
        return _of_documents(rows, sending)
    members = [_members(text) for _, text in rows]
    columns: dict[str, list[Any]] = {"data": [found.get("data") for found in members]}
    if any(_BASE64 in value for value, _ in rows):
        columns["bytes"] = [value.get(_BASE64) for value, _ in rows]
    for name in _IN_LINES:
        values = [value.get(name) for value, _ in rows]
        if all(value is None for value in values):
            continue
        if name == "meta":
            columns[name] = [
                None if value is None else found[name] for value, found in zip(values, members, strict=True)
            ]
        else:
            columns[name] = [None if value is None else _as_string(value) for value in values]
    return pa.table({name: pa.array(values, _type_of(name)) for name, values in columns.items()})


_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())


def _type_of(name: str) -> pa.DataType:
    return pa.binary() if name == "bytes" else pa.string()


def _decoded(text: Any, where: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise PipelineError(f"{where}: data_base64 is no base64: write it with + and /, and with padding")


def _members(text: str) -> dict[str, str]:
    """Return each member of a valid object as its text: 1.10 stays 1.10."""
    found: dict[str, str] = {}
    at = _after_blanks(text, 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        start = _after_blanks(text, _after_blanks(text, at) + 1)
        _, end = _decoder.raw_decode(text, start)
        found[name] = text[start:end]
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return found


def _after_blanks(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


_decoder = json.JSONDecoder()


def _of_documents(rows: Sequence[tuple[Any, str]], sending: Sending) -> pa.Table:
    """Return rows that are the data as a whole, given as (value, its text), as a table."""
    columns = {"data": pa.array([text for _, text in rows], pa.string())}
    if sending.tag is not None:
        places = [pointer.find(value, sending.tag) for value, _ in rows]
        tags = [None if place is pointer.MISSING or place is None else _as_string(place) for place in places]
        columns["tag"] = pa.array(tags, pa.string())
    return pa.table(columns)


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_text)


def _as_text(value: Any) -> str:
    """Return the text of a time or a decimal, which JSON lacks."""
    if isinstance(value, bytes):
        raise pa.ArrowInvalid("a value is binary, which JSON cannot have: write the file without that column")
    return str(value)
