"""Requests for the metrics page: rendered in turns with other work, shared if they are frequent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topics.engine.values.name_rules import Prefixes
from topics.http.access.rate_limit import Allowance
from topics.loop.loop import Loop
from topics.server.metrics_page import ServerMetrics
from topics.server.process_numbers import ProcessNumbers, ReadProcess
from topics.store.disk.time_slices import TimeSlices

_TURN_NS = 2_000_000
_BURST = 10
"""Pages rendered one after another before they are shared."""
_MS = 1_000_000

Done = Callable[[bytes | Exception], None]
Pieces = Callable[[ProcessNumbers | None], Iterator[bytes]]


class Scrapes:
    """Answers a request with a page begun after it; beyond the burst, one up to `share_ms` old."""

    def __init__(self, loop: Loop, metrics: ServerMetrics, share_ms: int, read_process: ReadProcess | None) -> None:
        self._loop = loop
        self._read_process = read_process
        self._metrics = metrics
        self._share_ns = share_ms * _MS
        self._allowance = Allowance(_BURST, 1000 // max(share_ms, 1), loop.clock.monotonic_ns())
        self._pages: dict[Prefixes | None, _Page] = {}
        """The pages, by the topics shown; None is the short form."""

    def text(self, within: Prefixes, done: Done) -> None:
        """Request the page with these topics, in Prometheus text format 0.0.4."""
        self._ask(within, lambda process: self._metrics.text(within, process), done)

    def json(self, done: Done) -> None:
        """Request the short form."""
        self._ask(None, lambda _process: self._metrics.json(), done)

    def _ask(self, key: Prefixes | None, pieces: Pieces, done: Done) -> None:
        now_ns = self._loop.clock.monotonic_ns()
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        allowed = self._allowance.spend(1, now_ns)
        if not allowed:
            # A refused request spends nothing, so the allowance recovers as soon as a flood ends.
            self._allowance.earn(1)
        if not allowed and page.content and now_ns - page.began_ns <= self._share_ns:
            done(page.content)
            return
        page.waiting.append(done)
        if not page.running:
            page.running = True
            self._loop.spawn(self._make(key, page, pieces), "metrics")

    async def _make(self, key: Prefixes | None, page: _Page, pieces: Pieces) -> None:
        loop = self._loop
        while page.waiting:
            answers, page.waiting = page.waiting, []
            began_ns = loop.clock.monotonic_ns()
            turns = TimeSlices(loop, _TURN_NS)
            made: bytes | Exception
            try:
                process = None if self._read_process is None or key is None else await self._read_process(loop)
                content: list[bytes] = []
                for piece in pieces(process):
                    content.append(piece)
                    if turns.over:
                        await turns.rest()
                made = page.content = b"".join(content)
                page.began_ns = began_ns
            except Exception as error:
                made = error
            for done in answers:
                done(made)
        page.running = False
        loop.call_later(self._share_ns, lambda: self._forget(key, page))

    def _forget(self, key: Prefixes | None, page: _Page) -> None:
        """Drop a page that is too old to be shared, unless it was rendered again meanwhile."""
        age_ns = self._loop.clock.monotonic_ns() - page.began_ns
        if not page.running and age_ns >= self._share_ns and self._pages.get(key) is page:
            del self._pages[key]


class _Page:
    """The latest rendered page, and the callbacks that wait for the next."""

    __slots__ = ("began_ns", "content", "running", "waiting")

    def __init__(self) -> None:
        self.began_ns = 0
        self.content = b""
        self.running = False
        self.waiting: list[Done] = []
