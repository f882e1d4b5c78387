"""The compiled module of scan.c, as mypy sees it. `Any` stands for cffi's C data."""

from typing import Any

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
    TP_WITHOUT_SEQS: int
    TP_STRICT: int
    def tp_scanner_new(
        self,
        max_head_bytes: int,
        max_head_fields: int,
        max_body_bytes: int,
        max_command_bytes: int,
        max_key_bytes: int,
        secret: int,
        texts: bytes,
        texts_len: int,
    ) -> Any: ...
    def tp_scanner_free(self, scanner: Any) -> None: ...
    def tp_learn_host(self, scanner: Any, host: bytes, length: int) -> int: ...
    TP_NO_KEY: int
    def tp_learn_keys(self, scanner: Any, digests: bytes, count: int) -> int: ...
    def tp_digest(self, text: bytes, length: int, digest: Any) -> None: ...
    def tp_learn_topic(self, scanner: Any, name: bytes, length: int, key: int) -> int: ...
    def tp_forget_topic(self, scanner: Any, number: int) -> None: ...
    def tp_forget_topics(self, scanner: Any) -> None: ...
    def tp_scan_requests(
        self,
        scanner: Any,
        buffer: Any,
        starts: Any,
        ends: Any,
        count: int,
        requests: Any,
        groups: Any,
        room: int,
        reasons: Any,
    ) -> int: ...
    def tp_scan_single(self, scanner: Any, request: Any, buffer: Any, length: int) -> int: ...
    def tp_missed(self, ends: Any, upto: Any, count: int, rows: Any) -> int: ...
    def tp_render_answers(
        self,
        scanner: Any,
        out: Any,
        room: int,
        requests: Any,
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
        scanner: Any,
        out: Any,
        room: int,
        requests: Any,
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
    def tp_scanned_reads(self, s: Any, reads: Any, topics: Any, topic_count: Any) -> int: ...
    def tp_render_reads(
        self,
        s: Any,
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

class _FFI:
    NULL: Any
    def cast(self, declaration: str, data: Any) -> Any: ...
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def buffer(self, data: Any, size: int = ...) -> Any: ...
    def from_buffer(self, declaration: Any, data: Any = ...) -> Any: ...
    def unpack(self, data: Any, count: int) -> Any: ...
    def gc(self, data: Any, free: Any) -> Any: ...

lib: _Lib
ffi: _FFI
