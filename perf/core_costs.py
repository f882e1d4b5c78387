"""Measure a server of several cores beside one of one core: figures of docs/internals/cores.

    python -m perf.core_costs [--seconds 2] [--rounds 5] [--cores 2] [--only lone,kill,...] [--smoke]

Each row has two sides, which are measured by turns, for `--seconds` each. Figures are medians of the rounds with their
range, and the ratio is the median of those of each round. CPU is that of all processes of the server, user and system,
by record, delivery or request; the load client is on the same machine, and its CPU does not count.

    one         64 connections write to a topic each: `--cores 1` beside a server without the option
    batches     16 connections write 100 records at once, to a topic each
    reads       16 connections read 1,000 records at once, of a topic each
    deliveries  10 topics get records, and 1,000 watchers (SSE), 100 of each topic, get those of theirs
    home        64 connections write to a topic each, and each is on the core of its topic after its first request
    lone        one connection writes, each record after the answer to the one before: relayed, beside at home;
                without polls (`TOPICS_SPIN_US=0`), which would count as CPU
    relayed     64 connections write to a topic of either core by turns, so half is relayed; all of it, by arithmetic
    kill        writes to a topic of core 0, 2,000/s: while core 1 is killed every half second, beside before that
    idle        four cores without clients: memory (PSS), CPU of a second, and the supervisor's memory
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from perf.figures import PAYLOAD, commit_id, interpreter, machine
from perf.servers import Server, core_pids, http_load, http_request, topics_server
from topics.bench.load.load_client import LoadClient
from topics.bench.load.load_plan import LoadGroup, LoadMessage, write_body
from topics.store.cores.slot_map import SlotMap

CONNECTIONS, WRITERS, TOPICS, WATCHERS = 64, 16, 10, 1000
BATCH, PAGE = 100, 1000
RECORD_BYTES = 91
DELIVERED_RATE = 200.0
"""Records a second of all topics that are watched."""
KILL_RATE = 2000.0
KILL_EVERY_S = 0.5
RELAYED = "topics_core_requests_total"
ONE_RECORD = f'{{"records":[{{"data":{PAYLOAD}}}]}}'.encode()


class Sample(NamedTuple):
    """One measurement. rate: records, deliveries or requests a second. cpu_us: of each. p50_us: of an answer."""

    rate: float
    cpu_us: float
    p50_us: float = 0.0
    p99_us: float = 0.0


class Row(NamedTuple):
    """The samples of two sides, a round each, and further findings as a text."""

    name: str
    sides: tuple[str, str]
    samples: list[tuple[Sample, Sample]]
    found: str = ""


class Settings(NamedTuple):
    seconds: float
    rounds: int
    cores: int
    directory: Path


def names_on(core: int, cores: int, count: int, prefix: str = "t") -> list[str]:
    """Return names of topics that a new directory of so many cores has on one of them."""
    slots, found, number = SlotMap.balanced(cores), list[str](), 0
    while len(found) < count:
        if slots.core_of(name := f"{prefix}{number}") == core:
            found.append(name)
        number += 1
    return found


def spread_names(cores: int, count: int) -> list[str]:
    """Return names of topics of all cores by turns."""
    by_core = [names_on(core, cores, -(-count // cores)) for core in range(cores)]
    return [names[place] for place in range(len(by_core[0])) for names in by_core][:count]


def write_to(name: str, body: bytes = ONE_RECORD) -> bytes:
    return http_request("POST", f"/v0/topics/{name}?return_seqs=false", body)


def make_topics(server: Server, names: list[str]) -> None:
    for name in names:
        server.request("PUT", f"/v0/topics/{name}", {"durability": "disk"})


def sampled(  # noqa: PLR0917 - columns of a row
    server: Server, settings: Settings, connections: int, records: int, requests: list[bytes], rate: float = 0.0
) -> Sample:
    """Measure a load, a closed one at rate 0. records: of each request."""
    done = http_load(server, connections, settings.seconds, *requests, rate=rate)
    count = done["requests"] * records
    return Sample(
        done["rate"] * records, done["server_cpu"] * 1e6 / count, done["p50_ns"] / 1000, done["p99_ns"] / 1000
    )


def core_requests(server: Server) -> int:
    """Return how many requests were relayed so far."""
    counted = server.all_metrics().items()
    return int(sum(value for name, value in counted if name.startswith(RELAYED) and 'event="asked"' in name))


@contextmanager
def two_servers(settings: Settings, *options: tuple[str, ...]) -> Iterator[list[Server]]:
    """Start a server for each of these options."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(topics_server(settings.directory / f"server-{number}", *each))
            for number, each in enumerate(options)
        ]


