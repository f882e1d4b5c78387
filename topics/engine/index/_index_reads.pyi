"""The compiled module of index_reads.c, as mypy sees it. `Any` stands for cffi's C data."""

from typing import Any

class _Lib:
    TP_READ_NO_META: int
    TP_READ_TAGS: int
    TP_ROW_DEAD: int
    def tp_project_reads(
        self,
        out: Any,
        room: int,
        reads: Any,
        count: int,
        topics: Any,
        hot: Any,
        hot_count: int,
        limits: Any,
        taken: Any,
    ) -> int: ...

class _FFI:
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def buffer(self, data: Any, size: int) -> Any: ...
    def from_buffer(self, declaration: str, data: Any) -> Any: ...
    def release(self, data: Any) -> None: ...

lib: _Lib
ffi: _FFI
