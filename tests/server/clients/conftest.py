"""For the tests of clients: one server for all, which has no topics when a test begins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.contract.world.live_world import LiveWorld
from tests.embedded.conftest import SMALL
from tests.server.clients.called_twin import Called, LoopThread


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


@pytest.fixture(params=["client", "client of asyncio", "log of asyncio"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The client or twin for asyncio that the tests of the library ask in the place of a log."""
    with _opened(request, tmp_path) as found:
        prepare = PREPARED.get(request.function.__module__.rpartition(".")[2])
        if prepare is not None:
            prepare(found)
        yield found


@contextmanager
def _opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "client":
        with topics.connect(request.getfixturevalue("url")) as client:
            yield client
        return
    if "append_soon" in inspect.getsource(request.function):
        pytest.skip("append_soon has no twin for asyncio")
    with LoopThread() as thread:
        if request.param == "log of asyncio":
            with topics.open(tmp_path / "data", io="portable", **SMALL) as opened:
                yield Called(opened.aio, thread, aio=opened.aio, close=opened.close)
        else:
            url = request.getfixturevalue("url")
            client, in_loops_of_tests = topics.AsyncClient(url), topics.AsyncClient(url)
            yield Called(client, thread, aio=in_loops_of_tests)
            thread.run(client.close())
            in_loops_of_tests.drop()


@pytest.fixture(params=["directory", "server"])
def any_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[topics.AnyLog]:
    if request.param == "directory":
        with topics.open(tmp_path / "data", io="portable", **SMALL) as log:
            yield log
    else:
        with topics.connect(request.getfixturevalue("url")) as client:
            yield client
