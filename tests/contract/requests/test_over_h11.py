"""The contract with the reference parser.

A part is in every run, these modules in `make variants`, and all of it runs with
TOPICS_TEST_SIM="http_parser=h11".
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.contract.operation import test_start_and_stop
from tests.contract.records import test_writes
from tests.contract.requests import test_requests, test_responses, test_transport
from tests.contract.streams import test_watch

LATER = frozenset(module.__name__ for module in (test_requests, test_watch, test_writes))
"""Modules whose subject begins where the parser's work has ended."""


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"http_parser": "h11"}


def _borrow(module: ModuleType) -> None:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            globals()[f"{name}_over_h11"] = test


for _module in (test_requests, test_responses, test_transport, test_writes, test_start_and_stop, test_watch):
    _borrow(_module)
