"""An engine on a fake store, driven in straight lines: each call commits and gives the result back, or raises."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tests.engine.fake_store import FakeLoop, FakeStore, replay, small_config
from topics.config import Config
from topics.engine.engine import Engine
from topics.engine.predicate import Predicate
from topics.engine.results import (
    AppendRequest,
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    DiffQuery,
    DiffResult,
    PutResult,
    TopicPage,
    TopicState,
)
from topics.engine.topic_config import TopicConfig
from topics.errors import TopicsError
from topics.store.rows import Record, Rows, pack_rows

T = TypeVar("T")


class Answer:
    """A `done` that remembers what it was told."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.results.append(result)

    @property
    def given(self) -> bool:
        return bool(self.results)

    def get(self) -> Any:
        """The result, or the error raised."""
        assert len(self.results) == 1, f"answered {len(self.results)} times"
        result = self.results[0]
        if isinstance(result, TopicsError):
            raise result
        return result


def records(*values: Any, tag: str | None = None, node: str | None = None, meta: Any = None) -> Rows:
    """Rows with these values as data, all with the same tag, node and meta."""
    return pack_rows(
        [
            Record(
                msgspec.json.encode(value),
                None if tag is None else tag.encode(),
                None if node is None else node.encode(),
                None if meta is None else msgspec.json.encode(meta),
            )
            for value in values
        ]
    )


class Harness:
    def __init__(self, **config: Any) -> None:
        self.config: Config = small_config(**config)
        self.loop = FakeLoop()
        self.store = FakeStore()
        self.engine = Engine(self.loop, self.config)
        self.engine.catalog.recovered(power_lost=False)
        self.engine.start(self.store)

    # --- passes ------------------------------------------------------------------------------------------------------
    def settle(self, error: Any = None) -> None:
        """The pass ends, and what was staged is committed (or fails)."""
        for _ in range(4):
            self.engine.flush()
            if self.store.log.filling.waiters or self.store.log.filling.body:
                self.store.log.commit(error)
        self.engine.flush()

    def advance_ms(self, ms: int) -> None:
        self.loop.advance_ms(ms)

    # --- requests ----------------------------------------------------------------------------------------------------
    def put(self, name: str = "t", /, **config: Any) -> PutResult:
        answer = Answer()
        self.engine.put_topic(name, TopicConfig.make(**config), answer)
        self.settle()
        return answer.get()

    def start_append(self, rows: Rows, name: str = "t", **values: Any) -> Answer:
        answer = Answer()
        self.engine.append(AppendRequest(name, rows, **values), answer)
        return answer

    def append(self, *values: Any, name: str = "t", tag: str | None = None, **more: Any) -> AppendResult:
        node = more.pop("record_node", None)
        meta = more.pop("meta", None)
        answer = self.start_append(records(*values, tag=tag, node=node, meta=meta), name, **more)
        self.settle()
        return answer.get()

    def start_diff(self, from_seq: int = 0, name: str = "t", **query: Any) -> Answer:
        answer = Answer()
        self.cancel = self.engine.diff(name, DiffQuery(from_seq, **query), answer)
        return answer

    def diff(self, from_seq: int = 0, name: str = "t", **query: Any) -> DiffResult:
        answer = self.start_diff(from_seq, name, **query)
        self.settle()
        return answer.get()

    def read(self, from_seq: int = 0, name: str = "t", **query: Any) -> list[dict[str, Any]]:
        """The records of one diff, decoded."""
        return msgspec.json.decode(b"[" + self.diff(from_seq, name, **query).records + b"]")

    def seqs(self, from_seq: int = 0, name: str = "t", **query: Any) -> list[int]:
        return [record["$seq"] for record in self.read(from_seq, name, **query)]

    def delete(self, before_seq: int | None = None, match: str | None = None, name: str = "t") -> DeleteResult:
        answer = self.start_delete(before_seq, match, name)
        self.settle()
        return answer.get()

    def start_delete(self, before_seq: int | None = None, match: str | None = None, name: str = "t") -> Answer:
        answer = Answer()
        predicate = None
        if match is not None:
            is_prefix = match.endswith("*")
            predicate = Predicate(is_prefix, (match[:-1] if is_prefix else match).encode())
        self.engine.delete_records(name, before_seq, predicate, answer)
        return answer

    def state(self, name: str = "t", *, touch: bool = False) -> TopicState:
        answer = Answer()
        self.engine.state(name, touch=touch, done=answer)
        self.settle()
        return answer.get()

    def delete_topic(self, name: str = "t", *, if_empty: bool = False) -> DeleteTopicResult:
        answer = Answer()
        self.engine.delete_topic(name, if_empty=if_empty, done=answer)
        self.settle()
        return answer.get()

    def list(self, prefix: str = "", after: str = "", page_size: int = 100, *, touch: bool = False) -> TopicPage:
        answer = Answer()
        self.engine.list_topics(prefix, after, page_size, touch, lambda name: True, answer)
        self.settle()
        return answer.get()

    # --- restart -----------------------------------------------------------------------------------------------------
    def restart(self, *, power_lost: bool = False, snapshot: bytes | None = None) -> None:
        """Another engine from what the log holds; a power cut leaves what was synced."""
        log = self.store.log
        assert log.file.memory is not None
        kept = bytes(log.file.memory[: log.synced_bytes if power_lost else log.file.size])
        self.store = FakeStore()
        self.store.log.file.memory = bytearray(kept)
        self.store.log.file.size = self.store.log.synced_bytes = len(kept)
        self.engine = Engine(self.loop, self.config)
        catalog = self.engine.catalog
        replay(self.store, catalog, snapshot, kept, self.store.log.file)
        catalog.recovered(power_lost=power_lost)
        self.engine.start(self.store)
