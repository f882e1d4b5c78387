"""A partition as Spark passes it from the driver to an executor, and its reading there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from topics.common.extras import install_command
from topics.spark.errors import OptionError
from topics.spark.options import SourceOptions
from topics.spark.reading.planning import Work

if TYPE_CHECKING:
    import pyarrow as pa


class WorkPartition(InputPartition):
    """A partition. value: a Work."""


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a partition.

    For a plan without partitions, Spark reads a partition without a value, which has no batches.
    """
    if not isinstance(partition.value, Work):
        return
    try:
        from topics.spark.reading.partition_reading import WorkReader  # noqa: PLC0415 - the driver needs no pyarrow
    except ImportError as error:
        raise OptionError(f"the workers' Python lacks {error.name}: {install_command('spark')} there") from None
    yield from WorkReader(options).read(partition.value)
