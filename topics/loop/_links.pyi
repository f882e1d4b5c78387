"""Types of the compiled module of links.c. `Any` stands for cffi's C data."""

from typing import Any

class _Lib:
    TP_KIND_BITS: int
    TP_SLOT_BITS: int
    TP_FILE: int
    TP_RECV: int
    TP_SEND: int
    TP_ACCEPT: int
    TP_CONTROL: int
    TP_F_BUFFER: int
    TP_F_MORE: int
    def __getattr__(self, name: str) -> Any: ...

class _FFI:
    NULL: Any
    def new(self, declaration: str, initializer: Any = ...) -> Any: ...
    def buffer(self, data: Any, size: int = ...) -> Any: ...
    def from_buffer(self, declaration: str, data: Any) -> Any: ...
    def unpack(self, data: Any, count: int) -> Any: ...
    def gc(self, data: Any, free: Any) -> Any: ...

lib: _Lib
ffi: _FFI
