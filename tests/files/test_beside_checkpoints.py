"""Readers beside checkpoints, crashes and full disks see no wrong record, and miss none without a word."""

from __future__ import annotations

import pytest

from tests.files.beside import TINY, run


@pytest.mark.parametrize("seed", [2, 9])
def test_a_reader_between_any_two_steps_of_the_server_sees_no_wrong_record(seed: int) -> None:
    beside = run(seed, 10)
    assert beside.rows or beside.busy is TINY
