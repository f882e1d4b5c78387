"""What was found around routers, each as the scenario it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.sim_world import SimWorld
from tests.sim.core import LATENCY_NS
from topics.store.replay import ShardReplay

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_MS = 1_000_000


def _route(world: SimWorld, source: str, dest: str, name: str = "r", **fields: Any) -> None:
    answer = world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields})
    assert answer.status == 201, answer.text


def _routers(world: SimWorld) -> list[Any]:
    found: list[Any] = world.request("GET", "/v0/routers").json["routers"]
    return found


def _topics_by_shard(world: SimWorld, **config: Any) -> tuple[list[str], list[str]]:
    """Eight new topics, as two shards have them: at least two each."""
    assert world.server is not None
    assert world.server.engine is not None
    core = world.server.engine._core
    shards: tuple[list[str], list[str]] = ([], [])
    for name in "abcdefgh":
        world.put(name, **config)
        shards[core.log.shard_of(core.registry.by_name[name].id)].append(name)  # type: ignore[attr-defined]
    assert min(map(len, shards)) >= 2
    return shards


# --- copies by position ----------------------------------------------------------------------------------------------
def test_copies_of_records_on_their_way_when_the_router_was_made_survive_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-RTR-16, R-DUR-3. Their frames lie before the router's, perhaps in a piece of the log that was read before."""
    monkeypatch.setitem(ShardReplay.__init__.__kwdefaults__, "chunk_bytes", 32768)  # type: ignore[arg-type]
    world = SimWorld(commit_in_place_max_us=0)
    world.start()
    for name in "sdo":
        world.put(name)
    world.write("o", 0)
    world.write("s", 0)
    world.advance_ms(100)
    monkeypatch.setitem(LATENCY_NS, "write", 10 * _MS)
    body = {"records": [{"data": "x" * 5000}] * 4}
    early = world.ask("POST", "/v0/topics/s", body)
    world.advance_ms(2)
    world.ask("POST", "/v0/topics/o", body)
    world.advance_ms(1)
    made = world.ask("PUT", "/v0/routers/r", {"source": "s", "dest": "d"})
    assert (early.answer().status, made.answer().status) == (200, 201)
    monkeypatch.setitem(LATENCY_NS, "write", 30_000)
    assert len(world.data("d")) == 4
    world.crash_and_start()
    assert len(world.data("d")) == 4
    world.close()
