"""Compiles the C files of `topics`, each lying beside the Python that owns it.

A folder with C is one extension module: all its `.c` files, which compile one by one, and one header that cffi reads as
it stands, with the project's headers that it includes. Run by setuptools (see setup.py) or by hand:
`python build_ffi.py` builds every extension in place.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

from cffi import FFI

ROOT = Path(__file__).resolve().parent
FLAGS = ("-O3", "-std=gnu11", "-fno-strict-aliasing", "-fvisibility=hidden", "-flto=auto", "-Wall", "-Wextra")
"""Link-time optimization: functions are inlined across the files of an extension as they would be within one."""
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
    Extension("topics.loop._links", "topics/loop/links.h"),
    Extension("topics.http.lane._scan", "topics/http/lane/scan.h"),
)


def included_by(path: Path) -> list[Path]:
    """The project's headers that a C file includes, directly or not; each comes after those that it includes."""
    found: list[Path] = []
    for name in _INCLUDE.findall(path.read_text()):
        header = (path.parent / name).resolve()
        found += (one for one in (*included_by(header), header) if one not in found)
    return found


def declarations(header: Path) -> str:
    """What cffi reads of one header: without preprocessor lines and assertions."""
    return _NOT_FOR_CFFI.sub("", header.read_text())


def make_ffi(extension: Extension) -> FFI:
    """The cffi builder of one extension. Types of headers in another extension's folder are those of its module."""
    header = ROOT / extension.header
    headers = [*included_by(header), header]
    shared = [
        other for other in EXTENSIONS if other is not extension and any(path.parent == other.folder for path in headers)
    ]
    ffi = FFI()
    for other in shared:
        ffi.include(make_ffi(other))
    ffi.cdef("".join(declarations(path) for path in headers if path.parent == extension.folder))
    ffi.set_source(
        extension.module,
        "".join(f'#include "{one.header}"\n' for one in (*shared, extension)),
        sources=[str(path.relative_to(ROOT)) for path in extension.sources],
        include_dirs=[str(ROOT)],
        libraries=list(extension.libraries),
        extra_compile_args=[*FLAGS, "-Wno-unused-parameter"],  # those of cffi's glue
        extra_link_args=list(FLAGS),
        py_limited_api=False,
        depends=[str(path) for path in dependencies(extension)],
    )
    return ffi


def dependencies(extension: Extension) -> list[Path]:
    """All files of the project that an extension is made of."""
    found = {ROOT / extension.header, *extension.sources}
    for path in tuple(found):
        found.update(included_by(path))
    return sorted(found)


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
