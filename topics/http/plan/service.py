"""The state that all connections of a server share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topics.clock import Clock
from topics.common.histograms import Histogram
from topics.common.memory import MemoryReturns
from topics.config import Config
from topics.engine.bodies.long_bodies import LongBodies
from topics.engine.bodies.write_body import WriteScanner
from topics.engine.delivery.audience import Audience
from topics.engine.shared.limits import ShareSpentError
from topics.engine.values.name_rules import Prefixes
from topics.errors import RequestError
from topics.http.access.guard import Guard
from topics.http.access.keyring import NO_KEYS, Keyring
from topics.http.access.origin import HostRule
from topics.http.access.principal import Principal
from topics.http.access.routes import RouteTable
from topics.http.openapi.description import Description
from topics.http.plan.access_log import AccessLog
from topics.http.plan.answer_turns import AnswerTurns
from topics.http.plan.answered import Answered
from topics.http.plan.engine_api import EngineApi
from topics.http.plan.gatekeeping import Gate
from topics.http.plan.in_flight import InFlight
from topics.http.plan.plan import Elsewhere, Plan, Planner
from topics.http.plan.request_turns import RequestTurns
from topics.http.streams.open_streams import OpenStreams, StreamLoop
from topics.http.wire.compression import Compressor
from topics.http.wire.parser import open_parser
from topics.http.wire.response import ResponseWriter
from topics.http.wire.transport import Transport

_SERVED = 256


class MetricsPages(Protocol):
    """The metrics page, rendered in turns with other work. `done` gets the page or the error."""

    def text(self, within: Prefixes, done: Callable[[bytes | Exception], None]) -> None:
        """Render the Prometheus text format 0.0.4.

        within: prefixes of the topics shown one by one.
        """

    def json(self, done: Callable[[bytes | Exception], None]) -> None: ...


class Probes(Protocol):
    """The server as the probes and the metrics page see it; implemented in `server/`."""

    def uptime_ms(self) -> int: ...

    def not_ready(self) -> RequestError | None:
        """Return why the server should get no traffic, or None.

        The reasons are recovery, draining and read-only.
        """

    def topic_count(self) -> int: ...

    @property
    def scrapes(self) -> MetricsPages: ...


class Waiting(Protocol):
    """A call that waits for room. See `topics.http.plan.call.Call`."""

    body: bytes | bytearray | memoryview
    held_bytes: int

    @property
    def answered(self) -> bool: ...

    def execute_again(self) -> None: ...


class AsksForRoom(Protocol):
    """The shares that the cores of a server have of its limits."""

    def ask(self, error: ShareSpentError, call: Waiting) -> bool:
        """Ask the other cores for what a call lacks, and execute it again once they have answered.

        False: too many calls wait.
        """

    def ask_for_room(self, limit: str, more: int) -> None:
        """Ask the other cores for more of a limit, for what is tried again later."""


class OtherCores(Elsewhere, Protocol):
    """The other cores of a server, which own topics, too."""

    def give(self, transport: Transport, core: int, unread: Callable[[], bytes], stayed: Callable[[int], None]) -> bool:
        """Begin to give a connection to another core, between two requests. False: it stays.

        unread(): called once; the bytes that were received and are not handled. After it the
        connection is lost, or `stayed(errno)` is called, because it could not be given.
        """

    def owns(self, name: str) -> bool:
        """Return whether this core has the slot of a name."""

    @property
    def shares(self) -> AsksForRoom: ...

    def far_topic(self, plan: Plan) -> FarTopic | None:
        """Return the topic of a relayed write, for plain writes with the rights of this one.

        None: the request is another one.
        """


FarName = tuple[int, int, Principal | None]
"""A request that another core answers: its connection (`ref`), its flags, and who counts it."""


class FarTopic(Protocol):
    """A topic that another core owns, as the lane sees it."""

    def ask(
        self,
        flags: Sequence[int],
        bodies: Sequence[bytes],
        names: Sequence[FarName],
        answers: FarAnswers,
        *,
        at_once: bool = False,
    ) -> bool:
        """Have the core answer plain writes. False: it is not asked, by this path.

        flags: those of the scan. names: for the answers. at_once: not at the end of the pass.
        """


class FarAnswers(Protocol):
    """The answers to plain writes that another core has given; each name gets one."""

    def answer_whole(self, names: Sequence[FarName], sizes: Sequence[int], text: memoryview) -> None:
        """Send answers of HTTP/1.1, one after the other in `text`."""

    def answer(self, name: FarName, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer with what the other core has answered."""

    def waits(self, name: FarName) -> bool:
        """Return whether its client waits for the answer."""

    def drop(self, name: FarName) -> None:
        """End a request without an answer, because it is unknown whether it was executed."""


