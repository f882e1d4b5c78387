"""The body of a write: rows, the other fields, limits and the words of refusals; compared with the model."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.json import json_model
from tests.store.format.frames_by_hand import record_at
from topics.config import Config
from topics.engine.bodies.write_body import WriteBody, WriteScanner
from topics.engine.values.topic_config import make_config
from topics.errors import RequestError
from topics.store.format.rows import ROW_DTYPE, RowRecord

SCANNER = WriteScanner(Config())
SMALL = WriteScanner(
    replace(
        Config(),
        max_batch_records=3,
        max_record_bytes=100,
        max_meta_bytes=40,
        max_meta_keys=3,
        max_tag_bytes=5,
        max_node_bytes=5,
        max_idempotency_key_bytes=5,
    )
)


def scan(body: bytes) -> WriteBody:
    return SCANNER.scan(body)


def records_of(body: WriteBody) -> list[RowRecord]:
    return [record_at(body.rows, index) for index in range(body.rows.count)]


def refusal(body: bytes, scanner: WriteScanner = SCANNER) -> RequestError:
    """The error of a body that is refused, by its shape or by a limit."""
    try:
        violation = scanner.scan(body).violation
    except RequestError as error:
        return error
    assert violation is not None
    return violation


def test_a_plain_body_is_used_as_it_is() -> None:
    body = b'{"records":[{"data":{"sku":1},"tag":"t","node":"n","meta":{"k":"v"}},{"data":null}]}'
    scanned = scan(body)
    assert scanned.rows.buffer is body
    assert records_of(scanned) == [
        RowRecord(b'{"sku":1}', b"t", b"n", b'{"k":"v"}', 18),
        RowRecord(b"null", None, None, None, 4),
    ]
    assert scanned.rows.size == 22
    assert scanned[1:] == (None, None, None, None, False, None, None, None)


def test_blanks_and_escapes_are_cleaned_into_a_copy() -> None:
    body = b' { "records" : [ { "data" : { "a" : [ 1 , " x " ] } , "tag":"\\u00e9\\n", "node":"\\ud83d\\ude00" } ] } '
    scanned = scan(body)
    assert records_of(scanned) == [RowRecord(b'{"a":[1," x "]}', "é\n".encode(), "😀".encode(), None, 15)]


def test_a_payload_keeps_its_spelling_and_is_accounted_in_the_shortest_one() -> None:
    assert records_of(scan(b'{"records":[{"data":"\\u0041\\/"}]}')) == [RowRecord(b'"\\u0041\\/"', None, None, None, 4)]


def test_nulls_mean_absent_and_empty_labels_do_not() -> None:
    body = b'{"records":[{"data":1,"tag":null,"node":null,"meta":null},{"data":1,"tag":"","node":"","meta":[]}]}'
    assert records_of(scan(body)) == [RowRecord(b"1", None, None, None, 1), RowRecord(b"1", b"", b"", b"[]", 3)]


def test_repeated_keys_in_payloads_keep_the_last_and_are_accounted_so() -> None:
    body = b'{"records":[{"data":1},{"data":{"a":1, "a":[2]},"meta":{"x":1,"\\u0078":2},"tag":"t"}]}'
    assert records_of(scan(body)) == [
        RowRecord(b"1", None, None, None, 1),
        RowRecord(b'{"a":[2]}', b"t", None, b'{"\\u0078":2}', 9 + 7),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a":1,"b":2}', '{"a":1,"a":2}'),
        ('{"a":{"a":1}}', '{"a":1,"a":2}'),
        ('[{"a":1},{"a":2}]', '[{"a":1,"a":2}]'),
        ('{"abcdefg":1,"b":2}', '{"abcdefh":1,"abcdefh":2}'),
        ('{"nnnnnnnnab":1,"nnnnnnnnac":2}', '{"nnnnnnnnac":1,"nnnnnnnnac":2}'),
        ('{"nnnnnnnnnnnnn":1,"b":2}', '{"nnnnnnnnnnnnn":1,"nnnnnnnnnnnnn":2}'),
        ('{"nnnnnnnnnnnnnn":1,"b":2}', '{"nnnnnnnnnnnnnn":1,"nnnnnnnnnnnnnn":2}'),
        ('{"a":1}', '{"\\u0061":1,"a":2}'),
        ('{"\\u0061":1,"b":1}', '{"a":1,"\\u0061":2}'),
        ('{"a" :1}', '{"a":1,"a":2}'),
        (
            "{" + ",".join(f'"k{i}":0' for i in range(20)) + "}",
            "{" + ",".join(f'"k{i % 19}":0' for i in range(20)) + "}",
        ),
    ],
)
def test_a_repeated_key_is_found_whatever_keys_the_record_before_had(first: str, second: str) -> None:
    for order in ((first, second), (first, first, second), (second, first), (second, second)):
        agrees_with_the_model(b'{"records":[%b]}' % b",".join(b'{"data":%b}' % text.encode() for text in order))


@pytest.mark.parametrize("at", range(40, 73))
def test_a_key_that_the_record_before_had_may_be_cut_off_or_damaged_anywhere(at: int) -> None:
    body = b'{"records":[{"data":{"a":1,"abcdefgh":2}},{"data":{"a":1,"abcdefgh":2}}]}'
    agrees_with_the_model(body[:at])
    for byte in (b"x", b'"', b" "):
        agrees_with_the_model(body[:at] + byte + body[at + 1 :])


def test_the_other_fields_are_read() -> None:
    body = (
        b'{"node":"w\\u00e9","idempotency_key":"k","create":false,"config":{"ttl_ms":5},'
        b'"disable_backpressure":true,"records":[{"data":1}],"incarnation":"00\\u006600000000000af",'
        b'"unknown":{"a":1,"a":1}}'
    )
    scanned = scan(body)
    assert scanned.rows.count == 1
    config = make_config(ttl_ms=5)
    assert scanned[1:] == ("wé".encode(), b"k", False, config, True, None, "00f00000000000af", None)


def test_fields_of_one_body_do_not_leak_into_the_next() -> None:
    scan(b'{"node":"w","create":true,"config":{},"disable_backpressure":true,"records":[{"data":1}]}')
    scan(b'{"incarnation":"0123456789abcdef","records":[{"data":1}]}')
    key_alone = scan(b'{"records":[{"data":1}],"idempotency_key":""}')
    assert key_alone[1:] == (None, b"", None, None, False, None, None, None)
    nulls = (
        b'{"node":null,"create":null,"config":null,"idempotency_key":null,"incarnation":null,"producer":null,'
        b'"records":[{"data":1}]}'
    )
    assert scan(nulls)[1:] == (None, None, None, None, False, None, None, None)


def test_known_keys_are_known_by_their_decoded_names() -> None:
    body = b'{"r\\u0065cords":[{"d\\u0061ta":1,"\\u0074ag":"x"}],"n\\u006fde":"w"}'
    assert (records_of(scan(body)), scan(body).node) == ([RowRecord(b"1", b"x", None, None, 1)], b"w")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "the body must be an object, not an array"),
        (b"1", "the body must be an object, not a number"),
        (b"", "ends before it is complete"),
        (b"{}", "records is missing"),
        (b'{"records":{}}', "records must be an array, not an object"),
        (b'{"records":null}', "records must be an array, not null"),
        (b'{"records":[1]}', "records[0] must be an object, not a number"),
        (b'{"records":[{"data":1},[]]}', "records[1] must be an object, not an array"),
        (b'{"records":[{"data":1},{}]}', "records[1].data is missing"),
        (b'{"records":[{"tag":"x"}]}', "records[0].data is missing"),
        (b'{"records":[{"data":1,"tag":3}]}', "records[0].tag must be a string or null, not a number"),
        (b'{"records":[{"data":1},{"data":1,"node":{}}]}', "records[1].node must be a string or null, not an object"),
        (b'{"records":[{"data":1,"data":2}]}', "records[0].data is given twice"),
        (b'{"records":[{"data":1,"tag":"a","t\\u0061g":"a"}]}', "records[0].tag is given twice"),
        (b'{"records":[{"data":1}],"records":[]}', "records is given twice"),
        (b'{"records":[{"data":1}],"node":1}', "node must be a string or null, not a number"),
        (b'{"records":[{"data":1}],"idempotency_key":[]}', "idempotency_key must be a string or null, not an array"),
        (b'{"records":[{"data":1}],"create":"yes"}', "create must be true, false or null, not a string"),
        (b'{"records":[{"data":1}],"config":[]}', "config must be an object or null, not an array"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":1.0}}', "config.ttl_ms must be a whole number"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":1,"ttl_ms":1}}', "config.ttl_ms is given twice"),
        (
            b'{"records":[{"data":1}],"incarnation":5}',
            "incarnation must be a string or null, not a number",
        ),
        (b'{"records":[{"data":1}],"incarnation":"x"}', "incarnation must be 16 lower-case hex digits"),
        (b'{"records":[],"incarnation":"0123456789ABCDEF"}', "incarnation must be 16 lower-case hex digits"),
        (b'{"records":[{"data":1}],"incarnation":null,"incarnation":null}', "incarnation is given twice"),
        (
            b'{"records":[{"data":1}],"disable_backpressure":null}',
            "disable_backpressure must be true or false, not null",
        ),
        (b'{"records":[{"data":1e400}]}', "too large for a double"),
        (b'{"records":[{"data":1},{"data":nul}]}', "(byte 31 in records[1])"),
        (b'{"records":[{"data":1,}]}', "is unexpected here"),
        (b'{"records":[{"data":1}]}}', "text after the end"),
        (b'{"records":[{"data":' + b"[" * 125 + b"]" * 125 + b"}]}", "more than 127"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(body: bytes, words: str) -> None:
    error = refusal(body)
    assert error.code == "invalid_request"
    assert words in error.message


def test_a_payload_may_nest_up_to_the_limit_of_the_whole_body() -> None:
    assert scan(b'{"records":[{"data":' + b"[" * 124 + b"]" * 124 + b"}]}").rows.count == 1


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b'{"records":[]}', "invalid_request", "records is empty"),
        (b'{"records":[%s]}' % b",".join([b'{"data":1}'] * 4), "batch_too_large", "4 elements: send at most 3"),
        (b'{"records":[{"data":1}],"idempotency_key":"123456"}', "invalid_request", "idempotency_key has 6 bytes"),
        ('{"records":[{"data":1}],"node":"ééé"}'.encode(), "invalid_request", "node has 6 bytes"),
        (b'{"records":[{"data":1},{"data":1,"tag":"123456"}]}', "invalid_request", "records[1].tag is longer than 5"),
        (b'{"records":[{"data":1,"node":"123456"}]}', "invalid_request", "records[0].node is longer than 5"),
        (b'{"records":[{"data":1,"meta":"%s"}]}' % (b"x" * 39), "invalid_request", "records[0].meta is larger than 40"),
        (b'{"records":[{"data":1,"meta":{"a":1,"b":1,"c":1,"d":1}}]}', "invalid_request", "more than 3 keys"),
        (b'{"records":[{"data":"%s"}]}' % (b"x" * 99), "record_too_large", "records[0] is larger than 100"),
        (b'{"records":[{"data":"%s","meta":"%s"}]}' % (b"x" * 90, b"x" * 10), "record_too_large", "records[0]"),
    ],
)
def test_a_limit_is_named_with_the_record_that_breaks_it(body: bytes, code: str, words: str) -> None:
    error = refusal(body, SMALL)
    assert error.code == code
    assert words in error.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[%s]}' % b",".join([b'{"data":1}'] * 3),
        b'{"records":[{"data":1}],"idempotency_key":"12345","node":"12345"}',
        b'{"records":[{"data":1,"tag":"\\u0031\\u0032345","node":"12\\n45"}]}',
        b'{"records":[{"data":1,"meta":"%s"}]}' % (b"x" * 38),
        b'{"records":[{"data":1,"meta":[ %s ]}]}' % (b"1,    " * 18 + b"1"),
        b'{"records":[{"data":1,"meta":{"a":1,"b":1,"c":1}}]}',
        b'{"records":[{"data":1,"meta":{"a":1,"b":1,"b":2,"c":1}}]}',
        b'{"records":[{"data":1,"meta":[{"a":1,"b":1,"c":1,"d":1}]}]}',
        b'{"records":[{"data":"%s"}]}' % (b"x" * 98),
        b'{"records":[{"data":"%s"}]}' % (b"\\u0041" * 98),
        b'{"records":[{"data":{"a":"%s","a":1}}]}' % (b"x" * 200),
    ],
)
def test_exactly_the_limit_is_allowed_and_counts_the_stored_form(body: bytes) -> None:
    assert SMALL.scan(body).violation is None


def test_the_first_limit_broken_in_the_order_of_the_records_is_reported() -> None:
    long_tag = b'{"data":"%s","tag":"123456"}' % (b"x" * 200)
    assert "records[0].tag" in refusal(b'{"records":[' + long_tag + b',{"data":1,"tag":"1234567"}]}', SMALL).message
    body = b'{"records":[{"data":{"a":1,"a":2}},{"data":"' + b"x" * 200 + b'"}]}'
    assert refusal(body, SMALL).code == "record_too_large"


def test_a_shape_error_behind_too_many_records_comes_first() -> None:
    body = b'{"records":[%s,{"data":nul}]}' % b",".join([b'{"data":1}'] * 9)
    assert refusal(body, SMALL).code == "invalid_request"


def test_columns_view_the_rows_without_copying_them() -> None:
    scanned = scan(b'{"records":[{"data":1},{"data":"abc","tag":"t"}]}')
    columns = scanned.rows.columns()
    assert columns.dtype == ROW_DTYPE
    assert columns["size"].tolist() == [1, 5]
    assert columns["flags"].tolist() == [0, 1]


def test_an_object_of_very_many_keys_makes_the_scanner_grow_once() -> None:
    payload = json.dumps({f"k{i}": i for i in range(20_000)}, separators=(",", ":")).encode()
    scanner = WriteScanner(Config())
    for _ in range(2):
        assert record_at(scanner.scan(b'{"records":[{"data":' + payload + b"}]}").rows, 0).data == payload


def test_the_body_and_a_record_have_a_thousand_members_at_most_and_payloads_any_number() -> None:
    """Nothing after them is looked at: the rest of these is no JSON."""
    members = b",".join([b'"":0'] * 999)
    assert records_of(scan(b'{"records":[{"data":{%b,"":0,"":0},%b}],%b}' % (members, members, members)))
    refused = refusal(b'{"records":[{"data":1}],%b,"":0 and no JSON' % members)
    assert refused.message == "the body has too many entries: at most 1000 are allowed"
    refused = refusal(b'{"records":[{"data":1},{"data":1,%b,"":0 and no JSON' % members)
    assert refused.message == "records[1] has too many entries: at most 1000 are allowed"


def test_keys_are_compared_for_as_many_as_a_record_has_bytes_for() -> None:
    """The keys of more took memory, and seconds; what follows them is not looked at."""
    scanner = WriteScanner(replace(Config(), max_record_bytes=65_536))
    keys = b",".join([b'"":0'] * 13_000)
    assert records_of(scanner.scan(b'{"records":[{"data":{%b}}]}' % keys)) == [
        RowRecord(b'{"":0}', None, None, None, 6)
    ]
    refused = refusal(b'{"records":[{"data":1},{"data":{%b,%b and no JSON' % (keys, keys), scanner)
    assert (refused.code, refused.message[:21]) == ("record_too_large", "records[1] is larger ")
    with pytest.raises(RequestError) as raised:
        scanner.scan_texts([b"1", b"{%b,%b}" % (keys, keys)])
    assert raised.value.code == "record_too_large"


def test_a_hostile_body_of_repeated_keys_takes_linear_time() -> None:
    body = b'{"records":[{"data":[' + b",".join([b'{"a":1,"a":2}'] * 50_000) + b"]}]}"
    start = time.process_time()
    assert scan(body).rows.size == 50_000 * 8 + 1
    assert time.process_time() - start < 1


def test_no_proper_beginning_of_a_body_is_accepted() -> None:
    body = '{"records":[{"data":{"é":[1,2.5e3]},"tag":"a\\n","node":"x","meta":{}}],"node":"w","create":true}'.encode()
    scan(body)
    for size in range(len(body)):
        with pytest.raises(RequestError):
            scan(body[:size])


def agrees_with_the_model(body: bytes) -> None:
    try:
        rows, node = json_model.parse_write(body)
    except json_model.RefusedError:
        with pytest.raises(RequestError):
            scan(body)
        return
    scanned = scan(body)
    assert scanned.node == (None if node is None else node.encode())
    assert scanned.rows.count == len(rows)
    assert scanned.rows.size == sum(row[4] for row in rows)
    for found, (data, tag, record_node, meta, size) in zip(records_of(scanned), rows, strict=True):
        assert found.is_bytes == isinstance(data, bytes)
        assert (found.data if found.is_bytes else unpacked(found.data)) == data
        assert found.tag == (None if tag is None else tag.encode())
        assert found.node == (None if record_node is None else record_node.encode())
        assert (found.meta is None) == (meta is None)
        if found.meta is not None:
            assert unpacked(found.meta) == meta
        assert found.size == size


def unpacked(text: bytes) -> object:
    """A stored payload as the model's value; it must be compact and free of repeated keys."""
    value = json_model.parse(text)
    blank_free = all(c not in " \t\r\n" for c in outside_strings(text.decode()))
    assert blank_free
    return without_repeats(value)


