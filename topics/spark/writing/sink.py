"""The writers that Spark calls; `parts.py` does the work.

Spark calls `abort` also for a batch whose rows were written and whose commit failed, and then runs
the batch again. So neither `abort` nor `commit` does anything: each part is committed by its own
write.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from topics.spark.errors import OptionError
from topics.spark.options import SinkOptions, parse_sink
from topics.spark.schema import check_sink_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """The counts of one task. deduped: parts that an earlier attempt had appended."""

    rows: int
    parts: int
    deduped: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch. All tasks and attempts of a write share this object and its producer id."""

    def __init__(self, raw: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options, self._names = _checked(raw, schema, overwrite)
        self._producer_id = self._options.producer_id or f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(
            self._options, self._names, self._producer_id, self._options.epoch or 0, iterator, is_stream=False
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream. Spark makes one for each batch, in several processes.

    So the producer id comes from properties of the task.
    """

    def __init__(self, raw: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options, self._names = _checked(raw, schema, overwrite)
        if self._options.producer_id is not None:
            raise OptionError(
                "options producerId and epoch are for batch writes and foreachBatch: a stream has the query's id and "
                "the batch's number, so leave them out"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task: Any = TaskContext.get()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise OptionError("Spark gives no id of the query and no number of the batch: use a micro-batch trigger")
        return _write(self._options, self._names, query, int(batch), iterator, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: each part is committed by its own write."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: parts of this batch may be committed, and the next attempt detects them."""


def _checked(raw: Mapping[str, str], schema: StructType, overwrite: bool) -> tuple[SinkOptions, tuple[str, ...]]:
    options = parse_sink(raw)
    if overwrite:
        raise OptionError("the sink appends and replaces nothing: use mode('append'), or outputMode('append')")
    check_sink_columns([(one.name, one.dataType.simpleString()) for one in schema.fields], options.topic)
    return options, tuple(schema.fieldNames())


def _write(
    options: SinkOptions,
    names: tuple[str, ...],
    producer_id: str,
    epoch: int,
    batches: Iterator[pa.RecordBatch],
    *,
    is_stream: bool,
) -> Written:
    from topics.spark.client import SparkClient  # noqa: PLC0415 - the driver plans without it
    from topics.spark.writing.parts import PartName, PartWriter  # noqa: PLC0415

    task: Any = TaskContext.get()
    producer = PartName(producer_id, epoch, task.partitionId(), uuid.uuid4().hex)
    client = SparkClient(options.connection)
    try:
        writer = PartWriter(client, options, producer, is_stream=is_stream)
        for batch in batches:
            writer.add(names, batch)
        totals = writer.finish()
    finally:
        client.close()
    return Written(totals.rows, totals.parts, totals.deduped)
