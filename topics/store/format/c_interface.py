"""The side of Python towards C, beside the calls of cffi: layouts, addresses, calls with the lock.

A struct of C is declared in its header only; Python takes its layout from there. Functions that
read and make objects of Python need the interpreter's lock. cffi frees it in each call, and ctypes
has a type of calls that hold it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import numpy as np

from topics.store.format._codec import ffi, lib

_LETTERS = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "int32_t": "i", "uint64_t": "Q", "int64_t": "q"}
_PADDING = "zero"
"""The name of fields that have no value."""


def _fields(ffi_of: Any, kind: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, offset and letter of each field of a struct of numbers."""
    for name, field in ffi_of.typeof(f"struct {kind}").fields:
        length = field.type.length if field.type.kind == "array" else 1
        item = field.type.item if field.type.kind == "array" else field.type
        for at in range(length if item.cname in _LETTERS else 0):
            yield name, field.offset + at * ffi_of.sizeof(item), _LETTERS[item.cname]


def layout_of(ffi_of: Any, kind: str, first: str = "", last: str = "") -> struct.Struct:
    """Return the layout of a struct of C, or of its fields from `first` to `last`.

    ffi_of: of the module that declares it. Its fields are numbers; those named `zero` are padding.
    """
    fields = list(_fields(ffi_of, kind))
    names = [name for name, _at, _letter in fields]
    begin = names.index(first) if first else 0
    end = len(names) - names[::-1].index(last) if last else len(names)
    asked = fields[begin:end]
    letters = [letter if name != _PADDING else "x" * struct.calcsize(letter) for name, _at, letter in asked]
    runs = [(len(list(run)), letter) for letter, run in groupby("".join(letters))]
    layout = struct.Struct("=" + "".join(f"{count}{letter}" if count > 1 else letter for count, letter in runs))
    at = asked[0][1]
    for _name, offset, letter in asked:
        assert offset == at, f"struct {kind} has a gap, or a field that is no number"
        at += struct.calcsize(letter)
    assert first or last or at == ffi_of.sizeof(f"struct {kind}"), f"struct {kind} has more than numbers"
    return layout


def dtype_of(ffi_of: Any, kind: str) -> np.dtype[np.void]:
    """Return the dtype of a struct of numbers; those named `zero` are left out."""
    fields = [(name, at, letter) for name, at, letter in _fields(ffi_of, kind) if name != _PADDING]
    names, offsets, letters = zip(*fields, strict=True)
    formats = [f"<{letter}" for letter in letters]
    size = ffi_of.sizeof(f"struct {kind}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


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
