"""A server of topics in memory, without a disk: the part of the contract that the connector uses.

`answer` is a function of a request. `connect` stands in for http.client, so most tests open no socket;
`served` serves the same object at a port, for Spark's workers.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WAIT_NAMES = 256


@dataclass
class Record:
    seq: int
    ts: int
    data: str
    tag: str | None = None
    node: str | None = None
    meta: str | None = None
    base64: str | None = None
    """The data of a record of bytes, whose `data` is null."""


@dataclass
class Topic:
    of: str
    durability: str = "disk"
    head: int = 0
    records: list[Record] = field(default_factory=list)
    lost_to: int = 0
    """The floor: records at or below it were lost by `reason`."""
    reason: str = "cap"
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    parts: dict[tuple[str, int, int], tuple[int, int, list[str]]] = field(default_factory=dict)
    staged: dict[tuple[str, int, int], tuple[str, list[list[dict[str, Any]]]]] = field(default_factory=dict)

    @property
    def earliest(self) -> int:
        return self.records[0].seq if self.records else self.head + 1


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: Any = None, said: str = "no") -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.said = status, code, detail, said


class FakeServer:
    """`requests` has all that was asked: method, path without query, body. `clock_ms` moves when a wait has no news."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.clock_ms = 1_000_000
        self.snapshot = 0
        self.failures: list[Refused | Exception] = []
        """The replacements of the next answers."""
        self.token: str | None = None
        self.lives = 0
        self.before: Any = None
        """Called with method and path before each request: what happens meanwhile."""

    # --- what tests do to it -----------------------------------------------------------------------------------------

    def make(self, name: str, durability: str = "disk") -> Topic:
        self.lives += 1
        self.topics[name] = Topic(f"{self.lives:016x}", durability)
        return self.topics[name]

    def put(self, name: str, *data: Any, **fields: Any) -> None:
        topic = self.topics.get(name) or self.make(name)
        for value in data:
            topic.head += 1
            record = Record(topic.head, self.clock_ms, "null", **fields)
            if isinstance(value, bytes):
                record.base64 = base64.b64encode(value).decode()
            else:
                record.data = json.dumps(value)
            topic.records.append(record)

    def lose(self, name: str, to_seq: int, reason: str = "cap") -> None:
        topic = self.topics[name]
        topic.lost_to, topic.reason = to_seq, reason
        topic.records = [record for record in topic.records if record.seq > to_seq]

    def delete(self, name: str, *seqs: int) -> None:
        topic = self.topics[name]
        gone = set(seqs)
        topic.records = [record for record in topic.records if record.seq not in gone]

    def values(self, name: str) -> list[Any]:
        return [
            json.loads(record.data) if record.base64 is None else base64.b64decode(record.base64)
            for record in self.topics[name].records
        ]

    # --- requests ----------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> tuple[int, bytes]:
        parts = urlsplit(path)
        asked = json.loads(body) if body else None
        self.requests.append((method, parts.path, asked))
        self.headers.append(dict(headers))
        if self.before is not None:
            self.before(method, parts.path)
        try:
            if self.failures:
                failure = self.failures.pop(0)
                raise failure
            if self.token is not None and headers.get("Authorization") != f"Bearer {self.token}":
                raise Refused(401, "unauthorized")
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            return 200, json.dumps(self.route(method, parts.path, query, asked), ensure_ascii=False).encode()
        except Refused as refused:
            error: dict[str, Any] = {"code": refused.code, "message": refused.said}
            if refused.detail is not None:
                error["detail"] = refused.detail
            return refused.status, json.dumps({"error": error}).encode()

    def route(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if (method, path) == ("POST", "/v0/wait"):
            return self.wait(body)
        if (method, path) == ("POST", "/v0/checkpoint"):
            self.snapshot += 1
            return {"snapshot": self.snapshot, "done": True}
        if (method, path) == ("GET", "/v0/topics"):
            return self.page_of_topics(query)
        found = re.fullmatch(r"/v0/topics/([^/]+)(/diff)?", path)
        if found is None:
            raise Refused(404, "not_found")
        name = unquote(found.group(1))
        if found.group(2):
            return self.diff(name, body)
        return self.state(name, query) if method == "GET" else self.write(name, body)

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise Refused(404, "topic_not_found", {"topic": name})
        return self.topics[name]

    def state(self, name: str, query: Mapping[str, str]) -> Any:
        topic = self.topic(name)
        shown = {"head_seq": topic.head, "earliest_seq": topic.earliest, "config": {"durability": topic.durability}}
        return shown | ({"incarnation": topic.of} if query.get("incarnation") == "true" else {})

    def page_of_topics(self, query: Mapping[str, str]) -> Any:
        names = sorted(name for name in self.topics if name.startswith(query.get("prefix", "")))
        after = query.get("cursor", "")
        size = int(query.get("page_size", "100"))
        page = [name for name in names if name > after][:size]
        shown: dict[str, Any] = {"topics": [{"topic": name, **self.state(name, query)} for name in page]}
        if page and page[-1] != names[-1]:
            shown["next_cursor"] = page[-1]
        return shown

    def wait(self, body: Any) -> Any:
        names = body["topics"]
        if not 1 <= len(names) <= WAIT_NAMES:
            raise Refused(400, "invalid_request", said="topics must name 1 to 256")
        if not any(self.is_news(name, cursor) for name, cursor in names.items()):
            self.clock_ms += body["wait_ms"]
        heads = {
            name: {"head_seq": self.topics[name].head, "incarnation": self.topics[name].of}
            if name in self.topics
            else None
            for name in names
        }
        return {"topics": heads}

    def is_news(self, name: str, cursor: Any) -> bool:
        topic = self.topics.get(name)
        if topic is None:
            return bool(cursor)
        if cursor is None:
            return True
        cursor = cursor if isinstance(cursor, dict) else {"seq": cursor}
        return topic.head != cursor["seq"] or cursor.get("incarnation", topic.of) != topic.of

    def diff(self, name: str, body: Any) -> Any:
        topic = self.topic(name)
        cursor = body.get("from_seq", 0)
        if "from" in body:
            later = [record.seq for record in topic.records if record.ts >= body["from"]["time"]]
            cursor = later[0] - 1 if later else topic.head
        limit = min(body.get("limit") or 256, 1000)
        tombstone, ends = None, topic.head
        start = cursor
        if cursor < topic.lost_to:
            tombstone, start = (cursor + 1, topic.lost_to, topic.reason), topic.lost_to
        elif cursor > topic.head:
            tombstone, start = (1, topic.head, "recreated"), 0
        for low, high, reason in topic.gaps:
            if low - 1 <= start < high and tombstone is None:
                tombstone, start = (start + 1, high, reason), high
            elif start < low - 1:
                ends = min(ends, low - 1)
        records = [record for record in topic.records if start < record.seq <= ends]
        end = records[limit - 1].seq if len(records) > limit else ends
        records = records[:limit]
        shown = [self.shown(record, body) for record in records]
        gap = tombstone and {"gap_from": tombstone[0], "gap_to": tombstone[1], "reason": tombstone[2]}
        return {
            "topic": name,
            "records": shown,
            "next_from_seq": max(end, start),
            "head_seq": topic.head,
            "earliest_seq": topic.earliest,
            "tombstone": gap,
        }

    @staticmethod
    def shown(record: Record, body: Any) -> Any:
        shown: dict[str, Any] = {"$seq": record.seq, "$ts": record.ts}
        if record.node is not None:
            shown["$node"] = record.node
        if record.tag is not None and body.get("include_tags"):
            shown["$tag"] = record.tag
        if record.base64 is None:
            shown["data"] = json.loads(record.data)
        else:
            shown["data_base64"] = record.base64
        if record.meta is not None and body.get("include_meta", True):
            shown["meta"] = json.loads(record.meta)
        return shown

    def write(self, name: str, body: Any) -> Any:
        created = name not in self.topics
        if created and body.get("create") is False:
            raise Refused(404, "topic_not_found", {"topic": name})
        topic = self.topics.get(name) or self.make(name)
        producer = body["producer"]
        key = (producer["id"], producer["epoch"], producer["part"])
        records = body["records"]
        piece, last = producer.get("piece", 0), producer.get("last", True)
        if piece or not last:
            attempt, pieces = topic.staged.get(key, ("", []))
            if piece == 0:
                attempt, pieces = producer["attempt"], []
            if attempt != producer["attempt"] or piece != len(pieces):
                raise Refused(409, "producer_incomplete", {"piece": len(pieces)})
            pieces.append(records)
            topic.staged[key] = (attempt, pieces)
            if not last:
                return {"topic": name, "staged": True, "piece": piece, "count": len(records), "deduped": False}
            records = [record for staged in topic.staged.pop(key)[1] for record in staged]
        sums = sorted(json.dumps(record, sort_keys=True) for record in records)
        if key in topic.parts:
            first, last_seq, before = topic.parts[key]
            if before != sums:
                raise Refused(409, "producer_diverged", {"topic": name})
            return {"first_seq": first, "last_seq": last_seq, "count": len(sums), "created": False, "deduped": True}
        first = topic.head + 1
        for record in records:
            topic.head += 1
            meta = None if record.get("meta") is None else json.dumps(record["meta"])
            if ("data" in record) == ("data_base64" in record):
                raise Refused(400, "invalid_request", said="exactly one of data and data_base64")
            topic.records.append(
                Record(
                    topic.head,
                    self.clock_ms,
                    json.dumps(record.get("data")),
                    record.get("tag"),
                    record.get("node"),
                    meta,
                    record.get("data_base64"),
                )
            )
        topic.parts[key] = (first, topic.head, sums)
        return {"first_seq": first, "last_seq": topic.head, "count": len(records), "created": created, "deduped": False}

    # --- fronts ------------------------------------------------------------------------------------------------------

    def connect(self, host: str, port: int | None, timeout_s: float, secure: bool) -> Any:
        del host, port, timeout_s, secure
        return _Connection(self)

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its address, for the time of the block."""
        handler = type("Handler", (_Handler,), {"fake": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers = {"Retry-After": "1"} if status in (429, 503) else {}
        self.will_close = False
        self._body = body

    def read(self) -> bytes:
        return self._body


class _Connection:
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        self._answer = _Answer(*self._fake.answer(method, path, headers, body))

    def getresponse(self) -> _Answer:
        return self._answer

    def close(self) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.lock:
            status, answer = self.fake.answer(self.command, self.path, dict(self.headers), body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass
