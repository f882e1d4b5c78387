"""One request on its way: what a handler gets and answers, now or later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from topics.engine.values.durations import milliseconds
from topics.engine.values.json_fields import Fields, read_object
from topics.engine.values.results import Done
from topics.engine.write.long_bodies import Work
from topics.errors import TopicsError, as_request_error
from topics.http.access.principal import Principal
from topics.http.access.routes import Body, Handler
from topics.http.plan.body import Unpacking
from topics.http.plan.gatekeeping import check_type
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.response import JSON
from topics.http.wire.stream import Stream
from topics.http.wire.upgrade import OpenUpgraded

T = TypeVar("T")

SHARED_BYTES_MIN = 65_536
"""Below this an answer of several parts is joined: that is faster than to send them one by one."""


class Exchange(Protocol):
    """Where the answer goes: an HTTP/1 connection, or a stream of HTTP/2."""

    @property
    def upgrades(self) -> bool:
        """`upgrade` is possible: HTTP/1 alone."""

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """The whole response, once. headers: whole lines."""

    def respond_in_parts(self, parts: Sequence[bytes]) -> None:
        """Instead of `respond`: 200 and JSON. Large parts are not copied: others may send the same."""

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Stream:
        """Instead of `respond`: the head now, the body as it comes."""

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        """Instead of `respond`, where `upgrades`: the 101, then the connection is what is opened."""


class Call:
    """One request. Exactly one of `reply`, `fail`, `respond`, `open_stream` and `upgrade` is called, once; after the
    client left the first three do nothing.

    body: decompressed, b"" where there is none; a view where a write is long. on_disconnect: set it while waiting
    for something that may take long; called when the client is gone, and nothing is to be answered then.
    """

    __slots__ = (
        "_exchange",
        "body",
        "held_bytes",
        "is_only",
        "on_disconnect",
        "plan",
        "service",
        "started_ns",
        "unpacking",
    )

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        plan: Plan,
        body: bytes | bytearray | memoryview | Unpacking,
        started_ns: int,
    ) -> None:
        self.service = service
        self.plan = plan
        self.unpacking: Unpacking | None = None
        """What unpacks the rest of the body, which is empty until then."""
        self.held_bytes = 0
        """Of a long body that waits for its turns."""
        if not isinstance(body, Unpacking):
            self.body = body
        else:
            self.unpacking, self.body, self.held_bytes = body, b"", body.size
        self.started_ns = started_ns
        self.is_only = False
        """What its connection received held this request and nothing else."""
        self.on_disconnect: Callable[[], None] | None = None
        self._exchange: Exchange | None = exchange

    @property
    def name(self) -> str:
        """The topic of the path."""
        return self.plan.name

    @property
    def principal(self) -> Principal:
        """Who asks: what its key may do, and names from the body are checked with it; everything without keys."""
        return self.plan.principal

    @property
    def answered(self) -> bool:
        """Answered, or abandoned by its client."""
        return self._exchange is None

    def fields(self) -> Fields:
        """The body as a JSON object; an empty one is `{}` where the route takes it. Raises RequestError."""
        route = self.plan.route
        if not self.body and route is not None and route.body is Body.JSON_OR_EMPTY:
            return read_object(b"{}")
        return read_object(bytes(self.body))

    def total_ms(self) -> bytes:
        """`server_total_ms` so far, as JSON."""
        return milliseconds(self.service.now_ns() - self.started_ns)

    # --- the answer --------------------------------------------------------------------------------------------------
    def reply(self, body: bytes, status: int = 200) -> None:
        """JSON."""
        exchange = self._exchange
        if exchange is not None:
            headers = self.plan.answer_headers
            if len(body) >= self.service.compressor.min_bytes and self.plan.accepts_gzip:
                body, encoding = self.service.compressor.encode(body)
                headers += encoding
            self._head_ready()
            exchange.respond(status, body, JSON, headers)

    def reply_around(self, before: bytes, shared: bytes, after: bytes) -> None:
        """JSON in three parts, of which the middle one may be large, and that of other answers, too."""
        if len(shared) < SHARED_BYTES_MIN or self._exchange is None or self.plan.answer_headers:
            self.reply(before + shared + after)
            return
        compressor = self.service.compressor
        size = len(before) + len(shared) + len(after)
        if self.plan.accepts_gzip and compressor.min_bytes <= size <= compressor.max_bytes:
            self.reply(before + shared + after)
            return
        exchange = self._exchange
        self._head_ready()
        exchange.respond_in_parts((before, shared, after))

    def fail(self, error: BaseException) -> None:
        """The error envelope for any exception."""
        request_error = as_request_error(error)
        error.__traceback__ = None  # its frames hold the body, which holds a violation that it found
        self.service.refused_total += 1
        headers = extra_headers(request_error) + self.plan.answer_headers
        self.respond(status_of(request_error), envelope(request_error), JSON, headers)

    def or_fail(self, answer: Callable[[T], None]) -> Done[T]:
        """What the engine takes as `done`: results go to `answer`, an error is answered by `fail`."""

        def done(result: T | TopicsError) -> None:
            if isinstance(result, TopicsError):
                self.fail(result)
            else:
                answer(result)

        return done

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._head_ready()
        exchange.respond(status, body, content_type, headers)

    def open_stream(
        self,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
        status: int = 200,
    ) -> Stream:
        """An answer that goes on. Not for a client that left: ask `answered` if anything was waited for.

        headers: whole lines. on_drained(): the client has read on, see `Stream`. on_disconnect(): it is gone; not
        called after `Stream.end`. Both are called from the loop, never from inside `open_stream` or `write`.
        The request counts as answered: a stream does not hold up a shutdown, whoever opened it ends it then
        (`Service.at_drain`).
        """
        exchange = self._exchange
        assert exchange is not None, "a stream for a client that left"
        self._head_ready()
        return exchange.open_stream(status, content_type, headers, on_drained, on_disconnect)

    @property
    def upgrades(self) -> bool:
        """`upgrade` is possible: the request came over HTTP/1, and its client is there."""
        return self._exchange is not None and self._exchange.upgrades

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        """Switches protocols; asked for while the request is handled, where `upgrades`. head: the whole 101."""
        exchange = self._exchange
        assert exchange is not None, "an upgrade for a client that left"
        self._head_ready()
        exchange.upgrade(head, open_upgraded)

    def abandon(self) -> None:
        """The client is gone: stops what waits for it; a later answer goes nowhere.

        A long body is let go, since a client that holds too much is dropped for the sake of its memory. One whose turns
        have begun is held by them.
        """
        if self._exchange is None:
            return
        if self.held_bytes:
            self.body, self.unpacking, self.held_bytes = b"", None, 0
        on_disconnect = self.on_disconnect
        self._head_ready()
        if on_disconnect is not None:
            on_disconnect()

    def _head_ready(self) -> None:
        """The answer begins, or will never: the request is no longer in flight."""
        self._exchange = self.on_disconnect = None
        self.service.in_flight.leave(self.plan.counted)


def run(call: Call) -> None:
    """Hands the call to its route's handler; whatever that raises becomes the answer."""
    route = call.plan.route
    assert route is not None, "a call without a route"
    service = call.service
    service.in_flight.enter(call.plan.counted)
    try:
        if call.unpacking is None or route.large:  # the handler of a large body takes these turns with its own
            route.handler(call)
        else:
            service.long_bodies.run(_run_unpacked(call, route.handler))
    except Exception as error:
        call.fail(error)


def unpacked(call: Call, unpacking: Unpacking) -> Work:
    """Do the rest of the unpacking of the call's body, in turns. Raises RequestError."""
    call.body = yield from unpacking.steps
    call.unpacking, call.held_bytes = None, len(call.body)
    check_type(call.plan, is_empty=not call.body)


def _run_unpacked(call: Call, handler: Handler) -> Work:
    """Hand a call to its handler once its body is unpacked, unless the client leaves before."""
    try:
        if call.unpacking is not None:
            yield from unpacked(call, call.unpacking)
        if not call.answered:
            handler(call)
    except Exception as error:
        call.fail(error)
    finally:
        call.held_bytes = 0
