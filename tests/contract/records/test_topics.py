"""Topics as resources: put, state, list, delete."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World

INVALID = (400, "invalid_request", None)


# --- put ------------------------------------------------------------------------------------------------------------
def test_put_answers_the_topic_as_it_is_now(world: World) -> None:
    """7.1: exactly these fields; 201 the first time."""
    answer = world.request("PUT", "/v0/topics/t", {"cap_records": 5})
    assert (answer.status, set(answer.json)) == (201, {"topic", "created", "config", "performance"})
    assert (answer.json["topic"], answer.json["created"], answer.json["config"]["cap_records"]) == ("t", True, 5)


def test_the_same_put_again_changes_nothing(world: World) -> None:
    """7.1: 200 and false."""
    first = world.put("t", cap_records=5)
    again = world.request("PUT", "/v0/topics/t", {"cap_records": 5})
    assert (again.status, again.json["created"], again.json["config"]) == (200, False, first["config"])


def test_a_put_replaces_the_configuration_and_touches_nothing_else(world: World) -> None:
    """7.1, TV-22: records, numbers, floors and keys stay."""
    world.put("t", cap_records=100)
    world.write("t", 1, 2, 3, idempotency_key="k")
    world.delete("t", before_seq=2)
    before = world.state("t")
    config = world.put("t", ttl_ms=10**6)["config"]
    assert (config["cap_records"], config["ttl_ms"]) == (0, 10**6)
    after = world.state("t")
    for field in ("head_seq", "earliest_seq", "count", "bytes", "last_write_ts"):
        assert after[field] == before[field]
    assert world.write("t", 9, idempotency_key="k")["deduped"] is True
    config = world.put("t", durable=True, durability="disk")["config"]
    assert (config["durability"], config["durable"]) == ("disk", False)
    config = world.put("t", lease_ms=1, claim_jitter_ms=9999)["config"]
    assert (config["lease_ms"], config["claim_jitter_ms"]) == (100, 5000)


PUT_CHECKS: list[tuple[str, dict[str, Any], Any]] = [
    ("bad%20name", {"ttl_ms": -1, "dead_letter": "bad name"}, INVALID),
    ("bad%20name", {"dead_letter": "bad name", "type": "queue"}, (400, "invalid_request")),
    ("q", {"dead_letter": "bad name"}, (400, "invalid_request", {"dead_letter": "bad name"})),
    ("q", {"dead_letter": ""}, (400, "invalid_request", {"dead_letter": ""})),
    ("new", {"dead_letter": "bad name", "type": "queue"}, (400, "invalid_request", {"dead_letter": "bad name"})),
    ("log", {"type": "queue", "dead_letter": "log"}, INVALID),
    ("new", {"type": "queue", "dead_letter": "new"}, INVALID),
    (
        "log",
        {"type": "queue"},
        (409, "topic_exists_incompatible", {"topic": "log", "existing_type": "log", "requested_type": "queue"}),
    ),
    (
        "q",
        {},
        (409, "topic_exists_incompatible", {"topic": "q", "existing_type": "queue", "requested_type": "log"}),
    ),
    ("new", {}, (429, "throttled", {"limit": "max_topics", "max": 2})),
]


@pytest.mark.parametrize(("name", "body", "refusal"), PUT_CHECKS, ids=range(len(PUT_CHECKS)))
def test_the_checks_of_put_come_in_order(make_world: MakeWorld, name: str, body: dict[str, Any], refusal: Any) -> None:
    """7.1/1, 7.1/2, 7.1/3, 7.1/4, 7.1/5, 7.1/6: body, name, dead letter, type, number of topics."""
    world = make_world(max_topics=2)
    world.put("log")
    world.put("q", type="queue")
    assert world.request("PUT", f"/v0/topics/{name}", body).refusal[: len(refusal)] == refusal
    assert len(world.request("GET", "/v0/topics").json["topics"]) == 2


def test_a_log_may_name_itself_as_dead_letter(world: World) -> None:
    """7.1/4: the check is for queues."""
    assert world.put("t", dead_letter="t")["config"]["dead_letter"] == "t"


def test_a_full_server_still_updates_what_it_has(make_world: MakeWorld) -> None:
    """7.1/6, R-LIM-1: a cap frees as soon as a topic is deleted."""
    world = make_world(max_topics=2)
    world.put("a")
    world.write("b", 1)
    for method, path, body in (("PUT", "/v0/topics/c", {}), ("POST", "/v0/topics/c", {"records": [{"data": 1}]})):
        assert world.request(method, path, body).refusal == (429, "throttled", {"limit": "max_topics", "max": 2})
    world.put("a", ttl_ms=1)
    world.write("b", 2)
    world.drop("b")
    assert world.put("c")["created"] is True


def test_concurrent_creations_never_pass_the_cap(make_world: MakeWorld) -> None:
    """R-LIM-1: what is being created counts."""
    world = make_world(max_topics=3)
    pending = [world.ask("PUT", f"/v0/topics/t{n}", {}) for n in range(8)]
    assert sorted(each.answer().status for each in pending) == [201] * 3 + [429] * 5


def test_of_concurrent_puts_one_created_it(world: World) -> None:
    """7.1: the rest are updates."""
    pending = [world.ask("PUT", "/v0/topics/t", {"ttl_ms": 10**6 + n}) for n in range(8)]
    answers = [each.answer() for each in pending]
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]
    assert sorted(answer.json["created"] for answer in answers) == [False] * 7 + [True]


def test_a_put_the_disk_refused_changes_nothing(world: World) -> None:
    """7.1: 500, for a new topic and for an update."""
    world.put("t", ttl_ms=10**6)
    world.fail_storage("write", 5, times=20)
    assert world.request("PUT", "/v0/topics/t", {}).status == 500
    assert world.request("PUT", "/v0/topics/new", {}).status == 500
    world.heal_storage()
    assert world.state("t")["config"]["ttl_ms"] == 10**6
    assert world.request("GET", "/v0/topics/new").status == 404
    world.crash_and_start()
    assert world.state("t")["config"]["ttl_ms"] == 10**6
    assert world.request("GET", "/v0/topics/new").status == 404


# --- patch ----------------------------------------------------------------------------------------------------------
def patch(world: World, topic: str, **changes: Any) -> dict[str, Any]:
    answer = world.request("PATCH", f"/v0/topics/{topic}", changes)
    assert answer.status == 200, answer.text
    return {"before": answer.json["before"], "after": answer.json["after"]}


def test_a_patch_changes_what_it_names_and_nothing_else(world: World) -> None:
    """7.17, R-PATCH-1: the answer has both configs, whole; restarts keep the second."""
    before = world.put("t", durability="fsync", cap_records=5)["config"]
    answer = world.request("PATCH", "/v0/topics/t", {"priority": 900})
    assert (answer.status, set(answer.json)) == (200, {"topic", "before", "after", "performance"})
    after = before | {"priority": 900}
    assert (answer.json["topic"], answer.json["before"], answer.json["after"]) == ("t", before, after)
    assert (world.state("t")["config"], world.state("t")["effective_priority"]) == (after, 900)
    world.crash_and_start()
    assert world.state("t")["config"] == after


def test_a_patch_applies_limits_at_once_and_clamps_values(world: World) -> None:
    """R-PATCH-1, R-CFG-2."""
    world.put("t", ttl_ms=10**6)
    world.write("t", 1, 2, 3)
    assert patch(world, "t", cap_records=1, lease_ms=1)["after"]["lease_ms"] == 100
    assert (world.state("t")["count"], world.state("t")["config"]["ttl_ms"]) == (1, 10**6)


def test_null_in_a_patch_means_the_default(world: World) -> None:
    """R-PATCH-2."""
    config = world.put("t", priority=7, dead_letter="dead", durability="fsync")["config"]
    changed = patch(world, "t", priority=None, dead_letter=None)["after"]
    assert changed == config | {"priority": None, "dead_letter": None}
    assert patch(world, "t", durability=None)["after"]["durability"] == "disk"
    assert world.request("PATCH", "/v0/topics/t", {"ttl_ms": None}).refusal == INVALID


def test_durable_in_a_patch_is_short_for_a_class(world: World) -> None:
    """R-PATCH-2: unless a class is beside it."""
    world.put("t", durability="memory")
    for changes, durability in (
        ({"durable": True}, "fsync"),
        ({"ttl_ms": 10**6}, "fsync"),
        ({"durable": False}, "disk"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": True, "durability": None}, "fsync"),
    ):
        after = patch(world, "t", **changes)["after"]
        assert (after["durability"], after["durable"]) == (durability, durability == "fsync")


def test_an_empty_patch_changes_nothing_and_no_body_is_refused(world: World) -> None:
    """7.17, 2.3, R-PATCH-3."""
    config = world.put("t", ttl_ms=10**6)["config"]
    assert patch(world, "t") == {"before": config, "after": config}
    assert patch(world, "t", ttl_ms=10**6) == {"before": config, "after": config}
    assert world.request("PATCH", "/v0/topics/t").status == 415
    assert world.request("PATCH", "/v0/topics/t", b"", {"Content-Type": "application/json"}).refusal == INVALID


def test_patches_at_the_same_time_undo_nothing_of_each_other(world: World) -> None:
    """R-PATCH-3: also while the class changes, which waits for what is in flight."""
    first = config = world.put("t", durability="ephemeral")["config"]
    world.write("t", 1)
    changes: list[dict[str, Any]] = [{"ttl_ms": 10**6}, {"durability": "disk"}, {"cap_records": 9}, {"priority": 3}]
    pending = []
    for each in changes:
        pending.append((each, world.ask("PATCH", "/v0/topics/t", each)))
        world.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    answers = [(change, asked.answer().json) for change, asked in pending]
    while answers:  # in whichever order they took effect
        at = next(at for at, (_, answer) in enumerate(answers) if answer["before"] == config)
        change, answer = answers.pop(at)
        config = config | change
        assert answer["after"] == config
    assert (
        world.state("t")["config"]
        == config
        == first | {"ttl_ms": 10**6, "durability": "disk", "cap_records": 9, "priority": 3}
    )


PATCH_CHECKS: list[tuple[str, dict[str, Any], Any]] = [
    ("absent", {"ttl_ms": -1}, INVALID),
    ("absent", {"dead_letter": "bad name"}, (400, "invalid_request", {"dead_letter": "bad name"})),
    ("absent", {"ttl_ms": 1}, (404, "topic_not_found", {"topic": "absent"})),
    ("bad%20name", {}, (404, "topic_not_found", {"topic": "bad name"})),
    ("q", {"dead_letter": "q", "type": "log"}, (409, "topic_exists_incompatible")),
    ("q", {"dead_letter": "q"}, INVALID),
    ("log", {"dead_letter": "log", "type": "queue"}, INVALID),
    (
        "log",
        {"type": "queue"},
        (409, "topic_exists_incompatible", {"topic": "log", "existing_type": "log", "requested_type": "queue"}),
    ),
]


@pytest.mark.parametrize(("name", "body", "refusal"), PATCH_CHECKS, ids=range(len(PATCH_CHECKS)))
def test_the_checks_of_patch_come_in_order(world: World, name: str, body: dict[str, Any], refusal: Any) -> None:
    """7.17/1, 7.17/2, 7.17/3, 7.17/4: body, dead letter, existence, the checks of the result; none creates a topic."""
    world.put("log")
    world.put("q", type="queue")
    assert world.request("PATCH", f"/v0/topics/{name}", body).refusal[: len(refusal)] == refusal
    assert len(world.request("GET", "/v0/topics").json["topics"]) == 2


def test_a_patch_of_a_topic_that_is_being_deleted_finds_none(world: World) -> None:
    """7.17/3: whichever request comes first."""
    world.put("t")
    dropped, patched = world.ask("DELETE", "/v0/topics/t"), world.ask("PATCH", "/v0/topics/t", {"ttl_ms": 1})
    assert (dropped.answer().status, patched.answer().status) == (200, 404)


def test_a_patch_the_disk_refused_changes_nothing(world: World) -> None:
    """7.17: 500."""
    world.put("t", ttl_ms=10**6)
    world.fail_storage("write", 5, times=20)
    assert world.request("PATCH", "/v0/topics/t", {"ttl_ms": 5}).status == 500
    world.heal_storage()
    assert world.state("t")["config"]["ttl_ms"] == 10**6
    world.crash_and_start()
    assert world.state("t")["config"]["ttl_ms"] == 10**6


# --- state ----------------------------------------------------------------------------------------------------------
def test_the_state_of_a_fresh_log(world: World) -> None:
    """7.2: exactly these fields, and no queue."""
    config = world.put("t")["config"]
    state = world.state("t")
    state.pop("performance")
    assert state == {
        "topic": "t", "type": "log", "head_seq": 0, "earliest_seq": 1, "next_seq": 1, "count": 0, "bytes": 0,
        "config": config, "effective_priority": 0, "last_write_ts": None, "last_read_ts": None,
    }  # fmt: skip


def test_the_state_of_a_queue_counts_its_jobs(world: World) -> None:
    """7.2: all ready while no worker claims."""
    world.put("q", type="queue")
    world.write("q", 1, 2, 3)
    state = world.state("q")
    assert (state["type"], state["queue"]) == ("queue", {"ready": 3, "in_flight": 0, "dead_lettered": 0})
    world.delete("q", before_seq=3)
    assert world.state("q")["queue"]["ready"] == 1


def test_a_state_read_never_creates(world: World) -> None:
    """7.2: 404 with the name."""
    for _ in range(2):
        assert world.request("GET", "/v0/topics/t").refusal == (404, "topic_not_found", {"topic": "t"})


def test_a_touching_state_shows_itself(world: World) -> None:
    """7.2, R-PRI-4: unless the request says not to."""
    world.put("t")
    world.advance_ms(10)
    at_ms = world.now_ms()
    assert world.state("t")["last_read_ts"] is None
    touched = world.request("GET", "/v0/topics/t").json
    assert at_ms <= touched["last_read_ts"] <= world.now_ms()
    world.advance_ms(1000)
    assert world.state("t")["last_read_ts"] == touched["last_read_ts"]
    world.diff("t")
    assert world.state("t")["last_read_ts"] >= at_ms + 1000


def test_the_last_write_is_remembered(world: World) -> None:
    """7.2: the time of the newest append, not of a refused one."""
    world.put("t")
    world.write("t", 1)
    stamp = world.diff("t")["records"][0]["$ts"]
    world.advance_ms(50)
    world.request("POST", "/v0/topics/t", {"records": []})
    world.delete("t", before_seq=2)
    assert world.state("t")["last_write_ts"] == stamp


# --- list -----------------------------------------------------------------------------------------------------------
def test_a_list_shows_a_row_a_topic(world: World) -> None:
    """7.3: exactly these fields."""
    world.put("b", durability="fsync", priority=3)
    world.put("a", cap_records=1)
    world.write("a", "x", "y")
    answer = world.request("GET", "/v0/topics").json
    assert answer["topics"] == [
        {
            "topic": "a", "head_seq": 2, "earliest_seq": 2, "count": 1, "bytes": 3, "durable": False,
            "effective_priority": 0,
        },
        {
            "topic": "b", "head_seq": 0, "earliest_seq": 1, "count": 0, "bytes": 0, "durable": True,
            "effective_priority": 3,
        },
    ]  # fmt: skip
    assert set(answer) == {"topics", "performance"}
    assert world.request("GET", "/v0/topics?prefix=zzz").json["topics"] == []


def test_a_list_touches_only_when_asked(world: World) -> None:
    """7.3: the priority clock of what it lists, never the time of the last read."""
    for name in ("a1", "a2", "b1"):
        world.put(name)
    world.request("GET", "/v0/topics")
    assert world.state("a1")["effective_priority"] == 0
    world.request("GET", "/v0/topics?prefix=a&page_size=1&touch=true")
    states = {name: world.state(name) for name in ("a1", "a2", "b1")}
    assert {name: state["effective_priority"] for name, state in states.items()} == {"a1": 500, "a2": 0, "b1": 0}
    assert all(state["last_read_ts"] is None for state in states.values())


# --- delete ---------------------------------------------------------------------------------------------------------
def test_deleting_a_topic_answers_what_went(world: World) -> None:
    """7.4: exactly these fields."""
    world.write("t", 1)
    answer = world.drop("t")
    answer.pop("performance")
    assert answer == {"topic": "t", "deleted": True, "routers_removed": []}
    assert world.request("GET", "/v0/topics/t").status == 404
    assert world.request("GET", "/v0/topics").json["topics"] == []


def test_deleting_what_is_not_there_is_no_error(world: World) -> None:
    """7.4/1: nor does if_empty make it one."""
    world.put("t")
    world.drop("t")
    for path in ("/v0/topics/t", "/v0/topics/t?if_empty=true", "/v0/topics/never"):
        answer = world.request("DELETE", path)
        assert (answer.status, answer.json["deleted"], answer.json["routers_removed"]) == (200, False, [])


def test_a_topic_with_records_is_kept_when_told_so(world: World) -> None:
    """7.4/2: what retention has taken does not count."""
    world.put("t", ttl_ms=1000)
    world.write("t", 1, 2)
    assert world.request("DELETE", "/v0/topics/t?if_empty=true").refusal == (
        409, "topic_not_empty", {"topic": "t", "count": 2},
    )  # fmt: skip
    assert world.data("t") == [1, 2]
    world.delete("t", before_seq=9)
    assert world.request("DELETE", "/v0/topics/t?if_empty=true").json["deleted"] is True
    world.write("t", 1)
    assert world.request("DELETE", "/v0/topics/t?if_empty=false").json["deleted"] is True


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_deleted_topic_stays_deleted(world: World, durability: str) -> None:
    """7.4, R-DUR-1: the answer comes after the disk, whatever the class."""
    world.put("t", durability=durability)
    world.write("t", 1)
    world.drop("t")
    world.power_cut()
    world.start()
    assert world.request("GET", "/v0/topics/t").status == 404


def test_a_delete_of_a_topic_the_disk_refused_deletes_nothing(world: World) -> None:
    """7.4: 500, and it is all there."""
    world.write("t", 1, 2)
    world.fail_storage("write", 5, times=20)
    assert world.request("DELETE", "/v0/topics/t").status == 500
    world.heal_storage()
    assert world.data("t") == [1, 2]
    world.crash_and_start()
    assert world.data("t") == [1, 2]
