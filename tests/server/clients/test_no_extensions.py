"""Clients where there is neither numpy nor an extension of this package."""

from __future__ import annotations

import re
import subprocess
import sys

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] in {"numpy", "cffi", "_cffi_backend", "xxhash", "httptools", "h2", "prometheus_client", "typer"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if parts[0] == "topics" and parts[-1] in {"_ring", "_codec", "_records", "_links", "_scan", "_index_reads"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import topics
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", ABSENT + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_client_needs_neither_numpy_nor_c() -> None:
    shown = run('print(topics.connect("http://localhost:4000"), topics.Record, topics.NewRecord(1), topics.GapError)')
    assert "<topics.Client of 'http://localhost:4000', open>" in shown


def test_without_the_engine_an_open_is_refused_with_the_remedy() -> None:
    code = """
try:
    topics.open("data")
except ImportError as error:
    print(error)
"""
    assert re.fullmatch(
        r"topics.open needs the engine, which is not in this installation \(No module named '\S+'\): "
        r"install topics-log on Linux, or use topics.connect\(url\) and a server",
        run(code),
    )
