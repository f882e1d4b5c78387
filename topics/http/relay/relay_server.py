"""The requests that another core has relayed to this one: run as local ones, without a socket."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from topics.errors import RequestError
from topics.http.lane.plain_writes import LaneTables
from topics.http.plan.call import Call, run
from topics.http.plan.gatekeeping import refusal_of
from topics.http.plan.plan import Plan
from topics.http.plan.service import Service
from topics.http.relay.relay_client import ASK, CANCEL, NONE, WAITS, WHOLE
from topics.http.relay.relay_message import (
    ANSWERS,
    CHUNK,
    COUNT,
    END,
    KEY_GONE,
    OPENS,
    ORDER,
    REQUESTS,
    ROWS_MAX,
    SEPARATE_BYTES,
    STOP,
    TAKEN,
    DamagedRelayError,
    Message,
    Part,
    RelayDecoder,
    RelayRow,
    encoded,
    encoded_columns,
    encoded_row,
)
from topics.http.relay.relayed_head import RelayedPlan, RelayedPlans
from topics.http.relay.relayed_stream import RelayedStream
from topics.http.relay.relayed_writes import RelayedWrites, Waiting
from topics.http.streams.key_limits import CountedKey
from topics.http.streams.stream_slots import Slot
from topics.http.wire.error_answers import ElsewhereError, envelope, error_in, extra_headers, status_of
from topics.http.wire.response import JSON
from topics.http.wire.stream import Stream
from topics.http.wire.upgrade import OpenUpgraded

_ORDERS = {CANCEL: 0, TAKEN: COUNT.size, KEY_GONE: 0, STOP: 0}
"""Orders, and the bytes of their bodies. That of `ORDER` may have any size."""

MESSAGE_BYTES = 1 << 20
"""Bodies of answers after which a message ends, and another one begins."""


class AnsweringPair(Protocol):
    """The socket to the core that asks."""

    over_high_water: bool
    peer: tuple[str, int]

    def write(self, data: bytes | memoryview) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


class RelayedCall(Call):
    """A call of another core's connection, which writes the access log."""

    __slots__ = ("_slot",)

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self._slot: Slot | None = None

    def take_slot(self, key: CountedKey | None) -> Slot:
        if self.body:  # why the core of its client has none
            raise error_in(bytes(self.body))
        slot = self._slot = self.service.streams.slots.take(key, is_of_client=False)
        return slot

    def open_stream(self, *values: Any, **named: Any) -> Stream:
        stream = super().open_stream(*values, **named)
        assert isinstance(stream, RelayedStream), "a stream of another core's connection"
        stream.slot, self._slot = self._slot, None
        return stream

    def _head_ready(self, status: int, size: int | None = None) -> None:
        self._exchange = self.on_disconnect = None
        service, plan = self.service, self.plan
        service.in_flight.leave(plan.counted)
        if status:
            service.answered.of(plan.route).add(status, service.now_ns() - self.started_ns)


class RelayedExchange:
    """The destination of one answer: a row of the next message."""

    upgrades = False

    __slots__ = ("_answering", "_has_waited", "_number", "received_bytes")

    def __init__(self, answering: RelayServer, number: int, received_bytes: int) -> None:
        self._answering = answering
        self._number = number
        self._has_waited = False
        self.received_bytes = received_bytes

    @property
    def peer(self) -> tuple[str, int]:
        return self._answering.peer

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        self._answering.answer(RelayRow(self._number, status, content_type + b"\0" + headers, body))

    def respond_in_parts(self, parts: Sequence[bytes], headers: bytes) -> None:
        self.respond(200, b"".join(parts), JSON, headers)

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> RelayedStream:
        head = content_type + b"\0" + headers
        return self._answering.open_stream(RelayRow(self._number, OPENS + status, head, b""), on_drained, on_disconnect)

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        raise AssertionError("an upgrade is not relayed")

    def drop(self) -> None:
        self._answering.answer(RelayRow(self._number, NONE, b"", b""))

    def wait_began(self) -> None:
        if not self._has_waited:
            self._has_waited = True
            self._answering.note_wait(self._number)


