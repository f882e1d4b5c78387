"""JSON texts as a typed Arrow column: the fields of a schema, and null for a row that does not fit.

A row fits if it is a JSON object and each of its fields in the schema is null or of the field's
type: integers have no point and no exponent and are in range, doubles are finite, timestamps are
ISO 8601 (UTC without an offset), dates are YYYY-MM-DD. Other members are ignored.

pyarrow's JSON reader parses a batch in one step, and refuses it as a whole. A refused batch is
tried in smaller ones; the rows of a small batch that is refused, too, are converted one by one by
`fit`, which defines the rule.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from topics.pipelines.values.ddl import Array, Scalar, Struct, Type, arrow_type

ONE_BY_ONE = 1024
"""Rows of a refused batch that are tried together again before they are converted one by one."""

_INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?\Z", re.A
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.A)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EARLIEST = (datetime.datetime(1, 1, 1, tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(microseconds=1)
_LATEST = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(microseconds=1)
"""The latest time (and above, the earliest) that Python, Spark and Delta can all show.

Both are in microseconds since 1970.
"""
_FLOAT = struct.Struct("<f")
_DAY = 86_400_000_000


class _UnfitError(ValueError):
    """A row that does not fit the schema."""


class Typed(NamedTuple):
    """A struct column with a row for each text. misfits: rows that are null as they do not fit."""

    values: pa.StructArray
    misfits: int


def typed(texts: pa.StringArray, schema: Struct) -> Typed:
    """Return the fields of `schema` in JSON texts as one struct column.

    texts: each a valid JSON value, or null, for which the struct is null and no misfit.
    """
    if texts.null_count:
        found = typed(texts.drop_null(), schema)
        valid = np.asarray(texts.is_valid())
        return Typed(found.values.take(pa.array(np.cumsum(valid) - 1, mask=~valid)), found.misfits)
    target = arrow_type(schema)
    objects = _begin_as_objects(texts)
    if objects.all():
        values = _of_objects(texts, schema, target)
    else:  # A `null` at the top level crashes Arrow's reader, so the reader gets only objects.
        both = [_of_objects(texts.filter(pa.array(objects)), schema, target)]
        both.append(_one_by_one(texts.filter(pa.array(~objects)), schema, target))
        order = np.argsort(np.concatenate([np.flatnonzero(objects), np.flatnonzero(~objects)]))
        values = pa.concat_arrays(both).take(pa.array(order))
    return Typed(values, values.null_count)


def _begin_as_objects(texts: pa.StringArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each row whether its first byte is "{"."""
    if not len(texts):
        return np.ones(0, bool)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts)]
    octets = np.frombuffer(texts.buffers()[2], np.uint8)
    return np.equal(octets[offsets], ord("{"))


def _of_objects(texts: pa.StringArray, schema: Struct, target: pa.StructType) -> pa.StructArray:
    parts: list[pa.StructArray] = []
    if len(texts):
        _convert(texts, pa.schema(list(_read_as(schema))), schema, target, parts)
    return pa.concat_arrays(parts) if parts else pa.array([], target)


def _read_as(kind: Type) -> pa.DataType:
    """Return the type requested from Arrow's reader.

    It is text for dates, which the reader would take as numbers.
    """
    if isinstance(kind, Struct):
        return pa.struct([pa.field(field.name, _read_as(field.type)) for field in kind.fields])
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", _read_as(kind.item)))
    return pa.string() if kind.name == "date" else arrow_type(kind)


def _convert(
    texts: pa.StringArray,
    reading: pa.Schema,
    schema: Struct,
    target: pa.StructType,
    parts: list[pa.StructArray],
) -> None:
    """Append the columns of objects to `parts`, in order."""
    count = len(texts)
    values = _in_one_go(texts, reading, target)
    if values is not None:
        parts.append(values)
    elif count <= ONE_BY_ONE:
        parts.append(_one_by_one(texts, schema, target))
    else:
        for start in range(0, count, ONE_BY_ONE):
            _convert(texts.slice(start, ONE_BY_ONE), reading, schema, target, parts)


def _one_by_one(texts: pa.StringArray, schema: Struct, target: pa.StructType) -> pa.StructArray:
    return pa.array([fit(text, schema) for text in texts.to_pylist()], target)


