"""C as its readers expect it: each file compiles alone, without a warning, and a build knows all its files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import build_ffi

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in (ROOT / "topics").rglob("*.[ch]") if not path.name.startswith("_"))
"""Without what cffi makes of them."""


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler: this installation was built elsewhere")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_compiles_alone_and_without_a_warning(compiler: str, path: Path) -> None:
    """A function that other files call has its declaration in a header that its own file includes, too."""
    strict = ("-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror")
    output = ("-fsyntax-only",) if path.suffix == ".h" else ("-c", "-o", os.devnull)
    done = subprocess.run(
        [compiler, "-x", "c", "-std=gnu11", *strict, *output, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_header_holds_no_code_but_inline_functions_and_no_file_includes_another_ones_code() -> None:
    for path in FILES:
        text = path.read_text()
        assert not re.findall(r'^#include "[^"]+\.c"', text, re.M), path
        if path.suffix == ".h":
            assert text.count("#ifndef TOPICS_") == 1, f"{path}: no include guard"
            assert not re.findall(r"^static (?!inline |const )", text, re.M), path


def test_a_build_is_made_again_when_any_of_its_files_changes() -> None:
    parts = {extension.module: build_ffi.dependencies(extension) for extension in build_ffi.EXTENSIONS}
    assert sorted({path for files in parts.values() for path in files}) == FILES
    rows = ROOT / "topics/store/format/rows.h"
    assert [module for module, files in parts.items() if rows in files] == [
        "topics.store.format._codec",
        "topics.engine.json._records",
    ]


def test_make_watches_the_same_files() -> None:
    done = subprocess.run(
        ["make", "-s", "-f", "Makefile", "--eval", "names: ; @echo $(C_FILES)", "names"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no make: {done.stderr[-200:]}")
    assert sorted(ROOT / name for name in done.stdout.split()) == FILES