def by_turns(
    settings: Settings, first: Callable[[], Sample], second: Callable[[], Sample]
) -> list[tuple[Sample, Sample]]:
    """Measure both in each round, the other one first in every second round."""
    found = []
    for number in range(settings.rounds):
        if number % 2:
            right = second()
            found.append((first(), right))
        else:
            left = first()
            found.append((left, second()))
    return found


def beside_one_core(
    settings: Settings, name: str, cores: int, measure: Callable[[Server, Settings, list[str]], Sample], count: int
) -> Row:
    """Measure a server of several cores beside one without the option."""
    names = spread_names(max(cores, 2), count)
    with two_servers(settings, ("--cores", str(cores)), ()) as servers:
        for server in servers:
            make_topics(server, names)
            measure(server, settings._replace(seconds=0.3), names)  # the first files, and the hand-over
        before = core_requests(servers[0])
        sides = [partial(measure, server, settings, names) for server in servers]
        samples = by_turns(settings, *sides)
        relayed = core_requests(servers[0]) - before
    return Row(name, (f"--cores {cores}", "without"), samples, f"{relayed} requests relayed" if cores > 1 else "")


def lone_records(server: Server, settings: Settings, names: list[str]) -> Sample:
    return sampled(server, settings, CONNECTIONS, 1, [write_to(name) for name in names])


def batches(server: Server, settings: Settings, names: list[str]) -> Sample:
    body = b'{"records":[' + b",".join([f'{{"data":{PAYLOAD}}}'.encode()] * BATCH) + b"]}"
    return sampled(server, settings, WRITERS, BATCH, [write_to(name, body) for name in names])


def reads(server: Server, settings: Settings, names: list[str]) -> Sample:
    for name in names:
        if not server.request("GET", f"/v0/topics/{name}")["count"]:
            server.request("POST", f"/v0/topics/{name}", {"records": [{"data": "x" * RECORD_BYTES}] * PAGE})
    body = b'{"from_seq":0,"limit":%d}' % PAGE
    return sampled(
        server, settings, WRITERS, PAGE, [http_request("POST", f"/v0/topics/{name}/diff", body) for name in names]
    )


def deliveries(server: Server, settings: Settings, names: list[str], watchers: int = WATCHERS) -> Sample:
    openings = []
    for number in range(watchers):
        asked = {"topics": {names[number % len(names)]: {"tail": True}}}
        path = server.request("POST", "/v0/watch", asked)["stream_url"]
        openings.append(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode())
    body = write_body(RECORD_BYTES, 1)
    groups = [
        LoadGroup(
            "watch", watchers, openings=tuple(openings), ready=b"caught-up", hears=True, record_bytes=(RECORD_BYTES,)
        ),
        LoadGroup("write", len(names), tuple(LoadMessage(write_to(name, body)) for name in names), rate=DELIVERED_RATE),
    ]
    client = LoadClient(groups, "127.0.0.1", server.port, settings.seconds, numbers_max=1 << 20)
    cpu: list[float] = []
    done = client.run_watched(0.01, lambda each: cpu.append(server.cpu_seconds()) if each.phase == "running" else None)
    heard = done.groups[0]
    if done.groups[1].errors:
        raise RuntimeError(done.error)
    took = heard.delivery
    used = (cpu[-1] - cpu[0]) * 1e6
    return Sample(
        heard.deliveries / done.seconds, used / heard.deliveries, took.quantile(0.5) / 1000, took.quantile(0.99) / 1000
    )


