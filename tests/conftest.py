"""For all tests."""

from __future__ import annotations

import gc
import os

import pytest

os.environ["TOPICS_VERIFY"] = "1"  # before topics.config is imported, whose default it is; servers inherit it


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives to the end: no need to go through it at each turn of the collector."""
    del session
    gc.collect()
    gc.freeze()
