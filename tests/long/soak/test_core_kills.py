"""A few lives of several cores; `python -m tests.long.soak.core_kills` runs any number of them."""

from pathlib import Path

import pytest

from tests.long.soak.core_kills import run


@pytest.mark.slow
@pytest.mark.parametrize("io", ["auto", "portable"])
def test_cores_that_are_killed_lose_and_double_nothing_also_with_another_number_of_them(
    tmp_path: Path, io: str
) -> None:
    counts = run(tmp_path, lives=3, seed=5, io=io)
    assert counts["killed cores"] > 2
    assert counts["writes"] > 100
    assert counts["lists"] > 10