class LoneClient:
    """A connection that waits for each answer, and is on one core while its topic is on another one, or not."""

    def __init__(self, server: Server, names: tuple[str, str], *, relayed: bool) -> None:
        self._server = server
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name in names:  # with the second one it has travelled, and stays
            self.ask(write_to(name))
        self._request = next(each for each in map(write_to, names) if self._is_relayed(each) is relayed)

    def ask(self, request: bytes) -> None:
        self._socket.sendall(request)
        if not self._socket.recv(65536).startswith(b"HTTP/1.1 20"):
            raise RuntimeError("a write was refused")

    def _is_relayed(self, request: bytes) -> bool:
        before = core_requests(self._server)
        for _ in range(10):
            self.ask(request)
        return core_requests(self._server) - before >= 10

    def sample(self, settings: Settings) -> Sample:
        took: list[int] = []
        cpu = self._server.cpu_seconds()
        begun = before = time.perf_counter_ns()
        end = begun + int(settings.seconds * 1e9)
        while before < end:
            self.ask(self._request)
            now = time.perf_counter_ns()
            took.append(now - before)
            before = now
        used = self._server.cpu_seconds() - cpu
        cuts = statistics.quantiles(took, n=100)
        return Sample(len(took) * 1e9 / (before - begun), used * 1e6 / len(took), cuts[49] / 1000, cuts[98] / 1000)

    def close(self) -> None:
        self._socket.close()


def lone(settings: Settings) -> Row:
    names = names_on(0, 2, 1)[0], names_on(1, 2, 1)[0]
    with topics_server(settings.directory / "lone", "--cores", "2", env={"TOPICS_SPIN_US": "0"}) as server:
        make_topics(server, list(names))

        def sample(relayed: bool) -> Sample:
            client = LoneClient(server, names, relayed=relayed)
            try:
                return client.sample(settings)
            finally:
                client.close()

        samples = by_turns(settings, partial(sample, True), partial(sample, False))
    return Row("lone", ("relayed", "at home"), samples)


def relayed(settings: Settings) -> Row:
    """Half of the requests are relayed: what one costs more than one at home counts twice."""
    names = [names_on(core, 2, CONNECTIONS) for core in range(2)]
    by_turns_of_both = [write_to(name) for name in (*names[0], *names[1])]
    at_home = [write_to(name) for name in spread_names(2, CONNECTIONS)]
    with topics_server(settings.directory / "relayed", "--cores", "2") as server:
        make_topics(server, [*names[0], *names[1]])
        lone_records(server, settings._replace(seconds=0.3), spread_names(2, CONNECTIONS))
        shares: list[float] = []

        def home() -> Sample:
            return sampled(server, settings, CONNECTIONS, 1, at_home)

        def mixed() -> Sample:
            before = core_requests(server)
            sample = sampled(server, settings, CONNECTIONS, 1, by_turns_of_both)
            shares.append((core_requests(server) - before) / (sample.rate * settings.seconds))
            return sample

        samples = by_turns(settings, mixed, home)
    whole = [
        (
            Sample(
                1 / max(2 / left.rate - 1 / right.rate, 1e-9), 2 * left.cpu_us - right.cpu_us, left.p50_us, left.p99_us
            ),
            right,
        )
        for left, right in samples
    ]
    return Row("relayed", ("all relayed", "at home"), whole, f"{statistics.median(shares):.2f} of them were relayed")


def kill(settings: Settings) -> Row:
    """Write to core 0 while the other one is killed again and again; also how long its topic is away."""
    mine, others = names_on(0, 2, 1)[0], names_on(1, 2, 1)[0]
    away: list[float] = []
    with topics_server(settings.directory / "kill", "--cores", "2") as server:
        make_topics(server, [mine, others])

        def paced() -> Sample:
            return sampled(server, settings, 8, 1, [write_to(mine)], KILL_RATE)

        def killed() -> Sample:
            over = threading.Event()

            def kill_often() -> None:
                while not over.wait(KILL_EVERY_S):
                    os.kill(core_pids(server.process.pid)[1], signal.SIGKILL)
                    away.append(_until_answered(server, others))

            killer = threading.Thread(target=kill_often)
            killer.start()
            try:
                return paced()._replace(cpu_us=0.0)  # that of cores that have ended is not known
            finally:
                over.set()
                killer.join()

        samples = by_turns(settings, killed, paced)
    found = f"{len(away)} kills, its topic answered after {statistics.median(away):.2f} s, {max(away):.2f} at most"
    return Row("kill", ("the other core is killed", "before"), samples, found)


