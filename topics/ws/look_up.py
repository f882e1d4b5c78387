"""The beginnings of a subscribe's topics at the time of its reply. Source: wire contract 11.3."""

from __future__ import annotations

from collections.abc import Callable

from topics.common.values.begin import Begin, Beginning
from topics.engine.state.refusals import is_absent
from topics.engine.values.trampoline import Trampoline
from topics.errors import TopicsError
from topics.ws.host import WsFeeds

Found = dict[str, Beginning]


class LookUp:
    """Finds the cursor of one topic after the other; the first error is the result."""

    __slots__ = ("_done", "_error", "_feeds", "_found", "_left", "_lenient", "_names", "_over", "_taken_in")

    def __init__(
        self,
        feeds: WsFeeds,
        starts: dict[str, Begin],
        taken_in: dict[str, Begin],
        done: Callable[[Found | Exception], None],
        *,
        lenient: bool,
    ) -> None:
        """taken_in: the beginnings of topics that prefixes cover, which may be gone by now.

        done: called once with the beginnings, in the order of `starts` and `taken_in`; not called
        after `cancel`.
        lenient: leave missing topics out of the result, instead of failing.
        """
        self._feeds = feeds
        self._done = done
        self._lenient = lenient
        self._found: Found = {}
        self._error: Exception | None = None
        self._taken_in = taken_in
        self._left = [*starts.items(), *taken_in.items()][::-1]
        self._names = Trampoline(self._ask)
        self._over = False

    def go_on(self) -> None:
        self._names.go_on()

    def cancel(self) -> None:
        """Stop, because the connection has ended: `done` is not called."""
        self._over = True

    def _ask(self) -> bool:
        if self._over:
            return False
        if self._error is not None or not self._left:
            self._over = True
            self._done(self._found if self._error is None else self._error)
            return False
        name, begin = self._left.pop()
        try:
            self._feeds.begin(name, begin, lambda result: self._on_result(name, result))
        except Exception as error:
            self._error = error
            self._names.answered()
        return True

    def _on_result(self, name: str, result: Beginning | TopicsError) -> None:
        if isinstance(result, Beginning):
            self._found[name] = result
        elif not ((self._lenient or name in self._taken_in) and is_absent(result)):
            self._error = result
        self._names.answered()
