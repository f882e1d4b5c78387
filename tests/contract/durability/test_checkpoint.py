"""`POST /v0/checkpoint`: the files of the data directory show what was acknowledged."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import Answer
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import ABSENT, World
from tests.sim.whole.monitors.shown import shown


@pytest.fixture
def make_sim_world(make_world: MakeWorld) -> Callable[..., SimWorld]:
    def make(**settings: Any) -> SimWorld:
        world = make_world(**settings)
        if not isinstance(world, SimWorld):
            pytest.skip("looks into a simulated disk")
        return world

    return make


@pytest.fixture
def sim_world(make_sim_world: Callable[..., SimWorld]) -> SimWorld:
    return make_sim_world()


INVALID = (400, "invalid_request", None)


def checkpoint(world: World, body: Any = ABSENT) -> Answer:
    return world.request("POST", "/v0/checkpoint", body)


def in_files(world: SimWorld) -> tuple[int, dict[str, list[bytes]]]:
    """The newest snapshot's number, and the data of each topic's records."""
    number, topics = shown(world.ring.disk, world.config)
    return number, {name: [text for _, text in sorted(topic.rows.items())] for name, topic in topics.items()}


def test_an_answer_says_which_snapshot_there_is(world: World) -> None:
    """7.9: exactly these fields; the body may be empty."""
    world.write("t", 1)
    for body in (ABSENT, {}, {"wait_ms": 30_000}):
        answer = checkpoint(world, body)
        assert answer.status == 200
        assert set(answer.json) == {"snapshot", "done", "performance"}
        assert answer.json["done"] is True
        assert set(answer.json["performance"]) == {"server_total_ms"}


def test_a_checkpoint_shows_what_was_acknowledged(sim_world: SimWorld) -> None:
    """R-CHK-1: records of each class that has files, deletes of all kinds, topics that are gone."""
    world = sim_world
    for name, durability in (("m", "memory"), ("d", "disk"), ("f", "fsync"), ("e", "ephemeral")):
        world.put(name, durability=durability)
        world.write(name, 1, 2, 3)
    world.write("capped", 1, 2, 3, config={"cap_records": 2})
    world.write("gone", 1)
    assert checkpoint(world).json["done"]
    world.request("POST", "/v0/topics/d", {"records": [{"data": 4, "tag": "x"}]})
    assert checkpoint(world).json["done"]
    assert in_files(world)[1]["d"] == [b"1", b"2", b"3", b"4"]
    world.drop("gone")
    world.delete("d", match="x")
    world.delete("f", before_seq=3)
    world.write("f", 4)
    told = checkpoint(world).json
    number, files = in_files(world)
    assert told["snapshot"] == number
    assert files == {
        "m": [b"1", b"2", b"3"],
        "d": [b"1", b"2", b"3"],
        "f": [b"3", b"4"],
        "e": [],
        "capped": [b"2", b"3"],
    }


def test_requests_share_the_next_checkpoint(sim_world: SimWorld) -> None:
    """R-CHK-2: those that come while one runs wait for another, all for the same."""
    world = sim_world
    world.write("t", *range(50))
    before = in_files(world)[0]
    first = world.ask("POST", "/v0/checkpoint")
    world.wait_until(lambda: running(world), 1000)
    world.write("t", "new")
    more = [world.ask("POST", "/v0/checkpoint") for _ in range(5)]
    numbers = [asked.answer().json["snapshot"] for asked in (first, *more)]
    assert before < numbers[0] < numbers[1]
    assert len(set(numbers[1:])) == 1
    assert in_files(world)[1]["t"][-1] == b'"new"'
    assert metric(world, "topics_checkpoints_total") == 2


def running(world: SimWorld) -> bool:
    assert world.server is not None
    backend: Any = world.server._backend
    return backend.store.checkpointer._running is not None


def metric(world: World, name: str) -> float:
    text = world.request("GET", "/v0/metrics").text
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def test_one_that_takes_longer_goes_on(sim_world: SimWorld) -> None:
    """R-CHK-3: after wait_ms, and with 0 at once; and for a client that leaves."""
    world = sim_world
    world.write("t", *range(50))
    world.ring.sync_factor = 500
    for body in ({"wait_ms": 0}, {"wait_ms": 3}):
        told = checkpoint(world, body).json
        assert (told["done"], told["snapshot"]) == (False, in_files(world)[0])
    left = world.ask("POST", "/v0/checkpoint")
    left.reset()
    world.ring.sync_factor = 1
    world.advance_ms(2000)
    assert len(in_files(world)[1]["t"]) == 50
    assert checkpoint(world).json["done"]


def test_one_that_is_asked_for_again_and_again_is_done_in_the_end(sim_world: SimWorld) -> None:
    """R-CHK-6: though each checkpoint takes longer than any of the requests waits, and others ask all the time."""
    world = sim_world
    world.write("t", *range(50))
    world.ring.sync_factor = 500
    other = world.ask("POST", "/v0/checkpoint")
    world.wait_until(lambda: running(world), 1000)
    world.write("t", "new")
    told = checkpoint(world, {"wait_ms": 3}).json
    assert set(told) == {"snapshot", "done", "checkpoint", "performance"}
    asked = 0
    while not told["done"]:
        number = told["checkpoint"]
        told = checkpoint(world, {"wait_ms": 3, "checkpoint": number}).json
        assert told.get("checkpoint", number) == number
        checkpoint(world, {"wait_ms": 0})
        asked += 1
    assert asked > 4
    assert other.answer().json["snapshot"] < told["snapshot"]
    assert in_files(world)[1]["t"][-1] == b'"new"'
    before = metric(world, "topics_checkpoints_total")
    assert checkpoint(world, {"checkpoint": number}).json["done"]
    assert metric(world, "topics_checkpoints_total") == before, "it was over"


def test_after_a_restart_or_a_failure_another_one_is_made(make_sim_world: Callable[..., SimWorld]) -> None:
    """R-CHK-6: also for numbers that no server gave, and for one that a checkpoint of this process has again."""
    world = make_sim_world(disk_reserve_bytes=64 << 10)
    world.write("t", 1)
    world.ring.sync_factor = 500
    number = checkpoint(world, {"wait_ms": 0}).json["checkpoint"]
    world.crash()
    world.ring.sync_factor = 1
    world.start()
    assert checkpoint(world, {"checkpoint": number}).json["done"]
    assert in_files(world)[1]["t"] == [b"1"]
    assert checkpoint(world, {"checkpoint": 2**64 - 1}).json["done"]
    world.write("t", "new" * 1000)
    world.fill_disk()
    told = checkpoint(world, {"wait_ms": 0}).json
    world.advance_ms(2000)
    again = {"checkpoint": told["checkpoint"]}
    assert checkpoint(world, again).refusal == (500, "internal", {"reason": "disk_full"})
    world.free_disk()
    world.advance_ms(3000)
    assert checkpoint(world, again).json["done"]
    assert in_files(world)[1]["t"][-1] == b'"' + b"new" * 1000 + b'"'


def test_the_time_is_clamped(sim_world: SimWorld) -> None:
    """7.9, 5.2: 30000 ms; also when nothing is said."""
    world = sim_world
    world.write("t", 1)
    world.ring.sync_factor = 1_000_000
    for body in (ABSENT, {"wait_ms": 4_000_000_000}):
        asked = world.ask("POST", "/v0/checkpoint", body)
        world.advance_ms(29_900)
        assert asked.waiting
        world.advance_ms(150)
        assert asked.answer().json["done"] is False


def test_a_full_disk_is_told(make_sim_world: Callable[..., SimWorld]) -> None:
    """R-CHK-4, R-DUR-16: records are only in the log; deletes show all the same, and all does once there is space."""
    world = make_sim_world(disk_reserve_bytes=64 << 10)
    world.write("t", 1, 2)
    assert checkpoint(world).json["done"]
    world.write("t", "new" * 1000)
    world.delete("t", before_seq=2)
    world.fill_disk()
    told = checkpoint(world)
    assert told.refusal == (500, "internal", {"reason": "disk_full"})
    world.free_disk()
    world.advance_ms(3000)
    assert checkpoint(world).json["done"]
    assert in_files(world)[1]["t"] == [b"2", b'"' + b"new" * 1000 + b'"']


def test_a_failing_disk_is_told(sim_world: SimWorld) -> None:
    """R-CHK-4, R-DUR-16: at the failure, and from then on; no file's name is shown."""
    world = sim_world
    world.write("t", 1)
    world.fail_storage("sync", errno.EIO)
    for _ in range(2):
        told = checkpoint(world)
        assert told.refusal == (500, "internal", {"reason": "read_only"})
        assert "/srv" not in told.text


