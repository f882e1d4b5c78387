"""`topics export` and `import`: a topic as a file of JSON lines, and back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from topics.cli.commands.beginning import SkipGaps
from topics.cli.commands.cli_call import PATIENCE_S, CliCall, on_topics
from topics.cli.exit_codes import exit_code_of, report
from topics.cli.output.printer import count_text
from topics.cli.output.progress_bar import progress_bar
from topics.errors import TopicsError


@on_topics
def export(
    call: CliCall,
    *,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    skip_gaps: SkipGaps = False,
) -> None:
    """Write a topic to stdout: a line of settings, then a line of JSON for each record.

    Exit code 3: records were lost while it was written, see stderr.
    """
    from topics.cli.commands.topic_export import export_lines  # noqa: PLC0415 - as in `import_`

    if sys.stdout.isatty():
        print("topics: the lines are for a file: topics export TOPIC > FILE", file=sys.stderr)
    out = sys.stdout.buffer
    with call.log(patience_s=PATIENCE_S) as log:
        state = log.state(topic, touch=False)
        with progress_bar(f"export {topic}", state.count) as advance:
            for line in export_lines(log, state, skip_gaps=skip_gaps):
                out.write(line)
                advance(1)


@on_topics
def import_(
    call: CliCall,
    *,
    topic: Annotated[str, typer.Argument(help="The topic; created with the settings of the file if it is missing.")],
    file: Annotated[str, typer.Argument(help="A file of `topics export`, or other JSON lines; - for stdin.")] = "-",
    form: Annotated[str, typer.Option("--as", help="What a line is: record, json or text.")] = "record",
    keep_seqs: Annotated[
        bool, typer.Option("--keep-seqs", help="Into a new topic, with the seqs of the file.")
    ] = False,
    max_missing: Annotated[
        int, typer.Option(min=0, help="With --keep-seqs: most seqs in a row that the file may lack.")
    ] = 10_000_000,
) -> None:
    """Append the records of a file: data, tags, nodes and meta."""
    from topics.cli.commands.topic_import import TopicImport  # noqa: PLC0415 - only who asks for it pays

    # a descriptor: stdin stays open for who reads it after this command
    with (
        open(0 if file == "-" else file, "rb", closefd=file != "-") as source,
        call.log(writes=True) as log,
        progress_bar(f"import {topic}", None) as advance,
    ):
        work = TopicImport(log, topic, form, keep_seqs=keep_seqs, max_missing=max_missing)
        try:
            result = work.run(source, advance)
        except (TopicsError, OSError) as error:
            if not work.stored.last_line:
                raise
            again = ": remove the topic before you import the file again" if keep_seqs else ""
            report(error, f"{work.stored.text(error)}{again}")
            raise typer.Exit(exit_code_of(error)) from None
    call.printer.said(
        {"topic": topic, **result._asdict()},
        f"{topic}: {count_text(result.records, 'record')}{' into a new topic' if result.created else ''}, "
        f"head {result.head_seq}",
    )
