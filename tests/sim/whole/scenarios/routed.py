"""Routers and topics of scenarios about routers."""

from __future__ import annotations

from typing import Any

from tests.contract.world.sim_world import SimWorld


def route(world: SimWorld, source: str, dest: str, name: str = "r", **fields: Any) -> None:
    answer = world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields})
    assert answer.status == 201, answer.text


def routers(world: SimWorld) -> list[Any]:
    found: list[Any] = world.request("GET", "/v0/routers").json["routers"]
    return found


def topics_by_shard(world: SimWorld, **config: Any) -> tuple[list[str], list[str]]:
    """Eight new topics, as two shards have them: at least two each."""
    assert world.server is not None
    assert world.server.engine is not None
    engine: Any = world.server.engine
    core = engine._core
    shards: tuple[list[str], list[str]] = ([], [])
    for name in "abcdefgh":
        world.put(name, **config)
        shards[core.log.shard_of(core.registry.by_name[name].id)].append(name)
    assert min(map(len, shards)) >= 2
    return shards
