"""The contract with every plain request in the lane, also of a lone connection: few tests would meet it otherwise.

A part is in every run, all of it in `make variants`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tests.contract.records import test_bytes, test_retention
from tests.contract.world.sim_world import SimWorld

_BORROWED = [
    import_module(name)
    for name in (
        "tests.contract.records.test_bytes",
        "tests.contract.records.test_deletion_and_nodes",
        "tests.contract.durability.test_durability",
        "tests.contract.records.test_idempotency",
        "tests.contract.queues.test_queues",
        "tests.contract.records.test_reads",
        "tests.contract.requests.test_cors",
        "tests.contract.requests.test_requests",
        "tests.contract.requests.test_strict",
        "tests.contract.records.test_retention",
        "tests.contract.routers.test_routers",
        "tests.contract.records.test_sequence",
        "tests.contract.requests.test_transport",
        "tests.contract.records.test_writes",
    )
]
LATER = frozenset(
    f"tests.contract.{name}"
    for name in (
        "queues.test_queues",
        "records.test_deletion_and_nodes",
        "requests.test_cors",
        "requests.test_requests",
        "routers.test_routers",
    )
)
"""Modules with few plain requests, or about those that the lane leaves to the general path."""
lossy = test_retention.lossy
mixed = test_bytes.mixed


@pytest.fixture
def variant() -> dict[str, Any]:
    return {"all_in_lane": True, "http_lane": "auto"}


def test_plain_writes_and_reads_do_take_the_lane(world: SimWorld) -> None:
    """R-NET-3: so the tests of this module are about it."""
    world.write_singly("t", *range(9))
    assert world.data("t") == list(range(9))
    assert world.server is not None
    assert world.server.lane is not None
    assert world.server.lane.taken >= 7


def _borrow(module: ModuleType) -> None:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            globals()[f"{name}_in_the_lane"] = test


for _module in _BORROWED:
    _borrow(_module)
