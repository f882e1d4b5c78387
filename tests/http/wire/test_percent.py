"""Percent-decoding is urllib's, and no head makes it take long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.http.wire.percent import form_decoded, percent_decoded
from topics.http.wire.query import parse_query, token_of

PIECES = ("a", "+", "%", "%6", "%61", "%2B", "%fF", "%e2%82%ac", "%g1", "%1g", "%%", "4", "F")


@given(st.lists(st.sampled_from(PIECES), max_size=20), st.integers(0, 1000))
def test_a_text_of_any_length_is_decoded_as_by_urllib(pieces: list[str], times: int) -> None:
    text = "".join(pieces)
    for each in (text, text * times):
        assert percent_decoded(each) == unquote_to_bytes(each)
        assert form_decoded(each) == unquote_plus(each)


def lines_of(call: Callable[[str], Any], text: str) -> int:
    lines = 0

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call(text)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("escape", ["%61", "%6", "%ff", "%", "%e2%82%ac"])
@pytest.mark.parametrize("call", [percent_decoded, form_decoded, parse_query, token_of])
def test_escapes_of_a_long_text_are_not_decoded_one_by_one(call: Callable[[str], Any], escape: str) -> None:
    assert lines_of(call, "token=" + escape * (60_000 // len(escape))) < 200
