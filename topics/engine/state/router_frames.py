"""Payloads of routers' control frames, and routers in the snapshot: compact JSON.

A router's frames lie in the shard of its destination, so copies, direct writes and positions have one order. Its
creation and deletion are written to the shard of its source, too.
"""

from __future__ import annotations

import msgspec

from topics.engine.state.hops import Run
from topics.engine.state.router import UNKNOWN, Router, RouterLife, StoredConfig


class RouterPayload(msgspec.Struct, omit_defaults=True):
    """ROUTER_PUT. The frame's seq is the order number; `id` that of the creation."""

    id: int
    name: str
    source: int
    """Topic ids."""
    dest: int
    config: StoredConfig
    position: int = 0
    """Of a new router."""
    unmarked: int = UNKNOWN
    """The router's; a new one has no copies yet."""


class RouterDeletePayload(msgspec.Struct):
    """ROUTER_DELETE."""

    id: int


class ForwardPayload(msgspec.Struct, omit_defaults=True):
    """FORWARD: what one step of a router put into its destination; the frame's seq is the first seq of that there.

    Positions are absolute, and the latest frame counts.
    """

    router: int
    position: int
    """Of the router afterwards."""
    forwarded: int
    """In all, afterwards."""
    holes: int = 0
    """So many seqs of the destination, from the frame's seq on, stand for what the source had lost (R-TRIM-1)."""
    hops: list[Run] = []
    """Of the holes and the copies."""
    source: int = 0
    """Topic id; 0 where the copies' own frames follow in the batch."""
    refs: list[tuple[int, int]] = []
    """Which of its seqs were copied, as runs: the copies have the seqs behind the holes, in order."""
    keep: int = 0
    """Flags (format.FLAG_*) of the originals that the copies keep."""
    sizes: list[int] = []
    """Of these copies; one number when it is the same for all. A power cut may take the originals, if they lie in
    another shard, but what their copies evicted by a cap of bytes, of now or of later, stays so."""


class KeepPayload(msgspec.Struct):
    """KEEP: frames that the router needs once its source is done with the records: when their CONSUME counts."""

    router: int
    frames: list[tuple[int, bytes]]
    """Source seq and whole frame."""


class RouterImage(msgspec.Struct, omit_defaults=True):
    """A router in the snapshot, and in what segments of its destination say of that."""

    id: int
    name: str
    source: int
    dest: int
    config: StoredConfig
    order: int
    position: int
    forwarded: int
    examined: int = 0
    evidence: list[tuple[int, int]] = []
    unmarked: int = UNKNOWN
    kept: list[tuple[int, bytes]] = []
    """Of jobs that were acknowledged."""
    keeping: list[tuple[int, bytes]] = []
    """Of jobs whose ack was not decided."""


def image_of_router(router: Router) -> RouterImage:
    return RouterImage(
        router.id,
        router.name,
        router.source.id,
        router.dest.id,
        StoredConfig.of(router.config),
        router.order,
        router.position,
        router.forwarded,
        router.examined,
        list(router.evidence.items()),
        router.unmarked,
        [(seq, router.kept[seq]) for seq in router.kept_seqs],
        list(router.keeping.items()),
    )


def images_of(routers: list[Router]) -> list[RouterImage]:
    """Of those that are durable."""
    return [image_of_router(router) for router in routers if router.life is not RouterLife.CREATING]
