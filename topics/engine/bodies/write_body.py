"""The body of a write: `{"records": [...], ...}` scanned as a whole in one C call into rows.

The rows point into the body itself, without a copy, except if payloads hold white space, a tag or
node holds escapes, data is base64, or an object repeats a key: then they point into a cleaned copy.
Source: wire contract, sections 5.2, 5.3 and 7.5.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from topics.common.memory import page_aligned
from topics.common.tuples import make_tuple
from topics.config import Config
from topics.engine.json._records import ffi, lib
from topics.engine.json.known_keys import KnownKeys, unknown_key
from topics.engine.json.strict_json import (
    FIELDS_MAX,
    KIND_NAMES,
    SECRET,
    JsonError,
    JsonKind,
    json_error,
    key_room,
    new_dirty,
    new_key_work,
    string_value,
    too_many,
)
from topics.engine.state.producer_part import PART_NAMES, Part, lacks_a_member, parse_part
from topics.engine.values.incarnation import check_incarnation
from topics.engine.values.topic_config import CONFIG_KEYS, TopicConfig, read_config
from topics.errors import RequestError
from topics.store.format.c_interface import layout_of
from topics.store.format.rows import ROW, TIMES, Rows

_HEAD = layout_of(ffi, "tp_writer", "size", "count")
"""size, count."""
_RESULTS = layout_of(ffi, "tp_writer", "size", "violation_record")
"""size, count, marks, violation, violation_record."""
_FIELDS = struct.Struct(f"={3 * (lib.FIELD_PRODUCER + 1)}I")
"""off, len, kind of each field of a body, then of each field of a command."""
_KEY_ROOM = 4096
_CLEAN_ROOM = 65_536
_LONG_TEXT = CUT_BYTES = 65_536
"""Bytes of a text beyond which it is not decoded, or is cut."""
_ESCAPE_BYTES_MAX = 6
"""The most bytes of an escape for one byte."""
_KEY_BYTES_MIN = 4
"""The fewest bytes of a member in a payload: its quotes, the colon and a digit."""
_MARKS = lib.MARK_WHITE | lib.MARK_TAG_ESCAPED | lib.MARK_NODE_ESCAPED | lib.MARK_TWICE | lib.MARK_BASE64 | TIMES
"""Marks of rows that have to be cleaned."""

_NODE, _KEY, _CREATE, _CONFIG, _BACKPRESSURE, _INCARNATION, _PRODUCER = (
    slice(3 * field, 3 * field + 3)
    for field in (
        lib.FIELD_NODE,
        lib.FIELD_KEY,
        lib.FIELD_CREATE,
        lib.FIELD_CONFIG,
        lib.FIELD_BACKPRESSURE,
        lib.FIELD_INCARNATION,
        lib.FIELD_PRODUCER,
    )
)
"""The positions of a field's three numbers in _FIELDS."""
_COMMAND_FIELDS = (lib.FIELD_OP, lib.FIELD_TOPIC, lib.FIELD_REQUEST_ID, lib.FIELD_RETURN_SEQS)
_FIELD_NAMES = {
    lib.FIELD_RECORDS: "records",
    lib.FIELD_NODE: "node",
    lib.FIELD_KEY: "idempotency_key",
    lib.FIELD_CREATE: "create",
    lib.FIELD_CONFIG: "config",
    lib.FIELD_BACKPRESSURE: "disable_backpressure",
    lib.FIELD_INCARNATION: "incarnation",
    lib.FIELD_PRODUCER: "producer",
    lib.FIELD_DATA: "data",
    lib.FIELD_TAG: "tag",
    lib.FIELD_RECORD_NODE: "node",
    lib.FIELD_META: "meta",
    lib.FIELD_BASE64: "data_base64",
    lib.FIELD_DELAY: "delay_ms",
    lib.FIELD_TTL: "ttl_ms",
    lib.FIELD_OP: "op",
    lib.FIELD_TOPIC: "topic",
    lib.FIELD_REQUEST_ID: "request_id",
    lib.FIELD_RETURN_SEQS: "return_seqs",
}
_RECORD_NAMES = [_FIELD_NAMES[field] for field in range(lib.FIELD_DATA, lib.FIELD_TTL + 1)]
_BODY_NAMES = [_FIELD_NAMES[field] for field in range(lib.FIELD_RECORDS, lib.FIELD_PRODUCER + 1)]
_COMMAND_NAMES = [*_BODY_NAMES, *(_FIELD_NAMES[field] for field in range(lib.FIELD_OP, lib.FIELD_RETURN_SEQS + 1))]
_PART_KEYS = KnownKeys.of(*PART_NAMES)
_SHOWN_BYTES = 100
_MUST_BE = {
    lib.FIELD_RECORDS: "an array",
    lib.FIELD_NODE: "a string or null",
    lib.FIELD_KEY: "a string or null",
    lib.FIELD_CREATE: "true, false or null",
    lib.FIELD_CONFIG: "an object or null",
    lib.FIELD_BACKPRESSURE: "true or false",
    lib.FIELD_INCARNATION: "a string or null",
    lib.FIELD_PRODUCER: "an object or null",
    lib.FIELD_TAG: "a string or null",
    lib.FIELD_BASE64: "a string",
    lib.FIELD_DELAY: "a number or null",
    lib.FIELD_TTL: "a number or null",
    lib.FIELD_RECORD_NODE: "a string or null",
    lib.FIELD_BODY: "an object",
    lib.FIELD_RECORD: "an object",
    lib.FIELD_OP: "a string",
    lib.FIELD_TOPIC: "a string",
    lib.FIELD_RETURN_SEQS: "true or false",
}
"""The accepted types of fields that do not take any JSON."""
_FIELD_ERRORS = (lib.E_TYPE, lib.E_MISSING, lib.E_TWICE, lib.E_MANY, lib.E_BASE64, lib.E_BOTH, lib.E_COUNT)
"""Errors that name a field."""


