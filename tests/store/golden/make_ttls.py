"""Writes another golden directory of format 3: python -m tests.store.golden.make_ttls DIRECTORY

A killed server's two directories, `data` and `cold`: a topic whose records have ttls of their own in a compressed
segment, a segment, a pack and the log, records without one among them, holes, and a queue whose jobs have delays, too.
"""

from __future__ import annotations

from typing import Any

from tests.contract.world.sim_world import SimWorld
from tests.store.golden.make_second import write_golden

TTLS_MS = (0, 500, 60_000, 2_000_000_000)
"""No ttl, one that ends before the server does, one that has ended when the directory is opened, one that has not."""
_CHECKPOINT_MS = 1100


def record(number: int) -> dict[str, Any]:
    ttl = {"ttl_ms": TTLS_MS[number % 4]} if number % 4 else {}
    if number % 5 == 0:
        return {"data_base64": "AAEC", **ttl}
    return {"data": f"record {number} ".ljust(60, "x"), "meta": {"n": number}, **ttl}


def write(served: SimWorld, topic: str, numbers: range, **more: Any) -> None:
    served.write_records(topic, [record(number) | more for number in numbers])


def walk(served: SimWorld, topic: str) -> list[Any]:
    """All records and tombstones, in the order of a reader from the beginning."""
    found: list[Any] = []
    cursor, caught_up = 0, False
    while not caught_up:
        page = served.diff(topic, cursor)
        found += [page["tombstone"]] if page["tombstone"] is not None else []
        found += page["records"]
        cursor, caught_up = page["next_from_seq"], page["caught_up"]
    return found


def fill(served: SimWorld) -> None:
    served.start()
    served.put("mixed", durability="fsync")
    served.put("few", durability="fsync", type="queue")
    for begin in (1, 11, 21, 31):
        write(served, "mixed", range(begin - 1, begin + 9))
        served.advance_ms(_CHECKPOINT_MS)
    write(served, "few", range(6), delay_ms=10)
    walk(served, "mixed")
    for _ in range(2):
        served.advance_ms(_CHECKPOINT_MS)
    walk(served, "few")
    # What follows is in the log and in no snapshot.
    write(served, "mixed", range(40, 46))
    write(served, "few", range(6, 9), delay_ms=10)
    served.advance_ms(600)
    walk(served, "mixed")


def expected(served: SimWorld) -> dict[str, Any]:
    """The answers that clients must get."""
    return {topic: walk(served, topic) for topic in ("few", "mixed")}


if __name__ == "__main__":
    write_golden(fill, expected, waited_ms=TTLS_MS[2] + 5000)
