"""Tiny runs of all measurements, so that none rots: `make perf-smoke`. Some rooms have their own beside their tests."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [
        "one_write",
        "lone",
        "live",
        "grouped",
        "routed_records",
        "strict",
        "file_batches",
        "producers",
        "cold",
        "start_costs",
        "footprint",
        "loop_echo",
        "json_scan",
        "goals --only tails,embedded",
        "peers --only reads",
        "embedded_wal --only bytes,flush,nowait,beside",
        "embedded_wal --only bound,sizes",
        "peers --only sustained",
        "before_after . --only reads",
        "named_readers",
        "spikes",
        "spikes --lone --classes disk",
        "pipelines",
        "client_tail",
        "cli_help",
        "cold_lines",
        "many_topics",
        "core_costs",
    ],
)
def test_a_tiny_run_of_each_measurement_gives_its_figures(question: str) -> None:
    name, *options = question.split()
    if name == "loop_echo":
        pytest.importorskip("uvloop", reason="uvloop is missing: pip install uvloop")
    if name == "file_batches":
        pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'topics-log[arrow]'")
    command = [sys.executable, "-m", f"perf.{name}", "--smoke", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if name == "live" and done.stderr.startswith("perf.live: ") and "this needs" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert any(character.isdigit() for character in done.stdout)
