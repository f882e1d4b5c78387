"""Strict JSON: the corpus of what is and is not, and records.c against the model in json_model.py."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import examples
from tests.engine.json import json_model
from topics.engine.json import strict_json
from topics.engine.json.strict_json import JsonError, JsonKind

ACCEPTED = [
    *(
        b"null",
        b"true",
        b"false",
        b"0",
        b"-0",
        b"1",
        b"-1",
        b"10",
        b"0.5",
        b"1e5",
        b"1E5",
        b"1e+5",
        b"1e-5",
        b"1.5e300",
    ),
    *(
        b'""',
        b'"a"',
        b'"\\""',
        b'"\\\\"',
        b'"\\/"',
        b'"\\b\\f\\n\\r\\t"',
        b'"\\u0000"',
        b'"\\u00e9"',
        b'"\\uD83D\\uDE00"',
    ),
    *('"é€😀"'.encode(), b'"\x7f"', b'"\xf4\x8f\xbf\xbf"', b'"\xed\x9f\xbf"', b'"\xee\x80\x80"', b'"\xef\xbf\xbf"'),
    *(b"[]", b"{}", b"[[]]", b"[1,2]", b'{"a":1}', b'{"a":1,"a":2}', b" [ 1 , 2 ] ", b"\t\r\n 1\n", b'{"":{}}'),
    *(
        b"1.7976931348623157e308",
        b"1.7976931348623158e308",
        b"9" * 308,
        b"0." + b"0" * 400 + b"1e400",
        b"1e-400",
        b"0e99999",
    ),
    *(
        b"-1.7976931348623157e+308",
        b"0.1e309",
        b"123e306",
        b"1" + b"0" * 400 + b"e-200",
        b"0." + b"0" * 500,
        b"1e-99999999999999999999",
    ),
    *(b"[" * 127 + b"]" * 127, b'{"a":' * 127 + b"1" + b"}" * 127, b'"' + b"x" * 100 + b'"', b'"0123456789abcde\\n"'),
    str(2**1024 - 2**970 - 1).encode(),
]
REFUSED = [
    *(
        b"",
        b" ",
        b"\n\n",
        b"nul",
        b"nulll",
        b"tru",
        b"True",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"undefined",
        b"None",
    ),
    *(
        b"01",
        b"-",
        b"+1",
        b".5",
        b"1.",
        b"1.e5",
        b"1e",
        b"1e+",
        b"0x10",
        b"1_000",
        b"-01",
        b"--1",
        b"1.2.3",
        b"1e5.5",
        b"\xd9\xa1",
    ),
    *(
        b'"',
        b'"a',
        b'"\\"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\u12G4"',
        b'"\\',
        b'"\n"',
        b'"\x00"',
        b'"\x1f"',
        b"'a'",
        b'"\\U0041"',
    ),
    *(
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\ud800"',
        b'"\\ud83d x"',
        b'"\\ud83d\\n"',
        b'"\\ude00\\ud83d"',
        b'"\\ud83d\\u0041"',
    ),
    *(
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xc1\xbf"',
        b'"\xc3"',
        b'"\xc3(\xa9"',
        b'"\x80"',
        b'"\xe0\x80\x80"',
        b'"\xe2\x82"',
        b'"\xed\xa0\x80"',
    ),
    *(
        b'"\xed\xbf\xbf"',
        b'"\xf0\x80\x80\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xf5\x80\x80\x80"',
        b'"\xf8\x88\x80\x80\x80"',
        b'"\xf0\x9f\x98"',
    ),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1,,2]",
        b"[}",
        b"{]",
        b"[1}",
        b'{"a":1]',
        b'["a":1]',
    ),
    *(
        b"{a:1}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{,"a":1}',
        b'{"a" 1}',
        b"{1:1}",
        b'{"a":1 "b":2}',
        b'{"a"::1}',
        b"{null:1}",
    ),
    *(
        b"1 2",
        b"{} x",
        b"[]]",
        b"null,",
        b"// c\n1",
        b"/* c */1",
        b"1 // c",
        b"[1/**/]",
        b"\xef\xbb\xbf1",
        b"\x0b1",
        b"\x0c1",
        b"1\x00",
    ),
    *(
        b"\xc2\xa01",
        b"1e400",
        b"-1e400",
        b"1e309",
        b"9" * 400,
        b"-" + b"9" * 400,
        b"1.7976931348623159e308",
        b"1e99999999999999999999",
    ),
    *(
        b"[" * 128 + b"]" * 128,
        b'{"a":' * 128 + b"1" + b"}" * 128,
        b"[" * 100_000,
        b"0." + b"0" * 10 + b"1e999",
        b"[1e400]",
    ),
    str(2**1024 - 2**970).encode(),
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_strict_json_is_accepted(text: bytes) -> None:
    checked = strict_json.check(text)
    model = json_model.parse(text)
    assert checked.compact_bytes == len(json_model.compact(model))


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_with_an_offset_inside_the_text(text: bytes) -> None:
    with pytest.raises(JsonError) as caught:
        strict_json.check(text)
    assert 0 <= caught.value.offset <= len(text)
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a":[1,]}', "']' is unexpected here (byte 8)"),
        (b'{"a":NaN}', "NaN and Infinity are not JSON (byte 5)"),
        (b"[1e400]", "too large for a double"),
        (b'{"a"', "ends before it is complete (byte 4)"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{}{}", "text after the end"),
        (b'"\xff"', "not valid UTF-8"),
        (b"[" * 200, "more than 127"),
    ],
)
def test_a_message_says_what_is_wrong_and_where(text: bytes, words: str) -> None:
    with pytest.raises(JsonError) as caught:
        strict_json.check(text)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b'"x"', 3), (b"1", 1), (b'{"a":1}', 7), ('"é"'.encode(), 4), (b"null", 4), (b'"\\u00e9"', 4), (b'"\\/"', 3),
        (b'"\\u001f"', 8), (b'"\\u000a"', 4), (b'"\\u0022"', 4), (b'"\\ud83d\\ude00"', 6), (b'"\\u007f"', 3),
        (b'[ 1 , "a b" ]', 9), (b"1.50e+01", 8),
    ],
)  # fmt: skip
def test_the_accounted_size_is_that_of_the_shortest_spelling(text: bytes, size: int) -> None:
    assert strict_json.check(text, "the value").compact_bytes == size


def test_compact_keeps_spelling_and_blanks_inside_strings() -> None:
    assert strict_json.compacted(b' { "a b" : [ 1.50 , "\\u00e9 \\" , " ] }\n') == b'{"a b":[1.50,"\\u00e9 \\" , "]}'


def agrees_with_the_model(text: bytes) -> None:
    """Both accept with the same size, kept members and compact form, or both refuse."""
    try:
        model = json_model.parse(text)
    except json_model.RefusedError:
        with pytest.raises(JsonError):
            strict_json.check(text)
        return
    checked = strict_json.check(text)
    assert checked.compact_bytes == len(json_model.compact(model))
    kept, rechecked = normalized(text)
    assert json_model.parse(kept) == json_model.parse(json_model.compact(json_model.kept(model))) or sorted_members(
        json_model.parse(kept)
    ) == json_model.kept(model)
    assert rechecked.compact_bytes == len(json_model.compact(json_model.kept(model)))


def normalized(text: bytes) -> tuple[bytes, strict_json.Checked]:
    """The form in which a payload is stored, and what is known of that."""
    kept = strict_json.compacted(text)
    if strict_json.check(text).maybe_twice:
        kept = strict_json.keep_last(kept)
    return kept, strict_json.check(kept)


def sorted_members(value: object) -> object:
    """Objects as dicts, refusing repeated keys: what `normalized` must have left."""
    if isinstance(value, json_model.Members):
        assert len(dict(value)) == len(value)
        return {name: sorted_members(member) for name, member in value}
    if isinstance(value, list):
        return [sorted_members(item) for item in value]
    return value


@examples(100)
@given(st.integers(0, 2**32))
def test_random_json_and_its_damaged_forms_agree_with_the_model(seed: int) -> None:
    rng = random.Random(seed)
    text = json_model.random_json(rng, 3).encode()
    agrees_with_the_model(text)
    for _ in range(8):
        agrees_with_the_model(json_model.damaged(text, rng))


@examples(100)
@given(st.binary(max_size=40))
def test_any_bytes_agree_with_the_model(text: bytes) -> None:
    agrees_with_the_model(text)
    agrees_with_the_model(b'"' + text + b'"')


def test_no_proper_beginning_of_a_closed_value_is_accepted() -> None:
    text = '{"a":[1,-2.5e+3,true,null,"é\\ud83d\\ude00\\n",{"b":{}}],"c":"😀"}'.encode()
    strict_json.check(text)
    for size in range(len(text)):
        with pytest.raises(JsonError):
            strict_json.check(text[:size])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"b":2,"a":3}', b'{"b":2,"a":3}'),
        (b'{"a":1,"\\u0061":2}', b'{"\\u0061":2}'),
        (b'{"a":{"a":1,"a":2},"a":{"b":1,"b":2}}', b'{"a":{"b":2}}'),
        (b'[{"a":1,"a":2},{"a":1}]', b'[{"a":2},{"a":1}]'),
        (b'{"a":{"a":1},"b":{"a":1}}', b'{"a":{"a":1},"b":{"a":1}}'),
        (b'{"a":"},{","a":"\\"a\\":1"}', b'{"a":"\\"a\\":1"}'),
        (b'{"":1,"":2,"":[{"":1,"":{}}]}', b'{"":[{"":{}}]}'),
    ],
)
def test_the_last_of_equal_keys_is_kept_with_its_spelling(text: bytes, kept: bytes) -> None:
    assert normalized(text)[0] == kept


def test_equal_long_keys_are_found_escaped_or_not() -> None:
    name = "k" * 1000
    text = f'{{"{name}":1,"\\u006b{name[1:]}":2}}'.encode()
    assert json_model.kept(json_model.parse(normalized(text)[0])) == {name: json_model.Number("2")}


@pytest.mark.parametrize("count", [25, 1024, 1025, 5000, 262_144])
def test_one_repeated_key_is_found_among_many(count: int) -> None:
    """R-DATA-1: wherever the two are, and none is found where all differ."""
    rng = random.Random(count)
    names = rng.sample(range(1 << 40), count)
    assert not strict_json.check(_object_of(names)).maybe_twice
    for _ in range(5):
        first, second = rng.sample(range(count), 2)
        repeated = names.copy()
        repeated[second] = names[first]
        assert strict_json.check(_object_of(repeated)).maybe_twice
    assert strict_json.check(_object_of([7] * count)).maybe_twice


def _object_of(names: list[int]) -> bytes:
    return b"{%b}" % b",".join([b'"%x":0' % name for name in names])


@pytest.mark.parametrize("distinct", [1, 100, 100_000])
def test_a_hundred_thousand_keys_take_linear_time_however_many_are_equal(distinct: int) -> None:
    text = b"{" + b",".join(b'"k%d":%d' % (i % distinct, i) for i in range(100_000)) + b"}"
    start = time.process_time()
    kept, checked = normalized(text)
    assert time.process_time() - start < 2
    assert checked.keys == distinct
    assert len(strict_json.object_places(kept)[0]) == distinct


def test_members_of_an_object_and_items_of_an_array_are_listed_with_their_kinds() -> None:
    text = b' {"a" : 1 , "b":[true], "\\u0061":"x", "c":{}, "d":null} '
    places, twice = strict_json.object_places(text)
    assert {name: (kind, text[start:end]) for name, (start, end, kind) in places.items()} == {
        "a": (JsonKind.STRING, b'"x"'), "b": (JsonKind.ARRAY, b"[true]"), "c": (JsonKind.OBJECT, b"{}"), "d":
        (JsonKind.NULL, b"null"),
    }  # fmt: skip
    assert twice == ["a"]
    assert [item.text for item in strict_json.array_items(b"[ 1, false ,[2] ]")] == [b"1", b"false", b"[2]"]
    assert list(strict_json.array_items(b"[]")) == []


def test_of_many_items_only_those_that_are_looked_at_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB hold 32 million, which took 16 s and gigabytes."""
    made: list[int] = []
    make = strict_json.Items._made

    def counted(items: strict_json.Items, start: int, count: int) -> list[strict_json.JsonSpan]:
        made.append(count)
        return make(items, start, count)

    monkeypatch.setattr(strict_json.Items, "_made", counted)
    items = strict_json.array_items(b"[" + b",".join(b"%d" % number for number in range(1000)) + b"]")
    assert (len(items), made) == (1000, [])
    assert next(iter(items)).text == b"0"
    assert sum(made) <= 64
    assert [item.text for item in items] == [b"%d" % number for number in range(1000)]


@given(st.integers(0, 2**32), st.integers(0, 8))
def test_elements_are_counted_no_further_than_asked_for(seed: int, most: int) -> None:
    rng = random.Random(seed)
    texts = [json_model.random_json(rng, 2) for _ in range(rng.randrange(8))]
    text = ("[" + ",".join(texts) + "]").encode()
    try:
        json_model.parse(text)
    except json_model.RefusedError:
        return  # not strict: some numbers of the model are too large
    assert strict_json.array_length(text) == len(texts)
    assert strict_json.array_length(text, most) == min(len(texts), most + 1)


@pytest.mark.parametrize("text", [b"[1]", b'"a"', b"1", b"{", b'{"a":1}x', b'{"a":1e400}', b'{"a":[}'])
def test_an_object_is_asked_for_and_nothing_else_is_one(text: bytes) -> None:
    with pytest.raises(JsonError):
        strict_json.object_places(text)
    with pytest.raises(JsonError):
        strict_json.array_items(b"{" + text)
