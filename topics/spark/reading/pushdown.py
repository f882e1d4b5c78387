"""Turning pushed-down filters into narrower options and bounds. Spark checks each row again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from topics.spark.options import SourceOptions
from topics.spark.reading.batch import Bounds
from topics.spark.schema import SEQ, TAG, TOPIC, TS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def narrowed(options: SourceOptions, filters: Iterable[Any]) -> tuple[SourceOptions, Bounds]:
    """Return the options with the tags that filters leave, and bounds of topic, seq and time."""
    bounds = Bounds()
    for one in filters:
        column = one.attribute[0] if getattr(one, "attribute", None) and len(one.attribute) == 1 else ""
        if column in (TOPIC, TAG) and isinstance(one, EqualTo | In):
            values = frozenset([one.value] if isinstance(one, EqualTo) else one.value) - {None}
            if column == TOPIC:
                bounds = replace(bounds, topics=values if bounds.topics is None else bounds.topics & values)
            else:
                kept = values if options.tags is None else values & frozenset(options.tags)
                options = replace(options, tags=tuple(sorted(kept)))
        elif column == SEQ and type(getattr(one, "value", None)) is int:
            bounds = _seqs(bounds, one)
        elif column == TS and isinstance(getattr(one, "value", None), datetime) and one.value.tzinfo is not None:
            bounds = _times(bounds, one)
    return options, bounds


def _seqs(bounds: Bounds, one: Any) -> Bounds:
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        first = one.value + (1 if isinstance(one, GreaterThan) else 0)
        bounds = replace(bounds, first=max(first, bounds.first or 1))
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        end = one.value + (0 if isinstance(one, LessThan) else 1)
        bounds = replace(bounds, end=end if bounds.end is None else min(end, bounds.end))
    return bounds


def _times(bounds: Bounds, one: Any) -> Bounds:
    """Narrow times. Filters have microseconds; rounding to milliseconds may keep more rows."""
    floor_ms = max(0, (one.value - _EPOCH) // _MS)
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        bounds = replace(bounds, first_ms=max(floor_ms, bounds.first_ms or 0))
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        bounds = replace(bounds, end_ms=min(floor_ms + 1, bounds.end_ms or floor_ms + 1))
    return bounds
