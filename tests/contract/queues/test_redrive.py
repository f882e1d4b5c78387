"""Goal: dead letters are listed and become jobs again, none lost and none twice.

Method: a queue and its dead-letter topic over HTTP, on simulated time.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, deliveries_of
from tests.contract.world.world import World


def make_dead(world: World, *data: Any, name: str = "jobs", dead: str = "dlq", **config: Any) -> Queue:
    """A queue whose jobs with these data are dead letters."""
    queue = Queue(world, name, max_deliveries=1, dead_letter=dead, **config)
    queue.put(*data)
    seqs = [job["$seq"] for job in queue.claim(1000)["claimed"]]
    queue.nack(*seqs)
    assert queue.claim()["count"] == 0
    return queue


def dead(world: World, query: str = "", name: str = "jobs") -> Any:
    answer = world.request("GET", f"/v0/topics/{name}/dead{query}")
    assert answer.status == 200, answer.text
    return answer.json


def redrive(world: World, name: str = "jobs", **body: Any) -> Any:
    answer = world.request("POST", f"/v0/topics/{name}/redrive", body)
    assert answer.status == 200, answer.text
    return answer.json


def listed(page: Any) -> list[int]:
    return [record["$seq"] for record in page["dead"]]


def test_dead_letters_are_listed_as_records(world: World) -> None:
    """R-Q-36, 8.7."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    world.write_records(
        "jobs", [{"data": {"i": 0}, "tag": "t", "node": "n", "meta": {"k": "v"}}, {"data_base64": "AA=="}]
    )
    queue.claim(2)
    queue.nack(1, 2, reason="broken")
    queue.claim()
    page = dead(world)
    assert {key: page[key] for key in ("topic", "dead_letter", "next_from_seq", "head_seq", "caught_up")} == {
        "topic": "jobs",
        "dead_letter": "dlq",
        "next_from_seq": 2,
        "head_seq": 2,
        "caught_up": True,
    }
    assert set(page) == {"topic", "dead_letter", "dead", "next_from_seq", "head_seq", "caught_up", "performance"}
    assert page["dead"] == world.diff("dlq", include_tags=True)["records"]
    assert page["dead"][0]["meta"]["$dead_letter_reason"] == "broken"


def test_a_list_has_pages(world: World) -> None:
    """8.7, 5.2: as those of a diff."""
    make_dead(world, *range(7))
    first = dead(world, "?limit=3")
    assert (listed(first), first["next_from_seq"], first["caught_up"]) == ([1, 2, 3], 3, False)
    last = dead(world, "?limit=30&from_seq=3")
    assert (listed(last), last["next_from_seq"], last["caught_up"]) == ([4, 5, 6, 7], 7, True)
    assert dead(world, f"?from_seq={2**64 - 1}")["dead"] == []


def test_without_a_dead_letter_topic_there_are_no_dead_letters(world: World) -> None:
    """8.7, 8.8: also before it was created."""
    Queue(world)
    page = dead(world)
    assert (page["dead_letter"], page["dead"], page["head_seq"], page["caught_up"]) == (None, [], 0, True)
    assert redrive(world, seqs=[1])["skipped"] == [1]
    assert redrive(world, all=True)["redriven"] == 0
    world.put("jobs", type="queue", dead_letter="dlq")
    assert (dead(world)["dead_letter"], dead(world)["dead"]) == ("dlq", [])
    assert redrive(world, seqs=[1, 1])["skipped"] == [1, 1]


