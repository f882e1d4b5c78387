"""Orders between the cores that have the two halves of a router, as requests of the relay."""

from __future__ import annotations

from functools import partial

import msgspec

from topics.engine.routers.far_messages import Order, Replied, Reply
from topics.errors import TopicsError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan.call import Call
from topics.http.plan.service import Service
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import PortionAnswer, away, error_in, is_away
from topics.http.spanning.portions import AskedCores, Destination, Portion

PATH = "order"
_MSGPACK = b"application/msgpack"
_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(Order)
_REPLIES = msgspec.msgpack.Decoder(Reply)


class RouterHalves:
    """The cores that have other halves than this one."""

    def __init__(self, cores: AskedCores, service: Service) -> None:
        self._cores = cores
        self._service = service
        self._plan = inner_plan(cores.inner, "POST", PATH, UNAUTHENTICATED, {})

    def ask(self, topic: str, order: Order, done: Replied) -> None:
        """Have the core that owns a topic execute an order."""
        core, service = self._cores.core_of(topic), self._service
        if core == self._cores.own:  # a path may come back
            service.engine.execute_order(order, done)
            return
        destination = Destination(core, partial(_pass_on, done))
        self._cores.ask(core, Portion(service, destination, self._plan, _ENCODER.encode(order), service.now_ns()))


def _pass_on(done: Replied, answer: PortionAnswer) -> None:
    if answer.status == 200:
        done(_REPLIES.decode(answer.body))
    elif is_away(answer):
        done(away(answer.core))
    else:
        done(error_in(answer))


def execute(call: Call) -> None:
    """Execute an order of another core."""

    def reply(result: Reply | TopicsError) -> None:
        if isinstance(result, TopicsError):
            call.fail(result)
        else:
            call.respond(200, _ENCODER.encode(result), _MSGPACK, b"")

    call.service.engine.execute_order(_ORDERS.decode(call.body), reply)
