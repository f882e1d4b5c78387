"""A topic as lines: its settings, then its records as they are on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import topics
from topics.cli.commands.gaps import at_gap
from topics.cli.output.record_text import json_bytes, record_object
from topics.cli.output.shown_state import config_object

if TYPE_CHECKING:
    from topics.common.any_log import AnyLog

FORMAT = "topics_export"
"""The member of the first line by which an import knows it; its value is the version."""


def export_lines(log: AnyLog, state: topics.TopicState, *, skip_gaps: bool) -> Iterator[bytes]:
    """Yield the lines of a topic as it is at `state`; later records are left out.

    The first line has no record. A gap at the beginning is none: the file has what is there.
    """
    head: dict[str, Any] = {FORMAT: 1, "topic": state.name, "head_seq": state.head_seq, "count": state.count}
    yield json_bytes({**head, "config": config_object(state.config)}) + b"\n"
    for record in log.read(state.name, from_="first", on_gap=at_gap(skip=skip_gaps, takes_after=False)):
        if record.seq > state.head_seq:
            return
        yield json_bytes(record_object(record)) + b"\n"
