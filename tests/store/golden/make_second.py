"""Writes the golden directory of format 2: python -m tests.store.golden.make_second DIRECTORY

A killed server's two directories, `data` and `cold`: records of bytes and of JSON, a named reader with a position, a
compressed segment in the cold directory with a delete flag of its own, a segment that was written anew, a snapshot,
and a log after it with more of each kind.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.contract.world.sim_world import SimWorld
from tests.sim.world.sim_disk import SimDirectory
from tests.store.golden.make import dump, new_target, write_expected

PLACES = {"data": "/srv/topics", "cold": "/srv/cold"}
"""Part of the golden directory -> where the server has it."""
READER = "/v0/topics/orders/readers/billing"
DELETED = (6, *range(23, 30))
"""One record of a compressed segment, and most of one that is then written anew."""
_CHECKPOINT_MS = 1100


def world() -> SimWorld:
    return SimWorld(
        wal_file_bytes=64 << 10,
        checkpoint_wal_bytes=1,
        segment_max_events=10,
        pack_run_bytes=256,
        cold_dir=PLACES["cold"],
        hot_retain_segments=2,
        segment_codec="zstd",
    )


def record(topic: str, number: int) -> dict[str, Any]:
    """Bytes and JSON in turns, which say where they belong."""
    tag = "gone" if number in DELETED else f"t:{number % 3}"
    text = f"{topic}/{number}/".ljust(90, "x")
    if number % 2:
        return {"data_base64": base64.b64encode(b"\xff\x00" + text.encode()).decode(), "tag": tag}
    return {"data": text, "tag": tag, "meta": {"n": number}}


def write(served: SimWorld, topic: str, numbers: range) -> None:
    served.write_records(topic, [record(topic, number) for number in numbers])


def commit(served: SimWorld, limit: int) -> None:
    page = served.request("POST", f"{READER}/read", {"limit": limit})
    assert served.request("POST", f"{READER}/commit", {"token": page.json["token"]}).status == 200


def fill(served: SimWorld) -> None:
    served.start()
    for topic in ("orders", "clicks"):
        served.put(topic, durability="fsync")
    for begin in (1, 11, 21, 31):
        write(served, "orders", range(begin, begin + 10))
        served.advance_ms(_CHECKPOINT_MS)
    write(served, "clicks", range(1, 3))
    assert served.request("PUT", READER, {"holds": True}).status == 201
    commit(served, 7)
    served.delete("orders", match="gone")
    for _ in range(2):
        served.advance_ms(_CHECKPOINT_MS)
    # What follows is in the log and in no snapshot.
    write(served, "orders", range(41, 44))
    write(served, "clicks", range(3, 5))
    commit(served, 2)


def expected(served: SimWorld) -> dict[str, Any]:
    """The answers that clients must get."""
    reader = served.request("GET", READER).json
    topics = {topic: served.diff(topic, include_tags=True)["records"] for topic in ("clicks", "orders")}
    return topics | {"billing": {name: reader[name] for name in ("committed", "delivery", "holds", "trims")}}


def write_golden(
    fill: Callable[[SimWorld], None], expected: Callable[[SimWorld], dict[str, Any]], *, waited_ms: int = 0
) -> None:
    """Write the directories of a server that was killed after `fill`, and what clients must get of them.

    waited_ms: time between the two.
    """
    target = new_target()
    served = world()
    fill(served)
    for part, path in PLACES.items():
        found = served.ring.disk.find(path)
        assert isinstance(found, SimDirectory)
        dump(found, target / part)
    for extra in ("lock", "reserve", "wal/*/spare-*"):
        for path in (target / "data").glob(extra):
            path.unlink()
    if waited_ms:
        served.advance_ms(waited_ms)
    write_expected(target, expected(served))
    served.close()


if __name__ == "__main__":
    write_golden(fill, expected)
