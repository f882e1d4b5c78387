"""`topics reader`: list, make, move and remove named readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from topics.cli.commands.beginning import After, First, Last, ReadBeginning, Since, beginning_of
from topics.cli.commands.cli_call import CliCall, on_topics
from topics.cli.output.shown_state import READER_TITLES, reader_row
from topics.clock import SystemClock
from topics.errors import UsageError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Named readers, whose place in a topic the topic remembers."
)
Topic = Annotated[str, typer.Argument(help="The topic.")]
Name = Annotated[str, typer.Argument(help="The reader.")]


@app.command()
@on_topics
def ls(call: CliCall, topic: Topic) -> None:
    """List the readers of a topic, and how far they lag."""
    with call.log() as log:
        states = log.readers(topic)
    call.printer.rows(READER_TITLES, [reader_row(topic, state) for state in states], none=f"{topic} has no readers")


@app.command(name="set")
@on_topics
def put(
    call: CliCall,
    *,
    topic: Topic,
    name: Name,
    after: After = None,
    last: Last = None,
    since: Since = None,
    first: First = False,
    now: Annotated[bool, typer.Option("--now", help="Begin with the next record that comes.")] = False,
    delivery: Annotated[str | None, typer.Option(help="at-least-once or at-most-once.")] = None,
    holds: Annotated[
        bool | None, typer.Option("--holds/--no-holds", help="No cap or expiry takes its records.")
    ] = None,
    trims: Annotated[bool | None, typer.Option("--trims/--no-trims", help="What it has done is deleted.")] = None,
) -> None:
    """Make a reader, change its settings, or move it to a beginning."""
    begin = beginning_of(after, last, since, first, SystemClock())
    if now:
        if begin != ReadBeginning():
            raise UsageError("--now and another beginning are given: leave out one of them")
        begin = ReadBeginning(from_="now")
    with call.log(writes=True) as log:
        known = {state.name for state in log.readers(topic)}
        options: dict[str, Any] = {"delivery": delivery, "holds": holds, "trims": trims}
        if name not in known:
            options |= {"from_": begin.from_} if begin.from_ is not None else {"from_seq": begin.from_seq or 0}
        with log.reader(topic, name, **options) as reader:
            if name in known and begin != ReadBeginning():
                reader.seek(_cursor(log, topic, begin))
            state = reader.state()
    row = reader_row(topic, state)
    done = "changed" if name in known else "created"
    call.printer.said({**row.shown, "created": name not in known}, f"{name}: {done}, continues after {state.position}")


@app.command()
@on_topics
def rm(call: CliCall, topic: Topic, name: Name) -> None:
    """Remove a reader; its records stay."""
    with call.log(writes=True) as log:
        is_deleted = log.delete_reader(topic, name)
    call.printer.said(
        {"topic": topic, "reader": name, "deleted": is_deleted},
        f"{name}: {'removed' if is_deleted else 'was not there'}",
    )


def _cursor(log: AnyLog, topic: str, begin: ReadBeginning) -> int:
    """Return the cursor of a beginning now."""
    if begin.from_ is None:
        return begin.from_seq or 0
    if begin.from_ == "now":
        return log.state(topic, touch=False).head_seq
    page = log.page(topic, limit=1, from_=begin.from_)
    return page.records[0].seq - 1 if page.records else page.next_from_seq
