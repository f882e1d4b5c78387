"""Topics that lose records by themselves: one that expires them, and an ephemeral one that ends
with the process.

R-TTL-1, R-TTL-3: a read shows every record that has not expired, and no other. R-DUR-8: a record
that was reported as expired never comes back, and its loss is still reported. R-DUR-5: an ephemeral
topic is empty after a restart and has its config.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.clients.payloads import stored
from tests.sim.whole.machine import Audit, Machine, Wrong

_FOREVER = 1 << 62


class Acked(NamedTuple):
    text: str
    asked_ms: int
    """The earliest time at which it was written, by the wall clock."""
    kept: bool
    """Whether it survives the process."""
    alive: bool = True
    """Whether it cannot have expired under an earlier time to live, or clock."""


class Topic:
    def __init__(self, name: str, config: dict[str, Any], others: tuple[dict[str, Any], ...]) -> None:
        self.path = f"/v0/topics/{name}"
        self.configs = [config]
        """The config it has; two: it is being changed from one to the other, or the change had no
        answer.
        """
        self.choices = (config, *others)
        """The configs it may be changed to."""
        self.changes = 0
        """Changes requested and answered."""
        self.exists = False
        self.texts: set[str] = set()
        """Every text that was ever sent."""
        self.gone: set[str] = set()
        """Texts that were absent after a start: they never come back."""
        self.acked: dict[int, Acked] = {}
        self.expired = 0
        """A reader was shown expiry up to this seq."""
        self.known: dict[int, int] = {}
        """By seq acknowledged before a change of the config, in this life: the $ts before which all
        had expired then. (A write in flight was neither shown nor reported as expired.)
        """

    @property
    def is_ephemeral(self) -> bool:
        """Whether it may be ephemeral."""
        return any(config["durability"] == "ephemeral" for config in self.configs)

    def lives(self) -> list[int]:
        """Return the times to live of a record, in ms, by the configs it may have, ascending."""
        return sorted(config.get("ttl_ms", 0) or _FOREVER for config in self.configs)

    def expire(self, now_ms: int) -> None:
        """Note that what has expired by now stays so, whatever clocks and configs do (R-FLOOR-5)."""
        oldest_ms = now_ms - self.lives()[0]
        for seq, acked in self.acked.items():
            if acked.asked_ms < oldest_ms:
                self.acked[seq] = acked._replace(alive=False)

    def end_life(self, now_ms: int) -> None:
        self.expire(now_ms)
        self.known = {}
        for seq, acked in self.acked.items():
            if not acked.kept:
                self.acked[seq] = acked._replace(alive=False)


class Asked:
    """The knowledge about a topic when a page of it was requested."""

    def __init__(self, topic: Topic, at_ms: int) -> None:
        self.at_ms = at_ms
        self.changes = topic.changes
        self.longest_ms = topic.lives()[-1]
        self.expired = topic.expired
        self.known = dict(topic.known)
        self.must = set(topic.acked)


class Passing(Clients):
    may_stall = False

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        durability = rng.choice(("disk", "fsync"))
        lives = [{"durability": durability, "ttl_ms": ttl_ms} for ttl_ms in (rng.choice((2, 10, 60)), 5, 200, 0)]
        classes = [{"durability": durability} for durability in ("ephemeral", "disk")]
        changes = rng.random() < 0.5
        self.topics = [
            Topic("p-expires", lives[0], (*lives[1:],) if changes else ()),
            Topic("p-ephemeral", classes[0], (*classes[1:],) if changes else ()),
        ]
        self.clients = [_Client(self, number) for number in range(2)]
        machine.monitor.living.append(self.live_texts)

    def live_texts(self) -> set[bytes]:
        """Return texts of records that certainly exist, and stay."""
        lossy = self.machine.power_failed or self.machine.io_failed
        return {
            acked.text.encode()
            for topic in self.topics
            if topic.lives() == [_FOREVER] and (topic.configs[0]["durability"] == "fsync" or not lossy)
            for seq, acked in topic.acked.items()
            if acked.alive and acked.kept and seq > topic.expired
        }

    def paths(self) -> list[str]:
        """Return no paths: time changes what the topics show."""
        return []

    def crashed(self) -> None:
        """Note that what has expired by now stays so, even if the clock is set back."""
        super().crashed()
        for topic in self.topics:
            topic.end_life(self.machine.ring.clock.now_ms())

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        return [self._audit(topic) for topic in self.topics if is_there(topic.path)]

    def _audit(self, topic: Topic) -> Audit:
        machine = self.machine
        if not topic.exists:
            yield from self.put(topic.path, topic.configs[0])
            topic.exists = True
        status, looked = yield "GET", f"{topic.path}?touch=false", None
        found = looked.get("config", {})
        topic.configs = [config for config in topic.configs if config.items() <= found.items()][:1]
        if status != 200 or not topic.configs:
            raise machine.wrong(f"{topic.path}: {status} {looked} after a start")
        if topic.is_ephemeral:
            if looked["count"]:
                raise machine.wrong(f"{topic.path}: {looked['count']} records after a start")
            topic.acked.clear()
            topic.gone = set(topic.texts)
            return
        asked = Asked(topic, machine.ring.clock.now_ms())
        if (machine.power_failed or machine.io_failed) and topic.configs[0]["durability"] == "disk":
            asked.expired = topic.expired = 0
            asked.must.clear()
        status, page = yield "POST", f"{topic.path}/diff", {"from_seq": 0, "limit": 1000}
        if status != 200:
            raise machine.wrong(f"{topic.path}: the audit was answered {status} {page}")
        self.check(topic, page, asked)
        seqs = {row["$seq"] for row in page["records"]}
        topic.acked = {seq: acked for seq, acked in topic.acked.items() if seq in seqs}
        found = {row["data"] for row in page["records"]}
        topic.gone = topic.texts - found if page["caught_up"] else topic.gone - found

    def check(self, topic: Topic, page: Any, asked: Asked) -> None:
        """Check a page from 0."""

        def wrong(text: str) -> Wrong:
            return self.machine.wrong(f"{topic.path}: {text}")

        now_ms = self.machine.ring.clock.now_ms()
        found = {row["$seq"]: row for row in page["records"]}
        longest_ms = max(asked.longest_ms, topic.lives()[-1])
        durable = all(config["durability"] == "fsync" for config in topic.configs)
        may_lose = not durable and (self.machine.power_failed or self.machine.io_failed)  # the note of an expiry, too
        if topic.changes - asked.changes > 2:  # more than one since: which of them was in force is unknown
            longest_ms = _FOREVER
        for seq, row in found.items():
            acked = topic.acked.get(seq)
            if row["data"] not in topic.texts or (acked is not None and acked.text != row["data"]):
                raise wrong(f"seq {seq} holds {row['data'][:20]}, not {acked}")
            if row["data"] in topic.gone and not may_lose:
                raise wrong(f"seq {seq} with {row['data']} is back, which an earlier start did not find")
            if row["$ts"] + longest_ms < asked.at_ms:
                raise wrong(f"seq {seq} of {row['$ts']} is shown at {asked.at_ms}, and lives for {longest_ms} ms")
            if seq <= asked.expired:
                raise wrong(f"seq {seq} is back; up to {asked.expired} all had expired")
            if row["$ts"] < asked.known.get(seq, 0):
                raise wrong(f"seq {seq} of {row['$ts']} is back; up to {asked.known[seq]} all had expired")
        oldest_ms = now_ms - topic.lives()[0]
        lost = [
            seq
            for seq in asked.must - found.keys()
            if topic.expired < seq <= page["next_from_seq"]
            and topic.acked[seq].alive
            and topic.acked[seq].asked_ms >= oldest_ms
        ]
        if lost:
            raise wrong(f"lost {lost[:5]} of {len(asked.must)}")
        tombstone = page["tombstone"]
        told = tombstone["gap_to"] if tombstone is not None and tombstone["reason"] == "ttl" else 0
        if told < asked.expired:
            raise wrong(f"was told to have expired up to {asked.expired}, and now tells of {tombstone}")
        if told:
            topic.expired = max(topic.expired, told)
            self.machine.counts["expiries told"] += 1


class _Client(Client):
    shared: Passing

    def step(self, wire: Wire) -> None:
        topic = self.rng.choice(self.shared.topics)
        choice = self.rng.random()
        if choice < 0.12 and self.number == 0 and len(topic.choices) > 1 and len(topic.configs) == 1:
            self._change(wire, topic)
        elif choice < 0.6:
            self._write(wire, topic)
        else:
            self._read(wire, topic)

    def _next(self, name: str, status: int, answer: Any) -> bool:
        if self.machine.tracing:
            self.machine.say(f"passing {self.number} <- {name}: {status} {str(answer)[:160]}")
        self.count(name, status, answer)
        self._later(self.rng.randrange(1000, 600_000), self._step)
        return status == 200

    def _write(self, wire: Wire, topic: Topic) -> None:
        self.shared.serial += 1
        texts = [f"~p.{self.shared.serial}.{index}~" for index in range(self.rng.choice((1, 3)))]
        topic.texts.update(texts)
        asked_ms, changes = self.machine.ring.clock.now_ms(), topic.changes
        is_kept = not topic.is_ephemeral

        def written(status: int, answer: Any) -> None:
            if self._next("writes that pass", status, answer):
                is_same = changes == topic.changes
                for seq, text in zip(range(answer["first_seq"], answer["last_seq"] + 1), texts, strict=True):
                    topic.acked[seq] = Acked(text, asked_ms, is_kept and is_same, is_same)
                # Records that may have expired since may have left the log, too.
                oldest_ms = self.machine.ring.clock.now_ms() - topic.lives()[0]
                if is_same and topic.configs[0]["durability"] == "fsync" and asked_ms > oldest_ms:
                    self.machine.monitor.acked([stored(text) for text in texts])

        wire.ask("POST", topic.path, {"records": [{"data": text} for text in texts]}, written)

    def _read(self, wire: Wire, topic: Topic) -> None:
        asked = Asked(topic, self.machine.ring.clock.now_ms())

        def read(status: int, page: Any) -> None:
            if self._next("reads of what passes", status, page):
                self.shared.check(topic, page, asked)

        wire.ask("POST", f"{topic.path}/diff", {"from_seq": 0, "limit": 1000}, read)

    def _change(self, wire: Wire, topic: Topic) -> None:
        """Set another time to live, or another class (R-CFG-2, R-CFG-3)."""
        before, after = topic.configs[0], self.rng.choice(topic.choices)
        if after == before:
            self._read(wire, topic)
            return
        topic.configs = [before, after]
        topic.changes += 1
        if before["durability"] != after["durability"]:
            topic.acked = {seq: acked._replace(kept=False) for seq, acked in topic.acked.items()}
        ttl_ms = before.get("ttl_ms", 0)
        expired_ts, known = self.machine.ring.clock.now_ms() - ttl_ms if ttl_ms else 0, set(topic.acked)

        def changed(status: int, answer: Any) -> None:
            if self._next("changes of what passes", status, answer):
                topic.expire(self.machine.ring.clock.now_ms())
                topic.configs = [after]
                topic.changes += 1
                topic.known |= {seq: max(expired_ts, topic.known.get(seq, 0)) for seq in known}

        wire.ask("PUT", topic.path, after, changed)
