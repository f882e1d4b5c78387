"""Fixtures of all scenarios."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _bury_the_dead() -> Iterator[None]:
    """End coroutines of killed processes here, not wherever the collector happens to run next."""
    yield
    gc.collect()
