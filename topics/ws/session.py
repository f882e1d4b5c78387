"""One WebSocket: commands in, replies and deliveries out, in the order that the contract promises.

Commands are executed one after another (R-WS-1), with one exception that clients cannot observe: a
publish is staged while earlier publishes wait for their commits, and the acks are sent in the order
of the commands. Deliveries pause while an earlier command holds back an ack, so that an ack
precedes its records (R-WS-2). A client that does not read stops only its own commands and
deliveries (R-WS-3). Source: wire contract, section 11.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from topics.common.tuples import make_tuple
from topics.engine.bodies.long_bodies import Work
from topics.engine.shared.limits import ShareSpentError
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.refusals import name_forbidden
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import AppendResult
from topics.errors import RequestError, TopicsError, as_request_error
from topics.ws import replies
from topics.ws.commands import (
    Command,
    Invalid,
    Long,
    Publish,
    Subscribe,
    Unsubscribe,
    parse_command,
    parse_long,
)
from topics.ws.framing import BINARY, PING, TEXT, Framing, Received, pong_frame, text_frame
from topics.ws.host import FarTopics, Host
from topics.ws.lone_publishes import LonePublishes
from topics.ws.subscriptions import Subscriptions

_log = logging.getLogger(__name__)

HELD_BYTES = 65_536
"""Input held while commands wait; reading pauses above this size."""
GOING_AWAY = 1001
POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011


class Rights(NamedTuple):
    """The rights of the connection's key. Source: wire contract 11.3, 11.4, R-AUTH-5."""

    read: bool
    write: bool
    admin: bool
    allows: Callable[[str], bool]
    within: Prefixes = ()
    """Prefixes of the names that `allows` allows; () = all."""


