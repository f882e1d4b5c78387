"""Names, limits, records as they come back, configurations, priorities."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.world.world import World, seqs

INVALID = (400, "invalid_request", None)
JSON_TYPE = {"Content-Type": "application/json"}
DEFAULTS = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "priority": None, "auto_priority": True, "auto_create": True,
    "idempotency_window_ms": 120000, "dedupe_node": True, "lease_ms": 30000, "claim_jitter_ms": 0,
    "max_deliveries": 0, "dead_letter": None, "leases_durable": False,
}  # fmt: skip


# --- names ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a", "Z", "0", "a" * 255, "a.b_c:d-e", "0-_.:", "CON"])
def test_a_good_name_makes_a_topic(world: World, name: str) -> None:
    """5.1: by PUT and by a write."""
    assert world.put(name)["topic"] == name
    world.drop(name)
    assert world.write(name, 1)["topic"] == name


@pytest.mark.parametrize(
    "name", [".a", "_a", "-a", ":a", "a" * 256, "a%20b", "a%2Fb", "a%3E", "%C3%A9", "a%0A", "a%00", "a$"]
)
def test_a_bad_name_makes_none_and_is_simply_absent_elsewhere(world: World, name: str) -> None:
    """5.1: creating paths check it; reading and deleting ones do not."""
    assert world.request("PUT", f"/v0/topics/{name}").refusal == INVALID
    assert world.request("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}).refusal == INVALID
    assert world.request("GET", f"/v0/topics/{name}").status == 404
    assert world.request("POST", f"/v0/topics/{name}/diff").status == 404
    assert world.request("POST", f"/v0/topics/{name}/delete", {"before_seq": 1}).status == 404
    assert world.request("DELETE", f"/v0/topics/{name}").json["deleted"] is False


def test_names_are_case_sensitive(world: World) -> None:
    """5.1: byte for byte."""
    world.put("Jobs")
    assert world.request("GET", "/v0/topics/jobs").status == 404
    assert world.request("PUT", "/v0/topics/jobs").status == 201


# --- limits ---------------------------------------------------------------------------------------------------------
def refusal(world: World, *records: dict[str, Any], **fields: Any) -> Any:
    answer = world.request("POST", "/v0/topics/t", {"records": list(records), **fields})
    return "accepted" if answer.status in (200, 201) else answer.refusal[1]


def test_a_write_has_at_most_10000_records(world: World) -> None:
    """5.2: that many, not one more."""
    records = [{"data": 1}] * 10_000
    assert refusal(world, *records) == "accepted"
    assert refusal(world, *records, {"data": 1}) == "batch_too_large"
    assert world.state("t")["head_seq"] == 10_000


def test_a_record_has_at_most_a_mebibyte(world: World) -> None:
    """5.2: the compact data and meta together, as bytes of UTF-8."""
    limit = 1_048_576
    assert refusal(world, {"data": "x" * (limit - 2)}) == "accepted"
    assert refusal(world, {"data": "x" * (limit - 1)}) == "record_too_large"
    assert refusal(world, {"data": "é" * (limit // 2 - 1)}) == "accepted"
    assert refusal(world, {"data": "é" * (limit // 2)}) == "record_too_large"
    assert refusal(world, {"data": "x" * (limit - 2 - 9), "meta": {"k": "v"}}) == "accepted"
    assert refusal(world, {"data": "x" * (limit - 1 - 9), "meta": {"k": "v"}}) == "record_too_large"


def test_blanks_around_a_value_do_not_count(world: World) -> None:
    """5.2: compact means without insignificant white space, in the shortest escapes."""
    body = b'{"records":[{"data": [ 1 ,\n2 , "\\u0041\\/\\u00e9" ] }]}'
    assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).status == 201
    assert world.state("t")["bytes"] == len('[1,2,"A/é"]'.encode())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('"\\u000a"', 4),
        ('"\\u0001"', 8),
        ('"\\u0008\\u000c"', 6),
        ('"\\ud83d\\ude00"', 6),
        ('"\\u007f"', 3),
        ('"\\"\\\\"', 6),
    ],
)
def test_escapes_count_in_their_shortest_form(world: World, text: str, size: int) -> None:
    """5.2: two bytes for the named ones, six for other control characters, none for the rest."""
    world.request("POST", "/v0/topics/t", b'{"records":[{"data":%b}]}' % text.encode(), JSON_TYPE)
    assert world.state("t")["bytes"] == size


def test_meta_has_at_most_16_kib_and_64_keys(world: World) -> None:
    """5.2: at the limit, and one beyond it."""
    assert refusal(world, {"data": 1, "meta": "m" * 16_382}) == "accepted"
    assert refusal(world, {"data": 1, "meta": "m" * 16_383}) == "invalid_request"
    assert refusal(world, {"data": 1, "meta": {str(n): n for n in range(64)}}) == "accepted"
    assert refusal(world, {"data": 1, "meta": {str(n): n for n in range(65)}}) == "invalid_request"


@pytest.mark.parametrize(("field", "limit"), [("tag", 256), ("node", 128)])
def test_tags_and_nodes_are_limited_in_bytes(world: World, field: str, limit: int) -> None:
    """5.2: of UTF-8."""
    for good in ("x" * limit, "é" * (limit // 2), ""):
        assert refusal(world, {"data": 1, field: good}) == "accepted"
    for bad in ("x" * (limit + 1), "é" * (limit // 2) + "x"):
        assert refusal(world, {"data": 1, field: bad}) == "invalid_request"


def test_the_node_of_a_batch_and_the_key_are_limited_too(world: World) -> None:
    """5.2: 128 and 256 bytes."""
    assert refusal(world, {"data": 1}, node="n" * 128) == "accepted"
    assert refusal(world, {"data": 1}, node="n" * 129) == "invalid_request"
    assert refusal(world, {"data": 1}, idempotency_key="k" * 256) == "accepted"
    assert refusal(world, {"data": 1}, idempotency_key="k" * 257) == "invalid_request"
    long_key = {"Idempotency-Key": "k" * 257}
    assert world.request("POST", "/v0/topics/t", {"records": [{"data": 1}]}, long_key).refusal == INVALID


def test_a_key_in_the_header_is_checked_before_the_records(world: World) -> None:
    """7.5/3, 7.5/4: a key that is too long, or beside a producer, comes before a record that is too large."""
    world.put("t")
    body: dict[str, Any] = {"records": [{"data": "x" * (1 << 20)}]}
    assert world.request("POST", "/v0/topics/t", body, {"Idempotency-Key": "k" * 256}).refusal[1] == "record_too_large"
    assert world.request("POST", "/v0/topics/t", body, {"Idempotency-Key": "k" * 257}).refusal == INVALID
    body["producer"] = {"id": "p", "epoch": 1, "part": 1}
    assert world.request("POST", "/v0/topics/t", body).refusal[1] == "record_too_large"
    assert world.request("POST", "/v0/topics/t", body, {"Idempotency-Key": "k"}).refusal == INVALID
    many = {"records": [{"data": 1}] * 10_001}
    assert world.request("POST", "/v0/topics/t", many, {"Idempotency-Key": "k" * 257}).refusal[1] == "batch_too_large"


def test_lease_and_jitter_are_clamped_as_stored(world: World) -> None:
    """5.2: on logs too."""
    low = world.put("t", lease_ms=0, claim_jitter_ms=0)["config"]
    assert (low["lease_ms"], low["claim_jitter_ms"]) == (100, 0)
    high = world.put("t", lease_ms=2**64 - 1, claim_jitter_ms=2**64 - 1)["config"]
    assert (high["lease_ms"], high["claim_jitter_ms"]) == (86_400_000, 5000)


# --- records --------------------------------------------------------------------------------------------------------
def test_a_record_shows_what_it_has_and_what_was_asked_for(world: World) -> None:
    """5.3: tags on demand, meta unless declined, node when there is one, data always."""
    before_ms = world.now_ms()
    world.write_records(
        "t",
        [
            {"data": {"a": 1}, "tag": "t1", "node": "n1", "meta": {"k": "v"}},
            {"data": None},
            {"data": 0, "tag": "", "node": "", "meta": {}},
        ],
    )
    first, second, third = world.diff("t", include_tags=True)["records"]
    stamp = first["$ts"]
    assert before_ms <= stamp <= world.now_ms()
    assert first == {"$seq": 1, "$ts": stamp, "$node": "n1", "$tag": "t1", "data": {"a": 1}, "meta": {"k": "v"}}
    assert second == {"$seq": 2, "$ts": stamp, "data": None}
    assert third == {"$seq": 3, "$ts": stamp, "$node": "", "$tag": "", "data": 0, "meta": {}}
    first, second, third = world.diff("t", include_meta=False)["records"]
    assert first == {"$seq": 1, "$ts": stamp, "$node": "n1", "data": {"a": 1}}
    assert third == {"$seq": 3, "$ts": stamp, "$node": "", "data": 0}


@pytest.mark.parametrize("meta", [[1, "x"], "text", 0, False, {"nested": {"a": []}}])
def test_meta_may_be_any_json(world: World, meta: Any) -> None:
    """5.3: normally an object, but not by force."""
    world.write_records("t", [{"data": 1, "meta": meta}])
    assert world.diff("t")["records"][0]["meta"] == meta


VALUES = [
    None, True, False, 0, -1, 2**64 - 1, -(2**63), 1.5, -2.5e-300, 1e308, 5e-324, "", "a\"b\\c/d\b\f\n\r\t\0\x1f\x7f",
    "é€😀\u2028\ufeff\uffff", [], {}, [[], {}], {"": {"": []}}, {"a": 1, "b": [True, None, "x"]}, "$seq", 0.1,
]  # fmt: skip


def test_data_comes_back_as_an_equal_value(world: World) -> None:
    """R-DATA-1: exact integers of 64 bits, doubles as doubles, strings code point for code point."""
    for value in VALUES:
        world.write_records("t", [{"data": value, "meta": {"m": value}}])
    records = world.diff("t")["records"]
    for record, value in zip(records, VALUES, strict=True):
        assert record["data"] == value
        assert type(record["data"]) is type(value)
        assert record["meta"] == {"m": value}


def test_the_last_of_duplicate_keys_inside_data_is_kept(world: World) -> None:
    """R-DATA-1: at every depth, escapes decoded."""
    body = b'{"records":[{"data":{"a":1,"b":{"c":1,"c":2},"\\u0061":3},"meta":{"m":1,"m":2}}]}'
    assert world.request("POST", "/v0/topics/t", body, JSON_TYPE).status == 201
    record = world.request("POST", "/v0/topics/t/diff").json["records"][0]
    assert record["data"] == {"a": 3, "b": {"c": 2}}
    assert record["meta"] == {"m": 2}


def test_numbers_keep_their_value_in_any_spelling(world: World) -> None:
    """R-DATA-1: as integers and doubles have it."""
    text = "[1E2,1.0,-0,100000000000000000000000,1e-7,0.30000000000000004,123456789.123456789]"
    assert world.request("POST", "/v0/topics/t", f'{{"records":[{{"data":{text}}}]}}'.encode(), JSON_TYPE).status == 201
    back = world.diff("t")["records"][0]["data"]
    assert [float(value) for value in back] == [float(value) for value in json.loads(text)]


def test_a_record_never_changes(world: World) -> None:
    """R-DATA-2: whatever is written, deleted or reconfigured around it, across segments and restarts."""
    world.put("t", cap_records=5000)
    world.write_records("t", [{"data": {"n": n}, "tag": f"g{n % 7}"} for n in range(250)])
    seen = {record["$seq"]: record for record in world.diff("t", limit=1000, include_tags=True)["records"]}
    for number in range(5):
        world.write_records("t", [{"data": number, "tag": "later"} for _ in range(100)])
        world.delete("t", match=f"g{number}")
        world.put("t", cap_records=5000, cap_bytes=2**40 + number)
        for record in world.diff("t", limit=250, include_tags=True)["records"]:
            assert seen.get(record["$seq"], record) == record
    assert seqs(world.diff("t", limit=3)) == [6, 7, 13]


def test_sizes_count_data_and_meta_only(world: World) -> None:
    """5.3, TV-9: no tag, no node, no framing."""
    records = [
        ({"data": "x"}, 3),
        ({"data": 1}, 1),
        ({"data": {"a": 1}, "meta": {"k": "v"}}, 16),
        ({"data": "é"}, 4),
        ({"data": None}, 4),
        ({"data": 1, "tag": "t" * 100, "node": "n" * 100}, 1),
        ({"data": 1, "meta": None}, 1),
    ]
    before = 0
    for record, size in records:
        world.write_records("t", [record])
        assert world.state("t")["bytes"] == before + size
        before += size


# --- configuration --------------------------------------------------------------------------------------------------
def test_an_answer_echoes_all_17_fields(world: World) -> None:
    """5.4: resolved, defaults included, null for what is not set."""
    assert world.put("t")["config"] == DEFAULTS
    assert world.state("t")["config"] == DEFAULTS
    world.write("by-write", 1)
    assert world.state("by-write")["config"] == DEFAULTS


def test_every_field_can_be_set(world: World) -> None:
    """5.4: and comes back as given."""
    config = {
        "type": "queue", "ttl_ms": 1, "cap_records": 2, "cap_bytes": 3, "discard": "reject", "durable": True,
        "durability": "fsync", "priority": -7, "auto_priority": False, "auto_create": False,
        "idempotency_window_ms": 5, "dedupe_node": False, "lease_ms": 100, "claim_jitter_ms": 5000,
        "max_deliveries": 9, "dead_letter": "dlq", "leases_durable": True,
    }  # fmt: skip
    assert world.put("t", **config)["config"] == config
    assert world.state("t")["config"] == config


@pytest.mark.parametrize(
    ("given", "durability"),
    [
        ({}, "disk"),
        ({"durable": False}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durable": True, "durability": None}, "fsync"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": False, "durability": "fsync"}, "fsync"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "disk"}, "disk"),
    ],
)
def test_the_class_is_resolved_and_durable_follows_it(world: World, given: dict[str, Any], durability: str) -> None:
    """5.4: an explicit class wins over the alias."""
    config = world.put("t", **given)["config"]
    assert (config["durability"], config["durable"]) == (durability, durability == "fsync")


def test_a_put_replaces_the_whole_configuration(world: World) -> None:
    """R-CFG-1: what it leaves out is a default again, not what was."""
    world.put("t", ttl_ms=5, cap_records=6, priority=7, durability="memory")
    assert world.put("t")["config"] == DEFAULTS


def test_a_tighter_limit_holds_at_once(world: World) -> None:
    """R-CFG-2: for the records that are there."""
    world.write("t", 1, 2, 3, 4, 5)
    world.put("t", cap_records=2)
    state = world.state("t")
    assert (state["earliest_seq"], state["count"]) == (4, 2)
    world.put("t", cap_bytes=1)
    assert world.state("t")["earliest_seq"] == 5


def test_a_shorter_life_holds_at_once(world: World) -> None:
    """R-CFG-2: for the records that are there, and longer lives bring none back."""
    world.write("t", 1)
    world.advance_ms(1000)
    world.write("t", 2)
    world.put("t", ttl_ms=500)
    assert world.state("t")["earliest_seq"] == 2
    world.put("t")
    assert world.data("t") == [2]


def test_everything_but_the_type_may_change(world: World) -> None:
    """R-CFG-3: the class too, in every direction."""
    world.put("t")
    for number, durability in enumerate(["fsync", "memory", "disk", "ephemeral", "fsync", "ephemeral", "disk"]):
        assert world.put("t", durability=durability)["config"]["durability"] == durability
        assert world.write("t", durability)["last_seq"] == number + 1
    assert len(world.data("t")) == 7
    assert world.request("PUT", "/v0/topics/t", {"type": "queue"}).status == 409


@pytest.mark.parametrize("weaker", ["ephemeral", "memory", "disk"])
def test_writes_after_a_change_of_class_have_the_new_guarantee(world: World, weaker: str) -> None:
    """R-CFG-3, R-DUR-2: also after records of a weaker class."""
    world.put("t", durability=weaker)
    world.write("t", "weak", "weak")
    world.put("t", durability="fsync")
    acknowledged = world.write("t", "strong")["last_seq"]
    world.power_cut()
    world.start()
    page = world.diff("t", acknowledged - 1)
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(acknowledged, "strong")]


# --- priority -------------------------------------------------------------------------------------------------------
def effective(world: World, topic: str = "t", *, touch: bool = False) -> int:
    return world.request("GET", f"/v0/topics/{topic}?touch={str(touch).lower()}").json["effective_priority"]


@pytest.mark.parametrize(
    ("priority", "shown"), [(7, 7), (5000, 1000), (-5000, -1000), (0, 0), (1000, 1000), (-1000, -1000)]
)
def test_a_set_priority_is_clamped_where_it_is_used(world: World, priority: int, shown: int) -> None:
    """R-PRI-1: stored and echoed as given."""
    assert world.put("t", priority=priority)["config"]["priority"] == priority
    assert effective(world) == effective(world, touch=True) == shown


def test_an_unset_priority_halves_every_half_minute(world: World) -> None:
    """R-PRI-2, R-PRI-4, TV-20: since the last consumption; after five minutes it is 0."""
    world.put("t")
    assert effective(world) == 0
    assert effective(world, touch=True) == 500
    start_ms = world.now_ms()
    for after_ms, priority in [(10_000, 397), (30_000, 250), (60_000, 125), (299_999, 0), (300_000, 0), (400_000, 0)]:
        world.advance_to_ms(start_ms + after_ms)
        assert effective(world) == priority


def test_without_auto_priority_it_is_0(world: World) -> None:
    """R-PRI-3: however much is read."""
    world.put("t", auto_priority=False)
    world.diff("t")
    assert effective(world, touch=True) == 0


def test_what_counts_as_consumption(world: World) -> None:
    """R-PRI-4: diff, a touching state, a touching list; writing does not. It fades on a busy machine."""
    for name in ("diff", "state", "list", "write"):
        world.put(name)
    world.diff("diff")
    world.request("GET", "/v0/topics/state")
    world.request("GET", "/v0/topics?touch=true&prefix=list")
    world.write("write", 1)
    assert {name: effective(world, name) > 450 for name in ("diff", "state", "list", "write")} == {
        "diff": True,
        "state": True,
        "list": True,
        "write": False,
    }
