"""Reads that answer columns, for callers in this process that want numbers and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.engine.read.chosen_read import ChoosingTurns, ChosenResult, chosen
from topics.engine.read.consumption import mark_read
from topics.engine.read.read_pass import ReadCore
from topics.engine.state.topic import Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.results import DiffQuery, DiffResult, Done, Tombstone
from topics.store.read.lender import Lender
from topics.store.read.render_columns import ColumnRenderer

Choose = Callable[[Callable[[Done[DiffResult]], None]], DiffResult]


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


def choose_columns(  # noqa: PLR0917 - called in one place
    lender: Lender, core: ReadCore, catch_up: CatchUpFirst, topic: Topic, query: DiffQuery, done: Done[DiffResult]
) -> None:
    """Choose records for `columns_of`, and mark the topic read, as every read does.

    query: without nodes; limit and max_batch_bytes are its bounds.
    """
    mark_read(topic, core.clock.now_ms())
    catch_up(topic, ChoosingTurns(lender, core, topic, query, done).begin)


def columns_of(result: ChosenResult, choose: Choose, pause: Callable[[], object]) -> ColumnPage:
    """Read chosen records as columns, on any thread; between steps call `pause`.

    choose: makes a call on the loop that chooses more of them, and returns its answer.
    Raises: StorageError, UsageError; RequestError, the topic was deleted meanwhile.
    """
    pause()
    tombstone = result.tombstone
    columns = ColumnRenderer(result.topic_id)
    while True:
        for _ in result.add_to(columns):
            pause()
        if result.more is None:
            break
        result = chosen(choose(result.more))
    seq, ts, offsets, kind = columns.columns()
    cursors = result.next_from_seq, result.head_seq
    return ColumnPage(seq, ts, offsets, columns.records(), *cursors, tombstone, kind)
