"""Assembly of a part after its last piece: all its records become one append.

Source: R-PROD-9.

Frames are copied out of the staging area, a bounded number of bytes a pass. Only its end is one
step: seqs, checksums, and the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from topics.engine.read.frame_read import FrameRead
from topics.engine.routers.forward import tags_of
from topics.engine.shared.read_turns import ReadTurns
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.append_request import AppendRequest, IdentityCore, Waiting
from topics.engine.state.producer_part import Part
from topics.engine.state.staged_operations import OperationCore, Turn
from topics.engine.state.staged_parts import Total
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import LoopPort, ReaderPort
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.admission import check_backlog, check_caps
from topics.engine.write.appender import Appender
from topics.engine.write.evictions import has_to_wait
from topics.engine.write.reservations import reserve
from topics.errors import StorageError, TopicsError
from topics.store.commits.write_batch import Commit
from topics.store.format.catalog import NO_TAG
from topics.store.format.rows import Rows, tags_in
from topics.store.in_memory.prebuilt_frames import PrebuiltFrames, parts_of, room_for

_ROWS = 4096
"""Most records that a turn copies."""
_LAST_BYTES = 1 << 20
"""Bytes of the last piece that a turn makes frames of."""


class AssemblyCore(OperationCore, IdentityCore, Protocol):
    """The part of the core that an assembly needs."""

    loop: LoopPort
    reader: ReaderPort
    registry: Registry
    turns: ReadTurns


class Assembly:
    """The append of one part, with memory for all its frames, so it is built when its turn comes.

    `ended` is called when the next one may begin.
    """

    def __init__(  # noqa: PLR0917 - called in one place
        self,
        core: AssemblyCore,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        runs: list[int],
        total: Total,
        extension: bytes,
        done: Done[AppendResult],
        ended: Callable[[], None],
    ) -> None:
        """Prepare the append.

        request: the last piece. runs: seqs of the earlier pieces in the staging area
        (`StagedPart.runs`). total: of all pieces. extension: the extension area of the first frame.
        """
        self._core = core
        self._appender = appender
        self._topic = topic
        self._request = request
        self._part = cast("Part", request.identity)
        self._runs = runs
        self._total = total
        self._extension = extension
        self._done = done
        self._ended = ended
        staging = core.registry.staging
        assert staging is not None, "something is staged"
        self._staging = staging
        room = len(extension) + room_for(request.rows, request.node)
        for first, last in zip(runs[::2], runs[1::2], strict=True):
            for chunk, rows, _files in staging.index.locations(first, last):
                room += int(chunk.lengths[rows].sum())
        self._frames = PrebuiltFrames(room)
        self._last_parts: Iterator[Rows] = parts_of(request.rows, _LAST_BYTES)
        self._tags: list[NDArray[np.uint32]] = []
        """Numbers of the topic's tags, taken for the rows to come."""
        self._has_tags = False

    def begin(self) -> None:
        self._core.loop.call_later(0, self._take_turn)

    # --- the pieces before --------------------------------------------------------------------------------------------
    def _take_turn(self) -> None:
        self._core.turns.take(self._copy_some)

    def _copy_some(self) -> None:
        core, runs = self._core, self._runs
        if self._topic.life is Life.GONE:  # the pieces may be gone with the topic
            self._again()
            return
        if not runs:
            self._add_last()
            return
        found = self._staging.index.select(runs[0] - 1, runs[1], _ROWS)
        room, total = max(core.turns.left, 1), found.lengths.cumsum(dtype="u8")
        upto = max(1, int(total.searchsorted(room)))
        rows = found.rows(slice(0, upto))
        core.turns.spend(int(total[upto - 1]))
        last = int(rows.seqs[-1])
        self._runs = runs[2:] if last == runs[1] else [last + 1, *runs[1:]]
        tags = tags_of(self._staging.index, rows.seqs)
        self._add_tags(tags, len(rows.seqs))
        FrameRead(core.reader, self._staging, rows).begin(self._on_read)

    def _on_read(self, read: FrameRead | StorageError) -> None:
        try:
            if isinstance(read, StorageError):
                raise read
            for data, base, rows in read.all_frames():
                extension = b"" if self._frames.count else self._extension
                self._frames.take(data, base, rows.offsets, rows.lengths, rows.seqs, self._staging.id, extension)
        except TopicsError as error:
            self._fail(error)
        else:
            self._core.loop.call_later(0, self._take_turn)

    def _add_tags(self, tags: list[bytes | None] | None, count: int) -> None:
        if tags is None:
            self._tags.append(np.full(count, NO_TAG, np.uint32))
        else:
            self._has_tags = True
            self._tags.append(self._topic.index.take_tags(tags))

    # --- the last one, and the append ---------------------------------------------------------------------------------
    def _add_last(self) -> None:
        request = self._request
        some = next(self._last_parts, None)
        if some is not None:
            self._frames.add_rows(some, request.node)
            self._core.loop.call_later(0, self._take_turn)
            return
        tags = tags_in(request.rows)
        if tags is None:
            self._add_tags(None, request.rows.count)
            self._core.loop.call_later(0, self._append)
        else:
            self._core.loop.call_later(0, partial(self._take_last_tags, tags))

    def _take_last_tags(self, tags: list[bytes | None]) -> None:
        """Count the tags of the next rows of the last piece, as many as a turn takes."""
        if self._topic.life is Life.GONE:
            self._again()
            return
        self._add_tags(tags[:_ROWS], min(len(tags), _ROWS))
        left = tags[_ROWS:]
        self._core.loop.call_later(0, partial(self._take_last_tags, left) if left else self._append)

    def _append(self) -> None:
        core, topic = self._core, self._topic
        if topic.life is not Life.LIVE:
            self._again()
            return
        if has_to_wait(topic):
            Turn(core, topic, self._append, self._fail).wait()
            return
        try:
            check_caps(topic, self._total.records, self._total.size)
            if topic.lacks(self._total.records):
                self._reserve()
                return
            tags = np.concatenate(self._tags) if self._has_tags else None
            self._appender.filler.stage_pending(
                topic, self._frames, self._total.size, tags, self._part, self._part.created, self._done
            )
        except TopicsError as error:
            self._fail(error)
        else:
            self._ended()

    def _reserve(self) -> None:
        """Reserve the seqs, as a batch of its own (class `disk`), before the frames are staged."""
        core, topic, count = self._core, self._topic, self._total.records
        check_backlog(core.log)
        upto = reserve(core.log, topic, count, core.clock.now_ms())
        generation = topic.reserve_ahead()

        def on_commit(commit: Commit) -> None:
            topic.reserved_ahead(generation, upto if commit.error is None else 0)
            if commit.error is not None:
                self._fail(commit.error)
            else:
                self._append()

        topic.stop_filling()
        core.log.when_committed(topic.id, True, on_commit)

    # --- other ends ---------------------------------------------------------------------------------------------------
    def _again(self) -> None:
        """Send the request to the appender again, because its topic is being deleted or gone."""
        waiting = self._give_up()
        for request, done in [(self._request, self._done), *waiting]:
            self._appender.append(request, done)

    def _fail(self, error: TopicsError) -> None:
        waiting = self._give_up()
        self._done(error)
        for request, done in waiting:
            self._appender.append(request, done)

    def _give_up(self) -> Waiting:
        """Undo the partial append; return the writes that wait for this one."""
        self._give_back_tags()
        self._part.fail(self._core, self._topic)
        waiting = self._topic.end_identity(self._part.name)
        self._ended()
        return waiting

    def _give_back_tags(self) -> None:
        """Release the tags of one turn, then those of the others in following passes."""
        if self._tags and self._topic.life is not Life.GONE:
            self._topic.index.give_back_tags(self._tags.pop())
            self._core.loop.call_later(0, self._give_back_tags)
