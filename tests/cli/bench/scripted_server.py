"""A server on loopback whose answers a test decides: for the load client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[[bytes], bytes]
"""Takes all bytes of a receive and returns what to send; nothing: no answer."""


@contextmanager
def scripted_server(answer: Answer) -> Iterator[int]:
    """Yield the port. A thread for each connection answers each receive until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(link: socket.socket) -> None:
        with link:
            try:
                while data := link.recv(1 << 20):
                    if reply := answer(data):
                        link.sendall(reply)
            except ConnectionError:
                pass

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(link,)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def http_answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
