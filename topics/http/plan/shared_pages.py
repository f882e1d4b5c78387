"""Pages that many ask for: made after the request, and shared where requests are frequent."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from topics.http.access.rate_limit import Allowance
from topics.http.plan.service import ServiceLoop

_BURST = 10
"""Pages made one after another before they are shared."""
_MS = 1_000_000

Key = TypeVar("Key", bound=Hashable)
Content = TypeVar("Content")
Done = Callable[[Content], None]
Made = Callable[[Content, bool], None]
"""Takes a page when it is made, and whether later requests may be given it, too."""


class SharedPages(Generic[Key, Content]):
    """Gives each request a page begun after it; beyond the burst, one up to `share_ms` old."""

    def __init__(self, loop: ServiceLoop, share_ms: int) -> None:
        self._loop = loop
        self._share_ns = share_ms * _MS
        self._allowance = Allowance(_BURST, 1000 // max(share_ms, 1), loop.clock.monotonic_ns())
        self._pages: dict[Key, _Page[Content]] = {}

    def ask(self, key: Key, done: Done[Content], make: Callable[[Made[Content]], object]) -> None:
        """Call `done` with the page of a key.

        make: begins a page, and calls what it is given when that is made; requests of one key may
        be answered by one another's.
        """
        now_ns = self._loop.clock.monotonic_ns()
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        allowed = self._allowance.spend(1, now_ns)
        if not allowed:
            # A refused request spends nothing, so the allowance recovers as soon as a flood ends.
            self._allowance.earn(1)
        if not allowed and page.newest is not None and now_ns - page.began_ns <= self._share_ns:
            done(page.newest)
            return
        page.waiting.append(done)
        if not page.running:
            page.running = True
            self._begin(key, page, make)

    def _begin(self, key: Key, page: _Page[Content], make: Callable[[Made[Content]], object]) -> None:
        """Make a page for the requests that wait now. What comes later gets the next one."""
        answers, page.waiting = page.waiting, []
        began_ns = self._loop.clock.monotonic_ns()

        def made(content: Content, is_shared: bool) -> None:
            if is_shared:
                page.newest, page.began_ns = content, began_ns
            for done in answers:
                done(content)
            if page.waiting:
                self._begin(key, page, make)
            else:
                page.running = False
                self._loop.call_later(self._share_ns, lambda: self._forget(key, page))

        make(made)

    def _forget(self, key: Key, page: _Page[Content]) -> None:
        """Drop a page that is too old to be shared, unless a newer one was made meanwhile."""
        age_ns = self._loop.clock.monotonic_ns() - page.began_ns
        if not page.running and age_ns >= self._share_ns and self._pages.get(key) is page:
            del self._pages[key]


class _Page(Generic[Content]):
    """The newest page of a key, and the callbacks that wait for the next."""

    __slots__ = ("began_ns", "newest", "running", "waiting")

    def __init__(self) -> None:
        self.began_ns = 0
        self.newest: Content | None = None
        self.running = False
        self.waiting: list[Done[Content]] = []
