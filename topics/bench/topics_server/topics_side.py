"""This server as a side: its own process in a temporary directory, or one at a URL."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from topics import __version__
from topics.bench.load.load_client import LoadClient
from topics.bench.outcome import LoadOutcome, RoundOutcome
from topics.bench.processes import BenchProcess, start_own_module
from topics.bench.sides import ClientRun, Progress
from topics.bench.topics_server.topics_checks import answer_checks, read_back_check, stored_checks
from topics.bench.topics_server.topics_loads import TopicsLoads
from topics.bench.topics_server.topics_target import BenchTargetError, ServerIo, TopicsTarget
from topics.bench.workload import NETWORK_KINDS, Case, Workload
from topics.clock import SystemClock

READY_SECONDS = 600
CREATORS, CREATE_SECONDS = 64, 600
POLLING_ENGINE, _SPIN = "uring", "TOPICS_SPIN_US"
_KEYS, _KEYS_FILE = "TOPICS_API_KEYS", "TOPICS_API_KEYS_FILE"
STARTS = 3
"""Starts on an empty directory, whose median is subtracted from one with records."""
REMOVALS = 10
"""How often a topic of a run is deleted at most: a write that is late may create it again."""


class TopicsSide:
    """url: of a running server; empty: each round starts one. settings: its TOPICS_* variables."""

    name = "topics"

    def __init__(self, url: str = "", key: str = "", settings: dict[str, str] | None = None) -> None:
        self.url = url
        self.key = key
        self.settings = settings or {}
        self._clock = SystemClock()
        self._engine = ""
        """The engine that the last server used, and its polling; known after a round."""
        self._polled = False

    def missing(self) -> str:
        return ""

    def refuses(self, case: Case) -> str:
        if case.workload.kinds & {"append"}:
            return "this is a workload of the library"
        if self.url and "restart" in case.workload.kinds:
            return f"the server at {self.url} is not this command's to kill: leave out --url"
        return ""

    def version(self) -> str:
        at = f" at {self.url}" if self.url else ""
        return ", ".join(filter(None, (f"topics {__version__}{at}", self._engine)))

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        if "restart" in case.workload.kinds:
            return self._restart(case, scratch, progress)
        assert case.workload.kinds <= NETWORK_KINDS
        with self._target(case.workload, scratch) as (target, process):
            topic = "bench" if process else f"bench-{secrets.token_hex(4)}"
            try:
                return self._measure_on(case, target, process, topic, progress)
            finally:
                if process is None:
                    remove_topics(target, topic)

    def _measure_on(
        self, case: Case, target: TopicsTarget, process: BenchProcess | None, topic: str, progress: Progress
    ) -> RoundOutcome:
        workload = case.workload
        loads = TopicsLoads(workload, target, topic)
        _prepare(workload, target, loads)
        polls = target.io().polls
        before = process.usage().rss_bytes if process else None
        stored = target.heads(f"{topic}-") if _has_many(workload) else 0
        groups = loads.groups()
        run = ClientRun(
            case,
            groups,
            (target.host, target.port),
            process.usage if process else None,
            progress,
            first_number=workload.fill.records,
        )
        target.close()  # the server would end it, unused for so long
        outcome, figures = run.run(self._clock.monotonic_ns)
        self._note_io(workload, target.io(), polls)
        outcome.rss_before = before
        outcome.figures |= idle_figures(workload, outcome)
        figures.acked[: workload.fill.records] = 1
        outcome.checks += answer_checks(workload, groups, figures)
        progress("reading back", 0)
        destinations = [loads.destination(number) for number in range(workload.destinations)]
        outcome.checks += stored_checks(workload, target, topic, figures, destinations, stored=stored)
        return outcome

    def _note_io(self, workload: Workload, io: ServerIo, polls: int) -> None:
        """Note the engine, the setting of polling, and whether the server has polled in any round.

        polls: how many waits had polled before the load.
        """
        self._polled |= io.polls > polls
        setting = "" if self.url else f"spin_us {({**workload.server, **self.settings}).get(_SPIN, 'auto')}, "
        polling = f", {setting}{'polled' if self._polled else 'never polled'}" if io.engine == POLLING_ENGINE else ""
        self._engine = io.engine and f"io {io.engine}{polling}"

    @contextmanager
    def _target(self, workload: Workload, scratch: Path) -> Iterator[tuple[TopicsTarget, BenchProcess | None]]:
        if self.url:
            yield TopicsTarget.of_url(self.url, self.key), None
            return
        process, target = self._start(workload, scratch / "data")
        try:
            yield target, process
        finally:
            process.stop()

    def _start(self, workload: Workload, directory: Path) -> tuple[BenchProcess, TopicsTarget]:
        """Start a server on a free port of loopback, and wait until it is ready."""
        port_file = directory.with_suffix(".port")
        port_file.unlink(missing_ok=True)
        command = ["topics", "serve", "--data-dir", str(directory), "--host", "127.0.0.1"]
        command += ["--port", "0", "--port-file", str(port_file), "--log-level", "warning"]
        env = {**workload.server, **self.settings}
        key = secrets.token_hex(16) if env.get(_KEYS) or env.get(_KEYS_FILE) else ""
        if key:  # the load has one of its own
            env[_KEYS] = ",".join(filter(None, (env.get(_KEYS), key)))
        process = start_own_module(command, directory.with_suffix(".log"), "topics serve", env)
        try:
            process.wait_until(lambda: port_file.exists() and bool(port_file.read_text().strip()), READY_SECONDS)
            target = TopicsTarget("127.0.0.1", int(port_file.read_text().rpartition(":")[2]), key)
            process.wait_until(target.is_ready, READY_SECONDS)
        except BaseException:
            process.kill()
            raise
        return process, target

    def _restart(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        """Fill, kill, start again: the seconds until ready, less those of an empty directory."""
        workload = case.workload
        empty = sorted(self._timed_start(workload, scratch / f"empty-{number}") for number in range(STARTS))
        directory = scratch / "data"
        process, target = self._start(workload, directory)
        progress("filling", 0)
        _prepare(workload, target, None)
        before = process.usage().rss_bytes
        process.kill()
        progress("starting", 0)
        began = self._clock.monotonic_ns()
        process, target = self._start(workload, directory)
        took = (self._clock.monotonic_ns() - began) / 1e9
        try:
            usage = process.usage()
            check = read_back_check(target, "bench", np.ones(workload.fill.records, np.uint8), workload.record_sizes)
        finally:
            process.stop()
        ready = max(0.0, took - empty[STARTS // 2])
        load = LoadOutcome("restart", "restart", ready, "s to ready", 1, workload.fill.records, 0, 0, {})
        return RoundOutcome(
            [load],
            took,
            server_cpu_seconds=usage.cpu_seconds,
            rss_before=before,
            figures={"seconds_to_ready": took, "seconds_of_an_empty_start": empty[STARTS // 2], "rss": usage.rss_bytes},
            checks=[check],
        )

    def _timed_start(self, workload: Workload, directory: Path) -> float:
        """Return the seconds until a server is ready."""
        began = self._clock.monotonic_ns()
        process, _ = self._start(workload, directory)
        took = (self._clock.monotonic_ns() - began) / 1e9
        process.kill()
        return took


def _has_many(workload: Workload) -> bool:
    return any(load.topics > 1 for load in workload.loads)


def idle_figures(workload: Workload, outcome: RoundOutcome) -> dict[str, float]:
    """Return the memory that each idle stream takes, where a workload is nothing else."""
    if workload.kinds != {"idle"} or not outcome.usage or outcome.rss_before is None:
        return {}
    grown = max(sample.rss_bytes for sample in outcome.usage) - outcome.rss_before
    return {"bytes_of_a_stream": grown / sum(load.connections for load in workload.loads)}


def _prepare(workload: Workload, target: TopicsTarget, loads: TopicsLoads | None) -> None:
    """Create the topic, its routers, and what it holds before the load."""
    topic = loads.topic if loads else "bench"
    config: dict[str, object] = {"durability": workload.topic.durability}
    if workload.topic.type == "queue":
        config["type"] = "queue"
    if workload.topic.cap_records:
        config["cap_records"] = workload.topic.cap_records
    target.call("PUT", f"/v0/topics/{topic}", config)
    most = max(load.topics for load in workload.loads)
    if most > 1 and loads:
        _create_topics(loads, config, most)
    for number in range(workload.destinations if loads else 0):
        assert loads is not None
        copy = loads.destination(number)
        target.call("PUT", f"/v0/topics/{copy}", config)
        target.call("PUT", f"/v0/routers/{copy}", {"source": topic, "dest": copy})
    target.fill(topic, workload.fill.records, workload.fill.bytes)


def _create_topics(loads: TopicsLoads, config: dict[str, object], count: int) -> None:
    """Create the topics of a load by turns: by a write each where the class is what that gives."""
    target = loads.target
    if config != {"durability": "disk"}:
        for number in range(count):
            target.call("PUT", f"/v0/topics/{loads.topic}-{number:08}", config)
        return
    group = next(group for group in loads.groups() if group.topics > 1)
    group = replace(group, connections=CREATORS, rate=0.0, most_requests=count)
    LoadClient([group], target.host, target.port, CREATE_SECONDS).run()


def remove_topics(target: TopicsTarget, prefix: str) -> None:
    """Delete what a run has created on a server that is not its own.

    Raises: BenchTargetError if the server still has a topic that it said it has deleted.
    """
    removed = Counter[str]()
    while rows := target.call("GET", f"/v0/topics?page_size=1000&prefix={prefix}")["topics"]:
        for row in rows:
            target.call("DELETE", f"/v0/topics/{row['topic']}")
            removed[row["topic"]] += 1
            if removed[row["topic"]] == REMOVALS:
                raise BenchTargetError(f"{row['topic']} was deleted {REMOVALS} times, and is still there")
