"""Rows of one topic as Parquet files, one for each UTC day: the output of a unit of an export."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedWriter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topics.pipelines.errors import disk_errors
from topics.pipelines.seqs import numbers_of
from topics.pipelines.target.file_names import part_name, topic_directory
from topics.pipelines.target.layout import PartFile, Shape
from topics.pipelines.target.whole import sync_directory
from topics.pipelines.values import ddl
from topics.pipelines.values.checksum import RowSum
from topics.pipelines.values.typed import typed

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
ROW_GROUP_BYTES = 64 << 20
"""Bytes in Arrow's form that are collected for a row group."""
ROW_GROUP_ROWS = 1 << 20

_DAY_US = 86_400_000_000
_PLAIN = ("seq", "ts")
_DICTIONARIES = ["tag", "node"]
"""Columns with repeated values, which get a dictionary.

Texts of `data` rarely repeat, and trying a dictionary for them costs a third of the time.
"""
_TRIES_MAX = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """Options of the files that all units of a run write."""

    target: str
    run: str
    compression: str = "zstd"
    shape: Shape = field(default_factory=Shape)


class PartFileWriter:
    """Writes batches, in order of seq for each topic, into files by topic and day.

    Use as a context manager: a unit that fails leaves no files.
    """

    def __init__(self, parts: Parts, unit: int) -> None:
        self._parts = parts
        self._unit = unit
        self._topic = self._incarnation = ""
        self._schema = ddl.parse(parts.shape.schema) if parts.shape.schema else None
        self._attempt = secrets.token_hex(4)
        self._file: _File | None = None
        self._made: list[str] = []
        self.files: list[PartFile] = []
        """The complete and durable files."""

    def __enter__(self) -> PartFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            if self._file is not None:
                self._file.abandon()
            for path in self._made:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def begin(self, topic: str, incarnation: str) -> None:
        """Name the topic of the rows that follow. Consecutive slices of one topic share files."""
        if (topic, incarnation) != (self._topic, self._incarnation):
            self._close()
            self._topic, self._incarnation = topic, incarnation

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows that follow the previous ones.

        Raises: TargetError, the disk is full or fails.
        """
        for day, rows in _by_day(batch):
            if self._file is not None and self._file.day != day:
                self._close()
            if self._file is None:
                self._file = self._open(day)
            with disk_errors(f"target {self._parts.target}"):
                self._file.add(rows)

    def finish(self) -> list[PartFile]:
        """Close the last file; return all files."""
        self._close()
        return self.files

    def _close(self) -> None:
        if self._file is None:
            return
        with disk_errors(f"target {self._parts.target}"):
            self.files.append(self._file.close()._replace(incarnation=self._incarnation))
        self._file = None

    def _open(self, day: int) -> _File:
        date = str(np.datetime64(day, "D"))
        name = part_name(self._parts.run, self._unit, self._attempt, len(self._made))
        path = os.path.join(topic_directory(self._topic), f"date={date}", name)
        with disk_errors(f"target {self._parts.target}"):
            file = _File(self._parts, self._schema, self._topic, day, path)
        self._made.append(file.path)
        return file


class _File:
    """A Parquet file that is being written."""

    def __init__(self, parts: Parts, schema: ddl.Struct | None, topic: str, day: int, path: str) -> None:
        self.day = day
        self.path = os.path.join(parts.target, path)
        self._relative = path
        self._topic = topic
        self._schema = schema
        self._keep_data = parts.shape.data == "all"
        self._arrow = arrow_schema(parts.shape)
        self._columns = parts.shape.columns
        self._sum = RowSum(self._columns)
        self._nulls = dict.fromkeys((name for name in self._arrow.names if name not in _PLAIN), 0)
        self._misfits = 0
        self._first: tuple[int, int] | None = None
        self._last = (0, 0)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._out = _create(self.path)
        try:
            self._writer = pq.ParquetWriter(
                self._out,
                self._arrow,
                compression=parts.compression,
                use_dictionary=_DICTIONARIES,
                column_encoding=dict.fromkeys(_PLAIN, "DELTA_BINARY_PACKED"),
                write_statistics=[*_PLAIN, *_DICTIONARIES],
            )
        except BaseException:
            self.abandon()
            raise

    def add(self, rows: pa.RecordBatch) -> None:
        self._sum.add(rows)
        seq, ts = rows.column("seq"), rows.column("ts")
        if self._first is None:
            self._first = (seq[0].as_py(), ts[0].value // 1000)
        self._last = (seq[-1].as_py(), ts[-1].value // 1000)
        batch = self._shaped(rows)
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(name) for name in self._columns]
        if self._schema is not None:
            value = typed(rows.column("data"), self._schema)
            self._misfits += value.misfits
            columns.append(value.values)
            if not self._keep_data:
                data = columns[self._columns.index("data")]
                columns[self._columns.index("data")] = _where_null(data, value.values)
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._arrow)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def close(self) -> PartFile:
        """Make the file complete and durable; it belongs to the target once a commit lists it."""
        assert self._first is not None, "a file is opened for its first rows"
        self._flush()
        self._writer.close()
        self._out.flush()
        os.fsync(self._out.fileno())
        size = os.fstat(self._out.fileno()).st_size
        self._out.close()
        sync_directory(os.path.dirname(self.path))
        sync_directory(os.path.dirname(os.path.dirname(self.path)))
        return PartFile(
            self._relative,
            self._topic,
            "",
            str(np.datetime64(self.day, "D")),
            self._sum.rows,
            self._first[0],
            self._last[0],
            self._first[1],
            self._last[1],
            size,
            self._sum.hexdigest(),
            self._nulls,
            self._misfits,
        )

    def abandon(self) -> None:
        """Remove the incomplete file."""
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._out.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def arrow_schema(shape: Shape) -> pa.Schema:
    """Return the columns of a file: those of the log, and `value` if there is a schema.

    The topic is in the path instead of a column.
    """
    fields = [
        pa.field("seq", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        *(pa.field(name, pa.binary() if name == "bytes" else pa.string()) for name in shape.columns[2:]),
    ]
    if shape.schema:
        fields.append(pa.field("value", ddl.arrow_type(ddl.parse(shape.schema))))
    return pa.schema(fields)


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (days since 1970, rows) for each run of rows of the same day.

    Times do not decrease with rising seq, so a day is usually one run.
    """
    if not batch.num_rows:
        return
    micros = numbers_of(batch.column("ts"))
    first, last = int(micros[0]) // _DAY_US, int(micros[-1]) // _DAY_US
    if first == last and (len(micros) < 2 or not (micros[1:] < micros[:-1]).any()):
        yield first, batch
        return
    days = micros // _DAY_US
    ends = [*(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
    start = 0
    for end in ends:
        yield int(days[start]), batch.slice(start, end - start)
        start = end


def _where_null(data: pa.StringArray, values: pa.StructArray) -> pa.StringArray:
    """Return the texts of rows whose value is null, and null for the others."""
    return pc.if_else(values.is_null(), data, pa.scalar(None, pa.string()))


def _create(path: str) -> BufferedWriter:
    """Open a new file.

    Its directories are created, again if another run removes them because they are empty.
    """
    directory = os.path.dirname(path)
    for _ in range(_TRIES_MAX - 1):
        os.makedirs(directory, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return open(path, "xb")
    os.makedirs(directory, exist_ok=True)
    return open(path, "xb")
