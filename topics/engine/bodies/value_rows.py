"""Rows from Python values, for appends of the embedded API.

Limits and strictness are those of the wire, so that every stored record can be read over HTTP, too.
JSON texts go through `WriteScanner.scan_texts` instead. Bytes are stored as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from topics.common.values.record_json import (
    bytes_of,
    check_raw_texts,
    fields_of,
    first_unencodable,
    not_json,
    refuse_non_finite,
    refuse_other_names,
)
from topics.common.values.written import BYTES_TYPES, NewRecord
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.json.strict_json import check
from topics.errors import RequestError
from topics.store.format.rows import BUFFER_MAX, BYTES, TIME_BYTES, Rows, delays_in, rows_of_bytes, ttls_in

_encoder = msgspec.json.Encoder()
_NULL_BYTES = 4
_JSON_TYPES = {dict, list, str, int, float, bool, type(None)}
"""Types of values that are certain to be JSON or refused."""


def plain_rows(values: list[Any], most: int, record_max: int) -> Rows | None:
    """Return the rows of records of bytes within the limits; None for others, see `rows_from`."""
    if not 0 < len(values) <= most:
        return None
    try:
        rows = rows_of_bytes(values, record_max)
    except OverflowError:
        return None
    return rows if type(rows) is Rows else None


def rows_from(values: Sequence[Any], scanner: WriteScanner) -> Rows:
    """Return the rows of values, bytes and NewRecords. Raises: as `rows_from_values`."""
    if isinstance(values[0], BYTES_TYPES):
        rows = rows_from_bytes(values, scanner)
        if rows is not None:
            return rows
    types = set(map(type, values))
    if types <= _JSON_TYPES:
        return rows_from_data(values, scanner)
    if NewRecord in types or any(issubclass(each, BYTES_TYPES) for each in types):
        made = [value if isinstance(value, NewRecord) else NewRecord(value) for value in values]
        return rows_from_values(made, scanner)
    return rows_from_data(values, scanner)


def rows_from_data(values: Sequence[Any], scanner: WriteScanner) -> Rows:
    """Encode and scan JSON values without labels, in one call each; as `rows_from_values`."""
    try:
        lines = _encoder.encode_lines(values)
    except (TypeError, ValueError, OverflowError, RecursionError):
        lines = b""
    if b"null" not in lines:  # A null may stand for NaN or an infinity.
        rows = scanner.scan_lines(lines, len(values))
        if rows is not None:
            return rows
    return rows_from_values([NewRecord(value) for value in values], scanner)


def rows_from_bytes(payloads: Sequence[bytes], scanner: WriteScanner) -> Rows | None:
    """Return records whose data is these bytes, without a scan; None as `rows_of_bytes`.

    Raises: RequestError, over a limit.
    """
    try:
        rows = rows_of_bytes(payloads, scanner.max_record_bytes)
    except OverflowError:
        raise _too_many_bytes(sum(map(len, payloads))) from None
    if isinstance(rows, int):
        raise scanner.too_large(f"records[{rows}]")
    return rows


def _too_many_bytes(size: int) -> RequestError:
    return RequestError("batch_too_large", f"the records have {size} bytes in all: append less than 4 GiB in one call")


def rows_from_values(records: Sequence[NewRecord], scanner: WriteScanner) -> Rows:
    """Encode all records together and scan the result like the body of a write.

    Data of bytes is null in that body, and is put into the rows afterwards.

    Raises: RequestError, over a limit, or a value that JSON cannot hold (NaN, infinity, a number
    beyond a double ...).
    """
    payloads = [
        (at, bytes_of(each.data, f"records[{at}]"))
        for at, each in enumerate(records)
        if isinstance(each.data, BYTES_TYPES)
    ]
    if payloads:
        records = list(records)
        for at, _payload in payloads:
            records[at] = records[at]._replace(data=None)
    refuse_other_names(records)
    check_raw_texts(records, check)
    try:
        body = msgspec.json.encode({"records": [fields_of(record) for record in records]})
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json(first_unencodable(records), error) from None
    if b"null" in body:
        refuse_non_finite(records)  # msgspec writes NaN and the infinities as null.
    scanned = scanner.scan(body)
    if scanned.violation:
        raise scanned.violation
    if scanned.rows.count != len(records):
        raise RequestError("invalid_request", "a msgspec.Raw among the records does not hold exactly one JSON value")
    return _with_payloads(scanned.rows, payloads, scanner) if payloads else scanned.rows


def _with_payloads(rows: Rows, payloads: list[tuple[int, bytes]], scanner: WriteScanner) -> Rows:
    """Return rows with bytes in the place of null as the data of some. Raises: RequestError."""
    columns = rows.columns().copy()
    size, end = rows.size, len(rows.buffer)
    times: dict[int, bytes] = {}
    for kind in (ttls_in(rows), delays_in(rows)):  # a delay comes after a ttl
        for at, time_ms in zip(*kind, strict=True):
            times[at] = times.get(at, b"") + time_ms.to_bytes(TIME_BYTES, "little")
    all_bytes = end + sum([len(payload) + len(times.get(at, b"")) for at, payload in payloads])
    if all_bytes > BUFFER_MAX:
        raise _too_many_bytes(all_bytes)
    for at, payload in payloads:
        own = int(columns["size"][at]) - _NULL_BYTES + len(payload)
        if own > scanner.max_record_bytes:
            raise scanner.too_large(f"records[{at}]")
        size += own - int(columns["size"][at])
        end += len(times.get(at, b""))
        columns["data_off"][at], columns["data_len"][at], columns["size"][at] = end, len(payload), own
        columns["flags"][at] |= BYTES
        end += len(payload)
    parts = [part for at, payload in payloads for part in (times.get(at, b""), payload)]
    return Rows(b"".join((rows.buffer, *parts)), columns.tobytes(), rows.count, size)
