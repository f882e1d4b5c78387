"""The server under test as an address: its topics, and requests that are not measured."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from topics.bench.load.load_client import count_labels
from topics.bench.load.load_plan import numbered_json
from topics.errors import TopicsError, UsageError

PAGE = 1000
FILL_BATCH = 1000
TIMEOUT_SECONDS = 120
_ENGINE = re.compile(rb'topics_build_info\{[^}]*io="(\w+)"')
_POLLS = re.compile(rb"^topics_loop_polls_total (\S+)", re.MULTILINE)

_RECORD = b'"$seq":'
"""A key that each record of an answer has, and no text of a record that was sent."""


class ServerIo(NamedTuple):
    """The engine of a server's I/O, empty where it shows none, and how many waits have polled."""

    engine: str
    polls: int


class BenchTargetError(TopicsError):
    """A request outside the measurement that failed."""


@dataclass
class TopicsTarget:
    """A server at an IPv4 address. key: a bearer token, if the server has keys."""

    host: str
    port: int
    key: str = ""
    _link: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self._link = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)

    @classmethod
    def of_url(cls, url: str, key: str = "") -> TopicsTarget:
        """Return the target of `http://HOST:PORT`. Raises: UsageError for another kind of URL."""
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError as error:
            raise UsageError(f"--url is {url!r}: {error}: use http://HOST:PORT, with a port to 65535") from None
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"--url is {url!r}: use http://HOST:PORT (the load client speaks no TLS)")
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise UsageError(f"--url is {url!r}: leave out what is not of http://HOST:PORT; --key has the key")
        try:
            address = socket.gethostbyname(parts.hostname)
        except OSError as error:
            raise UsageError(f"--url is {url!r}: {parts.hostname} has no address: {error}") from None
        return cls(address, port, key)

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        self._link.close()

    def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send one request; return the body of its answer.

        Raises: BenchTargetError unless its status is 2xx.
        """
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            self._link.request(method, path, body, headers)
            answer = self._link.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._link.close()
            raise BenchTargetError(f"{method} {path} on {self.host}:{self.port}: {error}") from None
        if answer.status // 100 != 2:
            raise BenchTargetError(f"{method} {path} answered {answer.status}: {text[:300].decode(errors='replace')}")
        return text

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.raw(method, path, None if body is None else json.dumps(body).encode()))

    def is_ready(self) -> bool:
        try:
            self.raw("GET", "/readyz")
        except BenchTargetError:
            return False
        return True

    def io(self) -> ServerIo:
        """Return what its metrics say of its I/O."""
        try:
            text = self.raw("GET", "/v0/metrics")
        except BenchTargetError:
            return ServerIo("", 0)
        engine, polls = _ENGINE.search(text), _POLLS.search(text)
        return ServerIo(engine[1].decode() if engine else "", int(float(polls[1])) if polls else 0)

    def fill(self, topic: str, records: int, size: int) -> None:
        """Write records with the numbers from 0 on."""
        for start in range(0, records, FILL_BATCH):
            numbers = range(start, min(start + FILL_BATCH, records))
            rows = b",".join(b'{"data":' + numbered_json(size, number) + b"}" for number in numbers)
            self.raw("POST", f"/v0/topics/{topic}?return_seqs=false", b'{"records":[' + rows + b"]}")

    def read_back(self, topic: str, numbers: int, sizes: Collection[int]) -> tuple[NDArray[np.uint8], int]:
        """Read a topic from its start; return how often each number below `numbers` is there, and
        how many records are none that were sent.

        sizes: of the records that were. Raises: BenchTargetError for a gap that the answer reports,
        and for a page after which the next one is no later.
        """
        seen = np.zeros(max(1, numbers), np.uint8)
        position = altered = 0
        while True:
            body = b'{"from_seq":%d,"limit":%d}' % (position, PAGE)
            text = self.raw("POST", f"/v0/topics/{topic}/diff", body)
            if b'"tombstone":null' not in text:
                raise BenchTargetError(
                    f"the server reports lost records of {topic}: {text[-300:].decode(errors='replace')}"
                )
            counts = count_labels(text, seen, sizes)
            altered += counts.altered + max(0, text.count(_RECORD) - counts.found)
            if not counts.found:
                return seen, altered
            before, position = position, int(text.rpartition(b'"next_from_seq"')[2][1:].partition(b",")[0])
            if position <= before:
                raise BenchTargetError(f"a read of {topic} from {before:,} has records, and continues at {position:,}")

    def state(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v0/topics/{topic}")
        return found

    def heads(self, prefix: str) -> int:
        """Return the sum of the heads of all topics with a prefix."""
        total: int = 0
        cursor = ""
        while True:
            page = self.call("GET", f"/v0/topics?page_size=1000&prefix={prefix}&cursor={cursor}")
            total += sum(int(row["head_seq"]) for row in page["topics"])
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return total
