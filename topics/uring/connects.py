"""Connects in flight. The descriptor exists before the operation, and becomes its result."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from topics.uring._ring import ffi


class Connects:
    """Descriptors of connects in flight, by user_data."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._fds)

    def begin(self, user_data: int, host: str, port: int) -> tuple[int, Any]:
        """Return a new socket and the packed address to connect it to.

        Resolving the name blocks.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        packed = _pack(family, address)
        with socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            fd = self._fds[user_data] = client.detach()
        return fd, packed

    def finish(self, user_data: list[int], res: list[int]) -> None:
        """Replace the 0 of each connect by its descriptor; close the descriptors of failed ones."""
        for row, each in enumerate(user_data):
            fd = self._fds.pop(each, -1)
            if fd < 0:
                continue
            if res[row] < 0:
                os.close(fd)
            else:
                res[row] = fd

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _pack(family: int, address: tuple[Any, ...]) -> Any:
    """Return a sockaddr_in or sockaddr_in6, in memory that the kernel may read."""
    packed = family.to_bytes(2, sys.byteorder) + address[1].to_bytes(2, "big")
    if family == socket.AF_INET6:
        packed += address[2].to_bytes(4, "big") + socket.inet_pton(family, address[0])
        packed += address[3].to_bytes(4, sys.byteorder)
    else:
        packed += socket.inet_pton(family, address[0]) + bytes(8)
    return ffi.from_buffer("uint8_t[]", packed)
