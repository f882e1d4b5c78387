"""Topics that many clients write to at once, and readers that follow them by long polls through
every crash.

The order in which concurrent writes arrive is unknown, so only what must hold for any order is
checked: a seq is given once, a write exists whole or not at all and once, a key appends once, a
follower misses nothing without a report, and below `fsync` a power cut takes a suffix that is
reported.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.clients.keys import Key
from tests.sim.whole.clients.payloads import stored
from tests.sim.whole.machine import Audit, Machine, Wrong
from topics.store.checkpoint import checkpointer

_WRITERS = 2
_LATE_NS = 100_000_000
"""A long poll that has records to answer with is answered at once, whatever arrives in pieces."""


_LONG_MS = 5000
"""Longer than a life. If a server looks every few milliseconds whether a checkpoint is due, a wait
that runs out is thousands of passes: 300 ms there.
"""
_QUICK_NS = 100_000_000


class Topic:
    """The knowledge about one shared topic, which is never deleted."""

    def __init__(self, name: str, durability: str) -> None:
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.durability = durability
        self.exists = False
        self.acked: dict[int, str] = {}
        self.acked_ns: list[tuple[int, int]] = []
        """Seqs and the times of their acknowledgements, since the last audit."""
        self.lasting = 0
        """The records up to this seq outlast a power cut."""
        self.seen: dict[int, str] = {}
        """Records that a reader was shown, acknowledged or not, by seq."""
        self.unknown: list[list[str]] = []
        """Writes without an answer."""
        self.open: dict[int, list[str]] = {}
        """Writes in flight, by a number."""
        self.never: set[str] = set()
        """Texts that do not exist: of duplicates, and of writes that an audit did not find."""
        self.keys: dict[str, Key] = {}
        """Keys whose writes were answered."""
        self.asked: dict[str, int] = {}
        """The earliest time (ms) at which each key was used."""
        self.written_with: dict[str, set[str]] = {}
        """The texts that were sent with each key."""
        self.high_ms = 0
        """The latest time of the clocks that processes ended under."""
        self.given = 0
        """The head at the last audit."""
        self.head = 0
        """The highest seq acknowledged or shown."""
        self.deleted = 0
        """A delete up to this seq was acknowledged."""
        self.deleting = 0
        """A delete up to this seq was requested."""
        self.gaps: list[tuple[int, int]] = []

    def may_be(self, text: str) -> bool:
        return any(text in texts for texts in (*self.unknown, *self.open.values()))


class Shared(Clients):
    """All clients of the shared topics."""

    knows_no_starts = True

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        names = ("s-disk", "s-fsync") if rng.random() < 0.5 else (rng.choice(("s-disk", "s-fsync")),)
        self.topics = [Topic(name, name[2:]) for name in names]
        self.clients = [_Writer(self, number) for number in range(_WRITERS)]
        self.clients += [_Follower(self, rng.choice(self.topics), number) for number in range(rng.choice((1, 2)))]
        machine.monitor.living.append(self.live_texts)

    def paths(self) -> list[str]:
        return [topic.path for topic in self.topics]

    @property
    def followers(self) -> list[_Follower]:
        return [client for client in self.clients if isinstance(client, _Follower)]

    def crashed(self) -> None:
        for follower in self.followers:
            follower.check_late()
            follower.due_ns = 0
        super().crashed()
        for topic in self.topics:
            topic.unknown += topic.open.values()
            topic.open.clear()
            lasting_ns = self.lasting_ns
            topic.lasting = max((seq for seq, at_ns in topic.acked_ns if at_ns <= lasting_ns), default=topic.lasting)
            topic.acked_ns = []  # no process syncs these until the next one has started
            now_ms = self.machine.ring.clock.now_ms()
            topic.high_ms = max(topic.high_ms, now_ms)
            for key in topic.keys.values():
                key.end_life(now_ms)

    def live_texts(self) -> set[bytes]:
        """Return texts of records that certainly exist."""
        lossy = self.machine.power_failed or self.machine.io_failed
        return {
            text[: text.index("~", 1) + 1].encode()
            for topic in self.topics
            if topic.durability == "fsync" or not lossy
            for seq, text in topic.acked.items()
            if seq > topic.deleting
        }

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit(topic) for topic in self.topics]

    def _audit(self, topic: Topic) -> Audit:
        if not topic.exists:
            yield from self.put(topic.path, {"durability": topic.durability})
            topic.exists = True
        found, tombstones, head = yield from self.read_back(topic.path)
        self._compare(topic, found, [(told["gap_from"], told["gap_to"]) for told in tombstones], head)
        for follower in self.followers:
            if follower.topic is topic:  # a disk failed, and no process could note it
                follower.cursor = min(follower.cursor, head)
                if self.machine.power_failed or self.machine.io_failed:  # that record may be lost
                    follower.newest_ts = 0

    def _compare(self, topic: Topic, found: dict[int, str], told: list[tuple[int, int]], head: int) -> None:

        def wrong(text: str) -> Wrong:
            return self.machine.wrong(f"{topic.name}: {text}")

        machine = self.machine
        may_lose = topic.durability == "disk" and (machine.power_failed or machine.io_failed)
        texts = set(found.values())
        if len(texts) != len(found):
            raise wrong("a record is there twice")
        if texts & topic.never:
            raise wrong(f"records that were answered as duplicates, or were gone before: {texts & topic.never}")
        for seq, text in found.items():
            if topic.acked.get(seq, text) != text or (seq not in topic.acked and not topic.may_be(text)):
                raise wrong(f"seq {seq} holds {text}, not {topic.acked.get(seq, 'anything')}")
            if seq <= topic.deleted and not may_lose:
                raise wrong(f"seq {seq} was deleted (up to {topic.deleted}) and is back")
        places = {text: seq for seq, text in found.items()}
        for group in topic.unknown:
            seqs = [places.get(text, 0) for text in group]
            if any(seqs) and seqs != list(range(seqs[-1] - len(seqs) + 1, seqs[-1] + 1)) and topic.deleting == 0:
                raise wrong(f"a write is there in part: {list(zip(group, seqs, strict=True))}")
        missing = sorted(
            seq
            for seq in {**topic.seen, **topic.acked}
            if seq not in found and seq > topic.deleting and not in_gap(topic, seq)
        )
        if missing:
            if not may_lose:
                raise wrong(f"lost {missing[:9]} of {len(topic.acked)} acknowledged or shown records")
            if missing[0] <= topic.lasting and not machine.io_failed:
                raise wrong(f"lost {missing[:9]}, though {topic.lasting} was acknowledged long before")
            if max(found, default=0) > missing[0]:
                raise wrong(f"lost {missing[:9]} and not {max(found)}")
            # A process that is killed between a failed sync and its note of that leaves no trace of
            # the failure.
            if head < missing[-1] and not machine.may_forget:
                raise wrong(f"the head is {head}: seqs up to {missing[-1]} were acknowledged, and would be given again")
            if not any(first <= missing[0] and missing[-1] <= last for first, last in told) and not machine.may_forget:
                raise wrong(f"lost {missing[0]}..{missing[-1]} and told of {told}")
        if head < topic.head and not machine.may_forget:
            raise wrong(f"the head went back from {topic.head} to {head}")
        for seq in missing:
            topic.never.add(topic.acked.pop(seq, topic.seen.get(seq, "")))
            topic.seen.pop(seq, None)
        for name, key in list(topic.keys.items()):
            if may_lose and key.first not in found:  # lost, or deleted: the key is known for longer than its record
                del topic.keys[name]
        if not machine.may_skip and {last for _first, last in told} - {last for _first, last in topic.gaps}:
            raise wrong(f"tells of gaps {told}, where nothing can have been lost; there were {topic.gaps}")
        topic.gaps += [gap for gap in told if gap not in topic.gaps]
        # A seq without a record stays without one, deleted or lost; no seq up to the head is given
        # out again.
        topic.never.update(text for text in (*topic.acked.values(), *topic.seen.values()) if text not in texts)
        topic.acked, topic.seen = dict(found), dict(found)
        topic.given = head
        topic.acked_ns = []
        topic.lasting = 0
        for group in topic.unknown:
            topic.never.update(text for text in group if text not in texts)
        topic.unknown.clear()
        topic.head = head
        topic.deleted = topic.deleting = min(found, default=head + 1) - 1


def in_gap(topic: Topic, seq: int) -> bool:
    return any(first <= seq <= last for first, last in topic.gaps)


class _Writer(Client):
    shared: Shared

    def step(self, wire: Wire) -> None:
        shared, rng = self.shared, self.rng
        topic = rng.choice(shared.topics)
        if self.number == 0 and topic.head and rng.random() < 0.05:
            self._delete(wire, topic)
            return
        shared.serial += 1
        number = shared.serial
        width = rng.choice((0, 0, 20, 200))
        texts = [f"~s.{number}.{index}~" + "x" * width for index in range(rng.choice((1, 1, 2, 3)))]
        body: dict[str, Any] = {"records": [{"data": text} for text in texts]}
        key = ""
        if rng.random() < 0.4:
            key = body["idempotency_key"] = (
                f"k{number // 3}" if rng.random() < 0.8 else f"k{rng.randint(0, number // 3)}"
            )
        topic.open[number] = texts
        asked_ms = self.machine.ring.clock.now_ms()
        topic.asked[key] = min(asked_ms, topic.asked.get(key, asked_ms))
        topic.written_with.setdefault(key, set()).update(texts)
        if self.machine.tracing:
            self.machine.say(f"writer {self.number} -> {topic.name}: {[text[:12] for text in texts]} key {key!r}")

        def written(status: int, answer: Any) -> None:
            self._written(topic, number, Key(asked_ms), key, status, answer)

        wire.ask("POST", topic.path, body, written)

    def _written(  # noqa: PLR0917
        self, topic: Topic, number: int, used: Key, name: str, status: int, answer: Any
    ) -> None:
        machine = self.machine
        texts = topic.open.pop(number)
        if machine.tracing:
            machine.say(f"writer {self.number} <- {topic.name}: {status} {str(answer)[:150]}")
        self.count("shared writes", status, answer)
        self._later(self.rng.randrange(1000, 300_000), self._step)
        if status in {0, 500}:
            if status and answer["error"].get("detail", {}).get("reason") == "disk_full":
                topic.never.update(texts)
            else:
                topic.unknown.append(texts)
            return
        if status in {429, 503}:
            topic.never.update(texts)
            return
        first, last = answer["first_seq"], answer["last_seq"]
        if name:
            used.ended_ms, used.first, used.last = machine.ring.clock.now_ms(), first, last
            self._check_key(topic, name, used, deduped=answer["deduped"])
        if answer["deduped"]:
            topic.never.update(texts)
            machine.counts["duplicates answered"] += 1
            return
        for seq, text in zip(range(first, last + 1), texts, strict=True):
            if topic.acked.setdefault(seq, text) != text or topic.seen.get(seq, text) != text or seq <= topic.given:
                raise machine.wrong(f"{topic.name}: seq {seq} was given twice")
        topic.head = max(topic.head, last)
        topic.acked_ns.append((last, machine.ring.clock.monotonic_ns()))
        for follower in self.shared.followers:
            if follower.topic is topic and topic.deleting < last and follower.cursor < last:
                follower.is_due()
        if topic.durability == "fsync" and first > topic.deleting:
            machine.monitor.acked([stored(text) for text in texts])

    def _check_key(self, topic: Topic, name: str, used: Key, *, deduped: bool) -> None:
        """used: the key, as it was answered now."""
        machine, known = self.machine, topic.keys.get(name)
        if known is not None:
            told = f"{topic.name}: key {name} was at {known}, now it is at {used}"
            if (known.first, known.last) != (used.first, used.last):
                if known.surely_known(machine.ring.clock.now_ms()):
                    raise machine.wrong(told)
                machine.counts["old keys used again"] += not deduped
            elif deduped and known.surely_new(used.asked_ms):
                raise machine.wrong(f"{told}, after its window")
        there = {topic.acked.get(seq, topic.seen.get(seq, "")) for seq in range(used.first, used.last + 1)} - {""}
        if deduped and not there <= topic.written_with[name]:
            raise machine.wrong(f"{topic.name}: key {name} answers for {there}, and was sent with others")
        if deduped and known is not None and known.first == used.first:
            return
        if deduped:
            # The key's first write had no answer, perhaps in a life whose clock was ahead of this
            # one's.
            used.asked_ms, used.ended_ms = topic.asked[name], max(used.ended_ms or 0, topic.high_ms)
        topic.keys[name] = used

    def _delete(self, wire: Wire, topic: Topic) -> None:
        before = self.rng.randint(1, topic.head)
        topic.deleting = max(topic.deleting, before - 1)
        for follower in self.shared.followers:
            if follower.topic is topic:
                follower.due_ns = 0

        def deleted(status: int, answer: Any) -> None:
            self.count("shared deletes", status, answer)
            if status == 200:
                topic.deleted = max(topic.deleted, before - 1)
            self._later(self.rng.randrange(1000, 300_000), self._step)

        wire.ask("POST", f"{topic.path}/delete", {"before_seq": before}, deleted)


class _Follower(Client):
    """A client that reads one topic to its end, again and again, and waits there."""

    shared: Shared

    def __init__(self, shared: Shared, topic: Topic, number: int) -> None:
        super().__init__(shared, number)
        self.topic = topic
        self.cursor = 0
        self.newest_ts = 0
        """The $ts of the last record that it was shown."""
        self.is_served = False
        """Whether it was answered on its present connection, so that nothing separates it from the
        server.
        """
        self.waits = False
        """Whether its request has no answer yet."""
        self.due_ns = 0
        """Time from which there are records to answer with; 0: there may be none."""

    def step(self, wire: Wire) -> None:
        topic = self.topic
        body = {
            "from_seq": self.cursor,
            "limit": self.rng.choice((1, 5, 1000)),
            "wait_ms": self.rng.choice((0, 1, 20, _LONG_MS if checkpointer._LOOK_EVERY_NS > _QUICK_NS else 300)),
        }
        must = [seq for seq in topic.acked if seq > self.cursor]
        deleted = topic.deleted
        self.waits, self.due_ns = True, 0
        wire.ask("POST", f"{topic.path}/diff", body, lambda status, page: self._read(must, deleted, status, page))

    def begin(self) -> None:
        self.is_served = False
        super().begin()

    def lost(self) -> None:
        self.due_ns = 0
        super().lost()

    def is_due(self) -> None:
        """Note that a record which it waits for was acknowledged just now."""
        self.check_late()
        if self.waits and self.is_served and not self.due_ns:
            self.due_ns = self.machine.waited_ns()

    def check_late(self) -> None:
        late_ns = self.machine.waited_ns() - self.due_ns
        # A commit in place stops the loop for its sync; one that takes too long is noticed at its
        # end.
        if self.due_ns and self.wire is not None and late_ns > _LATE_NS * self.machine.ring.sync_factor:
            raise self.machine.wrong(
                f"{self.topic.name}: a follower at {self.cursor} waits {late_ns / 1e6:.0f} ms for what is there"
            )

    def _read(self, must: list[int], deleted: int, status: int, page: Any) -> None:
        self.check_late()
        self.is_served, self.waits, self.due_ns = True, False, 0
        self.count("reads by followers", status, page)
        self._later(self.rng.randrange(1000, 100_000), self._step)
        if status != 200:
            return
        topic, cursor = self.topic, self.cursor

        def wrong(text: str) -> Wrong:
            return self.machine.wrong(f"{topic.name}: a follower at {cursor} {text}")

        found = {row["$seq"]: row["data"] for row in page["records"]}
        if list(found) != sorted(found) or len(found) != len(page["records"]):
            raise wrong(f"gets seqs {[row['$seq'] for row in page['records']]}")
        times = [self.newest_ts, *(row["$ts"] for row in page["records"])]
        if times != sorted(times):
            raise wrong(f"gets $ts {times}")
        self.newest_ts = times[-1]
        tombstone = page["tombstone"]
        if tombstone is not None and (
            tombstone["reason"] != "crash" or (tombstone["gap_to"] not in [last for _, last in topic.gaps])
        ):
            raise wrong(f"is told of a gap that there is not: {tombstone}; gaps are {topic.gaps}")
        after = page["next_from_seq"]
        for seq, text in found.items():
            if not max(cursor, deleted) < seq <= after:
                raise wrong(f"gets seq {seq}, up to {after}; deleted was {deleted}")
            if topic.acked.get(seq, text) != text or topic.seen.setdefault(seq, text) != text:
                raise wrong(f"gets {text} at seq {seq}, which is {topic.acked.get(seq, topic.seen[seq])}")
            if seq not in topic.acked and not topic.may_be(text):
                raise wrong(f"gets {text}, which nobody wrote")
        missed = [seq for seq in must if seq <= after and seq not in found and seq > topic.deleting]
        if missed:
            raise wrong(f"does not get {missed[:9]} on its way to {after}")
        if after < cursor or (must and page["head_seq"] < max(must)):
            raise wrong(f"is taken to {after} of {page['head_seq']}")
        self.cursor = after
        topic.head = max(topic.head, *found, 0)
