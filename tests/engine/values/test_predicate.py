"""Which tags a predicate matches, and which shapes are one."""

from __future__ import annotations

import pytest

from topics.engine.values.json_fields import read_object
from topics.engine.values.predicate import Predicate, parse_predicate
from topics.errors import RequestError


def predicate(text: str) -> Predicate:
    span = read_object(f'{{"match":{text}}}'.encode()).span("match")
    assert span is not None
    return parse_predicate(span, 256)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"chat"', Predicate(False, b"chat")),
        ('"chat-42:*"', Predicate(True, b"chat-42:")),
        ('"*"', Predicate(True, b"")),
        ('""', Predicate(False, b"")),
        ('"a*b"', Predicate(False, b"a*b")),
        ('"a**"', Predicate(True, b"a*")),
        ('["tag","Eq","a*"]', Predicate(False, b"a*")),
        ('["tag","Glob","a*"]', Predicate(True, b"a")),
        ('[ "t\\u0061g" , "Eq" , "\\u00e9" ]', Predicate(False, "é".encode())),
    ],
)
def test_both_spellings_are_read_and_written_back(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected
    assert predicate(expected.as_json().decode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("1", "true", "{}", "[]", '["tag","Eq"]', '["tag","Eq","a","b"]', '["tag","eq","a"]', '["tag","GLOB","a*"]'),
        *(
            '["node","Eq","a"]',
            '["tag","Glob","a"]',
            '["tag","Glob",""]',
            '["tag","Eq",1]',
            '["tag",null,"a"]',
            "[1,2,3]",
        ),
    ],
)
def test_any_other_shape_is_refused_by_name(text: str) -> None:
    with pytest.raises(RequestError, match="match") as caught:
        predicate(text)
    assert caught.value.code == "invalid_request"


def test_its_text_is_no_longer_than_a_tag() -> None:
    """R-DEL-11: however it is spelled; a router kept megabytes of it."""
    assert predicate(f'"{"a" * 256}*"') == Predicate(True, b"a" * 256)
    escaped = "\\u0061" * 256
    assert predicate(f'["tag", "Eq", "{escaped}"]') == Predicate(False, b"a" * 256)
    long = "a" * 257
    many = ",".join(['"tag"'] * 100_000)
    for text in (f'"{long}"', f'"{long}*"', f'["tag","Eq","{long}"]', f'["tag","Glob","{long}*"]', f"[{many}]"):
        with pytest.raises(RequestError, match="match is too long"):
            predicate(text)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ('"chat-42:*"', [b"chat-42:", b"chat-42:c"], [b"chat-420:c", b"chat-42", b"", None]),
        ('"*"', [b"", b"a", "é".encode()], [None]),
        ('""', [b""], [b"a", None]),
        ('["tag","Eq","a*"]', [b"a*"], [b"a", b"ab", None]),
    ],
)
def test_equality_is_of_the_whole_tag_and_a_glob_is_a_literal_prefix(
    text: str, matching: list[bytes], others: list[bytes | None]
) -> None:
    found = predicate(text)
    assert all(found.matches(tag) for tag in matching)
    assert not any(found.matches(tag) for tag in others)
