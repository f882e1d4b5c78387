"""The compiled module of load.c, as mypy sees it.

A class stands for a pointer to its struct, `Any` for cffi's other C data.
"""

from typing import Any

class tp_load: ...

class _Lib:
    TP_LABEL: int
    TP_HDR_SLOTS: int
    TP_HDR_HIGHEST: int
    TP_END_HTTP: int
    TP_END_LINES: int
    TP_END_BYTES: int
    TP_END_PATTERN: int
    TP_TAKE_NOTHING: int
    TP_TAKE_SEQS: int
    TP_TAKE_NEXT: int
    def tp_load_run(self, load: tp_load) -> int: ...
    def tp_load_stop(self, load: tp_load) -> None: ...
    def tp_end_with_parent(self) -> None: ...
    def tp_due_ns(self, start: int, number: int, rate: int) -> int: ...
    def tp_hdr_slot(self, value: int) -> int: ...
    def tp_labels(
        self, text: Any, len: int, seen: Any, numbers_max: int, sizes: list[int], size_count: int, altered: Any
    ) -> int: ...

class _FFI:
    NULL: Any
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def string(self, data: Any) -> bytes: ...
    def from_buffer(self, declaration: str, data: Any) -> Any: ...

lib: _Lib
ffi: _FFI
