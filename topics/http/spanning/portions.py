"""The portions of a request that several cores answer, this one among them.

    call of a client -> one portion a core -> their answers, in the order of the cores -> one answer

A portion is a call without a client: the core that has the connection has checked everything, and
has counted the request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, Protocol

from topics.common.topic_names import is_topic_name
from topics.errors import as_request_error
from topics.http.access.routes import RouteTable
from topics.http.plan.call import Call
from topics.http.plan.plan import Plan
from topics.http.relay.relayed_head import SpanningRoute
from topics.http.spanning.portion_answers import UNKNOWN, PortionAnswer, failed
from topics.http.wire.error_answers import envelope, extra_headers, status_of
from topics.http.wire.response import JSON
from topics.http.wire.stream import Stream
from topics.http.wire.upgrade import OpenUpgraded

Took = Callable[[PortionAnswer], None]
Joined = Callable[[list[PortionAnswer]], None]
Steps = Generator[None, None, None]


class AskedCores(Protocol):
    """The cores of a server, as portions see them."""

    @property
    def own(self) -> int: ...

    @property
    def count(self) -> int: ...

    def core_of(self, topic: str) -> int:
        """Return the core that owns a topic."""

    def elsewhere(self, topic: str) -> int | None:
        """Return the core that owns a topic, if it is another one than this."""

    @property
    def inner(self) -> RouteTable:
        """The routes that cores ask each other for."""

    def ask(self, core: int, portion: Call) -> None:
        """Have another core answer a portion."""


def far_core_of(cores: AskedCores, name: str) -> int | None:
    """Return the other core that owns a topic. What is no name of one is refused by this core."""
    return cores.elsewhere(name) if is_topic_name(name) else None


class Destination:
    """The destination of a core's answer to its portion."""

    upgrades = False
    received_bytes = 0
    peer = ("", 0)

    __slots__ = ("_core", "_took")

    def __init__(self, core: int, took: Took) -> None:
        self._core = core
        self._took = took

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        self._took(PortionAnswer(self._core, status, body, content_type, headers))

    def respond_in_parts(self, portions: Sequence[bytes], headers: bytes) -> None:
        self.respond(200, b"".join(portions), JSON, headers)

    def open_stream(
        self,
        status: int,
        content_type: bytes,
        headers: bytes,
        on_drained: Callable[[], None],
        on_disconnect: Callable[[], None],
    ) -> Stream:
        raise AssertionError("a portion is no stream")

    def upgrade(self, head: bytes, open_upgraded: OpenUpgraded) -> None:
        raise AssertionError("a portion is no upgrade")

    def drop(self) -> None:
        self.respond(UNKNOWN, b"", b"", b"")

    def wait_began(self) -> None:
        """Do nothing: the call of the client waits."""


class Portion(Call):
    """The portion of one core. What concerns a client is done for the whole request."""

    __slots__ = ()

    def reply(self, body: bytes, status: int = 200) -> None:
        self._respond(status, body, JSON, b"")

    def reply_around(self, before: bytes, shared: bytes, after: bytes) -> None:
        self._respond(200, before + shared + after, JSON, b"")

    def respond(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        self._respond(status, body, content_type, headers)

    def pass_on(self, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        self._respond(status, body, content_type, headers)

    def _fail(self, error: BaseException) -> None:
        request_error = as_request_error(error)
        error.__traceback__ = None
        self._respond(status_of(request_error), envelope(request_error), JSON, extra_headers(request_error))

    def _head_ready(self, status: int, size: int | None = None) -> None:
        self._exchange = self.on_disconnect = None

    def _handle(self) -> None:
        route = self.plan.route
        if isinstance(route, SpanningRoute):
            route = route.portion
        assert route is not None, "a route without portions"
        route.handler(self)

    def run(self) -> None:
        """Have this core answer."""
        try:
            self._handle()
        except Exception as error:
            self.fail(error)


class ToAsk(NamedTuple):
    """The request for the portion of a core."""

    plan: Plan
    body: bytes = b""


def ask_each(call: Call, cores: AskedCores, asked: Mapping[int, ToAsk], then: Joined) -> None:
    """Have these cores answer their portions; pass the answers to `then`, in the order of `asked`.

    After the client has left, nothing is passed on, and portions that wait end.
    """
    answers: dict[int, PortionAnswer] = {}

    def took(answer: PortionAnswer) -> None:
        answers[answer.core] = answer
        if len(answers) == len(asked) and not call.answered:
            then([answers[core] for core in asked])

    _begin(call, cores, asked, _portions(call, asked, took), lambda: len(answers) == len(asked))


def ask_each_or_fail(call: Call, cores: AskedCores, asked: Mapping[int, ToAsk], then: Joined) -> None:
    """Do as `ask_each`, and answer the call with the first error, which ends the other portions."""
    answers: dict[int, PortionAnswer] = {}
    has_failed = False

    def took(answer: PortionAnswer) -> None:
        nonlocal has_failed
        answers[answer.core] = answer
        if call.answered:
            return
        if failed(call, [answer]):
            has_failed = True
            for portion in portions:
                portion.abandon()
        elif len(answers) == len(asked):
            then([answers[core] for core in asked])

    portions = _portions(call, asked, took)
    _begin(call, cores, asked, portions, lambda: has_failed or len(answers) == len(asked))


def ask_until_first(call: Call, cores: AskedCores, asked: Mapping[int, ToAsk], then: Took) -> None:
    """Have these cores answer their portions; pass on the first answer, and end the others."""
    answers: list[PortionAnswer] = []

    def took(answer: PortionAnswer) -> None:
        answers.append(answer)
        if len(answers) == 1 and not call.answered:
            for portion in portions:
                portion.abandon()
            then(answer)

    portions = _portions(call, asked, took)
    _begin(call, cores, asked, portions, lambda: bool(answers))


def _portions(call: Call, asked: Mapping[int, ToAsk], took: Took) -> list[Portion]:
    service, now_ns = call.service, call.started_ns
    return [Portion(service, Destination(core, took), plan, body, now_ns) for core, (plan, body) in asked.items()]


def _begin(
    call: Call, cores: AskedCores, asked: Mapping[int, ToAsk], portions: list[Portion], is_done: Callable[[], bool]
) -> None:
    """Have each core answer its portion. They end with the client of the call."""

    def leave() -> None:
        for portion in portions:
            portion.abandon()

    for core, portion in zip(asked, portions, strict=True):
        if is_done():
            return
        if core == cores.own:
            portion.run()
        else:
            cores.ask(core, portion)
    if not (call.answered or is_done()):
        call.on_disconnect = leave


def ask_all(call: Call, cores: AskedCores, then: Joined, plan: Plan | None = None) -> None:
    """Have each core answer its portion; pass the answers to `then`, in the order of the cores.

    plan: of the portions; None: that of the call.
    """
    ask_each(call, cores, dict.fromkeys(range(cores.count), ToAsk(plan or call.plan, bytes(call.body))), then)


def run_steps(call: Call, steps: Steps) -> None:
    """Have steps that answer a call take turns with other work.

    An error of theirs is the answer.
    """
    call.service.long_commands.run(_guarded(call, steps))


def _guarded(call: Call, steps: Steps) -> Steps:
    try:
        yield from steps
    except Exception as error:
        call.fail(error)
