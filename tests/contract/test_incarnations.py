"""Incarnations: what tells a reader that a seq names another record now."""

from __future__ import annotations

import re

import pytest

from tests.contract.world import World


def incarnation_of(world: World, topic: str) -> str:
    found: str = world.request("GET", f"/v0/topics/{topic}?touch=false&incarnation=true").json["incarnation"]
    assert re.fullmatch("[0-9a-f]{16}", found)
    return found


# --- shown ----------------------------------------------------------------------------------------------------------
def test_it_is_shown_where_the_query_asks_for_it(world: World) -> None:
    """R-INC-3, 7.2, 7.3: as one more field, and to nobody else."""
    world.put("t")
    world.put("q", type="queue")
    for name in ("t", "q"):
        plain = world.request("GET", f"/v0/topics/{name}").json
        asked = world.request("GET", f"/v0/topics/{name}?incarnation=1").json
        assert set(asked) - set(plain) == {"incarnation"}
        assert "incarnation" not in world.request("GET", f"/v0/topics/{name}?incarnation=no").json
    rows = world.request("GET", "/v0/topics").json["topics"]
    shown = world.request("GET", "/v0/topics?incarnation=true").json["topics"]
    assert [set(one) - set(other) for one, other in zip(shown, rows, strict=True)] == [{"incarnation"}] * 2
    assert [row["incarnation"] for row in shown] == [incarnation_of(world, name) for name in ("q", "t")]


# --- when it changes ------------------------------------------------------------------------------------------------
def test_a_topic_made_again_has_another_one(world: World) -> None:
    """R-INC-2: by a request as by a write."""
    seen = set()
    for _ in range(2):
        world.put("t")
        seen.add(incarnation_of(world, "t"))
        world.drop("t")
        world.write("t", 1)
        seen.add(incarnation_of(world, "t"))
        world.drop("t")
    assert len(seen) == 4


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_it_stays_over_restarts_and_changes_of_the_config(world: World, durability: str) -> None:
    """R-INC-2: stops and kills, records and deletes, another class and back."""
    world.put("t", durability=durability)
    known = incarnation_of(world, "t")
    world.write("t", 1, 2)
    world.delete("t", before_seq=3)
    world.put("t", durability="memory", cap_records=4)
    world.put("t", durability=durability)
    assert incarnation_of(world, "t") == known
    world.restart()
    assert incarnation_of(world, "t") == known
    world.crash_and_start()
    assert incarnation_of(world, "t") == known


def test_it_stays_over_a_power_cut(world: World) -> None:
    """R-INC-2: in class `disk` the seqs that were lost are skipped."""
    world.put("t")
    known = incarnation_of(world, "t")
    world.write("t", 1)
    world.power_cut()
    world.start()
    assert incarnation_of(world, "t") == known
    assert world.write("t", 2)["first_seq"] > 1


@pytest.mark.parametrize("durability", ["memory", "ephemeral"])
def test_each_start_gives_another_one_below_disk(world: World, durability: str) -> None:
    """R-INC-2: also after a graceful stop; from a stronger class on it lasts."""
    world.put("t", durability=durability)
    seen = {incarnation_of(world, "t")}
    world.restart()
    seen.add(incarnation_of(world, "t"))
    world.crash_and_start()
    seen.add(incarnation_of(world, "t"))
    world.crash_and_start()
    world.put("t", durability="disk")
    last = incarnation_of(world, "t")
    assert len(seen | {last}) == 4
    world.crash_and_start()
    assert incarnation_of(world, "t") == last


def test_no_seq_names_two_records_of_one_incarnation(world: World) -> None:
    """R-INC-1: after a power cut in class `memory`, which gives seqs out again."""
    world.put("t", durability="memory")
    named: dict[tuple[str, int], int] = {}
    for life in range(4):
        for number in range(3):
            wrote = world.write("t", 10 * life + number)
            key = incarnation_of(world, "t"), wrote["first_seq"]
            assert named.setdefault(key, 10 * life + number) == 10 * life + number
        world.power_cut()
        world.start()
    assert len({seq for _incarnation, seq in named}) < len(named), "seqs came again"
