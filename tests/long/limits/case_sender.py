"""Sends cases to a server, with data before them, and waits until it has done with each."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any, NamedTuple

from tests.contract.world import websocket_client
from tests.contract.world.world import Connection, World, request_bytes
from tests.long.limits.cases import HEAD, IN_NEW_TOPIC, Case, Fields, with_value
from tests.long.limits.fields import WRITE
from tests.long.limits.values import Scale, const
from tests.ws.frame_client import TEXT, Incoming, frame

FRAME_BYTES = 8 << 20
ROOM_BYTES = 1 << 16
"""Bytes of a body for the fields besides the one of the case."""
ANSWER_MS = 120_000
_BATCH = 10_000
_NO_MASK = bytes(4)


class Target(NamedTuple):
    """Where an operation's cases are sent, and the fields they have besides."""

    path: str = ""
    body: Fields = {}  # noqa: RUF012 - never changed
    query: str = ""
    reader: str = ""


TARGETS = {
    "PUT /v0/topics/:": Target("doomed"),
    "PATCH /v0/topics/:": Target("doomed"),
    "GET /v0/topics/:": Target("large"),
    "DELETE /v0/topics/:": Target("absent"),
    WRITE: Target("written", {"records": b'[{"data":0}]'}),
    "POST /v0/topics/:/diff": Target("large"),
    "POST /v0/topics/:/delete": Target("doomed", {"match": b'"absent"'}),
    "POST /v0/wait": Target(body={"topics": b'{"t000001":9}'}),
    "POST /v0/topics/:/claim": Target("jobs", {"node": b'"n"', "lease_ms": b"100"}),
    "POST /v0/topics/:/ack": Target("jobs", {"node": b'"n"'}),
    "POST /v0/topics/:/nack": Target("jobs", {"node": b'"n"'}),
    "POST /v0/topics/:/extend": Target("jobs", {"node": b'"n"', "lease_ms": b"100"}),
    "GET /v0/topics/:/dead": Target("poison"),
    "POST /v0/topics/:/redrive": Target("poison"),
    "GET /v0/topics/:/work": Target("jobs", query="node=n&lease_ms=100"),
    "PUT /v0/topics/:/readers/:": Target("doomed", {"trims": b"true"}, reader="slow"),
    "GET /v0/topics/:/readers/:": Target("large", reader="r0"),
    "GET /v0/topics/:/readers": Target("large"),
    "DELETE /v0/topics/:/readers/:": Target("doomed", reader="absent"),
    "POST /v0/topics/:/readers/:/read": Target("large", reader="r0"),
    "POST /v0/topics/:/readers/:/commit": Target("doomed", reader="trim"),
    "POST /v0/topics/:/readers/:/seek": Target("doomed", {"seq": b"0"}, reader="trim"),
    "PUT /v0/routers/:": Target("router", {"source": b'"quiet"', "dest": b'"copies"'}),
    "GET /v0/routers/:": Target("absent"),
    "DELETE /v0/routers/:": Target("absent"),
    "POST /v0/watch": Target(body={"topics": b'{"large":{}}'}),
    "WS ping": Target(body={"op": b'"ping"'}),
    "WS subscribe": Target(body={"op": b'"subscribe"', "topic": b'"large"'}),
    "WS unsubscribe": Target(body={"op": b'"unsubscribe"', "topic": b'"large"'}),
    "WS publish": Target(body={"op": b'"publish"', "topic": b'"published"', "records": b'[{"data":0}]'}),
}
_SLOWS = ("PUT /v0/topics/:/readers/:", "DELETE /v0/topics/:/readers/:")
"""Operations whose cases may change or delete the one reader because of which nothing is trimmed."""
_TRIMS = ("POST /v0/topics/:/readers/:/commit", "POST /v0/topics/:/readers/:/seek")
"""Operations whose cases move the one reader that trims."""
_EMPTIES = (
    "PUT /v0/topics/:",
    "PATCH /v0/topics/:",
    "DELETE /v0/topics/:",
    "POST /v0/topics/:/delete",
    *_SLOWS,
    *_TRIMS,
)
"""Operations whose cases may take records from the topic `doomed`."""
_HOLDS = ("POST /v0/topics/:/ack", "POST /v0/topics/:/nack", "POST /v0/topics/:/extend")
_STREAMS = ("GET /v0/topics/:/work", "GET /v0/watch/:")


