"""Requests for the metrics page of one core: rendered in turns with other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topics.engine.values.name_rules import Prefixes
from topics.http.plan.shared_pages import Made, SharedPages
from topics.loop.loop import Loop
from topics.server.metrics_page import ServerMetrics
from topics.server.process_numbers import ProcessNumbers, ReadProcess
from topics.store.disk.time_slices import TimeSlices

_TURN_NS = 2_000_000

Rendered = bytes | Exception
Done = Callable[[Rendered], None]
Pieces = Callable[[ProcessNumbers | None], Iterator[bytes]]


class Scrapes:
    """Answers requests for the page, and shares it where they are frequent."""

    def __init__(self, loop: Loop, metrics: ServerMetrics, share_ms: int, read_process: ReadProcess | None) -> None:
        self._loop = loop
        self._read_process = read_process
        self._metrics = metrics
        self._pages: SharedPages[Prefixes | None, Rendered] = SharedPages(loop, share_ms)
        """The pages, by the topics shown; None is the short form."""

    def text(self, within: Prefixes, done: Done) -> None:
        """Request the page with these topics, in Prometheus text format 0.0.4."""
        self._ask(within, lambda process: self._metrics.text(within, process), done)

    def json(self, done: Done) -> None:
        """Request the short form."""
        self._ask(None, lambda _process: self._metrics.json(), done)

    def _ask(self, key: Prefixes | None, pieces: Pieces, done: Done) -> None:
        read_process = None if key is None else self._read_process
        self._pages.ask(key, done, lambda made: self._loop.spawn(self._render(pieces, read_process, made), "metrics"))

    async def _render(self, pieces: Pieces, read_process: ReadProcess | None, made: Made[Rendered]) -> None:
        loop = self._loop
        turns = TimeSlices(loop, _TURN_NS)
        rendered: Rendered
        try:
            process = None if read_process is None else await read_process(loop)
            content: list[bytes] = []
            for piece in pieces(process):
                content.append(piece)
                if turns.over:
                    await turns.rest()
            rendered = b"".join(content)
        except Exception as error:
            rendered = error
        made(rendered, isinstance(rendered, bytes))
