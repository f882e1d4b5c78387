"""A stream of JetStream, read from the sequence that the marks here name.

The stream is cut into chunks, whose messages are appended topic by topic. Each mark has the bounds
of its chunk, so a start begins with the newest chunk that any topic has, and leaves out what the
topic itself has of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topics.bridge.carried import SourceDownError, TargetDownError
from topics.bridge.incoming import BridgeMark, IncomingBatch, IncomingMessage
from topics.bridge.jetstream.jetstream_link import JetStreamLink
from topics.bridge.topic_source import TopicPatterns
from topics.errors import UsageError

_FROM, _TO = "from", "to"
_FETCH_MAX = 1000


class JetStreamSource:
    """One consumer of the subjects with the prefix. topics: those here that may have marks.

    The link is the source's own: it is closed with it, and if it cannot begin.
    """

    def __init__(
        self,
        link: JetStreamLink,
        stream: str,
        prefix: str,
        patterns: TopicPatterns,
        *,
        mark: Callable[[str], BridgeMark | None],
        topics: Iterable[str],
        is_once: bool,
    ) -> None:
        self._link = link
        self._stream = stream
        self._prefix = prefix
        self._patterns = patterns
        self._mark = mark
        self._is_once = is_once
        self._have: dict[str, int] = {}
        """By topic: the sequence up to which it has all."""
        self._due: Any = None
        self._expected = 1
        try:
            marks = [self._look(topic) for topic in topics]
            self._at = max((found.at.get(_FROM, 0) for found in marks if found is not None), default=0)
            self._left = self._pending = self._run(self._begin())
        except BaseException:
            self._link.close()
            raise

    @property
    def ended(self) -> bool:
        return self._is_once and self._left <= 0

    def next(self, wait_s: float) -> list[IncomingBatch]:
        messages = self._run(self._fetch(wait_s))
        found: dict[str, list[IncomingMessage]] = {}
        begin, at = self._at, self._at
        for message in messages:
            sequence = message.metadata.sequence
            if sequence.consumer != self._expected:
                raise SourceDownError(f"{self._link.url} has left out a message before {sequence.stream}")
            self._expected += 1
            self._left -= 1
            self._pending = message.metadata.num_pending
            at = sequence.stream
            topic = message.subject[len(self._prefix) :]
            if not self._patterns.match(topic):
                continue
            if topic not in self._have:
                self._look(topic)
            if at > self._have[topic]:
                headers = [(name, text.encode()) for name, text in (message.headers or {}).items()]
                place = f"message {at} of stream {self._stream}"
                found.setdefault(topic, []).append(IncomingMessage(message.data, None, headers, place))
        self._at = at
        return [IncomingBatch(topic, rows, {_FROM: begin, _TO: at}) for topic, rows in found.items()]

    def left(self) -> Mapping[str, int]:
        return {self._stream: max(0, self._pending)}

    def close(self) -> None:
        self._link.close()

    def _look(self, topic: str) -> BridgeMark | None:
        found = self._mark(topic)
        self._have[topic] = 0 if found is None else found.at.get(_TO, 0)
        return found

    async def _begin(self) -> int:
        """Make the consumer. Return how many messages it has now. Raises: UsageError."""
        import nats.js.errors  # noqa: PLC0415 - an optional package
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: PLC0415

        jetstream = self._link.jetstream
        try:
            await jetstream.stream_info(self._stream)
        except nats.js.errors.NotFoundError:
            raise UsageError(f"{self._link.url} has no stream {self._stream!r}: name one with --stream") from None
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._at + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=60.0,
            mem_storage=True,
        )
        self._due = await jetstream.pull_subscribe(f"{self._prefix}>", stream=self._stream, config=config)
        left: int = (await self._due.consumer_info()).num_pending
        return left

    async def _fetch(self, wait_s: float) -> list[Any]:
        import nats.errors  # noqa: PLC0415 - an optional package

        try:
            found: list[Any] = await self._link.until_closed(self._due.fetch(_FETCH_MAX, timeout=wait_s))
        except nats.errors.TimeoutError:
            return []
        return found

    def _run(self, call: Any) -> Any:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        try:
            return self._link.run(call)
        except (TargetDownError, nats.js.errors.APIError) as error:
            raise SourceDownError(str(error)) from error
