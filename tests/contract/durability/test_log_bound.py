"""How long the log may get: writers wait, then they are refused, and requests that empty it are accepted (13.5)."""

from __future__ import annotations

from tests.contract.world.queue_client import Queue
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World
from topics.engine.stored_engine import StoredEngine
from topics.store.checkpoint.checkpointer import Checkpointer

BOUND = 256 << 10
BIG = "x" * 30_000


def long_log(**settings: int) -> SimWorld:
    """A server whose log may hold 256 KiB, and whose checkpoints need some time for each topic."""
    world = SimWorld(max_log_bytes=BOUND, **{"max_log_wait_ms": 0, "checkpoint_every_ms": 60_000} | settings)
    world.start()
    return world


def checkpointer(world: SimWorld) -> Checkpointer:
    assert world.server is not None
    backend = world.server._backend
    assert isinstance(backend, StoredEngine)
    return backend.store.checkpointer


def hold_checkpoints(world: SimWorld) -> None:
    """Begin no checkpoint from here on, as if the disk were too slow for them."""
    checkpointer(world)._stopped = True


def let_checkpoints_go(world: SimWorld) -> None:
    checkpointer(world)._stopped = False
    checkpointer(world)._begin()


def fill(world: World, name: str = "t") -> int:
    """Writes until the first refusal; returns how many were taken."""
    for taken in range(100):
        answer = world.request("POST", f"/v0/topics/{name}", {"records": [{"data": BIG}]})
        if answer.status == 429:
            assert answer.error["code"] == "throttled"
            assert answer.header("retry-after") == "1"
            assert 100 <= answer.error["detail"]["retry_after_ms"] <= 10_000
            return taken
        assert answer.status in {200, 201}
    raise AssertionError("the log has no bound")


def metric(world: World, name: str) -> float:
    page = world.request("GET", "/v0/metrics").body.decode()
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"topics_{name} "))


def test_an_append_to_a_log_at_its_bound_is_refused_with_the_time_after_which_to_try_again() -> None:
    """R-LOG-2."""
    world = long_log()
    hold_checkpoints(world)
    taken = fill(world)
    assert BOUND // 2 < taken * len(BIG) <= BOUND + len(BIG)
    assert metric(world, "wal_held_refused_total") >= 1
    assert metric(world, "wal_held_max_bytes") == BOUND
    assert BOUND <= metric(world, "wal_held_bytes") < BOUND + 2 * len(BIG)


def test_who_opts_out_of_backpressure_is_refused_all_the_same() -> None:
    """R-LOG-2: it is no load, it is room."""
    world = long_log()
    hold_checkpoints(world)
    fill(world)
    body = {"records": [{"data": BIG}], "disable_backpressure": True}
    assert world.request("POST", "/v0/topics/t", body).status == 429


def test_a_topic_is_not_made_in_a_log_at_its_bound_and_what_frees_goes_on() -> None:
    """R-LOG-2: deletes, configurations and acks are no appends."""
    world = long_log()
    queue = Queue(world)
    queue.put(1)
    hold_checkpoints(world)
    taken = fill(world)
    assert world.request("PUT", "/v0/topics/new", {}).status == 429
    assert world.request("POST", "/v0/topics/new", {"records": [{"data": BIG}]}).status == 429
    assert world.request("GET", "/v0/topics/new").status == 404
    queue.claim()
    queue.ack(1)
    assert world.delete("t", before_seq=2)["deleted"] == 1
    assert world.request("PUT", "/v0/topics/t", {"cap_records": taken}).status == 200
    assert world.request("DELETE", "/v0/topics/jobs").status == 200


def test_a_checkpoint_that_empties_the_log_lets_appends_go_on() -> None:
    """R-LOG-1."""
    world = long_log()
    hold_checkpoints(world)
    taken = fill(world)
    let_checkpoints_go(world)
    world.wait_until(lambda: metric(world, "wal_held_bytes") < BOUND // 2, 10_000)
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}).json["last_seq"] == taken + 1


