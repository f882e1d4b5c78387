"""The calls of named readers on a harness, each with its answer."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.engine.fake_store import FakeFormat
from tests.engine.harness import Answer, Harness
from topics.common.values.begin import Begin
from topics.common.values.reader_config import ReaderConfig
from topics.engine.readers.reader_results import ReaderPage, ReaderQuery, ReaderState


class Readers:
    """The readers of one harness: reader `r` of topic `t` unless another is named."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    @property
    def calls(self) -> Any:
        return self.harness.engine.readers

    def answer(self, answer: Answer) -> Any:
        raised = self.harness.store.format
        if isinstance(raised, FakeFormat) and raised.waiting:
            raised.end()
        self.harness.settle()
        return answer.get()

    def put(
        self, name: str = "r", topic: str = "t", *, from_seq: int = 0, begin: Begin | None = None, **config: Any
    ) -> Any:
        answer = Answer()
        self.calls.put(topic, name, ReaderConfig(**config), answer, begin=begin or Begin("seq", from_seq))
        return self.answer(answer)

    def start_read(self, name: str = "r", topic: str = "t", **query: Any) -> Answer:
        answer = Answer()
        answer.cancel = self.calls.read(topic, name, ReaderQuery(**query), answer)  # type: ignore[attr-defined]
        return answer

    def page(self, name: str = "r", topic: str = "t", **query: Any) -> ReaderPage:
        page: ReaderPage = self.answer(self.start_read(name, topic, **query))
        return page

    def seqs(self, name: str = "r", topic: str = "t", **query: Any) -> list[int]:
        return seqs_of(self.page(name, topic, **query))

    def start_commit(self, token: int = 0, upto: int | None = None, name: str = "r", topic: str = "t") -> Answer:
        answer = Answer()
        self.calls.commit(topic, name, token, upto, answer)
        return answer

    def commit(self, token: int = 0, upto: int | None = None, name: str = "r", topic: str = "t") -> int:
        committed: int = self.answer(self.start_commit(token, upto, name, topic))
        return committed

    def seek(self, seq: int, name: str = "r", topic: str = "t") -> int:
        answer = Answer()
        self.calls.seek(topic, name, seq, answer)
        committed: int = self.answer(answer)
        return committed

    def state(self, name: str = "r", topic: str = "t") -> ReaderState:
        answer = Answer()
        self.calls.state(topic, name, answer)
        state: ReaderState = self.answer(answer)
        return state

    def delete(self, name: str = "r", topic: str = "t") -> bool:
        answer = Answer()
        self.calls.delete(topic, name, answer)
        deleted: bool = self.answer(answer)
        return deleted


def seqs_of(page: ReaderPage) -> list[int]:
    return [record["$seq"] for record in msgspec.json.decode(b"[" + page.result.records + b"]")]
