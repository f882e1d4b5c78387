"""For all tests."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

from tests.amount import examples

os.environ["TOPICS_VERIFY"] = "1"  # before topics.config is imported, whose default it is; servers inherit it
settings.register_profile("topics", examples(50))
settings.load_profile("topics")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep collected tests out of each turn of the collector: they live to the end."""
    del session
    gc.collect()
    gc.freeze()
