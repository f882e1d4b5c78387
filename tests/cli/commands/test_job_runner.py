"""`topics queue work`: commands for jobs, their ends, and the leases meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics.cli.commands.job_runner import JobRunner, RunnerOptions
from topics.cli.exit_codes import REFUSED
from topics.common import work_steps
from topics.errors import NoAnswerError

LEASE_MS = 60_000
OPTIONS = RunnerOptions("jobs", ("true",), "w", 1, None, True, 0, None, True)


class WatchedLog:
    """A log whose extensions of leases a test sees, and may let fail."""

    def __init__(self, log: topics.Log, on_extend: Callable[[], None], *, takes_away: bool = False) -> None:
        self._log, self._on_extend, self._takes_away = log, on_extend, takes_away
        self.extended = 0

    def extend(self, queue: str, node: str, jobs: Iterable[topics.Job], *, lease_ms: int) -> topics.ExtendResult:
        jobs = list(jobs)
        if self._takes_away:
            self._log.nack(queue, node, jobs)
        result = self._log.extend(queue, node, jobs, lease_ms=lease_ms)
        self.extended += 1
        self._on_extend()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def queue_with(log: topics.Log, *data: Any) -> topics.Log:
    log.put_topic("jobs", type="queue")
    log.append("jobs", list(data))
    return log


def test_exit_code_0_completes_a_job_and_another_returns_it(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, "good", "bad", "good")
        command = ("sh", "-c", 'test "$(cat)" = good')
        assert JobRunner(log, OPTIONS._replace(command=command, delay_ms=3_600_000)).run() == 0
        assert [record.data for record in log.read("jobs")] == ["bad"]
        assert log.claim("jobs", "other", 9) == []


def test_a_job_whose_lease_ended_unnoticed_is_not_said_to_be_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its extensions had no answer: the ack says that the job is another's by now."""

    class TakenAway(WatchedLog):
        def ack(self, queue: str, node: str, jobs: Iterable[topics.Job]) -> topics.AckResult:
            jobs = list(jobs)
            self._log.nack(queue, node, jobs, delay_ms=3_600_000)
            return self._log.ack(queue, node, jobs)

    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, "a job")
        taken: Any = TakenAway(log, lambda: None)
        assert JobRunner(taken, OPTIONS._replace(quiet=False)).run() == REFUSED
        assert log.state("jobs").count == 1
    said = capfd.readouterr().err
    assert "job 1: its lease had ended before its command did" in said
    assert "done" not in said


def test_an_ack_without_an_answer_is_repeated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Unanswered(WatchedLog):
        tries = 0

        def ack(self, queue: str, node: str, jobs: Iterable[topics.Job]) -> topics.AckResult:
            self.tries += 1
            if self.tries == 1:
                raise NoAnswerError("no answer from http://s")
            return self._log.ack(queue, node, jobs)

    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, "a job")
        unanswered: Any = Unanswered(log, lambda: None)
        assert JobRunner(unanswered, OPTIONS._replace(quiet=False)).run() == 0
        assert (unanswered.tries, log.state("jobs").count) == (2, 0)
    assert "job 1: done in" in capfd.readouterr().err


def test_the_last_line_on_stderr_is_part_of_the_reason_and_bounded(tmp_path: Path) -> None:
    """All of it is passed on; a program that the command has left running delays nothing."""
    said = {1: "sleep 1000 & echo $! >&3; echo first >&2; echo 'ValueError: bad' >&2; echo ' ' >&2; exit 3"}
    said[2] = "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 4"
    said[3] = "exit 5"
    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, *said.values())
        command = ("sh", "-c", f'exec 3>> {tmp_path}/pid; eval "$(cat)"')
        assert JobRunner(log, OPTIONS._replace(command=command, delay_ms=3_600_000)).run() == 0
        failed = log.state("jobs", include_attempts=True).queue.failed  # type: ignore[union-attr]
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    reasons = {job.seq: job.attempts[-1].reason for job in failed}
    assert reasons == {1: "exit code 3: ValueError: bad", 2: f"exit code 4: {'x' * 199}…", 3: "exit code 5"}