def outside_strings(text: str) -> str:
    inside = escaped = False
    rest = []
    for c in text:
        if not inside:
            rest.append(c)
            inside = c == '"'
        elif escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == '"':
            inside = False
    return "".join(rest)


def without_repeats(value: object) -> object:
    if isinstance(value, json_model.Members):
        assert len(dict(value)) == len(value)
        return {name: without_repeats(member) for name, member in value}
    if isinstance(value, list):
        return [without_repeats(item) for item in value]
    return value


@examples(100)
@given(st.integers(0, 2**32))
def test_random_bodies_and_their_damaged_forms_agree_with_the_model(seed: int) -> None:
    rng = random.Random(seed)
    body = json_model.random_write(rng)
    agrees_with_the_model(body)
    for _ in range(6):
        agrees_with_the_model(json_model.damaged(body, rng))


# --- in turns ---------------------------------------------------------------------------------------------------------


def in_turns(body: bytes, step_bytes: int, scanner: WriteScanner = SCANNER) -> tuple[WriteBody, int]:
    """The body scanned in steps, and how many rests there were between them."""
    rests, scanning = 0, scanner.scan_in_turns(bytearray(body), step_bytes)
    while True:
        try:
            next(scanning)
            rests += 1
        except StopIteration as end:
            return end.value, rests


