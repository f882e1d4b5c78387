"""The crate walrus-rust 0.2, an embedded write-ahead log in Rust, as a peer of the library.

Its program (`walrus/`) has a loop of its own and prints how many records it wrote, so there are no
latencies of it. It is built by cargo, where that is here.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

from topics.bench.outcome import BenchCheck, LoadOutcome, RoundOutcome
from topics.bench.peers.nats_peer import built_programs
from topics.bench.processes import ProcessError, last_line, run_to_end
from topics.bench.sides import HERE, Progress
from topics.bench.workload import SYNCED, Case

SETTINGS = (
    "io_uring, NoFsync, with which the crate still syncs each batch; `one`: SyncEach; "
    "`read`: AtLeastOnce, persisted every 100 reads, 1 MiB a read"
)
CRATE = Path(__file__).resolve().parent / "walrus"


def walrus_program() -> str | None:
    """Return the load program, built where its source changed; None if that is not possible."""
    return _built(str(built_programs() / "walrus"))[0]


@cache
def _built(target: str) -> tuple[str | None, str]:
    """Build the load program by cargo: try that once. Returns its path, or why there is none."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return None, "cargo is not here, which builds it: install Rust"
    try:
        Path(target).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return None, f"it cannot be built in {target}: {error.strerror}: set XDG_CACHE_HOME to another directory"
    command = [cargo, "build", "--quiet", "--release", "--target-dir", target]
    code, _, errors = run_to_end([*command, "--manifest-path", str(CRATE / "Cargo.toml")])
    if code:
        return None, f"cargo could not build it: {last_line(errors)}: it takes crates from the network"
    return str(Path(target) / "release" / "walrus_load"), ""


def walrus_figures(workload: str, size: int, count: int, seconds: float, scratch: Path) -> tuple[int, float]:
    """Run one workload of its program; return records and seconds. Raises: ProcessError."""
    program = walrus_program()
    if program is None:
        raise ProcessError("walrus could not be built: cargo builds it from crates")
    directory = scratch / "walrus"
    words = [program, workload, str(size), str(count), str(seconds)]
    code, out, errors = run_to_end(words, {"WALRUS_DATA_DIR": str(directory), "WALRUS_QUIET": "1"})
    shutil.rmtree(directory, ignore_errors=True)
    if code:
        raise ProcessError(f"walrus ended with {code}: {errors[-300:]}")
    figures = json.loads(out)
    return int(figures["records"]), float(figures["seconds"])


class WalrusLog:
    """Batches, each of which the crate syncs before it returns, also for class disk; one entry a
    call, each synced, for class fsync.
    """

    name = "walrus"

    def missing(self) -> str:
        return _built(str(built_programs() / "walrus"))[1]

    def at_hand(self) -> str:
        if shutil.which("cargo") is None:
            return self.missing()
        there = (built_programs() / "walrus" / "release" / "walrus_load").exists()
        return HERE if there else "is not here: cargo builds it before its first run, from the network"

    def version(self) -> str:
        return f"walrus-rust 0.2, {SETTINGS}"

    def refuses(self, case: Case) -> str:
        spec = case.workload.loads[0]
        if case.workload.kinds != {"append"} or spec.rate:
            return "it is embedded, and its program has a closed loop only"
        if case.workload.topic.durability != SYNCED and spec.batch == 1:
            return "its program writes batches or synced entries"
        return ""

    def measure(self, case: Case, scratch: Path, progress: Progress) -> RoundOutcome:
        spec, run = case.workload.loads[0], case.workload.run
        progress("running", 0)
        kind = "batch" if spec.batch > 1 else "one"
        records, seconds = walrus_figures(kind, spec.bytes, spec.batch, run.seconds, scratch)
        load = LoadOutcome(
            spec.name, spec.kind, records / seconds, "records/s", records // spec.batch, records, 0, 0, {}
        )
        return RoundOutcome(
            [load], seconds, checks=[BenchCheck("its program ended well", True, f"{records:,} records")]
        )
