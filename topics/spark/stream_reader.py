"""The stream reader that Spark calls; `follow.py` does the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from topics.spark.options import SourceOptions
from topics.spark.reading.follow import Follower
from topics.spark.reading.work_partition import WorkPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader. The driver has one for each query; executors get a copy with the options."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._follower = Follower(options)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def initialOffset(self) -> dict[str, Any]:
        return self._follower.initial_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._follower.prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._follower.latest_offset(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._follower.reported_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [WorkPartition(work) for work in self._follower.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_partition(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint holds the position, and reading removes no record."""
