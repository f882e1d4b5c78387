"""Goal: whatever happens, a reader gets every record, or a report of its loss, or a client deleted it.

Method: writers, deletes, caps, ages, new configurations, stops, kills and power cuts on one topic, by a seed. Readers
with cursors of their own read on now and then, through all of it, and hold what they got against what was answered.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.contract.conftest import is_live
from tests.contract.world.sim_world import SimWorld

SETTINGS: dict[str, Any] = {
    "checkpoint_every_ms": 30, "checkpoint_wal_bytes": 8192, "hot_tail_bytes": 4096, "segment_max_events": 7,
    "sync_every_ms": 40,
}  # fmt: skip


class Reader:
    """A cursor, and what it has been through."""

    def __init__(self) -> None:
        self.cursor = 0
        self.got: dict[int, Any] = {}
        self.told: set[int] = set()

    def read_on(self, world: SimWorld, limit: int) -> bool:
        """One diff; whether the reader is caught up."""
        page = world.diff("t", self.cursor, limit=limit)
        stone = page["tombstone"]
        assert page["earliest_seq"] <= page["head_seq"] + 1
        if stone is not None:
            assert stone["reason"] in ("cap", "ttl", "mixed", "crash"), stone
            assert stone["gap_from"] == self.cursor + 1
            assert stone["missed_estimate"] == stone["gap_to"] - self.cursor
            self.told |= set(range(stone["gap_from"], stone["gap_to"] + 1))
        for record in page["records"]:
            seq = record["$seq"]
            assert seq > self.cursor
            assert seq not in self.told, f"{seq} was said to be lost, and is delivered"
            assert self.got.get(seq, record["data"]) == record["data"], "a record never changes"
            self.got[seq] = record["data"]
        assert page["caught_up"] or page["next_from_seq"] > self.cursor
        self.cursor = page["next_from_seq"]
        return bool(page["caught_up"])


@pytest.mark.parametrize("durability", ["disk", "fsync", "changing"])
@pytest.mark.parametrize("seed", seeds(4))
def test_no_record_is_ever_lost_in_silence(request: pytest.FixtureRequest, seed: int, durability: str) -> None:
    """R-TOMB-1, R-TOMB-4, R-TOMB-5, R-DUR-3, R-DUR-6, R-DUR-8, R-FLOOR-2, R-FLOOR-5, R-SEQ-4, R-DATA-2: for readers
    that come and go, from any cursor."""
    if is_live(request.config):
        pytest.skip("a simulated machine")
    rng = random.Random(f"{seed} {durability}")
    world = SimWorld(seed + 1, shuffle=True, split=True, **SETTINGS)
    world.start()
    config: dict[str, Any] = {"durability": "disk" if durability == "changing" else durability}
    world.put("t", **config)
    written: dict[int, Any] = {}
    deleted: set[int] = set()
    readers = [Reader() for _ in range(3)]
    head, seen_head, earliest, number = 0, 0, 1, 0
    for _ in range(60):
        choice = rng.random()
        weakened = False
        if choice < 0.45:
            number += 1
            data = [[number, part] for part in range(rng.randint(1, 5))]
            answer = world.write_records("t", [{"data": each, "tag": f"g{number % 3}"} for each in data])
            assert answer["first_seq"] > head, "an acknowledged number is given out once"
            written |= dict(zip(answer["seqs"], data, strict=True))
            head = answer["last_seq"]
        elif choice < 0.55:
            bound = rng.randint(max(1, head - 20), head + 1)
            world.delete("t", before_seq=bound)
            deleted |= set(range(1, bound))
        elif choice < 0.6:
            tag = rng.randrange(3)
            world.delete("t", match=f"g{tag}")
            deleted |= {seq for seq, data in written.items() if data[0] % 3 == tag}
        elif choice < 0.68:
            if durability == "changing":
                config["durability"] = rng.choice(["disk", "fsync"])
            config["cap_records"] = rng.choice([0, 0, 10, 25])
            config["ttl_ms"] = rng.choice([0, 0, 150])
            world.put("t", **config)
        elif choice < 0.78:
            world.advance_ms(rng.randint(1, 90))
        elif choice < 0.9:
            readers[rng.randrange(2)].read_on(world, rng.choice([1, 5, 1000]))
        else:
            end = rng.choice(["power_cut", "power_cut", "crash", "stop"])
            weakened = end == "power_cut"
            getattr(world, end)()
            world.start()
        state = world.state("t")
        # Of class disk the power takes deletes too, and the newest records with what they had
        # evicted.
        assert state["earliest_seq"] >= earliest or (weakened and durability != "fsync"), "nothing lost comes back"
        assert state["head_seq"] >= seen_head, "the head never falls"
        earliest, seen_head = state["earliest_seq"], state["head_seq"]
    world.put("t", **config | {"ttl_ms": 0})  # so that nothing is removed while the last reader reads
    readers.append(Reader())
    for reader in readers:
        for _ in range(10_000):
            if reader.read_on(world, 7):
                break
        for seq, data in reader.got.items():
            assert written.get(seq) == data, f"seed {seed}: {seq} was never written so"
        missing = set(written) - set(reader.got) - reader.told - deleted
        assert not missing, f"seed {seed}: {sorted(missing)} are gone without a word"
    assert world.state("t")["count"] == len(readers[-1].got)
    world.close()
