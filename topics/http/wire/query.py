"""Query strings. Source: wire contract, section 2.2.

No query is an error: a value that does not parse counts as the default.
"""

from __future__ import annotations

import re

from topics.http.wire.percent import form_decoded

Query = dict[str, str]

PAIRS_MAX = 1000
"""Most pairs that are decoded: a head has room for sixty thousand, and each takes 2 us."""

_TOKEN = re.compile(
    # Each letter of `token` may be escaped.
    r"(?:\A|&)(?:t|%74)(?:o|%6[fF])(?:k|%6[bB])(?:e|%65)(?:n|%6[eE])(?:=([^&]*))?(?=&|\Z)"
)
_TRUE = ("true", "1")
_FALSE = ("false", "0")


def parse_query(text: str) -> Query:
    """Return the pairs of a query by key.

    Form decoding applies (`%XX`, `+`; malformed escapes stay). Of equal keys the last counts,
    except for `token`, where the first does. Pairs after the first PAIRS_MAX are ignored.
    """
    query: Query = {}
    for pair in _first_pairs(text):
        if not pair:
            continue
        key, _, value = pair.partition("=")
        key = form_decoded(key)
        if key != "token" or key not in query:
            query[key] = form_decoded(value)
    return query


def _first_pairs(text: str) -> list[str]:
    return text.split("&", PAIRS_MAX)[:PAIRS_MAX]


def token_of(text: str) -> str | None:
    """Return `parse_query(text).get("token")` without decoding the other pairs.

    A client that has not shown its key yet must not cost more than that.
    """
    if text.count("&") >= PAIRS_MAX:
        text = "&".join(_first_pairs(text))
    found = _TOKEN.search(text)
    return None if found is None else form_decoded(found[1] or "")


def boolean(query: Query, key: str, default: bool) -> bool:
    """Return True for `true` or `1`, False for `false` or `0`, the default for any other value."""
    value = query.get(key)
    if value in _TRUE:
        return True
    return False if value in _FALSE else default


def unsigned(query: Query, key: str, default: int) -> int:
    """Return an unsigned decimal that fits u64, else the default."""
    value = query.get(key, "")
    if not (value.isascii() and value.isdigit()) or len(value) > 40:
        return default
    number = int(value)
    return number if number < 2**64 else default
