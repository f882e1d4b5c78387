"""The slot of a topic: one of 1,024 parts into which all names are divided.

A core owns whole slots, so a map of 1,024 entries says where any topic is, however many there are.
"""

from __future__ import annotations

import xxhash

SLOTS = 1024
"""Number of slots, and the most cores there can be. Stored maps depend on it."""


def slot_of(name: str) -> int:
    """Return the slot of a topic's name. It never changes: directories depend on it."""
    return xxhash.xxh3_64_intdigest(name.encode()) % SLOTS
