"""A TCP echo server on the loop. Run: python -m examples.loop.tcp_echo [PORT], then: nc localhost PORT

The messages of a pass are columns where there are many, so no Python runs for each message
(docs/internals/loop.md, "Handlers of byte streams").
"""

from __future__ import annotations

import sys

from topics.clock import SystemClock
from topics.config import Config
from topics.loop import Connection, ConnectionTable, Loop, StreamLimits
from topics.loop.choose import open_ring
from topics.loop.signals import install_signal_handlers

MANY = 4
"""From this number of messages in a pass on, columns cost less than objects."""


class Echo:
    """Sends back what it gets, and reads no faster than the peer takes it."""

    takes_rows = True

    def __init__(self, table: ConnectionTable) -> None:
        self._table = table

    def connected(self, conn: Connection) -> None:
        pass

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        table = self._table
        if table.count:
            count, memory, refs, starts, ends = table.rows()
            for ref, data in table.answer_spans(memory, refs, starts, ends, count):
                conn = table.connection(ref)
                if conn is not None:  # it came back to its object in this pass
                    conn.write(data)
        for conn, view in batch:
            if conn.owned:  # more of it came before its answer had gone
                table.leave(conn)
            elif len(batch) >= MANY and table.can_own(conn):
                table.own(conn)
                table.answer_spans(view, [conn.ref], [0], [len(view)], 1)
                continue
            conn.write(bytes(view))
            if conn.over_high_water:
                conn.pause_reading()

    def end_of_stream(self, conn: Connection) -> None:
        conn.close()

    def drained(self, conn: Connection) -> None:
        conn.resume_reading()

    def lost(self, conn: Connection, error: int) -> None:
        pass


def main(port: int = 0, io: str = "auto") -> None:
    ring, reason = open_ring(Config(io=io), shared=False)
    loop = Loop(ring, SystemClock())
    echo = Echo(loop.use_connection_table())
    listener = loop.listen("127.0.0.1", port, echo, limits=StreamLimits(send_high_water_bytes=1 << 18))
    install_signal_handlers(loop, lambda _signal: loop.stop())
    print(f"{listener.address[1]} echoes, on the {ring.name} ring ({reason})", flush=True)
    loop.run()
    loop.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