class Client:
    """One server with `scale.topics` topics and large ones: `large` (as many readers as it may have), `doomed` (a tag a
    record), `jobs` (a queue), `poison` (a queue with dead letters)."""

    def __init__(self, world: World, scale: Scale) -> None:
        self._world = world
        self._scale = scale
        self._numbers = itertools.count()
        self._tagged: list[bytes] = []
        self._other = world.connect()

    # --- data --------------------------------------------------------------------------------------------------------
    def fill(self) -> None:
        scale = self._scale
        link = self._world.connect()
        for start in range(0, scale.topics, 100):
            numbers = range(start, min(start + 100, scale.topics))
            link.send(b"".join(request_bytes("PUT", f"/v0/topics/t{i:06d}", {}) for i in numbers))
            for _ in numbers:
                assert link.answer("PUT", ANSWER_MS).status == 201
        self._put("jobs", {"type": "queue"})
        self._write("jobs", scale.records)
        self._write("large", scale.records)
        self._put("poison", {"type": "queue", "dead_letter": "poison.dead"})
        self._write("poison.dead", scale.records // 2)
        self._write_dead(scale.records // 2)
        for number in range(scale.config.max_readers):
            self._put(f"large/readers/r{number}", {})
        self._world.write("quiet", 0)
        for path in ("/docs", "/openapi.json"):  # made by the first request, and kept
            assert link.request("GET", path).status == 200
        self._close(link)

    def _put(self, topic: str, config: Any) -> None:
        link = self._world.connect()
        assert link.request("PUT", f"/v0/topics/{topic}", config).status in (200, 201)
        self._close(link)

    def _write(self, topic: str, records: int) -> None:
        """Adds records of some 20 bytes, each with a tag of its own."""
        link = self._world.connect()
        batch = min(_BATCH, self._scale.config.max_batch_records, records)
        for start in range(0, records, batch):
            number = start // batch
            if number == len(self._tagged):
                row = b'{"data":%d,"tag":"a%07d"}'
                rows = b",".join([row % (i, i) for i in range(start, start + batch)])
                self._tagged.append(b'{"records":[%b]}' % rows)
            request = request_bytes("POST", f"/v0/topics/{topic}", self._tagged[number], _JSON)
            assert link.send(request).answer("POST", ANSWER_MS).status in (200, 201)
        self._close(link)

    def _write_dead(self, records: int) -> None:
        """Adds dead letters of the queue `poison`, after other records."""
        link = self._world.connect()
        batch = min(_BATCH, self._scale.config.max_batch_records, records)
        row = b'{"data":0,"meta":{"$dead_letter_from":"poison","$dead_letter_src_seq":"1"}}'
        text = b'{"records":[%b]}' % b",".join([row] * batch)
        for _ in range(0, records, batch):
            link.send(request_bytes("POST", "/v0/topics/poison.dead", text, _JSON))
            assert link.answer("POST", ANSWER_MS).status == 200
        self._close(link)

    # --- cases -------------------------------------------------------------------------------------------------------
    def prepare(self, case: Case) -> bytes:
        """Makes what the case is about; returns what is to be sent."""
        target = TARGETS.get(case.operation, Target())
        path, body, query, headers = target.path, target.body, target.query, dict(_JSON)
        place, _, field = case.field.partition(".")
        if case.operation in _EMPTIES:
            self._refill()
        if case.operation in _HOLDS:
            body = {**body, **self._hold()}
        if case.operation in (*_SLOWS, *_TRIMS):
            body = {**body, **self._read(case.operation)}
        if field in ("topics", "seqs") or field.startswith("topics.*"):
            body = {name: text for name, text in body.items() if name not in ("topic", "lease_ids")}
        if case.operation == "GET /v0/watch/:":
            answer = self._world.request("POST", "/v0/watch", {"topics": {"large": {}}})
            path = answer.json["wid"]
        is_new = field.startswith("config") or case.value.name.endswith(IN_NEW_TOPIC)
        if is_new or case.operation == "PUT /v0/routers/:":
            path = f"new{next(self._numbers)}"
        value = case.value
        if value is HEAD:
            value = const(value.name, b"%d" % self._world.state("doomed")["head_seq"])
        text = b""
        if place == "body":
            if "topic" in body and is_new:
                body = {**body, "topic": b'"%b"' % path.encode()}
            scale = self._scale
            if case.operation != WRITE and not case.operation.startswith("WS "):
                most = scale.config.max_command_bytes - ROOM_BYTES
                scale = scale._replace(body_bytes=min(scale.body_bytes, most))
            text = with_value(body, field, value, scale)
        elif body:
            text = b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), value) for name, value in body.items()])
        if case.operation.startswith("WS "):
            return _frames(text)
        reader = target.reader
        if place == "path" and reader:
            reader = case.value.text(self._scale, 0).decode()
        elif place == "path":
            path = case.value.text(self._scale, 0).decode()
        elif place == "query":
            value = case.value.text(self._scale, 0).decode()
            query = f"{query}&{value if field == 'unknown' else f'{field}={value}'}"
        elif place == "header":
            headers[field] = case.value.text(self._scale, 0).decode()
        method, _, pattern = case.operation.partition(" ")
        url = pattern.replace("readers/:", f"readers/{reader}").replace(":", path) + (f"?{query}" if query else "")
        if case.operation == "GET /v0/ws":
            return request_bytes(method, url, headers=websocket_client.HEADERS)
        if method == "GET":
            headers = {name: value for name, value in headers.items() if name not in _JSON}
        if case.gzip:
            text = gzip.compress(text, 6)
            headers["Content-Encoding"] = "gzip"
        return request_bytes(method, url, text, headers)

    def send(self, case: Case, request: bytes) -> int:
        """Sends it and waits until all is done; returns the status, 0 of a WebSocket's command that is refused."""
        link = self._world.connect()
        if case.operation.startswith("WS "):
            link.start("GET", "/v0/ws", headers=websocket_client.HEADERS).head()
            status = self._command(link, request)
        else:
            method = case.operation.partition(" ")[0]
            is_stream = case.operation in (*_STREAMS, "GET /v0/ws")
            link.send(request)
            status = (link.head(ANSWER_MS) if is_stream else link.answer(method, ANSWER_MS)).status
            if is_stream:
                self._look(link)
        self._close(link)
        self.probe()
        return status

    def _command(self, link: Connection, request: bytes) -> int:
        link.send(request)
        incoming, found = Incoming(), []

        def answered() -> bool:
            found.extend(incoming.feed(link.take_bytes()))
            return bool(found) or link.over

        self._world.wait_until(answered, ANSWER_MS)
        status = 200 if found and found[0][0] == TEXT and not found[0][1].startswith(b'{"op":"error"') else 0
        self._look(link)
        return status

    def _look(self, link: Connection) -> None:
        """Takes what comes for a while: the passes of a stream."""
        for _ in range(5):
            link.take_bytes()
            self.probe()

    def probe(self) -> None:
        """A request of another client; when it is answered the passes before have ended."""
        if self._other.over:  # while the data were made, or a case was, it was idle for too long
            self._other = self._world.connect()
        for _ in range(2):
            assert self._other.request("GET", "/v0/health").status == 200

    def _refill(self) -> None:
        self._put("doomed", {})
        there = self._world.state("doomed")["count"]
        if there < self._scale.records:
            self._write("doomed", self._scale.records - there)

    def _hold(self) -> Fields:
        answer = self._world.request("POST", "/v0/topics/jobs/claim", {"node": "n", "max": 1000, "lease_ms": 60_000})
        jobs = answer.json["claimed"]
        leases = [job["lease_id"] for job in jobs]
        return {"seqs": json.dumps([job["$seq"] for job in jobs]).encode(), "lease_ids": json.dumps(leases).encode()}

    def _read(self, operation: str) -> Fields:
        """Prepare the readers of `doomed` that trim; return the token of a page, where the operation takes one."""
        readers = "/v0/topics/doomed/readers"
        self._put("doomed/readers/trim", {"trims": True})
        self._seek_trimming(0)
        self._world.request("DELETE", f"{readers}/slow")
        if operation in _SLOWS:
            self._put("doomed/readers/slow", {"trims": True})
            self._seek_trimming(self._world.state("doomed")["head_seq"])
            return {}
        if not operation.endswith("commit"):
            return {}
        page = self._world.request("POST", f"{readers}/trim/read", {"limit": 10_000, "lease_ms": 600_000}).json
        return {"token": json.dumps(page["token"]).encode()}

    def _seek_trimming(self, seq: int) -> None:
        assert self._world.request("POST", "/v0/topics/doomed/readers/trim/seek", {"seq": seq}).status == 200

    def _close(self, link: Connection) -> None:
        link._stream.reset()  # `Connection.reset` waits, too


_JSON = {"Content-Type": "application/json"}


def _frames(text: bytes) -> bytes:
    """A message in frames that are not too large."""
    pieces = [text[at : at + FRAME_BYTES] for at in range(0, len(text), FRAME_BYTES)]
    last = len(pieces) - 1
    return b"".join(
        frame(0 if number else TEXT, piece, fin=number == last, mask=_NO_MASK) for number, piece in enumerate(pieces)
    )