def _in_one_go(texts: pa.StringArray, reading: pa.Schema, target: pa.StructType) -> pa.StructArray | None:
    """Return the column if every row fits; None if Arrow's reader refuses one."""
    lines = _joined(texts)
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            parse_options=pj.ParseOptions(explicit_schema=reading, unexpected_field_behavior="ignore"),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        )
        if table.num_rows != len(texts):
            return None
        columns = [_whole(table.column(field.name)) for field in reading]
        values = pa.StructArray.from_arrays(columns, fields=list(reading))
        values = values if values.type == target else values.cast(target)
    except pa.ArrowInvalid:
        return None
    return values if _in_range(values) else None


def _joined(texts: pa.StringArray) -> pa.Buffer:
    """Return the texts with a line feed after each."""
    count = len(texts)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + count + 1]
    octets = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return pa.py_buffer(np.insert(octets, offsets[1:] - offsets[0], ord("\n")))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _in_range(values: pa.Array) -> bool:
    """Return whether all floats are finite and all times are in the years 1 to 9999.

    Arrow's reader accepts values outside of these ranges.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return all(_in_range(values.field(number)) for number in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _in_range(values.values)
    if pa.types.is_floating(kind):
        return not np.isinf(values.to_numpy(zero_copy_only=False)).any()
    if pa.types.is_timestamp(kind):
        micros = values.drop_null().cast(pa.int64()).to_numpy()
        return not ((micros < _EARLIEST) | (micros > _LATEST)).any()
    if pa.types.is_date(kind):
        return not (values.drop_null().cast(pa.int32()).to_numpy() < _EARLIEST // _DAY).any()
    return True


def fit(text: str, schema: Struct) -> dict[str, Any] | None:
    """Return the fields of one JSON text as Python values, or None if it does not fit."""
    try:
        value = json.loads(text)
        return _fields(value, schema) if isinstance(value, dict) else None
    except (ValueError, OverflowError, RecursionError):
        return None


def _fields(value: dict[str, Any], schema: Struct) -> dict[str, Any]:
    return {field.name: _fitted(value.get(field.name), field.type) for field in schema.fields}


def _fitted(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct):
        if not isinstance(value, dict):
            raise _UnfitError
        return _fields(value, kind)
    if isinstance(kind, Array):
        if not isinstance(value, list):
            raise _UnfitError
        return [_fitted(item, kind.item) for item in value]
    return _scalar(value, kind)


def _scalar(value: Any, kind: Scalar) -> Any:
    name = kind.name
    if name == "boolean":
        if isinstance(value, bool):
            return value
    elif name in _INTEGERS:
        if type(value) is int and -(1 << _INTEGERS[name]) <= value < 1 << _INTEGERS[name]:
            return value
    elif name in ("float", "double"):
        if type(value) in (int, float):
            # `float` raises OverflowError for an integer beyond all doubles, and so does `pack`.
            number = float(value)
            number = _FLOAT.unpack(_FLOAT.pack(number))[0] if name == "float" else number
            if math.isfinite(number):
                return number
    elif isinstance(value, str):
        value.encode()  # raises UnicodeEncodeError, a ValueError, for an unpaired surrogate
        if name == "string":
            return value
        return _date(value) if name == "date" else timestamp_us(value)
    raise _UnfitError


def _date(text: str) -> datetime.date:
    if not _DATE.match(text):
        raise _UnfitError
    return datetime.date.fromisoformat(text)


def timestamp_us(text: str) -> int:
    """Return the microseconds since 1970 of an ISO 8601 text, UTC if it has no offset.

    Raises: ValueError.
    """
    match = _TIMESTAMP.match(text)
    if match is None:
        raise _UnfitError
    day, hour, minute, second, fraction, zone = match.groups()
    moment = datetime.datetime.combine(
        datetime.date.fromisoformat(day),
        datetime.time(int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0"))),
        datetime.UTC,
    )
    micros = (moment - _EPOCH) // datetime.timedelta(microseconds=1)
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
        if hours > 23 or minutes > 59:
            raise _UnfitError
        micros -= (1 if zone[0] == "+" else -1) * (hours * 60 + minutes) * 60_000_000
    if not _EARLIEST <= micros <= _LATEST:
        raise _UnfitError
    return micros
