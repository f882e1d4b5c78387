"""The source package holds all that a build needs, under a name of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.contract.world.live_world import LiveWorld
from topics.common.extras import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "topics"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of which packages are made."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(FOLDER, tree / "topics", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, tree)
    return tree


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    """A source package of this tree, made in a copy by the build backend that pip calls."""
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


def environment(directory: Path, *packages: Path | str) -> Path:
    """Make a new environment with packages; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    command = [directory / "bin" / "python", "-m", "pip", "install", "-q", *packages]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": ""})
    return directory / "bin"


def serves(programs: Path, directory: Path) -> None:
    """The library, the doctor and the server of an environment work, from another directory."""
    code = (
        "import topics, pathlib\n"
        "with topics.open('data') as log:\n"
        "    log.append('t', [{'n': 1}])\n"
        "    print([record.data for record in log.read('t')], pathlib.Path(topics.__file__).parts[-3])"
    )
    done = subprocess.run([programs / "python", "-c", code], cwd=directory, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[{'n': 1}] site-packages\n", "")
    command = [programs / "topics", "doctor", "--data-dir", "data"]
    doctor = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert "engine: " in doctor.stdout, doctor.stderr

    class InstalledWorld(LiveWorld):
        command = (str(programs / "topics"), "serve")

    world = InstalledWorld(directory)
    try:
        world.start()
        assert [record["data"] for record in world.diff("t")["records"]] == [{"n": 1}]
    finally:
        world.close()


@pytest.mark.slow
def test_a_wheel_of_the_source_package_serves_in_a_clean_environment(sdist: Path, tmp_path: Path) -> None:
    """It installs from the package index, builds the C modules, and needs no shared liburing."""
    serves(environment(tmp_path / "venv", sdist), tmp_path)


@pytest.mark.slow
def test_a_wheel_is_for_any_linux_with_glibc_2_28(tmp_path: Path) -> None:
    """`make wheels`: auditwheel finds no newer symbol and no library, and the wheel serves where it is installed."""
    command = ["bash", ROOT / "scripts" / "wheels.sh", tmp_path / "dist", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    tag = re.search(r'following platform tag: "manylinux_2_(\d+)_', shown)
    assert tag is not None, shown
    assert int(tag[1]) <= 28, shown
    assert "liburing" not in shown
    (wheel,) = (tmp_path / "dist").iterdir()
    serves(environment(tmp_path / "venv", wheel), tmp_path)


@pytest.mark.slow
def test_an_editable_install_resolves_in_editors(tmp_path: Path, tree: Path) -> None:
    """A type checker that runs elsewhere finds `topics` and its types, because the install is a path."""
    programs = environment(tmp_path / "venv", "mypy", "-e", str(tree))
    code = "import topics\nreveal_type(topics.open('data').append('t', [1]))\n"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "program.py").write_text(code)
    done = subprocess.run(
        [programs / "mypy", "program.py"], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=False
    )
    assert "AppendResult" in done.stdout, done.stdout + done.stderr
    assert list((tmp_path / "venv").glob("lib/*/site-packages/__editable__*finder*")) == []


@pytest.mark.slow
def test_a_wheel_of_python_alone_is_a_client_on_any_machine(sdist: Path, tmp_path: Path) -> None:
    """Built without extensions, and without the packages that only the engine needs."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, sdist]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": "", "TOPICS_PURE": "1"})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    everywhere = [name for name in needed if "sys_platform" not in name]
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *everywhere], check=True)
    code = (
        "import topics\n"
        "print(topics.connect('http://localhost:4000'))\n"
        "try:\n    topics.open('data')\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<topics.Client of 'http://localhost:4000', open>\ntopics.open needs the engine")
    assert done.stderr == ""
    for command in (["serve", "--data-dir", "data"], ["doctor"], ["bench", "list"]):
        done = subprocess.run(
            [python.parent / "topics", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch("topics: this command needs the engine, .*: install it by .*\n", done.stderr)
    assert not (tmp_path / "data").exists()
