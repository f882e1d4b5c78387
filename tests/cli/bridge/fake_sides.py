"""Both sides of a bridge in memory, and a process that dies at a chosen step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from topics.bridge.bridge_errors import FencedError, SourceDownError, TargetDownError
from topics.bridge.bridge_messages import BridgeMessage, BridgePosition, TopicBatch
from topics.common.values.answers import TopicHead
from topics.errors import RequestError

PAGE = 3
"""Records of a page."""


class Killed(BaseException):
    """The end of the process."""


class StepCount:
    """Counts the steps of a life, and ends it or fails in the one that is chosen.

    at: the step, from 1 on; None: none. error: what is raised.
    """

    def __init__(self, at: int | None = None, error: type[BaseException] = Killed) -> None:
        self.count = 0
        self._at = at
        self._error = error

    def step(self) -> None:
        self.count += 1
        if self.count == self._at:
            raise self._error("a fault of the test")


@dataclass
class FakeTopic:
    incarnation: str
    head: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    gap: tuple[int, int] | None = None


class FakeServer:
    """The server that a bridge reads. A step is before each answer and after it."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.steps = StepCount()
        self._made = 0
        self.on_heads: Callable[[], None] = lambda: None

    def append(self, topic: str, *values: str) -> None:
        made = self.topics.get(topic)
        if made is None:
            self._made += 1
            made = self.topics[topic] = FakeTopic(f"{self._made:016x}")
        for value in values:
            made.head += 1
            made.records[made.head] = value.encode()

    def lose(self, topic: str, first: int, last: int) -> None:
        found = self.topics[topic]
        found.gap = first, last
        for seq in range(first, last + 1):
            del found.records[seq]

    def heads(
        self, known: Mapping[str, BridgePosition | None], prefixes: Sequence[str], wait_ms: int
    ) -> tuple[Mapping[str, TopicHead | None], str | None]:
        self.steps.step()
        self.on_heads()
        names = [*known, *(name for name in self.topics if name not in known and name.startswith(tuple(prefixes)))]
        found = {name: self.topics.get(name) for name in names}
        return {name: topic and TopicHead(topic.head, topic.incarnation) for name, topic in found.items()}, None

    def read(self, topic: str, position: BridgePosition | None) -> TopicBatch:
        self.steps.step()
        found = self.topics.get(topic)
        if found is None:
            raise RequestError("topic_not_found", "it was deleted")
        messages = []
        cursor = 0 if position is None else position.seq
        if position is not None and position.incarnation != found.incarnation:
            cursor = 0
            messages.append(BridgeMessage(0, b"recreated", None, (("topics-gap", b"recreated"),), 0, is_mark=True))
        if found.gap is not None and cursor == found.gap[0] - 1:
            cursor = found.gap[1]
            messages.append(BridgeMessage(cursor, b"lost", None, (("topics-gap", b"cap"),), 0, is_mark=True))
        for seq in sorted(seq for seq in found.records if seq > cursor)[:PAGE]:
            if found.gap is not None and cursor < found.gap[0] <= seq:
                break
            messages.append(BridgeMessage(seq, found.records[seq], None, (), 0))
            cursor = seq
        self.steps.step()
        return TopicBatch(topic, messages, BridgePosition(found.incarnation, cursor), found.head, 10 * len(messages))


class FakeTarget:
    """Where messages arrive. A step is before and after each message, as of a side that takes them one by one."""

    def __init__(self) -> None:
        self.stored: dict[str, list[tuple[str, BridgeMessage]]] = {}
        self.steps = StepCount()
        self.opened = 0

    def open(self) -> FakeSession:
        self.steps.step()
        self.opened += 1
        return FakeSession(self, self.opened)


class FakeSession:
    def __init__(self, target: FakeTarget, number: int) -> None:
        self._target = target
        self._number = number

    def position(self, topic: str) -> BridgePosition | None:
        self._target.steps.step()
        stored = self._target.stored.get(topic)
        if not stored:
            return None
        incarnation, message = stored[-1]
        return BridgePosition(incarnation, message.seq)

    def put(self, batches: Sequence[TopicBatch]) -> None:
        if self._number != self._target.opened:
            raise FencedError("another bridge has begun")
        for batch in batches:
            for message in batch.messages:
                self._target.steps.step()
                self._target.stored.setdefault(batch.topic, []).append((batch.position.incarnation, message))
                self._target.steps.step()

    def close(self) -> None:
        pass


DOWN = SourceDownError, TargetDownError
