"""Compile the C files of `topics`, each of which is beside the Python that owns it.

A folder with C is one extension module: all its `.c` files, which compile one by one, and one header that cffi reads as
it stands, with the project's headers that it includes. Run by setuptools (see setup.py) or by hand:
`python build_ffi.py` builds every extension in place.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cffi import FFI

ROOT = Path(__file__).resolve().parent
FLAGS = (
    *("-O3", "-std=gnu11", "-fno-strict-aliasing", "-fvisibility=hidden", "-flto=auto", "-Wall", "-Wextra"),
    *os.environ.get("TOPICS_C_FLAGS", "").split(),
)
"""Link-time optimization: functions are inlined across the files of an extension as they would be within one.
TOPICS_C_FLAGS: more of them, for tools (scripts/sanitize.sh)."""
_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.M)
_NOT_FOR_CFFI = re.compile(r"^#(?!define \w+ \w+$)[^\n]*\n|^_Static_assert\([^;]*\);\n", re.M)
"""Preprocessor lines except numbers by name, and assertions."""


class Extension(NamedTuple):
    """One cffi module: `module` is its dotted name, `header` what Python sees of its C files."""

    module: str
    header: str
    libraries: tuple[str, ...] = ()
    needs_header: str = ""
    remedy: str = ""

    @property
    def folder(self) -> Path:
        return (ROOT / self.header).parent

    @property
    def sources(self) -> list[Path]:
        """Its C files, without what cffi makes."""
        return sorted(path for path in self.folder.glob("*.c") if not path.name.startswith("_"))


EXTENSIONS = (
    Extension("topics.uring._ring", "topics/uring/ring.h", ("uring",), "liburing.h", "apt-get install liburing-dev"),
    Extension(
        "topics.store.format._codec", "topics/store/format/codec.h", (), "xxhash.h", "apt-get install libxxhash-dev"
    ),
    Extension("topics.engine.json._records", "topics/engine/json/records.h"),
    Extension("topics.loop._connection_table", "topics/loop/connection_table.h"),
    Extension("topics.http.lane._scan", "topics/http/lane/scan.h"),
    Extension("topics.engine.index._index_reads", "topics/engine/index/index_reads.h"),
    Extension("topics.bench.load._load", "topics/bench/load/load.h"),
)


LAYOUT = ROOT / "topics/store/format/log_format.py"
"""The numbers of the log's layout. Python that runs without C modules knows them, too, so they are declared there."""


def layout() -> dict[str, int]:
    """The numbers of LAYOUT by name, read without an import, which needs what is being built."""
    names: dict[str, Any] = {"struct": struct, "IntEnum": IntEnum}
    for node in ast.parse(LAYOUT.read_text()).body:
        if isinstance(node, ast.Assign | ast.ClassDef):
            with suppress(NameError):
                exec(compile(ast.Module([node], []), str(LAYOUT), "exec"), names)
    found = {name: value for name, value in names.items() if name.isupper() and not name.startswith("_")}
    found |= {f"TYPE_{kind.name}": kind.value for kind in names["FrameType"]}
    found = {name: int.from_bytes(value, "little") if type(value) is bytes else value for name, value in found.items()}
    return {name: value for name, value in found.items() if type(value) is int and value < 1 << 32}


def write_layout() -> None:
    """Makes _log_format.h, which C files include."""
    target = LAYOUT.with_name("_log_format.h")
    lines = [f"/* Made by build_ffi.py of {LAYOUT.name}. */", "#ifndef TOPICS_STORE_LOG_FORMAT_H"]
    lines += ["#define TOPICS_STORE_LOG_FORMAT_H", "", *(f"#define {name} {n}u" for name, n in layout().items())]
    text = "\n".join((*lines, "", "#endif", ""))
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def included_by(path: Path) -> list[Path]:
    """The project's headers that a C file includes, directly or not; each comes after those that it includes."""
    found: list[Path] = []
    for name in _INCLUDE.findall(path.read_text()):
        header = (path.parent / name).resolve()
        if header == LAYOUT.with_name("_log_format.h"):
            write_layout()
        found += (one for one in (*included_by(header), header) if one not in found)
    return found


def declarations(header: Path) -> str:
    """Return the text of a header for cffi: without preprocessor lines and assertions."""
    return _NOT_FOR_CFFI.sub("", header.read_text())


def shared_by(extension: Extension) -> list[Extension]:
    """The extensions whose types this one uses: a header that it shows to Python includes one in their folder."""
    folders = {path.parent for path in included_by(ROOT / extension.header)}
    return [other for other in EXTENSIONS if other is not extension and other.folder in folders]


