"""R-NET-2: endpoints behave identically over HTTP/2.

A part of the suite is in every run, these modules in `make variants`, and all of it runs with --http2.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.contract.records import test_deletion_and_nodes, test_idempotency, test_writes
from tests.contract.requests import test_cors, test_requests, test_responses, test_strict
from tests.contract.streams import test_watch

LATER = frozenset(module.__name__ for module in (test_deletion_and_nodes, test_requests, test_strict))
"""Modules whose subject is the body of a request, which over HTTP/2 is another frame and no other body."""


@pytest.fixture
def http2() -> bool:
    return True


def _borrow(module: ModuleType) -> None:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            globals()[f"{name}_over_http2"] = test


for _module in (
    test_requests,
    test_responses,
    test_writes,
    test_idempotency,
    test_deletion_and_nodes,
    test_watch,
    test_cors,
    test_strict,
):
    _borrow(_module)
