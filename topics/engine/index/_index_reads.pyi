"""The compiled module of index_reads.c, as mypy sees it.

A class stands for a pointer to its struct, `Any` for cffi's other C data.
"""

from collections.abc import Callable
from typing import Any

class tp_hot_range: ...
class tp_read: ...
class tp_read_limits: ...
class tp_read_topic: ...

class _Lib:
    TP_READ_NO_META: int
    TP_READ_TAGS: int
    TP_ROW_DEAD: int
    def tp_project_reads(
        self,
        out: Any,
        room: int,
        reads: tp_read,
        count: int,
        topics: tp_read_topic,
        hot: tp_hot_range,
        hot_count: int,
        prefetched: tp_hot_range,
        prefetched_count: int,
        ephemeral: tp_hot_range,
        ephemeral_count: int,
        limits: tp_read_limits,
        taken: Any,
    ) -> int: ...

class _FFI:
    NULL: Any
    def new_allocator(self, *, should_clear_after_alloc: bool) -> Callable[..., Any]: ...
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def buffer(self, data: Any, size: int) -> Any: ...
    def from_buffer(self, declaration: str, data: Any) -> Any: ...
    def release(self, data: Any) -> None: ...

lib: _Lib
ffi: _FFI
