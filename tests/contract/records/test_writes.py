"""Writing records: fields, the order of checks, creation on the way, quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World

INVALID = (400, "invalid_request", None)
ONE = [{"data": 1}]


def test_a_write_answers_where_its_records_are(world: World) -> None:
    """7.5: exactly these fields; 201 when it created the topic."""
    answer = world.request("POST", "/v0/topics/t", {"records": [{"data": 1}, {"data": 2}]})
    body = answer.json
    body.pop("performance")
    assert answer.status == 201
    assert body == {
        "topic": "t", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2, "created": True,
        "deduped": False,
    }  # fmt: skip
    answer = world.request("POST", "/v0/topics/t", {"records": ONE})
    assert (answer.status, answer.json["created"], answer.json["seqs"], answer.json["count"]) == (200, False, [3], 1)


def test_seqs_may_be_left_out(world: World) -> None:
    """7.5: absent, not null; a duplicate's too."""
    for _ in range(2):
        body = {"records": ONE * 3, "idempotency_key": "k"}
        answer = world.request("POST", "/v0/topics/t?return_seqs=false", body).json
        assert "seqs" not in answer
        assert (answer["first_seq"], answer["last_seq"]) == (1, 3)


@pytest.mark.parametrize(
    ("create", "auto_create", "created"),
    [
        (None, None, True), (True, None, True), (False, None, False), (None, True, True), (None, False, False),
        (True, False, True), (False, True, False),
    ],
)  # fmt: skip
def test_whether_a_write_may_create(world: World, create: bool | None, auto_create: bool | None, created: bool) -> None:
    """7.5: the field decides, then the configuration, then yes."""
    body: dict[str, Any] = {"records": ONE, "create": create}
    if auto_create is not None:
        body["config"] = {"auto_create": auto_create}
    answer = world.request("POST", "/v0/topics/t", body)
    if created:
        assert (answer.status, answer.json["created"]) == (201, True)
    else:
        assert answer.refusal == (404, "topic_not_found", {"topic": "t"})


def test_a_creating_write_brings_its_configuration(world: World) -> None:
    """7.5: complete, as a PUT would have it."""
    world.write("t", 1, config={"cap_records": 2, "durability": "fsync"})
    config = world.state("t")["config"]
    assert (config["cap_records"], config["durability"], config["durable"]) == (2, "fsync", True)


def test_a_configuration_is_ignored_for_a_topic_that_exists(world: World) -> None:
    """7.5: but it must parse."""
    world.put("t", cap_records=5)
    for config in ({"cap_records": 1}, {"type": "queue"}, {"dead_letter": "bad name"}, {"auto_create": False}, None):
        assert world.write("t", 1, config=config)["created"] is False
    assert world.state("t")["config"]["cap_records"] == 5
    for config in ({"cap_records": -1}, {"type": "x"}, [], 5):
        assert world.request("POST", "/v0/topics/t", {"records": ONE, "config": config}).refusal == INVALID


def test_disable_backpressure_is_accepted(world: World) -> None:
    """7.5: caps hold all the same."""
    world.put("t", discard="reject", cap_records=1)
    world.write("t", 1, disable_backpressure=True)
    assert world.request("POST", "/v0/topics/t", {"records": ONE, "disable_backpressure": True}).status == 422


TOO_LONG = "k" * 257
BAD_RECORD = {"data": 1, "tag": "t" * 257}
LARGE_RECORD = {"data": "x" * 1_048_576}
BIG_META = {"data": 1, "meta": "m" * 16_383}
ANOTHER = "0123456789abcdef"
BAD_DEAD_LETTER = (400, "invalid_request", {"dead_letter": "x y"})
OWN_DEAD_LETTER = {"type": "queue", "dead_letter": "none"}
QUOTA = (429, "throttled", {"limit": "max_total_bytes", "max": 100})
CHECKS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("a wrong shape before an empty list", "full", {"records": [], "node": 5}, INVALID),
    ("an empty list", "none", {"records": [], "create": False}, INVALID),
    ("too many before a bad record", "none", {"records": [BAD_RECORD] * 10_001}, (400, "batch_too_large")),
    ("a long key before a bad record", "none", {"records": [LARGE_RECORD], "idempotency_key": TOO_LONG}, INVALID),
    ("a bad tag before its size", "none", {"records": [{**LARGE_RECORD, "tag": "t" * 257}]}, INVALID),
    ("the first bad record", "none", {"records": [LARGE_RECORD, BAD_RECORD]}, (400, "record_too_large")),
    ("the first bad record again", "none", {"records": [BAD_RECORD, LARGE_RECORD]}, INVALID),
    ("a bad meta before size", "none", {"records": [{**LARGE_RECORD, "meta": "m" * 16_383}]}, INVALID),
    ("a bad record before existence", "none", {"records": [BIG_META], "create": False}, INVALID),
    ("a malformed incarnation before an empty list", "none", {"records": [], "incarnation": ANOTHER[1:]}, INVALID),
    ("a bad record before another incarnation", "full", {"records": [BIG_META], "incarnation": ANOTHER}, INVALID),
    (
        "another incarnation before existence",
        "none",
        {"records": ONE, "create": False, "incarnation": ANOTHER},
        (409, "incarnation_mismatch", {"topic": "none", "incarnation": None}),
    ),
    (
        "another incarnation before a known key",
        "full",
        {"records": ONE, "idempotency_key": "known", "incarnation": ANOTHER},
        (409, "incarnation_mismatch"),
    ),
    ("existence before a bad name", "bad%20name", {"records": ONE, "create": False}, (404, "topic_not_found")),
    ("a bad name", "bad%20name", {"records": ONE, "config": {"dead_letter": "x y"}}, INVALID),
    ("a bad dead letter", "none", {"records": ONE, "config": {"dead_letter": "x y"}}, BAD_DEAD_LETTER),
    ("a queue that is its own dead letter", "none", {"records": ONE, "config": OWN_DEAD_LETTER}, INVALID),
    ("too many topics", "none", {"records": ONE}, (429, "throttled", {"limit": "max_topics", "max": 2})),
    ("a known key before room", "full", {"records": ONE * 5, "idempotency_key": "known"}, 200),
    ("more than the whole cap", "full", {"records": ONE * 3}, (400, "record_too_large")),
    ("no room before the quota", "full", {"records": [{"data": "x" * 200}]}, (422, "topic_full")),
    ("the quota", "roomy", {"records": [{"data": "x" * 200}]}, QUOTA),
]  # fmt: skip


