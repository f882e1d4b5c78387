"""Spark connector: `spark.read.format("topics")`, streams and an exactly-once sink. See docs/spark.md.

The modules that an executor imports need pyarrow, numpy, xxhash and the standard library; msgspec makes
reading over HTTP faster where it is installed.
"""
