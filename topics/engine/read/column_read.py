"""Reads that answer columns, for callers in this process that want numbers and bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.read.consumption import mark_read
from topics.engine.read.read_pass import ReadCore, ReadPass
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.results import DiffQuery, DiffResult, Done, Tombstone
from topics.errors import TopicsError
from topics.store.read.render_columns import ColumnRenderer


class ColumnPage(NamedTuple):
    """One read.

    Columns of shape (n,); payload i is payloads[offsets[i] : offsets[i + 1]].
    """

    seq: NDArray[np.uint64]
    ts: NDArray[np.uint64]
    """Milliseconds since the epoch."""
    offsets: NDArray[np.uint64]
    """Shape (n + 1,)."""
    payloads: bytes
    next_from_seq: int
    head_seq: int
    tombstone: Tombstone | None
    kind: NDArray[np.uint8]
    """0: the payload is JSON; 1: it is bytes."""

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq


def read_columns(
    core: ReadCore, catch_up: CatchUpFirst, topic: Topic, query: DiffQuery, done: Done[ColumnPage]
) -> None:
    """Read records as columns, and mark the topic read, as every read does.

    query: without nodes; limit and max_batch_bytes are its bounds.
    """
    columns = ColumnRenderer(topic.id)

    def on_read(result: DiffResult | TopicsError) -> None:
        if isinstance(result, TopicsError):
            done(result)
            return
        seq, ts, offsets, kind = columns.columns()
        cursors = result.next_from_seq, result.head_seq
        done(ColumnPage(seq, ts, offsets, result.records, *cursors, result.tombstone, kind))

    mark_read(topic, core.clock.now_ms())
    catch_up(topic, ReadPass(core, topic, query, on_read).into(columns).begin)
