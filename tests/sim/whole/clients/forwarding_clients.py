"""Routers, through every crash: a topic that is written, and one or, in a chain, two to which
copies are forwarded.

The checks are R-RTR-1, 2, 4, 6, 11, 14, 16 and R-EO, for any order of events: a record arrives
(with `exactly_once` once) and in the order of its source; records that a reader was shown stay as
they were; no acknowledged and retained record is left out; and none arrives that the filter
excludes, or that was written while there was no router.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine

_ROUTER = "/v0/routers/f-router"
_CAP = 20
Shown = dict[int, tuple[str, int]]
"""By seq: data and $ts (0: no answer has shown it)."""


class Forwarding(Clients):
    knows_no_starts = True

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        self.durability = rng.choice(("disk", "fsync", "fsync"))
        self.guarantee = rng.choice(("exactly_once", "exactly_once", "at_least_once"))
        self.is_filtered = rng.random() < 0.3
        self.is_removed_from = rng.random() < 0.3
        """Whether clients delete records in source and destination from time to time."""
        self.is_remade = rng.random() < 0.3
        """Whether clients delete the router and create it again from time to time."""
        self.capped = rng.choice(("", "", "", "source", "dest"))
        names = ("source", "middle", "dest") if rng.random() < 0.3 else ("source", "dest")
        self.topics = {name: f"/v0/topics/{machine.name_of(f'f-{name}')}" for name in names}
        self.exists = False
        self.is_up: bool | None = True
        """Whether the (first) router exists; None: a change had no answer."""
        self.written: dict[str, int] = {}
        """Every text that was ever sent, and its number. One client writes them, so they are in the
        order of the source.
        """
        self.acked: dict[int, str] = {}
        self.shown: Shown = {}
        """Records read in the destination, or written into it directly."""
        self.direct: set[str] = set()
        """Texts written into the destination itself, between the copies."""
        self.barred: set[str] = set()
        """Texts of the source that must not be forwarded: filtered, or written without a router."""
        self.optional: set[str] = set()
        """Texts of the source that may be missing: perhaps there was no router, or they were
        deleted first.
        """
        self.may_repeat = False
        """Whether the middle of a chain has lost copies that its end may have: it got them again,
        as new records.
        """
        self.removed: set[str] = set()
        """Texts that may be deleted in the destination."""
        self.removed_below = 0
        """A delete of everything below this seq was requested in the destination."""
        self.clients = [_Writer(self, 0), _Reader(self, 1)]
        machine.monitor.living.append(self.live_texts)

    def paths(self) -> list[str]:
        return [*self.topics.values()]

    def live_texts(self) -> set[bytes]:
        """Return texts of the source that certainly exist; the same text may be shown in the
        destination.
        """
        found = () if self.may_lose or self.capped == "source" else self.acked.values()
        return {text[: text.index("~", 1) + 1].encode() for text in found}

    @property
    def may_lose(self) -> bool:
        return self.durability == "disk" and (self.machine.power_failed or self.machine.io_failed)

    def router(self, source: str, dest: str) -> dict[str, Any]:
        ends = [self.topics[end].rpartition("/")[2] for end in (source, dest)]
        body = {"source": ends[0], "dest": ends[1], "guarantee": self.guarantee}
        return body | {"filter": "a:*"} if self.is_filtered and source == "source" else body

    @property
    def first_router(self) -> dict[str, Any]:
        return self.router(*[*self.topics][:2])

    def must_arrive(self, texts: set[str]) -> set[str]:
        """Return those of these texts of the source that must be in the destination."""
        return texts - self.optional - self.barred - self.removed

    @property
    def is_spread(self) -> bool:
        """Return whether a router copies from one core to another one."""
        names = [path.rpartition("/")[2] for path in self.topics.values()]
        return any(self.machine.are_apart(source, dest) for source, dest in pairwise(names))

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit()]

    def _audit(self) -> Audit:
        if not self.exists:
            yield from self._make()
        is_up = yield from self._look_at_router()
        source, _told, _head = yield from self.read_back(self.topics["source"])
        self._check_source(source)
        is_back = self.capped == "source" and self.may_lose  # evicted by a lost write, which the router noticed
        must = self.must_arrive(set(source.values())) if is_up and not is_back else set()
        self.may_repeat |= "middle" in self.topics and self.may_lose
        if "middle" in self.topics:
            middle, _told, _head = yield from self.read_back(self.topics["middle"])
            self.check_copies(middle, is_whole=True, may_repeat=False)
            if must - set(middle.values()) and not self.machine.log_was_long:  # R-LOG-3
                raise self.machine.wrong(f"not forwarded halfway: {sorted(must - set(middle.values()))[:5]}")
        times: dict[int, int] = {}
        dest, losses, _head = yield from self.read_back(self.topics["dest"], times)
        self.check_copies(dest, is_whole=True, may_repeat=self.may_repeat)
        left_out = must - set(dest.values())
        if left_out and self.capped != "dest" and not self.machine.log_was_long:
            raise self.machine.wrong(f"not forwarded: {sorted(left_out)[:5]} of {len(source)}")
        found = {seq: (text, times[seq]) for seq, text in dest.items()}
        first = 0
        if self.capped == "dest":
            # copies that arrive while it is read evict some after its first page
            evicted = [loss["gap_to"] + 1 for loss in losses if loss["reason"] == "cap"]
            first = max([min(found, default=0), *evicted])
        moved = {seq for seq, row in self.shown.items() if seq >= first and not _is_same(row, found.get(seq))}
        if moved and not self.may_lose:
            told = [(seq, self.shown[seq], found.get(seq)) for seq in sorted(moved)[:5]]
            raise self.machine.wrong(f"the destination changed (seq, before, now): {told}")
        again = {seq for seq, (text, _ts) in self.shown.items() if dest.get(seq, text) != text}
        if again and not self.machine.may_forget:
            texts = [(seq, self.shown[seq][0], dest[seq]) for seq in sorted(again)[:5]]
            raise self.machine.wrong(f"seqs of the destination were given again (seq, before, now): {texts}")
        self.machine.counts["copies read back"] += len(dest)
        self.acked, self.shown = dict(source), found
        if not is_up:
            yield from self.put(_ROUTER, self.first_router)
        self.is_up = True

    def _make(self) -> Audit:
        for name, path in self.topics.items():
            cap = {"cap_records": _CAP} if name == self.capped else {}
            yield from self.put(path, {"durability": self.durability, **cap})
        yield from self.put(_ROUTER, self.first_router)
        if "middle" in self.topics:
            yield from self.put(f"{_ROUTER}-2", self.router("middle", "dest"))
        self.exists = True

    def _look_at_router(self) -> Any:
        status, answer = yield "GET", _ROUTER, None
        if status not in {200, 404} or self.is_up not in {None, status == 200}:
            raise self.machine.wrong(f"the router, which was there: {self.is_up}, is answered {status} {answer}")
        return status == 200

    def _check_source(self, source: dict[int, str]) -> None:
        first = min(source, default=0) if self.capped == "source" else 0
        missing = {seq for seq, text in self.acked.items() if seq >= first and source.get(seq) != text}
        if missing and not self.may_lose:
            raise self.machine.wrong(f"the source of a router lost {sorted(missing)[:5]}")
        again = {seq for seq, text in self.acked.items() if source.get(seq, text) != text}
        if again and not self.machine.may_forget:
            raise self.machine.wrong(f"seqs of the source of a router were given again: {sorted(again)[:5]}")

    def check_copies(self, found: dict[int, str], *, is_whole: bool, may_repeat: bool) -> None:
        """Check the copies in a destination, or in a part of it."""
        texts = [text for text in found.values() if text not in self.direct]
        numbers = [self.written.get(text, 0) for text in texts]
        if 0 in numbers:
            raise self.machine.wrong(f"a router forwarded {texts[numbers.index(0)]}, which nobody wrote")
        if not self.barred.isdisjoint(texts):
            raise self.machine.wrong(f"forwarded, and should not be: {self.barred.intersection(texts)}")
        if self.guarantee == "at_least_once" or may_repeat:
            if not is_whole or self.capped or self.removed:
                return  # the first of several copies may be gone
            numbers = [*dict.fromkeys(numbers)]
        elif self.removed:
            numbers = [number for text, number in zip(texts, numbers, strict=True) if text not in self.removed]
        if len(set(numbers)) != len(numbers):
            raise self.machine.wrong(f"forwarded more than once: {[text[:12] for text in texts]}")
        if numbers != sorted(numbers):
            raise self.machine.wrong(f"forwarded out of order: {[text[:12] for text in texts]}")


def _is_same(before: tuple[str, int], now: tuple[str, int] | None) -> bool:
    return now is not None and before[0] == now[0] and before[1] in {0, now[1]}


class _Writer(Client):
    """The writer: one request after another, so that their order is known."""

    shared: Forwarding

    def step(self, wire: Wire) -> None:
        shared, chance = self.shared, self.rng.random()
        if shared.is_remade and shared.is_up is not None and chance < (0.05 if shared.is_up else 0.2):
            self._change_router(wire)
        elif shared.is_removed_from and chance > 0.95:
            self._delete(wire)
        elif chance > 0.8:
            self._write_directly(wire)
        else:
            self._write(wire)

    def _next(self, name: str, status: int, answer: Any) -> bool:
        if self.machine.tracing:
            self.machine.say(f"router's writer <- {name}: {status} {str(answer)[:120]}")
        self.count(name, status, answer)
        self._later(self.rng.randrange(1000, 400_000), self._step)
        return status in {200, 201}

    def _texts(self) -> list[str]:
        self.shared.serial += 1
        width = self.rng.choice((0, 0, 30, 300))
        count = self.rng.choice((1, 1, 2, 4))
        return [f"~f.{self.shared.serial}.{index}~" + "x" * width for index in range(count)]

    def _write_directly(self, wire: Wire) -> None:
        texts = self._texts()
        self.shared.direct.update(texts)

        def written(status: int, answer: Any) -> None:
            if self._next("writes behind a router", status, answer):
                seqs = range(answer["first_seq"], answer["last_seq"] + 1)
                for seq, text in zip(seqs, texts, strict=True):
                    self.shared.shown.setdefault(seq, (text, 0))

        rows: list[dict[str, Any]] = [{"data": text} for text in texts]
        if self.shared.guarantee == "exactly_once" and self.rng.random() < 0.3:
            key = f"router:f-router:{self.rng.randint(1, 12)}:1:"
            for row in rows:  # pretends that something is there already
                seq = len(self.shared.written) + self.rng.randint(-1, 4)
                row["meta"] = {"_topics_router": {"idempotency_key": f"{key}{max(seq, 0)}"}}
        wire.ask("POST", self.shared.topics["dest"], {"records": rows}, written)

    def _write(self, wire: Wire) -> None:
        shared, texts = self.shared, self._texts()
        first = len(shared.written) + 1
        shared.written.update((text, first + index) for index, text in enumerate(texts))
        rows = [{"data": text} for text in texts]
        for row in rows if shared.is_filtered else ():
            row["tag"] = self.rng.choice(("a:1", "a:2", "a", "b"))
            if not row["tag"].startswith("a:"):
                shared.barred.add(row["data"])
        if not shared.is_up:
            shared.optional.update(texts)

        def written(status: int, answer: Any) -> None:
            if self._next("writes before a router", status, answer):
                seqs = range(answer["first_seq"], answer["last_seq"] + 1)
                shared.acked.update(zip(seqs, texts, strict=True))
                if shared.is_up is False:
                    shared.barred.update(texts)

        wire.ask("POST", shared.topics["source"], {"records": rows}, written)

    def _change_router(self, wire: Wire) -> None:
        """Delete the router, or create it again."""
        shared, was_up = self.shared, self.shared.is_up
        shared.is_up = None
        if was_up:  # records not forwarded by now may never be
            shared.optional |= shared.written.keys() - {text for text, _ts in shared.shown.values()}

        def changed(status: int, answer: Any) -> None:
            if self._next("routers deleted" if was_up else "routers made again", status, answer):
                shared.is_up = not was_up

        if was_up:
            wire.ask("DELETE", _ROUTER, None, changed)
        else:
            wire.ask("PUT", _ROUTER, shared.first_router, changed)

    def _delete(self, wire: Wire) -> None:
        """Delete the oldest records of the source, or of the destination."""
        shared = self.shared
        name = self.rng.choice(("source", "dest"))
        known = shared.acked if name == "source" else shared.shown
        before = self.rng.choice(sorted(known)[: len(known) // 3 + 1] or [1])
        if name == "source":
            below = [seq for seq in shared.acked if seq < before]
            shared.optional.update(shared.acked.pop(seq) for seq in below)
        else:
            shared.removed |= shared.written.keys()
            shared.removed_below = max(before, shared.removed_below)
            shared.shown = {seq: row for seq, row in shared.shown.items() if seq >= before}

        def deleted(status: int, answer: Any) -> None:
            self._next("deletes around a router", status, answer)

        wire.ask("POST", f"{shared.topics[name]}/delete", {"before_seq": before}, deleted)


class _Reader(Client):
    """The reader of the destination, from any cursor, which sometimes waits for copies."""

    shared: Forwarding

    def step(self, wire: Wire) -> None:
        shared, rng = self.shared, self.rng
        cursor = rng.choice((0, max(shared.shown, default=0)))
        acked: set[str] = set()
        if cursor == 0 and not shared.capped:
            acked = shared.must_arrive(set(shared.acked.values()))

        def read(status: int, page: Any) -> None:
            self.count("reads behind a router", status, page)
            self._later(rng.randrange(1000, 600_000), self._step)
            if status == 200:
                self._check(acked, page, is_whole=cursor == 0)

        body = {"from_seq": cursor, "limit": 1000, "wait_ms": rng.choice((0, 0, 5))}
        wire.ask("POST", f"{shared.topics['dest']}/diff", body, read)

    def _check(self, acked: set[str], page: Any, *, is_whole: bool) -> None:
        """acked: texts acknowledged before the page was requested."""
        shared = self.shared
        found = {row["$seq"]: row["data"] for row in page["records"]}
        shared.check_copies(found, is_whole=is_whole, may_repeat=shared.may_repeat)
        for row in page["records"]:
            seq, seen = row["$seq"], (row["data"], row["$ts"])
            before = shared.shown.get(seq, seen)
            if not _is_same(before, seen):
                raise self.machine.wrong(f"seq {seq} behind a router was {before}, now {seen}")
            if seq >= shared.removed_below:
                shared.shown[seq] = seen
        left_out, machine = shared.must_arrive(acked - set(found.values())), self.machine
        if machine.stopping and shared.is_spread:
            return  # R-CORE-12: all cores begin to stop at once, that of the source, too
        if left_out and page["caught_up"] and machine.lacks_nothing and not machine.log_was_long:
            raise machine.wrong(f"acknowledged before the read, and not forwarded: {sorted(left_out)[:5]}")
