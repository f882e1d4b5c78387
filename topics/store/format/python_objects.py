"""The functions of python_objects.c, called with the interpreter's lock.

They read and make objects of Python. cffi frees the lock in each call, and ctypes has a type of
calls that hold it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from topics.store.format._codec import ffi, lib


def address_of(name: str) -> int:
    """Return the address of a function of codec.h."""
    return int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))


def _locked(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function that is called with the interpreter's lock."""
    called: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)(address_of(name))
    return called


rows_of_list = _locked("tp_rows_of_list", ctypes.py_object, ctypes.py_object, ctypes.c_uint64)
"""rows_of_list(payloads, record_max): see `rows_of_bytes`."""
quick_append = _locked("tp_quick_append", ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
"""quick_append(address of a tp_quick, cells): returns the callable that codec.h describes."""
slot_offset = _locked("tp_slot_offset", ctypes.c_uint32, ctypes.py_object)
"""slot_offset(descriptor): returns where objects of its class have this slot, in bytes."""
load_slots = _locked("tp_load_slots", ctypes.c_uint64, ctypes.py_object, ctypes.c_void_p)
"""load_slots(objects, address of an array of tp_slots): returns how many lines were asked for."""
