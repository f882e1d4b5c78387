"""Measure the server's resident memory of a record, an idle topic and an idle connection.

    python -m perf.footprint [--records 4000000] [--topics 20000] [--connections 2000] [--smoke]

Every figure is a difference of the process's resident size, divided by how many were added. The record figure is
taken with a hot tail of 1 MiB after everything was checkpointed, so that it holds the index and nothing else.
"""

from __future__ import annotations

import argparse
import resource
import socket
import tempfile
import time
from pathlib import Path

from perf.figures import commit_id
from perf.peers import fill
from perf.servers import Server, topics_server


def settled_rss(server: Server) -> int:
    """Resident bytes once they have stopped moving for half a second."""
    last = server.rss_bytes()
    while True:
        time.sleep(0.5)
        now = server.rss_bytes()
        if abs(now - last) < 64 * 1024:
            return now
        last = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    records, topics, connections = (
        (5000, 100, 50) if options.smoke else (options.records, options.topics, options.connections)
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    env = {"TOPICS_HOT_TAIL_BYTES": str(1 << 20), "TOPICS_CHECKPOINT_WAL_BYTES": str(64 << 20)}
    print(f"commit {commit_id()}")
    with tempfile.TemporaryDirectory(dir=".") as name, topics_server(Path(name) / "topics", env=env) as server:
        fill(server, "warm", 20_000)
        base = settled_rss(server)
        fill(server, "bench", records)
        print(f"index: {(settled_rss(server) - base) / records:.1f} bytes a record ({records:,} records)")
        base = settled_rss(server)
        for number in range(topics):
            server.request("PUT", f"/v0/topics/idle-{number}", {})
        print(f"idle topic: {(settled_rss(server) - base) / topics:,.0f} bytes ({topics:,})")
        base = settled_rss(server)
        links = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(connections)]
        for link in links:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for link in links:
            assert link.recv(4096).startswith(b"HTTP/1.1 200")
        print(f"idle connection: {(settled_rss(server) - base) / connections:,.0f} bytes ({connections:,})")


if __name__ == "__main__":
    main()
