"""Topic configuration: defaults, strict parsing, clamps, the commit class, and the checks of names."""

from __future__ import annotations

import json

import pytest

from topics.engine.values.name_rules import check_router_name, check_topic_name, is_router_name, is_topic_name
from topics.engine.values.topic_config import DEFAULT, check_dead_letter_of, make_config, read_config
from topics.errors import RequestError, UsageError

DEFAULT_JSON = (
    b'{"type":"log","ttl_ms":0,"cap_records":0,"cap_bytes":0,"discard":"old","durable":false,'
    b'"durability":"disk","priority":null,"auto_priority":true,"auto_create":true,'
    b'"idempotency_window_ms":120000,"dedupe_node":true,"lease_ms":30000,"claim_jitter_ms":0,'
    b'"max_deliveries":0,"dead_letter":null,"leases_durable":false}'
)


def test_an_empty_object_and_an_empty_body_are_all_defaults_in_the_contracts_order() -> None:
    assert read_config(b"{}") is DEFAULT
    assert read_config(b"") is DEFAULT
    assert DEFAULT.as_json() == DEFAULT_JSON


def test_every_field_is_read_and_written_back() -> None:
    given = {
        "type": "queue", "ttl_ms": 2**64 - 1, "cap_records": 5, "cap_bytes": 6, "discard": "reject", "durable": True,
        "durability": "fsync", "priority": -5000, "auto_priority": False, "auto_create": False,
        "idempotency_window_ms": 0, "dedupe_node": False, "lease_ms": 100, "claim_jitter_ms": 5000,
        "max_deliveries": 3, "dead_letter": "dlq", "leases_durable": True,
    }  # fmt: skip
    config = read_config(json.dumps(given).encode())
    assert json.loads(config.as_json()) == given
    assert list(json.loads(config.as_json())) == list(json.loads(DEFAULT_JSON))
    assert read_config(config.as_json()) is config


def test_equal_configs_are_one_object() -> None:
    assert read_config(b'{"ttl_ms":5}') is read_config(b' {"cap_records":0, "ttl_ms":5}')
    assert read_config(b'{"ttl_ms":5}') is make_config(ttl_ms=5)
    assert read_config(b'{"ttl_ms":6}') != make_config(ttl_ms=5)


@pytest.mark.parametrize(
    ("body", "durability"),
    [
        (b"{}", "disk"),
        (b'{"durable":true}', "fsync"),
        (b'{"durable":false}', "disk"),
        (b'{"durable":true,"durability":"disk"}', "disk"),
        (b'{"durable":true,"durability":null}', "fsync"),
        (b'{"durable":false,"durability":"fsync"}', "fsync"),
        (b'{"durability":"memory"}', "memory"),
        (b'{"durability":"ephemeral"}', "ephemeral"),
    ],
)
def test_an_explicit_durability_wins_over_durable(body: bytes, durability: str) -> None:
    config = read_config(body)
    assert (config.durability, config.durable) == (durability, durability == "fsync")


@pytest.mark.parametrize(
    ("body", "lease_ms", "claim_jitter_ms"),
    [
        (b'{"lease_ms":1,"claim_jitter_ms":9999}', 100, 5000),
        (b'{"lease_ms":86400001,"claim_jitter_ms":5000}', 86_400_000, 5000),
        (b'{"lease_ms":0}', 100, 0),
    ],
)
def test_queue_times_are_stored_clamped(body: bytes, lease_ms: int, claim_jitter_ms: int) -> None:
    config = read_config(body)
    assert (config.lease_ms, config.claim_jitter_ms) == (lease_ms, claim_jitter_ms)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"type":"stack"}', 'type must be "log" or "queue"'),
        (b'{"type":null}', "type must be"),
        (b'{"type":{"log":1}}', "type must be"),
        (b'{"ttl_ms":1.0}', "ttl_ms must be a whole number"),
        (b'{"cap_records":-1}', "cap_records must be"),
        (b'{"cap_bytes":18446744073709551616}', "cap_bytes must be"),
        (
            b'{"durability":"strong"}',
            'durability must be "ephemeral", "memory", "disk", "fsync" or null, not the string "strong"',
        ),
        (b'{"discard":"new"}', 'discard must be "old" or "reject"'),
        (b'{"durable":null}', "durable must be true or false, not null"),
        (b'{"durability":"paper"}', "durability must be"),
        (b'{"priority":2147483648}', "priority must be"),
        (b'{"priority":"1"}', "priority must be"),
        (b'{"auto_create":1}', "auto_create must be"),
        (b'{"dead_letter":5}', "dead_letter must be a string or null"),
        (b'{"ttl_ms":1,"ttl_ms":1}', "ttl_ms is given twice"),
        (b"[]", "the body must be an object, not an array"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_name(body: bytes, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_config(body)
    assert caught.value.code == "invalid_request"
    assert words in caught.value.message


def test_unknown_keys_are_ignored() -> None:
    assert read_config(b'{"colour":"red","colour":1}') is DEFAULT


def test_a_dead_letter_is_parsed_first_and_checked_later() -> None:
    config = read_config(b'{"dead_letter":"no/name"}')
    with pytest.raises(RequestError) as caught:
        check_dead_letter_of(config, "jobs")
    assert caught.value.detail == {"dead_letter": "no/name"}
    own = read_config(b'{"type":"queue","dead_letter":"jobs"}')
    with pytest.raises(RequestError, match="another topic"):
        check_dead_letter_of(own, "jobs")
    check_dead_letter_of(own, "other")
    check_dead_letter_of(read_config(b'{"dead_letter":"jobs"}'), "jobs")
    check_dead_letter_of(DEFAULT, "jobs")


def test_the_embedded_api_makes_configs_of_keywords() -> None:
    assert make_config(durable=True).durability == "fsync"
    assert make_config() is DEFAULT
    for wrong in ({"ttl": 5}, {"ttl_ms": "5"}, {"ttl_ms": -1}, {"durability": "paper"}, {"dead_letter": "no/name"}):
        with pytest.raises(UsageError):
            make_config(**wrong)


@pytest.mark.parametrize("name", ["a", "9", "a.b_c:d-e", "A" * 255])
def test_usable_topic_names(name: str) -> None:
    assert is_topic_name(name)
    check_topic_name(name)
    assert is_router_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", ":a", "a/b", "a b", "a\n", "é", "a>b", "A" * 256, "a\x00"])
def test_unusable_topic_names_are_refused(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(RequestError, match="not usable"):
        check_topic_name(name)


def test_router_names_may_hold_an_arrow() -> None:
    assert is_router_name("a->b")
    for name in ("", ">a", "-a", "a->b\n", "a b", "x" * 256):
        with pytest.raises(RequestError, match="not usable"):
            check_router_name(name)