@pytest.mark.parametrize(("topic", "body", "expected"), [row[1:] for row in CHECKS], ids=[row[0] for row in CHECKS])
def test_the_checks_of_a_write_come_in_order(make_world: MakeWorld, topic: str, body: Any, expected: Any) -> None:
    """7.5/1, 7.5/3, 7.5/4, 7.5/5, 7.5/6, 7.5/7, 7.5/8: the first failure is reported, and nothing is appended."""
    world = make_world(max_topics=2, max_total_bytes=100)
    world.put("full", discard="reject", cap_records=2)
    world.write("full", 1, idempotency_key="known")
    world.write("full", 1)
    world.put("roomy")
    answer = world.request("POST", f"/v0/topics/{topic}", body)
    if expected == 200:
        assert (answer.status, answer.json["deduped"]) == (200, True)
    else:
        assert answer.refusal[: len(expected)] == expected
    assert world.state("full")["head_seq"] == 2
    assert world.state("roomy")["head_seq"] == 0


def test_a_topic_stays_when_its_creating_write_is_refused_later(make_world: MakeWorld) -> None:
    """7.5/5: by its own cap or by the quota."""
    world = make_world(max_total_bytes=10)
    answer = world.request(
        "POST", "/v0/topics/a", {"records": ONE * 2, "config": {"discard": "reject", "cap_records": 1}}
    )
    assert answer.refusal[:2] == (400, "record_too_large")
    assert world.state("a")["head_seq"] == 0
    assert world.request("POST", "/v0/topics/b", {"records": [{"data": "x" * 20}]}).status == 429
    assert world.state("b")["head_seq"] == 0


def test_the_quota_is_over_all_topics_and_may_be_reached(make_world: MakeWorld) -> None:
    """7.5/8, 14: freed by deletes, eviction and topic deletion."""
    world = make_world(max_total_bytes=20)
    refusal = (429, "throttled", {"limit": "max_total_bytes", "max": 20})
    world.put("b", cap_records=1)
    world.write("a", "x" * 8)
    world.write("b", "x" * 8)
    assert world.request("POST", "/v0/topics/c", {"records": ONE}).refusal == refusal
    assert world.request("POST", "/v0/topics/a", {"records": ONE}).refusal == refusal
    world.delete("a", before_seq=2)
    world.write("c", "x" * 8)
    assert world.request("POST", "/v0/topics/a", {"records": ONE}).refusal == refusal
    world.drop("c")
    world.write("b", "y" * 3)
    world.write("a", "x" * 8)
    assert world.request("POST", "/v0/topics/a", {"records": [{"data": "x" * 4}]}).refusal == refusal
    world.write("a", "xxx")
    assert world.request("POST", "/v0/topics/a", {"records": ONE}).refusal == refusal


def test_what_expired_frees_the_quota(make_world: MakeWorld) -> None:
    """7.5: also in a topic that no client reads."""
    world = make_world(max_total_bytes=10)
    world.put("old", ttl_ms=1000)
    world.write("old", "x" * 8)
    assert world.request("POST", "/v0/topics/new", {"records": ONE}).status == 429
    world.advance_ms(1001)
    world.write("new", 1)


def test_the_head_of_an_answer_is_right_after_its_write(world: World) -> None:
    """7.5: whatever else is written at the same time."""
    pending = [world.ask("POST", "/v0/topics/t", {"records": ONE * 2}) for _ in range(10)]
    for write in pending:
        answer = write.answer().json
        assert answer["head_seq"] == answer["last_seq"] == answer["first_seq"] + 1


def test_of_concurrent_first_writes_one_created_the_topic(world: World) -> None:
    """7.5, 3.1: one 201."""
    answers = [each.answer() for each in [world.ask("POST", "/v0/topics/t", {"records": ONE}) for _ in range(8)]]
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]
    assert sum(answer.json["created"] for answer in answers) == 1


def test_a_large_batch_arrives_whole(world: World) -> None:
    """7.5: ten thousand records, and a body of megabytes."""
    records = [{"data": {"n": n, "text": "x" * 200}, "tag": f"tag-{n % 100}"} for n in range(10_000)]
    assert world.request("POST", "/v0/topics/t", {"records": records}).json["last_seq"] == 10_000
    assert [record["n"] for record in world.data("t")] == list(range(10_000))
