"""Dead letters of a queue: which records of its dead-letter topic they are, and a list of them.

Source: wire contract 8.7, R-Q-36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from topics.clock import Clock
from topics.config import Config
from topics.engine.queue.lookup import LookupCore, visible_queue
from topics.engine.read.frame_read import FrameRead, OwnFrames, verified, with_topic
from topics.engine.state.topic import Life, Topic
from topics.engine.state.wakes import CatchUpFirst
from topics.engine.values.ports import LoopPort, ReaderPort
from topics.engine.values.read_bounds import ReadBounds, fitting
from topics.engine.values.results import DiffQuery, DiffResult, Done
from topics.engine.write.retention import ExpiryCore, when_retained
from topics.errors import CorruptError, StorageError, TopicsError
from topics.store.format.log_format import Frame
from topics.store.read.render_json import JsonRenderer

STEP_ROWS = 128
STEP_BYTES = 1 << 20
"""Records that are decoded in one pass of the loop: at most these, and at least one."""
SLOTS_MAX = 10_000
"""Records that one request looks at."""
FROM = "$dead_letter_from"
ADDED = (FROM, "$dead_letter_deliveries", "$dead_letter_src_seq", "$dead_letter_reason")
"""The keys that a dead letter's `meta` has in addition (R-Q-24, R-Q-35)."""
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DeadCore(LookupCore, ExpiryCore, Protocol):
    """The part of the core that reads of dead letters need."""

    bounds: ReadBounds
    clock: Clock
    config: Config
    loop: LoopPort
    reader: ReaderPort


class DeadPage(NamedTuple):
    """Dead letters of a queue, ascending: one page of the list."""

    dead_letter: str | None
    """The name of the dead-letter topic; None: the queue has none."""
    page: DiffResult
    """The records, and seqs of that topic; all are 0 while there is no such topic."""


NOTHING = DiffResult(b"", 0, 0, 0, 1, None, 0, 0)


def dead_letter_name(core: LookupCore, queue: str) -> str | None:
    """Return the name of the queue's dead-letter topic. Raises: RequestError, there is no queue."""
    topic, _leases = visible_queue(core.registry, queue)
    return topic.config.dead_letter


def members(meta: bytes | None) -> dict[str, msgspec.Raw]:
    """Return the members of a record's `meta`; {} unless it is an object."""
    return {} if meta is None or not meta.startswith(b"{") else _decoder.decode(meta)


def is_dead_letter(frame: Frame, queue: str) -> bool:
    """Return whether a record is a dead letter of this queue (R-Q-36)."""
    origin = members(frame.meta).get(FROM)
    return origin is not None and msgspec.json.decode(origin) == queue


def dead_among(topic: Topic, queue: str, read: FrameRead) -> Iterator[tuple[OwnFrames, list[Frame]]]:
    """Yield the frames of a read that are live dead letters of a queue, by piece.

    Raises: CorruptError.
    """
    for piece in read.all_frames():
        alive = topic.index.alive(piece.rows.seqs)
        frames = [frame for _seq, _raw, frame in verified(topic, piece)]
        which = np.array([is_dead_letter(frame, queue) for frame in frames], np.bool_) & alive
        yield (
            piece._replace(rows=piece.rows.rows(which)),
            [frame for frame, ours in zip(frames, which, strict=True) if ours],
        )


def step_seqs(topic: Topic, after: int, upto: int, most: int = STEP_ROWS) -> list[int]:
    """Return the first live seqs after one, as many as a step decodes."""
    seqs = topic.index.live_seqs(after, upto, min(most, STEP_ROWS))
    return within_step(topic, seqs) if seqs else seqs


def within_step(topic: Topic, seqs: Sequence[int]) -> list[int]:
    """Return the first of these live, ascending seqs whose records a step decodes."""
    sizes = topic.index.at(np.array(seqs, np.uint64)).sizes
    return list(seqs[: fitting(sizes, STEP_BYTES)])


def list_dead(
    core: DeadCore, catch_up: CatchUpFirst, queue: str, dead_letter: str, *, query: DiffQuery, done: Done[DeadPage]
) -> None:
    """List the dead letters of a queue in a topic of this core."""
    topic = core.registry.visible(dead_letter)
    if topic is None:
        done(DeadPage(dead_letter, NOTHING))
        return
    page = DeadList(core, topic, queue, core.bounds.one_pass(query), done)
    catch_up(topic, page.begin)


class DeadList:
    """One page of a queue's dead letters, step by step: a pass of the loop each."""

    def __init__(self, core: DeadCore, topic: Topic, queue: str, query: DiffQuery, done: Done[DeadPage]) -> None:
        """topic: the dead-letter topic. query: clamped."""
        self._core = core
        self._topic = topic
        self._queue = queue
        self._done = done
        self._cursor = query.from_seq
        self._scanned = 0
        self._renderer = JsonRenderer(
            topic.id,
            limit=query.limit,
            budget=query.max_batch_bytes,
            include_tags=True,
            bytes_apart=query.bytes_apart,
        )

    def begin(self) -> None:
        when_retained(self._core, self._topic, self._core.clock.now_ms(), self._on_retained)

    def _on_retained(self, error: TopicsError | None) -> None:
        if error is not None:
            self._done(error)
        else:
            self._step()

    def _step(self) -> None:
        topic = self._topic
        if topic.life is Life.GONE:
            self._done(DeadPage(topic.name, NOTHING))
            return
        left = SLOTS_MAX - self._scanned
        seqs = step_seqs(topic, self._cursor, topic.head, left)
        if not seqs:
            if left:
                self._cursor = topic.head
            self._answer()
            return
        self._scanned += len(seqs)
        read = FrameRead(self._core.reader, topic, topic.index.at(np.array(seqs, np.uint64)))
        read.begin(lambda result: self._on_read(result, seqs[-1]))

    def _on_read(self, read: FrameRead | StorageError, last: int) -> None:
        if isinstance(read, StorageError):
            self._done(read)
            return
        self._cursor = last
        renderer = self._renderer
        try:
            for (data, base, rows), _frames in dead_among(self._topic, self._queue, read):
                count = len(rows.seqs)
                taken = renderer.add(data, base, rows.offsets, rows.lengths, rows.seqs) if count else 0
                if taken < count:
                    self._cursor = int(rows.seqs[taken]) - 1
                    break
        except CorruptError as error:
            self._done(with_topic(self._topic, error, read))
            return
        if renderer.full:
            self._answer()
        else:
            self._core.loop.call_later(0, self._step)

    def _answer(self) -> None:
        renderer, topic = self._renderer, self._topic
        page = DiffResult(
            renderer.records(),
            renderer.count,
            self._cursor,
            topic.head,
            topic.earliest,
            None,
            self._scanned,
            0,
            renderer.size,
            renderer.payloads,
        )
        self._done(DeadPage(topic.name, page))