def found(scan: Callable[[], WriteBody]) -> object:
    """Return a scan's result, rows spelled out; a refusal as its words."""
    try:
        body = scan()
    except RequestError as error:
        return error.code, error.message
    part = body.producer and (body.producer.name, body.piece, body.producer.last, body.producer.attempt)
    fields = body.node, body.key, body.create, body.config, body.disable_backpressure, body.incarnation, part
    if body.violation is not None:
        return fields, body.violation.code, body.violation.message
    return fields, records_of(body), body.rows.size


@examples(150)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_body_scanned_in_turns_is_found_the_same_wherever_the_scan_rests(seed: int, step_bytes: int) -> None:
    rng = random.Random(seed)
    for scanner in (SCANNER, SMALL):
        body = json_model.random_write(rng)
        for text in (body, *(json_model.damaged(body, rng) for _ in range(4))):
            at_once = found(lambda: scanner.scan(text))  # noqa: B023 - called at once
            assert found(lambda: in_turns(text, step_bytes, scanner)[0]) == at_once  # noqa: B023


@pytest.mark.parametrize(
    "payload",
    [
        b"[" + b"0," * 400_000 + b"0]",
        b'"' + b"\\u0001" * 150_000 + b'"',
        b'"' + "\u00e9".encode() * 400_000 + b'"',
        b"0." + b"1" * 900_000,
        b"1e-" + b"0" * 900_000 + b"1",
        b"[0" + b" " * 900_000 + b"]",
        b'{"a":"' + b"x" * 900_000 + b'","a":1}',
        b"{" + b'"":0,' * 150_000 + b'"":0}',
        b"[" + b'{"a":1,"a":2},' * 60_000 + b"0]",
    ],
)
def test_a_long_value_is_no_long_step_whatever_it_is_made_of(payload: bytes) -> None:
    body = b'{"unknown":%b,"records":[{"data":%b}],"node":"n"}' % (payload, payload)
    scanned, rests = in_turns(body, 1 << 16)
    assert found(lambda: scanned) == found(lambda: SCANNER.scan(body))
    plain_text_is_fast = payload[:2] == b'{"' or payload[:2] == b"[0"
    assert plain_text_is_fast or rests > 20


