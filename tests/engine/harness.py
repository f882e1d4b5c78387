"""An engine on a fake store, driven in straight lines: each call commits and gives the result back, or raises."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np

from tests.engine.fake_store import FakeLoop, FakeStore, columns_of, replay, small_config
from topics.common.bounded_steps import result_of
from topics.config import Config
from topics.engine.engine import Engine
from topics.engine.recovery.engine_catalog import EngineCatalog
from topics.engine.shared.outside import NOTHING_OUTSIDE, Outside
from topics.engine.shared.stored_state import StoredState
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.idempotency import Key
from topics.engine.values.node_set import node_set
from topics.engine.values.predicate import Predicate
from topics.engine.values.results import (
    AppendResult,
    DeleteResult,
    DeleteTopicResult,
    DiffQuery,
    DiffResult,
    PutResult,
    TopicPage,
    TopicState,
)
from topics.engine.values.topic_config import make_config
from topics.errors import TopicsError
from topics.store.format import codec
from topics.store.format.file_table import FileKind
from topics.store.format.log_format import DELETED
from topics.store.format.rows import RowRecord, Rows, pack_rows

T = TypeVar("T")


class Answer:
    """A `done` that remembers its result."""

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
            RowRecord(
                msgspec.json.encode(value),
                None if tag is None else tag.encode(),
                None if node is None else node.encode(),
                None if meta is None else msgspec.json.encode(meta),
            )
            for value in values
        ]
    )


class Harness:
    def __init__(self, outside: Outside = NOTHING_OUTSIDE, **config: Any) -> None:
        self.outside = outside
        self.config: Config = small_config(**config)
        self.loop = FakeLoop()
        self.cut = 0
        """Where the log begins that belongs to the snapshot."""
        self.stored = StoredState(self.loop, self.config)
        self.catalog = EngineCatalog(self.loop, self.stored)
        self.store = FakeStore(self.stored.files)
        result_of(self.catalog.recovered(power_lost=False))
        self.snapshot = b"".join(self.catalog.checkpoints.snapshot())
        """The newest; a directory has one from its beginning."""
        self.engine = Engine(self.loop, self.config, self.stored, self.store, self.outside)

    # --- passes ------------------------------------------------------------------------------------------------------
    def settle(self, error: Any = None) -> None:
        """The pass ends, and what was staged is committed (or fails)."""
        for _ in range(4):
            self.engine.flush()
            if self.store.log.filling.waiters or self.store.log.filling.body:
                self.store.log.commit(error)
        self.engine.flush()

    def count_in_passes(self, done: list[Any]) -> list[int]:
        """Return a list that gets the number of those done in each pass from here on."""
        flush, counts, before = self.engine.flush, list[int](), len(done)

        def counted() -> None:
            nonlocal before
            flush()
            counts.append(len(done) - before)
            before = len(done)

        self.engine.flush = counted  # type: ignore[method-assign]
        return counts

    def advance_ms(self, ms: int) -> None:
        self.loop.advance_ms(ms)

    # --- requests ----------------------------------------------------------------------------------------------------
    def put(self, name: str = "t", /, **config: Any) -> PutResult:
        answer = Answer()
        self.engine.put_topic(name, make_config(**config), answer)
        self.settle()
        return answer.get()

    def start_append(self, rows: Rows, name: str = "t", *, key: bytes | None = None, **values: Any) -> Answer:
        answer = Answer()
        if key is not None:
            values["identity"] = Key(key)
        self.engine.append(AppendRequest(name, rows, **values), answer)
        return answer

    def append(self, *values: Any, name: str = "t", tag: str | None = None, **more: Any) -> AppendResult:
        node = more.pop("record_node", None)
        meta = more.pop("meta", None)
        answer = self.start_append(records(*values, tag=tag, node=node, meta=meta), name, **more)
        self.settle()
        return answer.get()

    def flush_until_given(self, waiting: list[Answer], a_pass: int, *, in_order: bool = False) -> None:
        """Flush until all have their answers; check that no pass gives more than it may.

        a_pass: the answers of one budget.
        """
        given = 0
        while given < len(waiting):
            self.engine.flush()
            before, given = given, sum(answer.given for answer in waiting)
            assert given - before <= 2 * a_pass, "what is left of one budget, and the next"
            if in_order:
                assert [answer.given for answer in waiting] == [True] * given + [False] * (len(waiting) - given)

    def start_diff(self, from_seq: int = 0, name: str = "t", **query: Any) -> Answer:
        answer = Answer()
        nodes = node_set(query.pop("nodes", ()))
        self.cancel = self.engine.diff(name, DiffQuery(from_seq, nodes=nodes, **query), answer)
        return answer

    def all_seen(self) -> list[object]:
        """Return the counts of topic "t", and all that readers at every cursor see."""
        state = self.state()
        found: list[object] = [state.head_seq, state.earliest_seq, state.count, state.bytes]
        for cursor in range(state.head_seq + 1):
            result = self.diff(cursor)
            found.append((result.tombstone, result.records))
        return found

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
        self.engine.list_topics(prefix, after, page_size, touch, (), answer)
        self.settle()
        return answer.get()

    # --- checkpoint and restart --------------------------------------------------------------------------------------
    def checkpoint(self) -> None:
        """Copies rows of the log to a segment file, flags deletions, takes a snapshot, and cuts the log before it."""
        log, catalog = self.store.log, self.catalog
        assert log.file.memory is not None
        cut = log.file.size
        for topic_id in catalog.checkpoints.topics_in_log():
            for rows in catalog.checkpoints.rows_in_files(topic_id, np.array([log.file.file_id], np.uint32)):
                segment = self.store.new_file(FileKind.SEGMENT)
                assert segment.memory is not None
                for offset, length in zip(rows.offsets.tolist(), rows.lengths.tolist(), strict=True):
                    segment.memory += log.file.memory[offset : offset + length]
                segment.size = len(segment.memory)
                offsets = (np.cumsum(rows.lengths) - rows.lengths).astype(np.uint32)
                assert not len(catalog.checkpoints.moved(topic_id, rows.seqs, segment.file_id, offsets))
        self._flag_deletions()
        self.snapshot = b"".join(catalog.checkpoints.snapshot())
        self.cut = cut

    def _flag_deletions(self) -> None:
        for part in self.catalog.checkpoints.take_deletions():
            memory = self.store.files[part.file_id].memory
            assert memory is not None
            for offset, length in zip(part.offsets.tolist(), part.lengths.tolist(), strict=True):
                memory[offset + length - 1] = DELETED

    def restart(self, *, power_lost: bool = False) -> None:
        """Another engine from what snapshot, segments and log hold; a power cut leaves what was synced."""
        log = self.store.log
        assert log.file.memory is not None
        kept = bytes(log.file.memory[self.cut : log.synced_bytes if power_lost else log.file.size])
        segments = [bytes(file.memory or b"") for file in self.store.files if file.kind is FileKind.SEGMENT]
        self.stored = StoredState(self.loop, self.config)
        catalog = self.catalog = EngineCatalog(self.loop, self.stored)
        self.store = FakeStore(self.stored.files)
        self.store.log.file.memory = bytearray(kept)
        self.store.log.file.size = self.store.log.synced_bytes = len(kept)
        self.cut = 0
        result_of(catalog.restore(self.snapshot))
        for content in segments:
            file = self.store.new_file(FileKind.SEGMENT)
            file.memory, file.size = bytearray(content), len(content)
            frames = codec.scan_frames(content).frames
            frames = frames[frames["deleted"] == 0]
            if len(frames):
                catalog.add_rows(int(frames["topic_id"][0]), columns_of(frames, content, file.file_id))
        replay(catalog, kept, self.store.log.file)
        result_of(catalog.recovered(power_lost=power_lost))
        self.engine = Engine(self.loop, self.config, self.stored, self.store, self.outside)
        self.snapshot = b"".join(catalog.checkpoints.snapshot())
