"""Goal: jobs are leased to one holder at a time, come back when it fails, and are gone once acked.

Method: workers of one queue over HTTP, on simulated time.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.queue_client import Queue, deliveries_of, lease_of, seqs_of
from tests.contract.world.world import World, seqs


def test_a_job_is_claimed_handed_back_and_acked(world: World) -> None:
    """TV-17, R-Q-1, R-Q-10, R-Q-11, R-Q-13, 8.2, 8.3, 8.4: the counters show it."""
    queue = Queue(world)
    queue.put(1, 2, 3, 4, 5)
    first = queue.claim(2)
    assert (seqs_of(first), first["count"], first["ready"]) == ([1, 2], 2, 3)
    back = queue.nack(2)
    assert (back["nacked"], back["ready"], back["in_flight"], back["skipped"]) == (1, 4, 1, [])
    done = queue.ack(1)
    assert (done["acked"], done["ready"], done["in_flight"], done["skipped"]) == (1, 4, 0, [])
    again = queue.ack(1)
    assert (again["acked"], again["skipped"]) == (0, [1])
    assert deliveries_of(queue.claim(2)) == {2: 2, 3: 1}


def test_a_claimed_job_has_all_its_parts(world: World) -> None:
    """8.2, R-Q-4, R-Q-5: the record, without node, and the lease."""
    queue = Queue(world, lease_ms=7000)
    world.write_records("jobs", [{"data": {"i": 0}, "tag": "t", "node": "n", "meta": {"k": "v"}}, {"data": None}])
    now = world.now_ms()
    answer = queue.claim(5)
    assert set(answer) == {"topic", "claimed", "count", "ready", "performance"}
    full, bare = answer["claimed"]
    assert set(full) == {"$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"}
    assert (full["$tag"], full["data"], full["meta"], full["deliveries"]) == ("t", {"i": 0}, {"k": "v"}, 1)
    assert set(bare) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert now + 7000 <= full["deadline"] <= world.now_ms() + 7000
    assert full["lease_id"] != bare["lease_id"]
    for job in (full, bare):
        assert job["lease_id"].startswith("lease_")
        digits = job["lease_id"][6:]
        assert digits == f"{int(digits, 16):x}"


@pytest.mark.parametrize(("asked", "given"), [(1, 100), (250, 250), (10**12, 86_400_000), (None, 30_000)])
def test_a_lease_is_as_long_as_asked_within_bounds(world: World, asked: int | None, given: int) -> None:
    """R-Q-4, 5.2: clamped; null and absent mean the queue's own."""
    queue = Queue(world)
    queue.put(1)
    before = world.now_ms()
    job = queue.claim(lease_ms=asked)["claimed"][0]
    assert before + given <= job["deadline"] <= world.now_ms() + given


def test_max_is_clamped(world: World) -> None:
    """8.2, 5.2: 0 and absent mean 1, more than 1000 means 1000."""
    queue = Queue(world)
    world.write("jobs", *range(1500))
    assert queue.claim(0)["count"] == 1
    assert world.request("POST", "/v0/topics/jobs/claim", {"node": "w"}).json["count"] == 1
    many = queue.claim(2**32 - 1)
    assert (many["count"], seqs_of(many)) == (1000, list(range(3, 1003)))
    assert many["ready"] == 1500 - 1002


def test_an_empty_queue_is_no_error(world: World) -> None:
    """8.2: no jobs is an ordinary answer."""
    queue = Queue(world)
    assert queue.claim(3)["claimed"] == []
    assert queue.counters == (0, 0, 0)


def test_an_expired_lease_is_found_by_the_next_look(world: World) -> None:
    """R-Q-2, R-Q-9, R-Q-1: expired is strictly after the deadline; a late ack is skipped."""
    queue = Queue(world, lease_ms=1000)
    queue.put("a", "b")
    deadline = queue.claim(2)["claimed"][0]["deadline"]
    world.advance_to_ms(deadline)
    assert queue.counters == (2, 0, 2)
    world.advance_to_ms(deadline + 1)
    assert queue.counters == (2, 2, 0)
    assert queue.ack(1)["skipped"] == [1]
    assert queue.nack(1)["skipped"] == [1]
    assert queue.extend(1, lease_ms=1000)["skipped"] == [1]
    assert deliveries_of(queue.claim(2)) == {1: 2, 2: 2}


