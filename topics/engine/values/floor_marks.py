"""The floors of a topic as numbers, in snapshots and in frames of configurations."""

from __future__ import annotations

import msgspec

from topics.store.format.floors import Floors


class FloorMarks(msgspec.Struct, omit_defaults=True, gc=False):
    """The marks of the floors, in snapshots and frames."""

    cap: int = 0
    ttl: int = 0
    trim: int = 0
    crash: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, floors: Floors) -> FloorMarks:
        return cls(floors.cap, floors.ttl, floors.trim, floors.crash, floors.deleted)

    def raise_floors(self, floors: Floors) -> None:
        floors.raise_to(cap=self.cap, ttl=self.ttl, trim=self.trim, crash=self.crash, deleted=self.deleted)
