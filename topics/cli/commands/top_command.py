"""`topics top`: topics by how much is written to them, again and again."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

import topics
from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.output.printer import Row, bytes_text, table_lines
from topics.cli.output.shown_state import queue_object

_TITLES = ("TOPIC", ">RECORDS/S", ">RECORDS", ">BYTES", ">HEAD", ">READY", ">LEASED")


@on_topics
def top(
    call: CliCall,
    prefix: Annotated[str, typer.Argument(help="Names that begin with this; all without it.")] = "",
    every: Annotated[float, typer.Option("--every", min=0.1, max=86_400, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many tables.")] = None,
) -> None:
    """Show which topics are written to, until Ctrl-C."""
    call.place.needs_server("top", "nothing is written to a stopped one")
    is_terminal = sys.stdout.isatty()
    with call.log() as log:
        before, at = log.topics(prefix), time.monotonic()
        shown = 0
        while count is None or shown < count:
            time.sleep(every)
            after, now = log.topics(prefix), time.monotonic()
            rows = rates(before, after, now - at)
            before, at = after, now
            shown += 1
            if is_terminal:
                _draw(rows)
            else:
                call.printer.rows(_TITLES, rows, none="no topics")


def rates(before: list[topics.TopicState], after: list[topics.TopicState], seconds: float) -> list[Row]:
    """Return a row for each topic, the busiest first."""
    heads = {state.name: (state.incarnation, state.head_seq) for state in before}
    rows = []
    for state in after:
        incarnation, head = heads.get(state.name, ("", 0))
        grown = state.head_seq - head if incarnation == state.incarnation else state.head_seq
        rate = grown / seconds
        queue = state.queue
        jobs = (str(queue.ready), str(queue.in_flight)) if queue is not None else ("-", "-")
        numbers = (f"{rate:.1f}", str(state.count), bytes_text(state.bytes), str(state.head_seq))
        shown = {"topic": state.name, "records_per_s": round(rate, 1), "count": state.count, "bytes": state.bytes,
                 "head_seq": state.head_seq, "queue": None if queue is None else queue_object(queue)}  # fmt: skip
        rows.append((-rate, state.name, Row(shown, (state.name, *numbers, *jobs))))
    return [row for _rate, _name, row in sorted(rows, key=lambda each: each[:2])]


def _draw(rows: list[Row]) -> None:
    """Draw the table over the one before, cut to the terminal."""
    import shutil  # noqa: PLC0415 - only a terminal has a size

    size = shutil.get_terminal_size()
    lines = [line[: size.columns] for line in table_lines(_TITLES, rows)[: size.lines - 1]]
    sys.stdout.write("\x1b[H\x1b[J" + "\n".join(lines) + "\n")
    sys.stdout.flush()
