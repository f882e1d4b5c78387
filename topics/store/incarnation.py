"""Which life of a name a topic is: a number that changes whenever its seqs may name other records."""

from __future__ import annotations

import xxhash


def derived_incarnation(topic_id: int) -> int:
    """Of a topic that was made before topics had one: fixed by its id, never 0."""
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) or 1
