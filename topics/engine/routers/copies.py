"""Rows of copies from the source's frames: kept fields, and the meta of exactly_once (R-EO)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.common.values.configs import EXACTLY_ONCE
from topics.engine.json import strict_json
from topics.engine.json.strict_json import JsonKind
from topics.engine.read.frame_read import OwnFrames, verified
from topics.engine.state.topic import Router
from topics.errors import CorruptError
from topics.store.format.codec import rows_of_frames
from topics.store.format.log_format import FRAME_HEADER_BYTES, PAYLOAD_BYTES
from topics.store.format.rows import BYTES, META, NODE, ROW, ROW_BYTES, TAG, Rows

KEY = "_topics_router"
_ORIGINAL = b'"_topics_original_meta":'
_META_KEYS_MAX = 64
SIZE_AT = 8
"""Index of a row's size in an unpacked ROW."""
_EPOCH = 1
"""A source's records keep their seqs as long as its id exists, so there is only one epoch."""


class Copies(NamedTuple):
    """Rows to append, and the source seq of each."""

    seqs: NDArray[np.uint64]
    rows: bytes
    """Packed ROWs, one each, which refer to `buffer`."""
    sizes: list[int]
    buffer: bytes

    def first(self, count: int) -> Rows:
        """Return the first `count` rows, in the form that the store takes."""
        return Rows(self.buffer, self.rows[: count * ROW_BYTES], count, sum(self.sizes[:count]))

    def at(self, rows: Sequence[int]) -> Copies:
        """Return some of them."""
        spans = [self.rows[at * ROW_BYTES : (at + 1) * ROW_BYTES] for at in rows]
        return Copies(self.seqs[rows], b"".join(spans), [self.sizes[at] for at in rows], self.buffer)


def copies_of(router: Router, parts: Sequence[OwnFrames]) -> Copies:
    """Return the copies of frames. parts: in seq order. Raises CorruptError naming topic and seq.

    The frames are verified, because a copy is a new frame with its own checksum, so damage in the
    old frame would never be noticed again.
    """
    config = router.config
    if config.guarantee == EXACTLY_ONCE:
        return _with_evidence(router, parts)
    keep = (TAG if config.preserve_tag else 0) | (NODE if config.preserve_node else 0)
    buffer, rows = bytearray(), bytearray()
    for part in parts:
        data, base, found = part
        columns = found.offsets, found.lengths, found.seqs
        try:
            rows += rows_of_frames(data, base, columns, router.source.id, keep, len(buffer))
        except CorruptError:
            deque(verified(router.source, part), 0)  # names the topic
            raise
        buffer += data
    return Copies(_seqs(parts), bytes(rows), [row[SIZE_AT] for row in ROW.iter_unpack(rows)], bytes(buffer))


def _seqs(parts: Sequence[OwnFrames]) -> NDArray[np.uint64]:
    if len(parts) == 1:
        return parts[0].rows.seqs
    return np.concatenate([part.rows.seqs for part in parts]) if parts else np.empty(0, np.uint64)


def _with_evidence(router: Router, parts: Sequence[OwnFrames]) -> Copies:
    """Return the copies of `exactly_once`, whose meta states their originals (R-EO-1)."""
    config = router.config
    buffer = bytearray()
    rows: list[bytes] = []
    sizes: list[int] = []
    for part in parts:
        for seq, frame, checked in verified(router.source, part):
            node_len, tag_len, meta_len = map(len, (checked.node or b"", checked.tag or b"", checked.meta or b""))
            data_len, size = len(checked.data), checked.size
            node = len(buffer) + FRAME_HEADER_BYTES + len(checked.ext)
            tag = node + node_len
            text = tag + tag_len
            buffer += frame
            kept = BYTES if checked.payload_kind == PAYLOAD_BYTES else 0
            if checked.tag is not None and config.preserve_tag:
                kept |= TAG
            if checked.node is not None and config.preserve_node:
                kept |= NODE
            merged = merge_meta(checked.meta, evidence_of(router, seq))
            size += len(merged) - meta_len
            meta, meta_len = len(buffer), len(merged)
            buffer += merged
            rows.append(ROW.pack(text, data_len, meta, meta_len, tag, tag_len, node, node_len, size, kept | META))
            sizes.append(size)
    return Copies(_seqs(parts), b"".join(rows), sizes, bytes(buffer))


def key_prefix(router: Router) -> str:
    """Return the prefix of a router's idempotency keys (R-EO-2); the source seq follows."""
    return f"router:{router.name}:{router.source.id}:{_EPOCH}:"


def evidence_of(router: Router, seq: int) -> bytes:
    """Return the value of `_topics_router` (R-EO-1).

    Names contain no characters that JSON escapes.
    """
    return (
        f'{{"idempotency_key":"{key_prefix(router)}{seq}","router":"{router.name}",'
        f'"source_topic":"{router.source.name}","source_topic_id":{router.source.id},"source_epoch":{_EPOCH},'
        f'"source_seq":{seq}}}'
    ).encode()


def merge_meta(meta: bytes | None, value: bytes) -> bytes:
    """Return the source's meta with `_topics_router` set to `value`. Source: R-EO-4."""
    entry = b'"%b":%b' % (KEY.encode(), value)
    if meta is None:
        return b"{%b}" % entry
    if meta[:1] == b"{" and (places := _places(meta)) is not None:
        place = places.get(KEY)
        if place is not None:
            return meta[: place[0]] + value + meta[place[1] :]
        if len(places) < _META_KEYS_MAX:
            return b"%b%b%b}" % (meta[:-1], b"," if places else b"", entry)
    return b"{%b,%b%b}" % (entry, _ORIGINAL, meta)


def _places(meta: bytes) -> dict[str, strict_json.Place] | None:
    """Return the positions of the members; None if copies of copies have nested them too deeply."""
    try:
        return strict_json.object_places(meta, "meta")[0]
    except strict_json.JsonError:
        return None


def source_seq_in(meta: bytes, prefix: str) -> int | None:
    """Return the source seq in `_topics_router.idempotency_key` after `prefix`, else None."""
    if KEY.encode() not in meta or meta[:1] != b"{":
        return None
    place = (_places(meta) or {}).get(KEY)
    if place is None or place[2] != JsonKind.OBJECT:
        return None
    inner, _ = strict_json.object_places(meta[place[0] : place[1]], KEY)
    found = inner.get("idempotency_key")
    if found is None or found[2] != JsonKind.STRING:
        return None
    key = strict_json.string_value(meta[place[0] + found[0] : place[0] + found[1]])
    digits = key[len(prefix) :]
    return (
        int(digits) if key.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 21 else None
    )
