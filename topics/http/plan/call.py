"""One request in progress: the interface that a handler reads, and answers at once or later."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from topics.engine.bodies.long_bodies import Work
from topics.engine.json.strict_json import FIELDS_MAX
from topics.engine.shared.limits import ShareSpentError
from topics.engine.values.durations import milliseconds
from topics.engine.values.json_fields import Fields, read_object
from topics.engine.values.results import Done
from topics.errors import StorageError, TopicsError, as_request_error
from topics.http.access.principal import Principal
from topics.http.access.routes import Body
from topics.http.openapi.known_keys_of import body_keys
from topics.http.plan.body import Unpacking
from topics.http.plan.gatekeeping import check_type
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.streams.key_limits import CountedKey
from topics.http.streams.stream_slots import Slot
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.response import JSON
from topics.http.wire.stream import Stream
from topics.http.wire.upgrade import OpenUpgraded

T = TypeVar("T")
Handler = Callable[["Call"], None]

SHARED_BYTES_MIN = 65_536
"""Fewer bytes in several parts are joined, which is faster than one send for each."""


class Exchange(Protocol):
    """The destination of an answer: an HTTP/1 connection, or a stream of HTTP/2."""

    @property
    def upgrades(self) -> bool:
        """Whether `upgrade` is possible. Only HTTP/1 has upgrades."""

    @property
    def peer(self) -> tuple[str, int]:
        """The address of the client, or of the proxy before it."""

    @property
    def received_bytes(self) -> int:
        """Bytes of the request's body, as they arrived."""

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Send the whole response, once. headers: whole lines."""

    def respond_in_parts(self, parts: Sequence[bytes], headers: bytes) -> None:
        """Send a JSON response with status 200, instead of `respond`. headers: whole lines.

        Large parts are not copied, because other answers may send the same.
        """

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Stream:
        """Send the head now, instead of `respond`, and the body piece by piece."""

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        """Send the 101, instead of `respond`, where `upgrades`; the opened protocol takes over."""

    def drop(self) -> None:
        """End the request without an answer, instead of `respond`, as the client can see."""

    def wait_began(self) -> None:
        """Treat a wait that the handler has begun in a later pass like one that began at once."""


class _Repetition:
    """Another execution of a call.

    asked: limits for which others were asked. waits: until they have answered. is_possible: False
    once the body is gone.
    """

    __slots__ = ("again", "asked", "is_possible", "waits")

    def __init__(self, again: Callable[[], None], *, is_possible: bool = True) -> None:
        self.again = again
        self.is_possible = is_possible
        self.asked: set[str] = set()
        self.waits = False


class Call:
    """One request and its answer.

    Exactly one of `reply`, `fail`, `respond`, `open_stream` and `upgrade` is called, once. After
    the client has left, the first three do nothing.

    body: decompressed; b"" without one; a view for a long write. on_disconnect: a handler that
    waits for long sets it; it is called when the client has left, and no answer is due then.
    """

    __slots__ = (
        "_exchange",
        "_repetition",
        "body",
        "held_bytes",
        "on_disconnect",
        "plan",
        "service",
        "started_ns",
        "unpacking",
    )

    is_of_client = True
    """Whether it is counted among those that cores have asked each other for."""

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
        """The unpacking of the rest of the body; `body` is empty until it ends."""
        self.held_bytes = 0
        """Bytes of a long body that waits for its turns."""
        if not isinstance(body, Unpacking):
            self.body = body
        else:
            self.unpacking, self.body, self.held_bytes = body, b"", body.size + body.unpacked_bytes
        self.started_ns = started_ns
        self.on_disconnect: Callable[[], None] | None = None
        self._exchange: Exchange | None = exchange
        self._repetition: _Repetition | None = None

    @property
    def name(self) -> str:
        """The topic in the path."""
        return self.plan.name

    @property
    def principal(self) -> Principal:
        """The sender of the request and its rights, with which names in the body are checked."""
        return self.plan.principal

    @property
    def answered(self) -> bool:
        """Whether the call was answered, or abandoned by its client."""
        return self._exchange is None

    def fields(self) -> Fields:
        """Return the body as a JSON object; an empty one is `{}` where the route accepts it.

        Raises: RequestError, the body is not a JSON object, or a strict request has unknown keys.
        """
        plan = self.plan
        route = plan.route
        if not self.body and route is not None and route.body is Body.JSON_OR_EMPTY:
            return read_object(b"{}")
        fields = read_object(bytes(self.body))
        if plan.strict and route is not None:
            config = self.service.config
            fields.check_keys(body_keys(route), max(FIELDS_MAX, config.max_wait_topics, config.max_watch_topics))
        return fields

    def total_ms(self) -> bytes:
        """Return `server_total_ms` up to now, as JSON."""
        return milliseconds(self.service.now_ns() - self.started_ns)

    # --- the answer --------------------------------------------------------------------------------------------------
    def reply(self, body: bytes, status: int = 200) -> None:
        """Answer with JSON."""
        exchange = self._exchange
        if exchange is not None:
            headers = self.plan.answer_headers
            if len(body) >= self.service.compressor.min_bytes and self.plan.accepts_gzip:
                body, encoding = self.service.compressor.encode(body)
                headers += encoding
            self._head_ready(status, len(body))
            exchange.respond(status, body, JSON, headers)

    def reply_around(self, before: bytes, shared: bytes, after: bytes) -> None:
        """Answer with JSON in three parts. shared: may be large, and part of other answers, too."""
        exchange = self._exchange
        if exchange is None:
            return
        compressor, headers = self.service.compressor, self.plan.answer_headers
        size = len(before) + len(shared) + len(after)
        if self.plan.accepts_gzip and compressor.min_bytes <= size <= compressor.max_bytes:
            body, encoding = compressor.encode_around(before, shared, after)
            self._head_ready(200, len(body))
            exchange.respond(200, body, JSON, headers + encoding)
            return
        if len(shared) < SHARED_BYTES_MIN:
            self.reply(before + shared + after)
            return
        self._head_ready(200, size)
        exchange.respond_in_parts((before, shared, after), headers)

    def fail(self, error: BaseException) -> None:
        """Answer with the error envelope of any exception.

        Storage may have failed for thousands of requests at once, so their answers take turns. If
        other cores may have the room that it lacks, they are asked first.
        """
        if isinstance(error, ShareSpentError) and self.asks_others(error):
            return
        if isinstance(error, StorageError):
            self.on_disconnect = None  # what it would end has ended
            self.service.answer_turns.answer(partial(self._fail, error))
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        request_error = as_request_error(error)
        # The frames hold the body, which holds the violation found in it.
        error.__traceback__ = None
        self.service.refused_total += 1
        headers = extra_headers(request_error) + self.plan.answer_headers
        self._respond(status_of(request_error), envelope(request_error), JSON, headers)

    def asks_others(self, error: ShareSpentError) -> bool:
        """Have other cores asked for room, and the call executed again after that.

        False: there are none, they were asked for this limit before, or too many calls wait.
        """
        cores = self.service.cores
        if cores is None or self.answered:
            return False
        repetition = self._repetition = self._repetition or _Repetition(self._handle)
        if error.limit in repetition.asked or not repetition.is_possible:
            return False
        self.on_disconnect = None  # what it would end has ended
        repetition.asked.add(error.limit)
        repetition.waits = cores.shares.ask(error, self)
        return repetition.waits

    @property
    def waits_for_others(self) -> bool:
        """Whether other cores are being asked for room, after which it is executed again."""
        return self._repetition is not None and self._repetition.waits

    def repeat_by(self, again: Callable[[], None], *, never: bool = False) -> None:
        """Have `again` called in the place of the handler, if the call is executed again.

        never: it cannot be, because its body is gone.
        """
        self._repetition = _Repetition(again, is_possible=not never)

    def execute_again(self) -> None:
        """Execute the call once more, from its beginning, after other cores were asked."""
        repetition = self._repetition
        assert repetition is not None, "a call that has not asked"
        repetition.waits, self.held_bytes = False, 0
        try:
            repetition.again()
            self.settle_wait()
        except Exception as error:
            self.fail(error)

    def _handle(self) -> None:
        route = self.plan.route
        assert route is not None, "a call without a route"
        route.handler(self)

    def or_fail(self, answer: Callable[[T], None]) -> Done[T]:
        """Return a `done` for the engine that passes results to `answer`, and errors to `fail`."""

        def done(result: T | TopicsError) -> None:
            if isinstance(result, TopicsError):
                self.fail(result)
            else:
                answer(result)

        return done

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer with a body that is not JSON. headers: whole lines."""
        self._respond(status, body, content_type, headers + self.plan.all_headers)

    def pass_on(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer as another core has: with what this one has to add."""
        if content_type != JSON:
            self.respond(status, body, content_type, headers)
        elif headers or status >= 400:
            self._respond(status, body, JSON, headers + self.plan.answer_headers)
        else:
            self.reply(body, status)

    def drop(self) -> None:
        """End the request without an answer, because it is unknown whether it was executed."""
        exchange = self._exchange
        if exchange is not None:
            self._head_ready(0)
            exchange.drop()

    def _respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._head_ready(status, len(body))
        exchange.respond(status, body, content_type, headers)

    def take_slot(self, key: CountedKey | None) -> Slot:
        """Take the slot of a stream that is about to open, for a key.

        Raises: RequestError throttled, too many are open, in all or of this key.
        """
        return self.service.streams.slots.take(key)

    def open_stream(
        self,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
        status: int = 200,
    ) -> Stream:
        """Answer with a stream. The client must be there: check `answered` after a wait.

        headers: whole lines. on_drained(): the client has read on, see `Stream`. on_disconnect():
        the client has left; not called after `Stream.end`. Both are called from the loop, never
        inside `open_stream` or `write`. The request counts as answered: a stream does not delay a
        shutdown, because its opener ends it then (`Service.at_drain`).
        """
        exchange = self._exchange
        assert exchange is not None, "a stream for a client that left"
        self._head_ready(status)
        return exchange.open_stream(status, content_type, headers + self.plan.all_headers, on_drained, on_disconnect)

    @property
    def upgrades(self) -> bool:
        """Whether `upgrade` is possible: over HTTP/1, and while the client is connected."""
        return self._exchange is not None and self._exchange.upgrades

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        """Switch protocols, while the request is handled, where `upgrades`. head: the whole 101."""
        exchange = self._exchange
        assert exchange is not None, "an upgrade for a client that left"
        self._head_ready(101)
        exchange.upgrade(head, open_upgraded)

    def settle_wait(self) -> None:
        """Notify the exchange if the handler, called after `run` returned, has begun to wait."""
        if self._exchange is not None and self.on_disconnect is not None:
            self._exchange.wait_began()

    def abandon(self) -> None:
        """Stop the work for a client that has left; a later answer is dropped.

        A long body is freed, because a client that holds too much memory is dropped in order to
        free it. A body whose turns have begun is held until the next of them.
        """
        if self._exchange is None:
            return
        if self.held_bytes:
            self.body, self.unpacking, self.held_bytes = b"", None, 0
        on_disconnect = self.on_disconnect
        self._head_ready(0)
        if on_disconnect is not None:
            on_disconnect()

    def _head_ready(self, status: int, size: int | None = None) -> None:
        """Leave the requests in flight: the answer begins, or there will be none (status 0).

        size: of the answer's body; None: it is a stream.
        """
        exchange = self._exchange
        self._exchange = self.on_disconnect = self._repetition = None
        service, plan = self.service, self.plan
        service.in_flight.leave(plan.counted)
        if status:
            ns = service.now_ns() - self.started_ns
            service.answered.of(plan.route).add(status, ns)
            if service.access_log is not None and exchange is not None:
                service.access_log.answered(exchange, plan, status, size, ns)


def run(call: Call) -> None:
    """Pass a call to the handler of its route; an exception becomes the answer."""
    route = call.plan.route
    assert route is not None, "a call without a route"
    service = call.service
    service.in_flight.enter(call.plan.counted)
    try:
        # The handler of a large body takes these turns together with its own.
        if call.unpacking is None or route.large:
            route.handler(call)
        else:
            service.long_commands.run(_run_unpacked(call, route.handler))
    except Exception as error:
        call.fail(error)


def unpacked(call: Call, unpacking: Unpacking) -> Generator[None, None, bool]:
    """Unpack the rest of the call's body, in turns. Return False if its client left before that.

    Raises: RequestError, the body is corrupt, too large or not JSON.
    """
    steps = unpacking.steps
    while True:
        if call.answered:
            return False
        try:
            unpacked_bytes = next(steps)
        except StopIteration as end:
            call.body = end.value
            break
        call.held_bytes = unpacking.size + unpacked_bytes
        yield
    call.unpacking, call.held_bytes = None, len(call.body)
    check_type(call.plan, is_empty=not call.body)
    return True


def _run_unpacked(call: Call, handler: Handler) -> Work:
    """Pass a call to its handler once its body is unpacked, unless the client leaves before."""
    try:
        if call.unpacking is not None:
            yield from unpacked(call, call.unpacking)
        if not call.answered:
            handler(call)
            call.settle_wait()
    except Exception as error:
        call.fail(error)
    finally:
        call.held_bytes = 0
