"""The contract over a server of two cores, each a process: a part of what `make cores-contract` runs.

Tests that start a server of their own, with other settings, are left to that.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.contract.records import test_topics, test_wait
from tests.contract.several_cores import LEFT_OUT
from tests.contract.streams import test_filtered_streams


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"cores": "2"}


def _borrow(module: ModuleType) -> None:
    short = module.__name__.rpartition(".")[2]
    for name, test in vars(module).items():
        is_test = name.startswith("test_") and f"{short}.{name}" not in LEFT_OUT
        if is_test and "make_world" not in inspect.signature(test).parameters:
            globals()[f"{name}_over_cores"] = test


for _module in (test_filtered_streams, test_topics, test_wait):
    _borrow(_module)


def test_each_test_that_is_left_out_is_there() -> None:
    places = {path.stem: path for path in Path("tests/contract").rglob("test_*.py")}
    for name in LEFT_OUT:
        module, _, test = name.partition(".")
        assert f"\ndef {test}(" in places[module].read_text(), name