def test_fields_beside_the_records_are_read_at_one_go_and_so_not_longer_than_a_command() -> None:
    scanner = WriteScanner(replace(Config(), max_command_bytes=1000))
    for name in ("config", "producer"):
        body = b'{"records":[{"data":1}],"%b":{"x":"%b"}}' % (name.encode(), b"x" * 1000)
        assert refusal(body, scanner).message.startswith(f"{name} has 1008 bytes: at most 1000 are allowed")
    for name in ("node", "idempotency_key"):
        body = b'{"records":[{"data":1}],"%b":"%b"}' % (name.encode(), b"x" * 100_000)
        assert refusal(body).message.startswith(f"{name} is longer than ")


# --- JSON texts and Python values -------------------------------------------------------------------------------------


def test_json_texts_become_rows_of_data_alone() -> None:
    rows = SCANNER.scan_texts([b'{"a":1}', b" 2 ", b'{"a": [1], "a":2}'])
    assert [record_at(rows, i).data for i in range(3)] == [b'{"a":1}', b"2", b'{"a":2}']
    assert rows.size == 7 + 1 + 7


@pytest.mark.parametrize("text", [b"", b"1 2", b'1},{"data":2', b'{"a":1', b"NaN", b'"', b"[" * 125 + b"]" * 125])
def test_a_text_that_is_not_one_json_value_is_named_by_its_place(text: bytes) -> None:
    with pytest.raises(RequestError, match=r"records\[1\]\.data is not valid JSON"):
        SCANNER.scan_texts([b"1", text, b'"x"'])


