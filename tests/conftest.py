"""For all tests."""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives to the end: the collector need not go through it at each turn, and at each module's end."""
    del session
    gc.collect()
    gc.freeze()
