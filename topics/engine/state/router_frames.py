"""Payloads of routers' control frames, and routers in the snapshot: compact JSON.

A router's frames are in the shard of its destination, so that copies, direct writes and positions
have one order. Its creation and deletion are written to the shard of its source, too.
"""

from __future__ import annotations

import msgspec

from topics.engine.state.hops import Run
from topics.engine.state.router import UNKNOWN, RouterLife, StoredConfig
from topics.engine.state.topic import Router


class FarEnd(msgspec.Struct, array_like=True):
    """The end of a router that is on another core."""

    token: str
    """`Router.token`."""
    name: str
    is_source: bool
    """Whether it is the source, and not the destination."""


class RouterPayload(msgspec.Struct, omit_defaults=True):
    """The payload of ROUTER_PUT.

    The frame's seq is the order number; `id` is that of the creation.
    """

    id: int
    name: str
    source: int
    """The topic id of the source; `dest` likewise."""
    dest: int
    config: StoredConfig
    position: int = 0
    """The position of a new router."""
    unmarked: int = UNKNOWN
    """`Router.unmarked`. A new router has no copies yet."""
    far: FarEnd | None = None


class RouterDeletePayload(msgspec.Struct):
    """The payload of ROUTER_DELETE."""

    id: int


class ForwardPayload(msgspec.Struct, omit_defaults=True):
    """The payload of FORWARD: the result of one step of a router in its destination.

    The frame's seq is the step's first seq there. Positions are absolute, and the latest frame
    counts.
    """

    router: int
    position: int
    """The router's position after the step."""
    forwarded: int
    """The total of forwarded records after the step."""
    holes: int = 0
    """The number of destination seqs, from the frame's seq on, that stand for losses in the source
    (R-TRIM-1).
    """
    hops: list[Run] = []
    """The hops of the holes and the copies."""
    source: int = 0
    """The topic id of the source; 0 if the copies' own frames follow in the batch."""
    refs: list[tuple[int, int]] = []
    """The source seqs that were copied, as runs. The copies have the seqs after the holes, in
    order.
    """
    keep: int = 0
    """The flags (format.FLAG_*) of the originals that the copies retain."""
    sizes: list[int] = []
    """The sizes of these copies; one number if all are equal. If the originals are in another
    shard, a power cut may lose them, but evictions by a cap of bytes that counted the copies must
    stay the same.
    """


class KeepPayload(msgspec.Struct):
    """The payload of KEEP: frames that the router needs after the source's CONSUME."""

    router: int
    frames: list[tuple[int, bytes]]
    """Source seq and whole frame."""


class RouterImage(msgspec.Struct, omit_defaults=True):
    """A router in the snapshot, and in the descriptions in its destination's segments."""

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
    """Frames of jobs that were acknowledged."""
    keeping: list[tuple[int, bytes]] = []
    """Frames of jobs whose ack was undecided."""
    far: FarEnd | None = None


def far_end_of(router: Router) -> FarEnd | None:
    """Return the end that is on another core; None: both are here."""
    if not router.token:
        return None
    far = router.source if router.source.is_far else router.dest
    return FarEnd(router.token, far.name, far is router.source)


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
        far_end_of(router),
    )


def images_of(routers: list[Router]) -> list[RouterImage]:
    """Return the images of the durable ones."""
    there = (RouterLife.LIVE, RouterLife.DELETING)
    return [image_of_router(router) for router in routers if router.life in there]
