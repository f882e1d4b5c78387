"""A plain server of the same shape: asyncio, h11, a file, fdatasync in a pool of threads.

Run: python -m topics.bench.peers.plain_server PORT FILE write|sync|memory. It answers each POST
with a JSON object that is about as long as ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import h11

THREADS = 8
ANSWER = b'{"ok":true,"padding":"%b"}' % (b"x" * 160)
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(ANSWER)))]


class AppendingServer:
    """fd: the file; -1: bodies stay in memory. sync: answers come after fdatasync."""

    def __init__(self, fd: int, *, sync: bool) -> None:
        self.fd = fd
        self.sync = sync
        self.memory: list[bytes] = []
        self.pool = ThreadPoolExecutor(THREADS)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        body = bytearray()
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = await reader.read(1 << 16)
                    connection.receive_data(data)
                    if not data:
                        return
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    await self.append(bytes(body))
                    body.clear()
                    parts = [
                        connection.send(h11.Response(status_code=200, headers=_HEADERS)),
                        connection.send(h11.Data(data=ANSWER)),
                        connection.send(h11.EndOfMessage()),
                    ]
                    writer.write(b"".join(part for part in parts if part))
                    connection.start_next_cycle()
                elif not isinstance(event, h11.Request):
                    return
        except (ConnectionError, h11.RemoteProtocolError):
            return
        finally:
            writer.close()

    async def append(self, body: bytes) -> None:
        """Write a body, and wait for its sync if the class asks for it."""
        if self.fd < 0:
            self.memory.append(body)
            return
        os.write(self.fd, body)
        if self.sync:
            await asyncio.get_running_loop().run_in_executor(self.pool, os.fdatasync, self.fd)


async def serve(port: int, path: str, how: str) -> None:
    fd = -1 if how == "memory" else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    server = AppendingServer(fd, sync=how == "sync")
    listener = await asyncio.start_server(server.handle, "127.0.0.1", port)
    await listener.serve_forever()


def main() -> None:
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))


if __name__ == "__main__":
    main()
