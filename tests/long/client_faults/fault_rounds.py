"""Clients of a server that is killed every second, behind a proxy that cuts, delays, repeats and truncates.

Goal: nothing acknowledged is lost, nothing is doubled, no call outlasts its deadline.
Method: every record carries a number of its writer. A client of threads and one of asyncio append one by one and in
batches to topics of class `disk` and `fsync`, follow them, and do jobs; `append_soon` runs beside them, and a writer
whose topic has no idempotency window, whose appends are therefore not repeated. At the end the topics hold each number
that was answered once, at its seq, and the tails have seen what a read returns. A number whose append ended with
`OutcomeUnknown` counts as either. What the proxy does is chosen by the seed; when a kill strikes is up to the machine.

    python -m tests.long.client_faults.fault_rounds --rounds 1000 --seed 7 [--io portable] [--directory D]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import topics
from tests.long.client_faults.append_ledger import AppendLedger, JobLedger, append_faults
from tests.long.client_faults.faulty_proxy import FaultyProxy, ProxyFault
from tests.long.soak.kill_loop import choose_settings
from tests.long.soak.server_client import Server
from topics import NoAnswerError, OutcomeUnknown

FOLLOWED = ("disk", "fsync")
"""Topics that both kinds of client append to and follow; each is of the class of its name."""
SOON, NO_WINDOW, JOBS = "soon", "no-window", "jobs"
LEASE_MS = 2000
_BATCH_MOST = 5
_SOON_AT_ONCE = 20
_JOBS_WAITING = 50
_END_S = 120.0
"""How long the clients may take at the end."""
_GRACE_S = 15.0
"""How much longer than its deadline a call may take on a busy machine."""
_IN_HAND = "jobs in hand"
_MARK = ["end", 0]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FaultOptions:
    """The settings of a run."""

    rounds: int
    seed: int
    life_s: float = 1.0
    """How long a server lives at least once it is ready."""
    least: int = 0
    """Calls of every writer in the life of a server, at least; one is answered in any case."""
    pause_s: float = 0.005
    """Pause of a writer after each append."""
    longest_delay_s: float = 0.3
    passes: int = 20
    """Messages that pass for one of each fault."""
    without: tuple[ProxyFault, ...] = ()
    timeout: float = 55.0
    """Below half the window of a key, so that an append is repeated until then."""
    attempt_timeout: float = 2.0
    io: str = ""


class Progress:
    """Counts of what the clients have done, and their first error."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.counts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self.stops = threading.Event()

    def note(self, name: str, count: int = 1) -> None:
        with self.changed:
            self.counts[name] += count
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def wait_for(self, is_done: Callable[[], bool], what: str, seconds: float = _END_S) -> None:
        with self.changed:
            done = self.changed.wait_for(lambda: self.error is not None or is_done(), seconds)
        self.check()
        assert done, f"{what}: not in {seconds} s"


