"""Orders of one core to another, as requests of the relay: for routers, dead letters, backups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from topics.engine.queue import dead_messages
from topics.engine.routers import far_messages
from topics.errors import TopicsError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan.call import Call
from topics.http.plan.service import Service
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


class RouterHalves:
    """The cores that have other halves than this one."""

    def __init__(self, cores: AskedCores, service: Service) -> None:
        self._cores = cores
        self._service = service
        self._plan = inner_plan(cores.inner, "POST", OF_ROUTERS, UNAUTHENTICATED, {})

    def ask(self, topic: str, order: _Order, done: Callable[[Any], None]) -> None:
        """Have the core that owns a topic execute an order."""
        core, service = self._cores.core_of(topic), self._service
        if core == self._cores.own:  # a path may come back
            service.engine.execute_order(order, done)
            return
        destination = Destination(core, partial(_pass_on, done, _FAR_REPLIES.decode))
        self._cores.ask(core, Portion(service, destination, self._plan, _ENCODER.encode(order), service.now_ns()))


class BackupCores:
    """The cores that write one backup."""

    def __init__(self, cores: AskedCores, service: Service) -> None:
        self._cores = cores
        self._service = service
        self._plan = inner_plan(cores.inner, "POST", OF_BACKUPS, UNAUTHENTICATED, {})

    @property
    def own(self) -> int:
        return self._cores.own

    @property
    def count(self) -> int:
        return self._cores.count

    def ask_to_copy(self, core: int, order: bytes, done: Callable[[bytes | TopicsError], None]) -> None:
        """Have a core execute an order, encoded."""
        service = self._service
        if core == self._cores.own:
            service.engine.backups.execute(order, done)
            return
        destination = Destination(core, partial(_pass_on, done, bytes))
        self._cores.ask(core, Portion(service, destination, self._plan, order, service.now_ns()))


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