class ServiceLoop(StreamLoop, Protocol):
    """The part of `topics.loop.loop.Loop` that requests use."""

    @property
    def clock(self) -> Clock: ...
    def has_one_sender(self) -> bool: ...
    def has_few_senders(self) -> bool: ...
    def again(self) -> None: ...


def _no_websocket(_call: object) -> None:
    raise RequestError("not_found", "this server speaks no WebSocket")


class Service:
    """The shared state of a server's HTTP side, on one thread; `server/` builds and switches it.

    It has no engine and admits what `gate` lets pass, until `serve`.
    """

    def __init__(
        self,
        config: Config,
        routes: RouteTable,
        probes: Probes,
        loop: ServiceLoop,
        keyring: Keyring = NO_KEYS,
        *,
        gate: Gate | None = None,
        open_websocket: Callable[[Any], None] = _no_websocket,
        access_log: AccessLog | None = None,
        watch_audience: Audience | None = None,
        cores: OtherCores | None = None,
    ) -> None:
        """access_log: gets a line for each answer. watch_audience: that of streams of one topic.
        cores: the other ones; None if there are none.

        open_websocket: handles the call of an upgrade whose path and method are valid.
        """
        self.config = config
        self.now_ns = loop.clock.monotonic_ns
        of_cores = () if cores is None else (cores.owns, cores.shares.ask_for_room)
        self.streams = OpenStreams(config, loop, watch_audience, *of_cores)
        self.key_id_of = keyring.key_id_of
        self.turns = RequestTurns(loop, self.now_ns, config.pass_requests_us)
        self.answer_turns = AnswerTurns(loop)
        self.long_bodies = LongBodies(config, loop)
        self.long_commands = LongBodies(config, loop)
        """Turns of small bodies that take long to unpack, so that they wait for no megabytes."""
        self.memory_returns = MemoryReturns(loop.call_later)
        self.probes = probes
        self.hosts = HostRule(config.host, config.allowed_hosts, config.allowed_origins, enabled=config.host_check)
        self.planner = Planner(
            routes,
            open_parser(config.http_parser),
            self.hosts,
            Guard(keyring, probe_auth=config.probe_auth),
            max_head_bytes=config.max_head_bytes,
            max_head_fields=config.max_head_fields,
            max_body_bytes=config.max_body_bytes,
            max_command_bytes=config.max_command_bytes,
            elsewhere=cores,
        )
        self.cores = cores
        self.writer = ResponseWriter()
        gzip = config.gzip_level, config.gzip_min_bytes, config.gzip_max_bytes
        self.compressor = Compressor(*gzip, self._spend_reading)
        self.scanner = WriteScanner(config)
        self.step_bytes = config.pass_body_bytes or 1 << 62
        """Longer bodies are processed in turns, and not copied."""
        self.asks_for_keys = bool(keyring)
        self.description = Description(routes.routes, config, asks_for_keys=self.asks_for_keys)
        self._gate = self.gate = gate
        """A check of every plan, between the keys and the routing errors; None lets all pass."""
        self.closing = False
        """Whether every answer closes its connection (shutdown)."""
        self.open_websocket = open_websocket
        self.tick = 0
        """Seconds, roughly. Connections note it as the time at which they began to wait."""
        self.served: deque[Plan] = deque(maxlen=_SERVED)
        """Plans of the newest requests of HTTP/1.1 outside the lane, which learns from them."""
        self.in_flight = InFlight()
        self.routes = routes
        self.answered = Answered()
        self.access_log = access_log
        self.refused_total = 0
        """Requests answered 4xx or 5xx, malformed ones included."""
        self.sampling = False
        """Whether the next write of this pass is timed.

        One write per pass is, because timing all of them would cost as much as the timed work.
        """
        self.parse = Histogram()
        """Times of sampled writes: from the whole head and body to the rows."""
        self.append = Histogram()
        """Times of sampled writes: admission, seqs, frames in the log's batch."""
        self.has_one_sender = loop.has_one_sender
        self.has_few_senders = loop.has_few_senders
        self.again, self.another_pass = loop.again, loop.another_pass
        self._engine: EngineApi | None = None

    @property
    def engine(self) -> EngineApi:
        """The engine. Routes that need it are refused as not ready until it is set."""
        assert self._engine is not None, "a request passed the gate before recovery had ended"
        return self._engine

    def on_keys_changed(self, key_ids: frozenset[int]) -> int:
        """Replace the valid keys; end streams, some in each pass, and drop sessions of others.

        Return the number of streams that end.
        """
        self.planner.forget()
        return self.streams.end_others(key_ids)

    def serve(self, engine: EngineApi) -> None:
        """Answer requests from `engine` from now on, past the gate."""
        self._engine = engine
        self.gate = None

    def drain(self) -> None:
        """Ask the gate again, and make every answer the last one of its connection."""
        self.gate = self._gate
        self.closing = True

    def _spend_reading(self, size: int) -> None:
        if self._engine is not None:
            self._engine.spend_reading(size)
