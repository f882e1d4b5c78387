"""The rival of perf/loop_echo.py: the plainest echo protocol on uvloop. Run: python -m perf.compare.uvloop_echo PORT"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:  # uvloop's own class, which is no asyncio.Transport
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    print(f"{port} echoes, on uvloop {uvloop.__version__}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
