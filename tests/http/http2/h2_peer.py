"""The h2 package's client side, talking to an `Http2Connection` (or whatever the first bytes chose) in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import h2.events as ev
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from tests.http.byte_stream import Response, Wire
from topics.http.plan.service import Service
from topics.http.protocol_choice import FirstBytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


@dataclass
class Seen:
    """The part of one stream that a client has seen."""

    status: int = 0
    informational: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def response(self) -> Response:
        assert self.ended, f"no whole answer: {self}"
        return Response(self.status, self.headers, self.body)


class H2Client:
    """A client without its transport: bytes out of `take`, bytes in by `feed`.

    automatic: answers DATA with WINDOW_UPDATE at once.
    """

    def __init__(self, *, automatic: bool = True, settings: dict[int, int] | None = None) -> None:
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.local_settings = Settings(
            client=True, initial_values={SettingCodes(code): value for code, value in (settings or {}).items()}
        )
        self.automatic = automatic
        self.seen: dict[int, Seen] = {}
        self.goaways: list[tuple[int, int]] = []
        """(error code, last stream) of each."""
        self.pings: list[bytes] = []
        self.server_settings: dict[int, int] = {}
        self.over = False
        self._rest = b""
        """The part of a frame that has come."""
        self.h2.initiate_connection()

    def take(self) -> bytes:
        return self.h2.data_to_send()

    def feed(self, data: bytes) -> None:
        """Take bytes of the server, frame by frame: `_on` has h2 accept what comes after a GOAWAY."""
        data = self._rest + data
        while not self.over and len(data) >= _HEADER and len(data) >= (end := _HEADER + int.from_bytes(data[:3])):
            frame, data = data[:end], data[end:]
            for event in self.h2.receive_data(frame):
                self._on(event)
        self._rest = data

    def begin(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None, **more: Any
    ) -> int:
        """Queues a request; returns its stream. more: `end` False leaves it open."""
        stream = self.h2.get_next_available_stream_id()
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"http"),
            (b":authority", b"localhost"),
            (b":path", target.encode("latin-1")),
        ]
        fields += [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        if "host" in {name.lower() for name in headers or {}}:
            del fields[2]
        end = more.get("end", True)
        self.seen[stream] = Seen()
        self.h2.send_headers(stream, fields, end_stream=end and not body)
        if body:
            self.send_body(stream, body, end=end)
        return stream

    def send_body(self, stream: int, body: bytes, *, end: bool = True) -> bytes:
        """Send as much as the windows allow; return the rest."""
        while body:
            most = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if most <= 0:
                break
            self.h2.send_data(stream, body[:most], end_stream=end and len(body) <= most)
            body = body[most:]
        return body

    def _on(self, event: ev.Event) -> None:
        stream = self.seen.get(getattr(event, "stream_id", None) or 0, Seen())
        if isinstance(event, ev.ResponseReceived):
            fields = {name.decode(): value.decode("latin-1") for name, value in event.headers or ()}
            stream.status = int(fields.pop(":status"))
            stream.headers = fields
        elif isinstance(event, ev.InformationalResponseReceived):
            stream.informational.append(int(dict(event.headers or ())[b":status"]))
        elif isinstance(event, ev.DataReceived):
            stream.body += event.data or b""
            if self.automatic:
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        elif isinstance(event, ev.StreamEnded):
            stream.ended = True
        elif isinstance(event, ev.StreamReset):
            stream.reset = int(event.error_code or 0)
        elif isinstance(event, ev.ConnectionTerminated):
            self.goaways.append((int(event.error_code or 0), event.last_stream_id or 0))
            self.h2.state_machine.state = _OPEN  # a polite server continues with what was asked
        elif isinstance(event, ev.PingReceived):
            self.pings.append(event.ping_data or b"")
        elif isinstance(event, ev.RemoteSettingsChanged):
            self.server_settings |= {int(code): setting.new_value for code, setting in event.changed_settings.items()}


_HEADER = 9
"""Bytes of the head of a frame, of which the first three are the length of what follows."""
_OPEN = H2Connection().state_machine.state.CLIENT_OPEN


class H2Peer:
    """One client over one connection in memory."""

    def __init__(self, service: Service, **options: Any) -> None:
        self.service = service
        self.wire = Wire()
        self.wire.state = FirstBytes(service, self.wire)
        self.client = H2Client(**options)

    @property
    def server(self) -> Any:
        return self.wire.state

    def flush(self) -> None:
        """Exchange what each side has for the other, until both are silent."""
        while True:
            data = self.client.take()
            if data and not self.wire.closed:
                self.wire.state.receive(memoryview(data))
            answer, self.wire.sent = self.wire.sent, b""
            if answer:
                self.client.feed(answer)
            elif not data or self.wire.closed:
                return

    def raw(self, data: bytes) -> None:
        """Bytes as they are, after the handshake."""
        self.flush()
        if not self.wire.closed:
            self.wire.state.receive(data)
        self.flush()

    def begin(self, method: str, target: str, body: bytes | None = None, **headers: str) -> int:
        """keyword underscores are dashes."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            fields.setdefault("content-type", "application/json")
        stream = self.client.begin(method, target, body, fields)
        self.flush()
        return stream

    def seen(self, stream: int) -> Seen:
        self.flush()
        return self.client.seen[stream]

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Response:
        return self.seen(self.begin(method, target, body, **headers)).response
