"""Yardsticks for Spark: a source of prebuilt Arrow batches, and a source and a sink that do nothing but count."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

COLUMNS = "topic string, seq bigint, ts timestamp, tag string, node string, data string, meta string"


class PrebuiltSource(DataSource):
    """`format("prebuilt")`: the batches of the Arrow file `file`, mapped into memory, in `parts` partitions."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return _PrebuiltReader(self.options["file"], int(self.options["parts"]))


class _PrebuiltReader(DataSourceReader):
    def __init__(self, path: str, parts: int) -> None:
        self._path = path
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._path) as file:
            reader = pa.ipc.open_file(file)
            for at in range(partition.value, reader.num_record_batches, self._parts):
                yield reader.get_batch(at)


class EmptySource(DataSource):
    """`format("empty")`: a row a batch, at the earliest `pauseMs` after the one before; a sink that keeps nothing."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "data string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _EmptyReader(int(self.options["pausems"]))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _EmptyWriter()


class _EmptyReader(DataSourceStreamReader):
    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._at = 0

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        time.sleep(self._pause_ms / 1000)
        self._at += 1
        return {"at": self._at}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"data": ["1"]})

    def commit(self, end: dict[str, Any]) -> None:
        pass


class _EmptyWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        pass

    def abort(self, messages: Any, batchId: int) -> None:
        pass