class FrameTransport(Protocol):
    """The byte stream that carries the frames."""

    @property
    def over_high_water(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Reply:
    """A place in the order of replies."""

    __slots__ = ("request_id", "text")

    def __init__(self, request_id: bytes) -> None:
        self.request_id = request_id
        self.text: bytes | None = None
        """The reply's text; None until the command is done."""


class WebSocketSession:
    """The state machine of one WebSocket.

    release: returns the connection's slot; called once, however the connection ends. strict: a
    command with an unknown key is refused.
    """

    __slots__ = (
        "_closing",
        "_ended",
        "_far",
        "_framing",
        "_host",
        "_in_line",
        "_is_long_far",
        "_long",
        "_next",
        "_next_bytes",
        "_paused",
        "_pumping",
        "_receiving",
        "_release",
        "_replies",
        "_rights",
        "_settled",
        "_strict",
        "_subscriptions",
        "_transport",
        "_turns",
        "_withheld",
    )

    def __init__(
        self,
        host: Host,
        transport: FrameTransport,
        rights: Rights,
        release: Callable[[], None],
        *,
        strict: bool = False,
        far: FarTopics | None = None,
    ) -> None:
        """far: the topics of a server of several cores."""
        self._host = host
        self._far = far
        self._strict = strict
        self._transport = transport
        self._rights = rights
        self._release = release
        self._turns = host.turns
        self._in_line = False
        """Whether the session waits for its turn, in which it parses its input."""
        config = host.config
        step_bytes = host.long_bodies.step_bytes
        self._framing = Framing(config.ws_max_frame_bytes, config.ws_max_message_bytes, host.turns, step_bytes)
        self._long: bytes | bytearray | memoryview = b""
        """A long message that is parsed, or waits for that. No other command begins meanwhile."""
        self._is_long_far = False
        """Whether another core parses a long publish, in turns. No command begins meanwhile."""
        self._replies: deque[Reply] = deque()
        """Replies of the commands in progress, oldest first; the first one is not done."""
        self._withheld = 0
        """How many replies are decided, but wait for an earlier reply or for their turn."""
        self._next: Command | Received | None = None
        """The next command, parsed and waiting for the commands before it."""
        self._next_bytes = 0
        """Size of the message last taken, which `_next` holds."""
        self._paused = False
        self._receiving = False
        """Whether bytes that this connection has received are being handled."""
        self._settled = ""
        """Topic of a publish that was committed and delivered in the call that received it."""
        self._pumping = False
        self._closing = False
        """Whether the server is stopping: no more commands are executed."""
        self._ended = False
        self._subscriptions = Subscriptions(host, transport, far, None if far is None else self)

    # --- calls of the connection below ------------------------------------------------------------------------------
    @property
    def held_bytes(self) -> int:
        held = self._framing.held_bytes + self._subscriptions.held_bytes + len(self._long)
        if self._far is not None:
            held += self._far.held_bytes
        return held + (0 if self._next is None else self._next_bytes)

    def large_writes(self) -> Sequence[bytes]:
        return ()

    @property
    def admitted(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        """Whether a command is in progress."""
        return bool(self._long or self._replies)

    def receive(self, data: bytes | memoryview) -> None:
        if not self._ended:
            self._framing.feed(bytes(data))
            if self._in_line:
                self._settle_reading()
                return
            self._receiving = True
            try:
                self._pump()
            finally:
                self._receiving = False

    def receive_single(self, data: bytes | memoryview) -> bool | None:
        """Receive the only bytes of a pass over the only connection that has work.

        Returns: whether the end of the pass has nothing to do for them; None, and nothing was done,
        if others have work, too.
        """
        host = self._host
        if self._ended or not host.has_one_sender():
            return None
        engine, lone = host.engine, host.lone
        if lone is not None and lone.owner is self:
            is_held_up = self._closing or self._transport.over_high_water or engine.refuses_writes
            if not is_held_up and lone.take(data):
                return engine.settle_lone()
        self._settled = ""
        self.receive(data)
        if not self._settled or self._ended or self._framing.unread or not engine.is_settled:
            return False
        self._turns.next_pass()  # as the end of the pass does, which is left out
        if lone is None:
            lone = host.lone = LonePublishes(host.config, engine, host.now_ns)
        lone.begin(self, self._transport.write, self._settled, strict=self._strict)
        return True

    def end_of_stream(self) -> None:
        """End, because the peer closed the stream without a close frame and cannot be answered."""
        if not self._ended:
            self._end()
            self._transport.close()

    def drained(self) -> None:
        self._go_on()

    def lost(self) -> None:
        self._end()

    def going_away(self) -> None:
        """Finish what is in progress, notify the client, close: the server is stopping (11.6)."""
        if not self._ended:
            self._closing = True
            self._say_goodbye()

    def on_key_gone(self) -> None:
        """Send an error and close at once: the rights of the connection's key have changed.

        Nothing more is executed or delivered. Commands in progress are not answered, as on a
        connection that broke.
        """
        if not self._ended:
            message = "the key was taken away, or may do something else now: connect again"
            self._close_with_error("unauthorized", message, POLICY_VIOLATION, "key gone")

    def on_core_gone(self, message: str) -> None:
        """Send an error and close at once, because of another core, whose answers are unknown."""
        if not self._ended:
            self._close_with_error("not_ready", message, INTERNAL_ERROR, "core gone")

    # --- commands ----------------------------------------------------------------------------------------------------
    def _pump(self) -> None:
        """Execute the received commands, until one has to wait."""
        if self._pumping or self._in_line:
            return
        self._pumping = True
        turns = self._turns
        turns.begin()
        try:
            while not (self._ended or self._closing or self._transport.over_high_water):
                command = self._next if self._next is not None else self._take()
                self._next = None
                if command is None:
                    if turns.over and self._framing.unread:
                        self._in_line = True
                        turns.wait(self._on_turn)
                    break
                if not self._may_begin(command):
                    self._next = command
                    break
                self._execute(command)
        finally:
            self._pumping = False
        if not self._ended:
            self._settle_reading()

    def _on_turn(self) -> None:
        self._in_line = False
        try:
            if not self._ended:
                self._pump()
        except Exception:
            self._on_bug()

    def _on_bug(self) -> None:
        _log.exception("a WebSocket failed by a bug of ours; it is closed")
        self._end()
        self._transport.close()

    def _take(self) -> Command | Received | None:
        received = self._framing.take()
        if received is None:
            return None
        self._next_bytes = len(received.data)
        if received.kind != TEXT:
            return received
        if self._next_bytes > self._host.long_bodies.step_bytes:
            return Long(received.data)
        host = self._host
        return parse_command(bytes(received.data), host.scanner, host.config, strict=self._strict)

    def _may_begin(self, command: Command | Received) -> bool:
        """Return whether a command may begin now.

        Publishes overlap with each other only; every other command waits for all before it.
        """
        if self._long or self._is_long_far:
            return False
        if isinstance(command, Publish):
            return len(self._replies) < self._host.config.ws_publishes_in_flight and not self._subscriptions.beginning
        return not self._replies

    def _execute(self, command: Command | Received) -> None:
        if isinstance(command, Received):
            self._on_frame(command)
            return
        if isinstance(command, Long):
            self._long = command.data
            self._host.long_bodies.run(self._parse_long())
            return
        if isinstance(command, Invalid):
            self._transport.write(text_frame(replies.error(b"null", "invalid_json", command.message)))
            return
        reply = Reply(command.request_id)
        self._replies.append(reply)
        try:
            if isinstance(command, Publish):
                self._publish(command, reply)
                if reply.text is None:
                    # Give the unit back: `ws_publishes_in_flight` bounds the publishes in progress.
                    self._turns.left += 1
                if self._host.engine.has_expired_enough:  # Each may expire a thousand (R-RTTL-1).
                    self._turns.spend_all()
            elif isinstance(command, Subscribe):
                self._turns.left -= len(command.starts) + len(command.prefixes)
                self._subscribe(command, reply)
            elif isinstance(command, Unsubscribe):
                self._turns.left -= len(command.topics) + len(command.prefixes)
                self._unsubscribe(command, reply)
            else:
                self._on_done(reply, replies.pong(command.request_id))
        except Exception as error:
            if reply.text is not None:
                raise  # it was answered before that
            self._on_done(reply, error)

    def _parse_long(self) -> Work:
        """Parse and execute a long message, unless the connection has ended."""
        if self._ended:
            return
        try:
            host = self._host
            command = yield from parse_long(
                self._long, host.long_bodies, host.scanner, host.config, strict=self._strict
            )
            self._on_parsed(command)
        except Exception:
            self._on_bug()

    def _on_parsed(self, command: Command) -> None:
        self._long = b""
        if self._ended:
            return
        self._execute(command)
        if self._closing:
            self._say_goodbye()
        else:
            self._go_on()

    def _on_frame(self, received: Received) -> None:
        if received.kind == PING:
            self._transport.write(pong_frame(bytes(received.data)))
        elif received.kind == BINARY:
            message = "binary messages mean nothing here: send JSON as text"
            self._transport.write(text_frame(replies.error(None, "unsupported_message", message)))
        else:
            if received.data:
                self._transport.write(bytes(received.data))
            self._end()
            self._transport.close()

    def _publish(self, command: Publish, reply: Reply) -> None:
        """Execute the write of contract 7.5, from check 3 on."""
        rights, body, request_id, topic = self._rights, command.body, command.request_id, command.topic
        if not rights.write:
            raise RequestError("forbidden", "publishing needs the scope write")
        if body.config is not None and not rights.admin:
            raise RequestError("forbidden", "publishing with a config needs the scope admin: leave config out")
        self._check_name(topic)
        if self._far is not None and self._far.is_far(topic):
            self._publish_far(self._far, command, reply)
            return
        host = self._host
        if host.engine.refuses_writes and not body.disable_backpressure:
            raise host.engine.refuse_write()
        started_ns = host.now_ns()
        with_seqs, piece = body.lists_seqs(command.return_seqs), body.piece

        def ack(result: AppendResult) -> bytes:
            total_ns = host.now_ns() - started_ns
            window_ns = host.engine.throttle_window_ns
            return replies.ack(request_id, topic, result, total_ns, window_ns, with_seqs=with_seqs, piece=piece)

        def answer(result: AppendResult | TopicsError) -> None:
            self._on_done(reply, result if isinstance(result, TopicsError) else ack(result))

        def done(result: AppendResult | TopicsError) -> None:
            turns = host.ack_turns
            if turns.is_free:
                turns.answer(partial(answer, result))
            else:
                self._withhold()
                turns.answer(partial(self._on_ack_turn, answer, result))

        may_create: RequestError | Literal[True] = True
        dead_letter = None if body.config is None else body.config.dead_letter
        if dead_letter is not None and not rights.allows(dead_letter):
            may_create = name_forbidden(dead_letter)
        options = (body.create, body.config, may_create, body.violation, body.incarnation, command.frames)
        request = make_tuple(AppendRequest, (topic, body.rows, body.node, command.identity, *options))
        if not (self._is_lone(command) and self._append_lone(request, reply, ack)):
            host.engine.append(request, done)

    def _publish_far(self, far: FarTopics, command: Publish, reply: Reply) -> None:
        """Have the core of the topic execute the write. Without its answer the connection ends."""

        def done(result: bytes | RequestError | None) -> None:
            self._is_long_far = False
            if result is None:
                self.on_core_gone("it is unknown whether a publish was executed, because its core is gone")
            else:
                request_id = command.request_id
                self._on_done(reply, replies.far_ack(request_id, result) if isinstance(result, bytes) else result)

        self._is_long_far = len(command.message) > self._host.long_bodies.step_bytes
        far.publish(command.topic, command.message, done, return_seqs=command.return_seqs)

    def _is_lone(self, command: Publish) -> bool:
        """Return whether a publish is all that is known to be in progress or to come.

        Only while this connection's own bytes are handled: many sessions may continue in one pass,
        and a commit in place for each would hold up the loop.
        """
        is_only = self._receiving and len(self._replies) == 1 and not self._framing.unread
        return is_only and command.frames is None and self._host.has_one_sender()

    def _append_lone(self, request: AppendRequest, reply: Reply, ack: Callable[[AppendResult], bytes]) -> bool:
        """Append in this call, if the write needs only its commit. Return whether it did.

        Before the records are visible, the ack is written, and nothing else happens. After that
        the session continues: it may read them or have routers copy them. Readers that stay get
        them next.
        """
        engine = self._host.engine

        def answer(result: AppendResult) -> None:
            reply.text = ack(result)
            self._replies.popleft()
            self._transport.write(text_frame(reply.text))

        try:
            if engine.append_lone(request, answer) is None:
                return False
        except TopicsError:
            return False  # `append` words the error
        if engine.settle_lone():
            self._settled = request.topic
        self._on_answered()
        return True

    def _subscribe(self, command: Subscribe, reply: Reply) -> None:
        if not self._rights.read:
            raise RequestError("forbidden", "subscribing needs the scope read")
        if command.violation is not None:
            raise command.violation
        _refuse_nothing(command.starts, command.prefixes)
        for name in command.starts:
            self._check_name(name)
        self._subscriptions.begin(command, self._rights.within, lambda result: self._on_done(reply, result))

    def _unsubscribe(self, command: Unsubscribe, reply: Reply) -> None:
        if command.violation is not None:
            raise command.violation
        _refuse_nothing(command.topics, command.prefixes)
        self._subscriptions.leave(command.topics, command.prefixes)
        self._on_done(reply, replies.unsubscribed(command.request_id, command.topics, command.prefixes))

    def _check_name(self, name: str) -> None:
        if not self._rights.allows(name):
            raise name_forbidden(name)

    # --- replies -----------------------------------------------------------------------------------------------------
    def _on_done(self, reply: Reply, result: bytes | BaseException) -> None:
        """Send the reply, or the error, of a command that is done, in the order of commands."""
        if self._ended:
            return
        if isinstance(result, bytes):
            text = result
        else:
            text = replies.refusal(reply.request_id, as_request_error(result))
            if isinstance(result, ShareSpentError):
                result.ask_later()  # publishes keep their order, so this one cannot wait
            # Its frames hold the message, which holds the violation found in it: a cycle.
            result.__traceback__ = None
        reply.text = text
        waiting = self._replies
        if waiting[0] is not reply:
            self._withhold()
            return
        waiting.popleft()
        self._transport.write(text_frame(text))
        while waiting and (said := waiting[0].text) is not None:
            waiting.popleft()
            self._withheld -= 1
            self._transport.write(text_frame(said))
        self._on_answered()

    def _withhold(self) -> None:
        """Pause deliveries until a reply is sent whose records may be readable."""
        self._withheld += 1
        self._subscriptions.pause()

    def _on_ack_turn(self, answer: Callable[[Any], None], result: object) -> None:
        """Answer a publish, one of very many that a commit has decided."""
        self._withheld -= 1
        try:
            answer(result)
        except Exception:
            self._on_bug()

    def _on_answered(self) -> None:
        if self._closing:
            self._say_goodbye()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if not self._ended:
            self._pump()
        if not (self._ended or self._withheld or self._transport.over_high_water):
            # Writes of one commit become readable together, but are acknowledged one by one.
            # Records of a publish may be readable already, before its ack, which comes next.
            self._subscriptions.go_on(soon=bool(self._replies))

    # --- the end -----------------------------------------------------------------------------------------------------
    def _settle_reading(self) -> None:
        """Pause reading while commands wait and more than `HELD_BYTES` of input is held."""
        waits = self._framing.held_bytes > HELD_BYTES and (
            self._next is not None or self._in_line or self._closing or self._transport.over_high_water
        )
        if waits != self._paused:
            self._paused = waits
            if waits:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _say_goodbye(self) -> None:
        """Notify the client and close, once no command is in progress."""
        if self.busy:
            return
        self._close_with_error(
            "server_shutting_down", "the server is shutting down", GOING_AWAY, "server shutting down"
        )

    def _close_with_error(self, code: str, message: str, close_code: int, reason: str) -> None:
        """Send an error and a close frame, and close."""
        self._transport.write(text_frame(replies.error(None, code, message)))
        self._transport.write(self._framing.close(close_code, reason))
        self._end()
        self._transport.close()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._replies.clear()
        self._next, self._long = None, b""
        self._subscriptions.end()
        if self._far is not None:
            self._far.end()
        if self._host.lone is not None:
            self._host.lone.end(self)
        release, self._release = self._release, _nothing
        release()


def _nothing() -> None:
    """The `release` of an ended session, which thereby refers to nothing that refers to it."""


def _refuse_nothing(topics: Collection[str], prefixes: Collection[str]) -> None:
    if not (topics or prefixes):
        raise RequestError("invalid_request", "topic, topics or prefixes is required: name at least one")
