"""The WebSocket layer as an echo: what Autobahn's fuzzing client talks to. `python -m tests.ws.echo_server PORT`.

Our loop, handshake and framing, with none of the commands: a text or binary message comes back as it was.
"""

from __future__ import annotations

import sys

from tests.ws.passes import no_turns
from topics.clock import SystemClock
from topics.config import Config
from topics.errors import RequestError
from topics.loop.choose import open_ring
from topics.loop.connection import Connection
from topics.loop.loop import Loop
from topics.ws.framing import BINARY, CLOSED, PING, TEXT, Framing, pong_frame, text_frame
from topics.ws.handshake import accept_key, switching_protocols

_MAX_FRAME_BYTES = 16 << 20
_MAX_MESSAGE_BYTES = 64 << 20


class Echo:
    """One connection: a head, then frames."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._head = b""
        self._framing: Framing | None = None

    def receive(self, data: bytes) -> None:
        if self._framing is None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
            try:
                accept = accept_key({name.lower(): value.strip() for name, _, value in lines}, 1)
            except RequestError as error:
                self._conn.write(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nX-Why: %b\r\n\r\n" % str(error).encode()
                )
                self._conn.close()
                return
            self._conn.write(switching_protocols(accept))
            self._framing = Framing(_MAX_FRAME_BYTES, _MAX_MESSAGE_BYTES, no_turns())
        self._framing.feed(data)
        while (received := self._framing.take()) is not None:
            if received.kind in (TEXT, BINARY):
                self._conn.write(text_frame(received.data, received.kind))
            elif received.kind == PING:
                self._conn.write(pong_frame(received.data))
            elif received.kind == CLOSED:
                self._conn.write(received.data)
                self._conn.close()
                return


class EchoHandler:
    def connected(self, conn: Connection) -> None:
        conn.state = Echo(conn)

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
            conn.state.receive(bytes(view))

    def end_of_stream(self, conn: Connection) -> None:
        conn.close()

    def drained(self, conn: Connection) -> None:
        pass

    def lost(self, conn: Connection, error: int) -> None:
        pass


def main() -> None:
    config = Config(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    listener = loop.listen(config.host, config.port, EchoHandler(), config.listen_backlog)
    print(f"{listener.address[0]}:{listener.address[1]}", flush=True)
    loop.run()


if __name__ == "__main__":
    main()
