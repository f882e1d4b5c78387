"""A byte stream in memory and a service with routes of its own: HTTP connections without a socket and an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.engine.fake_store import FakeLoop
from topics.config import Config, tiny_config
from topics.engine.shared.limits import ShareSpentError
from topics.engine.values.name_rules import Prefixes
from topics.errors import RequestError
from topics.http.access.keyring import NO_KEYS, Keyring
from topics.http.access.routes import Access, Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.http1.http1_connection import HttpConnection
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service, Waiting
from topics.http.relay.relayed_head import relayed_route
from topics.http.streams.stream_slots import Slot
from topics.http.wire.stream import Stream


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error's code; the envelope's shape is checked on the way."""
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) <= {"code", "message", "detail"}
        assert self.json["error"]["message"]
        return str(self.json["error"]["code"])


class Wire:
    """The transport of a connection; `over_high_water` is the test's to set."""

    def __init__(self) -> None:
        self.peer = ("127.0.0.1", 50_000)
        self.sent = b""
        self.closed = False
        self.paused = False
        self.over_high_water = False
        self.marks = (0, 0)
        self.state: Any = None

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after close"
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def set_water_marks(self, high_bytes: int, low_bytes: int) -> None:
        self.marks = high_bytes, low_bytes

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def take(self, heads_only: Sequence[int] = ()) -> list[Response]:
        """The responses sent since the last take; `heads_only`: which of them answer a HEAD."""
        responses = []
        data, self.sent = self.sent, b""
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            version, status, reason = line.split(" ", 2)
            assert version == "HTTP/1.1"
            assert reason
            headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
            if status == "100":
                responses.append(Response(100, headers, b""))
                continue
            size = 0 if len(responses) in heads_only else int(headers["content-length"])
            assert len(data) >= size, "a body shorter than its Content-Length"
            responses.append(Response(int(status), headers, data[:size]))
            data = data[size:]
        return responses


class FakeProbes:
    """Probes of a server that is as ready as the test says."""

    refusal: RequestError | None = None

    def uptime_ms(self) -> int:
        return 84_012

    def not_ready(self) -> RequestError | None:
        return self.refusal

    def topic_count(self) -> int:
        return 3

    @property
    def scrapes(self) -> FakeProbes:
        return self

    def text(self, _within: Prefixes, done: Callable[[bytes | Exception], None]) -> None:
        done(b"# HELP topics_topics x\n")

    def json(self, done: Callable[[bytes | Exception], None]) -> None:
        done(b'{"topics":3}')


class Echo:
    """Handlers that report what they got, or park the call until the test answers it."""

    def __init__(self) -> None:
        self.parked: list[Call] = []
        self.abandoned: list[Call] = []
        self.streams: list[Stream] = []
        self.slots: list[Slot] = []
        self.told: list[str] = []

    def echo(self, call: Call) -> None:
        request = call.plan.request
        shown = {
            "method": request.method,
            "name": call.name,
            "query": call.plan.query,
            "body": bytes(call.body).decode("latin-1"),
            "headers": {name.decode(): value.decode("latin-1") for name, value in request.headers.items()},
        }
        call.reply(json.dumps(shown, sort_keys=True).encode())

    def park(self, call: Call) -> None:
        self.parked.append(call)

    def wait(self, call: Call) -> None:
        self.parked.append(call)
        call.on_disconnect = lambda: self.abandoned.append(call)

    def stream(self, call: Call) -> None:
        stream = call.open_stream(
            b"text/plain", b"X-Kind: stream\r\n", lambda: self.told.append("drained"), lambda: self.told.append("gone")
        )
        self.streams.append(stream)

    def work(self, call: Call) -> None:
        """A stream with a slot, or a refusal if the name says so."""
        if call.name.endswith("refused"):
            raise RequestError("topic_not_found", "there is none")
        slot = call.take_slot(call.principal)
        slot.on_key_gone, slot.on_shutdown = lambda: self.told.append("key"), lambda: self.told.append("stop")
        self.slots.append(slot)
        self.stream(call)

    def fail(self, call: Call) -> None:
        raise ValueError("a bug")

    def routes(self) -> RouteTable:
        return RouteTable(
            [
                Route("GET", "/v0/topics/:topic", Scope.READ, self.echo),
                Route("DELETE", "/v0/topics/:topic", Scope.DELETE, self.echo),
                Route("POST", "/v0/topics/:topic", Scope.WRITE, self.echo, Body.JSON, large=True),
                Route("PUT", "/v0/topics/:topic", Scope.ADMIN, self.echo, Body.JSON_OR_EMPTY, large=True),
                Route("POST", "/v0/topics/:topic/delete", Scope.DELETE, self.echo, Body.JSON, large=True),
                Route("GET", "/v0/topics", Scope.READ, self.echo),
                Route("POST", "/v0/topics/:topic/claim", Scope.READ, self.park, Body.JSON_OR_EMPTY),
                Route("POST", "/v0/topics/:topic/diff", Scope.READ, self.wait, Body.JSON_OR_EMPTY),
                Route("GET", "/v0/topics/:topic/work", Scope.READ, self.work, stream=True, access=Access.STREAM),
                Route("GET", "/park", Scope.READ, self.park),
                Route("GET", "/wait", Scope.READ, self.wait),
                Route("GET", "/stream", Scope.READ, self.stream, stream=True),
                Route("GET", "/fail", Scope.READ, self.fail),
                Route("GET", "/healthz", Scope.NONE, self.echo, always=True),
            ]
        )


