"""Orders of one core to another, as requests of the relay: for routers, dead letters, backups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from topics.engine.queue import dead_messages
from topics.engine.routers import far_messages
from topics.errors import TopicsError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.plan.service import AsksForRoom, Service
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import PortionAnswer, away, error_in, is_away
from topics.http.spanning.portions import AskedCores, Destination, Portion

OF_ROUTERS = "order"
OF_BACKUPS = "copy"
_MSGPACK = b"application/msgpack"
_ENCODER = msgspec.msgpack.Encoder()
_Order = far_messages.Order | dead_messages.DeadOrder
_Reply = far_messages.Reply | dead_messages.DeadReply
_FAR_ORDERS = msgspec.msgpack.Decoder(_Order)
_FAR_REPLIES = msgspec.msgpack.Decoder(_Reply)


class ServedCores(AskedCores, Protocol):
    """The cores of a server, which share limits."""

    @property
    def shares(self) -> AsksForRoom: ...


class JoinedByRelays:
    """The cores of a server as the engine of one of them knows them: see `JoinedCores`."""

    def __init__(self, cores: ServedCores, service: Service) -> None:
        self._cores = cores
        self._service = service
        self.ask_for_room = cores.shares.ask_for_room
        self._of_routers = inner_plan(cores.inner, "POST", OF_ROUTERS, UNAUTHENTICATED, {})
        self._of_backups = inner_plan(cores.inner, "POST", OF_BACKUPS, UNAUTHENTICATED, {})

    @property
    def own(self) -> int:
        return self._cores.own

    @property
    def count(self) -> int:
        return self._cores.count

    def core_of(self, topic: str) -> int:
        return self._cores.core_of(topic)

    def ask(self, topic: str, order: _Order, done: Callable[[Any], None]) -> None:
        """Have the core that owns a topic execute an order."""
        core = self._cores.core_of(topic)
        if core == self._cores.own:  # a path may come back
            self._service.engine.execute_order(order, done)
        else:
            self._send(core, self._of_routers, _ENCODER.encode(order), partial(_pass_on, done, _FAR_REPLIES.decode))

    def ask_to_copy(self, core: int, order: bytes, done: Callable[[bytes | TopicsError], None]) -> None:
        """Have a core execute an order, encoded."""
        if core == self._cores.own:
            self._service.engine.backups.execute(order, done)
        else:
            self._send(core, self._of_backups, order, partial(_pass_on, done, bytes))

    def _send(self, core: int, plan: Plan, order: bytes, on_answer: Callable[[PortionAnswer], None]) -> None:
        service = self._service
        self._cores.ask(core, Portion(service, Destination(core, on_answer), plan, order, service.now_ns()))


def _pass_on(done: Callable[[Any], None], decode: Callable[[bytes], Any], answer: PortionAnswer) -> None:
    if answer.status == 200:
        done(decode(answer.body))
    elif is_away(answer):
        done(away(answer.core))
    else:
        done(error_in(answer))


def execute_far(call: Call) -> None:
    """Execute an order of another core about a router, or about dead letters."""
    call.service.engine.execute_order(_FAR_ORDERS.decode(call.body), partial(_reply_far, call))


def execute_copy(call: Call) -> None:
    """Execute an order of the core that writes a backup. It is given up with that core."""
    give_up = call.service.engine.backups.execute(bytes(call.body), partial(_reply, call))
    if not call.answered:
        call.on_disconnect = give_up


def _reply_far(call: Call, result: _Reply | TopicsError) -> None:
    _reply(call, result if isinstance(result, TopicsError) else _ENCODER.encode(result))


def _reply(call: Call, result: bytes | TopicsError) -> None:
    if isinstance(result, TopicsError):
        call.fail(result)
    else:
        call.respond(200, result, _MSGPACK, b"")