def test_returned_jobs_come_before_fresh_ones(world: World) -> None:
    """R-Q-3: reclaimed ascending, then fresh ascending; the answer is ascending."""
    queue = Queue(world)
    queue.put(*range(8))
    queue.claim(5)
    queue.nack(4, 2)
    assert seqs_of(queue.claim(1)) == [2]
    assert seqs_of(queue.claim(3)) == [4, 6, 7]


def test_a_fence_keeps_an_old_holder_out(world: World) -> None:
    """TV-19, R-Q-7, R-Q-8: the same node with an older lease does not count."""
    queue = Queue(world, lease_ms=1000)
    queue.put("job")
    old = lease_of(queue.claim(), 1)
    world.advance_ms(1100)
    new = lease_of(queue.claim(), 1)
    assert old != new
    refused = queue.ack(1, lease_ids=[old])
    assert (refused["acked"], refused["skipped"], refused["in_flight"]) == (0, [1], 1)
    done = queue.ack(1, lease_ids=[new])
    assert (done["acked"], done["in_flight"]) == (1, 0)


def test_a_fence_may_be_spelled_in_many_ways(world: World) -> None:
    """R-Q-8: any case, leading zeros; the empty one fences nothing."""
    queue = Queue(world)
    queue.put(*range(20))
    claimed = queue.claim(20)
    for seq in (11, 12):
        token = lease_of(claimed, seq)
        spelled = "lease_" + "0" * 30 + token[6:].upper()
        assert queue.ack(seq, lease_ids=[spelled])["acked"] == 1
    assert queue.ack(1, 2, lease_ids=["", lease_of(claimed, 2)])["acked"] == 2
    assert queue.ack(3, lease_ids=[])["acked"] == 1


@pytest.mark.parametrize(
    "lease_ids",
    [["x"], ["lease_"], ["lease_g"], ["LEASE_1"], ["lease_1" + "0" * 16], ["lease_1 "], None, "lease_1", [1], [None]],
)
@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_malformed_fence_is_refused(world: World, verb: str, lease_ids: Any) -> None:
    """R-Q-8, 8.1, R-JSON-6: 400, and nothing happens."""
    queue = Queue(world)
    queue.put(1, 2)
    queue.claim(2)
    body = {"node": "w", "seqs": [1], "lease_ms": 1000, "lease_ids": lease_ids}
    assert queue.refuse(verb, body) == (400, "invalid_request", None)
    assert queue.counters == (2, 0, 2)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_checks_of_completions_come_in_order(world: World, verb: str) -> None:
    """8.1/1, 8.1/2, 8.1/3, 8.1/4, 8.1/5, 8.1/6, R-Q-8, TV-19: fences, node, the two numbers, topic, type."""
    world.put("log")
    queue = Queue(world)

    def refusal(topic: str, **body: Any) -> tuple[int, str, dict[str, Any] | None]:
        body = {"seqs": [1], "lease_ms": 1000, **body}
        return world.request("POST", f"/v0/topics/{topic}/{verb}", body).refusal

    many = list(range(1001))
    assert refusal("absent", node="", lease_ids=["bad"], seqs=many)[1] == "invalid_request"
    assert refusal("absent", node="", seqs=many) == (400, "invalid_request", None)
    assert refusal("absent", node="w", seqs=many, lease_ids=["", ""]) == (
        400,
        "batch_too_large",
        {"seqs": 1001, "max": 1000},
    )
    assert refusal("absent", node="w", seqs=[1] * 50_000, lease_ids=[""] * 50_000) == (
        400,
        "batch_too_large",
        {"seqs": 50_000, "max": 1000},
    )
    assert refusal("absent", node="w", lease_ids=["", ""]) == (400, "invalid_request", None)
    assert refusal("absent", node="w", lease_ids=[""] * 50_000) == (400, "invalid_request", None)
    assert refusal("absent", node="w") == (404, "topic_not_found", {"topic": "absent"})
    assert refusal("log", node="w") == (409, "not_a_queue", {"topic": "log"})
    for wrong in ({"seqs": None}, {"seqs": [1.0]}, {"seqs": ["1"]}, {"seqs": [[1]]}, {"seqs": [-1]}, {"seqs": [2**64]}):
        assert refusal("jobs", node="w", **wrong) == (400, "invalid_request", None)
    assert queue.refuse(verb, {"node": "w", "lease_ms": 1}) == (400, "invalid_request", None)
    assert queue.refuse(verb, {"seqs": [], "lease_ms": 1}) == (400, "invalid_request", None)
    nobody = "x" * 500  # no length check on this node
    assert world.request("POST", f"{queue.path}/{verb}", {"node": nobody, "seqs": [2**64 - 1], "lease_ms": 1}).json[
        "skipped"
    ] == [2**64 - 1]


