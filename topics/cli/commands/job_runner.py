"""Run a command for each job of a queue: `work`, whose blocks are programs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from topics.cli.commands.last_line import LastLine
from topics.cli.exit_codes import INTERRUPTED, REFUSED
from topics.cli.output.record_text import data_bytes
from topics.common.work import Worker, WorkJob
from topics.common.work_steps import START_MS, WorkOptions

if TYPE_CHECKING:
    from types import FrameType

    from topics.common.any_log import AnyLog

_CLAIM_MS = 1000
"""How long a claim waits for a job: a stop of the runner waits as long for it."""
_LOOKS = 6
"""A lease that has ended is noticed, and its command ended, within a sixth of a lease."""


class RunnerOptions(NamedTuple):
    """The options of `topics queue work`."""

    queue: str
    command: Sequence[str]
    node: str
    side_by_side: int
    limit: int | None
    drain: bool
    delay_ms: int
    lease_ms: int | None
    quiet: bool


class JobRunner:
    """Runs the command for jobs, until it is stopped or has done what it was to do."""

    def __init__(self, log: AnyLog, options: RunnerOptions) -> None:
        self._options = options
        self._worker = Worker(
            log,
            WorkOptions(
                options.queue, options.node, options.side_by_side, options.lease_ms, options.delay_ms, START_MS
            ),
        )
        self._look_s = (options.lease_ms or log.state(options.queue, touch=False).config.lease_ms) / 1000 / _LOOKS
        self._lock = threading.Lock()
        self._left = options.limit
        """Jobs that may still be begun; None: any number."""
        self.stopping = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._signal = 0
        self._ending = False
        """Whether commands that run are to end."""
        self._lost = False
        """Whether the lease of a job ended before the job was done."""
        self._error: Exception | None = None

    def run(self) -> int:
        """Work to the end. Return the exit code."""
        before = {each: signal.signal(each, self.on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        threads = [threading.Thread(target=self._work, name=f"job-{at}") for at in range(self._options.side_by_side)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._worker.leave()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._error is not None:
            raise self._error
        if self._signal == signal.SIGINT:
            return INTERRUPTED
        return REFUSED if self._lost else 0

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Begin no more jobs; at the second signal end the commands that run."""
        if self.stopping.is_set() and self._signal:
            self._ending = True
            for process in list(self._running):
                _end(process)
        self._signal = number
        self.stopping.set()

    def _work(self) -> None:
        wait_ms = 0 if self._options.drain else _CLAIM_MS
        try:
            while not self.stopping.is_set() and self._begins():
                job = self._worker.next_job(wait_ms=wait_ms, most=1)
                if job is not None:
                    self._run(job)
                    continue
                self._ends_without()
                if self._options.drain:
                    return
        except Exception as error:  # another kind would end only this thread
            self._error = self._error or error
            self.stopping.set()

    def _begins(self) -> bool:
        """Take one of the jobs that may be begun. False: there is none left."""
        with self._lock:
            if self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            return True

    def _ends_without(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left += 1

    def _run(self, job: WorkJob) -> None:
        """Run the command for a job, and complete or return it."""
        began = time.monotonic()
        said = LastLine()
        try:
            process = subprocess.Popen(
                list(self._options.command),
                stdin=subprocess.PIPE,
                stderr=said.writer,
                env=self._variables(job),
                process_group=0,
            )
        except OSError:
            said.close()
            self._return(job, "its command cannot be run")
            raise
        said.start()
        self._running.add(process)
        if self._ending:  # by a signal that came since it was started
            _end(process)
        try:
            is_ours = self._wait(process, job)
        finally:
            self._running.discard(process)
        if not is_ours:
            job.nack()  # Its lease is gone, so this only makes room for another job.
            self._note_lost(job, "its lease has ended, so its command was ended")
        elif process.returncode == 0:
            job.ack()
            said.text()
            took = f"{time.monotonic() - began:.1f} s"
            if job.is_lost:
                self._note_lost(job, f"its lease had ended before its command did, after {took}: it may run again")
            else:
                self._report(job, f"done in {took}")
        else:
            self._return(job, _how_it_ended(process.returncode, said.text()))

    def _wait(self, process: subprocess.Popen[bytes], job: WorkJob) -> bool:
        """Wait for the command. Return False if the job's lease ended first; it is ended then."""
        is_text = isinstance(job.data, (str, bytes))
        data: bytes | None = data_bytes(job.data) + (b"" if is_text else b"\n")
        with self._worker.changed:
            job.begin()
        while True:
            try:
                process.communicate(data, timeout=self._look_s)
                return True
            except subprocess.TimeoutExpired:
                data = None  # what is left of it is written by the next call
                if job.is_lost:
                    _end(process)
                    process.wait()
                    return False

    def _return(self, job: WorkJob, why: str) -> None:
        job.nack(reason=why)
        self._report(job, f"returned: {why}")

    def _variables(self, job: WorkJob) -> dict[str, Any]:
        variables: dict[str, Any] = {
            "TOPICS_QUEUE": self._options.queue,
            "TOPICS_SEQ": job.seq,
            # No variable holds a NUL.
            "TOPICS_TAG": (job.tag or "").replace("\0", "\N{REPLACEMENT CHARACTER}"),
            "TOPICS_DELIVERIES": job.deliveries,
        }
        return {**os.environ, **{name: str(value).encode() for name, value in variables.items()}}

    def _note_lost(self, job: WorkJob, what: str) -> None:
        self._lost = True
        self._report(job, what)

    def _report(self, job: WorkJob, what: str) -> None:
        if not self._options.quiet:
            with contextlib.suppress(OSError):  # its reader has left
                print(f"job {job.seq}: {what}", file=sys.stderr, flush=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a command and the programs that it has started to end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _how_it_ended(code: int, last_line: str) -> str:
    ended = f"exit code {code}" if code > 0 else f"signal {_signal_name(-code)}"
    return f"{ended}: {last_line}" if last_line else ended


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real time have names only at both ends
        return str(number)