class WriteBody(NamedTuple):
    """The body of one write request, which has the right shape (check 1 of 7.5).

    violation: the first limit that the body breaks (checks 3 and 4: record count, key, tag, node,
    meta, record size). The caller raises it after check 2 (may this client create the topic with
    `config`?). Only if it is None are `rows` complete.
    """

    rows: Rows
    node: bytes | None
    """The node of records without their own; UTF-8."""
    key: bytes | None
    """idempotency_key, UTF-8."""
    create: bool | None
    config: TopicConfig | None
    disable_backpressure: bool
    violation: RequestError | None
    incarnation: str | None
    """The incarnation that the topic must have; None: any."""
    producer: Part | None = None
    """The part that the write is, or is a piece of; together with a key it is a violation."""

    @property
    def piece(self) -> int:
        """The number of the piece that the write is, 0 if it is no piece (or the first one)."""
        return 0 if self.producer is None else self.producer.piece

    def lists_seqs(self, wished: bool) -> bool:
        """Return whether the answer lists seqs.

        The answer to a last piece does not: a part may have very many.
        """
        return wished and not self.piece


class CommandFields(NamedTuple):
    """The fields of a command: whether it has records, and the JSON of the others.

    An absent field is b"".
    """

    has_records: bool
    op: bytes
    topic: bytes
    request_id: bytes
    return_seqs: bytes


def new_writer(config: Config) -> Any:
    """Build a `struct tp_writer` (records.h) with the limits of these settings.

    The caller sets rows and key room.
    """
    writer = ffi.new("struct tp_writer *")
    writer.limits = (
        config.max_batch_records,
        config.max_record_bytes,
        config.max_meta_bytes,
        config.max_meta_keys,
        config.max_tag_bytes,
        config.max_node_bytes,
        FIELDS_MAX,
        config.max_delay_ms,
        config.max_ttl_ms,
    )
    writer.secret = tuple(SECRET)
    return writer


