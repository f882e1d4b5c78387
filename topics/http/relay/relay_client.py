"""The requests of this core's connections that one other core answers.

    waiting   not sent: there is no room, or the pass has not ended
    asked     given to the socket; the other core has perhaps begun it
    answered  by the number of the request, once

If the other core dies, those that wait were provably not taken and are refused. Those that were
given to the socket are in doubt: they get no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol, cast

from topics.common.tuples import make_tuple
from topics.engine.shared.limits import ShareSpentError
from topics.errors import RequestError
from topics.http.plan.answer_turns import AnswerTurns
from topics.http.plan.call import Call
from topics.http.plan.service import FarAnswers, FarName
from topics.http.relay.far_stream import FarStream
from topics.http.relay.relay_message import (
    ANSWERS,
    CHUNK,
    END,
    OPENS,
    REQUESTS,
    ROWS_MAX,
    TEXT_BYTES_MAX,
    DamagedRelayError,
    Message,
    RelayDecoder,
    RelayRow,
    encoded,
)
from topics.http.relay.relayed_head import head_there
from topics.http.streams.stream_slots import Slot
from topics.http.wire.error_answers import ElsewhereError, envelope
from topics.http.wire.head import HEAD_END
from topics.http.wire.stream import Block

ASK = 1
CANCEL = 2
WAITS = 1
"""The request waits: it ends with its client."""
WHOLE = 2
"""The answer of HTTP/1.1 to a plain write: its head, and the body."""
NONE = 0
"""There is no answer: the request was cancelled, or its answer is unknown."""
STATUS_MIN = 100

IN_FLIGHT_MAX = 4096
"""Most requests that wait or were asked, for each other core. Others are refused.

The end of all of them at once takes 32 passes of `AnswerTurns`.
"""
NOT_BEGUN_BYTES = 4 << 20
"""Bytes that were sent and not begun. With more of them no request is sent until some are begun.

A connection sends at most one request more than that, of at most the largest body.
"""
BEGIN_NS = 10_000_000_000
"""Time in which another core begins at least one of the requests that it was sent.

