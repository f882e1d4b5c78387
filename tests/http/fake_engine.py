"""An engine that answers what the test says, at once or later; it remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from topics.engine.read.plain_reads import PlainReads
from topics.engine.values.name_rules import Prefixes
from topics.engine.values.results import Cancel, Done
from topics.errors import RequestError, TopicsError


class FakeReaders:
    """The named readers of an engine that has none."""

    def states(self, within: Prefixes) -> Iterator[tuple[str, list[Any]]]:
        return iter(())


class FakeArchive:
    """The archive of an engine that has none."""

    state = None

    def mirror_lags_ms(self) -> list[tuple[str, int]]:
        return []


class FakeEngine:
    """`answers[operation]` is the result or the error; an operation without one stays unanswered in `waiting`."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.waiting: list[Callable[[Any], None]] = []
        self.cancelled = 0
        self.refuses_writes = self.has_expired_enough = False
        self.readers = FakeReaders()
        self.archive = FakeArchive()
        self.throttle_window_ns = 0

    def _ask(self, operation: str, done: Done[Any], *arguments: Any) -> None:
        self.asked.append((operation, arguments))
        if operation in self.answers:
            done(self.answers[operation])
        else:
            self.waiting.append(done)

    def spend_reading(self, size: int) -> None:
        """It has no turns."""

    def refuse_write(self) -> TopicsError:
        return RequestError("throttled", "busy")

    @property
    def last(self) -> tuple[Any, ...]:
        return self.asked[-1][1]

    def put_topic(self, name: str, config: Any, done: Done[Any]) -> None:
        self._ask("put_topic", done, name, config)

    def patch_topic(self, name: str, patch: Any, done: Done[Any]) -> None:
        self._ask("patch_topic", done, name, patch)

    def state(self, name: str, *, touch: bool, with_attempts: bool = False, done: Done[Any]) -> None:
        self._ask("state", done, name, touch)

    def begin(self, name: str, begin: Any, done: Done[Any]) -> None:
        self._ask("begin", done, name, begin)

    def list_topics(  # noqa: PLR0917
        self, prefix: str, after: str, page_size: int, touch: bool, within: Prefixes, done: Done[Any]
    ) -> None:
        self._ask("list_topics", done, prefix, after, page_size, touch)

    def delete_topic(self, name: str, *, if_empty: bool, done: Done[Any]) -> None:
        self._ask("delete_topic", done, name, if_empty)

    def append(self, request: Any, done: Done[Any]) -> None:
        if request.violation is not None:
            done(request.violation)
            return
        self._ask("append", done, request)

    is_settled = True

    def settle_lone(self) -> bool:
        return True

    def append_lone(self, request: Any, on_committed: Any = None) -> Any:
        self.asked.append(("append_lone", (request,)))
        result = self.answers.get("append_lone")
        if result is not None and on_committed is not None:
            on_committed(result)
        return result

    def plain_topic(self, name: str) -> None:
        return None

    def append_rows_lone(self, topic: Any, rows: Any, on_committed: Any) -> Any:
        raise AssertionError("no topic is plain")

    def write_streak(self, framing: Any) -> Any:
        raise AssertionError("no write is committed alone")

    def will_take_plain(self, name: str) -> bool:
        return False

    def key_in_flight(self, name: str, key: bytes) -> bool:
        return False

    def reads_plain(self, name: str) -> bool:
        return False

    def read_plain(self, names: Sequence[str | None], reads: Any, count: int, long_bytes: int) -> PlainReads:
        raise AssertionError("no read is plain")

    def takes_plain(self, name: str) -> bool:
        return False

    def diff(self, name: str, query: Any, done: Done[Any]) -> Cancel:
        self._ask("diff", done, name, query)

        def cancel() -> None:
            self.cancelled += 1

        return cancel

    def checkpoint(self, wait_ms: int | None, done: Done[Any]) -> Cancel:
        self._ask("checkpoint", done, wait_ms)

        def cancel() -> None:
            self.cancelled += 1

        return cancel

    def wait(self, known: Any, wait_ms: int, done: Done[Any]) -> Cancel:
        self._ask("wait", done, known, wait_ms)

        def cancel() -> None:
            self.cancelled += 1

        return cancel

    def delete_records(self, name: str, before_seq: int | None, match: Any, done: Done[Any]) -> None:
        self._ask("delete_records", done, name, before_seq, match)

    def fails(self, operation: str, error: TopicsError) -> None:
        self.answers[operation] = error