def test_checks_of_claims_come_in_order(world: World) -> None:
    """8.2: an empty body, the body, the topic, its type, the node."""
    world.put("log")
    queue = Queue(world)
    for headers in ({}, {"Content-Type": "text/plain", "Content-Length": "0"}):
        answer = world.request("POST", "/v0/topics/absent/claim", b"", headers)
        assert answer.refusal == (400, "invalid_request", None)
    assert world.request("POST", "/v0/topics/absent/claim", {"max": 1}).refusal == (400, "invalid_request", None)
    assert world.request("POST", "/v0/topics/absent/claim", {"node": ""}).refusal[1] == "topic_not_found"
    assert world.request("POST", "/v0/topics/log/claim", {"node": ""}).refusal == (409, "not_a_queue", {"topic": "log"})
    assert queue.refuse("claim", {"node": ""}) == (400, "invalid_request", None)
    assert queue.refuse("claim", {"node": "é" * 65}) == (400, "invalid_request", None)
    assert queue.claim(node="é" * 64)["count"] == 0
    for wrong in ({"max": -1}, {"max": 2**32}, {"max": None}, {"lease_ms": "1"}, {"node": None}):
        assert queue.refuse("claim", {"node": "w", **wrong}) == (400, "invalid_request", None)
    assert world.request("GET", "/v0/topics/absent?touch=false").status == 404


def test_only_the_holder_counts(world: World) -> None:
    """R-Q-6, R-Q-7: another node is skipped, in the order asked for; a job has one holder."""
    queue = Queue(world)
    queue.put(1, 2, 3)
    queue.claim(2, node="a")
    assert seqs_of(queue.claim(5, node="b")) == [3]
    theirs = queue.ack(3, 1, 9, 2, node="b")
    assert (theirs["acked"], theirs["skipped"]) == (1, [1, 9, 2])
    done = queue.ack(2, 99, 1, 2, node="a")
    assert (done["acked"], done["skipped"]) == (2, [99, 2])


def test_extend_moves_the_deadline_either_way(world: World) -> None:
    """R-Q-12, 8.5: lease and deliveries stay, it may shorten."""
    queue = Queue(world, lease_ms=1000)
    queue.put("job", "other")
    lease = lease_of(queue.claim(2), 1)
    before = world.now_ms()
    longer = queue.extend(1, 7, lease_ms=60_000)
    assert (longer["extended"], longer["skipped"]) == (1, [7])
    assert before + 60_000 <= longer["deadlines"]["1"] <= world.now_ms() + 60_000
    assert set(longer) == {"topic", "extended", "skipped", "deadlines", "performance"}
    world.advance_ms(5000)
    assert queue.counters == (2, 1, 1)
    assert queue.extend(1, lease_ms=1, lease_ids=[lease])["extended"] == 1
    world.advance_ms(200)
    assert queue.counters == (2, 2, 0)
    assert queue.extend(lease_ms=5)["deadlines"] == {}
    assert deliveries_of(queue.claim(1)) == {1: 2}


def test_a_delayed_job_is_neither_ready_nor_in_flight(world: World) -> None:
    """R-Q-11, R-Q-14: until its time; its deliveries are kept."""
    queue = Queue(world)
    queue.put("job", "other")
    queue.claim(2)
    back = queue.nack(1, delay_ms=500)
    at = world.now_ms()
    assert (back["nacked"], back["ready"], back["in_flight"]) == (1, 0, 1)
    assert queue.counters == (2, 0, 1)
    assert queue.claim()["count"] == 0
    assert queue.ack(1)["skipped"] == [1]
    world.advance_to_ms(at + 501)
    assert queue.counters == (2, 1, 1)
    assert deliveries_of(queue.claim()) == {1: 2}


def test_an_ack_is_a_silent_delete(world: World) -> None:
    """R-Q-10, R-DEL-6, R-Q-15: readers see leased jobs, and pass over acked ones without a word."""
    queue = Queue(world)
    queue.put(1, 2, 3)
    queue.claim(2)
    assert seqs(world.diff("jobs")) == [1, 2, 3]
    queue.ack(1)
    page = world.diff("jobs")
    assert (seqs(page), page["tombstone"], page["earliest_seq"]) == ([2, 3], None, 2)


