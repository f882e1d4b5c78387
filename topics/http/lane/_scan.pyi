"""The compiled module of scan.c, as mypy sees it.

A class stands for a pointer to its struct, `Any` for cffi's other C data.
"""

from typing import Any, TypeVar

class tp_group: ...
class tp_request: ...
class tp_scanner: ...

class _Lib:
    TP_MISS_PART: int
    TP_MISS_LINE: int
    TP_MISS_TOPIC: int
    TP_MISS_HOST: int
    TP_MISS_FIELD: int
    TP_MISS_MIXED: int
    TP_MISS_ROOM: int
    TP_MISS_BUSY: int
    TP_MISS_BODY: int
    TP_MISS_LONE: int
    TP_WITHOUT_SEQS: int
    TP_STRICT: int
    TP_FEW_RECORDS: int
    TP_FLAGS: int
    def tp_scanner_new(
        self,
        max_head_bytes: int,
        max_head_fields: int,
        max_body_bytes: int,
        max_command_bytes: int,
        max_key_bytes: int,
        with_request_ids: int,
        secret: int,
        texts: bytes,
        texts_len: int,
    ) -> tp_scanner: ...
    def tp_scanner_free(self, scanner: tp_scanner) -> None: ...
    def tp_learn_host(self, scanner: tp_scanner, host: bytes, length: int) -> int: ...
    TP_NO_KEY: int
    def tp_learn_keys(self, scanner: tp_scanner, digests: bytes, count: int) -> int: ...
    def tp_digest(self, text: bytes, length: int, digest: Any) -> None: ...
    def tp_learn_topic(self, scanner: tp_scanner, name: bytes, length: int, key: int) -> int: ...
    def tp_forget_topic(self, scanner: tp_scanner, number: int) -> None: ...
    def tp_forget_topics(self, scanner: tp_scanner) -> None: ...
    def tp_scan_requests(
        self,
        scanner: tp_scanner,
        buffer: Any,
        starts: Any,
        ends: Any,
        count: int,
        requests: tp_request,
        groups: tp_group,
        room: int,
        reasons: Any,
    ) -> int: ...
    def tp_scan_single(self, scanner: tp_scanner, request: tp_request, buffer: Any, length: int) -> int: ...
    def tp_missed(self, ends: Any, upto: Any, count: int, rows: Any) -> int: ...
    def tp_render_answers(
        self,
        scanner: tp_scanner,
        out: Any,
        room: int,
        requests: tp_request,
        counts: Any,
        count: int,
        first_seq: int,
        refs: Any,
        head: bytes,
        head_len: int,
        name: bytes,
        name_len: int,
        after: bytes,
        after_len: int,
        out_refs: Any,
        out_lengths: Any,
        sends: Any,
    ) -> int: ...
    def tp_render_topics(
        self,
        scanner: tp_scanner,
        out: Any,
        room: int,
        requests: tp_request,
        counts: Any,
        firsts: Any,
        sizes: Any,
        first_seqs: Any,
        groups: int,
        names: bytes,
        refs: Any,
        head: bytes,
        head_len: int,
        after: bytes,
        after_len: int,
        out_refs: Any,
        out_lengths: Any,
        sends: Any,
    ) -> int: ...
    def tp_scanned_reads(self, s: tp_scanner, reads: Any, topics: Any, topic_count: Any) -> int: ...
    def tp_render_reads(
        self,
        s: tp_scanner,
        out: Any,
        room: int,
        elements: Any,
        topics: bytes,
        refs: Any,
        head: bytes,
        head_len: int,
        times: bytes,
        times_len: int,
        upto: Any,
        out_refs: Any,
        out_lengths: Any,
        sends: Any,
    ) -> int: ...

_T = TypeVar("_T")

class _FFI:
    NULL: Any
    def cast(self, declaration: str, data: Any) -> Any: ...
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def new_allocator(self, *, should_clear_after_alloc: bool) -> Any: ...
    def memmove(self, target: Any, source: Any, count: int) -> None: ...
    def buffer(self, data: Any, size: int = ...) -> Any: ...
    def from_buffer(self, declaration: Any, data: Any = ...) -> Any: ...
    def unpack(self, data: Any, count: int) -> Any: ...
    def gc(self, data: _T, free: Any) -> _T: ...

lib: _Lib
ffi: _FFI
