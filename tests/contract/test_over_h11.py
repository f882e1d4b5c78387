"""The contract with the reference parser: a part in every run, all with TOPICS_TEST_SIM="http_parser=h11"."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.contract import test_lifecycle, test_requests, test_responses, test_transport, test_watch, test_writes


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"http_parser": "h11"}


def _borrow(module: ModuleType) -> None:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            globals()[f"{name}_over_h11"] = test


for _module in (test_requests, test_responses, test_transport, test_writes, test_lifecycle, test_watch):
    _borrow(_module)
