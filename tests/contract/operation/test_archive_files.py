"""`GET /v0/archive` and its files: what a program that copies the archive reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import Answer
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World

ARCHIVE = "/srv/archive"


@pytest.fixture
def world(make_world: MakeWorld) -> SimWorld:
    world = make_world(archive_dir=ARCHIVE, archive_every_ms=50, archive_piece_bytes=4096)
    if not isinstance(world, SimWorld):
        pytest.skip("writes to a simulated disk")
    return world


def state(world: World) -> dict[str, Any]:
    archive: dict[str, Any] = world.request("GET", "/v0/archive").json["archive"]
    return archive


def piece(world: World, path: str, **query: Any) -> Answer:
    query = {"timeline": state(world)["timeline"], "path": path} | query
    return world.request("GET", "/v0/archive/file?" + "&".join(f"{name}={value}" for name, value in query.items()))


def archived(world: SimWorld) -> dict[str, Any]:
    """The state once all that is written by now is in it, and a base."""
    until = world.ring.clock.now_ms()
    for _ in range(400):
        world.advance_ms(50)
        if (found := state(world))["upto_ms"] > until and found["bases"]:
            return found
    raise AssertionError(f"the archive does not go on: {found}")


def test_the_state_says_where_the_archive_ends(world: SimWorld) -> None:
    """7.20, R-ARC-1."""
    world.write("t", *range(100))
    found = archived(world)
    assert found.keys() == {"timeline", "now_ms", "upto_ms", "shards", "holes", "bases"}
    assert found["holes"] == []
    assert found["upto_ms"] < found["now_ms"]
    end = found["shards"]["0"]
    path = f"{ARCHIVE}/{found['timeline']}/log/shard-00/wal-{end['file']:016x}.log"
    assert len(world.ring.disk.contents(ARCHIVE)[path] or b"") >= end["bytes"]
    world.write("t", 1)
    assert archived(world)["shards"]["0"]["bytes"] > end["bytes"]


def test_the_state_of_an_idle_log_goes_on(world: SimWorld) -> None:
    """7.20."""
    archived(world)
    world.advance_ms(20_000)
    assert state(world)["now_ms"] - state(world)["upto_ms"] <= 100


def test_all_bytes_of_a_file_come_in_pieces(world: SimWorld) -> None:
    """7.21, R-ARC-3."""
    world.write("t", *("x" * 1000 for _ in range(20)))
    found = archived(world)
    end = found["shards"]["0"]
    path = f"log/shard-00/wal-{end['file']:016x}.log"
    data = b""
    while some := piece(world, path, offset=len(data)).body:
        assert len(some) <= 4096
        data += some
    assert data == world.ring.disk.contents(ARCHIVE)[f"{ARCHIVE}/{found['timeline']}/{path}"]
    assert len(data) > 4096
    answer = piece(world, path, offset=8, bytes=16)
    assert (answer.status, answer.header("content-type")) == (200, "application/octet-stream")
    assert answer.body == data[8:24]
    assert piece(world, path, bytes=0).body == b""
    assert piece(world, path, offset=1 << 63).body == b""
    manifest = f"bases/{found['bases'][-1]}/backup.json"
    assert b'"taken_ms"' in piece(world, manifest).body


@pytest.mark.parametrize(
    "path",
    [
        *("", "log", "log/shard-00", "../topics.json", "log/../../x", "/etc/passwd", "archive.json"),
        *("bases/x/backup.json", "log//x", "log/.x", "log/shard-00/wal-ffffffffffffffff.log", "log/%00"),
        "log/" + "x/" * 400,
    ],
)
def test_what_the_archive_has_not_is_404(world: SimWorld, path: str) -> None:
    """7.21/2, R-ARC-3."""
    archived(world)
    assert piece(world, path).refusal == (404, "not_found", None)


@pytest.mark.parametrize("timeline", ["", "..", "2026-11-27T12-32-23Z-5f3a9c01", "a/b"])
def test_another_timeline_is_404(world: SimWorld, timeline: str) -> None:
    """7.21/2, R-ARC-2."""
    found = archived(world)
    manifest = f"bases/{found['bases'][-1]}/backup.json"
    assert piece(world, manifest, timeline=timeline).refusal == (404, "not_found", None)


def test_without_an_archive_both_are_refused_with_the_remedy(make_world: MakeWorld) -> None:
    """7.20/2, 7.21/1."""
    world = make_world()
    for path in ("/v0/archive", "/v0/archive/file?path=log/x"):
        answer = world.request("GET", path)
        assert answer.refusal == (400, "invalid_request", None)
        assert "TOPICS_ARCHIVE_DIR" in answer.json["error"]["message"]


def test_the_key_must_be_an_admins_of_all_names(make_world: MakeWorld) -> None:
    """7.20/1, 7.21/1, R-AUTH-11."""
    world = make_world(api_keys="all:admin,narrow:admin:box-,user:read+write+delete", archive_dir=ARCHIVE)
    for key, status in (("user", 403), ("narrow", 403), ("all", 200)):
        answer = world.request("GET", "/v0/archive", headers={"Authorization": f"Bearer {key}"})
        assert answer.status == status
        answer = world.request("GET", "/v0/archive/file", headers={"Authorization": f"Bearer {key}"})
        assert answer.status == (404 if status == 200 else 403)


def test_a_target_that_fails_answers_with_an_error(world: SimWorld) -> None:
    """7.21."""
    found = archived(world)
    world.ring.faults.fail("read", 5, path_part=ARCHIVE)
    answer = piece(world, f"bases/{found['bases'][-1]}/backup.json")
    assert answer.status == 500
    assert piece(world, f"bases/{found['bases'][-1]}/backup.json").status == 200
