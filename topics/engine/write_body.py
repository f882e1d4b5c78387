"""The body of a write: `{"records": [...], ...}` scanned whole in one C call into rows.

Source: wire contract, sections 5.2, 5.3 and 7.5. The rows point into the body itself (no copy) unless payloads hold
white space or a tag or node holds escapes; then into a cleaned copy.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.config import Config
from topics.engine.topic_config import TopicConfig
from topics.errors import RequestError
from topics.store.rows import Rows


class WriteBody(NamedTuple):
    """One write request's body, of the right shape (check 1 of 7.5 passed).

    violation: the first limit the body breaks (checks 3 and 4: record count, key, tag, node, meta, record size), to be
    raised by the caller after check 2 (may this client create the topic with `config`?); None when it breaks none, and
    only then are `rows` complete.
    """

    rows: Rows
    node: bytes | None
    """For records without their own; UTF-8."""
    key: bytes | None
    """idempotency_key, UTF-8."""
    create: bool | None
    config: TopicConfig | None
    disable_backpressure: bool
    violation: RequestError | None


class WriteScanner:
    """Scans write bodies, one at a time, with the limits of one server's settings; reuses its room between calls."""

    def __init__(self, config: Config) -> None:
        self._limits = config

    def scan(self, body: bytes) -> WriteBody:
        """Raises: RequestError invalid_request (JsonError has the offset), naming the field, e.g. "records[3].tag"."""
        raise NotImplementedError
