"""R-DUR-2: a part of the bytes of a small store; `make rot` does all of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.rot import rot

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")


def test_a_byte_that_rots_is_found_and_no_wrong_record_is_served() -> None:
    counts: Counter[str] = Counter()
    assert list(rot(797, counts)) == []
    assert counts["found by fsck"] > 10
    assert counts["stopped the start"]
