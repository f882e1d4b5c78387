"""Lost records on the way of a read: a sentence on stderr, and an exit code of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

import topics
from topics.cli.exit_codes import GAP


def at_gap(*, skip: bool, takes_after: bool = True) -> Callable[[topics.GapError], None]:
    """Return a read's `on_gap`: it reports the gap, and ends the command unless it skips.

    takes_after: whether the command may be given --after, to read on after the gap.
    """

    def report_gap(error: topics.GapError) -> None:
        gap = error.tombstone
        if gap.is_recreated:
            what = f"{error.topic} was created again, and has other records now"
        elif gap.gap_from == gap.gap_to:
            what = f"record {gap.gap_from} of {error.topic} was lost ({gap.reason})"
        else:
            what = f"records {gap.gap_from} to {gap.gap_to} of {error.topic} were lost ({gap.reason})"
        remedy = f"read on with --after {error.resume_from}, or add --skip-gaps" if takes_after else "add --skip-gaps"
        remedy = "reading on" if skip else remedy
        sys.stdout.flush()
        print(f"topics: {what}: {remedy}", file=sys.stderr, flush=True)
        if not skip:
            raise typer.Exit(GAP)

    return report_gap
