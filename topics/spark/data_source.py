"""The classes that Spark calls: thin ones, over `batch.py`, `follow.py`, `partition_reading.py` and
`parts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)

from topics.spark.options import BATCH, STREAM, SourceOptions, parse_columns, parse_source
from topics.spark.reading.batch import Bounds, plan_batch
from topics.spark.reading.work_partition import WorkPartition, read_partition
from topics.spark.schema import check_given, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "topics"


class TopicsSource(DataSource):
    """The data source of `format("topics")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_source_options(self.options, BATCH, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from topics.spark.stream_reader import StreamReader  # noqa: PLC0415 - batches need no stream

        return StreamReader(_source_options(self.options, STREAM, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from topics.spark.writing.sink import BatchWriter  # noqa: PLC0415 - reads need no sink

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from topics.spark.writing.sink import StreamWriter  # noqa: PLC0415

        return StreamWriter(self.options, schema, overwrite)


class PushdownSource(TopicsSource):
    """The source with filter pushdown, as `register(spark, pushdown=True)` registers it."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushdownReader(_source_options(self.options, BATCH, schema))


class BatchReader(DataSourceReader):
    """A batch reader: plans on the driver, and reads on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [WorkPartition(work) for work in plan_batch(self._options, self._bounds())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_partition(self._options, partition)

    def _bounds(self) -> Bounds | None:
        return None


class PushdownReader(BatchReader):
    """A batch reader whose plan filters narrow.

    It returns all filters to Spark, so Spark checks each row again.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._narrowed: Bounds | None = None

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        from topics.spark.reading.pushdown import narrowed  # noqa: PLC0415

        self._options, self._narrowed = narrowed(self._options, filters)
        return filters

    def _bounds(self) -> Bounds | None:
        return self._narrowed


def _source_options(raw: Mapping[str, str], use: str, schema: StructType) -> SourceOptions:
    options = parse_source(raw, use)
    check_given([(one.name, one.dataType.simpleString()) for one in schema.fields], options.columns)
    return options