def test_a_server_that_stops_makes_no_more_of_them(sim_world: SimWorld) -> None:
    """R-CHK-5, R-LIFE-7."""
    world = sim_world
    world.write("t", 1)
    world.ring.sync_factor = 500
    asked = [world.ask("POST", "/v0/checkpoint") for _ in range(3)]
    assert all(each.waiting for each in asked)
    world.ring.sync_factor = 1
    world.begin_stop()
    for each in asked:
        assert each.answer().refusal == (503, "shutting_down", None)
    assert world.finish_stop() == 0


def test_those_that_wait_are_few(make_world: MakeWorld) -> None:
    """7.9/2: together with waits for news (7.8/3)."""
    world = make_world(max_waits=1)
    world.put("t")
    waiting = world.ask("POST", "/v0/wait", {"topics": {"t": 0}, "wait_ms": 30_000})
    full = (429, "throttled", {"limit": "max_waits", "max": 1})
    assert checkpoint(world).refusal == full
    assert checkpoint(world, {"wait_ms": 0}).status == 200
    waiting.reset()
    world.advance_ms(10)
    assert checkpoint(world).json["done"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        "x",
        {"wait_ms": -1},
        {"wait_ms": None},
        {"wait_ms": "1"},
        {"wait_ms": 2**32},
        {"checkpoint": "5"},
        {"checkpoint": -1},
    ],
)
def test_what_is_no_request_for_one_is_400(world: World, body: Any) -> None:
    """7.9/1."""
    assert checkpoint(world, body).refusal == INVALID


def test_the_key_must_be_an_admins(make_world: MakeWorld) -> None:
    """4.4: a checkpoint belongs to no topic, so names do not matter."""
    world = make_world(api_keys="narrow:admin:box-,user:read+write+delete")
    for key, status in (("narrow", 200), ("user", 403)):
        assert world.request("POST", "/v0/checkpoint", ABSENT, {"Authorization": f"Bearer {key}"}).status == status
