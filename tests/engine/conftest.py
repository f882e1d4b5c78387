"""Fixtures that all modules here share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _bury_the_dead() -> Iterator[None]:
    """Coroutines of stores that were left as they were end here.

    Collected within `ast.parse`, in a test that comes later, they make it fail: CPython 3.11 counts its depth wrong
    then (SystemError: recursion depth mismatch).
    """
    yield
    gc.collect()


@pytest.fixture
def no_old_garbage() -> Iterator[None]:
    """Collect nothing in this test, which counts calls, lines or bytes: old garbage would add its own."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
