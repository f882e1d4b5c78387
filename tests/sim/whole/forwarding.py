"""A router that forwards exactly once, through every crash: a topic that is written, and one where the copies arrive.

Checked is what R-RTR-2, R-RTR-4 and R-RTR-16 promise whatever the order of things: a record arrives once, in the
order of its source; what a reader was shown stays where it was; nothing that is acknowledged and kept is left out.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients import Client, Clients
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.wire import Wire


class Forwarding(Clients):
    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        self.durability = rng.choice(("disk", "fsync", "fsync"))
        self.source, self.dest = "/v0/topics/f-source", "/v0/topics/f-dest"
        self.exists = False
        self.written: dict[str, int] = {}
        """Every text that was ever sent, by its number: of one writer, so in the order of the source."""
        self.acked: dict[int, str] = {}
        self.shown: dict[int, str] = {}
        """What was read in the destination."""
        self.direct: set[str] = set()
        """Written into the destination itself, between the copies."""
        self.clients = [_Writer(self, 0), _Reader(self, 1)]
        machine.monitor.living.append(self.live_texts)

    def paths(self) -> list[str]:
        return [self.source, self.dest]

    def live_texts(self) -> set[bytes]:
        """Of the source; what is shown in the destination may be the same text."""
        found = () if self.may_lose else self.acked.values()
        return {text[: text.index("~", 1) + 1].encode() for text in found}

    @property
    def may_lose(self) -> bool:
        return self.durability == "disk" and (self.machine.power_failed or self.machine.io_failed)

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit()]

    def _audit(self) -> Audit:
        if not self.exists:
            for path in (self.source, self.dest):
                yield from self.put(path, {"durability": self.durability})
            names = {"source": "f-source", "dest": "f-dest", "guarantee": "exactly_once"}
            yield from self.put("/v0/routers/f-router", names)
            self.exists = True
        source, _told, _head = yield from self.read_back(self.source)
        dest, _told, _head = yield from self.read_back(self.dest)
        self.check_copies(dest)
        missing = {seq for seq, text in self.acked.items() if source.get(seq) != text}
        if missing and not self.may_lose:
            raise self.machine.wrong(f"the source of a router lost {sorted(missing)[:5]}")
        left_out = set(source.values()) - set(dest.values())
        if left_out:
            raise self.machine.wrong(f"not forwarded: {sorted(left_out)[:5]} of {len(source)}")
        moved = {seq: text for seq, text in self.shown.items() if dest.get(seq) != text}
        if moved and not self.may_lose:
            raise self.machine.wrong(f"the destination changed at {sorted(moved.items())[:5]}")
        self.machine.counts["copies read back"] += len(dest)
        self.acked, self.shown = dict(source), dict(dest)

    def check_copies(self, found: dict[int, str]) -> None:
        """Of the destination, or of a part of it."""
        texts = [text for text in found.values() if text not in self.direct]
        numbers = [self.written.get(text, 0) for text in texts]
        if 0 in numbers:
            raise self.machine.wrong(f"a router forwarded {texts[numbers.index(0)]}, which nobody wrote")
        if len(set(numbers)) != len(numbers):
            raise self.machine.wrong(f"forwarded more than once: {[text[:12] for text in texts]}")
        if numbers != sorted(numbers):
            raise self.machine.wrong(f"forwarded out of order: {[text[:12] for text in texts]}")


class _Writer(Client):
    """One write after another, so that their order is known."""

    shared: Forwarding

    def step(self, wire: Wire) -> None:
        shared, rng = self.shared, self.rng
        shared.serial += 1
        width = rng.choice((0, 0, 30, 300))
        texts = [f"~f.{shared.serial}.{index}~" + "x" * width for index in range(rng.choice((1, 1, 2, 4)))]
        direct = rng.random() < 0.15
        if direct:
            shared.direct.update(texts)
        else:
            first = len(shared.written) + 1
            shared.written.update((text, first + index) for index, text in enumerate(texts))

        def written(status: int, answer: Any) -> None:
            if self.machine.tracing:
                self.machine.say(f"router's writer <- {status} {str(answer)[:120]}")
            self.count("writes before a router", status, answer)
            self._later(rng.randrange(1000, 400_000), self._step)
            if status == 200:
                seqs = range(answer["first_seq"], answer["last_seq"] + 1)
                (shared.shown if direct else shared.acked).update(zip(seqs, texts, strict=True))

        body = {"records": [{"data": text} for text in texts]}
        wire.ask("POST", shared.dest if direct else shared.source, body, written)


class _Reader(Client):
    """Reads the destination from anywhere, at times waiting for copies."""

    shared: Forwarding

    def step(self, wire: Wire) -> None:
        shared, rng = self.shared, self.rng
        cursor = rng.choice((0, max(shared.shown, default=0)))
        acked = set(shared.acked.values())

        def read(status: int, page: Any) -> None:
            self.count("reads behind a router", status, page)
            self._later(rng.randrange(1000, 600_000), self._step)
            if status != 200:
                return
            found = {row["$seq"]: row["data"] for row in page["records"]}
            shared.check_copies(found)
            for seq, text in found.items():
                if shared.shown.setdefault(seq, text) != text:
                    raise self.machine.wrong(f"seq {seq} behind a router was {shared.shown[seq]}, now {text}")
            left_out = acked - set(found.values())
            if cursor == 0 and left_out and page["caught_up"] and self.machine.lacks_nothing:
                raise self.machine.wrong(f"acknowledged before the read, and not forwarded: {sorted(left_out)[:5]}")

        body = {"from_seq": cursor, "limit": 1000, "wait_ms": rng.choice((0, 0, 5))}
        wire.ask("POST", f"{shared.dest}/diff", body, read)
