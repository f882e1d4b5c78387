"""The compiled module of records.c, as mypy sees it.

A class stands for a pointer to its struct, `Any` for cffi's other C data.
"""

from typing import Any, TypeVar

class tp_error: ...
class tp_group: ...
class tp_next_batch: ...
class tp_publish: ...
class tp_request: ...
class tp_span: ...
class tp_value: ...
class tp_work: ...
class tp_writer: ...

class _Lib:
    KIND_NULL: int
    KIND_FALSE: int
    KIND_TRUE: int
    KIND_NUMBER: int
    KIND_STRING: int
    KIND_ARRAY: int
    KIND_OBJECT: int
    DEPTH_MAX: int
    NO_RECORD: int
    E_END: int
    E_SYNTAX: int
    E_UTF8: int
    E_CONTROL: int
    E_ESCAPE: int
    E_SURROGATE: int
    E_NUMBER: int
    E_RANGE: int
    E_DEPTH: int
    E_LITERAL: int
    E_TRAILING: int
    E_BOM: int
    E_LONG: int
    E_ROOM: int
    E_TYPE: int
    E_MISSING: int
    E_TWICE: int
    E_MANY: int
    E_BASE64: int
    E_BOTH: int
    E_COUNT: int
    FIELD_RECORDS: int
    FIELD_NODE: int
    FIELD_KEY: int
    FIELD_CREATE: int
    FIELD_CONFIG: int
    FIELD_BACKPRESSURE: int
    FIELD_INCARNATION: int
    FIELD_PRODUCER: int
    FIELD_DATA: int
    FIELD_TAG: int
    FIELD_RECORD_NODE: int
    FIELD_META: int
    FIELD_BASE64: int
    FIELD_DELAY: int
    FIELD_TTL: int
    FIELD_BODY: int
    FIELD_RECORD: int
    FIELD_OP: int
    FIELD_TOPIC: int
    FIELD_REQUEST_ID: int
    FIELD_RETURN_SEQS: int
    MARK_WHITE: int
    MARK_TAG_ESCAPED: int
    MARK_NODE_ESCAPED: int
    MARK_TWICE: int
    MARK_BASE64: int
    MARK_BASE64_ESCAPED: int
    V_TAG: int
    V_NODE: int
    V_META_BYTES: int
    V_META_KEYS: int
    V_SIZE: int
    V_DELAY: int
    V_TTL: int
    KEY_WORK_BYTES: int
    KEY_WORK_LEAST: int
    TP_KEYED: int
    def tp_scan_write(self, writer: tp_writer, body: bytes, length: int) -> int: ...
    def tp_scan_writes(
        self,
        writer: tp_writer,
        buffer: Any,
        requests: tp_request,
        groups: tp_group,
        group_count: int,
        room: int,
        counts: Any,
        upto: Any,
        scratch: Any,
        scratch_bytes: int,
    ) -> None: ...
    def tp_scan_single_write(
        self, writer: tp_writer, scratch: Any, scratch_bytes: int, buffer: Any, request: tp_request
    ) -> int: ...
    def tp_write_next(
        self,
        w: tp_writer,
        scratch: Any,
        scratch_bytes: int,
        request: tp_request,
        frame_next: int,
        next: tp_next_batch,
        placed: Any,
        placed_rows: int,
        buffer: Any,
        buffer_bytes: int,
        now_ms: int,
    ) -> int: ...
    def tp_publish_next(
        self,
        w: tp_writer,
        scratch: Any,
        scratch_bytes: int,
        publish: tp_publish,
        frame_next: int,
        next: tp_next_batch,
        placed: Any,
        placed_rows: int,
        frame: Any,
        frame_bytes: int,
        now_ms: int,
    ) -> int: ...
    def tp_scan_lines(self, writer: tp_writer, text: bytes, size: int, count: int) -> int: ...
    def tp_scan_texts(self, writer: tp_writer, text: bytes, ends: Any, count: int) -> int: ...
    def tp_clean_rows(self, writer: tp_writer, body: Any, length: int, out: Any, room: Any, keys: int) -> int: ...
    def tp_scan_work(self, writer: tp_writer, body: Any, length: int) -> tp_work: ...
    def tp_clean_work(self, writer: tp_writer, body: Any, length: int, out: Any, room: Any, keys: int) -> tp_work: ...
    def tp_work_on(self, work: tp_work, size: int) -> int: ...
    def tp_work_result(self, work: tp_work) -> int: ...
    def tp_work_free(self, work: tp_work) -> None: ...
    def tp_scan_value(
        self, out: tp_value, text: bytes, length: int, open_containers: int, keys: Any, key_room: int, secret: Any
    ) -> int: ...
    def tp_members(
        self, text: bytes, length: int, kind: int, spans: tp_span, room: int, most: int, error: tp_error
    ) -> int: ...
    def tp_compact(self, text: bytes, length: int, out: Any) -> int: ...
    def tp_keep_last(self, text: Any, length: int, work: Any, keys: int, secret: Any) -> int: ...

_T = TypeVar("_T")

class _FFI:
    NULL: Any
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def new_allocator(self, *, should_clear_after_alloc: bool) -> Any: ...
    def cast(self, declaration: str, data: Any) -> Any: ...
    def gc(self, data: _T, destructor: Any, size: int = ...) -> _T: ...
    def memmove(self, to: Any, data: Any, size: int) -> None: ...
    def buffer(self, data: Any, size: int = ...) -> Any: ...
    def from_buffer(self, declaration: Any, data: Any = ...) -> Any: ...
    def addressof(self, data: Any, *fields: str) -> Any: ...
    def offsetof(self, declaration: str, *fields: str | int) -> int: ...
    def sizeof(self, declaration: Any) -> int: ...

lib: _Lib
ffi: _FFI