class Given(NamedTuple):
    """A connection that another core is to get."""

    core: int
    unread: Callable[[], bytes]
    stayed: Callable[[int], None]


class FakeShares:
    """Shares of limits of which no other core has any left."""

    def ask(self, _error: ShareSpentError, _call: Waiting) -> bool:
        return False

    def ask_for_room(self, limit: str, more: int) -> None: ...


class FakeCores:
    """Core 1 has the topics whose names begin with "far". The test decides whether it gets their connections.

    relay: has that core answer a call; None: requests are refused.
    """

    def __init__(self, relay: Callable[[Call], None] | None = None) -> None:
        self.given: list[Given] = []
        self.gives = True
        self._relay = relay
        self.shares = FakeShares()

    def elsewhere(self, topic: str) -> int | None:
        return 1 if topic.startswith("far") else None

    def give(self, transport: Any, core: int, unread: Callable[[], bytes], stayed: Callable[[int], None]) -> bool:
        if self.gives:
            self.given.append(Given(core, unread, stayed))
        return self.gives

    def owns(self, name: str) -> bool:
        return self.elsewhere(name) is None

    def relayed(self, plan: Plan) -> Plan:
        if plan.core is None or plan.route is None or self._relay is None:
            return plan
        return plan.as_relayed(relayed_route(plan.route, self._relay))


def make_service(
    routes: RouteTable,
    bound_host: str = "127.0.0.1",
    keyring: Keyring = NO_KEYS,
    loop: FakeLoop | None = None,
    cores: FakeCores | None = None,
    **settings: Any,
) -> Service:
    base = tiny_config("/nowhere")
    values = {name: getattr(base, name) for name in Config.__slots__}
    values |= {"host": bound_host, "pass_requests_us": 0} | settings
    loop = loop or FakeLoop()
    loop.random_bytes = lambda count: bytes(range(count))
    return Service(Config(**values), routes, FakeProbes(), loop, keyring, cores=cores)


class Peer:
    """One client over one connection: `send` bytes, get the responses."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.wire = Wire()
        self.http = HttpConnection(service, self.wire)

    def send(self, data: bytes, *, pieces: Sequence[int] = ()) -> list[Response]:
        """pieces: where to split `data` into separate receives."""
        start = 0
        for end in [*sorted(set(pieces)), len(data)]:
            if data[start:end] and not self.wire.closed:
                self.http.receive(memoryview(data[start:end]))
            start = end
        return self.wire.take()

    def ask(self, method: str, target: str, body: bytes = b"", *, json_type: bool = True, **headers: str) -> Response:
        """One request on a kept connection; keyword underscores are dashes."""
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
            if json_type and "content_type" not in headers:
                lines.append("Content-Type: application/json")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.http.receive("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        (response,) = self.wire.take(heads_only=(0,) if method == "HEAD" else ())
        return response
