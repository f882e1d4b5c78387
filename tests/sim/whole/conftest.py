"""What all scenarios here share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _bury_the_dead() -> Iterator[None]:
    """Coroutines of killed processes end here, and not wherever the collector happens to run next."""
    yield
    gc.collect()
