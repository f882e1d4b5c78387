"""Pages for readers of the library: their records were chosen on the loop.

The caller's thread reads and decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from topics.common.values.delivered import GapError, Page, Record
from topics.engine.read.chosen_read import ChosenResult, Step
from topics.engine.read.column_read import Choose, ColumnPage, columns_of
from topics.engine.values.results import DiffResult
from topics.errors import TopicsError

_STEP_ROWS = 32
"""Rows that are decoded between two pauses beside other threads, which wait for no more."""
_STEP_ROWS_MOST = 256
"""Rows of a step while no other thread waits. By itself a step costs as much as 40 rows."""
_BYTES_A_ROW = 1 << 10
_SHORT_BYTES = 32 << 10


_decoder = msgspec.json.Decoder(list[Record])


def put_payloads(records: Sequence[msgspec.Struct], payloads: Sequence[tuple[int, bytes]]) -> None:
    """Set the data of records just decoded that is bytes, given by the index of each."""
    for index, payload in payloads:
        msgspec.structs.force_setattr(records[index], "data", payload)


def decoded(elements: bytes, payloads: Sequence[tuple[int, bytes]]) -> list[Record]:
    """Return records of the elements of a JSON array, and of the payloads that come apart."""
    records = _decoder.decode(b"[" + elements + b"]")
    put_payloads(records, payloads)
    return records


def parse_page(topic: str, result: DiffResult, records: list[Record] | None = None, incarnation: str = "") -> Page:
    """Return the engine's answer with its records, which are decoded if they are not given."""
    if records is None:
        records = decoded(result.records, result.payloads)
    place = result.next_from_seq, result.head_seq, result.earliest_seq
    return Page(topic, records, *place, result.tombstone, result.size, incarnation)


def parse_one(topic: str, result: DiffResult | TopicsError) -> Record | TopicsError | None:
    """Return the record of a read of one; None if there is none, GapError if it was lost."""
    if isinstance(result, TopicsError):
        return result
    if result.tombstone is not None:
        return None if result.tombstone.is_recreated else GapError(topic, result.tombstone)
    if not result.count:
        return None
    return decoded(result.records, result.payloads)[0]


class UnreadPage:
    """A page of records. `read` makes it, on any thread, once."""

    __slots__ = ("_incarnation", "_result", "_topic")

    def __init__(self, topic: str, result: DiffResult, incarnation: str = "") -> None:
        self._topic = topic
        self._incarnation = incarnation
        self._result = result

    @property
    def is_short(self) -> bool:
        """Whether to read it takes no time to speak of: it is in memory, and has few bytes."""
        return not isinstance(self._result, ChosenResult) or self._result.memory_bytes <= _SHORT_BYTES

    def read(self, pause: Callable[[], bool]) -> Page:
        """Read and decode the records; between steps call `pause`, which lets other threads run.

        pause: returns whether there are any.

        Raises: StorageError; UsageError, the log was closed meanwhile.
        """
        result = self._result
        if not isinstance(result, ChosenResult):
            return parse_page(self._topic, result, None, self._incarnation)
        records: list[Record] = []
        renderer = result.renderer()
        step = Step(_STEP_ROWS, _STEP_ROWS * _BYTES_A_ROW)
        pause()
        for _ in result.add_to(renderer, step):
            records += decoded(*renderer.take())
            step.rows = _STEP_ROWS if pause() else min(2 * step.rows, _STEP_ROWS_MOST)
            step.size = step.rows * _BYTES_A_ROW
        return parse_page(self._topic, result._replace(size=renderer.size), records, self._incarnation)


class UnreadColumns:
    """A page of columns, see `UnreadPage`."""

    __slots__ = ("_result",)

    def __init__(self, result: ChosenResult) -> None:
        self._result = result

    def read(self, choose: Choose, pause: Callable[[], object]) -> ColumnPage:
        """Read the records; `choose` makes a call that chooses more of them."""
        return columns_of(self._result, choose, pause)
