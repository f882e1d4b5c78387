"""An echo: what arrives is sent back. On uvloop where it is installed, else on asyncio.

Run: python -m topics.bench.peers.plain_echo PORT.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class EchoProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def serve(port: int) -> None:
    listener = await asyncio.get_running_loop().create_server(EchoProtocol, "127.0.0.1", port)
    await listener.serve_forever()


def main() -> None:
    run = import_module("uvloop").run if find_spec("uvloop") else asyncio.run
    run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
