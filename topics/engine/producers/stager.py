"""Staging of parts: pieces are stored one by one, and moved to their topic with the last one.

Source: R-PROD-9 to 13.

Writes of a part that is being written wait for it at its topic, as those of any identity do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from topics.config import Config
from topics.engine.producers.assembly import Assembly, AssemblyCore
from topics.engine.producers.compared_parts import ComparedParts
from topics.engine.producers.sweeper import Sweeper
from topics.engine.state import refusals
from topics.engine.state.append_request import AppendRequest, IdentifyingTopic, Identity, IdentityCore
from topics.engine.state.known_producers import PartEntry
from topics.engine.state.producer_part import Part
from topics.engine.state.staged_operations import Turn
from topics.engine.state.staged_parts import OVERHEAD_BYTES, PartPiece, StagedPart, StagedParts, Total, repeated_piece
from topics.engine.state.topic import Life, Topic
from topics.engine.values.ports import FormatPort
from topics.engine.values.results import AppendResult, Done
from topics.engine.write.admission import QuotaCore, check_caps, check_quota
from topics.engine.write.appender import Appender
from topics.engine.write.lifecycle import Lifecycle
from topics.errors import TopicsError
from topics.store.format.log_format import StagedPiece, pack_staged_piece
from topics.store.format.rows import Rows


class StagerCore(AssemblyCore, QuotaCore, Protocol):
    """The part of the core that the stager needs."""

    config: Config
    format: FormatPort
    staged: StagedParts


class Stager:
    """Receiver of pieces. See `Pieces`."""

    def __init__(self, core: StagerCore, lifecycle: Lifecycle, compared: ComparedParts, sweeper: Sweeper) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._compared = compared
        self._sweeper = sweeper
        self._assemblies: deque[Callable[[], Assembly]] = deque()
        """Builders of the appends of parts whose last piece is here; the first has built its."""

    # --- one piece ----------------------------------------------------------------------------------------------------
    def take(
        self,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        now_ms: int,
        *,
        created: bool,
        done: Done[AppendResult],
    ) -> None:
        part = cast("Part", request.identity)
        part.created = part.created or created
        if topic.life is Life.CREATING:  # the answer says that the topic exists
            Turn(self._core, topic, lambda: appender.append(request, done), done).wait()
            return
        count, sum = part.total_of(request.rows, request.node)
        piece = PartPiece(0, count, request.rows.size, sum)
        known = None if topic.producers is None else topic.producers.peek(part.producer)
        entry = None if known is None else known.find(part.epoch, part.part)
        name = topic.id, *part.name
        before = (self._core.staged.parts if entry is None else self._compared.parts).get(name)
        if self._is_repeated(topic, part, piece, before):
            done(repeated_piece(count))
            return
        if part.piece == 0:
            before = None
        self._check_bounds(topic, part, piece, before)
        if entry is not None:
            answer = self._compared.compare(name, topic.name, part, piece, before, entry, now_ms)
            self._sweeper.watch()
            done(answer)
        elif not part.last:
            self._stage(appender, topic, request, piece, now_ms, done)
        else:
            assert before is not None, "a last piece has one before it"
            self._assemble(appender, topic, request, piece, before, now_ms, done)

    @staticmethod
    def _is_repeated(topic: Topic, part: Part, piece: PartPiece, before: StagedPart | None) -> bool:
        """Return whether the piece came before.

        Source: R-PROD-10.

        Raises: RequestError if it is not the next one either.
        """
        if before is None or before.attempt != part.attempt:
            if part.piece:
                raise refusals.producer_incomplete(topic, part, 0)
            return False
        pieces = before.pieces
        if part.piece < len(pieces):
            same = pieces[part.piece][1:] == piece[1:] and not part.last
            if not same and part.piece:
                raise refusals.producer_diverged(topic.name, part)
            return same
        if part.piece > len(pieces):
            raise refusals.producer_incomplete(topic, part, len(pieces))
        return False

    def _check_bounds(self, topic: Topic, part: Part, piece: PartPiece, before: StagedPart | None) -> None:
        config = self._core.config
        pieces = 1 if before is None else len(before.pieces) + 1
        total = (Total() if before is None else before.total).plus(piece)
        if 0 < config.max_part_pieces < pieces:
            raise refusals.part_too_large(topic, part, "max_part_pieces", config.max_part_pieces)
        if 0 < config.max_part_records < total.records:
            raise refusals.part_too_large(topic, part, "max_part_records", config.max_part_records)
        if 0 < config.max_part_bytes < total.size:
            raise refusals.part_too_large(topic, part, "max_part_bytes", config.max_part_bytes)

    # --- into the staging area ----------------------------------------------------------------------------------------
    def _stage(  # noqa: PLR0917
        self,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        piece: PartPiece,
        now_ms: int,
        done: Done[AppendResult],
    ) -> None:
        core, part = self._core, cast("Part", request.identity)
        held = piece.size + OVERHEAD_BYTES
        core.limits.staged_bytes.check(held)
        check_quota(core, piece.size, now_ms)
        if not core.format.takes_all and appender.waits_for_format(topic, request, done):
            return
        told = StagedPiece(
            piece.records,
            piece.size,
            piece.sum,
            now_ms,
            topic.id,
            part.epoch,
            part.part,
            part.piece,
            part.producer,
            part.attempt,
        )

        def on_staged(result: AppendResult | TopicsError) -> None:
            core.staged.coming_bytes -= held
            waiting = topic.end_identity(part.name)
            if isinstance(result, TopicsError):
                done(result)
            else:
                done(result._replace(first_seq=0, last_seq=0, head_seq=0, created=part.created))
            for later, then in waiting:
                appender.append(later, then)

        identity, now_ms = _PieceIdentity(self, told), core.clock.now_ms()
        appender.filler.stage_request(self._lifecycle.staging(), request, now_ms, identity, False, on_staged)
        core.staged.coming_bytes += held
        topic.begin_identity(part.name)

    def staged(self, told: StagedPiece, first_seq: int) -> None:
        """Register a piece that is written."""
        replaced = self._core.staged.add(told, first_seq)
        if replaced is not None:
            self._sweeper.delete(replaced.runs)
        self._sweeper.watch()
        if not self._core.registry.has_id(told.topic_id):
            self._sweeper.forget(told.topic_id)

    # --- all of them --------------------------------------------------------------------------------------------------
    def _assemble(  # noqa: PLR0917
        self,
        appender: Appender,
        topic: Topic,
        request: AppendRequest,
        piece: PartPiece,
        before: StagedPart,
        now_ms: int,
        done: Done[AppendResult],
    ) -> None:
        core, part = self._core, cast("Part", request.identity)
        total = before.total.plus(piece)
        check_caps(topic, total.records, total.size)
        check_quota(core, piece.size, now_ms)
        if not core.format.takes_all and appender.waits_for_format(topic, request, done):
            return
        extension = part.begin_whole(core, topic, total.records, total.sum, now_ms)
        topic.begin_identity(part.name)
        part.hold(core, topic)
        ended = self._next_assembly
        build = partial(Assembly, core, appender, topic, request, before.runs, total, extension, done, ended)
        self._assemblies.append(build)
        if len(self._assemblies) == 1:
            build().begin()

    def _next_assembly(self) -> None:
        self._assemblies.popleft()
        if self._assemblies:
            self._assemblies[0]().begin()

    def appended(self, topic: Topic, identity: Identity) -> None:
        if not isinstance(identity, Part):
            return
        part, name = identity, (topic.id, *identity.name)
        pieces = self._core.staged.remove(name)
        if pieces is not None:
            self._sweeper.delete(pieces.runs)
            if part.is_piece:  # the sender may repeat the last one
                self._compared.add(name, pieces, self._core.clock.now_ms())
                self._sweeper.watch()


class _PieceIdentity:
    """The identity of a piece's records in the staging area. See `Identity`."""

    is_piece = is_last_piece = False

    def __init__(self, stager: Stager, told: StagedPiece) -> None:
        self._stager = stager
        self._told = told

    @property
    def name(self) -> StagedPiece:
        return self._told

    @property
    def extension_bytes(self) -> int:
        return len(pack_staged_piece(self._told))

    def find(self, core: IdentityCore, topic: IdentifyingTopic, now_ms: int) -> PartEntry | None:
        return None

    def begin(self, core: IdentityCore, topic: IdentifyingTopic, rows: Rows, node: bytes | None, now_ms: int) -> bytes:
        return pack_staged_piece(self._told)

    def hold(self, core: IdentityCore, topic: IdentifyingTopic) -> None:
        pass

    def publish(self, core: IdentityCore, topic: IdentifyingTopic, first_seq: int, *, in_memory: bool) -> PartEntry:
        self._stager.staged(self._told, first_seq)
        return PartEntry(first_seq, self._told.records, self._told.sum)

    def fail(self, core: IdentityCore, topic: IdentifyingTopic) -> None:
        pass
