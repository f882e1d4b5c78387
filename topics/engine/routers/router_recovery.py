"""Recovery of routers: from the snapshot, then from the log. All of it may be read twice."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from topics.common.values.configs import EXACTLY_ONCE
from topics.engine.routers.copy_replay import LogRows
from topics.engine.routers.forward import add_hops
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry
from topics.engine.state.control_frames import to_runs
from topics.engine.state.router import UNKNOWN, RouterLife, StoredConfig
from topics.engine.state.router_frames import (
    FarEnd,
    ForwardPayload,
    KeepPayload,
    RouterDeletePayload,
    RouterImage,
    RouterPayload,
)
from topics.engine.state.topic import Router, Topic
from topics.store.format.catalog import SEQ_MAX
from topics.store.format.floors import TRIM, Gap, add_gap
from topics.store.format.log_format import FrameType

ROUTER_TYPES = frozenset({FrameType.ROUTER_PUT, FrameType.ROUTER_DELETE, FrameType.FORWARD, FrameType.KEEP})


class RouterRecovery:
    """Part of the catalog.

    gaps: interior gaps by topic id, which the catalog passes to the topics at the end.
    """

    def __init__(self, registry: Registry, routers: Routers, gaps: dict[int, list[Gap]]) -> None:
        self._registry = registry
        self._routers = routers
        self._gaps = gaps
        self._adopted: list[RouterImage] = []
        self._consumed: dict[int, list[list[int]]] = {}
        """Runs of acknowledged seqs by topic id."""
        self._made: dict[int, set[int]] = {}
        """Ids of routers in no snapshot -> ids of topics whose shards have their creation."""
        self.log_rows = LogRows()

    def take_image(self, image: RouterImage) -> None:
        router = self._add(image.id, image.name, image.source, image.dest, image.order, image.config, image.far)
        if router is None:
            return
        if image.order >= router.order:
            router.order = image.order
            router.config = image.config.config(router.source.name, router.dest.name)
        router.position = max(router.position, image.position)
        router.forwarded = max(router.forwarded, image.forwarded)
        router.examined = max(router.examined, image.examined)
        router.evidence.update(image.evidence)
        router.unmarked = max(router.unmarked, image.unmarked)
        router.keep(image.kept)
        router.consumed(to_runs(sorted(seq for seq, _frame in image.kept)))
        router.keep(image.keeping)

    def note_router(self, pair: tuple[int, int]) -> None:
        """Note that a router was between these topics."""
        self.log_rows.note_router(*pair)
        self._routers.note_gone(pair)

    def adopt(self, images: list[RouterImage]) -> None:
        """Take routers from segments of their destinations. Their sources may be adopted later."""
        self.log_rows.everything = True
        self._adopted += images

    def _adopt_all(self) -> None:
        images, self._adopted = self._adopted, []
        for image in images:
            # Their later fate is unknown: it is better to forward the frames than to lose them.
            self.take_image(msgspec.structs.replace(image, kept=image.kept + image.keeping, keeping=[]))

    def _add(  # noqa: PLR0917 - one caller's columns
        self,
        router_id: int,
        name: str,
        source_id: int,
        dest_id: int,
        order: int,
        config: StoredConfig,
        far: FarEnd | None,
    ) -> Router | None:
        """Return the router of this id, new or known.

        None if a topic is gone, or a later router has its name.
        """
        registry, routers = self._registry, self._routers
        registry.last_order = max(registry.last_order, order)
        # Ids of topics whose creation a power cut took must not be reused: this router would be
        # theirs.
        registry.note_id(source_id)
        registry.note_id(dest_id)
        if far is None or far.is_source:  # else the other core has the copies
            self.log_rows.note_router(source_id, dest_id)
        router = routers.by_id.get(router_id)
        if router is not None:
            return router
        source = self._end(source_id, far if far is not None and far.is_source else None)
        dest = self._end(dest_id, far if far is not None and not far.is_source else None)
        holder = None if source is not None and source.is_far else routers.by_name.get(name)
        if source is None or dest is None or (holder is not None and holder.id > router_id):
            return None
        if holder is not None:
            routers.remove(holder)
        router = Router(name, router_id, source, dest, config.config(source.name, dest.name))
        router.enter_life(RouterLife.LIVE)
        router.order = order
        router.token = "" if far is None else far.token
        routers.add(router)
        return router

    def _end(self, topic_id: int, far: FarEnd | None) -> Topic | None:
        """Return an end of a router. far: of another core; None: it is here."""
        return self._registry.with_id(topic_id) if far is None else self._registry.stand_in(far.name, topic_id)

    def apply_control(self, kind: int, topic_id: int, seq: int, ts_ms: int, payload: bytes) -> None:
        self._adopt_all()
        if kind == FrameType.ROUTER_PUT:
            put = msgspec.json.decode(payload, type=RouterPayload)
            known = put.id in self._routers.by_id
            if seq == put.id and (not known or put.id in self._made):
                self._made.setdefault(put.id, set()).add(topic_id)
            router = self._add(put.id, put.name, put.source, put.dest, seq, put.config, put.far)
            if router is None:
                return
            if not known:
                router.position = put.position
                router.unmarked = put.unmarked
            if seq > router.order:
                router.order = seq
                router.config = put.config.config(router.source.name, router.dest.name)
        elif kind == FrameType.ROUTER_DELETE:
            found = self._routers.by_id.get(msgspec.json.decode(payload, type=RouterDeletePayload).id)
            if found is not None:
                self._routers.remove(found)
        elif kind == FrameType.KEEP:
            keep = msgspec.json.decode(payload, type=KeepPayload)
            found = self._routers.by_id.get(keep.router)
            if found is not None:
                found.keep(keep.frames)
        else:
            self._take_forward(topic_id, seq, ts_ms, msgspec.json.decode(payload, type=ForwardPayload))

    def _take_forward(self, topic_id: int, first: int, ts_ms: int, forward: ForwardPayload) -> None:
        router = self._routers.by_id.get(forward.router)
        if router is not None:
            router.position = forward.position
            router.forwarded = forward.forwarded
            if forward.hops:
                router.copied(forward.hops[0][0], forward.hops[-1][1], first - 1)
        if forward.refs:  # also of a topic that is gone: copies of its copies may exist
            at = first + forward.holes
            self.log_rows.forward(topic_id, at, forward.source, forward.refs, forward.keep, ts_ms, forward.sizes)
        topic = self._registry.with_id(topic_id)
        if topic is None:
            return
        if forward.holes:
            gap = Gap(first, first + forward.holes - 1, TRIM)
            topic.found_visible(gap.last)
            self._add_gap(topic, gap)
        if forward.hops:
            add_hops(topic, forward.hops)
            # else other records would get these seqs, and the hops
            topic.found_visible(forward.hops[-1][1])
        if forward.refs:
            # Originals that a power cut took from the source are missing; the seqs of their copies
            # stay used.
            topic.found_visible(at + sum(end - begin + 1 for begin, end in forward.refs) - 1, ts_ms)

    def _add_gap(self, topic: Topic, gap: Gap) -> None:
        if gap.last > topic.floors.lost:
            add_gap(self._gaps.setdefault(topic.id, []), gap)

    def consumed(self, topic: Topic, runs: list[int]) -> None:
        """Note acknowledged jobs. Routers' frames of them, perhaps in another shard, may follow."""
        if topic.routers:
            self._consumed.setdefault(topic.id, []).append(runs)

    def given_out(self, topic: Topic) -> int:
        """Return the highest seq of the topic that its routers know of.

        Called once, while the topic's head is that of the log.
        """
        consumed = self._consumed.pop(topic.id, [])
        # A record that does not exist was not deleted, so its ack counts; `ephemeral` topics log no
        # acks.
        consumed.append([1 if topic.config.durability == "ephemeral" else topic.head + 1, SEQ_MAX])
        for router in topic.routers:
            for runs in consumed if router.keeping else ():
                router.consumed(runs)
        return max([0, *(router.highest_seen for router in topic.routers)])

    def topic_gone(self, topic: Topic) -> None:
        self._routers.remove(*self._routers.of_topic(topic))

    def before_rows(self) -> None:
        """Prepare for rows, after the log was read.

        Gone routers stay only if the log has forwards of them.
        """
        self._adopt_all()
        gone = self._routers.gone
        for pair in gone.keys() - self.log_rows.pairs():
            del gone[pair]

    @property
    def has_half(self) -> bool:
        """Whether a process was killed between the two frames of a router's creation.

        The next replay may read forwards, or forwarded records, of the shard without the frame
        before it reads the other shard's: it needs the router in a snapshot.
        """
        routers = self._routers.by_id.values()
        return any(len(self._made[router.id]) < 2 for router in routers if router.id in self._made and not router.token)

    def recovered(self) -> Iterator[None]:
        """Finish recovery, in bounded steps.

        The catalog has limited each position to its source's head.
        """
        for router in self._routers.by_id.values():
            # the rewritten tail may be before the creation as well
            router.unshared_through = router.source.head
            if router.dest.is_far:
                router.is_unsure, router.known_head = True, router.source.head
            if router.config.guarantee != EXACTLY_ONCE:
                router.own = []
            router.examined = min(router.examined, router.dest.head)
            if router.unmarked == UNKNOWN:
                router.unmarked = router.dest.head
            if router.keeping:
                seqs = np.array(sorted(router.keeping), np.uint64)
                for seq in seqs[~router.source.index.alive(seqs)].tolist():  # deleted (R-DEL-9)
                    router.kept_bytes -= len(router.keeping.pop(seq))
            router.drop_kept()
        for topics in self._registry.by_id.lists():
            yield
            for topic in topics:
                if topic.hops is None or topic is self._registry.staging:
                    continue
                topic.hops.forget(min((router.position for router in topic.routers), default=topic.head))
                if not topic.hops.runs:
                    topic.hops = None
