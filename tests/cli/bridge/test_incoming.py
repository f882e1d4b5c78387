"""Messages of Kafka and JetStream as records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topics.bridge.incoming import BridgeMark, IncomingMessage, mark_of, record_of, with_mark
from topics.common.values.written import NewRecord
from topics.errors import UsageError

MARK = BridgeMark("topics", 7, "process", {"0": 12})


def message(
    value: bytes | None = b'{"n":1}', key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> IncomingMessage:
    return IncomingMessage(value, key, headers, "message 3 of partition 0 of orders")


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b'{"n": 1.50}', msgspec.Raw(b'{"n": 1.50}')),
        (b"\xff", b"\xff"),
        (b"text", b"text"),
        (b'{"n":1} {"n":2}', b'{"n":1} {"n":2}'),
        (b"", b""),
        (None, None),
    ],
)
def test_a_value_that_is_json_is_json_and_any_other_is_bytes(value: bytes | None, data: Any) -> None:
    found = record_of(message(value), "auto").data
    assert (type(found), bytes(found or b"")) == (type(data), bytes(data or b""))


def test_values_are_bytes_or_have_to_be_json_on_request() -> None:
    assert record_of(message(b"1"), "bytes").data == b"1"
    assert record_of(message(b"1", headers=(("topics-data", b"bytes"),)), "json").data == b"1"
    with pytest.raises(UsageError, match="message 3 of partition 0 of orders is no JSON .*--values auto or bytes"):
        record_of(message(b"\xff"), "json")


def test_a_key_is_the_tag_and_one_that_no_tag_can_be_is_in_meta() -> None:
    assert record_of(message(key=b"eu"), "auto").tag == "eu"
    assert record_of(message(key=b""), "auto").tag == ""
    for key in (b"\xff\x00", b"x" * 257):
        record = record_of(message(key=key), "auto")
        assert record.tag is None
        assert set(record.meta) == {"topics-key-base64"}


def test_headers_are_members_of_meta_and_what_a_bridge_has_made_is_what_it_was() -> None:
    headers = (("a", b"1"), ("a", b"2"), ("raw", b"\xff"), ("none", None), ("Nats-Msg-Id", b"7"))
    meta = record_of(message(headers=headers), "auto").meta
    assert meta == {"a": ["1", "2"], "raw": {"base64": "/w=="}, "none": ""}
    of_bridge = (
        ("topics-seq", b"9"),
        ("topics-incarnation", b"00000000000000aa"),
        ("topics-ts", b"5"),
        ("topics-tag-json", b'"\\u00e9"'),
        ("topics-node", b"n1"),
        ("by", b"me"),
        ("topics-meta", b'{"n":1}'),
    )
    record = record_of(message(headers=of_bridge), "auto")
    assert (record.tag, record.node, record.meta) == ("é", "n1", {"by": "me", "n": 1})


NOT_OF_A_BRIDGE: list[tuple[str, bytes | None, Any]] = [
    ("topics-meta", b"{bad", "{bad"),
    ("topics-meta", None, ""),
    ("topics-meta", b"[" * 900 + b"]" * 900, "[" * 900 + "]" * 900),
    ("topics-meta", b"[" * 5000 + b"]" * 5000, "[" * 5000 + "]" * 5000),
    ("topics-tag-json", b"{bad", "{bad"),
    ("topics-tag-json", b"7", "7"),
    ("topics-node-json", b'"\\ud800"', '"\\ud800"'),
    ("topics-tag", b"\xff", {"base64": "/w=="}),
    ("topics-node", b"\xff", {"base64": "/w=="}),
    ("topics-tag", b"x" * 257, "x" * 257),
    ("topics-node", b"x" * 129, "x" * 129),
    ("topics-tag-json", b'"%s"' % (b"x" * 257), f'"{"x" * 257}"'),
    ("topics-seq", b"-1", "-1"),
    ("topics-ts", b"soon", "soon"),
    ("topics-incarnation", b"mine", "mine"),
    ("topics-data", b"text", "text"),
]


@pytest.mark.parametrize(("name", "raw", "member"), NOT_OF_A_BRIDGE)
def test_a_header_that_no_bridge_has_made_is_one_of_the_other_side(name: str, raw: bytes | None, member: Any) -> None:
    record = record_of(message(headers=(("by", b"me"), (name, raw))), "auto")
    assert (record.tag, record.node, record.meta) == (None, None, {"by": "me", name: member})
    assert record.data == msgspec.Raw(b'{"n":1}')


def test_headers_of_a_bridge_that_come_twice_or_beside_a_key_are_kept() -> None:
    twice = record_of(message(headers=(("topics-node", b"a"), ("topics-node", b"b"))), "auto")
    assert (twice.node, twice.meta) == (None, {"topics-node": ["a", "b"]})
    beside = record_of(message(key=b"eu", headers=(("topics-tag", b"us"),)), "auto")
    assert (beside.tag, beside.meta) == ("eu", {"topics-tag": "us"})


def test_more_headers_than_meta_has_members_are_together_in_one() -> None:
    headers = tuple((f"h{number}", b"1") for number in range(64))
    assert len(record_of(message(headers=headers[:63]), "auto").meta) == 63
    assert record_of(message(headers=headers), "auto").meta == {"topics-headers": {name: "1" for name, _ in headers}}


@pytest.mark.parametrize(("depth", "kind"), [(124, msgspec.Raw), (125, bytes), (900, bytes), (5000, bytes)])
def test_json_that_is_nested_deeper_than_a_server_takes_is_bytes(depth: int, kind: type) -> None:
    for value in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        assert type(record_of(message(value), "auto").data) is kind
        if kind is bytes:
            with pytest.raises(UsageError, match=r"message 3 .* is no JSON .*use --values auto or bytes"):
                record_of(message(value), "json")
    flat = b"[" + b"[]," * 5000 + b"1]"
    assert type(record_of(message(flat), "auto").data) is msgspec.Raw


def test_a_mark_comes_back_for_its_bridge_only() -> None:
    marked = with_mark(NewRecord(1, meta={"by": "me"}), MARK).meta
    assert marked["by"] == "me"
    assert mark_of(msgspec.json.decode(msgspec.json.encode(marked)), "topics") == MARK
    assert mark_of(marked, "other") is None
    assert mark_of({"topics-bridge": {"id": 1}}, "topics") is None
    assert mark_of("text", "topics") is None
    assert with_mark(NewRecord(1, meta="text"), MARK).meta["topics-meta"] == "text"
