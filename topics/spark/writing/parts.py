"""Parts of the sink: the rows of one partition for one topic, appended at most once.

A part is one atomic append, which the server knows by (topic, producer, epoch, part). A part that
is too large for a request is sent in pieces, which stay invisible until the last one commits them
all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from topics.spark.client import SparkClient
from topics.spark.errors import OptionError, RowError, ServerError
from topics.spark.options import SinkOptions
from topics.spark.schema import BYTES, SINK_COLUMNS, TOPIC
from topics.spark.writing.bodies import records_of

PIECE_BYTES = 8 << 20
PIECE_RECORDS = 10_000
CHUNK_BYTES = 2 << 20
"""Rows are encoded in chunks of this size.

The last chunk is held back until the part ends, so that the last piece has records.
"""
KEPT_BYTES = 64 << 20
"""Bytes held for all topics of a partition; above it, the topic with the most sends a piece."""
PART_MAX = 65_535
WEAK = ("memory", "ephemeral")


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of a part. All attempts have equal values, except `attempt`."""

    id: str
    epoch: int
    part: int
    attempt: str
    """Unique to each attempt, so that the server does not mix pieces of two attempts."""


@dataclass(slots=True)
class SentTotals:
    """Counts of one partition. deduped: parts that an earlier attempt had appended."""

    rows: int = 0
    parts: int = 0
    deduped: int = 0


@dataclass(slots=True)
class _EncodedRows:
    """Some encoded rows of a part."""

    text: bytes
    """Records as JSON, separated by commas."""
    rows: pa.Array
    """The index of each record's row in the partition, for messages."""


@dataclass(slots=True)
class _Part:
    """The rows of a part that were not sent yet. sent: number of pieces sent."""

    chunks: list[_EncodedRows] = field(default_factory=list)
    sent: int = 0

    def bytes(self) -> int:
        return sum(len(chunk.text) for chunk in self.chunks)

    def records(self) -> int:
        return sum(len(chunk.rows) for chunk in self.chunks)