A pass lasts 20 ms at most. One that takes so long is taken for dead.
"""


class Pair(Protocol):
    """The socket to another core."""

    over_high_water: bool

    def write(self, data: bytes | memoryview) -> None: ...

    def abort(self) -> None: ...


class WatchTimer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None: ...


CallLater = Callable[[int, Callable[[], None]], WatchTimer]


class RelayClient:
    """One other core, as the requests see it that it has to answer."""

    def __init__(
        self,
        core: int,
        connect: Callable[[], Pair | None],
        due: Callable[[Callable[[], None]], None],
        call_later: CallLater,
        turns: AnswerTurns,
    ) -> None:
        """connect(): returns a new socket to the core; None: it has none. due(flush): has `flush`
        called at the end of the pass.
        """
        self._core = core
        self._connect = connect
        self._due = due
        self._call_later = call_later
        self._turns = turns
        self._waiting: deque[_WaitingCall] = deque()
        self._asked: _Asked | None = None
        self.relayed = 0
        """Requests that were sent."""
        self.in_doubt = 0
        """Requests that were sent, and got no answer."""

    def ask(self, call: Call) -> None:
        """Have the other core answer a call whose body is whole and decompressed."""
        asked = 0 if self._asked is None else len(self._asked.calls)
        if len(self._waiting) + asked >= IN_FLIGHT_MAX or len(call.body) >= TEXT_BYTES_MAX // 2:
            call.fail(ElsewhereError(self._core))
            return
        slot = None
        if call.plan.is_of_stream:
            slot, refusal = _slot_of(call)
            if isinstance(refusal, ShareSpentError) and call.asks_others(refusal):
                return
            call.on_disconnect = _nothing if slot is None else slot.release
            call.body = b"" if refusal is None else envelope(refusal)
        call.held_bytes = len(call.body)
        self._waiting.append(_WaitingCall(call, slot))
        self._due(self.flush)

    def ask_plain(
        self,
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
        names: Sequence[FarName],
        answers: FarAnswers,
        *,
        at_once: bool,
    ) -> bool:
        """Have the other core answer plain writes: see `FarTopic.ask`.

        False: there is no socket yet, or no room for them now.
        """
        asked = self._asked
        if asked is None or self._waiting or not asked.has_room_for(len(bodies)):
            return False
        self.relayed += len(bodies)
        asked.stage(heads, bodies, names, answers)
        if at_once:
            asked.send_staged()
            asked.watch(self._call_later, self._note_dead)
        else:
            self._due(self.flush)
        return True

    def flush(self) -> None:
        """Send the requests of the pass, as far as there is room, in one message."""
        waiting = self._waiting
        while waiting and waiting[0].call.answered:
            waiting.popleft()  # its client has left
        asked = self._asked
        if asked is None:
            if not waiting:
                return
            pair = self._connect()
            if pair is None:
                self._refuse_waiting()
                return
            asked = self._asked = _Asked(pair, self._note_due, self._turns)
        asked.send_staged()
        rows = asked.orders()
        while waiting and len(rows) < ROWS_MAX and asked.has_room:
            call, slot = waiting.popleft()
            if not call.answered:
                self.relayed += call.is_of_client
                rows.append(asked.row_of(call, slot))
        if rows:
            asked.send(rows)
        asked.watch(self._call_later, self._note_dead)
        if asked.has_orders or (waiting and asked.has_room):
            self._note_due()

    def receive(self, data: memoryview) -> None:
        """Take bytes of the other core. Raises: DamagedRelayError, the pair has to end."""
        if self._asked is not None:
            self.in_doubt += self._asked.receive(data)
            if self._waiting:
                self._note_due()

    def drained(self) -> None:
        """Continue to send: the other core has taken what was sent."""
        self._note_due()

    def lost(self, pair: object) -> None:
        """Refuse what the other core has not got, and end what is in doubt without an answer."""
        asked = self._asked
        if asked is None or asked.pair is not pair:
            return
        self._asked = None
        asked.stop_watching()
        for stream in asked.take_streams():
            self.in_doubt += not stream.has_ended
            self._turns.answer(stream.drop)
        for call in asked.calls.values():
            if isinstance(call, _PlainWrite):
                self.in_doubt += call.answers.waits(call.name)
            else:
                self.in_doubt += call.is_of_client and not call.answered
            self._turns.answer(call.drop)
        self._refuse_waiting()

    def end_streams(self) -> Iterator[None]:
        """Have all streams end, because this core stops: one in each step."""
        if self._asked is not None:
            for stream in list(self._asked.streams.values()):
                stream.shut_down()
                yield

    def _note_due(self) -> None:
        self._due(self.flush)

    def _note_dead(self, asked: _Asked) -> None:
        asked.pair.abort()
        self.lost(asked.pair)

    def _refuse_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for call, slot in waiting:
            call.held_bytes = 0
            if slot is not None:
                slot.release()
            self._turns.answer(partial(call.fail, ElsewhereError(self._core)))


class _WaitingCall(NamedTuple):
    """A request that was not sent. slot: of a stream, given back if its client leaves."""

    call: Call
    slot: Slot | None


def _slot_of(call: Call) -> tuple[Slot | None, RequestError | None]:
    """Return the slot of a stream, or the reason why it has none."""
    try:
        return call.take_slot(call.principal), None
    except RequestError as error:
        return None, error


class _PlainWrite(NamedTuple):
    """A write of the lane, of which a server has one at most."""

    answers: FarAnswers
    name: FarName

    def drop(self) -> None:
        self.answers.drop(self.name)


class _Asked:
    """The requests that were given to one socket, by their number."""

    def __init__(self, pair: Pair, due: Callable[[], None], turns: AnswerTurns) -> None:
        self.pair = pair
        self._due = due
        self._turns = turns
        self._decoder = RelayDecoder(ANSWERS)
        self.calls: dict[int, Call | _PlainWrite] = {}
        """The calls without an answer."""
        self.streams: dict[int, FarStream] = {}
        """The streams that have not ended there."""
        self._orders: list[RelayRow] = []
        """Rows about earlier requests, which are to be sent."""
        self._staged: list[RelayRow] = []
        """Plain writes of this pass."""
        self._sent = 0
        """Number of the last request that was sent."""
        self._begun = 0
        """Number of the last request that the other core has begun."""
        self._sizes: deque[int] = deque()
        """Bytes of each request that was sent and not begun."""
        self._not_begun_bytes = 0
        self._timer: WatchTimer | None = None

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent."""
        is_small = self._not_begun_bytes < NOT_BEGUN_BYTES and len(self._sizes) < ROWS_MAX
        return is_small and not self.pair.over_high_water

    def has_room_for(self, count: int) -> bool:
        """Return whether so many requests may be sent beside those that are."""
        fits = len(self._sizes) + count <= ROWS_MAX and len(self.calls) + count <= IN_FLIGHT_MAX
        return fits and self.has_room

    @property
    def has_orders(self) -> bool:
        return bool(self._orders)

    def orders(self) -> list[RelayRow]:
        """Return rows about earlier requests, as many as a message may have."""
        rows = self._orders[:ROWS_MAX]
        del self._orders[:ROWS_MAX]
        return rows

    def take_streams(self) -> list[FarStream]:
        """Return all streams, which are not known here any more."""
        streams, self.streams = list(self.streams.values()), {}
        return streams

    def row_of(self, call: Call, slot: Slot | None) -> RelayRow:
        """Return the row of a request, which is sent next. slot: of a stream that has one."""
        number = self._sent = self._sent + 1
        if call.plan.is_of_stream:
            self.streams[number] = FarStream(call, slot, number, self)
        else:
            self.calls[number] = call
        row = RelayRow(number, ASK, head_there(call.plan), call.body)
        self._sizes.append(len(row.body))
        self._not_begun_bytes += len(row.body)
        call.body, call.held_bytes = b"", 0
        return row

    def stage(
        self, heads: Sequence[bytes], bodies: Sequence[bytes], names: Sequence[FarName], answers: FarAnswers
    ) -> None:
        """Add plain writes, which are sent before any other request."""
        first, sizes = self._sent + 1, list(map(len, bodies))
        self._sent += len(sizes)
        numbers = range(first, self._sent + 1)
        self._staged += [make_tuple(RelayRow, row) for row in zip(numbers, repeat(ASK), heads, bodies)]
        self.calls.update(zip(numbers, [make_tuple(_PlainWrite, (answers, name)) for name in names], strict=True))
        self._sizes += sizes
        self._not_begun_bytes += sum(sizes)

    def send_staged(self) -> None:
        if self._staged:
            self.send(self._staged)
            self._staged = []

    def send(self, rows: list[RelayRow]) -> None:
        for part in encoded(REQUESTS, 0, rows):
            self.pair.write(part)

    def cancel(self, number: int) -> None:
        """Have the other core end a request that waits, or a stream, whose client has left."""
        if number in self.calls or number in self.streams:
            self._orders.append(RelayRow(number, CANCEL, b"", b""))
            self._due()

    def tell(self, number: int, code: int, body: bytes = b"") -> None:
        """See `StreamAsker`."""
        if number in self.streams:
            self._orders.append(RelayRow(number, code, b"", body))
            self._due()

    def receive(self, data: memoryview) -> int:
        """Take bytes of the other core. Return how many requests it has left without an answer.

        Raises: DamagedRelayError, the pair has to end.
        """
        in_doubt = 0
        for message in self._decoder.feed(data):
            self._note_begun(message.begun)
            if self._take_whole(message):
                continue
            block = Block(b"")
            for row in message.rows():
                if row.number in self.streams:
                    if row.code == CHUNK and (row.body or block.data is not row.head):
                        block = Block(row.head or bytes(row.body))
                    in_doubt += self._take_of_stream(row, block)
                    continue
                call = self.calls.get(row.number)
                if call is None or WHOLE < row.code < STATUS_MIN or row.code >= OPENS:
                    raise DamagedRelayError(f"{row.code} of request {row.number}, which waits for no such answer")
                if row.code == WAITS and not isinstance(call, _PlainWrite):
                    self._wait(row.number, call)
                    continue
                del self.calls[row.number]
                in_doubt += self._end(call, row)
        return in_doubt

    def _take_of_stream(self, row: RelayRow, block: Block) -> bool:
        """Take a row of a stream, in turns. Return whether it ends in doubt.

        block: the chunk. Raises: DamagedRelayError.
        """
        number, code, head, body = row
        stream = self.streams[number]
        content_type, _, headers = head.partition(b"\0")
        is_in_doubt = code == NONE and not stream.has_ended
        if code >= OPENS + STATUS_MIN and not stream.is_open:
            stream.note_open()
            self._turns.answer(partial(stream.open, code - OPENS, content_type, headers))
        elif code == CHUNK and stream.is_open and block.data:
            self._turns.answer(partial(stream.write, block))
        elif code == END and stream.is_open:
            del self.streams[number]
            self._turns.answer(stream.end)
        elif code == NONE:
            del self.streams[number]
            self._turns.answer(stream.drop)
        elif STATUS_MIN <= code < OPENS and not stream.is_open:
            del self.streams[number]
            stream.refuse(code, bytes(body), content_type, headers)
        else:
            raise DamagedRelayError(f"{code} of stream {number}")
        return is_in_doubt

    def _take_whole(self, message: Message) -> bool:
        """Pass on a message of answers to plain writes of the lane. False: it has others."""
        numbers, calls = message.numbers, self.calls
        if not numbers or message.codes.count(WHOLE) < len(numbers):
            return False
        writes = list(map(calls.get, numbers))
        if set(map(type, writes)) != {_PlainWrite} or len(set(numbers)) < len(numbers):
            return False
        for number in numbers:
            del calls[number]
        names = [write.name for write in cast("list[_PlainWrite]", writes)]
        cast("_PlainWrite", writes[0]).answers.answer_whole(names, message.sizes, message.text)
        return True

    @staticmethod
    def _end(call: Call | _PlainWrite, row: RelayRow) -> bool:
        """End a request. Return whether it is in doubt. Raises: DamagedRelayError."""
        _number, code, head, body = row
        content_type, _, headers = head.partition(b"\0")
        if isinstance(call, _PlainWrite):
            answers, name = call
            if code == WHOLE:
                answers.answer_whole([name], [len(body)], memoryview(body))
            elif code >= STATUS_MIN:
                answers.answer(name, code, bytes(body), content_type, headers)
            else:
                in_doubt = answers.waits(name)
                answers.drop(name)
                return in_doubt
        elif code == WHOLE:
            call.reply(_body_of(bytes(body)))
        elif code == NONE:
            in_doubt = not call.answered
            call.drop()
            return in_doubt
        else:
            call.pass_on(code, bytes(body), content_type, headers)
        return False

    def _wait(self, number: int, call: Call) -> None:
        if call.answered:
            self.cancel(number)
        else:
            call.on_disconnect = partial(self.cancel, number)
            call.settle_wait()

    def _note_begun(self, begun: int) -> None:
        if not self._begun <= begun <= self._sent:
            raise DamagedRelayError(f"{begun} requests were begun, after {self._begun} and of {self._sent}")
        for _ in range(begun - self._begun):
            self._not_begun_bytes -= self._sizes.popleft()
        self._begun = begun

    def watch(self, call_later: CallLater, note_dead: Callable[[_Asked], None]) -> None:
        """Have the core taken for dead if it begins nothing for `BEGIN_NS`."""
        if self._timer is not None or not self._sizes:
            return
        begun = self._begun

        def look() -> None:
            self._timer = None
            if self._sizes and self._begun == begun:
                note_dead(self)
            else:
                self.watch(call_later, note_dead)

        self._timer = call_later(BEGIN_NS, look)

    def stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _nothing() -> None:
    """Stand in for what a client that leaves gives back: it ends with it."""


def _body_of(answer: bytes) -> bytes:
    """Return the body of an answer of HTTP/1.1. Raises: DamagedRelayError, it is none."""
    head, end, body = answer.partition(HEAD_END)
    if not end:
        raise DamagedRelayError(f"an answer begins with {head[:40]!r}")
    return body
