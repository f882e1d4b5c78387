"""Count the bytecodes of a pass that takes plain writes of many connections to one topic.

    python -m perf.grouped [--connections 64] [--passes 64] [--only disk] [--functions 30] [--smoke]

A server runs in this process on its real ring, log and engine. Each client has sent one write of one
record when a pass begins, which takes all of them through the lane; then each receives its answer.
Bytecodes are those that the interpreter executes in a pass of the loop, counted by its tracing as in
`perf.lone`: those of the pass with the median, by room of topics/. The counts of class `disk` do not
depend on the machine nor on its load. The time of a pass does, so none is measured, and so does the
way of a commit of class `fsync`: through the ring it ends in another pass. A pass that took fewer
writes, because some arrived late, is not counted.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
from collections import Counter

from perf.figures import PAYLOAD, commit_id, interpreter
from perf.servers import http_request
from perf.traced_passes import Bytecodes, Passes, received, served
from topics.loop import Loop
from topics.server.app import Server

PASSES = 64
PASSES_OF_A_SMOKE = 4
WARM = 20


class Clients:
    """Connections to a server that runs in this thread."""

    def __init__(self, loop: Loop, server: Server, request: bytes, count: int) -> None:
        self._loop = loop
        self._server = server
        self._request = request
        self._sockets = [socket.create_connection(server.address) for _ in range(count)]

    def write(self, passes: Passes) -> bool:
        """Have every client write once. Return whether one pass took all, which is then noted."""
        lane = self._server.lane
        assert lane is not None, "the server has a lane"
        for client in self._sockets:
            client.sendall(self._request)
        for _ in range(len(self._sockets)):  # each may post only some of the completions
            self._loop.ring.submit_and_wait(0)
        before = lane.taken
        passes.bytecodes.clear()
        passes.began_ns = 1
        self._loop.run_pass(None)
        passes.began_ns = 0
        is_whole = lane.taken - before == len(self._sockets)
        if is_whole and passes.bytecodes:
            passes.traced_passes.append(Counter(passes.bytecodes))
        for client in self._sockets:
            received(self._loop, client)
        return is_whole

    def close(self) -> None:
        for client in self._sockets:
            client.close()


def measure(durability: str, connections: int, count: int) -> Bytecodes:
    """Return the bytecodes of the pass with the median of `count` passes."""
    with tempfile.TemporaryDirectory(dir=".") as name, served(f"{name}/data", durability) as (loop, server):
        request = http_request("POST", "/v0/topics/bench", f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode())
        clients, passes = Clients(loop, server, request, connections), Passes()
        for _ in range(WARM):
            clients.write(passes)
        with passes.traced():
            while len(passes.traced_passes) < count:
                clients.write(passes)
        clients.close()
    traced = sorted(passes.traced_passes, key=Counter.total)
    return traced[len(traced) // 2]


def print_row(durability: str, connections: int, bytecodes: Bytecodes, functions: int) -> None:
    rooms: Counter[str] = Counter()
    for (room, _name, _after), count in bytecodes.items():
        rooms[room] += count
    by_room = ", ".join(f"{room} {count}" for room, count in rooms.most_common())
    print(f"| {connections} writes, `{durability}` | {rooms.total()} | {by_room} |", flush=True)
    for (room, name, _after), count in bytecodes.most_common(functions):
        print(f"    {count:5} {room} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--only", default="disk", help="durability classes, such as disk,fsync")
    parser.add_argument("--functions", type=int, default=0, help="print so many functions by their bytecodes")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    passes = PASSES_OF_A_SMOKE if options.smoke else options.passes
    print(f"commit {commit_id()}, {interpreter()}, the median of {passes} passes")
    print("| | bytecodes | by room |")
    print("|---|---|---|")
    for durability in options.only.split(","):
        bytecodes = measure(durability, options.connections, passes)
        print_row(durability, options.connections, bytecodes, options.functions)


if __name__ == "__main__":
    main()
