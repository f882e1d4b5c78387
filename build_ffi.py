"""Compiles the few C files of `topics`, each lying beside the Python that owns it.

A room's `NAME.h` holds plain declarations, read twice: by the C compiler and, as they stand, by cffi.
Run by setuptools (see setup.py) or by hand: `python build_ffi.py` builds every extension in place.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

from cffi import FFI

ROOT = Path(__file__).resolve().parent


class Extension(NamedTuple):
    """One cffi module: `module` is its dotted name, `source` its C file without the ending."""

    module: str
    source: str
    libraries: tuple[str, ...] = ()
    needs_header: str = ""
    remedy: str = ""


EXTENSIONS = (
    Extension("topics.uring._ring", "topics/uring/ring", ("uring",), "liburing.h", "apt-get install liburing-dev"),
    Extension(
        "topics.store.format._codec", "topics/store/format/codec", (), "xxhash.h", "apt-get install libxxhash-dev"
    ),
    Extension("topics.engine.json._records", "topics/engine/json/records"),
    Extension("topics.loop._links", "topics/loop/links"),
    Extension("topics.http.lane._scan", "topics/http/lane/scan"),
)


def make_ffi(extension: Extension) -> FFI:
    """The cffi builder of one extension; its C file is compiled as one unit with the generated glue."""
    source = ROOT / extension.source
    ffi = FFI()
    ffi.cdef(source.with_suffix(".h").read_text())
    ffi.set_source(
        extension.module,
        f'#include "{source.name}.c"\n',
        include_dirs=[str(source.parent)],
        libraries=list(extension.libraries),
        extra_compile_args=["-O3", "-std=gnu11", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter"],
        py_limited_api=False,
        depends=[str(path) for path in (source.with_suffix(".c"), source.with_suffix(".h"))],
    )
    return ffi


def ring_ffi() -> FFI:
    return make_ffi(EXTENSIONS[0])


def codec_ffi() -> FFI:
    return make_ffi(EXTENSIONS[1])


def records_ffi() -> FFI:
    return make_ffi(EXTENSIONS[2])


def links_ffi() -> FFI:
    return make_ffi(EXTENSIONS[3])


def scan_ffi() -> FFI:
    return make_ffi(EXTENSIONS[4])


def check_toolchain() -> str:
    """One sentence with the remedy when the compiler or a header is missing, else the empty string."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "topics cannot find Python's own C header <Python.h>: apt-get install python3-dev"
    compiler = shutil.which("cc") or shutil.which("gcc")
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


def build(*sources: str) -> None:
    """Builds the extensions of these C files, named without the ending, in place."""
    for extension in EXTENSIONS:
        if extension.source in sources:
            make_ffi(extension).compile(tmpdir=str(ROOT), verbose=False)


def main() -> int:
    if problem := check_toolchain():
        print(problem, file=sys.stderr)
        return 1
    build(*(extension.source for extension in EXTENSIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
