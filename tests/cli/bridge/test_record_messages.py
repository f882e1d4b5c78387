"""Records as messages: what each member becomes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topics.bridge.bridge_messages import BridgePosition, TopicBatch
from topics.bridge.record_messages import batch_of, meta_headers, text_header

NOW_MS = 1_700_000_000_000


def page(*records: dict[str, Any], tombstone: dict[str, Any] | None = None, next_from_seq: int = 9) -> TopicBatch:
    answer = {
        "records": records,
        "next_from_seq": next_from_seq,
        "head_seq": 12,
        "earliest_seq": 1,
        "tombstone": tombstone,
        "incarnation": "00000000000000aa",
    }
    return batch_of("orders", msgspec.json.encode(answer), NOW_MS)


def lost(reason: str, gap_from: int, gap_to: int, earliest_seq: int) -> dict[str, Any]:
    shared = {"missed_estimate": 3, "earliest_seq": earliest_seq, "head_seq": 12}
    return {"gap_from": gap_from, "gap_to": gap_to, "reason": reason, **shared}


def test_a_record_keeps_its_json_as_it_was_spelled_its_tag_and_its_time() -> None:
    answer = (
        b'{"records":[{"$seq":7,"$ts":5,"$tag":"eu","data":{"price":1.50,"n":18446744073709551615}}],'
        b'"next_from_seq":7,"head_seq":8,"earliest_seq":1,"tombstone":null,"incarnation":"00000000000000aa"}'
    )
    batch = batch_of("orders", answer, NOW_MS)
    (message,) = batch.messages
    assert bytes(message.value) == b'{"price":1.50,"n":18446744073709551615}'
    assert (message.seq, message.key, message.headers, message.ts, message.is_mark) == (7, "eu", (), 5, False)
    assert message.size == len(message.value) + 2
    assert batch.position == BridgePosition("00000000000000aa", 7)
    assert (batch.head_seq, batch.size) == (8, len(answer))


def test_a_record_of_bytes_is_its_bytes_and_says_so_and_one_of_null_is_json() -> None:
    batch = page({"$seq": 1, "$ts": 5, "data_base64": "/wA="}, {"$seq": 2, "$ts": 5, "data": None})
    assert [(bytes(message.value), message.headers) for message in batch.messages] == [
        (b"\xff\x00", (("topics-data", b"bytes"),)),
        (b"null", ()),
    ]


def test_members_of_an_answer_that_are_named_like_fields_of_a_message_change_nothing() -> None:
    record = {"$seq": 1, "$ts": 5, "data": 1, "headers": [["topics-seq", "Mg=="]], "is_mark": True, "value": 2}
    (message,) = page(record).messages
    assert (bytes(message.value), message.headers, message.is_mark, message.key) == (b"1", (), False, None)


def test_an_empty_tag_is_an_empty_key_and_no_tag_is_none() -> None:
    batch = page({"$seq": 1, "$ts": 5, "data": 1, "$tag": ""}, {"$seq": 2, "$ts": 5, "data": 1})
    assert [message.key for message in batch.messages] == ["", None]


@pytest.mark.parametrize(
    ("meta", "headers"),
    [
        ({"by": "me"}, (("by", b"me"),)),
        ({"by": "me", "n": 1, "deep": {"a": [1]}}, (("by", b"me"), ("topics-meta", b'{"n":1,"deep":{"a":[1]}}'))),
        ({"two words": "x"}, (("topics-meta", b'{"two words":"x"}'),)),
        ({"by": "é"}, (("topics-meta", b'{"by":"\\u00e9"}'),)),
        ({"by": " me"}, (("topics-meta", b'{"by":" me"}'),)),
        ({"by": "a\r\nb"}, (("topics-meta", b'{"by":"a\\r\\nb"}'),)),
        ({"topics-seq": "7"}, (("topics-meta", b'{"topics-seq":"7"}'),)),
        ({"Nats-Msg-Id": "7"}, (("topics-meta", b'{"Nats-Msg-Id":"7"}'),)),
        ({}, (("topics-meta", b"{}"),)),
        ("text", (("topics-meta", b'"text"'),)),
    ],
)
def test_members_of_meta_that_are_plain_strings_are_headers_and_the_rest_is_json(meta: Any, headers: Any) -> None:
    assert meta_headers(msgspec.json.encode(meta)) == headers


def test_a_text_that_no_header_can_have_is_json_and_named_so() -> None:
    assert text_header("topics-tag", "eu") == ("topics-tag", b"eu")
    assert text_header("topics-tag", "é\n") == ("topics-tag-json", b'"\\u00e9\\n"')


def test_a_gap_is_a_mark_with_its_bounds_and_reason_before_the_records_after_it() -> None:
    batch = page({"$seq": 9, "$ts": 5, "data": 1}, tombstone=lost("cap", 3, 8, 9))
    mark, record = batch.messages
    assert msgspec.json.decode(mark.value) == {"gap_from": 3, "gap_to": 8, "reason": "cap", "missed_estimate": 3}
    assert (mark.seq, mark.headers, mark.ts, mark.is_mark) == (8, (("topics-gap", b"cap"),), 5, True)
    assert (record.seq, record.is_mark) == (9, False)


def test_the_mark_of_a_topic_that_was_created_again_continues_at_its_first_record() -> None:
    batch = page(tombstone=lost("recreated", 1, 12, 4), next_from_seq=3)
    assert [(message.seq, message.ts) for message in batch.messages] == [(3, NOW_MS)]


def test_a_position_comes_back_from_its_json() -> None:
    position = BridgePosition("00000000000000aa", 7)
    assert BridgePosition.of_json(position.as_json()) == position
    with pytest.raises(ValueError, match="incarnation"):
        BridgePosition.of_json(b"{}")
