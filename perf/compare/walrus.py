"""The crate walrus-rust 0.2, an embedded write-ahead log in Rust, built by cargo where that is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from perf.servers import BUILD, HERE

SETTINGS = "io_uring, no sync by time; `one`: SyncEach; `read`: AtLeastOnce, persisted every 100 reads, 1 MiB a read"


@cache
def walrus_program() -> str | None:
    """The load program, built once for each change of its source; None without cargo, or if it does not build."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    target = BUILD / "walrus"
    command = [cargo, "build", "--quiet", "--release", "--target-dir", str(target)]
    manifest = HERE / "compare" / "walrus" / "Cargo.toml"
    done = subprocess.run([*command, "--manifest-path", str(manifest)], capture_output=True, text=True, check=False)
    return None if done.returncode else str(target / "release" / "walrus_load")


def walrus_rate(workload: str, size: int, count: int, seconds: float, scratch: Path) -> float:
    """Records a second of one workload; see perf/compare/walrus/src/main.rs."""
    program = walrus_program()
    assert program is not None, "walrus is not here: cargo builds it"
    directory = scratch / "walrus"
    env = {**os.environ, "WALRUS_DATA_DIR": str(directory), "WALRUS_QUIET": "1"}
    try:
        command = [program, workload, str(size), str(count), str(seconds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures = json.loads(done.stdout)
    return float(figures["records"] / figures["seconds"])
