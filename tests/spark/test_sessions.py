"""The session's checks, without a session: Java, pyspark's version, settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topics.spark.errors import OptionError
from topics.spark.sessions import check_java, check_version, defaults


def java(folder: Path, release: str | None) -> str:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return str(folder)


@pytest.mark.parametrize("release", ["17", "17.0.15", "21.0.1", "25-ea", None])
def test_java_17_and_newer_pass_and_so_does_one_that_does_not_say(tmp_path: Path, release: str | None) -> None:
    check_java({"JAVA_HOME": java(tmp_path / "j", release)}, None)


@pytest.mark.parametrize(("release", "shown"), [("1.8.0_452", "8"), ("11.0.2", "11"), ("16", "16")])
def test_an_old_java_is_told_with_the_remedy(tmp_path: Path, release: str, shown: str) -> None:
    home = java(tmp_path / "j", release)
    words = re.escape(f"{home}/bin/java is {shown}: install Java 17 or newer")
    with pytest.raises(OptionError, match=words):
        check_java({"JAVA_HOME": home}, None)
    with pytest.raises(OptionError, match=words):
        check_java({}, f"{home}/bin/java")


def test_a_java_on_the_path_is_followed_through_its_links(tmp_path: Path) -> None:
    home = java(tmp_path / "jvm" / "j", "11")
    os.symlink(f"{home}/bin/java", tmp_path / "java")
    with pytest.raises(OptionError, match="is 11"):
        check_java({}, str(tmp_path / "java"))


def test_no_java_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"the PATH has none: install Java 17 .*default-jre-headless"):
        check_java({}, None)
    with pytest.raises(OptionError, match=f"JAVA_HOME is {tmp_path}, and there is no bin/java: correct it"):
        check_java({"JAVA_HOME": str(tmp_path)}, None)


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0", "4.10.0", "5.0.0.dev1"])
def test_a_pyspark_that_streams_python_sources_passes(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.1", "4.1.4", "4.2.0"])
def test_an_older_pyspark_is_told_with_the_remedy(version: str) -> None:
    with pytest.raises(OptionError, match=rf"pyspark {version} is too old .*pip install 'pyspark>=4\.2\.1,<5'"):
        check_version(version)


def test_one_machine_gets_as_many_shuffle_partitions_as_cores_and_a_cluster_sparks_own() -> None:
    assert defaults("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert defaults("local")["spark.sql.shuffle.partitions"] == "1"
    assert defaults("local[2,3]")["spark.sql.shuffle.partitions"] == "2"
    assert defaults("local[*]")["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    assert "spark.sql.shuffle.partitions" not in defaults("spark://h:7077")


def test_the_documented_import_gives_functions_in_a_fresh_interpreter() -> None:
    code = "from topics.spark import register, session; print(callable(register), callable(session))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