_PIECES = st.sampled_from([b"1", b"2", b"\n", b" ", b"[", b"]", b",", b'"', b"x", b'{"a":', b'"a":', b"}", b"12345678"])


@examples(300)
@given(st.lists(st.lists(_PIECES, max_size=6).map(b"".join), min_size=1, max_size=4))
@example([b"", b"1\n2"])
@example([b"[1,", b"2]"])
@example([b"[1,", b"2]", b"3\n4"])
@example([b"\n1"])
def test_texts_are_scanned_together_as_each_by_itself(texts: list[bytes]) -> None:
    """They are joined by line ends, and a text may have some of its own."""
    alone: list[bytes | None] = []
    for text in texts:
        try:
            alone.append(record_at(SCANNER.scan_texts([text]), 0).data)
        except RequestError:
            alone.append(None)
    if None in alone:
        with pytest.raises(RequestError, match=rf"records\[{alone.index(None)}\]"):
            SCANNER.scan_texts(texts)
        return
    rows = SCANNER.scan_texts(texts)
    assert [record_at(rows, i).data for i in range(rows.count)] == alone


@pytest.mark.parametrize("count", range(1, 40))
@pytest.mark.parametrize("end", [b"", b",", b"e", b".", b"/", b":", b"\x00", b"\xb0", b"\xff", b"-"])
def test_digits_end_at_what_is_none_wherever_they_are(count: int, end: bytes) -> None:
    """They are examined eight at a time."""
    for after in range(9):
        text = (b"1234567890" * 4)[:count] + end + b"9" * after
        is_number = re.fullmatch(rb"\d+(\.\d+)?(e\d+)?", text) is not None and math.isfinite(float(text))
        for whole in (text, b"[%b]" % text, b"[%b         ]" % text):
            is_list = end == b"," and after and whole != text
            with contextlib.nullcontext() if is_number or is_list else pytest.raises(RequestError):
                SCANNER.scan_texts([whole])


