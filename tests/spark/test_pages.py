"""Pages decoded with msgspec and with the standard library: equal columns, and JSON text as it was sent."""

from __future__ import annotations

import json
import random

import pytest

from topics.spark.reading.diff_page import PageLoss
from topics.spark.reading.fast_pages import decode_page as fast
from topics.spark.reading.pages import decode_page, decoder

RECORDS = (
    '{"$seq":1,"$ts":5,"data":{"a": [1, 2.50, 1e3]}}',
    '{ "$seq" : 2 , "$ts" : 6 , "$node":"n\\u00e9","$tag":"\\"x\\\\", "data" : "é\\n" ,"meta":{"k":[]} }',
    '{"$seq":9007199254740993,"$ts":7,"data":null,"meta":null}',
    '{"$seq":4,"$ts":8,"data":[{"data":1,"records":[{}]}],"later":{"field":true}}',
    '{"$seq":5,"$ts":8,"$tag":"x","data_base64":"/+8="}',
    '{"$seq":6,"$ts":8,"data_base64":""}',
)


def body(records: tuple[str, ...], tombstone: str = "null") -> bytes:
    return (
        '{"topic":"a","records":[' + ",".join(records) + f'],"next_from_seq":9,"head_seq":10,"tombstone":{tombstone},'
        '"lag":1,"performance":{"server_total_ms":0.1}}'
    ).encode()


@pytest.mark.parametrize("count", range(len(RECORDS) + 1))
def test_both_decoders_give_the_same_columns(count: int) -> None:
    page = body(RECORDS[:count], '{"gap_from":1,"gap_to":2,"reason":"cap","missed_estimate":2}')
    assert fast(page) == decode_page(page)
    assert decode_page(page).lost == PageLoss(1, 2, "cap")
    assert len(decode_page(page).columns.seqs) == count


def test_data_is_the_text_that_was_sent() -> None:
    columns = decode_page(body(RECORDS)).columns
    assert columns.data[0] == b'{"a": [1, 2.50, 1e3]}'
    assert (columns.meta[0], columns.meta[1], columns.meta[2]) == (b"", b'{"k":[]}', b"null")
    assert (columns.tags[1], columns.nodes[1]) == ('"x\\', "né")


def test_random_pages_decode_alike() -> None:
    rng = random.Random(7)
    for _ in range(200):
        value = {f"k{rng.randrange(9)}": rng.choice([1, "ü\n", None, [rng.random()], {"x": "]}"}]) for _ in range(3)}
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        page = body((f'{{"$seq":1,"$ts":2,"data":{text}}}',))
        assert fast(page) == decode_page(page)
        assert json.loads(decode_page(page).columns.data[0]) == value


@pytest.mark.parametrize(
    "broken", [b"{}", b"[1]", b'{"records":[{]}', b'{"records":[{}]', body(('{"$seq":1,"$ts":2}',)), b"\xff"]
)
def test_what_is_no_page_is_an_error_and_nothing_else(broken: bytes) -> None:
    for decode in (fast, decode_page):
        with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own words
            decode(broken)


def test_msgspec_is_used_where_it_is() -> None:
    assert decoder() is fast


def test_data_of_a_record_of_bytes_is_its_base64() -> None:
    columns = decode_page(body(RECORDS)).columns
    assert columns.data[4:] == [b"", b""]
    assert columns.base64 == [None, None, None, None, "/+8=", ""]
