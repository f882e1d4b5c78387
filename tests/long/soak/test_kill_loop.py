"""A few cycles of the soak tool, so that it does not rot; `make soak` runs 200."""

from pathlib import Path

import pytest

from tests.long.soak.kill_loop import run
from topics.uring.probe import probe


@pytest.mark.parametrize(("io", "cycles"), [("", 3), ("portable", 2)])
def test_killed_and_stopped_servers_lose_nothing_acknowledged_and_give_no_seq_twice(
    tmp_path: Path, io: str, cycles: int
) -> None:
    if not io and not probe().ok:
        pytest.skip(f"no io_uring here: {probe().reason}")
    counts = run(tmp_path, cycles=cycles, seed=3, life_s=0.3, io=io, least_writes=11)
    assert counts["killed"] + counts["stopped"] == cycles
    assert counts["write"] > 20
