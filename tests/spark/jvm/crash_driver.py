"""A driver that copies topic `in` to topic `out` until it is killed; a query that fails is started again.

Usage: python -m tests.spark.jvm.crash_driver URL CHECKPOINT
"""

from __future__ import annotations

import sys

from tests.spark.conftest import FAST, set_up
from topics.spark import session


def main(url: str, checkpoint: str) -> None:
    set_up(checkpoint + "-home")
    # Four attempts a task; Spark's local mode would otherwise make one.
    spark = session("crashes", "local[2,4]", FAST)
    while True:
        stream = spark.readStream.format("topics").options(
            url=url, subscribe="in", startingOffsets="earliest", minPartitions=3, maxOffsetsPerTrigger=2000
        )
        query = (
            stream.load()
            .selectExpr("to_json(struct(seq)) data", "tag")
            .writeStream.format("topics")
            .options(url=url, topic="out", checkpointLocation=checkpoint)
            .start()
        )
        print("started", flush=True)
        try:
            query.awaitTermination()
        except Exception as error:
            print(f"failed: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