class WriteScanner:
    """Scans write bodies with the limits of one server's settings; not for two threads at once.

    Its room (a row for each record of the largest batch, and key hashes) is allocated once and used
    by every call.
    """

    def __init__(self, config: Config) -> None:
        self._limits = config
        self._writer = writer = new_writer(config)
        self._rows = ffi.new("struct tp_row[]", max(1, config.max_batch_records))
        writer.rows = self._rows
        self._delays = ffi.new("uint64_t[]", max(1, config.max_batch_records))
        writer.delays = self._delays
        self._ttls = ffi.new("uint64_t[]", max(1, config.max_batch_records))
        writer.ttls = self._ttls
        self._clean = ffi.new("unsigned char[]", _CLEAN_ROOM)
        self._spans: Any = ffi.buffer(self._rows)
        self._head: Any = ffi.buffer(ffi.addressof(writer[0], "size"), _HEAD.size)
        self._results: Any = ffi.buffer(ffi.addressof(writer[0], "size"), _RESULTS.size)
        self._clean_view: Any = ffi.buffer(self._clean)
        self._fields: Any = ffi.buffer(ffi.addressof(writer[0], "fields"), _FIELDS.size)
        self._keys_max = config.max_record_bytes // _KEY_BYTES_MIN + 1
        """The most keys that a record may have."""
        self._keys = self._take_key_room(_KEY_ROOM)

    def scan(self, body: bytes, *, command: bool = False) -> WriteBody:
        """Scan a body.

        command: it has the fields of a command, for `command_fields`, and need not have records.
        Raises: RequestError invalid_request, which names the field, such as "records[3].tag";
        JsonError also has the offset.
        """
        self._writer.command = command
        status = lib.tp_scan_write(self._writer, body, len(body))
        if status != 0:
            if status < 0:
                self._grow_or_refuse(body)
                return self.scan(body, command=command)
            return self._unusual(body)
        size, count = _HEAD.unpack(self._head)
        rows = make_tuple(Rows, (body, self._spans[: count * ROW.size], count, size))
        return make_tuple(WriteBody, (rows, None, None, None, None, False, None, None, None))

    def scan_in_turns(
        self, body: bytes | bytearray | memoryview, step_bytes: int, *, command: bool = False
    ) -> Generator[None, None, WriteBody]:
        """Scan a long body like `scan`, about `step_bytes` of it in a step.

        No other call of this scanner may come in between. command: it has the fields of a command,
        for `command_fields`, and need not have records.
        """
        text = ffi.from_buffer(body)
        self._writer.command = command
        status = yield from _in_turns(lib.tp_scan_work(self._writer, text, len(body)), step_bytes)
        if status < 0:
            self._grow_or_refuse(body)
            return (yield from self.scan_in_turns(body, step_bytes, command=command))
        marks = _RESULTS.unpack(self._results)[2]
        buffer: bytes | bytearray | memoryview = body
        if marks & _MARKS:
            room, keys, most = self._cleaning_room(body, marks)
            # The memory is untouched, so that its pages are faulted in step by step.
            memory = page_aligned(most)
            work = lib.tp_clean_work(self._writer, text, len(body), ffi.from_buffer(memory), room, keys)
            size = yield from _in_turns(work, step_bytes)
            buffer = memoryview(memory)[:size]
        return self._result_of(body, buffer)

    def check_keys(self, body: bytes | bytearray | memoryview) -> None:
        """Check that the last body scanned has only known keys (R-STRICT-2).

        Raises: RequestError invalid_request, naming the first unknown key; those of `data` and
        `meta` are free.
        """
        self._check_own_keys(body)
        fields = _FIELDS.unpack(self._fields)
        for span, name, known in ((_CONFIG, "config", CONFIG_KEYS), (_PRODUCER, "producer", _PART_KEYS)):
            if fields[span.stop - 1] == JsonKind.OBJECT:
                known.check(self._inner(body, fields[span], name), FIELDS_MAX, f"{name}.")

    def explain_missing(self, body: bytes | bytearray | memoryview) -> None:
        """Check the keys of a body whose last scan has failed, if it has missed a required key.

        Raises: RequestError, as `check_keys`: the unknown key may be that one, misspelled.
        """
        code = self._writer.error.code
        if code == lib.E_MISSING:
            self._check_own_keys(body)
        elif not code:
            producer = _FIELDS.unpack(self._fields)[_PRODUCER]
            if producer[-1] == JsonKind.OBJECT and lacks_a_member(self._inner(body, producer, "producer")):
                self.check_keys(body)

    def _check_own_keys(self, body: bytes | bytearray | memoryview) -> None:
        """Check the keys of the body and of its records, as `check_keys` does."""
        unknown = self._writer.unknown
        if unknown.kind:
            record = self._writer.unknown_record
            size = min(unknown.len, CUT_BYTES)
            text = bytes(body[unknown.off : unknown.off + size])
            # A name that is cut is a wrong one, whatever follows.
            name = string_value(text) if size == unknown.len else text[1:_SHOWN_BYTES].decode(errors="replace")
            if record != lib.NO_RECORD:
                raise unknown_key(name, _RECORD_NAMES, f"records[{record}].")
            raise unknown_key(name, _COMMAND_NAMES if self._writer.command else _BODY_NAMES)

    def command_fields(self, body: bytes | bytearray | memoryview) -> CommandFields:
        """Return the fields of the last body, scanned as a command. A long text is cut."""
        spans = self._writer.fields
        texts = []
        for field in _COMMAND_FIELDS:
            span = spans[field]
            size = min(span.len, CUT_BYTES) if span.kind else 0
            texts.append(bytes(body[span.off : span.off + size]))
        return CommandFields(bool(spans[lib.FIELD_RECORDS].kind), *texts)

    def scan_lines(self, lines: bytes, count: int) -> Rows | None:
        """Scan one row of `data` a line, each line ended by a newline.

        Returns: None if the lines are not like that, or one is not plain.
        """
        if lib.tp_scan_lines(self._writer, lines, len(lines), count) != 0:
            return None
        size, count = _HEAD.unpack(self._head)
        return make_tuple(Rows, (lines, self._spans[: count * ROW.size], count, size))

    def scan_texts(self, texts: Sequence[bytes]) -> Rows:
        """Scan one row of `data` a JSON text.

        Raises: RequestError, a text is no JSON, or over a limit.
        """
        rows = self.scan_lines(b"\n".join((*texts, b"")), len(texts))
        if rows is not None:
            return rows
        buffer = b"".join(texts)
        ends = np.cumsum(np.fromiter(map(len, texts), np.uint64, len(texts)), dtype=np.uint64)
        status = lib.tp_scan_texts(self._writer, buffer, ffi.from_buffer("uint64_t[]", ends), len(texts))
        if status == 0:
            size, count = _HEAD.unpack(self._head)
            return Rows(buffer, self._spans[: count * ROW.size], count, size)
        if status < 0:
            error = self._writer.error
            if error.code == lib.E_ROOM:
                self._grow_key_room(f"records[{error.record}]")
                return self.scan_texts(texts)
            raise json_error(error, texts[error.record], f"records[{error.record}].data")
        scanned = self._unusual(buffer)
        if scanned.violation:
            raise scanned.violation
        return scanned.rows

    # --- what is not plain ------------------------------------------------------------------------------------------
    def _unusual(self, body: bytes) -> WriteBody:
        """Build the result of a valid body with other fields, rows to clean, or over a limit."""
        marks = _RESULTS.unpack(self._results)[2]
        return self._result_of(body, self._cleaned(body, marks) if marks & _MARKS else body)

    def _result_of(self, body: bytes | bytearray | memoryview, buffer: bytes | bytearray | memoryview) -> WriteBody:
        """Build the result of the scan of `body`. The clean rows point into `buffer`."""
        size, count, marks, violation, record = _RESULTS.unpack(self._results)
        rows = Rows(buffer, self._spans[: min(count, self._limits.max_batch_records) * ROW.size], count, size)
        fields = _FIELDS.unpack(self._fields)
        limits = self._limits
        node = key = over = None
        try:
            key = self._string(body, fields[_KEY], "idempotency_key", limits.max_idempotency_key_bytes)
            node = self._string(body, fields[_NODE], "node", limits.max_node_bytes)
        except RequestError as error:
            over = error
        creates = fields[_CREATE.stop - 1]
        create = creates == JsonKind.TRUE if creates in (JsonKind.TRUE, JsonKind.FALSE) else None
        config = None
        if fields[_CONFIG.stop - 1] == JsonKind.OBJECT:
            config = read_config(self._inner(body, fields[_CONFIG], "config"), "config", "config.")
        incarnation = self._incarnation(body, fields[_INCARNATION])
        producer = None
        if fields[_PRODUCER.stop - 1] == JsonKind.OBJECT:
            producer = parse_part(self._inner(body, fields[_PRODUCER], "producer"), self._limits)
        over = self.over_limit(count, node, key) or over
        if over is None and producer is not None and key is not None:
            over = producer_and_key()
        if over is None and producer is not None and producer.is_piece and marks & TIMES:
            over = _invalid("delay_ms or ttl_ms is on a record of a piece: leave it out, or send the part in one write")
        if over is None and violation:
            over = self._violation(violation, f"records[{record}]")
        presses = fields[_BACKPRESSURE.stop - 1] == JsonKind.TRUE
        return WriteBody(rows, node, key, create, config, presses, over, incarnation, producer)

    def _cleaned(self, body: bytes, marks: int) -> bytes:
        """Clean the rows and point them to the result, which is returned.

        Payloads lose blanks and repeated keys; tags and nodes are decoded.
        """
        room, keys, most = self._cleaning_room(body, marks)
        out, view = self._clean, self._clean_view
        if most > _CLEAN_ROOM:
            out = new_dirty(most)
            view = ffi.buffer(out)
        copied: bytes = view[: lib.tp_clean_rows(self._writer, body, len(body), out, room, keys)]
        return copied

    def _cleaning_room(self, body: bytes | bytearray | memoryview, marks: int) -> tuple[Any, int, int]:
        """Allocate the work area for repeated keys.

        Returns: the area, its number of keys, and the bytes of the output.
        """
        if not marks & lib.MARK_TWICE:
            return ffi.NULL, 0, len(body)
        keys = self._keys_max  # Keys are counted only if that is quick.
        if len(body) < _KEY_BYTES_MIN * keys:
            keys = min(key_room(bytes(body)), keys)
        return new_key_work(keys), keys, 2 * len(body)

    @staticmethod
    def _string(body: bytes | bytearray | memoryview, span: tuple[int, ...], name: str, most: int) -> bytes | None:
        """Decode a string field; None if it is no string.

        Raises: RequestError, the text exceeds its limit so far that it is not decoded.
        """
        off, size, kind = span
        if kind != JsonKind.STRING:
            return None
        if size > _ESCAPE_BYTES_MAX * most + _LONG_TEXT:
            raise _invalid(f"{name} is longer than {most} bytes: shorten it")
        return string_value(bytes(body[off : off + size])).encode()

    def _incarnation(self, body: bytes | bytearray | memoryview, span: tuple[int, ...]) -> str | None:
        if span[2] != JsonKind.STRING:
            return None
        found = string_value(self._inner(body, span, "incarnation"))
        check_incarnation("incarnation", found)
        return found

    def _inner(self, body: bytes | bytearray | memoryview, span: tuple[int, ...], name: str) -> bytes:
        """Return the text of a field that is parsed in one step.

        Raises: RequestError, it is longer than `max_command_bytes`.
        """
        off, size, _kind = span
        most = self._limits.max_command_bytes
        if 0 < most < size:
            raise _invalid(f"{name} has {size} bytes: at most {most} are allowed (TOPICS_MAX_COMMAND_BYTES)")
        return bytes(body[off : off + size])

    @property
    def max_record_bytes(self) -> int:
        """Most accounted bytes of a record."""
        return self._limits.max_record_bytes

    def too_large(self, record: str) -> RequestError:
        """Build the error for a record of more bytes."""
        most = self._limits.max_record_bytes
        message = f"{record} is larger than {most} bytes (data and meta; of JSON the compact text): split it"
        return RequestError("record_too_large", message)

    def over_limit(self, count: int, node: bytes | None, key: bytes | None) -> RequestError | None:
        """Return a violation of check 3 of 7.5 or of the batch's node; None if there is none."""
        limits = self._limits
        if count == 0:
            return _invalid(f"records is empty: send 1 to {limits.max_batch_records} records")
        if count > limits.max_batch_records:
            message = f"records has {count} elements: send at most {limits.max_batch_records} in one write"
            return RequestError("batch_too_large", message)
        if key is not None and len(key) > limits.max_idempotency_key_bytes:
            return _invalid(f"idempotency_key has {len(key)} bytes: use at most {limits.max_idempotency_key_bytes}")
        if node is not None and len(node) > limits.max_node_bytes:
            return _invalid(f"node has {len(node)} bytes: use at most {limits.max_node_bytes}")
        return None

    def _violation(self, violation: int, record: str) -> RequestError:
        """Build the error for a V_* of records.h: check 4 of section 7.5."""
        limits = self._limits
        if violation == lib.V_SIZE:
            return self.too_large(record)
        causes = {
            lib.V_TAG: f"tag is longer than {limits.max_tag_bytes} bytes: shorten it",
            lib.V_NODE: f"node is longer than {limits.max_node_bytes} bytes: shorten it",
            lib.V_META_BYTES: f"meta is larger than {limits.max_meta_bytes} bytes of compact JSON: use data for more",
            lib.V_META_KEYS: f"meta has more than {limits.max_meta_keys} keys: use data for more",
            lib.V_DELAY: f"delay_ms is longer than {limits.max_delay_ms}: shorten it (TOPICS_MAX_DELAY_MS)",
            lib.V_TTL: f"ttl_ms is longer than {limits.max_ttl_ms}: shorten it (TOPICS_MAX_TTL_MS)",
        }
        return _invalid(f"{record}.{causes[violation]}")

    # --- errors -----------------------------------------------------------------------------------------------------
    def _take_key_room(self, room: int) -> Any:
        """Allocate memory for the hashes of this many keys; the scanner uses it from now on."""
        keys = ffi.new("uint64_t[]", room)
        self._writer.keys = keys
        self._writer.key_room = room
        return keys

    def _grow_key_room(self, record: str) -> None:
        """Make room for all keys of a record within its limit.

        Raises: RequestError, the record has more.
        """
        if self._writer.key_room >= self._keys_max:
            raise self._violation(lib.V_SIZE, record)
        self._keys = self._take_key_room(self._keys_max)

    def _grow_or_refuse(self, body: bytes | bytearray | memoryview) -> None:
        """Make room for an object of very many keys, or raise the error of the last scan."""
        error = self._writer.error
        if error.code == lib.E_ROOM:
            self._grow_key_room(f"records[{error.record}]")
            return
        where = "" if error.record == lib.NO_RECORD else f"records[{error.record}]"
        if error.code not in _FIELD_ERRORS:
            raise json_error(error, body, "the body", where)
        name = _FIELD_NAMES.get(error.field)
        if name is None:
            name = "the body" if error.field == lib.FIELD_BODY else where
        elif where:
            name = f"{where}.{name}"
        if error.code == lib.E_MISSING:
            fix = (
                '"records": [...]' if error.field == lib.FIELD_RECORDS else '"data" (null is allowed) or "data_base64"'
            )
            raise JsonError(f"{name} is missing: it is required, send {fix}", error.at)
        if error.code == lib.E_BASE64:
            fix = "use RFC 4648 with + and /, padding and no blanks"
            raise JsonError(f"{name} is not base64: {fix}", error.at)
        if error.code == lib.E_BOTH:
            raise JsonError(f"{where} has data and data_base64: send one of them", error.at)
        if error.code == lib.E_COUNT:
            raise JsonError(f"{name} must be an unsigned integer of 64 bits, in milliseconds", error.at)
        if error.code == lib.E_MANY:
            raise JsonError(too_many(name, FIELDS_MAX), error.at)
        if error.code == lib.E_TWICE:
            raise JsonError(f"{name} is given twice: send it once", error.at)
        raise JsonError(f"{name} must be {_MUST_BE[error.field]}, not {KIND_NAMES[error.kind]}", error.at)


def _in_turns(work: Any, step_bytes: int) -> Generator[None, None, int]:
    """Do a work of work.c, some bytes a step; return its result."""
    if work == ffi.NULL:
        raise MemoryError
    work = ffi.gc(work, lib.tp_work_free)
    while True:
        more = lib.tp_work_on(work, step_bytes)
        if more < 0:
            raise MemoryError
        if not more:
            result: int = lib.tp_work_result(work)
            return result
        yield


def _invalid(message: str) -> RequestError:
    return RequestError("invalid_request", message)


def producer_and_key() -> RequestError:
    """Build the violation of check 3 of 7.5 by a producer beside a key."""
    return _invalid("producer and an idempotency key are given: leave out the key, a part is known by its producer")
