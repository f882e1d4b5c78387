"""From a beginning, as a client names it, to a cursor. Source: wire contract, R-FROM."""

from __future__ import annotations

from topics.common.values.begin import Begin
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.state.topic import Topic

_BYTES_A_CHUNK = 128
"""Share of a pass's budget for reads that a chunk of the index costs which is passed.

It takes as much time as rendering this many bytes.
"""


def begin_cursor(turns: ReadTurns, topic: Topic, begin: Begin) -> int:
    """Return the cursor that a beginning is at this instant.

    A live record, or the head, comes next after it, so no loss is reported that came before.
    """
    kind, number = begin
    index, head = topic.index, topic.head
    if kind == "seq":
        return number
    if kind == "now":
        return head
    if kind == "first":
        first = topic.earliest
    elif kind == "time":
        first = index.first_since(number)
    else:
        turns.spend(_BYTES_A_CHUNK * min(number, len(index.chunks)))
        first = index.last_live(number, head)
    return min(first - 1, head) if first else head
