"""Planning of a batch read: the seqs of each topic, split into partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topics.spark.client import PlannedTopic, SparkClient
from topics.spark.errors import DataLossError, OptionError, ServerError
from topics.spark.options import EARLIEST, FAIL, ROWS, SourceOptions
from topics.spark.reading.places import ends, starts, subscribed
from topics.spark.reading.planning import Range, TopicLoss, Work, partitions_of, piece_partitions, without
from topics.spark.reading.view import FilesView, ServerView, View

if TYPE_CHECKING:
    from topics.files import Directory, Piece


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of a read that filters leave. None: no bound; ends are exclusive, times in ms."""

    topics: frozenset[str] | None = None
    first: int | None = None
    end: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None


def plan_batch(options: SourceOptions, bounds: Bounds | None = None, client: SparkClient | None = None) -> list[Work]:
    """Return the partitions of a batch read.

    Raises: OptionError, DataLossError, ServerError, StorageError.
    """
    if client is None and options.connection is not None:
        client = SparkClient(options.connection)
    directory = _directory(options, client)
    view: View = FilesView(directory) if client is None and directory is not None else ServerView(_needed(client))
    states = subscribed(view, options)
    ranges = _ranges(view, options, states)
    if bounds is not None:
        ranges = list(_bounded(view, ranges, bounds))
    losses: list[TopicLoss] = []
    pieces: list[Piece] = []
    by_server: list[Range] = []
    for part in ranges:
        covered = part.first
        if directory is not None:
            covered = _covered(directory, part)
            found, here = _from_files(directory, replace(part, end=covered))
            pieces += found
            losses += here
        if covered < part.end:
            begin, gone = ServerView(_needed(client)).gone(part.topic, part.of, covered, part.end)
            losses += [TopicLoss(part.topic, lost.from_seq, lost.to_seq, lost.reason) for lost in gone]
            by_server += [replace(part, first=low, end=high) for low, high in without(begin, part.end, gone)]
    if losses and options.on_loss == FAIL:
        raise DataLossError(*losses[0])
    return _partitions(options, pieces, by_server, losses if options.on_loss == ROWS else [])


def _partitions(
    options: SourceOptions, pieces: list[Piece], ranges: list[Range], losses: list[TopicLoss]
) -> list[Work]:
    works: list[Work] = []
    if pieces or not ranges:
        works = piece_partitions(
            pieces,
            losses,
            target_bytes=options.target_bytes,
            min_partitions=options.min_partitions,
            max_records=options.max_records,
        )
        losses = []
    left = max(1, options.min_partitions - len(works))
    return works + partitions_of(ranges, losses, min_partitions=left, max_records=options.max_records)


def _directory(options: SourceOptions, client: SparkClient | None) -> Directory | None:
    """Open the directory, after a checkpoint of the server if there is one; None without a path.

    Raises: ServerError, OptionError, StorageError.
    """
    if options.path is None:
        return None
    from topics.files import open_directory  # noqa: PLC0415 - reads by url need no files

    if client is None:
        return open_directory(options.path, options.cold_path)
    try:
        snapshot = client.checkpoint()
    except ServerError as error:
        if error.status != 403:
            raise
        raise ServerError(
            "url and path together ask the server for a checkpoint, which needs a key with the scope admin: "
            "give such a key, or only one of url and path",
            error.status,
            error.code,
        ) from None
    directory = open_directory(options.path, options.cold_path)
    if directory.snapshot < snapshot:
        raise OptionError(
            f"the server at url took snapshot {snapshot}, and the directory at path has {directory.snapshot} as its "
            "newest: set path to the directory of that server"
        )
    return directory


def _needed(client: SparkClient | None) -> SparkClient:
    assert client is not None, "options have url or path"
    return client


def _ranges(view: View, options: SourceOptions, states: Mapping[str, PlannedTopic]) -> list[Range]:
    first, end = starts(view, options, states), ends(view, options, states)
    for name in states:
        chosen = options.starting_ms is not None or options.starting.by_topic.get(name, EARLIEST) != EARLIEST
        if chosen and first[name] > end[name]:
            raise OptionError(
                f"the read of topic {name!r} would start at seq {first[name]} and end before seq {end[name]}: "
                "give an end that is not below the start"
            )
    return [Range(name, state.of, first[name], end[name]) for name, state in states.items() if first[name] < end[name]]


def _bounded(view: View, ranges: Iterable[Range], bounds: Bounds) -> Iterable[Range]:
    """Cut ranges to the bounds. Losses outside of them do not fail the read."""
    for part in ranges:
        if bounds.topics is not None and part.topic not in bounds.topics:
            continue
        first, end = max(part.first, bounds.first or 1), part.end if bounds.end is None else min(part.end, bounds.end)
        if bounds.first_ms is not None:
            first = max(first, view.first_seq_at(part.topic, bounds.first_ms))
        if bounds.end_ms is not None:
            end = min(end, view.first_seq_at(part.topic, bounds.end_ms))
        if first < end:
            yield replace(part, first=first, end=end)


def _covered(directory: Directory, part: Range) -> int:
    """Return the first seq of a range that the files do not account for, or its end."""
    topic = directory.topics.get(part.topic)
    if topic is None or topic.incarnation != part.of:
        return part.first  # created after the snapshot
    return max(part.first, min(part.end, topic.head + 1))


def _from_files(directory: Directory, part: Range) -> tuple[list[Piece], list[TopicLoss]]:
    if part.first >= part.end:
        return [], []
    topic = directory.topics[part.topic]
    return topic.plan(part.first, part.end - 1), [TopicLoss(*loss) for loss in topic.losses(part.first, part.end - 1)]
