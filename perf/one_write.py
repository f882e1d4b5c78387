"""Measure one write in this process, without the network.

    python -m perf.one_write [--passes 2000] [--connections 26] [--records 1]
        [--durability disk] [--profile FILE] [--smoke]

Requests are handed to the HTTP connections as a pass of the loop would, and their answers collected; the log below is
the real one in a temporary directory. Printed is CPU time (user and system of the whole process) a request.
"""

from __future__ import annotations

import argparse
import cProfile
import logging
import resource
import statistics
import tempfile

from perf.figures import PAYLOAD, commit_id
from perf.no_probes import NoProbes
from perf.servers import http_request
from topics.clock import SystemClock
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.engine.values.topic_config import make_config
from topics.http.http1.http1_connection import HttpConnection
from topics.http.plan.service import Service
from topics.http.route_table import route_table
from topics.loop import Loop, PassEnd
from topics.loop.choose import open_ring


class Transport:
    """Where a connection's answers go."""

    over_high_water = False

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.answers.append(data)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


def cpu_us() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return (use.ru_utime + use.ru_stime) * 1e6


def measure(options: argparse.Namespace, directory: str) -> list[float]:
    """CPU microseconds a request, one figure a tenth of the run."""
    config = Config(data_dir=directory)
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    opened = loop.run_task(StoredEngine.open(loop, config))
    engine = opened.engine
    made: list[object] = []
    engine.put_topic("bench", make_config(durability=options.durability), made.append)
    loop.run_until(lambda: bool(made))
    service = Service(config, route_table(), NoProbes(), loop)
    service.serve(engine)
    loop.on_pass_end(service.answer_turns.next_pass, PassEnd.TURNS)
    transports = [Transport() for _ in range(options.connections)]
    connections = [HttpConnection(service, transport) for transport in transports]
    records = ",".join([f'{{"data":{PAYLOAD}}}'] * options.records)
    request = memoryview(http_request("POST", "/v0/topics/bench", f'{{"records":[{records}]}}'.encode()))
    figures = []

    def receive_all() -> None:
        for connection in connections:
            connection.receive(request)

    last = transports[-1].answers

    def one_pass() -> None:
        answered = len(last)
        loop.call_soon(receive_all)
        while len(last) == answered:
            loop.run_pass(None)

    profile = cProfile.Profile() if options.profile else None
    for _ in range(10):
        began = cpu_us()
        if profile:
            profile.enable()
        for _ in range(options.passes // 10):
            one_pass()
        if profile:
            profile.disable()
        figures.append((cpu_us() - began) / (options.passes // 10 * options.connections))
    if profile:
        profile.dump_stats(options.profile)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in last)
    loop.run_task(opened.store.close(checkpoint=False))
    loop.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=26)
    parser.add_argument("--records", type=int, default=1, help="in each request")
    parser.add_argument("--durability", default="disk")
    parser.add_argument("--profile", default="")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.passes = 20
    logging.basicConfig(level="WARNING")
    with tempfile.TemporaryDirectory(dir=".") as name:
        figures = measure(options, f"{name}/data")
    print(
        f"commit {commit_id()}: {statistics.median(figures):.2f} us of CPU a request "
        f"({min(figures):.2f}-{max(figures):.2f}), {options.connections} a pass, {options.durability}"
    )


if __name__ == "__main__":
    main()
