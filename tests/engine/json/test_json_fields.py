"""Typed readers of known fields: R-JSON-3 to R-JSON-9."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from topics.config import Config
from topics.engine.json import strict_json
from topics.engine.json.strict_json import FIELDS_MAX, TooManyError
from topics.engine.values.json_fields import Fields, read_object
from topics.engine.values.node_set import NO_NODES, node_set
from topics.errors import RequestError


def fields(value: str) -> Fields:
    return read_object(f'{{"x":{value}}}'.encode())


Reader = Callable[[Fields], Any]
U64: Reader = lambda f: f.u64("x", 7)  # noqa: E731
U32: Reader = lambda f: f.u32("x", 7)  # noqa: E731
I32: Reader = lambda f: f.nullable_i32("x")  # noqa: E731
MAYBE_U64: Reader = lambda f: f.nullable_u64("x")  # noqa: E731
BOOLEAN: Reader = lambda f: f.boolean("x", True)  # noqa: E731
STRING: Reader = lambda f: f.nullable_string("x")  # noqa: E731
CHOICE: Reader = lambda f: f.choice("x", ("log", "queue"), "log")  # noqa: E731
STRINGS: Reader = lambda f: f.strings("x", 1000)  # noqa: E731
U64S: Reader = lambda f: f.u64s("x", 1000)[0]  # noqa: E731


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        *((U64, "0", 0), (U64, "18446744073709551615", 2**64 - 1), (U32, "4294967295", 2**32 - 1)),
        *((I32, "-2147483648", -(2**31)), (I32, "2147483647", 2**31 - 1), (I32, "null", None), (I32, "-0", 0)),
        *((BOOLEAN, "true", True), (BOOLEAN, "false", False), (MAYBE_U64, "null", None)),
        *((STRING, '"a\\u00e9\\n"', "aé\n"), (STRING, '""', ""), (STRING, "null", None), (CHOICE, '"queue"', "queue")),
        *((STRINGS, '"a"', ("a",)), (STRINGS, '["a","\\u0062"]', ("a", "b"))),
        *((STRINGS, "[]", ()), (STRINGS, "null", ())),
        *((U64S, "[1,2]", [1, 2]), (U64S, "[]", []), (CHOICE, '"qu\\u0065ue"', "queue")),
    ],
)  # fmt: skip
def test_a_value_of_the_right_type_is_read(reader: Reader, text: str, value: Any) -> None:
    assert reader(fields(text)) == value


@pytest.mark.parametrize(
    ("reader", "text", "words"),
    [
        *((U64, text, "x must be a whole number from 0 to 18446744073709551615, not ") for text in
          ("1.0", "1e3", "-1", "-0", "18446744073709551616", "1" + "0" * 200, '"1"', "true", "null", "[]", "{}")),
        *((U32, text, "not the number") for text in ("4294967296", "0.5", "1E0")),
        *((I32, text, "x must be a whole number from -2147483648 to 2147483647 or null") for text in
          ("2147483648", "-2147483649", "1.0", '"1"', "false")),
        *((BOOLEAN, text, "x must be true or false, not ") for text in ("1", "null", '"true"', "[]")),
        *((STRING, text, "x must be a string or null, not ") for text in ("1", "true", "{}", '["a"]')),
        *((CHOICE, text, 'x must be "log" or "queue", not ') for text in ('"Log"', "null", "{}", '["log"]', '""')),
        *((STRINGS, text, "a string") for text in ("1", "{}", '["a",1]', '["a",null]')),
        *((U64S, text, "whole number") for text in ("1", "null", "[1.0]", '["1"]', "[-1]", "{}")),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_name(reader: Reader, text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        reader(fields(text))
    assert caught.value.code == "invalid_request"
    assert caught.value.message.startswith("x")
    assert words in caught.value.message


def test_absent_fields_take_their_default() -> None:
    empty = read_object(b"{}")
    assert (U64(empty), U32(empty), I32(empty), BOOLEAN(empty), STRING(empty), STRINGS(empty)) == (
        7,
        7,
        None,
        True,
        None,
        (),
    )
    with pytest.raises(RequestError, match="x is missing"):
        empty.string("x")


def test_a_key_given_twice_is_refused_only_when_it_is_known() -> None:
    twice = read_object(b'{"x":1,"\\u0078":2,"y":1}')
    assert twice.u64("y", 0) == 1
    with pytest.raises(RequestError, match="x is given twice"):
        twice.u64("x", 0)
    with pytest.raises(RequestError, match="x is given twice"):
        twice.names()


def test_a_nested_object_is_named_by_its_path() -> None:
    nested = read_object(b'{"c":1.5}', "a.b", "a.b.")
    with pytest.raises(RequestError, match=r"a\.b\.c must be a whole number"):
        nested.u64("c", 0)
    with pytest.raises(RequestError, match="a must be a string or null, not an object"):
        read_object(b'{"a":{}}').nullable_string("a")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"x":1', b'{"x":01}', b'{"y":[1e400],"x":1}'])
def test_a_body_that_is_no_strict_object_is_refused_before_any_field_is_read(body: bytes) -> None:
    with pytest.raises(RequestError, match="the body"):
        read_object(body)


def test_an_object_of_more_members_than_any_reader_knows_is_refused() -> None:
    keys = b",".join(b'"%d":1' % number for number in range(FIELDS_MAX + 1))
    with pytest.raises(RequestError, match="the body has too many entries: at most 1000 are allowed"):
        read_object(b"{%b}" % keys)
    with pytest.raises(RequestError, match="producer has too many entries"):
        read_object(b"{%b}" % keys, "producer", "producer.")
    assert read_object(b"{%b}" % keys, members_max=FIELDS_MAX + 1).u64("7", 0) == 1


def test_what_follows_too_many_members_is_not_looked_at() -> None:
    keys = b",".join([b'"":0'] * FIELDS_MAX)
    with pytest.raises(RequestError, match="too many entries"):
        read_object(b'{%b,"x":0 and no JSON' % keys)
    with pytest.raises(RequestError, match="not valid JSON"):
        read_object(b"{%b and no JSON" % keys)


def test_a_long_list_over_its_limit_is_counted_and_not_decoded() -> None:
    """Lists of less than 64 KiB are decoded whatever they hold: what is wrong in them is named as before."""
    numbers = read_object(b'{"x":[%b]}' % b",".join([b"1"] * 40_000))
    assert numbers.u64s("x", 1000) == ([], 40_000)
    assert numbers.u64s("x", 40_000) == ([1] * 40_000, 40_000)
    assert read_object(b'{"x":[1,2,3]}').u64s("x", 2) == ([1, 2, 3], 3)
    unlike = read_object(b'{"x":["a",%b]}' % b",".join([b"1.5"] * 40_000))
    assert unlike.u64s("x", 1000) == ([], 40_001)
    with pytest.raises(RequestError, match=r"x\[0\] must be a whole number"):
        unlike.u64s("x", 50_000)
    strings = read_object(b'{"x":[%b]}' % b",".join([b'""'] * 40_000))
    assert strings.string_array("x", 1000) == ([], 1001)
    assert strings.string_array("x", 40_000) == ([""] * 40_000, 40_000)
    assert strings.string_array("absent", 1) == ([], 0)


def test_nodes_of_a_reader_are_kept_once_each_and_those_no_record_has_are_not() -> None:
    long = "x" * 60_001
    fields = read_object(b'{"node":["a","b","a","\\u00e9","' + long.encode() + b'"]}')
    assert fields.nodes(Config()) == node_set((b"a", b"b", "\u00e9".encode()))
    assert read_object(b'{"node":"' + long.encode() + b'"}').nodes(Config()) == NO_NODES


def test_a_reader_names_a_thousand_nodes_at_most_counted_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-NODE-6."""
    limits = replace(Config(), max_nodes=3, max_node_bytes=4)
    for text in (b'["a","b","c"]', b'["aaaa","bbbb","cccc"]', b'"aaaaaaaaaaaa"', b'["a","a"]', b"[]", b"null"):
        read_object(b'{"node":%b}' % text).nodes(limits)
    with pytest.raises(TooManyError, match="node has too many entries: at most 3 are allowed"):
        read_object(b'{"node":["a","a","a","a"]}').nodes(limits)
    for text in (b'["aaaaa","bbbb","cccc"]', b'"aaaaaaaaaaaaa"', '["\u20ac\u20ac\u20ac\u20ac\u20ac"]'.encode()):
        with pytest.raises(TooManyError, match="node has 1[35] bytes of names: at most 12 are allowed"):
            read_object(b'{"node":%b}' % text).nodes(limits)
    monkeypatch.setattr(strict_json, "strings_of", None)
    with pytest.raises(TooManyError, match="node has too many entries"):
        read_object(b'{"node":[%b]}' % b",".join([b'""'] * 40_000)).nodes(limits)


@pytest.mark.parametrize("count", [3, 500])
def test_the_first_that_is_no_string_is_named_among_many(count: int) -> None:
    text = b'{"node":[' + b'"a",' * count + b"1," + b'"b",' * count + b"2]}"
    with pytest.raises(RequestError, match=rf"node\[{count}\] must be a string, not the number 1"):
        read_object(text).strings("node", 1001)
    with pytest.raises(RequestError, match=rf"node\[{count}\] must be a string"):
        read_object(text).string_array("node", 1001)
