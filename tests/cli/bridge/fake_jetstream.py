"""A stream of JetStream in memory, and a connection to it whose calls run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from topics.bridge.bridge_errors import TargetDownError

nats_errors = pytest.importorskip("nats.js.errors", reason="nats-py is not installed: `make bridge` installs it")
from nats.errors import TimeoutError as NatsTimeoutError  # noqa: E402 - it is there


class Kept(NamedTuple):
    sequence: int
    subject: str
    data: bytes
    headers: dict[str, str] | None


class FakeReadStream:
    """A stream that is read, with the requests of a source."""

    def __init__(self, name: str = "topics") -> None:
        self.name = name
        self.kept: list[Kept] = []
        self.last = 0
        self.consumers = 0
        """Consumers that were made and not deleted."""
        self.left_out: set[int] = set()
        """Sequences that are counted, and never arrive."""
        self.is_down = False
        self.on_fetch: Callable[[], None] = lambda: None

    def publish(self, *subjects: str, headers: dict[str, str] | None = None) -> None:
        """Store a message for each, whose data is its sequence."""
        for subject in subjects:
            self.last += 1
            self.kept.append(Kept(self.last, subject, str(self.last).encode(), headers))

    def remove(self, *sequences: int) -> None:
        self.kept = [message for message in self.kept if message.sequence not in sequences]

    def _of(self, filter_subject: str, start: int) -> list[Kept]:
        beginning, _, rest = filter_subject.partition(">")
        assert not rest
        return [
            message
            for message in self.kept
            if message.sequence >= start
            and (message.subject == filter_subject or (">" in filter_subject and message.subject.startswith(beginning)))
        ]

    def _check(self, stream: str) -> None:
        if self.is_down:
            raise TargetDownError("nats://h does not answer: it is gone")
        if stream != self.name:
            raise nats_errors.NotFoundError(code=404, err_code=10059, description="stream not found")

    async def stream_info(self, stream: str, subjects_filter: str | None = None) -> Any:
        self._check(stream)
        found = [message.subject for message in self._of(subjects_filter, 0)] if subjects_filter else []
        subjects = {subject: found.count(subject) for subject in found} or None
        return SimpleNamespace(state=SimpleNamespace(last_seq=self.last, messages=len(self.kept), subjects=subjects))

    async def get_msg(self, stream: str, seq: int, subject: str, next: bool) -> Any:
        self._check(stream)
        assert next
        for message in self._of(subject, seq):
            return SimpleNamespace(seq=message.sequence)
        raise nats_errors.NotFoundError(code=404, err_code=10037, description="no message found")

    async def add_consumer(self, stream: str, config: Any) -> Any:
        self._check(stream)
        self.consumers += 1
        pending = len(self._of(config.filter_subject, config.opt_start_seq))
        return SimpleNamespace(name="counting", num_pending=pending)

    async def delete_consumer(self, stream: str, name: str) -> None:
        assert name == "counting"
        self.consumers -= 1

    async def pull_subscribe(self, subject: str, stream: str, config: Any) -> FakeConsumer:
        self._check(stream)
        return FakeConsumer(self, subject, config.opt_start_seq)


class FakeConsumer:
    """A consumer without acknowledgements, which counts what it delivers."""

    fetch_max = 1000

    def __init__(self, stream: FakeReadStream, subject: str, start: int) -> None:
        self._stream = stream
        self._subject = subject
        self._next = start
        self._delivered = 0

    async def consumer_info(self) -> Any:
        return SimpleNamespace(num_pending=len(self._stream._of(self._subject, self._next)))

    async def fetch(self, most: int, timeout: float) -> list[Any]:
        self._stream.on_fetch()
        self._stream._check(self._stream.name)
        found = self._stream._of(self._subject, self._next)
        if not found:
            raise NatsTimeoutError
        messages = []
        for number, kept in enumerate(found[: min(most, self.fetch_max)], 1):
            self._delivered += 1
            self._next = kept.sequence + 1
            if kept.sequence in self._stream.left_out:
                continue
            sequence = SimpleNamespace(stream=kept.sequence, consumer=self._delivered)
            metadata = SimpleNamespace(sequence=sequence, num_pending=len(found) - number)
            messages.append(
                SimpleNamespace(subject=kept.subject, data=kept.data, headers=kept.headers, metadata=metadata)
            )
        return messages


class FakeLink:
    """A connection to a stream."""

    url = "nats://h"

    def __init__(self, stream: Any, max_payload: int = 1 << 20) -> None:
        self.jetstream = stream
        self.nats = SimpleNamespace(max_payload=max_payload)
        self.is_closed = False

    def run(self, call: Coroutine[Any, Any, Any], timeout_s: float = 0) -> Any:
        return asyncio.run(call)

    async def until_closed(self, call: Coroutine[Any, Any, Any]) -> Any:
        return await call

    def close(self) -> None:
        self.is_closed = True
