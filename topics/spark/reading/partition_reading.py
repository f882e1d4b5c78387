"""Reading of a partition from a server or from files: Arrow batches of records and of losses."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from topics.errors import CorruptError, StorageError
from topics.spark import schema
from topics.spark.client import SparkClient
from topics.spark.errors import BytesRowError, DataLossError, ServerError
from topics.spark.options import FAIL, ROWS, SEQ_MAX, SourceOptions
from topics.spark.reading.diff_page import Columns, DiffPage
from topics.spark.reading.offsets import DELETED, RECREATED
from topics.spark.reading.pages import decoder
from topics.spark.reading.planning import SMALL_RANGE, Range, TopicLoss, Work

if TYPE_CHECKING:
    from topics.files import Directory, Location, Piece

FLUSH_ROWS = 16_384
FLUSH_BYTES = 8 << 20
"""Pages up to this size are gathered and yielded once the topic's incarnation was compared."""


class WorkReader:
    """Reads partitions on an executor, for one task. It connects and opens files when needed."""

    def __init__(self, options: SourceOptions, client: SparkClient | None = None) -> None:
        self._options = options
        self._client_here = client
        self._directory_here: Directory | None = None
        self._decode = decoder()

    def read(self, work: Work) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of the options.

        Raises: DataLossError, BytesRowError, ServerError, StorageError.
        """
        yield from self._reported(work.losses)
        if work.pieces:
            yield from self._from_pieces(work.pieces)
        for part in work.ranges:
            yield from self._range(part)

    # -- losses ------------------------------------------------------------------------------------

    def _reported(self, losses: Sequence[TopicLoss]) -> Iterator[pa.RecordBatch]:
        if not losses:
            return
        if self._options.on_loss == FAIL:
            raise DataLossError(*losses[0])
        if self._options.on_loss == ROWS:
            yield schema.loss_batch(self._options.columns, losses)

    # -- ranges ------------------------------------------------------------------------------------

    def _range(self, part: Range) -> Iterator[pa.RecordBatch]:
        options = self._options
        if options.path is None or (options.connection is not None and part.count < SMALL_RANGE):
            yield from self._from_server(part)
            return
        topic = self._directory().topics.get(part.topic)
        covered = part.first - 1
        if topic is not None and topic.incarnation == part.of:
            covered = max(covered, min(part.end - 1, topic.head))
            yield from self._reported([TopicLoss(*loss) for loss in topic.losses(part.first, covered)])
            yield from self._from_pieces(topic.plan(part.first, covered))
        if covered == part.end - 1:
            return
        if options.connection is not None:
            yield from self._from_server(replace(part, first=covered + 1))
        elif topic is None or topic.incarnation != part.of:
            yield from self._reported([_whole(part, RECREATED if topic else DELETED)])
        else:
            raise StorageError(
                f"the directory {options.path} on {socket.gethostname()} has topic {part.topic} up to seq "
                f"{topic.head}, and the plan ends at {part.end - 1}: mount one directory on all executors, or set url"
            )

    # -- files -------------------------------------------------------------------------------------

    def _from_pieces(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        for _, of_topic in groupby(pieces, key=attrgetter("topic")):
            yield from self._from_pieces_of_one(list(of_topic))

    def _from_pieces_of_one(self, pieces: list[Piece]) -> Iterator[pa.RecordBatch]:
        from topics.files import BytesRecordError, Loss, TopicGoneError, read_pieces  # noqa: PLC0415 - reads by url need no files

        options = self._options
        wanted = [name for name in options.columns if name != schema.LOSS] or [schema.SEQ]
        goal = schema.arrow_schema(options.columns)
        items = read_pieces(self._location(), pieces, columns=wanted, verify=options.verify, tags=options.tags)
        with _host_named():
            try:
                for item in items:
                    if isinstance(item, Loss):
                        yield from self._reported([TopicLoss(*item)])
                    else:
                        yield _in_schema(item, goal)
            except BytesRecordError as error:
                raise BytesRowError(**error.detail or {}) from None
            except TopicGoneError:
                yield from self._reported([TopicLoss(pieces[0].topic, pieces[0].from_seq, pieces[-1].to_seq, DELETED)])

    def _location(self) -> Location:
        from topics.files import Location  # noqa: PLC0415

        assert self._options.path is not None
        return Location(self._options.path, self._options.cold_path or "")

    def _directory(self) -> Directory:
        if self._directory_here is None:
            from topics.files import open_directory  # noqa: PLC0415

            with _host_named():
                self._directory_here = open_directory(*self._location())
        return self._directory_here

    # -- server ------------------------------------------------------------------------------------

    def _client(self) -> SparkClient:
        if self._client_here is None:
            assert self._options.connection is not None
            self._client_here = SparkClient(self._options.connection)
        return self._client_here

    def _from_server(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, some pages at a time.

        After each group of pages the topic's incarnation is compared with that of the plan. An
        incarnation is never used again, so if both are equal, all pages before are of it, too.
        """
        cursor = yielded = part.first - 1
        while cursor < part.end - 1:
            pages: list[DiffPage] = []
            rows = size = 0
            while cursor < part.end - 1 and rows < FLUSH_ROWS and size < FLUSH_BYTES:
                page = self._page(part, cursor)
                if page is None or (page.next_from_seq <= cursor and page.lost is None):
                    break
                pages.append(page)
                rows += len(page.columns.seqs)
                size += page.columns.bytes()
                if page.next_from_seq <= cursor:
                    break
                cursor = page.next_from_seq
            state = self._client().state(part.topic)
            if state is None or state.of != part.of or not pages:
                # If the incarnation is the planned one, its head is below the planned end.
                yield from self._reported([_whole(replace(part, first=yielded + 1), RECREATED if state else DELETED)])
                return
            for page in pages:
                if page.lost is not None and page.lost.gap_from < part.end:
                    low, high = max(page.lost.gap_from, part.first), min(page.lost.gap_to, part.end - 1)
                    yield from self._reported([TopicLoss(part.topic, low, high, page.lost.reason)])
            batch = self._batch(part, [page.columns for page in pages])
            if batch.num_rows:
                yield batch
            yielded = cursor

    def _page(self, part: Range, cursor: int) -> DiffPage | None:
        options = self._options
        limit = min(options.page_size, part.end - 1 - cursor)
        with_tags = schema.TAG in options.columns or options.tags is not None
        try:
            body = self._client().page(part.topic, cursor, limit, tags=with_tags, meta=schema.META in options.columns)
        except ServerError as error:
            if error.code == "topic_not_found":
                return None
            raise
        return self._decode(body)

    def _batch(self, part: Range, pages: Sequence[Columns]) -> pa.RecordBatch:
        tags = [tag for page in pages for tag in page.tags]
        seqs = [seq for page in pages for seq in page.seqs]
        if seqs and seqs[-1] > SEQ_MAX:
            raise DataLossError(part.topic, seqs[-1], seqs[-1], "seq_above_2^63")
        made = {
            schema.TOPIC: lambda: pa.array([part.topic] * len(seqs), pa.string()),
            schema.SEQ: lambda: pa.array(seqs, pa.int64()),
            schema.TS: lambda: _times([ms for page in pages for ms in page.times_ms]),
            schema.TAG: lambda: pa.array(tags, pa.string()),
            schema.NODE: lambda: pa.array([node for page in pages for node in page.nodes], pa.string()),
            schema.DATA: lambda: pa.array([data or None for page in pages for data in page.data], pa.string()),
            schema.BYTES: lambda: pa.array([_decoded(text) for page in pages for text in page.base64], pa.binary()),
            schema.META: lambda: pa.array([meta or None for page in pages for meta in page.meta], pa.string()),
        }
        goal = schema.arrow_schema(self._options.columns)
        arrays = [
            made[name]() if name in made else pa.nulls(len(seqs), goal.field(name).type)
            for name in self._options.columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=goal)
        keep = None
        if seqs and (seqs[-1] >= part.end or seqs[0] < part.first):
            keep = pa.array([part.first <= seq < part.end for seq in seqs])
        if self._options.tags is not None:
            tagged = pc.is_in(pa.array(tags, pa.string()), value_set=pa.array(self._options.tags, pa.string()))
            keep = tagged if keep is None else pc.and_(keep, tagged)
        if keep is not None:
            batch = batch.filter(keep)
        if schema.DATA in goal.names and schema.BYTES not in goal.names and batch.column(schema.DATA).null_count:
            kept = pa.array(seqs, pa.int64()) if keep is None else pa.array(seqs, pa.int64()).filter(keep)
            raise BytesRowError(part.topic, kept[pc.index(pc.is_null(batch.column(schema.DATA)), True).as_py()].as_py())
        return batch


def _whole(part: Range, reason: str) -> TopicLoss:
    return TopicLoss(part.topic, part.first, part.end - 1, reason)


@contextmanager
def _host_named() -> Iterator[None]:
    """Put the name of this machine into StorageErrors, because a job runs on many machines."""
    try:
        yield
    except CorruptError as error:
        raise CorruptError(f"on {socket.gethostname()}: {error}", error.detail) from None
    except StorageError as error:
        raise type(error)(f"on {socket.gethostname()}: {error}") from None


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _times(times_ms: list[int]) -> pa.Array:
    return pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp("us", tz="UTC"))


def _in_schema(batch: pa.RecordBatch, goal: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of a schema; columns that it lacks are null."""
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in goal
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=goal)
