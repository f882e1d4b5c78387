"""A topic whose class, caps and expiry change all the time: what is there after a restart or a kill is what was there.

Less what was in memory, and with the same tombstone: what a replay works out must be what happened (R-DUR-8, -13).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld

CLASSES = ("disk", "fsync", "memory", "ephemeral", "ephemeral")
SEEDS = (1, 2, 3, 1001, 1040, 1041, 1063, 1087, 1113, 1121, 1211, 1212)
"""Most of them find an engine that does not log what records in memory evict, or which keys it forgot."""


class Changing:
    """One run. `keys`: of writes by now, and whether their records are of class `ephemeral`."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        shards, checkpoint = rng.choice((1, 2)), rng.choice((1, 1 << 20))
        self.world = SimWorld(seed, wal_shards=shards, checkpoint_wal_bytes=checkpoint)
        self.world.start()
        self.type = rng.choice(("log", "queue"))
        self.written = 0
        self.keys: dict[str, bool] = {}
        self.change()

    def change(self) -> None:
        rng = self.rng
        self.durability = rng.choice(CLASSES)
        caps: dict[str, Any] = {"cap_records": rng.choice((0, 3, 4, 6)), "cap_bytes": rng.choice((0, 0, 0, 8))}
        self.world.put("a", type=self.type, durability=self.durability, **caps)

    def write(self) -> None:
        self.written += 1
        key = f"key {self.rng.randrange(6)}"
        records = [{"data": self.written, "tag": self.rng.choice("xy")}]
        answer = self.world.write_records("a", records, idempotency_key=key)
        assert answer["deduped"] == (key in self.keys), key
        self.keys.setdefault(key, self.durability == "ephemeral")

    def write_at_once(self) -> None:
        """And a delete and a PUT between them."""
        asked = []
        for at in range(4):
            if at == 2 and self.rng.random() < 0.5:
                asked.append(self.world.ask("POST", "/v0/topics/a/delete", {"match": "x"}))
            elif at == 2:
                config = {"type": self.type, "durability": self.durability, "cap_records": self.rng.choice((2, 4))}
                asked.append(self.world.ask("PUT", "/v0/topics/a", config))
            self.written += 1
            asked.append(self.world.ask("POST", "/v0/topics/a", {"records": [{"data": self.written}]}))
        for connection in asked:
            assert connection.answer().status == 200

    def delete(self) -> None:
        state = self.world.state("a")
        if self.rng.random() < 0.5:
            self.world.delete("a", match=self.rng.choice("xy"))
        elif state["head_seq"] >= state["earliest_seq"]:
            self.world.delete("a", before_seq=self.rng.randint(state["earliest_seq"], state["head_seq"]))

    def ack(self) -> None:
        if self.type == "queue":
            claimed = self.world.request("POST", "/v0/topics/a/claim", {"node": "n", "max": 2}).json["claimed"]
            seqs = [job["$seq"] for job in claimed]
            self.world.request("POST", "/v0/topics/a/ack", {"node": "n", "seqs": seqs})

    def wait(self) -> None:
        self.world.advance_ms(2000)

    def look(self) -> tuple[dict[int, Any], tuple[Any, ...] | None]:
        """Data by seq, and what a reader from 0 is told."""
        page = self.world.diff("a", limit=1000)
        gap = page["tombstone"]
        return (
            {record["$seq"]: record["data"] for record in page["records"]},
            gap and (gap["gap_from"], gap["gap_to"], gap["reason"]),
        )

    def end_life(self) -> None:
        kept, told = self.look()
        assert self.world.server is not None
        assert self.world.server.engine is not None
        core = self.world.server.engine._core
        for chunk, rows, file_ids in core.registry.by_name["a"].index.locations(0, 1 << 62):
            for row, file_id in zip(rows.tolist(), file_ids.tolist(), strict=True):
                if core.usage.is_memory(file_id):
                    del kept[chunk.first + row]
        self.rng.choice((self.world.restart, self.world.crash_and_start))()
        if self.durability == "ephemeral":
            self.keys.clear()
            assert not self.look()[0]
        else:
            self.keys = {key: False for key, in_memory in self.keys.items() if not in_memory}
            assert self.look() == (kept, told)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_ends_where_the_life_before_it_ended(seed: int) -> None:
    run = Changing(seed)
    steps = (*[run.write] * 6, *[run.change] * 4, run.write_at_once, run.delete, run.ack, run.wait)
    for _ in range(20):
        run.rng.choice((*steps, run.end_life))()
    run.end_life()