def test_texts_have_the_limits_of_records() -> None:
    with pytest.raises(RequestError, match="records is empty"):
        SMALL.scan_texts([])
    with pytest.raises(RequestError, match="4 elements"):
        SMALL.scan_texts([b"1"] * 4)
    with pytest.raises(RequestError, match=r"records\[1\] is larger"):
        SMALL.scan_texts([b"1", b'"' + b"x" * 200 + b'"'])


# --- data that is bytes -----------------------------------------------------------------------------------------------
def with_base64(text: str, **more: object) -> bytes:
    return json.dumps({"records": [{"data_base64": text, **more}]}).encode()


@pytest.mark.parametrize("size", range(9))
def test_base64_is_decoded_whatever_json_does_to_its_characters(size: int) -> None:
    data = bytes(range(251, 251 + size)) if size < 5 else b"\xff" * size
    text = base64.b64encode(data).decode()
    for spelled in (text, text.replace("/", "\\/"), "".join(f"\\u{ord(c):04x}" for c in text)):
        body = b'{"records":[{"data":1},{"data_base64":"%b","meta":{"a":1,"a":2},"tag":"t"}]}' % spelled.encode()
        first, second = records_of(scan(body))
        assert (first.data, first.is_bytes) == (b"1", False)
        assert second == RowRecord(data, b"t", None, b'{"a":2}', size + 7, is_bytes=True)


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AAA", "AA=", "A===", "====", "AAAA=", "AA==AAAA", "AB==", "AAB=", "AA-_", "AA A", "AAAA\n", "é"],
)
def test_what_is_not_strict_base64_is_refused_with_the_field_and_the_record(text: str) -> None:
    with pytest.raises(RequestError, match=r"^records\[0\]\.data_base64 is not base64: use RFC 4648 with \+ and /"):
        scan(with_base64(text))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ('{"data":1,"data_base64":""}', "has data and data_base64: send one of them"),
        ('{"data_base64":"","data":1}', "has data and data_base64: send one of them"),
        ('{"tag":"a"}', 'send "data" (null is allowed) or "data_base64"'),
        ('{"data_base64":null}', "data_base64 must be a string, not null"),
        ('{"data_base64":"","data_base64":""}', "data_base64 is given twice"),
    ],
)
def test_a_record_has_exactly_one_of_data_and_data_base64(record: str, words: str) -> None:
    """R-BYTES-1."""
    assert words in refusal(b'{"records":[' + record.encode() + b"]}").message