def test_redriven_dead_letters_are_new_jobs(world: World) -> None:
    """R-Q-37, R-Q-35, 8.8: with the meta that they had."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    records = [
        {"data": {"i": 1.50}, "tag": "t", "node": "n", "meta": {"k": 1.10}},
        {"data_base64": "AAEC"},
        {"data": "plain", "meta": {}},
    ]
    world.write_records("jobs", records)
    queue.claim(3)
    queue.nack(1, 2, 3, reason="broken")
    queue.claim()
    answer = redrive(world, all=True)
    assert set(answer) == {
        *("topic", "dead_letter", "redriven", "skipped", "next_from_seq", "head_seq", "caught_up", "performance")
    }
    assert (answer["redriven"], answer["skipped"], answer["caught_up"]) == (3, [], True)
    assert (dead(world)["dead"], world.data("dlq")) == ([], [])
    assert queue.counters == (3, 3, 0)
    again = world.diff("jobs", include_tags=True)["records"]
    shown = [{key: value for key, value in record.items() if key != "$ts"} for record in again]
    assert shown == [
        {"$seq": 4, "$tag": "t", "$node": "n", "data": {"i": 1.50}, "meta": {"k": 1.10}},
        {"$seq": 5, "data_base64": "AAEC"},
        {"$seq": 6, "data": "plain"},
    ]
    assert deliveries_of(queue.claim(3)) == {4: 1, 5: 1, 6: 1}


def test_only_those_that_are_named_are_redriven(world: World) -> None:
    """R-Q-37, 8.8: the others are skipped, in the order of the request."""
    queue = make_dead(world, *range(5))
    answer = redrive(world, seqs=[4, 9, 2, 4, 2**64 - 1])
    assert set(answer) == {"topic", "dead_letter", "redriven", "skipped", "performance"}
    assert (answer["redriven"], answer["skipped"]) == (2, [9, 4, 2**64 - 1])
    assert listed(dead(world)) == [1, 3, 5]
    assert world.data("jobs") == [1, 3]
    assert redrive(world, seqs=[2, 4])["skipped"] == [2, 4]
    assert redrive(world, seqs=[])["redriven"] == 0
    assert queue.counters == (2, 2, 0)


def test_all_are_redriven_in_turns(world: World) -> None:
    """8.8, R-Q-37: each request as many as it says, in their order."""
    make_dead(world, *range(700))
    from_seq, turns = 0, []
    while True:
        answer = redrive(world, all=True, max=300, from_seq=from_seq)
        from_seq = answer["next_from_seq"]
        turns.append(answer["redriven"])
        if answer["caught_up"]:
            break
    assert turns == [300, 300, 100]
    assert world.data("jobs") == list(range(700))


def test_dead_letters_of_other_queues_and_other_records_stay(world: World) -> None:
    """R-Q-36."""
    make_dead(world, "a", name="other")
    world.write("dlq", "not one")
    world.write_records("dlq", [{"data": "text", "meta": "$dead_letter_from"}, {"data": 1, "meta": {"k": {}}}])
    make_dead(world, "b")
    world.write_records("dlq", [{"data": "by hand", "meta": {"$dead_letter_from": "jobs"}}])
    assert listed(dead(world)) == [5, 6]
    assert redrive(world, seqs=[1, 2, 3, 5])["skipped"] == [1, 2, 3]
    assert redrive(world, all=True)["redriven"] == 1
    assert world.data("dlq") == ["a", "not one", "text", 1]
    assert world.data("jobs") == ["b", "by hand"]


def test_a_dead_letter_that_is_leased_itself_is_redriven(world: World) -> None:
    """R-Q-36, R-DEL-10: where the dead-letter topic is a queue, too."""
    dlq = Queue(world, "dlq")
    queue = make_dead(world, "a", "b")
    assert dlq.claim(1)["count"] == 1
    assert redrive(world, all=True)["redriven"] == 2
    assert dlq.counters == (0, 0, 0)
    assert queue.counters == (2, 2, 0)
    assert dlq.ack(1)["acked"] == 1


def test_a_full_queue_ends_a_redrive(world: World) -> None:
    """R-Q-39, R-CAP-5: what did not come in stays a dead letter."""
    queue = make_dead(world, "a", "b")
    world.put("jobs", type="queue", dead_letter="dlq", cap_records=2, discard="reject")
    queue.put("c")
    answer = world.request("POST", "/v0/topics/jobs/redrive", {"all": True})
    assert answer.refusal[:2] == (422, "topic_full")
    assert (world.data("dlq"), world.data("jobs")) == (["b"], ["c", "a"])
    world.delete("jobs", before_seq=4)
    assert redrive(world, seqs=[2])["redriven"] == 1


def test_two_redrives_at_the_same_time_make_no_job_twice(world: World) -> None:
    """R-Q-38."""
    make_dead(world, *range(300), durability="fsync")
    asked = [world.ask("POST", "/v0/topics/jobs/redrive", {"all": True}) for _ in range(3)]
    asked.append(world.ask("POST", "/v0/topics/jobs/redrive", {"seqs": list(range(1, 301))}))
    assert sum(one.answer().json["redriven"] for one in asked) == 300
    assert world.data("jobs") == list(range(300))
    assert world.data("dlq") == []


@pytest.mark.parametrize("cut", [False, True])
def test_a_crash_leaves_each_in_one_place_or_both(make_world: MakeWorld, cut: bool) -> None:
    """R-Q-38, R-DUR-10: in neither, never. A repetition of the request doubles what is in both."""
    found: set[tuple[int, int]] = set()
    for moment_us in range(0, 1000, 50):
        world = make_world(seed=moment_us, wal_shards=3)
        if not hasattr(world, "advance_us"):
            pytest.skip("only the simulator stops in the middle")
        world.put("dlq", durability="fsync")
        make_dead(world, *range(10), durability="disk")
        world.ask("POST", "/v0/topics/jobs/redrive", {"all": True})
        world.advance_us(moment_us)
        if cut:
            world.power_cut()
            world.start()
        else:
            world.crash_and_start()
        jobs, left = world.data("jobs"), world.data("dlq")
        assert set(jobs) | set(left) == set(range(10))
        found.add((len(jobs), len(left)))
        redrive(world, seqs=list(range(1, 11)))  # as a client would that got no answer
        assert world.data("dlq") == []
        assert len(world.data("jobs")) == len(jobs) + len(left)
    assert found == {(0, 10), (10, 10), (10, 0)}


def test_redriven_jobs_and_deleted_dead_letters_survive(make_world: MakeWorld) -> None:
    """R-Q-38, R-DUR-10: what was answered stays, over a checkpoint as well."""
    world = make_world(wal_shards=3)
    world.put("dlq", durability="fsync")
    make_dead(world, *range(12), durability="disk")
    for seq in range(1, 11):
        assert redrive(world, seqs=[seq])["redriven"] == 1
        world.power_cut()
        world.start()
        assert (world.data("jobs"), world.data("dlq")) == (list(range(seq)), list(range(seq, 12)))
    world.restart()
    assert redrive(world, all=True)["redriven"] == 2
    world.crash_and_start()
    assert (world.data("jobs"), world.data("dlq")) == (list(range(12)), [])


def test_routers_out_of_the_dead_letters_forward_them_first(world: World) -> None:
    """R-Q-37, R-RTR-18: a redriven dead letter is consumed, as by an ack."""
    world.put("dlq")
    world.put("alerts")
    assert world.request("PUT", "/v0/routers/r", {"source": "dlq", "dest": "alerts"}).status == 201
    make_dead(world, "a", "b")
    redrive(world, all=True)
    assert world.data("alerts") == ["a", "b"]


def test_checks_come_in_order(world: World) -> None:
    """8.7, 8.8/1, 8.8/2, 8.8/3."""
    world.put("log")
    for body in ({}, {"all": False}, {"all": True, "seqs": []}, {"seqs": None}, {"seqs": [-1]}, {"all": 1}):
        answer = world.request("POST", "/v0/topics/absent/redrive", body)
        assert answer.refusal == (400, "invalid_request", None), body
    answer = world.request("POST", "/v0/topics/absent/redrive", {"seqs": [1] * 1001})
    assert answer.refusal == (400, "batch_too_large", {"seqs": 1001, "max": 1000})
    for path, method, body in (("dead", "GET", None), ("redrive", "POST", {"all": True})):
        for topic, refusal in (
            ("absent", (404, "topic_not_found", {"topic": "absent"})),
            ("log", (409, "not_a_queue", {"topic": "log"})),
        ):
            asked = (method, f"/v0/topics/{topic}/{path}", *([body] if body else []))
            assert world.request(*asked).refusal == refusal


def test_the_names_of_both_topics_have_to_be_the_keys(make_world: MakeWorld) -> None:
    """8.8/4, 8.7."""
    world = make_world(api_keys="all,narrow:rw+d:jobs,reader:r")

    config = {"type": "queue", "dead_letter": "dlq"}
    assert world.request("PUT", "/v0/topics/jobs", config, {"Authorization": "Bearer all"}).status == 201
    auth = {"Authorization": "Bearer narrow"}
    for answer in (
        world.request("GET", "/v0/topics/jobs/dead", headers=auth),
        world.request("POST", "/v0/topics/jobs/redrive", {"all": True}, auth),
    ):
        assert answer.refusal == (403, "forbidden", {"topic": "dlq"})
    assert world.request("GET", "/v0/topics/jobs/dead", headers={"Authorization": "Bearer reader"}).status == 200
    refused = world.request("POST", "/v0/topics/jobs/redrive", {"all": True}, {"Authorization": "Bearer reader"})
    assert refused.refusal[:2] == (403, "forbidden")
