"""Spark connector: `spark.read.format("topics")`, streams, and an exactly-once sink.

docs/guides/spark.md describes its use. The modules that an executor imports need pyarrow, numpy,
xxhash and the standard library; msgspec makes reading over HTTP faster if it is installed. Only
`data_source.py`, `stream_reader.py`, `work_partition.py`, `sink.py`, `pushdown.py` and
`sessions.py` import pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.spark.sessions import register, session

__all__ = ["register", "session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'topics.spark' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - executors load no session

    return getattr(import_module("topics.spark.sessions"), name)
