"""`bundle`: this package's modules for executors, as one zip for Spark's `spark.submit.pyFiles`.

The zip contains the modules that pipelines, the Spark source and the readers of files import. It
contains nothing compiled: without the C module, numpy and pyarrow do its work. Executors also need
Python with pyarrow, numpy and xxhash.
"""

from __future__ import annotations

import ast
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import ClassVar

import topics
from topics.clock import Clock, SystemClock
from topics.errors import UsageError
from topics.pipelines.errors import disk_errors
from topics.pipelines.report import Report, count
from topics.pipelines.target.whole import replace_file

ROOMS = ("files", "spark", "pipelines")
SOURCE_MODULE = "pyspark_topics.py"
"""Stored at the top of the zip, where Spark looks for such modules on the workers' path."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all entries, so that equal code gives an equal zip."""


@dataclass
class BundleReport(Report):
    """Report of a bundle: the packed modules."""

    pipeline: ClassVar[str] = "bundle"

    to: str
    version: str = topics.__version__
    modules: int = 0
    bytes: int = 0

    def summary(self) -> str:
        """Return the result in one sentence."""
        return f"{self.to}: {count(self.modules, 'module')} of topics {self.version}, {self.bytes:,} bytes"


def run(to: str, *, clock: Clock | None = None) -> BundleReport:
    """Write the zip; an existing one is replaced as a whole. Raises UsageError, TargetError."""
    clock = clock or SystemClock()
    began = clock.monotonic_ns()
    if not to.endswith(".zip"):
        raise UsageError(
            f"{to!r} does not end in .zip, and Spark takes only such a file as modules: add .zip to the name"
        )
    package = Path(topics.__file__).parent
    names = sorted(modules_of(package))
    with disk_errors(f"bundle {to}"):
        replace_file(os.path.abspath(to), partial(_write, package, names))
        size = os.path.getsize(to)
    report = BundleReport(to, modules=len(names), bytes=size)
    report.seconds = (clock.monotonic_ns() - began) / 1e9
    return report


def _write(package: Path, names: list[str], file: BufferedWriter) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            content = (package / name).read_bytes()
            archive.writestr(zipfile.ZipInfo(f"topics/{name}", _EPOCH), content, zipfile.ZIP_DEFLATED)
        source = package.parent / SOURCE_MODULE
        if source.exists():
            archive.writestr(zipfile.ZipInfo(SOURCE_MODULE, _EPOCH), source.read_bytes(), zipfile.ZIP_DEFLATED)


def modules_of(package: Path) -> set[str]:
    """Return the files that ROOMS import, directly or not, as paths below the package."""
    waiting = [path for room in ROOMS for path in (package / room).rglob("*.py")]
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        name = str(path.relative_to(package))
        if name in found:
            continue
        found.add(name)
        waiting += [parent / "__init__.py" for parent in path.parents if parent.is_relative_to(package)]
        waiting += [target for module in _imported(ast.parse(path.read_bytes())) if (target := _file(package, module))]
    return found


def _file(package: Path, module: str) -> Path | None:
    """Return the file of a module by its dotted name.

    Returns: None for a name within a module, and for modules of other packages.
    """
    top, *steps = module.split(".")
    if top != package.name:
        return None
    path = package.joinpath(*steps)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module may import when it runs, without imports only for types."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        for inner in tree.orelse:
            yield from _imported(inner)
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module:
        yield tree.module
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    for child in ast.iter_child_nodes(tree):
        yield from _imported(child)