def shown(extension: Extension) -> list[str]:
    """The headers that the code cffi makes includes: its own, after those of extensions whose types are shared."""
    headers = [name for other in shared_by(extension) for name in shown(other)]
    return [*dict.fromkeys(headers), extension.header]


def c_compiler() -> str | None:
    """The C compiler on the path; None if there is none."""
    return shutil.which("cc") or shutil.which("gcc")


@cache
def linked(library: str) -> str:
    """The linker's argument for a library: its archive, so that a built module needs no other package.

    Where there is none that a shared object can take in, it is the shared library.
    """
    compiler = c_compiler() or "cc"
    found = subprocess.run([compiler, f"-print-file-name=lib{library}.a"], capture_output=True, text=True, check=False)
    archive = found.stdout.strip()
    if not Path(archive).is_absolute():
        return f"-l{library}"
    with tempfile.TemporaryDirectory() as scratch:
        whole = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"]
        tried = [compiler, "-shared", *whole, "-o", str(Path(scratch, "probe.so"))]
        done = subprocess.run(tried, capture_output=True, check=False)
    return archive if done.returncode == 0 else f"-l{library}"


@cache
def make_ffi(extension: Extension) -> FFI:
    """The cffi builder of one extension. Types of headers in another extension's folder are those of its module."""
    header = ROOT / extension.header
    ffi = FFI()
    for other in shared_by(extension):
        ffi.include(make_ffi(other))
    own = [path for path in (*included_by(header), header) if path.parent == extension.folder]
    ffi.cdef("".join(declarations(path) for path in own))
    ffi.set_source(
        extension.module,
        "".join(f'#include "{name}"\n' for name in shown(extension)),
        sources=[str(path.relative_to(ROOT)) for path in extension.sources],
        include_dirs=[str(ROOT)],
        extra_compile_args=[*FLAGS, "-Wno-unused-parameter"],  # those of cffi's glue
        extra_link_args=[*FLAGS, *map(linked, extension.libraries)],
        py_limited_api=False,
        depends=[str(path) for path in dependencies(extension)],
    )
    return ffi


def dependencies(extension: Extension) -> list[Path]:
    """All files of the project that an extension is made of."""
    found = {*(ROOT / name for name in shown(extension)), *extension.sources}
    for path in tuple(found):
        found.update(included_by(path))
    made = {path for path in found if path.name.startswith("_")}
    return sorted(found - made | ({LAYOUT} if made else set()))


def ring_ffi() -> FFI:
    return make_ffi(EXTENSIONS[0])


def codec_ffi() -> FFI:
    return make_ffi(EXTENSIONS[1])


def records_ffi() -> FFI:
    return make_ffi(EXTENSIONS[2])


def connection_table_ffi() -> FFI:
    return make_ffi(EXTENSIONS[3])


def scan_ffi() -> FFI:
    return make_ffi(EXTENSIONS[4])


def index_reads_ffi() -> FFI:
    return make_ffi(EXTENSIONS[5])


def load_ffi() -> FFI:
    return make_ffi(EXTENSIONS[6])


def check_toolchain() -> str:
    """One sentence with the remedy when the compiler or a header is missing, else the empty string."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "topics cannot find Python's own C header <Python.h>: apt-get install python3-dev"
    compiler = c_compiler()
    if compiler is None:
        return "topics needs a C compiler to build its extension modules: apt-get install gcc libc6-dev"
    for extension in EXTENSIONS:
        if not extension.needs_header:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            probe = Path(scratch, "probe.c")
            probe.write_text(f"#include <{extension.needs_header}>\nint main(void) {{ return 0; }}\n")
            done = subprocess.run([compiler, "-fsyntax-only", str(probe)], capture_output=True, check=False)
        if done.returncode != 0:
            return f"topics cannot find the C header <{extension.needs_header}>: {extension.remedy}"
    return ""


def build(*changed: str) -> None:
    """Builds in place the extensions that any of these files (paths from the root) is part of."""
    paths = {ROOT / name for name in changed}
    for extension in EXTENSIONS:
        if not paths.isdisjoint(dependencies(extension)):
            make_ffi(extension).compile(tmpdir=str(ROOT), verbose=False)


def main() -> int:
    if problem := check_toolchain():
        print(problem, file=sys.stderr)
        return 1
    build(*(extension.header for extension in EXTENSIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
