"""One HTTP/2 connection without its socket: frames in, requests to handlers, answers out.

Source: wire contract, R-NET-1, R-NET-2, R-NET-5, R-NET-11; RFC 9113. The h2 package does framing,
HPACK and the states of streams. This module takes each stream through the steps of every request,
sends answers as the windows allow, and bounds the memory and work that a peer can cause. No input
of a peer is an exception: it is an event, or it ends the connection with a GOAWAY.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes

from topics.common.memory import GrowingBytes
from topics.errors import RequestError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.access.rate_limit import Allowance
from topics.http.http2.h2_frames import GOAWAY, FrameCutter
from topics.http.http2.h2_open import open_h2
from topics.http.http2.h2_sender import Sender
from topics.http.http2.h2_states import ENDS, READINGS, EndState, Reading
from topics.http.http2.h2_stream import Http2Stream
from topics.http.plan.body import Unpacking
from topics.http.plan.call import Call, run
from topics.http.plan.gatekeeping import ignores_body, judged_again, refusal_before_body, usable_body
from topics.http.plan.plan import too_large
from topics.http.plan.service import Service
from topics.http.wire.error_answers import BadRequestError, envelope, extra_headers, status_of
from topics.http.wire.h2_request import answer_fields, list_limit
from topics.http.wire.response import JSON, NOT_MODIFIED
from topics.http.wire.transport import Arriving, Transport, Waits

_log = logging.getLogger(__name__)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_OPEN, _LEAVING, _ENDED, _AT_END, _GONE, _CLOSED = EndState
_READS, _PAUSED, _QUEUED = Reading
_NO_MORE_REQUESTS = (_ENDED, _GONE)

_HEADER_TABLE_BYTES = 4096
"""Table of the compressor of our answers, even if the peer offers a larger one."""
_STREAM_ID_MAX = (1 << 31) - 1
_GOAWAY_FRAME = struct.Struct(">HBBBIII")
_PING = b"topics\0\0"
_PADDING_BYTES_MAX = 4096
"""Most bytes of padding, lengths and frame heads around a head that is within its limit."""
_STREAMS_A_CONTROL = 32
"""Streams that count as a control frame in a SETTINGS frame, which may change all their windows."""
DROPPED_FRAME_BYTES = 1024
"""Bytes that a dropped DATA frame counts as at least, because a small one costs as much."""
_UPDATES_A_FRAME = 2
"""WINDOW_UPDATEs that a DATA frame entitles the peer to: the stream's and the connection's."""


class Http2Connection:
    """The state of one connection, made at the preface, which is its first input."""

    __slots__ = (
        "_controls",
        "_cutter",
        "_drained",
        "_dropped_bytes",
        "_end_state",
        "_h2",
        "_held_bodies",
        "_pinged",
        "_reading",
        "_resets",
        "_running",
        "_sender",
        "_since",
        "_streams",
        "_unread",
        "_waiting",
        "admitted",
        "service",
        "transport",
    )

    def __init__(self, service: Service, transport: Transport) -> None:
        self.service = service
        self.transport = transport
        config = service.config
        now_ns = service.now_ns()
        self._end_state = _OPEN
        self._reading = _READS
        self.admitted = False
        self._h2 = open_h2(config)
        limit = list_limit(config.max_head_bytes, config.max_head_fields)
        self._cutter = FrameCutter(len(PREFACE), self._h2.max_inbound_frame_size, limit + _PADDING_BYTES_MAX)
        self._sender = Sender(self._h2, transport, self._on_sent)
        self._streams: dict[int, Http2Stream] = {}
        """Requests in progress: received, handled or answered."""
        self._waiting: deque[tuple[Http2Stream, bytes | bytearray | memoryview]] = deque()
        """Whole requests that wait for the peer to read answers, or for their turn."""
        self._held_bodies = 0
        """Bytes of bodies in `_streams` and `_waiting`."""
        self._dropped_bytes = 0
        """Sum of `dropped_bytes` of `_streams`: bytes of bodies received after answers."""
        self._resets = Allowance(config.h2_reset_burst, config.h2_resets_per_s, now_ns)
        self._controls = Allowance(config.h2_control_burst, config.h2_controls_per_s, now_ns)
        self._since = service.tick
        """Tick at which the peer last sent something."""
        self._pinged: int | None = None
        """Tick of the PING that the peer has not acknowledged; None without one."""
        self._drained: list[Http2Stream] = []
        """Streams with room again, which are notified once no other work is in progress."""
        self._running = False
        """Whether events or waiting requests are being handled further up on the stack."""
        self._unread = bytearray()
        """Input that waits for its turn: whole frames, and a part of one."""

    @property
    def held_bytes(self) -> int:
        calls = (stream.call for stream in self._streams.values())
        long = sum(call.held_bytes for call in calls if call is not None)
        return self._cutter.held_bytes + self._held_bodies + self._sender.held_bytes + len(self._unread) + long

    def large_writes(self) -> list[bytes]:
        return [part for stream in self._streams.values() for part in stream.large_writes()]

    @property
    def arriving(self) -> Sequence[Arriving]:
        streams = self._streams.values()
        return [Arriving(stream.id, len(stream.body)) for stream in streams if stream.body is not None]

    @property
    def look_cost(self) -> int:
        return 1 + len(self._streams)

    def cut_off(self, body: int) -> None:
        stream = self._streams.get(body)
        if stream is not None:
            self._reset(stream, ErrorCodes.CANCEL)
            self._settle()

    @property
    def busy(self) -> bool:
        """Whether the end of an answer waits for the peer's windows, or a request for its turn."""
        return (
            self._reading is _QUEUED or bool(self._waiting) or any(stream.ending for stream in self._streams.values())
        )

    @property
    def patient(self) -> bool:
        """Whether all answers in progress are streams, which wait for their readers (R-SSE-6)."""
        answers = [stream for stream in self._streams.values() if not stream.finished]
        return bool(answers) and all(stream.streaming for stream in answers)

    # --- input -------------------------------------------------------------------------------------------------------
    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes from the peer. A view is only read during the call."""
        if self._end_state is _CLOSED:
            return
        self._since = self.service.tick
        if self._unread or self.service.turns.over:
            self._unread += data
            self._stand_in_line()
            self._settle()
        else:
            self._take(data)
            self._report_drained()

    def _take(self, data: bytes | memoryview) -> None:
        """Handle the frames in `data`, and hold those beyond this turn for the next one."""
        turns = self.service.turns
        events: list[Event] = []
        controls = at = 0
        try:
            for piece, kind in self._cutter.cut(data):
                at += len(piece)
                if kind == GOAWAY:
                    # The package drops its output once the peer has sent GOAWAY.
                    self._sender.flush()
                told = self._h2.receive_data(piece)
                if kind == GOAWAY:
                    self._stay_open(told)
                if not told and kind >= 0:
                    controls += 1  # without an event; perhaps of a stream that has ended
                events += told
                turns.charge()
                if turns.over and at < len(data):
                    self._unread = bytearray(data[at:])
                    self._stand_in_line()
                    break
        except ProtocolError as error:
            # In a closed state the package has written its GOAWAY already.
            if self._h2.state_machine.state is not ConnectionState.CLOSED:
                self._h2.close_connection(error.error_code)
            self._close()
            return
        resets = {event.stream_id for event in events if isinstance(event, StreamReset)}
        self._running = True
        for event in events:
            on_event = _ON_EVENT.get(type(event))
            if isinstance(event, RequestReceived):
                if event.stream_id not in resets:
                    self._on_request(event)
            elif on_event is not None:
                on_event(self, event)
            if isinstance(event, RemoteSettingsChanged):
                controls += max(1, len(event.changed_settings or ())) + len(self._streams) // _STREAMS_A_CONTROL
            elif not isinstance(event, _PAID) and not (isinstance(event, DataReceived) and event.data):
                controls += 1
        self._running = False
        self._spend(controls, len(resets))
        self._settle()

    def _stand_in_line(self) -> None:
        """Wait for a turn: the requests of this pass have used up its time."""
        if self._reading is _QUEUED or self._end_state is _CLOSED:
            return
        if self._reading is _READS:
            self.transport.pause_reading()
        self._set_reading(_QUEUED)
        self.service.turns.wait(self._on_turn)

    def _on_turn(self) -> None:
        self._set_reading(_PAUSED)  # until `_settle` decides
        if self._end_state is _CLOSED:
            return
        turns = self.service.turns
        turns.begin()
        try:
            self._settle()
            if self._unread and not turns.over:
                data, self._unread = bytes(self._unread), bytearray()
                self._take(data)
            if self._unread:
                self._stand_in_line()
            elif self._end_state is _AT_END:
                self.end_of_stream()
            self._report_drained()
        except Exception:
            _log.exception("a connection failed by a bug of ours; it is closed")
            self._close()
        if self._reading is not _QUEUED:  # otherwise all work is charged already
            turns.charge()

    def end_of_stream(self) -> None:
        """Note that the peer sends no more.

        Requests that are here get their answers, but a mere wait ends (R-NET-11).
        """
        if self._end_state is _CLOSED:
            return
        if self._unread:
            self._enter(_AT_END)
            return
        self._enter(_GONE)
        self._in_turns(self._leave())

    def lost(self) -> None:
        """Drop all work, because the connection has ended."""
        if self._end_state is not _CLOSED:
            self._enter(_CLOSED)
        self._unread = bytearray()
        self._cutter.held_bytes = 0
        self._waiting.clear()
        self._sender.close()
        self._h2.let_go()
        self._in_turns(self._leave())

    def drained(self) -> None:
        """Continue to send, because the peer has read enough of the output."""
        self._settle()
        self._report_drained()

    def overdue(self, waits: Waits) -> bool:
        """Return whether a silent peer has left its PING unanswered, and must go (R-NET-5).

        Requests that stall are reset.
        """
        tick = self.service.tick
        if self._end_state is _CLOSED or self._reading is _QUEUED:
            return False
        stalled: list[tuple[Http2Stream, ErrorCodes]] = []
        for stream in self._streams.values():
            waited = tick - stream.since
            stalls = stream.out_bytes and not stream.streaming
            if stream.finished:
                if waited > waits.drain:
                    stalled.append((stream, ErrorCodes.NO_ERROR))
            elif waited > (waits.head if stream.body is not None else waits.stall if stalls else waited):
                stalled.append((stream, ErrorCodes.CANCEL))
        if stalled:
            self._in_turns(self._reset_each(stalled))
        if self._reading is _PAUSED:
            self._since = tick  # its input is not read, so it does not count as silent
            self._pinged = None if self._pinged is None else tick
        elif self._pinged is not None:
            if tick - self._pinged > waits.ping_timeout:
                return True
        elif tick - self._since >= waits.ping_after:
            self._pinged = tick
            self._h2.ping(_PING)
        self._settle()
        self._report_drained()
        return False

    def going_away(self) -> None:
        """Send a GOAWAY. The frame is written here, because the package would stop all sending.

        The frame names the highest request only if no other can follow. Two frames leave it open:
        the first one, because the peer may have sent more by then (RFC 9113 6.8), and each one
        while requests wait for their turn.
        """
        if self._end_state is _CLOSED:
            return
        last = self._h2.highest_inbound_stream_id
        if self._end_state is _OPEN:
            self._enter(_LEAVING)
            last = _STREAM_ID_MAX
        elif self._end_state is _AT_END:
            last = _STREAM_ID_MAX
        self._sender.flush()
        self.transport.write(_GOAWAY_FRAME.pack(0, 8, 7, 0, 0, last, ErrorCodes.NO_ERROR))

    # --- events ------------------------------------------------------------------------------------------------------
    def _on_request(self, event: RequestReceived) -> None:
        number, fields = event.stream_id, event.headers
        assert number is not None, "a request has a stream"
        assert fields is not None, "a request has a header list"
        whole = event.stream_ended is not None
        service = self.service
        stream = self._streams[number] = Http2Stream(self, number, None, input_ended=whole)
        try:
            stream.plan = plan = service.planner.plan_list(tuple(fields), whole)
        except BadRequestError as error:
            self._refuse(stream, error.as_request_error())
            return
        refusal = refusal_before_body(service, plan)
        if refusal is None and plan.principal is not UNAUTHENTICATED:
            self.admitted = True
        if refusal is not None:
            self._refuse(stream, refusal)
        elif whole or ignores_body(plan):
            self._serve(stream, b"")
        else:
            stream.body = GrowingBytes()
            stream.count()
            if plan.expects_continue:
                # The connection may have ended by an event that is still to be handled.
                with contextlib.suppress(H2Error):
                    self._h2.send_headers(number, [(b":status", b"100")])

    def _on_data(self, event: DataReceived) -> None:
        number, data = event.stream_id, event.data or b""
        assert number is not None, "data has a stream"
        self._h2.acknowledge_received_data(event.flow_controlled_length or 0, number)
        stream = self._streams.get(number)
        if stream is None:
            return
        body = stream.body
        if body is None:
            if stream.ending or stream.finished:
                self._drop(stream, len(data))
            return
        stream.since = self.service.tick
        body += data
        self._held_bodies += len(data)
        assert stream.plan is not None, "a body of a request"
        limit = stream.plan.max_body_bytes
        if limit and len(body) > limit:
            self._take_body(stream)
            self._refuse(stream, too_large(limit))

    def _on_end(self, event: StreamEnded) -> None:
        stream = self._streams.get(event.stream_id or 0)
        if stream is None:
            return
        stream.input_ended = True
        if stream.body is not None:
            body = self._take_body(stream)
            shortage = stream.shortage(len(body))
            if shortage is None:
                self._serve(stream, body)
            else:
                self._refuse(stream, shortage)
        elif stream.finished:
            self._forget(stream)

    def _on_reset(self, event: StreamReset) -> None:
        """Drop a request that its client has reset (R-NET-11)."""
        stream = self._streams.get(event.stream_id or 0)
        if stream is not None:
            self._forget(stream)

    def _on_window(self, event: WindowUpdated) -> None:
        stream = self._streams.get(event.stream_id or 0)
        if stream is not None:
            self._sender.unblock(stream)

    def _on_settings(self, event: RemoteSettingsChanged) -> None:
        encoder = self._h2.encoder
        encoder.header_table_size = min(encoder.header_table_size, _HEADER_TABLE_BYTES)
        # Sent with the next head: the smallest and the last (RFC 7541 4.2).
        changes = encoder.table_size_changes
        if len(changes) > 2:
            encoder.table_size_changes = [min(changes), changes[-1]]
        if event.changed_settings and SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            for stream in self._streams.values():
                self._sender.unblock(stream)

    def _on_pong(self, _event: PingAckReceived) -> None:
        self._pinged = None

    def _on_goaway(self, event: ConnectionTerminated) -> None:
        """Note that the peer makes no more requests. Those that it has made are answered."""
        if self._end_state is _OPEN or self._end_state is _LEAVING:
            self._enter(_ENDED)
        if event.error_code != ErrorCodes.NO_ERROR:
            self._in_turns(self._leave())

    def _stay_open(self, events: list[Event]) -> None:
        """Reopen the package's state after a GOAWAY without an error.

        For the package every GOAWAY ends all, also answers and the frames right after it. A GOAWAY
        without an error does not (RFC 9113 6.8).
        """
        for event in events:
            if isinstance(event, ConnectionTerminated) and event.error_code == ErrorCodes.NO_ERROR:
                self._h2.state_machine.state = ConnectionState.SERVER_OPEN

    def _spend(self, controls: int, resets: int) -> None:
        """End the connection of a peer that causes too much work without requests."""
        now_ns = self.service.now_ns()
        if self._sender.frames:
            self._controls.earn(self._sender.frames * _UPDATES_A_FRAME)
            self._sender.frames = 0
        if (
            not (self._controls.spend(controls, now_ns) and self._resets.spend(resets, now_ns))
            and self._end_state is not _CLOSED
        ):
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._close()

    # --- requests ----------------------------------------------------------------------------------------------------
    def _serve(self, stream: Http2Stream, body: bytes | bytearray | memoryview) -> None:
        """Run a whole request, or let it wait for the peer to read answers, or for its turn."""
        turns = self.service.turns
        if self._waiting or self._clogged or turns.over:
            stream.count()
            self._waiting.append((stream, body))
            self._held_bodies += len(body)
        else:
            self._run(stream, body)
            turns.charge()

    @property
    def _clogged(self) -> bool:
        held = self._sender.held_bytes - self._sender.held_streaming_bytes
        return self.transport.over_high_water or held > self.service.config.send_high_water_bytes

    def _run(self, stream: Http2Stream, body: bytes | bytearray | memoryview) -> None:
        service, plan = self.service, stream.plan
        started_ns = service.now_ns()
        assert plan is not None, "a request was admitted without a plan"
        if not plan.principal.is_valid:
            plan, refusal = judged_again(service, plan)
            stream.plan = plan
            if refusal is not None:
                self._refuse(stream, refusal)
                return
        if self._end_state is _GONE and plan.is_of_stream:
            # The client does not listen, and jobs may be leased as soon as the stream is open.
            self._forget(stream)
            return
        usable: bytes | bytearray | memoryview | Unpacking = body
        if not ignores_body(plan) and not plan.usual_body:
            try:
                usable = usable_body(plan, body, service.step_bytes)
            except RequestError as error:
                self._refuse(stream, error)
                return
        stream.received_bytes = len(body)
        call = stream.call = Call(service, stream, plan, usable, started_ns)
        run(call)
        if self._end_state is _GONE and stream.waits:
            self._forget(stream)

    def wait_began(self, stream: Http2Stream) -> None:
        """End the wait of a stream if the client has left.

        The wait begins in a later pass than that in which its request was run.
        """
        if self._end_state is _GONE:
            self._forget(stream)
            self._settle()

    def drop(self, stream: Http2Stream) -> None:
        """Reset a stream whose answer is unknown. Its request may have been executed."""
        self._reset(stream, ErrorCodes.INTERNAL_ERROR)
        self._settle()

    def _take_body(self, stream: Http2Stream) -> bytes | bytearray | memoryview:
        body: bytes | bytearray | memoryview = b"" if stream.body is None else stream.body.take()
        if len(body) <= self.service.step_bytes:
            body = bytes(body)
        self._held_bodies -= len(body)
        stream.body = None
        stream.uncount()
        return body

    def _refuse(self, stream: Http2Stream, error: RequestError) -> None:
        """Answer with an error, without a call of the handler."""
        self.service.refused_total += 1
        status, body = status_of(error), envelope(error)
        self.service.answered.of(None if stream.plan is None else stream.plan.route).count(status)
        if self.service.access_log is not None:
            self.service.access_log.answered(stream, stream.plan, status, len(body), 0, refused=True)
        headers = extra_headers(error) + (b"" if stream.plan is None else stream.plan.answer_headers)
        self.answer(stream, status, (body,), JSON, headers)

    # --- answers -----------------------------------------------------------------------------------------------------
    def answer(
        self, stream: Http2Stream, status: int, body: Sequence[bytes], content_type: bytes, headers: bytes
    ) -> None:
        """Send the whole answer of a stream's request. body: its parts."""
        if self._end_state is _CLOSED:
            return  # the turn of the stream's end has not come
        size = sum(map(len, body))
        fields = answer_fields(status, self.service.writer.date, content_type, headers, size)
        if status == NOT_MODIFIED or (stream.plan is not None and stream.plan.is_head):
            size = 0
        try:
            self._h2.send_headers(stream.id, fields, end_stream=not size)
        except H2Error:
            self._forget(stream)  # reset, by an event that is still to be handled
            return
        if size:
            stream.ending = True
            stream.since = self.service.tick
            for part in body:
                self._sender.queue(stream, part)
        else:
            stream.finished = True
            self._await_end(stream)
        self._settle()

    def open_stream(self, stream: Http2Stream, status: int, content_type: bytes, headers: bytes) -> None:
        """Send the head of a streamed answer."""
        fields = answer_fields(status, self.service.writer.date, content_type, headers, None)
        # It may be reset, by an event that is still to be handled, which ends the stream.
        with contextlib.suppress(H2Error):
            self._h2.send_headers(stream.id, fields)
        self._settle()

    def write(self, stream: Http2Stream, data: bytes) -> None:
        """Send more of a streamed answer."""
        if self._end_state is _CLOSED:
            return
        self._sender.queue(stream, data)
        self._settle()
        if stream.out_bytes > self.service.config.stream_high_water_bytes:
            stream.over_high_water = True

    def end(self, stream: Http2Stream) -> None:
        """Complete a streamed answer."""
        if self._end_state is _CLOSED:
            return
        stream.ending = True
        self._sender.queue(stream, b"")
        self._settle()

    def _on_sent(self, stream: Http2Stream) -> None:
        stream.since = self.service.tick
        if stream.finished:
            self._await_end(stream)
        elif stream.over_high_water and stream.out_bytes <= self.service.config.stream_low_water_bytes:
            stream.over_high_water = False
            self._drained.append(stream)

    def _report_drained(self) -> None:
        """Notify the streams with room again.

        Only called at the end of the loop's calls, so that no writer is notified inside its own
        write.
        """
        while self._drained:
            stream = self._drained.pop()
            if stream.on_drained is not None and stream.on_disconnect is not None:
                stream.on_drained()

    def _await_end(self, stream: Http2Stream) -> None:
        """Forget an answered stream, unless its body is still arriving.

        Many clients read an answer only after they have sent everything, and lose it if the stream
        is reset before that (R-NET-7). So the rest of the body is dropped for a while, in `_drop`
        and `overdue`.
        """
        stream.plan = None
        stream.since = self.service.tick
        if stream.input_ended:
            self._forget(stream)

    def _drop(self, stream: Http2Stream, size: int) -> None:
        """Count a piece of a body that arrives after the answer.

        Reset the stream after too many bytes.
        """
        size = max(size, DROPPED_FRAME_BYTES)
        stream.dropped_bytes += size
        self._dropped_bytes += size
        if self._dropped_bytes > self.service.config.h2_drain_bytes:
            self._reset(stream, ErrorCodes.NO_ERROR)

    # --- ends --------------------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """Send what the windows allow, run waiting requests, and pause or resume reading."""
        if self._running or self._end_state is _CLOSED:
            return
        self._running = True
        self._sender.pump()
        turns = self.service.turns
        while self._waiting and not self._clogged:
            if turns.over:
                self._stand_in_line()
                break
            stream, body = self._waiting.popleft()
            self._held_bodies -= len(body)
            if self._streams.get(stream.id) is stream:
                stream.uncount()
                self._run(stream, body)
                self._sender.pump()
                turns.charge()
        self._running = False
        reading = self._reading
        if not self._streams and self._end_state in _NO_MORE_REQUESTS:
            self._h2.close_connection()
            self._close()
        elif reading is _READS:
            if self.transport.over_high_water:
                self._set_reading(_PAUSED)
                self.transport.pause_reading()
        elif reading is _PAUSED and not self.transport.over_high_water:
            self._set_reading(_READS)
            self.transport.resume_reading()

    def _in_turns(self, ends: Iterator[None]) -> None:
        """End streams while this pass has time for it, the others in later turns; then settle.

        A connection may have thousands of them, each with a subscription, jobs or a wait.
        """
        turns = self.service.turns
        for _ in ends:
            turns.charge()
            if turns.over:
                turns.wait(partial(self._on_turn_of_ends, ends))
                return
        self._settle()

    def _on_turn_of_ends(self, ends: Iterator[None]) -> None:
        self.service.turns.begin()
        try:
            self._in_turns(ends)
        except Exception:
            _log.exception("a connection failed by a bug of ours; it is closed")
            if self._end_state is not _CLOSED:
                self._close()

    def _leave(self) -> Iterator[None]:
        """Forget the streams that the client has left, one a step (R-NET-11).

        One that sends no more gets its answers, except those that are a mere wait.
        """
        listens = self._end_state is _GONE
        for stream in list(self._streams.values()):
            if self._streams.get(stream.id) is not stream:
                continue  # it has ended before its turn
            if not listens or stream.waits or stream.finished or stream.body is not None:
                self._forget(stream)
            stream.input_ended = True  # the rest of an unwanted body will not arrive
            yield

    def _reset_each(self, streams: list[tuple[Http2Stream, ErrorCodes]]) -> Iterator[None]:
        for stream, code in streams:
            if self._streams.get(stream.id) is stream:
                self._reset(stream, code)
                yield

    def _reset(self, stream: Http2Stream, code: ErrorCodes) -> None:
        with contextlib.suppress(H2Error):  # it may have ended already
            self._h2.reset_stream(stream.id, code)
        self._forget(stream)

    def _forget(self, stream: Http2Stream) -> None:
        """Remove a stream that has ended, and notify those that wait for it."""
        self._streams.pop(stream.id, None)
        self._dropped_bytes -= stream.dropped_bytes
        stream.dropped_bytes = 0
        self._take_body(stream)
        self._sender.discard(stream)
        call, stream.call = stream.call, None
        if call is not None:
            call.abandon()
        on_disconnect, stream.on_disconnect = stream.on_disconnect, None
        if on_disconnect is not None:
            on_disconnect()

    def _enter(self, state: EndState) -> None:
        self._end_state = ENDS.check(self._end_state, state)

    def _set_reading(self, reading: Reading) -> None:
        self._reading = READINGS.check(self._reading, reading)

    def _close(self) -> None:
        self._sender.flush()
        self.lost()
        self.transport.close()


_PAID = RequestReceived | StreamEnded | StreamReset
"""Events that are not control frames: they are part of a request, or counted separately."""

_ON_EVENT: dict[type, Callable[[Http2Connection, Any], None]] = {
    DataReceived: Http2Connection._on_data,
    StreamEnded: Http2Connection._on_end,
    StreamReset: Http2Connection._on_reset,
    WindowUpdated: Http2Connection._on_window,
    RemoteSettingsChanged: Http2Connection._on_settings,
    PingAckReceived: Http2Connection._on_pong,
    ConnectionTerminated: Http2Connection._on_goaway,
}
