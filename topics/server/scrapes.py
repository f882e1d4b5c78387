"""Requests for the metrics page: made in turns with everybody else, and shared by those who ask too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topics.engine.values.name_rules import Prefixes
from topics.http.access.rate_limit import Allowance
from topics.loop.loop import Loop
from topics.server.metrics_page import ServerMetrics
from topics.store.checkpoint.time_slices import TimeSlices

_TURN_NS = 2_000_000
_BURST = 10
"""Pages that are made one after another before they are shared."""
_MS = 1_000_000

Done = Callable[[bytes | Exception], None]


class Scrapes:
    """Answers each request with a page begun after it came; from the burst on, with one up to `share_ms` old."""

    def __init__(self, loop: Loop, metrics: ServerMetrics, share_ms: int) -> None:
        self._loop = loop
        self._metrics = metrics
        self._share_ns = share_ms * _MS
        self._allowance = Allowance(_BURST, 1000 // max(share_ms, 1), loop.clock.monotonic_ns())
        self._pages: dict[Prefixes | None, _Page] = {}
        """By the topics shown; None: the short form."""

    def text(self, within: Prefixes, done: Done) -> None:
        """Prometheus text format 0.0.4, with these topics."""
        self._ask(within, lambda: self._metrics.text(within), done)

    def json(self, done: Done) -> None:
        """The short form."""
        self._ask(None, self._metrics.json, done)

    def _ask(self, key: Prefixes | None, pieces: Callable[[], Iterator[bytes]], done: Done) -> None:
        now_ns = self._loop.clock.monotonic_ns()
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        allowed = self._allowance.spend(1, now_ns)
        if not allowed:
            self._allowance.earn(1)  # who is turned away takes nothing: a flood is over when it is over
        if not allowed and page.content and now_ns - page.began_ns <= self._share_ns:
            done(page.content)
            return
        page.waiting.append(done)
        if not page.running:
            page.running = True
            self._loop.spawn(self._make(key, page, pieces), "metrics")

    async def _make(self, key: Prefixes | None, page: _Page, pieces: Callable[[], Iterator[bytes]]) -> None:
        loop = self._loop
        while page.waiting:
            answers, page.waiting = page.waiting, []
            began_ns = loop.clock.monotonic_ns()
            turns = TimeSlices(loop.clock, loop.next_pass, _TURN_NS)
            made: bytes | Exception
            try:
                content: list[bytes] = []
                for piece in pieces():
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
        """It is too old to be shared, unless it was made anew meanwhile."""
        age_ns = self._loop.clock.monotonic_ns() - page.began_ns
        if not page.running and age_ns >= self._share_ns and self._pages.get(key) is page:
            del self._pages[key]


class _Page:
    """The latest one made, and who waits for the next."""

    __slots__ = ("began_ns", "content", "running", "waiting")

    def __init__(self) -> None:
        self.began_ns = 0
        self.content = b""
        self.running = False
        self.waiting: list[Done] = []
