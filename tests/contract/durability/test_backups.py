"""`POST /v0/backups` and `GET /v0/backups`: a copy of one instant, made beside everything else."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import ABSENT, World

ROOT = "/srv/backups"


@pytest.fixture
def world(make_world: MakeWorld) -> SimWorld:
    world = make_world(backup_dir=ROOT)
    if not isinstance(world, SimWorld):
        pytest.skip("writes to a simulated disk")
    return world


def state(world: World) -> dict[str, Any]:
    backup: dict[str, Any] = world.request("GET", "/v0/backups").json["backup"]
    return backup


def made(world: SimWorld, body: Any = ABSENT) -> dict[str, Any]:
    """The newest backup, once it has ended."""
    begun = world.request("POST", "/v0/backups", body)
    assert begun.status == 200, begun
    for _ in range(200):
        backup = state(world)
        if backup["state"] != "running":
            return backup
        world.advance_ms(20)
    raise AssertionError("the backup does not end")


def test_a_backup_says_where_it_is_and_what_it_took(world: SimWorld) -> None:
    """7.18, 7.19."""
    assert state(world) == {"number": 0, "state": "none"}
    world.write("t", *range(100))
    begun = world.request("POST", "/v0/backups").json["backup"]
    assert (begun["number"], begun["state"]) == (1, "running")
    for _ in range(100):
        world.advance_ms(20)
    backup = state(world)
    assert backup.keys() == {
        *("number", "state", "files", "copied_bytes", "path", "taken_ms", "bytes", "linked_files"),
    }
    assert (backup["number"], backup["state"], backup["linked_files"]) == (1, "done", 0)
    assert backup["path"].startswith(f"{ROOT}/20")
    names = world.ring.disk.contents(backup["path"])
    assert sum(data is not None for data in names.values()) == backup["files"] + 1  # and the manifest
    world.write("t", 1)
    assert made(world)["number"] == 2


def test_a_backup_may_be_made_in_a_folder_of_its_own(world: SimWorld) -> None:
    """7.18/3."""
    assert made(world, {"to": f"{ROOT}/hourly"})["path"].startswith(f"{ROOT}/hourly/20")
    assert made(world, {"to": None})["path"].startswith(f"{ROOT}/20")


@pytest.mark.parametrize(
    "to",
    ["", "/srv", "/srv/backups-of-others", f"{ROOT}/../other", "hourly", f"{ROOT}/a\0b", f"{ROOT}/a\nb", 5, ["x"], "/"],
)
def test_another_place_is_refused_with_the_one_that_may_be_used(world: SimWorld, to: Any) -> None:
    """7.18/3, R-BAK-5."""
    answer = world.request("POST", "/v0/backups", {"to": to})
    assert answer.refusal == (400, "invalid_request", None)
    assert not isinstance(to, str) or "TOPICS_BACKUP_DIR" in answer.json["error"]["message"]
    assert state(world)["state"] == "none"


def test_without_a_directory_for_backups_there_are_none(make_world: MakeWorld) -> None:
    """7.18/3."""
    world = make_world()
    answer = world.request("POST", "/v0/backups")
    assert answer.refusal == (400, "invalid_request", None)
    assert "TOPICS_BACKUP_DIR" in answer.json["error"]["message"]


@pytest.mark.parametrize("body", [[], "x", 5])
def test_what_is_no_request_for_a_backup_is_400(world: SimWorld, body: Any) -> None:
    """7.18/1."""
    assert world.request("POST", "/v0/backups", body).refusal == (400, "invalid_request", None)


def test_null_is_the_directory_of_the_server(world: SimWorld) -> None:
    """R-BAK-5."""
    assert made(world, {"to": None})["path"].startswith(f"{ROOT}/20")


def test_one_backup_at_a_time(world: SimWorld) -> None:
    """7.18/4."""
    world.write("t", *range(100))
    world.request("POST", "/v0/backups")
    assert world.request("POST", "/v0/backups").refusal == (409, "backup_running", None)


def test_a_target_that_fails_is_told_and_nothing_else_changes(world: SimWorld) -> None:
    """R-BAK-3."""
    world.write("t", 1, 2)
    world.ring.faults.fail("write", errno.EIO, path_part=ROOT)
    backup = made(world)
    assert backup["state"] == "failed"
    assert backup["error"].endswith("Input/output error: name another directory")
    world.write("t", 3)
    assert world.data("t") == [1, 2, 3]
    assert made(world)["state"] == "done"


def test_a_backup_has_what_was_acknowledged_before_its_instant_and_nothing_later(world: SimWorld) -> None:
    """R-BAK-1."""
    world.write_records("t", [{"data": n, "tag": str(n)} for n in range(50)], durability="fsync")
    world.delete("t", match="7")
    path = made(world)["path"]
    world.write("t", "later")
    world.delete("t", match="8")
    copied = b"".join(data for name, data in world.ring.disk.contents(path).items() if data and "/wal/" in name)
    assert b"later" not in copied
    world.crash_and_start()
    world.ring.disk.rename(path, "/srv/copied")
    world.config = replace(world.config, data_dir="/srv/copied")
    world.crash_and_start()
    assert world.data("t") == [n for n in range(50) if n != 7]


def test_only_names_of_backups_are_changed_in_the_target(world: SimWorld) -> None:
    """R-BAK-2."""
    world.ring.put_file(f"{ROOT}/notes.txt", b"mine")
    world.ring.put_file(f"{ROOT}/other.partial/x", b"mine, too")
    world.ring.put_file(f"{ROOT}/2020-01-01T00-00-00Z.partial/wal/x", b"what a backup left")
    assert made(world)["state"] == "done"
    names = world.ring.disk.list_directory(ROOT)
    assert names[1:] == ["notes.txt", "other.partial"]
    assert not names[0].endswith(".partial")


def test_a_server_that_stops_gives_its_backup_up(world: SimWorld) -> None:
    """R-BAK-4."""
    world.write("t", *range(100))
    world.ring.slow_ns["write"] = 50_000_000
    world.request("POST", "/v0/backups")
    world.restart()
    world.ring.slow_ns.clear()
    assert world.data("t") == list(range(100))
    assert state(world)["state"] == "none"
    assert made(world)["state"] == "done"
    assert len(world.ring.disk.list_directory(ROOT)) == 1


def test_the_key_must_be_an_admins_of_all_names(make_world: MakeWorld) -> None:
    """7.18/2, R-AUTH-11."""
    world = make_world(api_keys="all:admin,narrow:admin:box-,user:read+write+delete", backup_dir=ROOT)
    for key, status in (("user", 403), ("narrow", 403), ("all", 200)):
        for method in ("GET", "POST"):
            answer = world.request(method, "/v0/backups", ABSENT, {"Authorization": f"Bearer {key}"})
            assert answer.status == status


def test_the_time_of_the_newest_backup_outlives_a_restart(world: SimWorld) -> None:
    """12.1: a timer that stopped before it is noticed after it."""

    def last_success_s() -> float:
        world.advance_ms(20)
        page = world.request("GET", "/v0/metrics").text
        (shown,) = (
            line for line in page.splitlines() if line.startswith("topics_backup_last_success_timestamp_seconds ")
        )
        return float(shown.split()[1])

    assert last_success_s() == 0
    taken_ms = made(world)["taken_ms"]
    world.advance_ms(5000)
    assert made(world)["taken_ms"] > taken_ms
    before = last_success_s()
    world.restart()
    after = last_success_s()
    assert before - 5 <= after <= before
    world.ring.clock.step_wall_ms(365 * 86_400_000)
    made(world)
    world.ring.clock.step_wall_ms(-365 * 86_400_000)
    world.restart()
    assert last_success_s() == pytest.approx(world.ring.clock.now_ms() / 1000, abs=1)
    taken_s = made(world)["taken_ms"] / 1000
    world.advance_ms(60_000)
    world.restart()
    assert last_success_s() == pytest.approx(taken_s, abs=1), "its name is later than that of the year ahead"
