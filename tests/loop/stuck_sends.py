"""A table of connections in which the sends of others are stuck."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from topics.loop._connection_table import ffi, lib
from topics.loop.connection_table import ConnectionTable


def fill_buffers(connections: ConnectionTable) -> int:
    """Connections beside those of a test take nothing of their answers, each of a pass of its own, until the table has
    no buffer left; returns how many there are."""
    table, memory, lengths = connections._table, ffi.new("char **"), ffi.new("uint32_t[]", [1])
    stuck = 0
    while (number := lib.tp_table_buffer(table, 1, memory)) >= 0:
        slot = connections.open(cast(Any, SimpleNamespace(ref=0)))
        ref = 1 << 59 | slot
        lib.tp_table_set(table, slot, 0, ref << 4 | 3)
        lib.tp_table_own(table, slot)
        columns = ffi.new("uint64_t[]", [ref]), lengths, 1, 1, ffi.new("uint64_t[1]"), ffi.new("int[1]")
        assert lib.tp_table_answer(table, number, *columns) == 0
        stuck += 1
    return stuck
