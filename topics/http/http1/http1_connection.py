"""One HTTP/1 connection without its socket: bytes in, requests to handlers, answers out in order.

Its states and their order are in http1_states.py. A connection handles its next request after the
previous one was answered; pipelined bytes wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from topics.common.memory import GrowingBytes
from topics.errors import RequestError
from topics.http.access.principal import UNAUTHENTICATED, Principal
from topics.http.http1.chunked import ChunkedBody
from topics.http.http1.http1_states import INTAKES, PHASES, Intake, Phase
from topics.http.http1.http1_stream import Http1Stream
from topics.http.plan.body import Unpacking
from topics.http.plan.call import Call, run
from topics.http.plan.gatekeeping import (
    UNREAD_BODY_BYTES_MAX,
    core_to_ask,
    ignores_body,
    judged_again,
    refusal_before_body,
    usable_body,
)
from topics.http.plan.plan import Plan, too_large
from topics.http.plan.service import Service
from topics.http.wire.error_answers import BadRequestError, envelope, extra_headers, status_of
from topics.http.wire.head import HEAD_END, check_partial_head
from topics.http.wire.response import CONTINUE, JSON, NOT_MODIFIED
from topics.http.wire.transport import Arriving, Transport, Waits
from topics.http.wire.upgrade import OpenUpgraded, Upgraded

_log = logging.getLogger(__name__)


HEAD, BODY, ANSWER, STREAM, CLOSED = Phase.HEAD, Phase.BODY, Phase.ANSWER, Phase.STREAM, Phase.CLOSED
_READS, _PAUSED, _ENDED = Intake.READS, Intake.PAUSED, Intake.ENDED
_QUEUED = (Phase.HEAD_QUEUED, Phase.BODY_QUEUED)
_TAKES_INPUT = (HEAD, BODY, *_QUEUED)
_HOLDS_INPUT = (HEAD, ANSWER, STREAM, Phase.HEAD_QUEUED, Phase.LEAVING)
_BUSY = (*_QUEUED, Phase.LEAVING)
_BEFORE_ANSWER = PHASES.before(ANSWER)

_CHUNKED_STEP_BYTES = 4096
"""Bytes of a chunked body between two looks at the time: they may be a thousand chunks."""
PIPELINED_BYTES = 65_536
"""Most input that is held while a request is being answered; beyond, reading pauses."""


class HttpConnection:
    """The state of one connection. An idle one holds no buffer and no parser."""

    __slots__ = (
        "_bodies",
        "_body",
        "_call",
        "_counted",
        "_intake",
        "_looked",
        "_pending",
        "_plan",
        "_refusal",
        "_running",
        "_stream",
        "_successor",
        "admitted",
        "phase",
        "received_bytes",
        "service",
        "since",
        "transport",
    )

    upgrades = True

    def __init__(self, service: Service, transport: Transport, since: int | None = None) -> None:
        """Start in HEAD. since: the tick of the accept, if that was earlier."""
        self.service = service
        self.transport = transport
        self.phase = HEAD
        self._intake = _READS
        self.admitted = False
        self.since = service.tick if since is None else since
        """Tick at which the current wait began: for a head, or for more of a body."""
        self._pending = bytearray()
        """Unparsed input: a partial head, or bytes that arrived while a request was answered."""
        self.received_bytes = 0
        """Bytes of the body of the request in progress, as they arrived."""
        self._looked = 0
        """Leading bytes of `_pending` that were checked: the start of a head, without its end."""
        self._plan: Plan | None = None
        self._body: GrowingBytes | ChunkedBody | None = None
        self._bodies = 0
        """Number of bodies that did not arrive together with their heads."""
        self._refusal: RequestError | None = None
        """The error to answer once the arriving body is skipped."""
        self._call: Call | None = None
        self._stream: Http1Stream | None = None
        self._counted: Principal | None = None
        """The principal that counts the request while its body arrives; a call counts itself."""
        self._successor: Upgraded | None = None
        self._running = False
        """Whether requests are being handled further up on the stack, so that answers return."""

    @property
    def peer(self) -> tuple[str, int]:
        return self.transport.peer

    @property
    def idle(self) -> bool:
        """Whether the connection is between requests, with no byte of the next one."""
        return self.phase is HEAD and not self._pending

    @property
    def begun(self) -> bytearray | None:
        """The bytes of a request whose head or body has not arrived; None while one is served."""
        return self._pending if self.phase is HEAD else None

    def hold_head(self, head: bytes | bytearray | memoryview) -> None:
        """Hold a whole head until the next bytes arrive, as a part of one is held."""
        self.since = self.service.tick
        self._pending = bytearray(head)
        self._looked = 0

    def begin_held(self) -> None:
        """Begin the request whose head is held: from here on its body is arriving."""
        if self.phase is HEAD and self._pending.endswith(HEAD_END):
            self._go_on()

    def take_begun(self) -> None:
        """Forget `begun`: the lane has taken its request."""
        self._pending = bytearray()
        self._looked = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of input held here: a partial body, or pipelined requests."""
        held = 0 if self._call is None else self._call.held_bytes
        return len(self._pending) + (0 if self._body is None else len(self._body)) + held

    def large_writes(self) -> Sequence[bytes]:
        return ()

    @property
    def arriving(self) -> Sequence[Arriving]:
        return (Arriving(self._bodies, self.held_bytes),) if self.phase is BODY else ()

    @property
    def look_cost(self) -> int:
        return 1

    def cut_off(self, body: int) -> None:
        """Close, because the start of a next request stays unknown."""
        self._close()

    @property
    def busy(self) -> bool:
        """Whether a request waits for its turn, or for its core.

        The service counts requests in progress.
        """
        return self.phase in _BUSY

    @property
    def patient(self) -> bool:
        """Whether unsent output waits for its reader, as that of a stream does (R-SSE-6)."""
        return self.phase is STREAM

    def overdue(self, waits: Waits) -> bool:
        """Return whether a head or more of a body is late (R-NET-4). Answers have no time limit."""
        waited = self.service.tick - self.since
        if self._intake is _PAUSED and waited > 1 and self._waits:
            self._leave()  # without reading, its leaving would go unnoticed (R-NET-11)
            return False
        if self.phase is HEAD:
            return waited > (waits.idle if self.idle else waits.head)
        return self.phase is BODY and waited > waits.head

    def going_away(self) -> None:
        """Do nothing: HTTP/1 announces the close with the last answer."""

    # --- input -------------------------------------------------------------------------------------------------------
    def receive(self, data: bytes | memoryview) -> None:
        """Take bytes from the peer. A view is only read during the call."""
        phase = self.phase
        if phase is HEAD:
            if self._pending:
                looked, self._looked = self._looked, 0
                self._advance(self._take_pending() + data, looked)
            else:
                self._advance(bytes(data))
        elif phase is ANSWER or phase is STREAM:
            self._pending += data
            if len(self._pending) > PIPELINED_BYTES and self._intake is _READS:
                self.since = self.service.tick
                self._set_intake(_PAUSED)
                self.transport.pause_reading()
        elif phase is BODY:
            self.since = self.service.tick
            if self.service.turns.over and not self._is_middle(data):
                self._pending += data
                self._queue(Phase.BODY_QUEUED)
                self._settle()
            else:
                self._advance(self._take_body(bytes(data)))
        elif phase is not CLOSED:
            self._pending += data  # from many receives, each of which is copied once

    def _is_middle(self, data: bytes | memoryview) -> bool:
        """Return whether more of the body follows these bytes, so that they begin no request."""
        assert self._plan is not None, "a body of a request"
        return isinstance(self._body, GrowingBytes) and len(self._body) + len(data) < self._plan.content_length

    def _take_pending(self) -> bytes:
        pending, self._pending = bytes(self._pending), bytearray()
        return pending

    def end_of_stream(self) -> None:
        """Note that the peer sends no more.

        Requests that are here get their answers, but a mere wait ends (R-NET-11).
        """
        self._set_intake(_ENDED)
        if self._waits:
            self._leave()
        elif self.phase in _QUEUED or (self.phase is HEAD and self._pending and self.transport.over_high_water):
            return
        elif self.phase is not ANSWER:
            self._close()

    def lost(self) -> None:
        """Drop all work, because the connection has ended."""
        if self.phase is not CLOSED:
            self._enter(CLOSED)
        self._leave_stream()
        self._uncount()
        call, self._call = self._call, None
        self._plan = self._body = None
        self._pending = bytearray()
        if call is not None:
            call.abandon()

    def drained(self) -> None:
        """Continue a stream or pipelined requests: the peer has read enough of the output."""
        if self._stream is not None:
            self._stream.on_drained()
        elif self.phase is HEAD and self._pending and not self._running:
            self._go_on()

    # --- requests ----------------------------------------------------------------------------------------------------
    def _advance(self, data: bytes, looked: int = 0) -> None:
        """Handle all requests that are whole in `data`, and hold the rest.

        looked: see `_looked`.
        """
        service = self.service
        kept, turns = service.planner.kept, service.turns
        size = len(data)
        at = 0
        self._running = True
        while at < size and self.phase is HEAD:
            if turns.left <= turns.stop_at:
                self._queue(Phase.HEAD_QUEUED)
                break
            end = data.find(HEAD_END, at if at or looked < 3 else looked - 3) + 4
            if end == 3:
                at = self._wait_for_head(data, at, looked)
                break
            head = data[at:end]
            plan = kept.get(head)
            if plan is None:
                if head.startswith(b"\r\n"):
                    at += 2  # empty lines before a request are skipped, RFC 9112 section 2.2
                    continue
                try:
                    plan = service.planner.plan(head)
                except BadRequestError as error:
                    self._refuse_syntax(error)
                    break
            if self.transport.over_high_water:
                break  # answers are not being read: `drained` continues from here
            stop = end + plan.content_length
            if plan.plain and stop <= size and service.gate is None:
                at = stop
                self._serve(plan, data[end:stop])
            elif plan.core is not None and (plan := self._elsewhere(plan, end - at)) is None:
                break
            else:
                rest = self._begin(plan, data[end:])
                at = size - len(rest)
            if at < size:
                turns.charge()
        self._running = False
        if at < size:
            if self.phase in _HOLDS_INPUT:
                self._pending = bytearray(data[at:])
            elif self._successor is not None:
                self._successor.receive(data[at:])
        if self._intake is not _READS or self.transport.over_high_water or self.phase in _QUEUED:
            if self.phase in _TAKES_INPUT:
                self._settle()
            elif self._intake is not _READS and self._waits:
                self.wait_began()

    def _elsewhere(self, plan: Plan, head_bytes: int) -> Plan | None:
        """Begin to give the connection to the core that owns the topic of the next request.

        Return the plan with which the request continues here, if the connection stays.
        """
        cores, core = self.service.cores, core_to_ask(self.service, plan)
        if cores is None or core is None:
            return plan
        relayed = cores.relayed(plan)
        if not cores.give(self.transport, core, self._unread, lambda _error: self._stay(relayed, head_bytes)):
            return relayed
        self._enter(Phase.LEAVING)
        return None

    def _unread(self) -> bytes:
        return bytes(self._pending)

    def _stay(self, plan: Plan, head_bytes: int) -> None:
        """Begin the request whose connection could not be given away, and continue."""
        if self.phase is not Phase.LEAVING:
            return
        self._enter(HEAD)
        data = self._take_pending()
        self._running = True
        rest = self._begin(plan, data[head_bytes:])
        self._running = False
        self._advance(rest)

    def _settle(self) -> None:
        """Close after the peer's end; pause or resume reading, so that unread answers are bounded.

        A body that has begun is read to its end whatever answers wait, because nothing else would
        resume its reading.
        """
        clogged = self.phase is HEAD and self.transport.over_high_water and bool(self._pending)
        waits = clogged or self.phase in _QUEUED
        if self._intake is _ENDED:
            if not waits:
                self._close()
        elif waits and self._intake is _READS:
            self._set_intake(_PAUSED)
            self.transport.pause_reading()
        elif not waits and self._intake is _PAUSED:
            self._set_intake(_READS)
            self.transport.resume_reading()

    def _queue(self, phase: Phase) -> None:
        """Wait for a turn, in one of `_QUEUED`: the requests of this pass have used up its time."""
        self._enter(phase)
        self.service.turns.wait(self._on_turn)

    def _on_turn(self) -> None:
        if self.phase not in _QUEUED:
            return
        self._enter(HEAD if self.phase is Phase.HEAD_QUEUED else BODY)
        turns = self.service.turns
        turns.begin()
        self.since = self.service.tick
        try:
            self._go_on()
        except Exception:
            _log.exception("a connection failed by a bug of ours; it is closed")
            self._close()
        if self.phase not in _QUEUED:  # otherwise all work is charged already
            turns.charge()

    @property
    def _waits(self) -> bool:
        """Whether the work in progress may take long, and ends with its client (R-NET-11)."""
        call = self._call
        return self.phase is STREAM or (call is not None and call.on_disconnect is not None)

    def wait_began(self) -> None:
        """Continue to read during a wait or stream, in order to notice that its client leaves."""
        if self._intake is _ENDED:
            self._leave()
        elif self._intake is _PAUSED and len(self._pending) <= PIPELINED_BYTES:
            self._set_intake(_READS)
            self.transport.resume_reading()

    def _leave(self) -> None:
        """Abandon the wait or stream in progress, because the client has left or is treated so."""
        self._leave_stream()
        call, self._call = self._call, None
        if call is not None:
            call.abandon()
        self._close()

    def _wait_for_head(self, data: bytes, at: int, looked: int) -> int:
        """Hold part of a head. Return where it begins; refuse one that cannot become a head.

        looked: leading bytes of `data` that were checked before.
        """
        if at:
            looked = 0
        while data.startswith(b"\r\n", at):
            at += 2
        rest = data[at:]
        if rest and rest != b"\r":
            try:
                check_partial_head(rest, self.service.planner.max_head_bytes, looked)
                self._looked = len(rest)
            except BadRequestError as error:
                self._refuse_syntax(error)
        return at

    def _begin(self, plan: Plan, data: bytes) -> bytes:
        """Begin a request that is not whole, or not plain.

        data: the bytes after its head. Return those that are not part of its body.
        """
        service = self.service
        refusal = refusal_before_body(service, plan)
        if not plan.has_body:
            if refusal is None:
                self._serve(plan, b"")
            else:
                self._refuse(plan, refusal)
            return data
        skipped = refusal is not None or ignores_body(plan)
        length = plan.content_length
        if not skipped and 0 < length <= len(data) and not plan.expects_continue:
            self._serve(plan, data[:length])
            return data[length:]
        chunked = plan.request.framing.chunked
        unread = plan.expects_continue or (refusal is not None and (chunked or refusal is plan.too_large))
        if skipped and (unread or length > UNREAD_BODY_BYTES_MAX) and not 0 < length <= len(data):
            # Reading the body would serve no purpose, and the start of the next request stays
            # unknown: answer and close.
            if refusal is not None:
                self._refuse(plan, refusal, body_unread=True)
            else:
                self._serve(plan.as_last(), b"")
            return b""
        if plan.expects_continue:
            self.transport.write(CONTINUE)
        self._enter(BODY)
        self._bodies += 1
        self.since = service.tick
        self._plan = plan
        if refusal is None and plan.principal is not UNAUTHENTICATED:
            self.admitted = True
        if refusal is None:
            self._counted = plan.counted
            service.in_flight.occupy(plan.counted)
        self._refusal = refusal
        self._body = ChunkedBody() if chunked else GrowingBytes()
        return self._take_body(data)

    def _take_body(self, data: bytes) -> bytes:
        """Add bytes to the body, and run the request once the body is complete.

        Return the bytes after the body.
        """
        plan, body = self._plan, self._body
        assert plan is not None
        if isinstance(body, ChunkedBody):
            limit = plan.max_body_bytes
            try:
                rest = self._feed(body, data, limit)
            except BadRequestError as error:
                self._refuse_syntax(error, plan.answer_headers)
                return b""
            if limit and body.size > limit:
                self._body = None
                self._uncount()
                self._refuse(plan, too_large(limit), body_unread=not body.done)
                return rest
            if not body.done:
                return b""
            whole = body.take()
        else:
            assert body is not None
            missing = plan.content_length - len(body)
            if len(data) < missing:
                body += data
                return b""
            body += data[:missing]
            whole = body.take()
            rest = data[missing:]
        self._body = None
        self._uncount()
        refusal, self._refusal = self._refusal, None
        if refusal is None and not plan.principal.is_valid:
            plan, refusal = judged_again(self.service, plan)
        if refusal is None:
            self._serve(plan, whole if len(whole) > self.service.step_bytes else bytes(whole))
        else:
            self._refuse(plan, refusal)
        if rest:
            self.service.turns.charge()
        return rest

    def _feed(self, body: ChunkedBody, data: bytes, limit: int) -> bytes:
        """Add bytes to a chunked body. Return those after its end.

        Very small chunks take a hundred times as long as large ones, so what is left when the pass
        has used up its time waits for a turn. limit: bytes of a body that is too large, 0 = none.
        Raises: BadRequestError, the chunks are malformed.
        """
        turns, at, rest = self.service.turns, 0, b""
        while at < len(data):
            if at and turns.over:
                self._pending = bytearray(data[at:])
                self._queue(Phase.BODY_QUEUED)
                break
            rest = body.feed(data[at : at + _CHUNKED_STEP_BYTES])
            at += _CHUNKED_STEP_BYTES
            if body.done or (limit and body.size > limit):
                return rest + data[at:]
            turns.charge()
        return rest

    def _serve(self, plan: Plan, body: bytes | bytearray | memoryview) -> None:
        """Run a whole request whose path, method and size are valid.

        The remaining steps of the body come first, then the handler.
        """
        service = self.service
        started_ns = service.now_ns()
        if plan.principal is not UNAUTHENTICATED:
            self.admitted = True
        if self._intake is _ENDED and plan.is_of_stream:
            # The client does not listen, and jobs may be leased as soon as the stream is open.
            self._close()
            return
        usable: bytes | bytearray | memoryview | Unpacking = body
        if ignores_body(plan):
            usable = b""
        elif not plan.usual_body:
            try:
                usable = usable_body(plan, body, service.step_bytes)
            except RequestError as error:
                self._refuse(plan, error)
                return
        if self.phase not in _BEFORE_ANSWER:
            raise PHASES.error(self.phase, ANSWER)
        self.phase = ANSWER
        self._plan = plan
        self.received_bytes = len(body)
        service.served.append(plan)
        call = Call(service, self, plan, usable, started_ns)
        self._call = call
        run(call)

    # --- answers -----------------------------------------------------------------------------------------------------
    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer the request in progress; then handle the next one, if it is here already."""
        if self.phase is not ANSWER:
            raise PHASES.error(self.phase, HEAD)
        service = self.service
        plan = self._plan
        assert plan is not None
        self._call = None
        if self._keeps(plan):
            if status <= 201 and content_type is JSON and not plan.is_head and plan.request.framing.version_minor == 1:
                self.transport.write(service.writer.json(status, body, headers))
            else:
                connection = b"" if plan.request.framing.version_minor else b"keep-alive"
                self._write(plan, status, body, content_type, headers, connection=connection)
            self._next()
            return
        self._write(plan, status, body, content_type, headers, connection=b"close")
        self._close()

    def respond_in_parts(self, parts: Sequence[bytes], headers: bytes) -> None:
        """Answer with 200 and JSON, as `respond` does."""
        if self.phase is not ANSWER:
            raise PHASES.error(self.phase, HEAD)
        plan = self._plan
        assert plan is not None
        if plan.is_head:
            self.respond(200, b"".join(parts), JSON, headers)
            return
        self._call = None
        keeps = self._keeps(plan)
        if not keeps:
            headers = b"%bConnection: close\r\n" % headers
        elif plan.request.framing.version_minor != 1:
            headers = b"%bConnection: keep-alive\r\n" % headers
        head = self.service.writer.json_start(sum(map(len, parts)), headers)
        self.transport.write(head + parts[0])
        for part in parts[1:]:
            self.transport.write(part)
        if keeps:
            self._next()
        else:
            self._close()

    def drop(self) -> None:
        """Close without the answer to the request in progress."""
        self._call = None
        self._close()

    def taken(self) -> None:
        """Note that the lane has taken requests and will call `answer` once for all of them."""
        self._enter(ANSWER)

    def answer_at_once(self, answer: bytes) -> None:
        """Write the response to a request that the lane took and served within `receive`."""
        self.admitted = True
        self.since = self.service.tick
        self.transport.write(answer)

    def answer(self, answers: bytes, *, last: bool = False) -> None:
        """Write whole responses to the requests that the lane took (lane.py); then handle the next.

        last: the connection is not kept. Only the first such answer counts.
        """
        if self.phase is not ANSWER:
            return  # lost, or closed by an earlier answer
        self.transport.write(answers)
        if last:
            self._close()
        else:
            self._next()

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Http1Stream:
        """Send the head of a streamed answer; see `topics.http.wire.stream.Stream`."""
        assert self.phase is ANSWER, "an answer without a request"
        plan = self._plan
        assert plan is not None
        chunks = plan.request.framing.version_minor == 1
        kept = chunks and self._keeps(plan)
        self.transport.write(
            self.service.writer.stream_head(status, content_type, headers, chunks=chunks, close=not kept)
        )
        self._enter(STREAM)
        self._call = self._plan = None  # a stream may stay for days, and does not need its head
        config = self.service.config
        self.transport.set_water_marks(config.stream_high_water_bytes, config.stream_low_water_bytes)
        self._stream = Http1Stream(self, chunks=chunks, kept=kept, on_drained=on_drained, on_disconnect=on_disconnect)
        return self._stream

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        """Answer the request in progress with a 101. The other protocol gets all bytes after it."""
        assert self.phase is ANSWER, "an answer without a request"
        transport = self.transport
        transport.write(head)
        self._enter(CLOSED)
        self._call = self._plan = self._refusal = None
        if self._intake is _PAUSED:
            self._set_intake(_READS)
            transport.resume_reading()
        config = self.service.config
        transport.set_water_marks(config.stream_high_water_bytes, config.stream_low_water_bytes)
        upgraded = self._successor = transport.state = open_upgraded(transport)
        data = self._take_pending()
        if data:
            upgraded.receive(data)
        if self._intake is _ENDED:
            upgraded.end_of_stream()

    def on_stream_ended(self, *, kept: bool) -> None:
        """Continue after the handler has ended its stream.

        kept: another answer may follow, for which the client can see the end of this one.
        """
        if self.phase is not STREAM:
            raise PHASES.error(self.phase, HEAD)
        self._stream = None
        if not kept or self.service.closing:
            self._close()
            return
        config = self.service.config
        self.transport.set_water_marks(config.send_high_water_bytes, config.send_low_water_bytes)
        self._next()

    def _leave_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.leave()

    def _keeps(self, plan: Plan) -> bool:
        """Return whether the connection stays open after this answer."""
        return plan.keep_alive and not self.service.closing

    def _next(self) -> None:
        """Continue with the next request, which may be here already.

        The callers have checked the phase.
        """
        self.phase = HEAD
        self._plan = None
        self.since = self.service.tick
        if not self._running and (self._pending or self._intake is not _READS):
            self._go_on()

    def _go_on(self) -> None:
        """Handle input that waited for the answer."""
        data, self._looked = self._take_pending(), 0
        if self.phase is BODY:
            # An immediate answer must not end the connection before the bytes after the body.
            self._running = True
            data = self._take_body(data)
        self._advance(data)

    def _refuse(self, plan: Plan, error: RequestError, *, body_unread: bool = False) -> None:
        """Answer with an error, without a call of the handler."""
        self.service.refused_total += 1
        status = status_of(error)
        self.service.answered.of(plan.route).count(status)
        body = envelope(error)
        if self.service.access_log is not None:
            self.service.access_log.answered(self, plan, status, len(body), 0, refused=True)
        self._enter(ANSWER)
        self._plan = plan
        headers = extra_headers(error) + plan.answer_headers
        if not body_unread:
            self.respond(status, body, JSON, headers)
            return
        self._write(plan, status, body, JSON, headers, connection=b"close")
        self._close()

    def _refuse_syntax(self, error: BadRequestError, headers: bytes = b"") -> None:
        """Answer a syntax error and close: the start of the next request is unknown."""
        self.service.refused_total += 1
        self.service.answered.of(None).count(error.status)
        body = envelope(error.as_request_error())
        if self.service.access_log is not None:
            self.service.access_log.answered(self, None, error.status, len(body), 0, refused=True)
        self.transport.write(self.service.writer.render(error.status, body, headers=headers, connection=b"close"))
        self._close()

    def _write(
        self, plan: Plan, status: int, body: bytes, content_type: bytes, headers: bytes, *, connection: bytes
    ) -> None:
        data = self.service.writer.render(
            status,
            body,
            content_type=content_type,
            headers=headers,
            connection=connection,
            without_body=plan.is_head or status == NOT_MODIFIED,
        )
        self.transport.write(data)

    def _uncount(self) -> None:
        counted, self._counted = self._counted, None
        self.service.in_flight.vacate(counted)

    def _enter(self, phase: Phase) -> None:
        self.phase = PHASES.check(self.phase, phase)

    def _set_intake(self, intake: Intake) -> None:
        self._intake = INTAKES.check(self._intake, intake)

    def _close(self) -> None:
        if self.phase is not CLOSED:
            self._enter(CLOSED)
        self._uncount()
        self._plan = self._body = self._refusal = None
        self._pending = bytearray()
        self.transport.close()
