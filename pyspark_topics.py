"""Found by Spark: the first use of any Python source imports the `pyspark_*` modules of the workers' path."""

from topics.spark.data_source import TopicsSource as DefaultSource

__all__ = ["DefaultSource"]
