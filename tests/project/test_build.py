"""A missing part of a build is reported in one sentence with its remedy, from build_ffi and from scripts/setup.sh."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import build_ffi
from tests.cli.fork_server import VERIFY

ROOT = Path(__file__).resolve().parents[2]


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_complete_toolchain_is_no_problem() -> None:
    assert build_ffi.check_toolchain() == ""


def test_no_compiler_is_said_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = build_ffi.check_toolchain()
    assert told == "topics needs a C compiler to build its extension modules: apt-get install gcc libc6-dev"


@pytest.mark.parametrize(("header", "package"), [("liburing.h", "liburing-dev"), ("xxhash.h", "libxxhash-dev")])
def test_a_missing_header_is_said_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, package: str
) -> None:
    script(tmp_path / "cc", f'grep -q "{header}" "$2" && exit 1; exit 0')  # a compiler that lacks this one
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert build_ffi.check_toolchain() == f"topics cannot find the C header <{header}>: apt-get install {package}"


def test_python_without_its_header_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert build_ffi.check_toolchain().endswith("apt-get install python3-dev")


def setup(tmp_path: Path, *commands: str, argument: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/setup.sh where only these commands are on the path."""
    for name in commands:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    command = ["/bin/bash", str(ROOT / "scripts" / "setup.sh"), str(tmp_path / "venv"), argument]
    env = {"PATH": str(tmp_path), "PYTHON": sys.executable, **VERIFY, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_setup_names_what_to_install_where_it_cannot_do_it_itself(tmp_path: Path) -> None:
    done = setup(tmp_path, "dirname")
    assert done.returncode == 1
    said, remedy = done.stderr.splitlines()
    assert "installing system packages: gcc libc6-dev" in said
    assert "apt-get not found: install the equivalents of gcc libc6-dev" in remedy


def test_setup_refuses_a_python_that_is_missing_broken_or_old(tmp_path: Path) -> None:
    done = setup(tmp_path, "dirname", PYTHON="python3.99")
    assert (done.returncode, "no python3.99 found" in done.stderr) == (1, True)
    script(tmp_path / "broken", "exit 3")
    assert "broken does not run" in setup(tmp_path, PYTHON="broken").stderr
    script(tmp_path / "old", '[ "$1" = -V ] && echo Python 3.9.2 && exit 0; exit 1')
    done = setup(tmp_path, PYTHON="old")
    assert done.returncode == 1
    assert done.stderr == (
        "topics setup: Python 3.9.2 is too old: Python 3.11 or newer is needed (set PYTHON=python3.11)\n"
    )


FAKE_PYTHON = """
[ "$1" = -V ] && echo Python 3.11.0 && exit 0
[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit 0
[ "$2" = pip ] && [ -e "${{0%/*}}/no-pip" ] && exit 1
[ "$2$4" = pipinstall ] && case "$*" in {cut}) [ -e "{at}/cut" ] && kill -{signal} $PPID && exit 1;; esac
exit 0
"""
STEPS = {"2": "*cffi*", "3": "*stdin", "4": "*-e*"}
"""By step of the setup, how pip is called in it."""


@pytest.fixture
def sigint_not_ignored() -> Iterator[None]:
    """A program that is started with SIGINT ignored, as by `nohup make test &`, cannot be interrupted."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fake_python(at: Path, cut: str = "never", signal: str = "KILL") -> str:
    """Make a Python that kills the setup once it installs what `cut` matches, if there is a file `cut`."""
    script(at / "fake", FAKE_PYTHON.format(at=at, cut=cut, signal=signal))
    script(at / "cc", "exit 0")
    return str(at / "fake")


COMMANDS = ("dirname", "rm", "mkdir", "touch", "cp", "cat", "bash")


@pytest.mark.usefixtures("sigint_not_ignored")
@pytest.mark.parametrize("cut", ["INT", "KILL"])
@pytest.mark.parametrize("step", STEPS)
def test_an_environment_in_which_setup_was_cut_off_is_made_anew(tmp_path: Path, step: str, cut: str) -> None:
    """By Ctrl-C or by a kill; nothing else is named as the reason."""
    venv, fake = tmp_path / "venv", fake_python(tmp_path, STEPS[step], cut)
    (tmp_path / "cut").touch()
    done = setup(tmp_path, *COMMANDS, PYTHON=fake)
    assert done.returncode == (130 if cut == "INT" else -9)
    last = done.stderr.splitlines()[int(step) :]
    assert last == (["topics setup: interrupted: the next run begins anew"] * (cut == "INT"))
    assert not (venv / ".base").exists(), "so that make begins anew"
    (venv / "half").touch()
    (tmp_path / "cut").unlink()
    done = setup(tmp_path, PYTHON=fake)
    assert (done.returncode, "an earlier run was cut off" in done.stderr) == (0, True), done.stderr
    assert not (venv / "half").exists()
    assert (venv / ".base").exists()
    (venv / "mine").touch()
    done = setup(tmp_path, PYTHON=fake)
    assert (done.returncode, (venv / "mine").exists()) == (0, True), "one that is whole stays"


def test_test_tools_that_were_cut_off_are_installed_into_a_new_environment(tmp_path: Path) -> None:
    venv, fake = tmp_path / "venv", fake_python(tmp_path, STEPS["3"])
    assert setup(tmp_path, *COMMANDS, PYTHON=fake).returncode == 0
    (tmp_path / "cut").touch()
    assert setup(tmp_path, PYTHON=fake, argument="test").returncode == -9
    assert (venv / ".base").exists(), "a server may be started"
    (venv / "half").touch()
    (tmp_path / "cut").unlink()
    done = setup(tmp_path, PYTHON=fake, argument="test")
    assert (done.returncode, (venv / "half").exists()) == (0, False), done.stderr
    assert (venv / ".base").exists()
    assert (venv / ".ready").exists()


def test_an_environment_without_a_pip_that_works_gets_one(tmp_path: Path) -> None:
    """One is added; where that does not help, the environment is made anew."""
    venv, fake = tmp_path / "venv", fake_python(tmp_path)
    (venv / "bin").mkdir(parents=True)
    (venv / "mine").touch()
    done = setup(tmp_path, *COMMANDS, PYTHON=fake)
    assert (done.returncode, (venv / "mine").exists()) == (0, True), done.stderr
    (venv / "bin" / "no-pip").touch()
    done = setup(tmp_path, PYTHON=fake)
    assert done.returncode == 0
    assert f"topics setup: pip does not work there: removing {venv}" in done.stderr
    assert not (venv / "mine").exists()
    assert (venv / ".base").exists()


def spark_setup(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/spark_packages.sh with the files of tmp_path, and dirname and sed, on the path."""
    for name in ("dirname", "sed", "head"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    command = ["/bin/bash", str(ROOT / "scripts" / "spark_packages.sh"), str(tmp_path / "venv")]
    env = {"PATH": str(tmp_path), **VERIFY, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def java_of(path: Path, version: str) -> None:
    script(path / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def python_of(path: Path, code: str) -> None:
    (path / "venv" / "bin").mkdir(parents=True)
    script(path / "venv" / "bin" / "python", code)


def test_what_spark_needs_is_used_where_it_is_there(tmp_path: Path) -> None:
    java_of(tmp_path, "21.0.2")
    python_of(tmp_path, "exit 0")
    done = spark_setup(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", ["1.8.0_452", "11.0.2", None])
def test_an_old_java_or_none_is_replaced_and_said(tmp_path: Path, version: str | None) -> None:
    if version is not None:
        java_of(tmp_path, version)
    done = spark_setup(tmp_path)
    assert done.returncode == 1
    assert "Spark needs Java 17 or newer, and apt-get is not found: install one by hand" in done.stderr
    for name in ("apt-get", "sudo", "id"):
        script(tmp_path / name, f'echo "{name} $*"' if name != "id" else "echo 0")
    python_of(tmp_path, "exit 0")
    for name in ("dirname", "sed", "head"):
        (tmp_path / name).unlink()
    done = spark_setup(tmp_path)
    assert (done.returncode, "installing default-jre-headless" in done.stderr) == (0, True), (
        "none of that name is there"
    )
    for candidate, installed in {"(none)": "default-jre-headless", "17.0.15+6-1": "openjdk-17-jre-headless"}.items():
        script(tmp_path / "apt-cache", f"echo 'openjdk-17-jre-headless:'; echo '  Candidate: {candidate}'")
        for name in ("dirname", "sed", "head"):
            (tmp_path / name).unlink()
        done = spark_setup(tmp_path)
        assert (done.returncode, f"installing {installed}" in done.stderr) == (0, True)


def test_the_half_gigabyte_is_said_while_it_loads_and_a_failure_says_how_to_do_without(tmp_path: Path) -> None:
    java_of(tmp_path, "17.0.15")
    python_of(tmp_path, "exit 1")
    done = spark_setup(tmp_path)
    assert done.returncode == 1
    said, remedy = done.stderr.splitlines()
    assert "installing pyspark and pyarrow" in said
    assert "half a gigabyte (SPARK=0 leaves it out)" in said
    assert "SPARK=0 make test" in remedy


def test_spark_is_left_out_on_request(tmp_path: Path) -> None:
    assert spark_setup(tmp_path, SPARK="0").returncode == 0