def test_a_log_at_its_bound_has_no_more_files_than_one_beyond_it() -> None:
    """R-LOG-2: the file that takes its last writes; another one would be ready and of no use."""
    file_bytes = BOUND // 4
    world = long_log(wal_file_bytes=file_bytes)
    hold_checkpoints(world)
    assert world.server is not None
    backend = world.server._backend
    assert isinstance(backend, StoredEngine)
    log = backend.log

    def ready() -> int:
        return len(log.shards[0].preallocation.ready)

    assert ready() == 1
    fill(world)
    world.advance_ms(100)
    files = log._table.of_log()
    assert ready() == 0
    assert len(files) * file_bytes <= BOUND + file_bytes
    let_checkpoints_go(world)
    world.wait_until(lambda: metric(world, "wal_held_bytes") < BOUND // 2, 10_000)
    world.wait_until(lambda: ready() == 1, 1_000)


def test_a_log_at_half_its_bound_is_emptied_without_waiting_for_a_look() -> None:
    """R-LOG-1: one second of writes would have filled it."""
    world = long_log(checkpoint_wal_bytes=1 << 40)
    began_ms = world.now_ms()
    while not checkpointer(world).counters.done:
        world.request("POST", "/v0/topics/t", {"records": [{"data": BIG}]})
    assert world.now_ms() - began_ms < 500


def test_what_is_written_while_a_requested_checkpoint_runs_is_emptied_right_after_it() -> None:
    """R-LOG-1: the requested one has begun before the log was too long, and takes nothing of it."""
    world = long_log(checkpoint_wal_bytes=1 << 40, checkpoint_topics_per_pass=1)
    for number in range(30):
        world.request("POST", f"/v0/topics/t{number}", {"records": [{"data": 1}]})
    asking = world.connect()
    asking.start("POST", "/v0/checkpoint", {"wait_ms": 30_000})
    world.request("POST", "/v0/topics/t", {"records": [{"data": BIG}] * 8})
    began_ms = world.now_ms()
    assert not checkpointer(world).counters.done
    world.wait_until(lambda: metric(world, "wal_held_bytes") < BOUND // 2, 5_000)
    assert world.now_ms() - began_ms < 500
    assert asking.answer().json["done"]


def test_writers_wait_beyond_half_the_bound_and_are_told_how_long() -> None:
    """R-LOG-1: `throttle_wait_ms`, longer the less room is left."""
    world = long_log(max_log_wait_ms=50)
    hold_checkpoints(world)
    waits: list[float] = []
    while True:
        answer = world.request("POST", "/v0/topics/t", {"records": [{"data": BIG}]})
        if answer.status == 429:
            break
        waits.append(answer.json["performance"].get("throttle_wait_ms", 0))
    assert waits[0] == 0
    assert 0 < waits[-2] < waits[-1] <= 50


def test_a_log_found_long_is_emptied_at_the_start() -> None:
    """R-LOG-1: what a crash left counts."""
    world = long_log()
    world.put("t", durability="fsync")
    hold_checkpoints(world)
    fill(world)
    world.crash()
    world.start()
    assert metric(world, "wal_held_bytes") > BOUND // 2
    world.wait_until(lambda: checkpointer(world).counters.done > 0, 500)
    assert metric(world, "wal_held_bytes") < BOUND // 2


def test_routers_stand_still_at_the_bound_and_go_on_by_themselves() -> None:
    """R-LOG-3."""
    world = long_log(max_log_wait_ms=0)
    world.put("t")
    world.put("copy")
    world.request("PUT", "/v0/routers/r", {"source": "t", "dest": "copy"})
    hold_checkpoints(world)
    taken = fill(world)
    world.advance_ms(1000)
    assert world.request("GET", "/v0/topics/copy").json["head_seq"] < taken
    let_checkpoints_go(world)
    world.advance_ms(2000)
    assert world.request("GET", "/v0/topics/copy").json["head_seq"] == taken
