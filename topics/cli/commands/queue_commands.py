"""`topics queue`: look at queues, and claim, complete and return jobs."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Annotated, Any

import typer

import topics
from topics.cli.commands.cli_call import PATIENCE_S, CliCall, milliseconds, on_records, on_topics
from topics.cli.exit_codes import REFUSED
from topics.cli.output.printer import count_text
from topics.cli.output.shown_state import FAILED_TITLES, QUEUE_TITLES, failed_queue_row, queue_row
from topics.common.values import arguments
from topics.errors import UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Queues, whose jobs workers claim and complete.")

Queue = Annotated[str, typer.Argument(help="The queue.")]
Node = Annotated[str, typer.Option("--node", help="Name of the worker, that of its claims.")]
Held = Annotated[
    list[str], typer.Argument(metavar="SEQ[:LEASE]...", help="Jobs; with the lease of the claim, only under that one.")
]
_LEASES_END = "leases are held by a process that runs"


@app.command()
@on_topics
def ls(
    call: CliCall,
    prefix: Annotated[str, typer.Argument(help="Names that begin with this.")] = "",
    attempts: Annotated[bool, typer.Option("--attempts", help="With the jobs that failed last, and why.")] = False,
) -> None:
    """List queues: jobs that are ready, leased, or died."""
    with call.log() as log:
        states = [state for state in log.topics(prefix) if state.queue is not None]
        if attempts:
            states = [log.state(state.name, touch=False, include_attempts=True) for state in states]
    titles, row = (FAILED_TITLES, failed_queue_row) if attempts else (QUEUE_TITLES, queue_row)
    call.printer.rows(titles, map(row, states), none="no queues")


@app.command()
@on_topics
def claim(
    call: CliCall,
    *,
    queue: Queue,
    node: Node = "",
    most: Annotated[int, typer.Option("--max", "-n", min=1, help="At most so many jobs.")] = 1,
    lease_s: Annotated[
        float | None, typer.Option("--lease", min=0.1, help="Seconds of the lease; else the queue's.")
    ] = None,
    wait_s: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for a job.")] = 0,
    attempts: Annotated[bool, typer.Option("--attempts", help="With how earlier leases ended.")] = False,
) -> None:
    """Lease jobs, and print them with their leases."""
    call.place.needs_server("queue claim", _LEASES_END)
    with call.log(writes=True) as log:
        jobs = log.claim(
            queue,
            node_of(node),
            most,
            lease_ms=_lease_ms(lease_s),
            wait_ms=milliseconds("--wait", wait_s),
            include_attempts=attempts,
        )
    call.printer.jobs(jobs, attempts=attempts)


@app.command()
@on_topics
def ack(call: CliCall, queue: Queue, held: Held, node: Node = "") -> None:
    """Complete jobs. Exit code 1: some are not leased to this node."""
    call.place.needs_server("queue ack", _LEASES_END)
    with call.log(writes=True) as log:
        result = log.ack(queue, node_of(node), jobs_of(held))
    _ended(call, queue, "acked", result)


@app.command()
@on_topics
def nack(
    call: CliCall,
    *,
    queue: Queue,
    held: Held,
    node: Node = "",
    delay_s: Annotated[float, typer.Option("--delay", min=0, help="Seconds until it can be claimed again.")] = 0,
    reason: Annotated[str | None, typer.Option(help="Why; kept with the job, and in its dead letter.")] = None,
) -> None:
    """Return jobs to the queue. Exit code 1: some are not leased to this node."""
    call.place.needs_server("queue nack", _LEASES_END)
    with call.log(writes=True) as log:
        result = log.nack(queue, node_of(node), jobs_of(held), delay_ms=milliseconds("--delay", delay_s), reason=reason)
    _ended(call, queue, "returned", result)


@app.command()
@on_topics
def work(
    call: CliCall,
    *,
    queue: Queue,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command of a job.")],
    node: Node = "",
    side_by_side: Annotated[int, typer.Option("--jobs", "-j", min=1, help="So many jobs at a time.")] = 1,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many jobs.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="End once no job is ready.")] = False,
    delay_s: Annotated[float, typer.Option("--delay", min=0, help="Seconds until a failed job is ready again.")] = 1,
    lease_s: Annotated[
        float | None, typer.Option("--lease", min=0.1, help="Seconds of a lease; else the queue's.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line on stderr for each job.")] = False,
) -> None:
    """Run a command for each job.

    Exit code 0 completes the job; another returns it, and is the reason, with the last line on
    stderr.

    The command gets the data on stdin (a string or bytes as they are, others as a line of JSON),
    and TOPICS_QUEUE, TOPICS_SEQ, TOPICS_TAG and TOPICS_DELIVERIES as variables. Its lease is
    extended meanwhile. The first Ctrl-C or SIGTERM waits for the jobs that run, the second ends
    them.
    """
    from topics.cli.commands.job_runner import JobRunner, RunnerOptions  # noqa: PLC0415 - starts threads and programs

    if shutil.which(command[0]) is None:  # else each try would be a delivery of a job
        raise UsageError(f"{command[0]!r} is no program that is here: name one after --, as in -- ./job.sh")
    delay_ms, lease_ms = milliseconds("--delay", delay_s), _lease_ms(lease_s)
    options = RunnerOptions(queue, command, node_of(node), side_by_side, limit, drain, delay_ms, lease_ms, quiet)
    with call.log(writes=True, patience_s=PATIENCE_S) as log:
        code = JobRunner(log, options).run()
    raise typer.Exit(code)


@app.command()
@on_records
def dead(
    call: CliCall,
    *,
    queue: Queue,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
) -> None:
    """List dead letters: jobs that were delivered too often."""
    with call.log() as log:
        topic = log.state(queue, touch=False).config.dead_letter or ""
        call.printer.dead_letters(topic, log.dead(queue, limit=limit))


@app.command()
@on_topics
def redrive(
    call: CliCall,
    *,
    queue: Queue,
    seqs: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQ]...", min=1, help="Dead letters, as listed by `queue dead`.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that there are now.")] = False,
) -> None:
    """Make new jobs of dead letters, and delete these.

    Exit code 1: some seqs are no dead letters.
    """
    if bool(seqs) == everything:
        given = "seqs and --all are given: leave out one of them" if seqs else "give the seqs of `queue dead`, or --all"
        raise UsageError(f"which dead letters of {queue} to redrive is not clear: {given}")
    with call.log(writes=True, patience_s=PATIENCE_S) as log:
        result = log.redrive(queue, seqs or None)
    skipped = f"; no dead letters of {queue}: {', '.join(map(str, result.skipped))}" if result.skipped else ""
    are = "is a job" if result.redriven == 1 else "are jobs"
    call.printer.said(
        {"queue": queue, "redriven": result.redriven, "skipped": result.skipped},
        f"{queue}: {count_text(result.redriven, 'dead letter')} {are} again{skipped}",
    )
    if result.skipped:
        raise typer.Exit(REFUSED)


def node_of(node: str) -> str:
    """Return the name of a worker: the one given, or one of this user on this machine."""
    return node or f"{socket.gethostname()}-{os.getuid()}"


def jobs_of(held: list[str]) -> list[Any]:
    """Return jobs for ack and nack, from SEQ or SEQ:LEASE. Raises: UsageError."""
    jobs: list[Any] = []
    for text in held:
        seq, colon, lease = text.partition(":")
        if not arguments.is_decimal(seq) or (colon and not lease):
            raise UsageError(
                f"job {arguments.shown(text)} is no seq: use 17, or 17:lease_2a with the lease of its claim"
            )
        number = int(seq)
        jobs.append(
            topics.Job(seq=number, ts=0, lease_id=lease, deadline=0, deliveries=0, data=None) if lease else number
        )
    return jobs


def _lease_ms(seconds: float | None) -> int | None:
    return None if seconds is None else milliseconds("--lease", seconds)


def _ended(call: CliCall, queue: str, done: str, result: topics.AckResult) -> None:
    skipped = f"; not leased to this node: {', '.join(map(str, result.skipped))}" if result.skipped else ""
    shown = {
        "queue": queue,
        done: result.done,
        "skipped": result.skipped,
        "ready": result.ready,
        "in_flight": result.in_flight,
    }
    call.printer.said(shown, f"{queue}: {count_text(result.done, 'job')} {done}{skipped}")
    if result.skipped:
        raise typer.Exit(REFUSED)
