"""Measure idle watch streams: memory and share of a core of ten thousand with heartbeats.

    python -m perf.idle_streams [--streams 10000] [--heartbeat-ms 15000] [--seconds 45] [--smoke]

Every stream has a session of its own on one of a hundred topics. The client holds the sockets and counts what arrives.
"""

from __future__ import annotations

import argparse
import platform
import resource
import selectors
import socket
import tempfile
import time
from pathlib import Path

from perf.servers import Server, topics_server

TOPICS = 100
HEARTBEAT = b": hb\n\n"


def open_stream(server: Server, path: str) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", server.port))
    link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
    got = b""
    while b"caught-up" not in got:
        got += link.recv(4096)
    link.setblocking(False)
    return link


def listen(links: list[socket.socket], seconds: float) -> int:
    """Heartbeats that arrive within a time."""
    heartbeats = 0
    with selectors.DefaultSelector() as selector:
        for link in links:
            selector.register(link, selectors.EVENT_READ)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            # One call gives all that are ready, so a short time is enough to empty them.
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                heartbeats += key.fileobj.recv(4096).count(HEARTBEAT)
    return heartbeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--heartbeat-ms", type=int, default=15_000)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--smoke", action="store_true", help="a run that only shows that it works")
    options = parser.parse_args()
    if options.smoke:
        options.streams, options.heartbeat_ms, options.seconds = 20, 1000, 1.2
    needed = options.streams + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
    # One session more than the default allows makes no difference to what a stream costs.
    env = {"TOPICS_MAX_WATCH_SESSIONS": "0", "TOPICS_MAX_SSE_CONNECTIONS": "0"}
    with tempfile.TemporaryDirectory() as directory, topics_server(Path(directory) / "data", env=env) as server:
        for number in range(TOPICS):
            server.request("POST", f"/v0/topics/t{number}", {"records": [{"data": number}]})
        before = server.rss_bytes()
        links = []
        for number in range(options.streams):
            body = {"topics": {f"t{number % TOPICS}": {"tail": True}}, "heartbeat_ms": options.heartbeat_ms}
            links.append(open_stream(server, server.request("POST", "/v0/watch", body)["stream_url"]))
        grown = server.rss_bytes() - before
        listen(links, 0.1)  # what came while the others were opened
        cpu = server.cpu_seconds()
        heartbeats = listen(links, options.seconds)
        cpu = server.cpu_seconds() - cpu
        grown = max(grown, server.rss_bytes() - before)
        for link in links:
            link.close()
    expected = options.streams * options.seconds * 1000 / options.heartbeat_ms
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"{options.streams} idle streams, heartbeats every {options.heartbeat_ms} ms, {options.seconds:.0f} s")
    print(
        f"memory: {grown / 1e6:.1f} MB more, {grown / options.streams / 1024:.1f} KiB a stream (goal < 100 MB, 10 KiB)"
    )
    print(f"CPU: {cpu / options.seconds * 100:.2f} % of a core (goal <= 3)")
    print(f"heartbeats: {heartbeats} of about {expected:.0f}")


if __name__ == "__main__":
    main()