class PartWriter:
    """Turns the batches of one partition into parts and sends them; `finish` commits them.

    is_stream: refuse topics that a crash may empty, unless the options allow them.
    Raises: OptionError for a partition above PART_MAX.
    """

    def __init__(self, client: SparkClient, options: SinkOptions, producer: PartName, *, is_stream: bool) -> None:
        if producer.part > PART_MAX:
            raise OptionError(f"partition {producer.part} is above {PART_MAX}: write with fewer partitions (coalesce)")
        self._client = client
        self._options = options
        self._producer = producer
        self._checks_class = is_stream and not options.allow_weak
        self._parts: dict[str, _Part] = {}
        self._totals = SentTotals()
        self._rows_seen = 0

    def add(self, names: Sequence[str], batch: pa.RecordBatch) -> None:
        """Take the rows of a batch, and send pieces that are full.

        names: those of the columns. Raises: RowError, ServerError, OptionError.
        """
        columns = {name: _typed(name, batch.column(at)) for at, name in enumerate(names) if name in SINK_COLUMNS}
        rows = pa.array(range(self._rows_seen, self._rows_seen + batch.num_rows), pa.int64())
        self._rows_seen += batch.num_rows
        if not batch.num_rows:
            return
        if self._options.topic is not None:
            self._add_to(self._options.topic, columns, rows)
            return
        topics = columns[TOPIC]
        if topics.null_count:
            row = rows[pc.index(pc.is_null(topics), True).as_py()].as_py()
            raise RowError(f"{self._where(row)}: topic is null; give it a name, or set the option topic")
        for topic in topics.unique().to_pylist():
            if not topic:
                row = rows[pc.index(topics, "").as_py()].as_py()
                raise RowError(f"{self._where(row)}: topic is empty; give it a name, or set the option topic")
            chosen = pc.equal(topics, topic)
            self._add_to(topic, {name: column.filter(chosen) for name, column in columns.items()}, rows.filter(chosen))

    def finish(self) -> SentTotals:
        """Send the rest as the last piece of each part, and return the counts.

        Raises: RowError, ServerError.
        """
        for topic, part in self._parts.items():
            answer = self._send(topic, part, len(part.chunks), last=True)
            self._totals.parts += 1
            self._totals.deduped += bool(answer["deduped"])
        self._totals.rows = self._rows_seen
        return self._totals

    def _add_to(self, topic: str, columns: Mapping[str, pa.Array], rows: pa.Array) -> None:
        part = self._parts.get(topic)
        if part is None:
            self._check_class(topic)
            part = self._parts[topic] = _Part()
        records = records_of(columns, lambda at: f"{self._where(rows[at].as_py())} (topic {topic!r})")
        for first, end in _cuts(records):
            chunk = _EncodedRows(_joined(records.slice(first, end - first)), rows.slice(first, end - first))
            fits = part.bytes() + len(chunk.text) <= PIECE_BYTES and part.records() + len(chunk.rows) <= PIECE_RECORDS
            if part.chunks and not fits:
                self._send(topic, part, len(part.chunks), last=False)
            part.chunks.append(chunk)
        while sum(one.bytes() for one in self._parts.values()) > KEPT_BYTES:
            name, largest = max(self._parts.items(), key=lambda item: item[1].bytes() if len(item[1].chunks) > 1 else 0)
            if len(largest.chunks) < 2:
                break
            self._send(name, largest, len(largest.chunks) - 1, last=False)

    def _send(self, topic: str, part: _Part, count: int, *, last: bool) -> dict[str, Any]:
        chunks, part.chunks = part.chunks[:count], part.chunks[count:]
        producer: dict[str, Any] = {
            "id": self._producer.id,
            "epoch": self._producer.epoch,
            "part": self._producer.part,
        }
        if part.sent or not last:
            producer |= {"piece": part.sent, "last": last, "attempt": self._producer.attempt}
        head: dict[str, Any] = {"producer": producer}
        if self._options.create is not None:
            head["create"] = self._options.create
        body = json.dumps(head).encode()[:-1] + b',"records":[' + b",".join(chunk.text for chunk in chunks) + b"]}"
        part.sent += 1
        try:
            return self._client.write(topic, body)
        except ServerError as error:
            raise self._explained(topic, error, chunks) from None

    def _check_class(self, topic: str) -> None:
        """For streams, refuse a topic that a crash may empty.

        An absent topic passes, because it will be created with class disk.
        """
        if not self._checks_class:
            return
        try:
            state = self._client.state(topic)
        except ServerError as error:
            if error.status != 403:
                raise
            raise ServerError(
                f"the key may not read the state of topic {topic!r}, and a stream asks for its class: "
                "give a key that may read and write, or set allowWeak=true",
                error.status,
                error.code,
            ) from None
        if state is not None and state.durability in WEAK:
            raise OptionError(
                f"topic {topic!r} is of class {state.durability}, which a crash may empty, so a stream into it is not "
                "exactly once: make it disk or fsync, or set allowWeak=true"
            )

    def _where(self, row: int) -> str:
        return f"row {row} of partition {self._producer.part}"

    def _explained(self, topic: str, error: ServerError, chunks: list[_EncodedRows]) -> Exception:
        """Return the error for a refusal: it names the row, or the change to make to the query."""
        found = re.search(r"records\[(\d+)\]", error.said)
        if found is not None and error.status == 400:
            rows = pa.concat_arrays([chunk.rows for chunk in chunks])
            at = int(found.group(1))
            place = self._where(rows[at].as_py()) if at < len(rows) else "a row"
            return RowError(f"{place} (topic {topic!r}) was refused, {error.code}: {error.said}")
        who = f"producer {self._producer.id!r}, epoch {self._producer.epoch}, part {self._producer.part}"
        remedy = {
            "producer_diverged": "these rows differ from those written before as the same part: make the query "
            "give the same rows when a batch is repeated, or begin with another checkpointLocation or epoch",
            "producer_stale": "newer epochs were written since, and this one is forgotten: begin with another "
            "checkpointLocation, or give a higher epoch",
            "producer_incomplete": "the server dropped pieces that were sent before: run the write again",
            "part_too_large": "write with more partitions (repartition), lower maxOffsetsPerTrigger, or raise "
            "TOPICS_MAX_PART_RECORDS and TOPICS_MAX_PART_BYTES of the server",
            "topic_full": "make room in the topic, or raise its caps",
            "topic_not_found": "create the topic first, or leave create=false out",
        }.get(error.code)
        if remedy is None:
            return error
        return ServerError(
            f"topic {topic!r} refused {who} ({error.status} {error.code}): {remedy}",
            error.status,
            error.code,
            error.detail,
            error.said,
        )


def _typed(name: str, column: pa.Array) -> pa.Array:
    kind = pa.binary() if name == BYTES else pa.string()
    return column if column.type == kind else column.cast(kind)


def _cuts(records: pa.Array) -> list[tuple[int, int]]:
    """Return slices of at most CHUNK_BYTES and PIECE_RECORDS, as (first, end).

    A record larger than CHUNK_BYTES has a slice of its own.
    """
    sizes = pc.binary_length(records)
    total = pc.sum(sizes).as_py() or 0
    if total <= CHUNK_BYTES and len(records) <= PIECE_RECORDS:
        return [(0, len(records))]
    cuts = []
    first = filled = 0
    for at, size in enumerate(sizes.to_pylist()):
        if at > first and (filled + size > CHUNK_BYTES or at - first >= PIECE_RECORDS):
            cuts.append((first, at))
            first, filled = at, 0
        filled += size
    return [*cuts, (first, len(records))]


def _joined(records: pa.Array) -> bytes:
    """Return the records as one text, with commas between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(records)], pa.int32()), records)
    joined: bytes = pc.binary_join(whole, ",")[0].as_buffer().to_pybytes()
    return joined
