"""A stream of JetStream, read from the sequences that the marks here name.

Each mark has the sequence up to which its topic has all of its subject. So a start begins with the
first message that any topic lacks, and leaves out what other topics have after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from topics.bridge.bridge_errors import SourceDownError, TargetDownError
from topics.bridge.incoming import BridgeMark, IncomingBatch, IncomingMessage
from topics.bridge.jetstream.jetstream_link import JetStreamLink, refused
from topics.bridge.topic_source import TopicMatch
from topics.errors import UsageError

T = TypeVar("T")
_log = logging.getLogger("topics.bridge")
_TO = "to"
_FETCH_MAX = 1000
_ASKED_AT_ONCE = 100
"""The most requests about single subjects that wait for their answers at the same time."""
_SUBJECTS_MAX = 100_000
"""The most subjects whose names a server of NATS lists in one answer."""


class _Subjects(NamedTuple):
    """The subjects with the prefix of which a stream has messages."""

    found: list[str]
    last_sequence: int
    """The last sequence of the stream."""
    is_empty: bool
    """Whether the stream has no message, of whatever subject."""


class JetStreamSource:
    """One consumer of the subjects with the prefix.

    The link is the source's own: it is closed with it, and if it cannot begin.
    """

    def __init__(
        self,
        link: JetStreamLink,
        stream: str,
        prefix: str,
        patterns: TopicMatch,
        *,
        mark: Callable[[str], BridgeMark | None],
        is_once: bool,
    ) -> None:
        self._link = link
        self._stream = stream
        self._prefix = prefix
        self._patterns = patterns
        self._mark = mark
        self._is_once = is_once
        self._have: dict[str, int] = {}
        """By topic: the sequence up to which it has all messages of its subject (`_had`)."""
        self._due: Any = None
        self._expected = 1
        try:
            self._at = self._start()
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
        at = self._at
        for message in messages:
            sequence = message.metadata.sequence
            if sequence.consumer != self._expected:
                raise SourceDownError(f"{self._link.url} has left out a message before {sequence.stream}")
            self._expected += 1
            self._left -= 1
            self._pending = message.metadata.num_pending
            at = sequence.stream
            topic = message.subject[len(self._prefix) :]
            if self._patterns.match(topic) and at > self._had(topic):
                headers = [(name, text.encode()) for name, text in (message.headers or {}).items()]
                place = f"message {at} of stream {self._stream}"
                found.setdefault(topic, []).append(IncomingMessage(message.data, None, headers, place))
        self._at = at
        return [IncomingBatch(topic, rows, {_TO: at}) for topic, rows in found.items()]

    def left(self) -> Mapping[str, int]:
        return {self._stream: max(0, self._pending)}

    def count(self) -> Mapping[str, int]:
        topics = self._topics_of(self._run(self._subjects()))
        return dict(zip(topics, self._run_each(self._count_of, topics), strict=True))

    def close(self) -> None:
        self._link.close()

    def _had(self, topic: str) -> int:
        """Return the sequence up to which a topic here has all messages of its subject.

        It is read from the topic's mark the first time. 0: the topic has none of them.
        """
        if topic not in self._have:
            found = self._mark(topic)
            self._have[topic] = 0 if found is None else found.at.get(_TO, 0)
        return self._have[topic]

    def _topics_of(self, subjects: _Subjects) -> list[str]:
        """Return the topics of which the stream has messages."""
        topics = sorted(subject[len(self._prefix) :] for subject in subjects.found)
        found = [topic for topic in topics if self._patterns.match(topic)]
        for topic in found:
            self._had(topic)
        return found

    def _start(self) -> int:
        """Return the sequence before the first message that any topic lacks. Raises: UsageError."""
        subjects = self._run(self._subjects())
        topics = self._topics_of(subjects)
        if not topics:
            self._say_missing(subjects)
        if not any(self._have.values()):
            return 0
        return min([subjects.last_sequence, *self._run_each(self._before_first_lacking, topics)])

    def _say_missing(self, subjects: _Subjects) -> None:
        """Log that no topic matches, or refuse it of a bridge that is to end. Raises: UsageError.

        The stream may have had messages that it removed, as of a topic that was carried before.
        """
        if self._is_once and not subjects.is_empty and not any(map(self._had, self._patterns.names)):
            raise UsageError(
                f"--topics matches no topic of stream {self._stream} with the prefix {self._prefix!r}: mend it, "
                "--stream or --prefix, or leave out --once to wait for one"
            )
        _log.warning("stream %s has no message of a topic that --topics matches", self._stream)

    async def _subjects(self) -> _Subjects:
        """Return the subjects with the prefix. Raises: UsageError."""
        import nats.js.errors  # noqa: PLC0415 - an optional package

        every = f"{self._prefix}>"
        try:
            state = (await self._link.jetstream.stream_info(self._stream, subjects_filter=every)).state
        except nats.js.errors.NotFoundError:
            raise UsageError(f"{self._link.url} has no stream {self._stream!r}: name one with --stream") from None
        subjects = list(state.subjects or ())
        if len(subjects) >= _SUBJECTS_MAX:
            raise UsageError(
                f"stream {self._stream} has {_SUBJECTS_MAX} subjects {every} or more: narrow --prefix, and use several "
                "bridges, each with an --id of its own"
            )
        return _Subjects(subjects, state.last_seq, not state.messages)

    async def _before_first_lacking(self, topic: str) -> int:
        """Return the sequence before the first message that a topic lacks; 2**63: it has all."""
        import nats.js.errors  # noqa: PLC0415 - an optional package

        subject, after = f"{self._prefix}{topic}", self._have[topic]
        try:
            found = await self._link.jetstream.get_msg(self._stream, seq=after + 1, subject=subject, next=True)
        except nats.js.errors.NotFoundError:
            return 1 << 63
        before: int = found.seq - 1
        return before

    async def _count_of(self, topic: str) -> int:
        """Return how many messages a topic lacks."""
        jetstream, subject = self._link.jetstream, f"{self._prefix}{topic}"
        made = await jetstream.add_consumer(self._stream, _consumer(self._have[topic] + 1, subject))
        await jetstream.delete_consumer(self._stream, made.name)
        count: int = made.num_pending
        return count

    async def _begin(self) -> int:
        """Make the consumer. Return how many messages it has now."""
        every = f"{self._prefix}>"
        self._due = await self._link.jetstream.pull_subscribe(
            every, stream=self._stream, config=_consumer(self._at + 1, every)
        )
        left: int = (await self._due.consumer_info()).num_pending
        return left

    async def _fetch(self, wait_s: float) -> list[Any]:
        import nats.errors  # noqa: PLC0415 - an optional package

        try:
            found: list[Any] = await self._link.until_closed(self._due.fetch(_FETCH_MAX, timeout=wait_s))
        except nats.errors.TimeoutError:
            return []
        return found

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        try:
            return self._link.run(call)
        except TargetDownError as error:
            raise SourceDownError(str(error)) from error
        except nats.js.errors.APIError as error:
            found = refused(f"stream {self._stream} cannot be read", error)
            raise found if isinstance(found, UsageError) else SourceDownError(str(found)) from error

    def _run_each(self, call: Callable[[str], Coroutine[Any, Any, int]], topics: Sequence[str]) -> list[int]:
        found: list[int] = []
        for first in range(0, len(topics), _ASKED_AT_ONCE):
            found += self._run(_all_of([call(topic) for topic in topics[first : first + _ASKED_AT_ONCE]]))
        return found


def _consumer(start: int, subject: str) -> Any:
    """Return the configuration of a consumer that begins at a sequence."""
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: PLC0415 - an optional package

    return ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start,
        ack_policy=AckPolicy.NONE,
        filter_subject=subject,
        inactive_threshold=60.0,
        mem_storage=True,
    )


async def _all_of(calls: Sequence[Coroutine[Any, Any, int]]) -> list[int]:
    return await asyncio.gather(*calls)
