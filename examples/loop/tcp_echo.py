"""A TCP echo server on the loop. Run: python -m examples.loop.tcp_echo [PORT], then: nc localhost PORT"""

from __future__ import annotations

import sys

from topics.clock import SystemClock
from topics.config import Config
from topics.loop import Connection, Loop, StreamLimits
from topics.loop.choose import open_ring
from topics.loop.signals import install_signal_handlers


class Echo:
    """Sends back what it gets, and reads no faster than the peer takes it."""

    def connected(self, conn: Connection) -> None:
        pass

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
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
    listener = loop.listen("127.0.0.1", port, Echo(), limits=StreamLimits(send_high_water_bytes=1 << 18))
    install_signal_handlers(loop, lambda _signal: loop.stop())
    print(f"{listener.address[1]} echoes, on the {ring.name} ring ({reason})", flush=True)
    loop.run()
    loop.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
