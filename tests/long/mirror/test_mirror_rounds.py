"""The rounds of `make mirror`, with few kills."""

from __future__ import annotations

from pathlib import Path

from tests.long.mirror.mirror_rounds import run_round


def test_a_promotion_after_kills_of_both_sides_has_what_it_states(tmp_path: Path) -> None:
    assert run_round(tmp_path, seed=3, kills=2).records