def test_a_leased_job_that_is_deleted_leaves_the_counters(world: World) -> None:
    """R-DEL-10, R-Q-13: its lease is still answered for."""
    queue = Queue(world)
    world.write_records("jobs", [{"data": n, "tag": "x" if n in (2, 4) else "y"} for n in range(1, 7)])
    queue.claim(5)
    world.delete("jobs", before_seq=2)
    assert queue.counters == (5, 1, 4)
    world.delete("jobs", match="x")
    assert queue.counters == (3, 1, 2)
    assert queue.ack(1)["acked"] == 1
    assert queue.nack(2)["nacked"] == 1
    assert queue.extend(4, lease_ms=1000)["extended"] == 1
    assert queue.ack(1, 2)["skipped"] == [1, 2]
    assert queue.counters == (3, 1, 2)
    assert seqs_of(queue.claim(9)) == [6]


def test_a_cap_takes_leased_jobs_too(world: World) -> None:
    """R-Q-13, R-CAP-1: what is evicted leaves both counts at once."""
    queue = Queue(world, cap_records=3)
    queue.put(1, 2, 3)
    queue.claim(2)
    queue.put(4)
    assert queue.counters == (3, 2, 1)
    queue.put(5, 6, 7)
    assert queue.counters == (3, 3, 0)
    assert queue.ack(1)["acked"] == 1
    assert seqs_of(queue.claim(9)) == [5, 6, 7]


def test_expired_jobs_are_never_claimed(world: World) -> None:
    """R-TTL-3, R-Q-13, R-FLOOR-7: retention comes before the claim and the counters."""
    queue = Queue(world, ttl_ms=1000, lease_ms=60_000)
    queue.put(1, 2)
    queue.claim(1)
    world.advance_ms(600)
    queue.put(3)
    world.advance_ms(600)
    assert queue.ack(9)["ready"] == 1
    assert queue.counters == (1, 1, 0)
    assert seqs_of(queue.claim(5)) == [3]


def test_a_full_queue_refuses_until_a_job_is_done(world: World) -> None:
    """R-Q-16, R-CAP-6, R-CAP-7: also with holes under the cap, which evict nothing."""
    queue = Queue(world, cap_records=4, discard="reject")
    queue.put(1, 2, 3, 4)
    assert world.request("POST", "/v0/topics/jobs", {"records": [{"data": 5}]}).refusal[1] == "topic_full"
    queue.claim(4)
    queue.ack(2, 3)
    queue.put(5, 6)
    assert queue.counters == (4, 2, 2)
    assert world.request("POST", "/v0/topics/jobs", {"records": [{"data": 7}]}).refusal[1] == "topic_full"
    world.put("jobs", type="queue", cap_records=2, discard="reject")
    assert world.data("jobs") == [1, 4, 5, 6]
    queue.ack(1, 4)
    assert world.data("jobs") == [5, 6]


def test_recreating_a_queue_forgets_its_leases(world: World) -> None:
    """R-REC-1: fresh queue state."""
    queue = Queue(world)
    queue.put("old")
    old = lease_of(queue.claim(), 1)
    world.drop("jobs")
    world.put("jobs", type="queue")
    queue.put("new")
    assert queue.counters == (1, 1, 0)
    assert queue.ack(1, lease_ids=[old])["skipped"] == [1]
    again = queue.claim()
    assert again["claimed"][0]["deliveries"] == 1
    assert queue.ack(1, lease_ids=[old])["skipped"] == [1]


