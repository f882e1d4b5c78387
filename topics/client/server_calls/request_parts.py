"""Parts of requests: paths, queries and limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from topics.common.topic_names import NAME_MAX
from topics.common.values import arguments
from topics.common.values.begin import Begin
from topics.errors import RequestError

# What a server refuses with its default settings, whose names these have.
MAX_LIMIT = 1000
"""Records of a page at most, and `limit` to ask for as many (5.2)."""
MAX_WAIT_MS = 30_000
"""Longest wait of one request (5.2)."""
MAX_BATCH_BYTES = 8 << 20
"""Bytes of the records of a page at most."""
MAX_LAST = 10_000
"""Records from the end at most, by `from: {"last": n}`."""
MAX_WAIT_TOPICS = 256
"""Topics of one wait, or of one watch, at most."""
MAX_PREFIXES = 64
"""Prefixes of one of them at most."""

encode = msgspec.json.encode


def segment(name: str, value: object) -> str:
    text = arguments.encoded(name, value)
    if not 1 <= len(text) <= NAME_MAX:
        message = f"{name} {arguments.shown(value)} is not usable: use 1 to {NAME_MAX} characters"
        raise RequestError("invalid_request", message)
    return quote(text, safe="")


def topic_path(topic: object, name: str = "topic") -> str:
    return f"/v0/topics/{segment(name, topic)}"


def query(**values: object) -> str:
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items() if value}
    return "?" + urlencode(given) if given else ""


def shown_begin(begin: Begin) -> Any:
    return begin.kind if begin.kind in {"first", "now"} else {begin.kind: begin.number}
