"""The source package holds all that a build needs, under a name of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from topics.common.extras import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "topics"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source package of this tree, made in a copy by the build backend that pip calls."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(FOLDER, tree / "topics", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, tree)
    code = "from setuptools import build_meta; print(build_meta.build_sdist('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tree / done.stdout.splitlines()[-1]


def test_the_source_package_has_every_source_and_nothing_that_a_build_makes(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for kind in ("py", "pyi", "c", "h") for path in FOLDER.rglob(f"*.{kind}")}
    made = {name for name in sources if Path(name).name.startswith("_") and name.endswith((".c", ".h"))}
    assert {"build_ffi.py", "setup.py", "pyproject.toml", "LICENSE", "README.md"} | (sources - made) <= names
    assert not names & made
    assert not [name for name in names if name.endswith(".so")]


def test_the_name_that_errors_say_is_the_one_of_the_package(sdist: Path) -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    assert sdist.name.startswith(DISTRIBUTION.replace("-", "_"))


@pytest.mark.slow
def test_a_wheel_of_the_source_package_serves_in_a_clean_environment(sdist: Path, tmp_path: Path) -> None:
    """It installs from the package index, builds the C modules, and needs no shared liburing."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", sdist], check=True, env=os.environ | {"PYTHONPATH": ""})
    code = (
        "import topics, pathlib\n"
        "with topics.open('data') as log:\n"
        "    log.append('t', [{'n': 1}])\n"
        "    print([record.data for record in log.read('t')], pathlib.Path(topics.__file__).parts[-3])"
    )
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[{'n': 1}] site-packages\n", "")
    command = [python.with_name("topics"), "doctor", "--data-dir", "data"]
    doctor = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "engine: " in doctor.stdout, doctor.stderr