def test_a_reconfiguration_keeps_the_leases(world: World) -> None:
    """7.1, R-CFG-1: only the settings change."""
    queue = Queue(world)
    queue.put(1, 2)
    lease = lease_of(queue.claim(), 1)
    world.put("jobs", type="queue", lease_ms=100)
    assert queue.counters == (2, 1, 1)
    assert queue.ack(1, lease_ids=[lease])["acked"] == 1


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_poison_job_moves_to_the_dead_letter_topic(world: World) -> None:
    """TV-18, R-Q-22, R-Q-23, R-Q-24, R-Q-25: in the claim that would deliver it once too often."""
    queue = Queue(world, max_deliveries=2, dead_letter="dlq", lease_ms=100)
    queue.put("poison")
    for deliveries in (1, 2):
        assert deliveries_of(queue.claim()) == {1: deliveries}
        world.advance_ms(150)
    assert queue.counters == (1, 1, 0)
    assert queue.claim(5)["count"] == 0
    assert (queue.counters, queue.dead_lettered) == ((0, 0, 0), 1)
    (copy,) = world.diff("dlq")["records"]
    assert copy["data"] == "poison"
    assert copy["meta"] == {
        "$dead_letter_from": "jobs",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    assert world.state("dlq")["config"]["type"] == "log"


def test_a_dead_letter_counts_its_compact_bytes_however_its_job_was_spelled(world: World) -> None:
    """R-Q-24, R-FLOOR-6, 5.2: an escape where none is needed is not counted."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq", lease_ms=100)
    body = b'{"records":[{"data":"\\u00e9\\/","meta":{"k":"\\u00e9"}},{"data":1,"meta":"\\u00e9"}]}'
    answer = world.request("POST", "/v0/topics/jobs", body, {"Content-Type": "application/json"})
    assert answer.status == 200
    assert world.state("jobs")["bytes"] == 5 + 10 + 1 + 4
    queue.claim(2)
    world.advance_ms(101)
    queue.claim(2)
    state = world.state("dlq")
    added = '"$dead_letter_from":"jobs","$dead_letter_deliveries":"1","$dead_letter_src_seq":"1"'
    assert (state["count"], state["bytes"]) == (2, 5 + 10 + 1 + len(added) + 1 + 2 + len(added))


def test_the_pass_goes_on_behind_a_poison_job(world: World) -> None:
    """R-Q-22, R-Q-24: parts of the record are kept, other meta than an object is dropped."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    metas: list[Any] = [{"k": 1, "$dead_letter_from": "elsewhere"}, [1], {}, None]
    for meta in metas:
        world.write_records("jobs", [{"data": 1, "tag": "t", "node": "n", "meta": meta}])
    queue.put("good", "better")
    queue.claim(4)
    before = world.diff("jobs")["records"][0]["$ts"]
    world.advance_ms(10)
    queue.nack(1, 2, 3, 4)
    assert seqs_of(queue.claim(2)) == [5, 6]
    copies = world.diff("dlq", include_tags=True)["records"]
    told = [
        {"$dead_letter_from": "jobs", "$dead_letter_deliveries": "1", "$dead_letter_src_seq": str(n)}
        for n in (1, 2, 3, 4)
    ]
    assert [copy["meta"] for copy in copies] == [{"k": 1, **told[0]}, *told[1:]]
    assert all((copy["$tag"], copy["$node"]) == ("t", "n") and copy["$ts"] > before for copy in copies)
    assert (queue.counters, queue.dead_lettered) == ((2, 0, 2), 4)


def test_without_a_dead_letter_topic_a_job_is_delivered_for_ever(world: World) -> None:
    """R-Q-22: max_deliveries by itself moves nothing."""
    queue = Queue(world, max_deliveries=1)
    queue.put("job")
    for deliveries in range(1, 4):
        assert deliveries_of(queue.claim()) == {1: deliveries}
        queue.nack(1)


def test_a_full_dead_letter_topic_takes_dead_letters(world: World) -> None:
    """R-Q-25: `reject` does not refuse them."""
    world.put("dlq", cap_records=1, discard="reject")
    world.write("dlq", "full")
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    queue.put(1, 2)
    queue.claim(2)
    queue.nack(1, 2)
    assert queue.claim(2)["count"] == 0
    assert world.data("dlq") == ["full", 1, 2]


def test_a_copy_that_cannot_be_written_leaves_the_job(make_world: MakeWorld) -> None:
    """R-Q-26: claimable, counted as before, and moved once it can be."""
    world = make_world(max_topics=1)
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    queue.put("poison")
    queue.claim()
    queue.nack(1)
    assert queue.claim()["count"] == 0
    assert (queue.counters, queue.dead_lettered) == ((1, 1, 0), 0)
    world.put("jobs", type="queue", max_deliveries=5, dead_letter="dlq")
    assert deliveries_of(queue.claim()) == {1: 2}


def test_many_poison_jobs_move_in_one_claim(world: World) -> None:
    """R-Q-22: however many there are."""
    queue = Queue(world, max_deliveries=1, dead_letter="dlq")
    queue.put(*range(700))
    queue.claim(1000)
    queue.nack(*range(1, 701))
    assert queue.claim()["count"] == 0
    assert (queue.counters, queue.dead_lettered) == ((0, 0, 0), 700)
    assert world.data("dlq") == list(range(700))


# --- the coalescing window --------------------------------------------------------------------------------------------


def answers(*asked: Any) -> list[Any]:
    return [connection.answer().json for connection in asked]


def test_a_cohort_shares_what_there_is(world: World) -> None:
    """R-Q-17, R-Q-18: 20 jobs over four claims of 10 are five each, and no job is given to two."""
    queue = Queue(world, claim_jitter_ms=300)
    queue.put(*range(20))
    asked = [queue.ask_claim(10, node=f"w{n}") for n in range(4)]
    assert asked[0].waiting
    shares = [seqs_of(answer) for answer in answers(*asked)]
    assert [len(share) for share in shares] == [5, 5, 5, 5]
    assert sorted(chain.from_iterable(shares)) == list(range(1, 21))
    assert all(share == sorted(share) for share in shares)


@pytest.mark.parametrize(
    ("jobs", "wanted", "given"), [(9, (2, 100), [2, 7]), (3, (1, 1, 5), [1, 1, 1]), (0, (5,), [0])]
)
def test_a_cohort_passes_over_who_has_enough(
    world: World, jobs: int, wanted: tuple[int, ...], given: list[int]
) -> None:
    """R-Q-18: until demand or supply ends."""
    queue = Queue(world, claim_jitter_ms=300)
    if jobs:
        queue.put(*range(jobs))
    asked = [queue.ask_claim(most, node=f"w{n}") for n, most in enumerate(wanted)]
    assert [answer["count"] for answer in answers(*asked)] == given


def test_every_claim_waits_the_window(world: World) -> None:
    """R-Q-17: also a single claim; a later one opens the next cohort."""
    queue = Queue(world, claim_jitter_ms=1000)
    queue.put(1, 2)
    alone = queue.ask_claim()
    world.advance_ms(500)
    assert alone.nothing_came
    world.advance_ms(700)
    assert alone.answer().json["count"] == 1
    later = queue.ask_claim()
    world.advance_ms(500)
    assert later.nothing_came
    world.advance_ms(700)
    assert seqs_of(later.answer().json) == [2]


def test_each_claim_of_a_cohort_has_its_own_lease_time(world: World) -> None:
    """R-Q-19: not the opener's."""
    queue = Queue(world, claim_jitter_ms=300)
    queue.put(1, 2)
    long, short = answers(queue.ask_claim(node="a", lease_ms=60_000), queue.ask_claim(node="b", lease_ms=1000))
    apart_ms = long["claimed"][0]["deadline"] - short["claimed"][0]["deadline"]
    assert abs(apart_ms - 59_000) <= 300, "a real clock goes on in a cohort"


@pytest.mark.parametrize(
    ("then", "error"), [("", "topic_not_found"), ("log", "not_a_queue"), ("queue", "topic_not_found")]
)
def test_a_topic_deleted_during_the_window_fails_all_claims(world: World, then: str, error: str) -> None:
    """R-Q-20: with the error a new claim would get."""
    queue = Queue(world, claim_jitter_ms=600)
    queue.put(1)
    asked = [queue.ask_claim(node="a"), queue.ask_claim(node="b")]
    assert asked[1].waiting
    world.drop("jobs")
    if then:
        world.put("jobs", type=then)
    assert [connection.answer().refusal[1] for connection in asked] == [error, error]


def test_the_window_is_that_of_the_arrival(world: World) -> None:
    """R-Q-21: a claim that arrives without a window does not wait for those that do."""
    queue = Queue(world, claim_jitter_ms=1000)
    queue.put(1, 2)
    waiting = queue.ask_claim(node="a")
    assert waiting.waiting
    world.put("jobs", type="queue")
    assert seqs_of(queue.claim(node="b")) == [1]
    assert seqs_of(waiting.answer().json) == [2]


@pytest.mark.parametrize("who", [0, 1])
def test_a_claimer_that_leaves_strands_no_other(world: World, who: int) -> None:
    """R-NET-11: be it the one that opened the cohort; what it would have got is given to the others."""
    queue = Queue(world, claim_jitter_ms=600)
    queue.put(1, 2)
    asked = [queue.ask_claim(2, node="a"), queue.ask_claim(2, node="b")]
    assert asked[1].waiting
    asked[who].reset()
    assert asked[1 - who].answer().json["count"] == 2
    assert queue.counters == (2, 0, 2)