def _until_answered(server: Server, topic: str) -> float:
    begun = time.monotonic()
    while True:
        try:
            server.request("GET", f"/v0/topics/{topic}")
        except OSError:
            time.sleep(0.005)
        else:
            return time.monotonic() - begun


def idle(settings: Settings) -> str:
    with topics_server(settings.directory / "idle", "--cores", "4") as server:
        time.sleep(1)
        cpu = server.cpu_seconds()
        time.sleep(settings.seconds)
        used = (server.cpu_seconds() - cpu) / settings.seconds
        cores = sum(pss_bytes(pid) for pid in core_pids(server.process.pid).values())
        supervisor = pss_bytes(server.process.pid)
    memory = f"four cores: {cores / 1e6:.0f} MB, the supervisor: {supervisor / 1e6:.0f} MB"
    return f"| idle | {memory}, {used * 100:.1f} % of a CPU |"


def pss_bytes(pid: int) -> int:
    """Return the memory of a process, of which it counts a share where others have it, too."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Pss")


def row_text(row: Row) -> str:
    """Return a row of the table: of each side rate, CPU, p50 and p99, and the ratios of rate and CPU."""
    cells = [row.name]
    for side, name in enumerate(row.sides):
        samples = [each[side] for each in row.samples]
        cells.append(f"{name}: {spread_of([one.rate for one in samples])}/s")
        cells.append(f"{spread_of([one.cpu_us for one in samples], 2)} us")
        cells.append(f"{spread_of([one.p50_us for one in samples])} / {spread_of([one.p99_us for one in samples])} us")
    cells.append(f"{statistics.median(left.rate / right.rate for left, right in row.samples):.2f}")
    if all(left.cpu_us and right.cpu_us for left, right in row.samples):
        cells.append(f"{statistics.median(left.cpu_us / right.cpu_us for left, right in row.samples):.2f}")
    else:
        cells.append("-")
    cells.append(row.found)
    return "| " + " | ".join(cells) + " |"


def spread_of(values: list[float], digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2, help="of the rows batches, reads, deliveries and home")
    parser.add_argument("--only", default="", help="rows, with commas between them")
    parser.add_argument("--smoke", action="store_true", help="a tiny run")
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.rounds = 0.2, 1
    watchers = 50 if options.smoke else WATCHERS
    with tempfile.TemporaryDirectory(dir=".") as directory:
        settings = Settings(options.seconds, options.rounds, options.cores, Path(directory))
        beside = partial(beside_one_core, settings)
        rows: dict[str, Callable[[], Row]] = {
            "one": partial(beside, "one", 1, lone_records, CONNECTIONS),
            "batches": partial(beside, "batches", options.cores, batches, WRITERS),
            "reads": partial(beside, "reads", options.cores, reads, WRITERS),
            "deliveries": partial(beside, "deliveries", options.cores, partial(deliveries, watchers=watchers), TOPICS),
            "home": partial(beside, "home", options.cores, lone_records, CONNECTIONS),
            "lone": partial(lone, settings),
            "relayed": partial(relayed, settings),
            "kill": partial(kill, settings._replace(seconds=max(settings.seconds, 2 * KILL_EVERY_S))),
        }
        chosen = options.only.split(",") if options.only else [*rows, "idle"]
        if unknown := set(chosen) - {*rows, "idle"}:
            parser.error(f"unknown rows: {', '.join(sorted(unknown))}; there are {', '.join([*rows, 'idle'])}")
        print(f"{commit_id()}, {machine()}, load {os.getloadavg()[0]:.1f}; {interpreter()}")
        sides = "rate | CPU of each | p50 / p99"
        print(f"| row | a side: {sides} | the other: {sides} | rate, ratio | CPU, ratio | |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name in chosen:
            print(idle(settings) if name == "idle" else row_text(rows[name]()), flush=True)


if __name__ == "__main__":
    main()
