"""The loads of a workload as requests to a topics server: one function a kind."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace

from topics.bench.load.load_plan import (
    TOPIC_NUMBER,
    AnswerEnd,
    LoadGroup,
    LoadMessage,
    Take,
    http_request,
    labelled_json,
    taking_request,
    write_body,
)
from topics.bench.topics_server.topics_target import TopicsTarget
from topics.bench.workload import LoadSpec, Workload

_READ_PLACES = 64
TAIL_WAIT_MS = 10_000
TAIL_LIMIT = 1000
CLAIM, ACK = "claim", "ack"
_HANDSHAKE = (
    "GET /v0/ws HTTP/1.1\r\nHost: {host}\r\n{token}Connection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def read_places(records: int, limit: int) -> list[int]:
    """Return from which records the reads of `limit` begin, all over a topic of so many records."""
    most = records - limit
    return sorted({most * place // _READ_PLACES for place in range(_READ_PLACES)})


class TopicsLoads:
    """The maker of a workload's groups. topic: name of the topic that they use."""

    def __init__(self, workload: Workload, target: TopicsTarget, topic: str) -> None:
        self.workload = workload
        self.target = target
        self.topic = topic

    def groups(self) -> list[LoadGroup]:
        kinds: dict[str, Callable[[LoadSpec], LoadGroup]] = {
            "write": self._write,
            "read": self._read,
            "poll": self._poll,
            "tail": self._tail,
            "watch": self._watch,
            "idle": self._watch,
            "talk": self._talk,
            "work": self._work,
        }
        sizes = tuple(self.workload.record_sizes)
        return [replace(kinds[spec.kind](spec), record_bytes=sizes) for spec in self.workload.loads]

    def destination(self, number: int) -> str:
        return f"{self.topic}-copy-{number}"

    def _request(self, path: str, body: bytes) -> LoadMessage:
        return LoadMessage(http_request("POST", path, body, self.target.host, self.target.key))

    def _write(self, spec: LoadSpec) -> LoadGroup:
        name = self.topic if spec.topics == 1 else f"{self.topic}-{TOPIC_NUMBER.decode()}"
        message = self._request(f"/v0/topics/{name}?return_seqs=false", write_body(spec.bytes, spec.batch))
        return LoadGroup(
            spec.name,
            spec.connections,
            (message,),
            rate=spec.rate,
            topics=spec.topics,
            may_be_throttled=spec.may_be_throttled,
        )

    def _read(self, spec: LoadSpec) -> LoadGroup:
        # with a cap, a record's place is not its number
        asks = 0 if self.workload.topic.cap_records else spec.limit
        messages = [
            replace(self._diff(place, spec.limit), asks_from=place, asks=asks)
            for place in read_places(self.workload.fill.records, spec.limit)
        ]
        return LoadGroup(
            spec.name, spec.connections, tuple(messages), rate=spec.rate, hears=True, shares=True, channel=1
        )

    def _diff(self, place: int, limit: int) -> LoadMessage:
        return self._request(f"/v0/topics/{self.topic}/diff", b'{"from_seq":%d,"limit":%d}' % (place, limit))

    def _poll(self, spec: LoadSpec) -> LoadGroup:
        message = self._diff(self.workload.fill.records, 1)
        return LoadGroup(spec.name, spec.connections, (message,), rate=spec.rate, hears=True, shares=True, channel=1)

    def _tail(self, spec: LoadSpec) -> LoadGroup:
        rest = b',"limit":%d,"wait_ms":%d}' % (TAIL_LIMIT, TAIL_WAIT_MS)
        path = f"/v0/topics/{self._heard(spec)}/diff"
        first = str(self.workload.fill.records).encode()
        message = taking_request(
            path, (b'{"from_seq":', rest), Take.NEXT, first, host=self.target.host, key=self.target.key
        )
        return LoadGroup(spec.name, spec.connections, (message,), hears=True, waits=True)

    def _heard(self, spec: LoadSpec) -> str:
        return self.destination(0) if spec.topic else self.topic

    def _watch(self, spec: LoadSpec) -> LoadGroup:
        openings, ready = (self._streams(spec), b"caught-up")
        if spec.over == "ws":
            openings, ready = [self._subscription(spec, None)], b"caught_up"
        return LoadGroup(spec.name, spec.connections, openings=tuple(openings), ready=ready, hears=True)

    def _token(self) -> str:
        return f"Authorization: Bearer {self.target.key}\r\n" if self.target.key else ""

    def _streams(self, spec: LoadSpec) -> list[bytes]:
        """A watch session for each connection, as different clients have."""
        asked = {"topics": {self._heard(spec): {"tail": True}}, "heartbeat_ms": spec.heartbeat_ms}
        paths = [self.target.call("POST", "/v0/watch", asked)["stream_url"] for _ in range(spec.connections)]
        head = f"Host: {self.target.host}\r\n{self._token()}Accept: text/event-stream\r\n\r\n"
        return [f"GET {path} HTTP/1.1\r\n{head}".encode() for path in paths]

    def _subscription(self, spec: LoadSpec, node: str | None) -> bytes:
        asked = {"op": "subscribe", "topic": self._heard(spec), "tail": True}
        if node is not None:
            asked["node"] = node
        handshake = _HANDSHAKE.format(host=self.target.host, token=self._token())
        return handshake.encode() + text_frame(json.dumps(asked, separators=(",", ":")).encode())

    def _talk(self, spec: LoadSpec) -> LoadGroup:
        nodes = [f"p{number}" for number in range(spec.connections)]
        openings = [self._subscription(spec, None if spec.hears_itself else node) for node in nodes]
        messages = []
        for node in nodes:
            head = f'{{"op":"publish","topic":"{self.topic}","return_seqs":false,"node":"{node}","records":[{{"data":'
            messages.append(LoadMessage(text_frame(head.encode() + labelled_json(spec.bytes) + b"}]}")))
        return LoadGroup(
            spec.name,
            spec.connections,
            tuple(messages),
            rate=spec.rate * spec.connections,
            openings=tuple(openings),
            ready=b"caught_up",
            end=AnswerEnd.PATTERN,
            answer=b'"op":"ack"',
            refused=b'"op":"error"',
            hears=True,
            hears_itself=spec.hears_itself,
        )

    def _work(self, spec: LoadSpec) -> LoadGroup:
        messages = []
        for number in range(spec.connections):
            claim = b'{"node":"w%d","max":%d}' % (number, spec.max)
            messages.append(self._request(f"/v0/topics/{self.topic}/claim", claim))
            before = b'{"node":"w%d","seqs":[' % number
            path = f"/v0/topics/{self.topic}/ack"
            messages.append(
                taking_request(path, (before, b"]}"), Take.SEQS, host=self.target.host, key=self.target.key)
            )
        writes = any(one.kind == "write" for one in self.workload.loads)
        return LoadGroup(
            spec.name,
            spec.connections,
            tuple(messages),
            steps=(CLAIM, ACK),
            rate=spec.rate,
            hears=True,
            shares=True,
            marks=True,
            stops_empty=not writes,
            channel=1,
        )


def text_frame(text: bytes) -> bytes:
    """Return a WebSocket's text frame of a client, masked with zeros."""
    size = len(text)
    if size < 126:
        return struct.pack("!BB", 0x81, 0x80 | size) + bytes(4) + text
    if size < 1 << 16:
        return struct.pack("!BBH", 0x81, 0x80 | 126, size) + bytes(4) + text
    return struct.pack("!BBQ", 0x81, 0x80 | 127, size) + bytes(4) + text
