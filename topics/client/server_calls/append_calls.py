"""Calls that append records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from topics.client import parsing
from topics.client.attempts import Repeat, ServerCall
from topics.client.exchange import ServerRequest
from topics.client.server_calls.request_parts import encode, topic_path
from topics.common.values import arguments
from topics.common.values.answers import AppendResult
from topics.common.values.record_json import (
    bytes_of,
    check_raw_texts,
    fields_of,
    first_unencodable,
    not_json,
    refuse_non_finite,
    refuse_other_names,
)
from topics.common.values.written import BYTES_TYPES, NewRecord, Producer, Values
from topics.errors import RequestError, UsageError

_PRODUCER_MAX = 2**63 - 1
_PART_MAX = 65_535


def append(
    topic: str,
    records: Values,
    *,
    key: str | None,
    node: str | None,
    create: bool | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    """Return the call that appends records. new_key: a key that no other write has."""
    body: dict[str, Any] = {"records": _records(arguments.values(records))}
    if node is not None:
        body["node"] = arguments.utf8_text("node", node)
    if create is not None:
        arguments.flag("create", create)
        body["create"] = create
    return _appending(topic, body, key, incarnation, producer, timeout, new_key)


def append_texts(
    topic: str,
    texts: Sequence[bytes],
    *,
    key: str | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    """Return the call that appends JSON texts. The server validates them, one by one."""
    arguments.texts(texts)
    if not all(isinstance(text, BYTES_TYPES) for text in texts):
        raise arguments.not_bytes(texts)
    for at, text in enumerate(texts):
        _check_text(text, f"texts[{at}]")
    body: dict[str, Any] = {"records": [{"data": msgspec.Raw(bytes(text))} for text in texts]}
    return _appending(topic, body, key, incarnation, producer, timeout, new_key)


def append_encoded(
    topic: str, payloads: Sequence[tuple[bytes, bool]], new_key: Callable[[], str]
) -> ServerCall[AppendResult]:
    """Return the call that appends payloads: bytes, and whether they are JSON."""
    rows = [{"data": msgspec.Raw(data)} if is_json else {"data_base64": data} for data, is_json in payloads]
    return _appending(topic, {"records": rows}, None, None, None, None, new_key)


def _check_text(text: bytes, name: str) -> None:
    """Check that a text is one JSON value, which else could add members to its record."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise RequestError("invalid_request", f"{name} is not one JSON value: {error}") from None


def _appending(  # noqa: PLR0917 - the options of an append
    topic: str,
    body: dict[str, Any],
    key: str | None,
    incarnation: str | None,
    producer: Producer | None,
    timeout: float | None,
    new_key: Callable[[], str],
) -> ServerCall[AppendResult]:
    arguments.optional_incarnation(incarnation)
    arguments.optional_milliseconds("timeout", timeout)
    if incarnation is not None:
        body["incarnation"] = incarnation
    if producer is not None:
        if key is not None:
            raise UsageError("key and producer are given: leave out key, a part is known by its producer")
        body["producer"] = _producer(producer)
    else:
        body["idempotency_key"] = new_key() if key is None else arguments.utf8_text("key", key)
    try:
        text = encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json("the records", error) from None
    path = topic_path(topic)
    return ServerCall(
        ServerRequest("POST", f"{path}?return_seqs=false", text),
        parsing.append_result,
        Repeat.ALWAYS if producer is not None else Repeat.BY_KEY,
        changes=True,
        window=ServerCall(ServerRequest("GET", f"{path}?touch=false"), parsing.window_ms),
        patience=timeout,
    )


def _records(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return records as the wire has them. Raises: RequestError, JSON cannot hold a value."""
    made = [value if isinstance(value, NewRecord) else NewRecord(value) for value in values]
    plain = [record._replace(data=None) if isinstance(record.data, BYTES_TYPES) else record for record in made]
    refuse_other_names(made)
    check_raw_texts(made, _check_text)
    try:
        body = encode([fields_of(record) for record in plain])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise not_json(first_unencodable(plain), error) from None
    if b"null" in body:
        refuse_non_finite(plain)
    rows = []
    for at, (record, row) in enumerate(zip(made, map(fields_of, plain), strict=True)):
        if isinstance(record.data, BYTES_TYPES):
            del row["data"]
            row["data_base64"] = bytes_of(record.data, f"records[{at}]")
        rows.append(row)
    return rows


def _producer(given: object) -> dict[str, Any]:
    if not isinstance(given, Producer):
        raise UsageError(f"producer is {arguments.shown(given)}: use topics.Producer(id, epoch, part)")
    arguments.flag("producer.last", given.last)
    return {
        "id": arguments.utf8_text("producer.id", given.id),
        "epoch": arguments.count("producer.epoch", given.epoch, _PRODUCER_MAX),
        "part": arguments.count("producer.part", given.part, _PART_MAX),
        "piece": arguments.count("producer.piece", given.piece, _PART_MAX),
        "last": given.last,
        "attempt": arguments.utf8_text("producer.attempt", given.attempt),
    }
