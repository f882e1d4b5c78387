"""A standalone cluster of Spark on loopback: a master and two workers, from the pyspark that pip has installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKERS = 2
START_S = 120
BARE_PACKAGES = ("pyarrow", "numpy", "numpy.libs", "xxhash")


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Yield the master's URL. Raises AssertionError with the logs when a process does not come up."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(
            directory / "master.log", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        started.append(master)
        url = _wait_for(directory / "master.log", rb"Starting Spark master at (spark://\S+)", master)
        for number in range(WORKERS):
            log = directory / f"worker-{number}.log"
            options = [
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(directory / f"work-{number}"),
            ]
            started.append(_start(log, "worker.Worker", *options, url))
            _wait_for(log, rb"(Successfully registered with master)", started[-1])
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def _start(log: Path, kind: str, *options: str) -> subprocess.Popen[bytes]:
    import pyspark  # noqa: PLC0415 - optional

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYTHONPATH"):
        env.pop(name, None)
    with log.open("wb") as file:
        command = [str(script), f"org.apache.spark.deploy.{kind}", *options]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=env)


def _wait_for(log: Path, pattern: bytes, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        found = re.search(pattern, log.read_bytes())
        if found:
            return found.group(1).decode()
        assert process.poll() is None, f"it ended at once:\n{log.read_text(errors='replace')}"
        time.sleep(0.05)
    raise AssertionError(f"it did not come up in {START_S} s:\n{log.read_text(errors='replace')}")


def bare_python(directory: Path) -> str:
    """Make a Python that has pyarrow, numpy and xxhash, and not this package; returns its path."""
    venv.create(directory, with_pip=False, symlinks=True)
    there = Path(sysconfig.get_paths(vars={"base": str(directory)})["purelib"])
    here = Path(sysconfig.get_paths()["purelib"])
    for name in BARE_PACKAGES:
        if (here / name).exists():
            (there / name).symlink_to(here / name)
    python = str(directory / "bin" / "python")
    script = "import pyarrow, numpy, xxhash\ntry:\n    import topics\nexcept ImportError:\n    print('bare')"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, env=env, cwd=directory)
    assert done.stdout == "bare\n", f"{sys.executable} leads to this package"
    return python


def packed_environment(directory: Path) -> Path:
    """Make an archive of an environment with pyarrow, numpy, xxhash and this package, its C module included."""
    import topics  # noqa: PLC0415 - the package is data here

    bare_python(directory / "env")
    there = Path(sysconfig.get_paths(vars={"base": str(directory / "env")})["purelib"])
    (there / "topics").symlink_to(Path(topics.__file__).parent)
    for module in Path(sysconfig.get_paths()["purelib"]).glob("_cffi_backend*"):
        (there / module.name).symlink_to(module)
    archive = directory / "env.tar.gz"
    subprocess.run(
        ["tar", "--dereference", "--exclude=__pycache__", "--exclude=*/pyarrow/include", "--exclude=*/tests",
         "--use-compress-program=gzip -1", "-C", str(directory / "env"), "-cf", str(archive), "."],
        check=True,
    )  # fmt: skip
    return archive