class FaultClients:
    """All clients of one run."""

    def __init__(self, options: FaultOptions, url: str, url_without_repeats: str) -> None:
        self.options = options
        self.progress = Progress()
        self.jobs = JobLedger()
        self.ledgers = {
            f"{writer} {topic}": AppendLedger(writer, topic)
            for writer, names in (("sync", (*FOLLOWED, SOON, NO_WINDOW, JOBS)), ("async", FOLLOWED))
            for topic in names
        }
        self.tails: dict[str, list[tuple[int, Any]]] = {}
        self._url = url
        settings = {"timeout": options.timeout, "attempt_timeout": options.attempt_timeout}
        self._log = topics.connect(url, **settings)  # type: ignore[arg-type]  # times
        self._log_of_no_window = topics.connect(url_without_repeats, **settings)  # type: ignore[arg-type]  # times
        self._threads: dict[str, threading.Thread] = {}
        self._aio = _AsyncSide(self, settings)

    # --- running -----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        for number, topic in enumerate(FOLLOWED):
            self._start(f"append {topic}", self._append, self._log, topic, number)
            self._start(f"tail {topic}", self._tail, topic)
        self._start("append jobs", self._append_jobs)
        self._start("append soon", self._append_soon)
        self._start("append no-window", self._append, self._log_of_no_window, NO_WINDOW, len(FOLLOWED))
        self._start("work", self._work)
        self._start("asyncio", lambda: asyncio.run(self._aio.run()))

    def _start(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        def watched() -> None:
            try:
                run(*arguments)
            except BaseException as error:
                error.add_note(f"in {name}")
                self.progress.fail(error)

        self._threads[name] = threading.Thread(target=watched, name=name, daemon=True)
        self._threads[name].start()

    def stop_appending(self) -> None:
        self.progress.stops.set()
        for name, thread in self._threads.items():
            if name.startswith("append"):
                self._join(name, thread)
        self.progress.wait_for(lambda: self.progress.counts["async end"] == len(FOLLOWED), "the end of async appends")

    def join_tails(self) -> None:
        for topic in FOLLOWED:
            self._join(f"tail {topic}", self._threads[f"tail {topic}"])
        self.progress.wait_for(lambda: self.progress.counts["async tails"] == 1, "the end of async tails")

    def close(self) -> None:
        self._log.close()
        self._log_of_no_window.close()
        self._aio.close()
        for name in ("work", "asyncio"):
            self._join(name, self._threads[name])

    def _join(self, name: str, thread: threading.Thread) -> None:
        thread.join(_END_S)
        self.progress.check()
        assert not thread.is_alive(), f"{name} hangs"

    # --- appends -----------------------------------------------------------------------------------------------------
    @contextmanager
    def call(self, ledger: AppendLedger, numbers: list[int]) -> Iterator[None]:
        """Note how an append ended that was not answered, and that it ended in time."""
        began = time.monotonic()
        name = f"{ledger.writer} {ledger.topic}"
        try:
            yield
            self.progress.note("appended", len(numbers))
        except OutcomeUnknown as error:
            ledger.unknown.update(numbers)
            if ledger.topic != NO_WINDOW:
                _log.warning("%s: %s", name, error)
            self.progress.note(f"unknown of {ledger.topic}", len(numbers))
        except NoAnswerError:
            ledger.refused.update(numbers)
            self.progress.note("refused", len(numbers))
        took = time.monotonic() - began
        assert took < self.options.timeout + _GRACE_S, f"{name}: a call took {took:.1f} s"
        self.progress.note(name)

    def _append(self, log: topics.Client, topic: str, number: int) -> None:
        rng = random.Random(f"{self.options.seed} append {number}")
        ledger = self.ledgers[f"sync {topic}"]
        while not self.progress.stops.wait(self.options.pause_s):
            numbers = ledger.next(rng.randint(1, _BATCH_MOST))
            with self.call(ledger, numbers):
                ledger.note(numbers, log.append(topic, ledger.rows(numbers)).first_seq)

    def _append_jobs(self) -> None:
        ledger = self.ledgers[f"sync {JOBS}"]
        while not self.progress.stops.wait(self.options.pause_s):
            if ledger.count - self.jobs.handed < _JOBS_WAITING:
                numbers = ledger.next()
                with self.call(ledger, numbers):
                    ledger.note(numbers, self._log.append(JOBS, numbers).first_seq)

    def _append_soon(self) -> None:
        ledger = self.ledgers[f"sync {SOON}"]
        while not self.progress.stops.wait(self.options.pause_s):
            numbers = ledger.next(_SOON_AT_ONCE)
            sent = [self._log.append_soon(SOON, row) for row in ledger.rows(numbers)]
            for number, pending in zip(numbers, sent, strict=True):
                with self.call(ledger, [number]):
                    ledger.note([number], pending.result())

    # --- tails and jobs ----------------------------------------------------------------------------------------------
    def _tail(self, topic: str) -> None:
        seen = self.tails.setdefault(f"sync {topic}", [])
        while True:
            with self.patience("tails"):
                for record in self._log.tail(topic, seen[-1][0] if seen else 0):
                    if record.data == _MARK:
                        return
                    seen.append((record.seq, record.data))

    def _work(self) -> None:
        is_closed = False
        while not is_closed:
            with self.patience("works"):
                for job in self._log.work(JOBS, node="sync", max=4, lease_ms=LEASE_MS):
                    with self.in_hand(job.data), job:
                        pass
                    self._done(job)
                is_closed = True

    @contextmanager
    def patience(self, what: str) -> Iterator[None]:
        """Begin again where servers took so long to start that a call found none in its time."""
        try:
            yield
        except NoAnswerError:
            self.progress.note(f"{what} begun again")

    @contextmanager
    def in_hand(self, number: int) -> Iterator[None]:
        """Count a job until its ack has an answer, which may be lost after the job has left the queue."""
        self.jobs.hand(number)
        self.progress.note(_IN_HAND)
        try:
            yield
        finally:
            self.progress.note(_IN_HAND, -1)

    def _done(self, job: Any) -> None:
        if job._is_unsure:  # after a restart, another worker may have completed it
            self.progress.note("jobs of an unanswered ack")
        elif not job.is_lost:
            self.jobs.ack(job.data)
        self.progress.note("jobs")


class _AsyncSide:
    """The client of asyncio, in a thread of its own."""

    def __init__(self, clients: FaultClients, settings: dict[str, float]) -> None:
        self._clients = clients
        self._progress = clients.progress
        self._log = topics.AsyncClient(clients._url, **settings)  # type: ignore[arg-type]  # times

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, topic in enumerate(FOLLOWED):
                group.create_task(self._append(topic, number))
            group.create_task(self._tail())
            group.create_task(self._work())

    def close(self) -> None:
        self._log.drop()

    async def _append(self, topic: str, number: int) -> None:
        clients, rng = self._clients, random.Random(f"{self._clients.options.seed} async {number}")
        ledger = clients.ledgers[f"async {topic}"]
        while not self._progress.stops.is_set():
            numbers = ledger.next(rng.randint(1, _BATCH_MOST))
            with clients.call(ledger, numbers):
                ledger.note(numbers, (await self._log.append(topic, ledger.rows(numbers))).first_seq)
            await asyncio.sleep(clients.options.pause_s)
        self._progress.note("async end")

    async def _tail(self) -> None:
        cursors: dict[str, int | topics.From | None] = dict.fromkeys(FOLLOWED, 0)
        left = set(FOLLOWED)
        while left:
            with self._clients.patience("tails"):
                async for topic, record in self._log.tail_many(cursors):
                    cursors[topic] = record.seq
                    if record.data == _MARK:
                        left.discard(topic)
                        if not left:
                            break
                    else:
                        self._clients.tails.setdefault(f"async {topic}", []).append((record.seq, record.data))
        self._progress.note("async tails")

    async def _work(self) -> None:
        is_closed = False
        while not is_closed:
            with self._clients.patience("works"):
                async for job in self._log.work(JOBS, node="async", max=4, lease_ms=LEASE_MS):
                    with self._clients.in_hand(job.data):
                        async with job:
                            pass
                    self._clients._done(job)
                is_closed = True


class FaultRun:
    """A directory, its servers one after another, proxies, and clients."""

    def __init__(self, directory: Path, options: FaultOptions) -> None:
        self.directory = directory
        self.options = options
        given: dict[str, Any] = {"passes": options.passes, "longest_delay_s": options.longest_delay_s}
        self.proxy = FaultyProxy(options.seed, **given, without=options.without)
        without = {*options.without, ProxyFault.REPEAT_REQUEST}  # where it would double a record
        self.once = FaultyProxy(f"{options.seed} once", **given, without=without)
        self.proxies = (self.proxy, self.once)
        self._rng = random.Random(f"{options.seed} servers")
        self.server: Server | None = None

    def run(self) -> Counter[str]:
        """Raises: AssertionError, something is wrong; the error of a client."""
        try:
            with topics.connect(self._serve()) as direct:
                for topic in FOLLOWED:
                    direct.put_topic(topic, durability=topic)  # type: ignore[arg-type]  # the name of a class
                direct.put_topic(SOON, durability="fsync")
                direct.put_topic(NO_WINDOW, durability="disk", idempotency_window_ms=0)
                direct.put_topic(JOBS, type="queue", durability="disk", max_deliveries=1000)
            clients = FaultClients(self.options, self.proxy.url, self.once.url)
            clients.start()
            for number in range(self.options.rounds):
                if number:
                    self._serve()
                self._live(clients)
                self._kill()
                clients.progress.note("kills")
            with topics.connect(self._serve()) as direct:
                self._end(clients, direct)
            for proxy in self.proxies:
                assert proxy.error is None, f"the proxy failed: {proxy.error!r}"
            counts = clients.progress.counts
            counts.update({fault.value: self.proxy.counts[fault] + self.once.counts[fault] for fault in ProxyFault})
            return counts
        except BaseException as error:
            server = self.server.tail() if self.server else ""
            error.add_note(f"seed {self.options.seed}; {self.directory}\n{server}")
            raise
        finally:
            for proxy in self.proxies:
                proxy.close()
            if self.server is not None:
                self.server.process.kill()
                self.server.process.wait()

    def _serve(self) -> str:
        """Start a server, each with other settings; return its address."""
        self.server = Server(self.directory, choose_settings(self._rng, self.options.io), executes=True)
        address = self.server.wait_ready()
        host, _, port = address.rpartition(":")
        for proxy in self.proxies:
            proxy.target = (host, int(port))
        return f"http://{address}"

    def _live(self, clients: FaultClients) -> None:
        """Let the clients work for a while, on a slow machine until they have done something."""
        counts = clients.progress.counts
        before = counts.copy()
        clients.progress.stops.wait(self.options.life_s)
        least = dict.fromkeys([*clients.ledgers, "jobs"], self.options.least) | {"appended": 1}
        clients.progress.wait_for(
            lambda: all(counts[name] >= before[name] + count for name, count in least.items()), "a round"
        )

    def _kill(self) -> None:
        assert self.server is not None
        for proxy in self.proxies:
            proxy.target = None
        self.server.kill()

    def _end(self, clients: FaultClients, direct: topics.Client) -> None:
        clients.stop_appending()
        for proxy in self.proxies:
            proxy.calm()
        clients.progress.wait_for(lambda: not direct.state(JOBS).count, "the end of all jobs")
        found: dict[str, list[tuple[int, Any]]] = {}
        for topic in (*FOLLOWED, SOON, NO_WINDOW):
            direct.append(topic, [_MARK])
            rows = [(record.seq, record.data) for record in direct.read(topic)]
            found[topic] = rows[: next(at for at, (_, data) in enumerate(rows) if data == _MARK)]
        clients.join_tails()
        clients.progress.wait_for(lambda: not clients.progress.counts[_IN_HAND], "the end of all acks")
        clients.close()
        faults = clients.jobs.faults(clients.ledgers[f"sync {JOBS}"], direct.state(JOBS).count)
        for topic, rows in found.items():
            faults += append_faults([each for each in clients.ledgers.values() if each.topic == topic], rows)
        for name, seen in clients.tails.items():
            rows = found[name.partition(" ")[2]]
            if seen != rows:
                at = next((at for at, (one, other) in enumerate(zip(seen, rows, strict=False)) if one != other), -1)
                faults.append(f"tail {name} saw {len(seen)} records of {len(rows)}, others from {at}: {seen[at:][:3]}")
        assert len(clients.tails) == 2 * len(FOLLOWED), "a tail saw nothing"
        assert not faults, "\n".join(faults)
        clients.progress.counts["records read"] = sum(map(len, found.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--life", type=float, default=1.0, help="seconds from when a server is ready to its kill")
    parser.add_argument("--io", choices=("uring", "portable"), default="", help="for all servers; by default any")
    parser.add_argument("--directory", type=Path, help="kept; by default a temporary one, removed when all is well")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="topics-client-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {directory}", flush=True)
    asked = FaultOptions(options.rounds, options.seed, options.life, io=options.io)
    counts = FaultRun(directory, asked).run()
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if options.directory is None:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
