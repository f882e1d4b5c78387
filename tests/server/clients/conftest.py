"""For the tests of clients: one server for all, which has no topics when a test begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.contract.world.live_world import LiveWorld
from tests.embedded.conftest import SMALL


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveWorld]:
    world = LiveWorld(tmp_path_factory.mktemp("server"), io="portable")
    world.start()
    yield world
    world.close()


@pytest.fixture
def url(shared_server: LiveWorld) -> str:
    """The address of a server without topics."""
    host, port = shared_server.address
    found = f"http://{host}:{port}"
    with topics.connect(found) as log:
        for router in log.routers():
            log.delete_router(router.name)
        for state in log.topics():
            log.delete_topic(state.name)
    return found


PREPARED: dict[str, Callable[[Any], object]] = {
    "test_library_queues": lambda log: log.put_topic("jobs", type="queue"),
    "test_library_routers": lambda log: log.put_topic("a"),
    "test_library_readers": lambda log: log.append("orders", list(range(1, 11))),
    "test_misuse": lambda log: log.append("t", [1, 2, 3]),
}
"""By module of the library's tests, what its fixture `log` puts into the log."""


@pytest.fixture
def log(url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    with topics.connect(url) as client:
        prepare = PREPARED.get(request.function.__module__.rpartition(".")[2])
        if prepare is not None:
            prepare(client)
        yield client


@pytest.fixture(params=["directory", "server"])
def any_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[topics.AnyLog]:
    if request.param == "directory":
        with topics.open(tmp_path / "data", io="portable", **SMALL) as log:
            yield log
    else:
        with topics.connect(request.getfixturevalue("url")) as client:
            yield client
