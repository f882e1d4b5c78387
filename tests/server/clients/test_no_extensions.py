"""Clients where there is neither numpy nor an extension of this package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from topics.common.extras import engine_missing, is_engine_missing

ABSENT = """
import sys

MODULES = {"_ring", "_codec", "_records", "_connection_table", "_scan", "_index_reads", "_load"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] in {"numpy", "cffi", "_cffi_backend", "xxhash", "httptools", "h2", "prometheus_client"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if parts[0] == "topics" and parts[-1] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import topics
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", ABSENT + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_client_needs_neither_numpy_nor_c() -> None:
    shown = run(
        'print(topics.connect("http://localhost:4000"), topics.Record, topics.NewRecord(1), topics.GapError)\n'
        'print("typer" in sys.modules)'
    )
    assert "<topics.Client of 'http://localhost:4000', open>" in shown
    assert shown.endswith("False"), "only the command line uses it"


NEEDS = re.escape(
    " needs the engine, and this installation is the client only (no module ABSENT): install it by `pip install "
    "--force-reinstall PATH` with the path of a checkout, or of the wheel for Linux that `make wheels` writes there"
).replace("ABSENT", r"\S+")


def test_without_the_engine_an_open_is_refused_with_the_remedy() -> None:
    code = """
for needs in (lambda: topics.open("data"), lambda: topics.fsck("data"), lambda: topics.Log):
    try:
        needs()
    except ImportError as error:
        print(error)
"""
    opened, checked, named = run(code).splitlines()
    assert re.fullmatch("topics.open" + NEEDS, opened)
    assert re.fullmatch("topics.fsck" + NEEDS, checked)
    assert re.fullmatch("topics.Log" + NEEDS, named)


@pytest.mark.parametrize(
    "command", ["serve --data-dir d", "doctor", "bench list", "fsck --data-dir d", "put t 1 --data-dir d"]
)
def test_without_the_engine_a_command_is_refused_with_the_remedy(command: str, tmp_path: Path) -> None:
    """One sentence, and nothing is made."""
    (tmp_path / "d").mkdir()
    code = f"{ABSENT}\nsys.argv = ['topics', *{command.split()}]\nfrom topics.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch("topics: this command" + NEEDS + "\n", done.stderr), done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["d"]


def test_on_another_system_the_remedy_is_a_server_on_linux() -> None:
    error = ModuleNotFoundError("No module named 'numpy'", name="numpy")
    assert is_engine_missing(error)
    assert engine_missing("topics.open", error, platform="darwin") == (
        "topics.open needs the engine, and this installation is the client only (no module numpy): "
        "the engine runs on Linux; use a server there by topics.connect(url) or --url"
    )


def test_another_module_that_is_missing_is_no_missing_engine() -> None:
    for name in ("pyarrow", "topics.missing", "topics", None):
        assert not is_engine_missing(ModuleNotFoundError("No module", name=name))
    assert is_engine_missing(ModuleNotFoundError("No module", name="topics.loop._connection_table"))
