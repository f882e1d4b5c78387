"""A server's engine on the simulated disk, and what its readers get beside what its files say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tests.engine.harness import Answer
from tests.engine.real_world import RealWorld
from tests.files.sim_calls import SimCalls
from topics.common.values.configs import RouterConfig
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.engine.values.results import PutResult, TopicState
from topics.engine.values.topic_config import make_config
from topics.files import COLUMNS, Directory, Loss, Piece, TopicFiles, open_directory, read_pieces
from topics.files.texts import Decoder
from topics.loop import Loop
from topics.store.format.rows import Rows
from topics.store.repair.rebuild import rebuild

HOT, COLD = "data", "cold"
Record = tuple[int, int, str | None, str | None, str, str | None]
"""seq, ts in ms, tag, node, data, meta."""


class Seen(NamedTuple):
    """The records and losses that a reader gets from the first seq to the head."""

    records: list[Record]
    losses: list[tuple[int, int, str]]


class FilesWorld(RealWorld):
    """`RealWorld` with a cold directory, and readers of its files."""

    def __init__(self, seed: int = 0, **config: Any) -> None:
        self._asked: list[Answer] = []
        super().__init__(seed, **{"cold_dir": COLD, "hot_retain_segments": 2, "segment_max_events": 20, **config})

    def settle(self, error: Any = None) -> None:
        """Until all that was asked is answered: routers have to catch up before that, perhaps."""
        super().settle(error)
        self.until(lambda: all(answer.given for answer in self._asked))
        self._asked.clear()

    def state(self, name: str = "t", *, touch: bool = False) -> TopicState:
        return self._ask(lambda done: self.engine.state(name, touch=touch, done=done))

    def start_append(self, rows: Rows, name: str = "t", **values: Any) -> Answer:
        return self._noted(super().start_append(rows, name, **values))

    def start_delete(self, before_seq: int | None = None, match: str | None = None, name: str = "t") -> Answer:
        return self._noted(super().start_delete(before_seq, match, name))

    def put(self, name: str = "t", /, **config: Any) -> PutResult:
        return self._ask(lambda done: self.engine.put_topic(name, make_config(**config), done))

    def _noted(self, answer: Answer) -> Answer:
        self._asked.append(answer)
        return answer

    def _ask(self, ask: Callable[[Answer], None]) -> Any:
        answer = self._noted(Answer())
        ask(answer)
        self.settle()
        return answer.get()

    @property
    def calls(self) -> SimCalls:
        return SimCalls(lambda: self.ring.disk)

    def directory(self, calls: SimCalls | None = None) -> Directory:
        return open_directory(HOT, self.config.cold_dir or None, calls=calls or self.calls)

    def route(self, source: str, dest: str) -> None:
        """A router between topics that are there."""
        made = Answer()
        self.engine.put_router(f"{source}>{dest}", RouterConfig(source=source, dest=dest), lambda _name: True, made)
        self.wait(made)

    def work(self, queue: str, most: int) -> None:
        """Claims jobs and acknowledges all but the first of them."""
        claimed, acked = Answer(), Answer()
        self.engine.claim(ClaimRequest(queue, "worker", most), claimed)
        seqs = [job["$seq"] for job in msgspec.json.decode(b"[" + self.wait(claimed).records + b"]")]
        self.engine.ack(HeldJobs(queue, "worker", seqs[1:]), acked)
        self.wait(acked)

    def rebuild(self, *, snapshots: bool) -> None:
        """Stops, restores the directory as `topics fsck --rebuild` does, and starts again."""
        self.engine.begin_shutdown()
        self.real_loop.run_task(self.real_store.close())
        ring = self.ring.next_life(power_cut=False)
        if not snapshots:
            for name in ring.disk.list_directory(f"{HOT}/snapshots"):
                ring.disk.unlink(f"{HOT}/snapshots/{name}")
        loop = Loop(ring, ring.clock)
        loop.run_task(rebuild(loop, HOT, COLD))
        self._open(ring)

    def diff_all(self, name: str) -> Seen:
        """By `diff`, page by page."""
        seen, cursor = Seen([], []), 0
        while True:
            result = self.diff(cursor, name, limit=50, include_tags=True)
            if result.tombstone is not None:
                stone = result.tombstone
                seen.losses.append((stone.gap_from, stone.gap_to, stone.reason))
            for record in msgspec.json.decode(b"[" + result.records + b"]", type=list[_Rendered]):
                meta = None if record.meta is msgspec.UNSET else bytes(record.meta).decode()
                seen.records.append((record.seq, record.ts, record.tag, record.node, bytes(record.data).decode(), meta))
            cursor = result.next_from_seq
            if result.caught_up:
                return seen


class _Rendered(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    tag: str | None = msgspec.field(name="$tag", default=None)
    node: str | None = msgspec.field(name="$node", default=None)
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def read_all(topic: TopicFiles, directory: Directory, decoder: Decoder | None = None, **options: Any) -> Seen:
    """By the files: the sections of the whole topic, read in order."""
    return seen_of(list(sections_read(topic, directory, decoder, **options)))


def sections_read(topic: TopicFiles, directory: Directory, decoder: Decoder | None = None, **options: Any) -> Any:
    pieces: list[Piece] = []
    options = {"columns": COLUMNS, "decoder": decoder, "calls": directory.calls, **options}
    for section in topic.sections(1, topic.head):
        if isinstance(section, Loss):
            yield from read_pieces(directory.location, pieces, **options)
            pieces = []
            yield section
        else:
            pieces.append(section)
    yield from read_pieces(directory.location, pieces, **options)


def seen_of(items: list[Any]) -> Seen:
    seen = Seen([], [])
    for item in items:
        if isinstance(item, Loss):
            seen.losses.append((item.from_seq, item.to_seq, item.reason))
            continue
        item.validate(full=True)
        rows = item.set_column(2, "ts", item["ts"].cast(pa.int64())).to_pylist()
        seen.records.extend(
            (row["seq"], row["ts"] // 1000, row["tag"], row["node"], row["data"], row["meta"]) for row in rows
        )
    return seen


def busy(world: FilesWorld, chance: random.Random, names: list[str]) -> None:
    """One thing that changes a topic, or a stretch of time."""
    name = chance.choice(names)
    what = chance.random()
    if what < 0.55:
        count = chance.choice((1, 2, 7, 30))
        values = [{"n": chance.randrange(1000), "pad": "x" * chance.choice((0, 5, 300))} for _ in range(count)]
        tag = chance.choice((None, "a", "b", "ü" * 3, "long-" * 9))
        node = chance.choice((None, b"n1"))
        meta = chance.choice((None, {"k": 1}))
        world.append(*values, name=name, tag=tag, node=node, meta=meta)
    elif what < 0.65:
        world.delete(match=chance.choice(("a", "b", "long*")), name=name)
    elif what < 0.72:
        world.delete(before_seq=max(1, world.state(name).head_seq - chance.randrange(40)), name=name)
    elif what < 0.80:
        kept = world.state(name).config
        limits = {"cap_records": chance.choice((0, 20, 60)), "ttl_ms": chance.choice((0, 0, 20_000))}
        world.put(name, type=kept.type, durability=kept.durability, **limits)
    elif what < 0.9:
        world.advance_ms(chance.choice((10, 1500, 7000)))
    else:
        world.checkpoint()