def test_the_lease_is_extended_while_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # every 0.1 s: the lease outlasts any wait for a core
    monkeypatch.setattr(work_steps, "_PARTS", LEASE_MS // 100)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def let_it_end() -> None:
        if watched.extended == 3:
            fifo.write_text("\n")

    with topics.open(tmp_path / "data", **SMALL) as log:
        watched = WatchedLog(queue_with(log, 1), let_it_end)
        command = ("sh", "-c", f"read line < {fifo}")
        assert JobRunner(watched, OPTIONS._replace(command=command, lease_ms=LEASE_MS, limit=1)).run() == 0  # type: ignore[arg-type]
        assert watched.extended >= 3
        assert log.state("jobs").count == 0


def test_a_command_whose_lease_was_lost_is_ended_and_its_job_is_not_completed(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        watched = WatchedLog(queue_with(log, 1), lambda: None, takes_away=True)
        command = ("sh", "-c", "cat > /dev/null; exec sleep 1000")
        assert JobRunner(watched, OPTIONS._replace(command=command, lease_ms=300, limit=2)).run() == REFUSED  # type: ignore[arg-type]
        assert log.state("jobs").count == 1
        (job,) = log.claim("jobs", "other", 9)
        assert job.deliveries == 3, "a lost lease makes room for the next job"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_first_signal_waits_for_the_jobs_that_run(number: int, code: int, tmp_path: Path) -> None:
    begun, ends = tmp_path / "begun", tmp_path / "ends"
    os.mkfifo(begun)
    os.mkfifo(ends)

    def interrupt() -> None:
        begun.read_text()
        runner.on_signal(number, None)
        ends.write_text("\n")

    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, 1, 2)
        runner = JobRunner(log, OPTIONS._replace(command=("sh", "-c", f"echo > {begun}; read line < {ends}")))
        helper = threading.Thread(target=interrupt)
        helper.start()
        assert runner.run() == code
        helper.join()
        assert [job.seq for job in log.claim("jobs", "other", 9)] == [2]


def test_the_second_signal_ends_the_commands_and_their_jobs_are_returned(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)

    def interrupt() -> None:
        begun.read_text()
        runner.on_signal(signal.SIGINT, None)
        runner.on_signal(signal.SIGINT, None)

    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, 1)
        runner = JobRunner(log, OPTIONS._replace(command=("sh", "-c", f"echo > {begun}; exec sleep 1000")))
        helper = threading.Thread(target=interrupt)
        helper.start()
        assert runner.run() == 130
        helper.join()
        assert [job.seq for job in log.claim("jobs", "other", 9)] == [1]


def test_a_tag_that_no_variable_holds_is_given_with_what_replaces_it(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, topics.NewRecord("a job", "a\0ü"))
        command = ("sh", "-c", f'printf %s "$TOPICS_TAG" > {tmp_path}/tag')
        assert JobRunner(log, OPTIONS._replace(command=command)).run() == 0
        assert log.state("jobs").count == 0
    assert (tmp_path / "tag").read_text("utf-8") == "a\N{REPLACEMENT CHARACTER}ü"


def test_a_job_whose_command_does_not_start_is_returned(tmp_path: Path) -> None:
    program = tmp_path / "job.sh"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, "a job")
        with pytest.raises(FileNotFoundError):
            JobRunner(log, OPTIONS._replace(command=(str(program),))).run()
        (job,) = log.claim("jobs", "other", 9, include_attempts=True)
        assert [attempt.reason for attempt in job.attempts] == ["its command cannot be run"]


def test_an_error_of_any_kind_ends_the_command(tmp_path: Path) -> None:
    class Broken(WatchedLog):
        def ack(self, queue: str, node: str, jobs: Iterable[topics.Job]) -> topics.AckResult:
            raise ValueError("a mistake")

    with topics.open(tmp_path / "data", **SMALL) as log:
        queue_with(log, "a job")
        broken: Any = Broken(log, lambda: None)
        with pytest.raises(ValueError, match="a mistake"):
            JobRunner(broken, OPTIONS).run()