class RelayServer:
    """One core that asks this one.

    Its requests are begun in their order, within the time of a pass. `begun` of the answers says
    how many were, so that the other core knows what is no longer in the way of more.
    """

    def __init__(
        self,
        service: Service,
        pair: AnsweringPair,
        plans: RelayedPlans,
        elsewhere: Callable[[str], int | None],
        due: Callable[[Callable[[], None]], None],
        *,
        tables: LaneTables | None = None,
    ) -> None:
        """due(flush): has `flush` called at the end of the pass. tables: None without a lane."""
        self._service = service
        self._pair = pair
        self._plans = plans
        self._elsewhere = elsewhere
        self._due = due
        self._decoder = RelayDecoder(REQUESTS)
        self._received = 0
        """Number of the last request."""
        self._begun = 0
        self._told = 0
        """`begun` of the last message."""
        self._writes = None if tables is None else RelayedWrites(service, tables, elsewhere, self)
        self._waiting: deque[Waiting] = deque()
        self._left: deque[Waiting] = deque()
        """Requests before those that wait, for the general path."""
        self._calls: dict[int, Call] = {}
        self._streams: dict[int, RelayedStream] = {}
        self._held: dict[RelayedStream, None] = {}
        """Streams that wait until it is not full any more."""
        self._chunk_bytes = 0
        """Bytes of chunks among the answers. A block that follows itself counts once."""
        self._chunk = b""
        """The last of them."""
        self._answers: deque[RelayRow] = deque()
        self._whole: list[tuple[bytes, bytes, bytes]] = []
        """Answers to plain writes: numbers, sizes, texts."""
        self._has_turn = False
        """Whether a turn is waited for."""
        self._is_paused = False
        self._has_ended = False

    @property
    def peer(self) -> tuple[str, int]:
        return self._pair.peer

    # --- requests ----------------------------------------------------------------------------------------------------
    def receive(self, data: memoryview) -> None:
        """Take bytes of the other core. Raises: DamagedRelayError, the pair has to end.

        Nothing of a message with damage to one of its heads is executed.
        """
        for message in self._decoder.feed(data):
            self._take(message)
        self._work()

    def receive_single(self, data: memoryview) -> bool:
        """Take the bytes that are the only receive of the pass.

        Return whether the end of the pass has nothing to do for them. Raises: as `receive`.
        """
        for message in self._decoder.feed(data):
            self._take(message)
        writes, waiting = self._writes, self._waiting
        if writes is not None and len(waiting) == 1 and self._is_idle and self._service.has_few_senders():
            is_settled = writes.take_lone(waiting[0])
            if is_settled is not None:
                waiting.clear()
                return is_settled
        self._work()
        return False

    @property
    def _is_idle(self) -> bool:
        """Whether nothing but what waits has to be begun or sent, and the other core takes it."""
        is_busy = self._left or self._answers or self._whole or self._has_turn or self._begun != self._told
        return not (is_busy or self._pair.over_high_water or self._has_ended)

    def _take(self, message: Message) -> None:
        """Add the requests of a message to those that wait. Raises: as `receive`."""
        plans = [self._plans.plan(head) if head else None for head in message.heads]
        numbers, codes = message.numbers, message.codes
        asked = list(zip(numbers, [plans[head] for head in message.whose], message.bodies(), strict=True))
        orders: list[RelayRow] = []
        if codes.count(ASK) < len(codes):
            asked = [row for row, code in zip(asked, codes, strict=True) if code == ASK]
            orders = [row for row in message.rows() if row.code != ASK]
            for order in orders:
                is_whole = order.code == ORDER or len(order.body) == _ORDERS.get(order.code)
                if not is_whole or not 0 < order.number <= self._received:
                    raise DamagedRelayError(f"{order.code} of request {order.number}")
        received = self._received + len(asked)
        if [row[0] for row in asked] != list(range(self._received + 1, received + 1)):
            raise DamagedRelayError(f"requests {numbers} follow {self._received}")
        waiting = [(number, plan, body) for number, plan, body in asked if plan is not None]
        if len(waiting) < len(asked):
            raise DamagedRelayError("a request without a head")
        for order in orders:
            self._take_order(order)
        self._received = received
        self._waiting += waiting

    def _take_order(self, order: RelayRow) -> None:
        """Do what is asked about an earlier request, unless it has ended meanwhile.

        Raises: DamagedRelayError.
        """
        number, code, _head, body = order
        if code == CANCEL:
            self._cancel(number)
        elif (stream := self._streams.get(number)) is not None:
            turns = self._service.answer_turns
            if code == TAKEN:
                stream.take(COUNT.unpack(body)[0])
                turns.answer(stream.settle)
            elif code == ORDER:
                stream.order(bytes(body))
            else:
                turns.answer(stream.on_key_gone if code == KEY_GONE else stream.shut_down)

    def _cancel(self, number: int) -> None:
        """End a request whose client has left, unless it was answered meanwhile."""
        call, stream = self._calls.pop(number, None), self._streams.pop(number, None)
        if call is not None:
            call.abandon()
            self.answer(RelayRow(number, NONE, b"", b""))
        elif stream is not None:
            stream.cut()
            self.answer(RelayRow(number, NONE, b"", b""))
            self._service.answer_turns.answer(stream.leave)

    def _work(self) -> None:
        """Begin requests, as far as the pass has time and the other core takes answers."""
        turns, writes = self._service.turns, self._writes
        while (self._left or self._waiting) and not (self._has_turn or self._pair.over_high_water or self._has_ended):
            if turns.over:
                self._has_turn = True
                turns.wait(self._on_turn)
                break
            if self._left:
                self._begin(*self._left.popleft())
            elif writes is not None and (run := writes.run(self._waiting)):
                self._begun = run[-1][0]
                self._left += writes.take(run)
            else:
                self._begun = self._waiting[0][0]
                self._begin(*self._waiting.popleft())
            turns.charge()
        if self._pair.over_high_water and not self._is_paused:
            self._is_paused = True
            self._pair.pause_reading()
        if self._begun != self._told:
            self._due(self.flush)

    def _on_turn(self) -> None:
        self._has_turn = False
        self._service.turns.begin()
        self._work()

    def _begin(self, number: int, plan: RelayedPlan, body: Part) -> None:
        service = self._service
        refusal = refusal_of(service, plan)
        if refusal is None and (core := self._elsewhere(plan.name)) is not None and not plan.is_portion:
            refusal = ElsewhereError(core)  # never further: two cores may disagree about a slot
        if refusal is not None:
            self._refuse(number, plan, refusal)
            return
        if len(body) <= service.step_bytes:
            body = bytes(body)
        exchange = RelayedExchange(self, number, len(body))
        call = self._calls[number] = RelayedCall(service, exchange, plan, body, service.now_ns())
        service.in_flight.of_others += 1
        run(call)
        if call.on_disconnect is not None:
            exchange.wait_began()

    def _refuse(self, number: int, plan: Plan, error: RequestError) -> None:
        service, status = self._service, status_of(error)
        service.refused_total += 1
        service.answered.of(plan.route).count(status)
        self.answer(RelayRow(number, status, JSON + b"\0" + extra_headers(error), envelope(error)))

    # --- answers -----------------------------------------------------------------------------------------------------
    def answer(self, row: RelayRow) -> None:
        """Add an answer to the next message. The pair may have ended meanwhile."""
        self._calls.pop(row.number, None)
        if not self._has_ended:
            self._answers.append(row)
            self._due(self.flush)

    def open_stream(
        self, head: RelayRow, on_drained: Callable[[], None], on_disconnect: Callable[[], None]
    ) -> RelayedStream:
        """Answer with a stream. head: its first row. The pair may have ended meanwhile."""
        number = head.number
        stream = RelayedStream(self, number, self._service.config, on_drained, on_disconnect)
        self.answer(head)
        if self._has_ended:
            self._end_stream(stream)
        else:
            self._streams[number] = stream
        return stream

    # --- what streams call -------------------------------------------------------------------------------------------
    @property
    def is_full(self) -> bool:
        return self._chunk_bytes >= MESSAGE_BYTES or self._pair.over_high_water

    def add_chunk(self, number: int, data: bytes) -> None:
        if data is not self._chunk:
            self._chunk = data
            self._chunk_bytes += len(data)
        is_large = len(data) >= SEPARATE_BYTES
        self.answer(RelayRow(number, CHUNK, b"", data) if is_large else RelayRow(number, CHUNK, data, b""))

    def hold(self, stream: RelayedStream) -> None:
        self._held[stream] = None

    def end_stream(self, number: int, *, is_whole: bool) -> None:
        self._streams.pop(number, None)
        self.answer(RelayRow(number, END if is_whole else NONE, b"", b""))

    def _end_stream(self, stream: RelayedStream) -> None:
        """Report to the writer of a stream, in a turn, that its client is not there any more."""
        stream.cut()
        self._service.answer_turns.wait(stream.leave)

    def _resume_held(self) -> None:
        """Have the streams continue that have waited, in turns, for as long as there is room."""
        if self._held and not self._has_ended:
            self._service.answer_turns.answer_each(self._resumed())

    def _resumed(self) -> Iterator[Callable[[], None]]:
        held = self._held
        while held and not self.is_full:
            stream = next(iter(held))
            del held[stream]
            yield stream.resume

    def answer_whole(self, numbers: bytes, sizes: bytes, text: bytes) -> None:
        """Add answers of HTTP/1.1. The pair may have ended meanwhile."""
        if not self._has_ended:
            self._whole.append((numbers, sizes, text))

    def answer_at_once(self, number: int, answer: bytes) -> None:
        """Send the answer of HTTP/1.1 to the only request that was not answered."""
        self._begun = self._told = number
        self._pair.write(encoded_row(ANSWERS, number, RelayRow(number, WHOLE, b"", answer)))

    def note_decided(self) -> None:
        """Have the answers to plain writes flushed, also if nothing is to be sent any more."""
        self._due(self.flush)

    def note_wait(self, number: int) -> None:
        """Report to the other core that a request waits."""
        if number in self._calls:
            self._answers.append(RelayRow(number, WAITS, b"", b""))
            self._due(self.flush)

    def flush(self) -> None:
        """Send the answers of the pass, and how many requests were begun."""
        if self._writes is not None:
            self._writes.answers.flush()
        self._send_whole()
        answers, pair = self._answers, self._pair
        while (answers or self._begun != self._told) and not self._has_ended:
            rows: list[RelayRow] = []
            size = 0
            while answers and len(rows) < ROWS_MAX and size < MESSAGE_BYTES:
                rows.append(answers.popleft())
                size += len(rows[-1].body) + len(rows[-1].head)
            self._told = self._begun
            for part in encoded(ANSWERS, self._begun, rows):
                pair.write(part)
        self._chunk, self._chunk_bytes = b"", 0
        if self._held and not pair.over_high_water:
            self._service.answer_turns.wait(self._resume_held)

    def _send_whole(self) -> None:
        """Send the answers to plain writes, in messages of their own."""
        whole, self._whole = self._whole, []
        for numbers, sizes, text in whole:
            self._told = self._begun
            at = 0
            for first in range(0, len(sizes) // 4, ROWS_MAX):
                some = sizes[4 * first : 4 * (first + ROWS_MAX)]
                end = at + sum(array("I", some))
                columns = numbers[8 * first : 8 * (first + ROWS_MAX)], some, text[at:end]
                self._pair.write(encoded_columns(self._begun, WHOLE, *columns))
                at = end

    def drained(self) -> None:
        """Continue: the other core has taken answers."""
        if self._is_paused:
            self._is_paused = False
            self._pair.resume_reading()
        self._resume_held()
        self._work()

    def lost(self, _pair: object) -> None:
        """End what waits for a client that is no longer there. What was begun is completed."""
        self._has_ended = True
        self._waiting.clear()
        self._left.clear()
        self._answers.clear()
        self._held.clear()
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            self._end_stream(stream)
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            self._service.answer_turns.answer(call.abandon)