def test_the_limit_of_a_record_counts_its_bytes() -> None:
    """R-BYTES-3."""
    scanner = WriteScanner(replace(Config(), max_record_bytes=10))
    assert scanner.scan(with_base64(base64.b64encode(bytes(10)).decode())).violation is None
    for body in (with_base64(base64.b64encode(bytes(11)).decode()), with_base64("AAAA", meta={"a": 12})):
        violation = scanner.scan(body).violation
        assert violation is not None
        assert violation.code == "record_too_large"


@pytest.mark.parametrize("label", ["tag", "node"])
def test_labels_of_escapes_are_decoded_in_turns(label: str) -> None:
    record = b'{"data":0,"%b":"%b"}' % (label.encode(), b"\\u0061" * 100)
    body = b'{"records":[%b]}' % b",".join([record] * 200)
    at_once = len(body) // 8192
    scanned, rests = in_turns(body, 8192)
    assert scanned.rows.count == 200
    assert rests >= 2 * at_once - 2, "each byte is scanned, and then each label is decoded"


def test_long_base64_is_decoded_in_turns() -> None:
    data = random.Random(1).randbytes(300_000)
    text = base64.b64encode(data).decode()
    for spelled in (text, text.replace("/", "\\/")):
        work = SCANNER.scan_in_turns(b'{"records":[{"data_base64":"%b"}]}' % spelled.encode(), 8192)
        turns = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                scanned = end.value
                break
            turns += 1
        assert turns >= 2 * len(text) // 8192 - 2
        assert records_of(scanned)[0].data == data
