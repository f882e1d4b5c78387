"""The source and sink with failures: a task fails before or after its append, and a batch in its commit, once each.

Spark's workers import this module. The option `failures` names a folder, in which each failure leaves a file, so that
it does not happen again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from topics.spark.data_source import TopicsSource
from topics.spark.writing.sink import BATCH_ID, StreamWriter

BEFORE, AFTER, COMMIT = "before", "after", "commit"


class Failure(Exception):
    """An injected one."""


class FlakySource(TopicsSource):
    """`format("flaky")`."""

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        given = {name: value for name, value in self.options.items() if name != "failures"}
        return FlakyWriter(given, schema, overwrite, self.options["failures"])


class FlakyWriter(StreamWriter):
    """Fails a third of all tasks before the append, a third after it, and a third of all batches in `commit`."""

    def __init__(self, raw: Any, schema: Any, overwrite: bool, folder: str) -> None:
        super().__init__(raw, schema, overwrite)
        self._folder = Path(folder)

    def write(self, iterator: Iterator[Any]) -> Any:
        task: Any = TaskContext.get()
        place = f"{task.getLocalProperty(BATCH_ID)}.{task.partitionId()}"
        self._fail_once(BEFORE, place)
        written = super().write(iterator)
        self._fail_once(AFTER, place)
        return written

    def commit(self, messages: Any, batchId: int) -> None:
        self._fail_once(COMMIT, str(batchId))
        super().commit(messages, batchId)

    def _fail_once(self, kind: str, place: str) -> None:
        if random.Random(f"{kind} {place}").random() > 1 / 3:
            return
        try:
            (self._folder / f"{kind}.{place}").touch(exist_ok=False)
        except FileExistsError:
            return
        raise Failure(f"{kind} {place}")
