"""The compiled module of codec.c, as mypy sees it.

A class stands for a pointer to its struct, `Any` for cffi's other C data.

A `bytes` argument is passed as it is, any other buffer through `ffi.from_buffer`.
"""

from typing import Any

class tp_slots: ...
class tp_quick: ...
class tp_copied: ...
class tp_frame: ...
class tp_frame_scan: ...
class tp_lease: ...
class tp_log_scan: ...
class tp_next_batch: ...
class tp_projection: ...
class tp_text_fill: ...
class tp_times: ...

class _Lib:
    TP_STOP_END: int
    TP_STOP_MORE: int
    TP_STOP_FOREIGN: int
    TP_STOP_TORN: int
    TP_STOP_ORDER: int
    TP_STOP_BAD: int
    TP_STOP_ROOM: int
    TP_STOP_KIND: int
    TP_TEXT_COLUMNS: int
    TP_ROW_TAG: int
    TP_ROW_NODE: int
    TP_ROW_META: int
    TP_ROW_IS_BYTES: int
    TP_ROW_DELAY: int
    TP_ROW_TTL: int
    TP_ROW_TIMES: int
    TP_TIME_BYTES: int
    TP_QUICK_ROWS: int
    TP_TIME_BUCKETS: int
    TP_CELL_NAME: int
    TP_CELL_LOCK: int
    TP_CELL_DRIVER: int
    TP_CELL_NOW_NS: int
    TP_CELL_NOW_MS: int
    TP_CELL_RESULT: int
    TP_CELL_QUEUES: int
    TP_CELL_PLAIN: int
    TP_CELL_WRITE: int
    TP_CELL_VIEW: int
    TP_CELL_WAKE_NEXT_DRIVER: int
    TP_QUICK_CELLS: int
    def tp_quick_append(self, quick: tp_quick, cells: Any) -> Any: ...
    def tp_rows_of_list(self, payloads: Any, record_max: int) -> Any: ...
    TP_LOADED_SLOTS: int
    def tp_slot_offset(self, descriptor: Any) -> int: ...
    def tp_load_slots(self, objects: Any, classes: tp_slots) -> int: ...
    def tp_row_flags(self, rows: bytes, count: int) -> int: ...
    def tp_frame_rows(
        self,
        dest: Any,
        at: int,
        room: int,
        buffer: bytes,
        buffer_bytes: int,
        rows: bytes,
        count: int,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        flags: int,
        node: bytes,
        node_len: int,
        has_node: int,
        ext: bytes,
        ext_len: int,
        start: int,
        placed: Any,
    ) -> int: ...
    def tp_frame_topics(
        self,
        dest: Any,
        at: int,
        room: int,
        buffer: Any,
        buffer_bytes: int,
        rows: bytes,
        ids: Any,
        first_seqs: Any,
        ts_ms: Any,
        first_rows: Any,
        counts: Any,
        topics: int,
        flags: int,
        start: int,
        placed: Any,
    ) -> int: ...
    def tp_place_rows(self, columns: Any, runs: Any, count: int, placed: bytes, file_id: int, base: int) -> int: ...
    def tp_place_run(
        self, columns: bytes, first: int, placed: bytes, at: int, count: int, file_id: int, base: int
    ) -> int: ...
    def tp_frame_control(
        self,
        dest: Any,
        at: int,
        room: int,
        kind: int,
        flags: int,
        topic_id: int,
        seq: int,
        ts_ms: int,
        payload: bytes,
        payload_len: int,
    ) -> int: ...
    def tp_frame_batch(
        self,
        chunk: Any,
        at: int,
        room: int,
        buffer: bytes,
        buffer_bytes: int,
        rows: bytes,
        count: int,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        flags: int,
        node: bytes,
        node_len: int,
        has_node: int,
        more: Any,
        more_bytes: int,
        more_frames: int,
        epoch: int,
        batch_no: int,
        synced_upto: int,
        chain: int,
        written_ms: int,
        placed: Any,
        checksum: Any,
    ) -> int: ...
    def tp_frame_apart(
        self,
        head: Any,
        trailer: Any,
        buffer: bytes,
        buffer_bytes: int,
        row: bytes,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        flags: int,
        epoch: int,
        batch_no: int,
        synced_upto: int,
        chain: int,
        written_ms: int,
        placed: Any,
        checksum: Any,
    ) -> int: ...
    def tp_seal_batch(
        self,
        batch: Any,
        epoch: int,
        batch_no: int,
        synced_upto: int,
        chain: int,
        body_bytes: int,
        frame_count: int,
        written_ms: int,
    ) -> int: ...
    def tp_seal_summed(
        self,
        batch: Any,
        epoch: int,
        batch_no: int,
        synced_upto: int,
        chain: int,
        body_bytes: int,
        frame_count: int,
        written_ms: int,
        body_sum: int,
    ) -> int: ...
    def tp_scan_log(
        self, data: Any, size: int, base: int, state: tp_log_scan, out: tp_frame, capacity: int
    ) -> None: ...
    def tp_find_batch(self, data: Any, size: int, start: int, epoch: int, state: tp_log_scan) -> int: ...
    def tp_scan_frames(
        self, data: Any, size: int, base: int, state: tp_frame_scan, out: tp_frame, capacity: int
    ) -> None: ...
    def tp_project(
        self,
        out: Any,
        room: int,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        nodes: bytes,
        nodes_bytes: int,
        state: tp_projection,
    ) -> None: ...
    def tp_project_columns(
        self,
        out: Any,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        topic_id: int,
        ts: Any,
        kinds: Any,
        ends: Any,
        end: int,
    ) -> int: ...
    def tp_project_jobs(
        self,
        out: Any,
        room: int,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        leases: tp_lease,
        state: tp_projection,
    ) -> None: ...
    def tp_copy_frames(
        self,
        out: Any,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        topic_id: int,
        state: tp_copied,
    ) -> int: ...
    def tp_reframe(
        self,
        out: Any,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        ts: Any,
        flags: Any,
        count: int,
        topic_id: int,
        lengths_out: Any,
    ) -> int: ...
    def tp_rows_of_frames(
        self,
        rows: Any,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        topic_id: int,
        keep: int,
        start: int,
    ) -> int: ...
    def tp_fill_texts(
        self,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        state: tp_text_fill,
    ) -> None: ...
    def tp_sum_rows(
        self,
        buffer: Any,
        buffer_bytes: int,
        rows: bytes,
        count: int,
        node: bytes,
        node_len: int,
        has_node: int,
        total: Any,
    ) -> int: ...
    def tp_take_frames(
        self,
        out: Any,
        data: Any,
        size: int,
        base: int,
        offsets: Any,
        lengths: Any,
        seqs: Any,
        count: int,
        topic_id: int,
        ext: bytes,
        ext_len: int,
    ) -> int: ...
    def tp_number_frames(
        self,
        frames: Any,
        size: int,
        topic_id: int,
        first_seq: int,
        ts_ms: int,
        flags: int,
        start: int,
        placed: Any,
        count: int,
    ) -> int: ...
    def tp_checksum(self, data: Any, size: int, seed: int) -> int: ...

class _FFI:
    NULL: Any
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def cast(self, declaration: str, data: Any) -> Any: ...
    def from_buffer(self, declaration: Any, data: Any = ..., require_writable: bool = ...) -> Any: ...
    def addressof(self, data: Any, field: str) -> Any: ...
    def sizeof(self, kind: str) -> int: ...
    def release(self, data: Any) -> None: ...
    def unpack(self, data: Any, count: int) -> Any: ...
    def buffer(self, data: Any, size: int = ...) -> Any: ...

lib: _Lib
ffi: _FFI
