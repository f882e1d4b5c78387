"""One server: a listener, HTTP and the engine, from the bound port to the last closed file."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from topics.config import Config
from topics.engine.delivery.audience import Audience
from topics.engine.shared.outside import Outside
from topics.errors import RequestError, TopicsError, UsageError, without_paths
from topics.http.access.keyring import parse_keys
from topics.http.lane.lane import Lane
from topics.http.plan.access_log import AccessLog
from topics.http.plan.service import Service
from topics.http.plan.shared_pages import SharedPages
from topics.http.route_table import route_table
from topics.http.spanning.inner_orders import JoinedByRelays
from topics.http.spanning.spanning_table import spanning_table
from topics.http.streams import watch_stream
from topics.http.wire.error_answers import envelope
from topics.http.wire.response import ResponseWriter
from topics.loop.connection import Connection
from topics.loop.connection_table import SHARED_BYTES_MAX
from topics.loop.doors.listener import Listener
from topics.loop.doors.mailbox import Mailbox
from topics.loop.loop import Loop, PassEnd
from topics.loop.streams import StreamLimits
from topics.loop.tasks import Cancelled, Task
from topics.server.access_log_file import AccessLogFile
from topics.server.backend import Backend, OpenBackend, ServedEngine
from topics.server.cores.neighbours import Neighbours
from topics.server.gate import Gate, ServerState
from topics.server.handler import HttpHandler
from topics.server.keys_file import read_keys_file, with_keys_of_file
from topics.server.metrics_page import MetricsValues, ServerMetrics
from topics.server.port_file import shown_address, write_port_file
from topics.server.process_numbers import ReadProcess
from topics.server.scrapes import Scrapes
from topics.server.shutdown import drain
from topics.server.startup import check_address
from topics.server.timeouts import Sweep
from topics.server.websocket import WebSockets
from topics.ws import subscriptions

_log = logging.getLogger("topics.server")


class Server:
    """One server on a loop that the caller runs.

    The constructor binds the address, `start` begins recovery, and `stop` begins the end.

    read_process(loop): awaited for the numbers of the process that the metrics page shows; None:
        it shows none.
    on_ready(): called when requests are served.
    on_end(code): called when everything is closed; 0 after a graceful stop, 1 if recovery failed.
    neighbours: the other cores, which listen on the same address; None if there are none.
    Raises: UsageError, the bound address can be reached from other machines and there are no keys.
    """

    def __init__(
        self,
        config: Config,
        loop: Loop,
        open_backend: OpenBackend,
        *,
        max_connections: int = 0,
        read_process: ReadProcess | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_end: Callable[[int], None] = lambda _code: None,
        neighbours: Neighbours | None = None,
    ) -> None:
        self._lasting_keys = parse_keys(config.api_keys, config.max_inflight_per_key)
        """The keys of the variable, which stay valid when the file is read again."""
        config = with_keys_of_file(config)
        self._keyring = keyring = parse_keys(config.api_keys, config.max_inflight_per_key)
        if config.api_keys:
            config = replace(config, api_keys="")  # from here on only digests are held
        self.config = config
        self.loop = loop
        self.access_log: AccessLogFile | None = None
        lines: AccessLog | None = None
        if config.access_log:
            self.access_log = AccessLogFile(loop, config)
            lines = AccessLog(config.access_log_format, loop.clock.now_ms, self.access_log.add)
        table = loop.use_connection_table() if config.http_lane != "off" else None
        self.gate = Gate()
        audience = None if table is None else Audience(table, SHARED_BYTES_MAX, subscriptions.shared_bytes)
        self._websockets = WebSockets(config, loop, audience, neighbours)
        routes = route_table(ui=config.ui == "on")
        if neighbours is not None:
            routes = spanning_table(routes, neighbours, SharedPages(loop, config.metrics_share_ms))
        self.service = Service(
            config,
            routes,
            self,
            loop,
            keyring,
            gate=self.gate.admit,
            open_websocket=self._websockets.open,
            access_log=lines,
            watch_audience=None if table is None else Audience(table, SHARED_BYTES_MAX, watch_stream.shared_bytes),
            cores=neighbours,
        )
        self.service.streams.at_drain.append(self._websockets.end_all)
        self.hurried = False
        """A second stop was requested: the server waits for nothing."""
        self._open_backend = open_backend
        self._neighbours = neighbours
        self._on_ready = on_ready
        self._on_end = on_end
        self._backend: Backend | None = None
        self._recovery: Task[None] | None = None
        self._stopping = False
        self._started_ns, self._started_ms = loop.clock.monotonic_ns(), loop.clock.now_ms()
        loop.on_pass_end(self._websockets.turns.next_pass, PassEnd.TURNS)
        loop.on_pass_end(self.service.answer_turns.next_pass, PassEnd.TURNS)
        loop.on_pass_end(self.service.turns.next_pass, PassEnd.TURNS)
        self.lane: Lane | None = None
        if table is not None:
            self.lane = Lane(self.service, table, keyring, int.from_bytes(loop.random_bytes(8), "little"))
            loop.on_pass_end(self.lane.answers.flush, PassEnd.ANSWERS)
        self._handler = HttpHandler(self.service, self.lane)
        metrics = ServerMetrics(
            loop, self.service, self._handler.requests, self.lane, self._snapshot, self.access_log, neighbours
        )
        self.scrapes = Scrapes(loop, metrics, config.metrics_share_ms, read_process)
        limits = StreamLimits(
            max_connections=max_connections,
            send_high_water_bytes=config.send_high_water_bytes,
            send_low_water_bytes=config.send_low_water_bytes,
            keepalive_ms=config.keepalive_ms,
            refusal=_refusal(),
        )
        self.listener: Listener = loop.listen(
            config.host, config.port, self._handler, config.listen_backlog, limits, shared=neighbours is not None
        )
        try:
            check_address(config, has_keys=bool(keyring), address=self.address[0])
        except UsageError:
            self.listener.close()
            raise
        self.mailbox: Mailbox | None = None
        if neighbours is not None:
            tables = None if self.lane is None else self.lane.tables
            self.mailbox = neighbours.join(self.service, self.listener, tables)
        self.service.hosts.listens_on(self.address[0])
        self._sweep = Sweep(loop, config, self.service, self._up_to_date_connections)

    def _up_to_date_connections(self) -> Iterator[Connection]:
        """Yield all connections, each updated with the lane's record of when it was last active."""
        lane = self.lane
        for conn in self.listener.connections:
            if lane is not None and conn.owned:
                lane.refresh(conn)
            yield conn

    @property
    def key_count(self) -> int:
        return len(self._keyring)

    def hang_up(self) -> None:
        """Read the file of keys again, and open the access log again (R-LIFE-10)."""
        if self.access_log is not None:
            self.access_log.open_again()
        if self.access_log is None or self.config.api_keys_file:
            self.reload_keys()

    def reload_keys(self) -> None:
        """Read the file of keys again. An error is logged, and the keys stay unchanged."""
        if not self.config.api_keys_file or not self._keyring:
            _log.warning("no keys are read again: they were not read from TOPICS_API_KEYS_FILE at the start")
            return
        try:
            keyring = parse_keys(read_keys_file(self.config.api_keys_file), self.config.max_inflight_per_key)
        except UsageError as error:
            _log.error("the keys stay as they were: %s", error)
            return
        if not keyring:
            _log.error(
                "the keys stay as they were: %s holds none, and every request would be admitted",
                self.config.api_keys_file,
            )
            return
        self._keyring.change_to(self._lasting_keys.and_of(keyring))
        if self.lane is not None:
            self.lane.change_keys(self._keyring)
        ended = self.service.on_keys_changed(self._keyring.key_ids)
        _log.info("keys read again: %d keys; %d streams of keys that are gone end", self.key_count, ended)

    @property
    def address(self) -> tuple[str, int]:
        """The bound host and port."""
        return self.listener.address

    @property
    def engine(self) -> ServedEngine | None:
        """The engine; None until recovery has ended."""
        return self._backend.engine if self._backend is not None else None

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start recovery; requests are answered 503 until it ends.

        Raises: OSError, the port file cannot be written.
        """
        if self.config.port_file:
            write_port_file(self.config.port_file, self.address)
        self._sweep.start()
        self._recovery = self.loop.spawn(self._recover(), "recovery")

    async def _recover(self) -> None:
        try:
            backend = await self._open_backend(self.loop, self.config, self._on_progress, self._outside())
        except Exception as error:
            expected = isinstance(error, TopicsError | OSError)
            _log.error(
                "the data in %s cannot be served: %s", self.config.data_dir, error, exc_info=None if expected else error
            )
            self.listener.close()
            if not self._stopping:
                self._end(1)
            return
        self._backend = backend
        if self._neighbours is not None:
            self._neighbours.shares.serve(backend.engine.limits)
        if self._stopping:
            return
        self.service.serve(backend.engine)
        self.gate.open()
        self._on_ready()
        took_ms = (self.loop.clock.monotonic_ns() - self._started_ns) // 1_000_000
        _log.info("ready after %d ms: %d topics", took_ms, self.topic_count())

    def _outside(self) -> Outside:
        cores = None if self._neighbours is None else JoinedByRelays(self._neighbours, self.service)
        return Outside(cores, self._sweep.is_memory_short)

    def _on_progress(self, share: float) -> None:
        self.gate.progress = min(max(share, 0.0), 1.0)

    def stop(self) -> None:
        """Begin a graceful stop; a second call hurries it."""
        if self._stopping:
            self.hurried = True
            return
        self._stopping = True
        if self.mailbox is not None:
            self.mailbox.stop_accepting()
        _log.info("stopping")
        self.loop.spawn(self._stop(), "shutdown")

    async def _stop(self) -> None:
        """Stop. The process ends even if this fails; the next start recovers the log."""
        code = 0
        try:
            await drain(self)
        except Exception:
            _log.exception("ending the connections failed by a bug of ours")
            code = 1
        recovery = self._recovery
        if recovery is not None and not recovery.done:
            # Recovery changes nothing that the next recovery could not do again, so it may be
            # cancelled at any point. It must end before the ring is closed, because its last
            # operations and the closing of its files need the ring.
            recovery.cancel()
            with contextlib.suppress(Cancelled):
                await recovery
        if self._backend is not None:
            try:
                await self._backend.close()
            except Exception as error:
                expected = isinstance(error, TopicsError | OSError)
                _log.error("closing the log failed: %s", error, exc_info=None if expected else error)
                code = 1
        if self.access_log is not None:
            await self.access_log.close()
        self._end(code)

    def _end(self, code: int) -> None:
        self._sweep.stop()
        self._on_end(code)

    @property
    def state(self) -> ServerState:
        """The state as its end was asked for, where the gate's is as requests meet it."""
        return ServerState.DRAINING if self._stopping else self.gate.state

    def status(self) -> str:
        """Return what the server does, in words, for a service manager."""
        if self._stopping:
            left = len(self.listener.connections)
            return f"stopping: {left} connections" if left else "stopping: closing the log"
        if self.gate.state is ServerState.RECOVERING:
            return f"recovering: {self.gate.progress:.0%} done"
        refusal = self.not_ready()
        return refusal.message if refusal is not None else f"serving on http://{shown_address(self.address)}"

    # --- probes ------------------------------------------------------------------------------------------------------
    def uptime_ms(self) -> int:
        return (self.loop.clock.monotonic_ns() - self._started_ns) // 1_000_000

    def not_ready(self) -> RequestError | None:
        refusal = self.gate.refusal()
        if refusal is None and self._backend is not None and self._backend.log.read_only:
            message = f"the log takes no writes any more: {without_paths(self._backend.log.read_only)}"
            return RequestError("not_ready", message, {"reason": "read_only"})
        return refusal

    def topic_count(self) -> int:
        return self._backend.engine.topic_count() if self._backend is not None else 0

    def _snapshot(self) -> MetricsValues:
        return MetricsValues(
            self._backend if self.gate.state is not ServerState.RECOVERING else None,
            ready=self.not_ready() is None,
            progress=self.gate.progress,
            uptime_ms=self.uptime_ms(),
            started_ms=self._started_ms,
        )


def _refusal() -> bytes:
    """Return the answer to a connection over the limit, which is closed after it."""
    error = RequestError("throttled", "too many connections")
    return ResponseWriter().render(429, envelope(error), headers=b"Retry-After: 1\r\n", connection=b"close")
