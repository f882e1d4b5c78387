"""The worlds tests run in: simulated, or with `pytest tests/contract --live` (or TOPICS_TEST_LIVE=1) processes.

With --cores N live servers have several cores, without the tests of `several_cores.py`.
With --http2 (or TOPICS_TEST_HTTP2=1) requests go over HTTP/2; a test of HTTP/1 itself is marked `http1` and left out.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.several_cores import why_left_out
from tests.contract.world.http2_bytes import Http2Connection
from tests.contract.world.live_world import ExecutedWorld, LiveWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection, World

MakeWorld = Callable[..., World]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="the contract's tests on real `topics serve` processes")
    parser.addoption("--http2", action="store_true", help="the contract's tests over HTTP/2")
    parser.addoption("--cores", default="", help="with --live: how many cores each server has")


def pytest_itemcollected(item: pytest.Item) -> None:
    # The coroutines of a server that was killed never end, and say so when they are collected, in
    # whatever test.
    item.add_marker(pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"))
    item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    if isinstance(item, pytest.Function) and item.function.__module__ in getattr(item.module, "LATER", ()):
        item.add_marker(pytest.mark.slow)  # a part of a variant that only `make variants` runs


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_live(config):
        return
    again = [item for item in items if isinstance(item, pytest.Function) and hasattr(item.module, "variant")]
    config.hook.pytest_deselected(items=again)  # live servers have none of their settings
    items[:] = [item for item in items if item not in again]
    for item in items:
        if isinstance(item, pytest.Function) and live_options(config) and (reason := why_left_out(item)):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", autouse=True)
def _bury_the_dead() -> Iterator[None]:
    """Coroutines end here, as in tests/engine."""
    yield
    gc.collect()


def is_live(config: pytest.Config) -> bool:
    return bool(config.getoption("--live", default=False)) or os.environ.get("TOPICS_TEST_LIVE") == "1"


def live_options(config: pytest.Config) -> dict[str, Any]:
    """Settings of all live servers."""
    cores = config.getoption("--cores", default="")
    return {"cores": cores} if cores else {}


def sim_options() -> dict[str, Any]:
    """TOPICS_TEST_SIM="seed=7 hot_tail_bytes=4096": another machine or other settings for the whole suite.

    A seed other than 0 has completions in any order and bytes in pieces.
    """
    options: dict[str, Any] = {"only_woken": True}
    for word in os.environ.get("TOPICS_TEST_SIM", "").split():
        name, _, value = word.partition("=")
        options[name] = int(value) if value.isdigit() else value
    if options.get("seed"):
        options |= {"shuffle": True, "split": True}
    return options


@pytest.fixture
def http2(request: pytest.FixtureRequest) -> bool:
    """Whether requests go over HTTP/2; `test_over_http2.py` overrides it."""
    return bool(request.config.getoption("--http2", default=False)) or os.environ.get("TOPICS_TEST_HTTP2") == "1"


@pytest.fixture
def variant() -> dict[str, Any]:
    """Settings for all tests of a module; `test_over_h11.py` and `test_in_the_lane.py` override it."""
    return {}


@pytest.fixture
def connection_type(request: pytest.FixtureRequest, http2: bool) -> type[Connection]:
    if http2 and request.node.get_closest_marker("http1"):
        pytest.skip("about HTTP/1 itself")
    return Http2Connection if http2 else Connection


@pytest.fixture
def make_world(
    request: pytest.FixtureRequest, tmp_path: Path, connection_type: type[Connection], variant: dict[str, Any]
) -> Iterator[MakeWorld]:
    """Starts a server with settings (fields of Config) of its own."""
    made: list[World] = []
    live = is_live(request.config) or "cores" in variant

    def make(**settings: Any) -> World:
        world: World
        if live:
            directory = tmp_path / f"{len(made)}" if made else tmp_path  # two servers share none
            directory.mkdir(exist_ok=True)
            world = LiveWorld(directory, **(live_options(request.config) | variant | settings))
        else:
            world = SimWorld(**(sim_options() | variant | settings))
        world.connection_type = connection_type
        made.append(world)
        world.start()
        return world

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest, connection_type: type[Connection], variant: dict[str, Any]
) -> Iterator[World]:
    """A ready server with default settings and no topics."""
    if is_live(request.config) or "cores" in variant:
        live: LiveWorld = request.getfixturevalue("shared_live_world")(**live_options(request.config) | variant)
        live.connection_type = connection_type
        yield live
        live.connection_type = Connection
        return
    simulated = SimWorld(**(sim_options() | variant))
    simulated.connection_type = connection_type
    simulated.start()
    yield simulated
    simulated.close()


@pytest.fixture(scope="session")
def shared_live_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveWorld]]:
    """Gives one server of some settings to test after test, and a new one after a test that ended it."""
    current: list[LiveWorld] = []

    def take(**settings: Any) -> LiveWorld:
        same = bool(current) and current[0].settings.get("cores") == settings.get("cores")
        if current and not (same and current[0].clear()):
            current.pop().close()
        if not current:
            current.append(LiveWorld(tmp_path_factory.mktemp("live"), **settings))
            current[0].start()
        return current[0]

    yield take
    for world in current:
        world.close()


@pytest.fixture
def live_world(tmp_path: Path) -> Iterator[LiveWorld]:
    """A real process, in every run; the test starts it."""
    world = LiveWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def executed_world(tmp_path: Path) -> Iterator[LiveWorld]:
    """`live_world` for tests of a process's memory."""
    world = ExecutedWorld(tmp_path)
    yield world
    world.close()
