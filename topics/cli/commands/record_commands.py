"""`topics put`, `get`, `tail`, `delete`: records in, records out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

import topics
from topics.cli.commands.beginning import After, First, Last, ReadBeginning, Since, SkipGaps, beginning_of
from topics.cli.commands.cli_call import PATIENCE_S, CliCall, milliseconds, on_records, on_topics
from topics.cli.commands.gaps import at_gap
from topics.cli.commands.input_records import INPUTS, InputForm, StoredLines, batches_of
from topics.cli.exit_codes import REFUSED, exit_code_of, report
from topics.cli.output.printer import count_text
from topics.cli.output.progress_bar import progress_bar
from topics.clock import SystemClock
from topics.common.reader_tail import ReaderTail, tail_reader
from topics.errors import TopicsError, UsageError

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

Topic = Annotated[str, typer.Argument(help="The topic.")]
Node = Annotated[str, typer.Option("--skip-node", help="Leave out records that this node wrote.")]
OnlyNode = Annotated[str, typer.Option("--only-node", help="Only records that this node wrote.")]
Tag = Annotated[str | None, typer.Option("--tag", help="Only records with this tag; a* is any that begins with a.")]


@on_topics
def put(
    call: CliCall,
    *,
    topic: Topic,
    data: Annotated[
        list[str] | None, typer.Argument(help="A record each; else the lines of stdin are records.")
    ] = None,
    form: Annotated[str, typer.Option("--as", help=f"What a record is: {', '.join(INPUTS)}.")] = "json",
    whole: Annotated[bool, typer.Option("--whole", help="All of stdin is one record.")] = False,
    tag: Annotated[str | None, typer.Option(help="Tag of the records.")] = None,
    node: Annotated[str | None, typer.Option(help="Node of the records.")] = None,
    meta: Annotated[str | None, typer.Option(help="Meta of the records, as JSON.")] = None,
    delay_s: Annotated[float, typer.Option("--delay", min=0, help="Seconds until a queue's job can be claimed.")] = 0,
    ttl_s: Annotated[float, typer.Option("--ttl", min=0, help="Seconds after which the records expire.")] = 0,
    once: Annotated[
        str | None, typer.Option("--once", help="Idempotency key: sent again, nothing is appended.")
    ] = None,
    no_create: Annotated[bool, typer.Option("--no-create", help="Refuse if the topic does not exist.")] = False,
) -> None:
    """Append records: arguments, or the lines of stdin as they come."""
    if data and whole:
        raise UsageError("--whole is of stdin: leave it out with records as arguments")
    if once is not None and not (data or whole):
        raise UsageError("--once is for one append: give the records as arguments, or add --whole")
    records = InputForm.of(form, tag, node, meta, milliseconds("--delay", delay_s), milliseconds("--ttl", ttl_s))
    stored = StoredLines()
    with call.log(writes=True) as log, progress_bar(f"put {topic}", None) as advance:
        try:
            for batch in batches_of(records, data or [], sys.stdin.buffer, whole=whole):
                result = log.append(topic, batch.records, key=once, create=False if no_create else None)
                stored = stored.and_then(batch.last_line, result)
                advance(len(batch.records))
        except TopicsError as error:
            if not stored.last_line:
                raise
            report(error, stored.text(error))
            raise typer.Exit(exit_code_of(error)) from None
    _line, first, last, appended = stored
    span = f", seqs {first} to {last}" if first < last else f", seq {first}" if first else ""
    is_repeated = bool(first) and not appended
    call.printer.said(
        {"topic": topic, "first_seq": first, "last_seq": last, "count": appended, "repeated": is_repeated},
        f"{topic}: {'was there already' if is_repeated else count_text(appended, 'record')}{span}",
    )


@on_records
def get(
    call: CliCall,
    *,
    topic: Topic,
    seqs: Annotated[
        list[int] | None, typer.Argument(min=1, help="These records; else those from a beginning on.")
    ] = None,
    after: After = None,
    last: Last = None,
    since: Since = None,
    first: First = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many records.")] = None,
    node: Node = "",
    only_node: OnlyNode = "",
    tag: Tag = None,
    skip_gaps: SkipGaps = False,
) -> None:
    """Print records up to the head: all of them, or those of the seqs given.

    Exit code 3: records were lost there, see stderr.
    """
    beginning = beginning_of(after, last, since, first, SystemClock())
    if seqs and beginning != ReadBeginning():
        raise UsageError(f"seq {seqs[0]} and a beginning are given: leave out one of them")
    if seqs and (node or only_node or tag is not None):
        raise UsageError(f"seq {seqs[0]} and a filter are given: leave out one of them")
    with call.log() as log:
        if seqs:
            _print_seqs(call, log, topic, seqs, at_gap(skip=skip_gaps, takes_after=False))
            return
        records = log.read(
            topic,
            beginning.from_seq,
            limit=limit,
            node=node,
            only_node=only_node,
            match=tag,
            from_=beginning.from_,
            on_gap=at_gap(skip=skip_gaps),
        )
        for record in records:
            call.printer.record(topic, record)


@on_records
def tail(
    call: CliCall,
    *,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics to follow; 'orders*': all that begin so.")
    ] = None,
    prefixes: Annotated[
        list[str] | None, typer.Option("--prefix", help="Follow all topics that begin so, those made later too.")
    ] = None,
    after: After = None,
    last: Last = None,
    since: Since = None,
    first: First = False,
    reader: Annotated[str, typer.Option(help="Continue where this named reader is, and move it.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many records.")] = None,
    node: Node = "",
    only_node: OnlyNode = "",
    tag: Tag = None,
    skip_gaps: SkipGaps = False,
) -> None:
    """Print records as they come, from now on unless a beginning is given.

    Exit code 3: records were lost on the way, see stderr.
    """
    beginning = beginning_of(after, last, since, first, SystemClock())
    limit = None if limit is None else min(limit, sys.maxsize)
    names, prefixes = _names_and_prefixes(names or [], prefixes or [])
    if reader and (beginning != ReadBeginning() or len(names) != 1 or prefixes or node or only_node or tag is not None):
        raise UsageError("--reader has its own place in one topic: leave out other topics, beginnings and filters")
    is_one = len(names) == 1 and not prefixes
    on_gap = at_gap(skip=skip_gaps, takes_after=is_one and not reader)
    with call.log(writes=bool(reader), patience_s=PATIENCE_S) as log:
        if reader:
            tail_of = tail_reader(
                lambda: log.reader(names[0], reader),
                ReaderTail(lambda: log.closed, on_gap, limit=limit, ends=call.place.is_directory, commits=True),
            )
            records: Iterator[tuple[str, topics.Record]] = ((names[0], record) for record in tail_of)
        elif is_one:
            tail_of = log.tail(
                names[0],
                beginning.from_seq,
                node=node,
                only_node=only_node,
                match=tag,
                from_=beginning.from_,
                on_gap=on_gap,
            )
            records = islice(((names[0], record) for record in tail_of), limit)
        else:
            begin = beginning.from_ or beginning.from_seq
            tail_of_many = log.tail_many(
                dict.fromkeys(names, begin),
                prefixes=dict.fromkeys(prefixes, begin),
                node=node,
                only_node=only_node,
                match=tag,
                on_gap=on_gap,
                on_left_out=_say_left_out,
            )
            records = islice(tail_of_many, limit)
        for topic, record in records:
            call.printer.record(topic, record, named=not is_one)
            call.printer.flush()


def _names_and_prefixes(names: list[str], prefixes: list[str]) -> tuple[list[str], list[str]]:
    """Return the topics to follow by name and by prefix: `orders*` is the prefix `orders`."""
    prefixes = [*prefixes, *(name[:-1] for name in names if name.endswith("*"))]
    names = [name for name in names if not name.endswith("*")]
    for name in (*names, *prefixes):
        if "*" in name:
            raise UsageError(f"{name!r} has a * inside: only one at the end means all topics that begin so")
    if not names and not prefixes:
        raise UsageError("no topic is given: name one, or use --prefix '' for all")
    return names, prefixes


def _say_left_out(name: str) -> None:
    print(
        f"topics: {name} is not followed, and perhaps others: there are too many; use longer prefixes", file=sys.stderr
    )


@on_topics
def delete(
    call: CliCall,
    *,
    topic: Topic,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Records below this seq.")] = None,
    tag: Annotated[str | None, typer.Option(help="Records with this tag; a* is any that begins with a.")] = None,
) -> None:
    """Delete records for good: below a seq, with a tag, or both."""
    if before is None and tag is None:
        raise UsageError("nothing says which records to delete: use --before SEQ, --tag TAG, or `topics rm` for all")
    with call.log(writes=True) as log:
        result = log.delete(topic, before_seq=before, match=tag)
    call.printer.said(
        {"topic": topic, **result._asdict()},
        f"{topic}: {count_text(result.deleted, 'record')} deleted, {count_text(result.count, 'record')} left",
    )


def _print_seqs(
    call: CliCall, log: AnyLog, topic: str, seqs: list[int], on_gap: Callable[[topics.GapError], None]
) -> None:
    missing = []
    for seq in seqs:
        try:
            record = log.get(topic, seq)
        except topics.GapError as error:
            on_gap(error)
            continue
        if record is None:
            missing.append(str(seq))
        else:
            call.printer.record(topic, record)
    if missing:
        call.printer.flush()
        print(f"topics: {topic} has no record {', '.join(missing)}: deleted, or not written yet", file=sys.stderr)
        raise typer.Exit(REFUSED)
