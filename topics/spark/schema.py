"""Columns of the source and the sink, in the types of Spark and of Arrow.

Spark accepts batches of exactly these Arrow types: no large strings, no dictionaries, times in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from topics.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC, SEQ, TS, TAG, NODE, DATA, META, LOSS = "topic", "seq", "ts", "tag", "node", "data", "meta", "loss"
BYTES = "bytes"
"""Data of records of bytes; null for JSON, as `data` is for bytes."""
COLUMNS = (TOPIC, SEQ, TS, TAG, NODE, DATA, META, LOSS, BYTES)
SINK_COLUMNS = (DATA, BYTES, TAG, NODE, META, TOPIC)
SOURCE_ONLY = (SEQ, TS, LOSS)
"""Columns of a read that a write ignores, because the server fills them."""

_DDL = {
    TOPIC: "string",
    SEQ: "bigint",
    TS: "timestamp",
    TAG: "string",
    NODE: "string",
    DATA: "string",
    META: "string",
    BYTES: "binary",
    LOSS: "struct<from_seq: bigint, to_seq: bigint, reason: string>",
}


def ddl(columns: Iterable[str]) -> str:
    """Return the schema with these columns, in Spark's DDL."""
    return ", ".join(f"{name} {_DDL[name]}" for name in columns)


def check_given(fields: Sequence[tuple[str, str]], columns: Sequence[str]) -> None:
    """Check the schema that `.schema()` gave to a read.

    fields: (name, Spark type) of each column. Raises: OptionError.
    """
    remedy = "leave .schema() out, and choose columns by the option columns"
    names = [name for name, _ in fields]
    if names != list(columns):
        raise OptionError(
            f"the schema given has the columns {', '.join(names)}, and this read has {', '.join(columns)}: {remedy}"
        )
    for name, kind in fields:
        own = _DDL[name].replace(": ", ":").replace(", ", ",")
        if kind != own:
            raise OptionError(f"the schema given has {name} as {kind}, and this read has it as {own}: {remedy}")


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema that Spark expects for `ddl(columns)`."""
    import pyarrow as pa  # noqa: PLC0415 - the driver's options need no pyarrow

    loss = pa.struct([("from_seq", pa.int64()), ("to_seq", pa.int64()), ("reason", pa.string())])
    types: dict[str, Any] = {SEQ: pa.int64(), TS: pa.timestamp("us", tz="UTC"), LOSS: loss, BYTES: pa.binary()}
    return pa.schema([(name, types.get(name, pa.string())) for name in columns])


def loss_batch(columns: Sequence[str], losses: Sequence[tuple[str, int, int, str]]) -> pa.RecordBatch:
    """Return a batch with a row for each loss; all columns but topic and loss are null.

    losses: (topic, first seq, last seq, reason) each.
    """
    import pyarrow as pa  # noqa: PLC0415

    schema = arrow_schema(columns)
    filled: dict[str, list[Any]] = {
        TOPIC: [loss[0] for loss in losses],
        LOSS: [{"from_seq": loss[1], "to_seq": loss[2], "reason": loss[3]} for loss in losses],
    }
    blank = [None] * len(losses)
    return pa.RecordBatch.from_arrays(
        [pa.array(filled.get(name, blank), type=schema.field(name).type) for name in columns], schema=schema
    )


def check_sink_columns(fields: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Check the columns of a write.

    fields: (name, Spark type) of each column; topic: the option. Raises: OptionError.
    """
    names = [name for name, _ in fields]
    for name, kind in fields:
        if name == BYTES and kind != "binary":
            raise OptionError(f"column bytes is {kind}, and the sink takes binary: use cast(... as binary), or drop it")
        if name in SINK_COLUMNS and name != BYTES and not (kind == "string" or kind.startswith(("varchar", "char"))):
            hint = "to_json(struct(...))" if name in (DATA, META) else "cast(... as string)"
            raise OptionError(f"column {name} is {kind}, and the sink takes a string: use {hint}")
    twice = sorted({name for name in names if name in SINK_COLUMNS and names.count(name) > 1})
    if twice:
        raise OptionError(f"column {twice[0]} appears twice: select it once")
    if DATA not in names and BYTES not in names:
        raise OptionError(
            f"column data is missing (there are {', '.join(names)}): name the JSON column data, or a binary one bytes"
        )
    if TOPIC not in names and topic is None:
        raise OptionError("there is neither an option nor a column topic: set one, to choose the topic of each row")
    unknown = [name for name in names if name not in (*SINK_COLUMNS, *SOURCE_ONLY)]
    if unknown:
        raise OptionError(
            f"column {unknown[0]} is not one of the sink's ({', '.join(SINK_COLUMNS)}): put it into data, or drop it"
        )
