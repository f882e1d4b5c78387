"""The files of a result: JSON, and a page of HTML beside it. Each is whole, or it is not there."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from topics.bench.report.html_report import html_report
from topics.bench.results.bench_result import BenchResult
from topics.errors import UsageError


def check_writable(option: str, path: str, *, create: bool) -> None:
    """Refuse a directory in which no file can be written.

    Raises: UsageError that names the option.
    """
    try:
        if create:
            Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".topics-bench-") as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise UsageError(f"{option} is {path!r}: {error.strerror}: name a directory that can be written") from None


def write_result(result: BenchResult, out: Path) -> tuple[Path, Path]:
    """Write a result beside earlier ones; return the paths of JSON and HTML.

    The name is that of the workload, and the time; with a number for others of the same second.
    Raises: OSError that names the file, which is then not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    began = datetime.fromisoformat(result.document["started"]).astimezone(UTC)
    path = _reserved(out, f"{result.name}-{began:%Y%m%dT%H%M%SZ}")
    try:
        _write_whole(path, json.dumps(result.document, indent=1) + "\n")
    except BaseException:
        path.unlink()
        raise
    page = path.with_suffix(".html")
    _write_whole(page, html_report(result))
    return path, page


def _reserved(out: Path, stem: str) -> Path:
    """Create an empty file of a name that no other result has; return its path."""
    number = 1
    while True:
        path = out / f"{stem}{f'-{number}' if number > 1 else ''}.json"
        with suppress(FileExistsError):
            path.open("x").close()
            return path
        number += 1


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)
