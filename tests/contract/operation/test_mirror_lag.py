"""The lag of mirrors, as the server that they follow shows it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.conftest import MakeWorld
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World


@pytest.fixture
def world(make_world: MakeWorld) -> SimWorld:
    world = make_world(archive_dir="/srv/archive", archive_every_ms=50, metrics_share_ms=1)
    if not isinstance(world, SimWorld):
        pytest.skip("takes its time from the simulation")
    return world


def lags(world: World, key: str = "") -> dict[str, float]:
    """The lag of each mirror in ms; it is checked that those in seconds are the same."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    page = world.request("GET", "/v0/metrics", headers=headers).text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        if family.name.startswith("topics_archive_mirror_lag_"):
            found[family.name] = {sample.labels["mirror"]: sample.value for sample in family.samples}
    in_ms, in_s = found["topics_archive_mirror_lag_ms"], found["topics_archive_mirror_lag_seconds"]
    assert in_ms == pytest.approx({name: value * 1000 for name, value in in_s.items()}, abs=5)
    return in_ms


def ask(world: World, mirror: str, upto_ms: object, key: str = "") -> int:
    """Ask for the state of the archive as a mirror does; return the status."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return world.request("GET", f"/v0/archive?mirror={mirror}&upto_ms={upto_ms}", headers=headers).status


def test_the_lag_of_a_mirror_grows_from_the_time_that_it_stated_last(world: SimWorld) -> None:
    """R-ARC-4, R-MET-4: also when it asks no more."""
    assert lags(world) == {}
    now_ms = world.ring.clock.now_ms()
    assert ask(world, "cellar", now_ms - 1300) == 200
    assert lags(world)["cellar"] == pytest.approx(1300, abs=100)
    world.advance_ms(60_000)
    assert lags(world)["cellar"] == pytest.approx(61_300, abs=200)
    ask(world, "cellar", world.ring.clock.now_ms())
    assert lags(world)["cellar"] == pytest.approx(0, abs=100)
    ask(world, "cellar", 1 << 62)
    assert lags(world)["cellar"] == 0


def test_the_lag_of_a_mirror_grows_also_after_the_clock_was_ahead(world: SimWorld) -> None:
    """R-ARC-4, R-MET-4: what it has is later than now for an hour then."""
    world.advance_ms(1000)
    ahead_ms = world.request("GET", "/v0/archive").json["archive"]["upto_ms"] + 3_600_000
    world.ring.clock.step_wall_ms(3_600_000)
    world.advance_ms(1000)
    assert ask(world, "cellar", ahead_ms) == 200
    world.ring.clock.step_wall_ms(-3_600_000)
    for _ in range(2):
        world.advance_ms(30_000)
        assert lags(world)["cellar"] == pytest.approx(31_000, abs=300)
        upto_ms = world.request("GET", "/v0/archive").json["archive"]["upto_ms"]
        assert upto_ms > world.ring.clock.now_ms()
        ask(world, "cellar", upto_ms)  # it follows
        assert lags(world)["cellar"] == pytest.approx(0, abs=100)
        world.advance_ms(1000)
    ask(world, "cellar", upto_ms - 1)  # it has not got the rest
    world.advance_ms(30_000)
    assert lags(world)["cellar"] == pytest.approx(31_000, abs=300)


@pytest.mark.parametrize("nothing", [0, "", "x", -1])
def test_a_mirror_that_has_nothing_is_as_late_as_it_has_asked(world: SimWorld, nothing: object) -> None:
    """R-ARC-4, R-MET-4: each request of its first base states 0."""
    ask(world, "new", nothing)
    world.advance_ms(5000)
    ask(world, "new", nothing)
    assert lags(world)["new"] == pytest.approx(5000, abs=200)
    ask(world, "new", world.ring.clock.now_ms())
    world.advance_ms(1000)
    ask(world, "new", nothing)  # its directory was lost
    assert lags(world)["new"] == pytest.approx(0, abs=100)


def test_each_mirror_has_a_row_whatever_its_name(world: SimWorld) -> None:
    """R-MET-4."""
    now_ms = world.ring.clock.now_ms()
    ask(world, "a%22%5C%0A%7D", now_ms)
    ask(world, "%ff%00", now_ms - 5000)
    ask(world, "", now_ms)
    ask(world, "n" * 200, now_ms)
    ask(world, "n" * 201, now_ms)
    world.request("GET", "/v0/archive")
    assert sorted(lags(world)) == sorted(['a"\\\n}', "\ufffd\x00", "n" * 200])


def test_the_hundred_mirrors_that_asked_last_are_shown(world: SimWorld) -> None:
    """R-MET-4."""
    for number in range(100):
        ask(world, f"m{number}", 1)
    ask(world, "m0", 1)
    ask(world, "m100", 1)
    shown = lags(world)
    assert (len(shown), "m0" in shown, "m1" in shown, "m100" in shown) == (100, True, False, True)


def test_a_key_with_prefixes_neither_states_nor_sees_a_mirror(make_world: MakeWorld) -> None:
    """R-ARC-4, R-MET-4, R-AUTH-11."""
    world = make_world(
        api_keys="all:admin+read,narrow:admin+read:box-,user:read", archive_dir="/srv/archive", metrics_share_ms=1
    )
    if not isinstance(world, SimWorld):
        pytest.skip("writes to a simulated disk")
    assert ask(world, "m", 1, "narrow") == 403
    assert ask(world, "m", 1, "user") == 403
    assert lags(world, "all") == {}
    assert ask(world, "m", 1, "all") == 200
    assert list(lags(world, "all")) == list(lags(world, "user")) == ["m"]
    assert lags(world, "narrow") == {}


def test_without_an_archive_no_mirror_is_shown(world: SimWorld, make_world: MakeWorld) -> None:
    """R-MET-4."""
    without = make_world()
    assert ask(without, "m", 1) == 400
    assert lags(without) == {}
