"""Queues that several workers share: produce, claim, ack, hand back, extend, through every crash.

Nobody knows in which order concurrent requests arrive, so what is checked is what must hold for any: a job has one
holder at a time, what was acked stays done, nothing is lost or invented (a dead letter is not lost), a lease that is
answered for in time counts, and no lease id is given out twice, whatever ended the process.
"""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients import Client, Clients
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.wire import Wire


class Held:
    """A lease a worker was told of."""

    def __init__(self, node: str, seq: int, text: str, lease_id: str, deadline: int) -> None:
        self.node = node
        self.seq = seq
        self.text = text
        self.lease_id = lease_id
        self.deadline = deadline
        self.ending = False
        """It may have been acked or handed back."""

    @property
    def number(self) -> int:
        return int(self.lease_id[6:], 16)


class Queue:
    """What is known of one queue, which is never deleted."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.durability = rng.choice(("disk", "fsync", "fsync"))
        self.leases_durable = rng.random() < 0.5
        self.config: dict[str, Any] = {
            "type": "queue",
            "durability": self.durability,
            "leases_durable": self.leases_durable,
            "lease_ms": rng.choice((100, 1000)),
            "claim_jitter_ms": rng.choice((0, 0, 0, 1)),
        }
        self.dead_letters = f"{name}-dead" if rng.random() < 0.4 else ""
        if self.dead_letters:
            self.config |= {"max_deliveries": 2, "dead_letter": self.dead_letters}
        self.exists = False
        self.there: set[str] = set()
        """Jobs acknowledged and not known to be done."""
        self.maybe: set[str] = set()
        """Written without an answer."""
        self.ending: set[str] = set()
        """Acked without an answer."""
        self.done: set[str] = set()
        self.moved: set[str] = set()
        """Seen among the dead letters."""
        self.leases: dict[str, Held] = {}
        """The newest lease of each job, by its text."""
        self.ended: dict[str, Held] = {}
        """Those that were handed back, as the answer said, before their time."""


class Workers(Clients):
    """All clients of the queues."""

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        self.queues = [Queue(f"q{number}", rng) for number in range(rng.choice((1, 2)))]
        self.lease_ids: set[str] = set()
        self.clients = [Worker(self, number) for number in range(rng.choice((2, 4)))]

    def paths(self) -> list[str]:
        """Without those whose counters change with time."""
        return [queue.path for queue in self.queues if not queue.leases_durable]

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits(self) -> list[Audit]:
        return [self._audit(queue) for queue in self.queues]

    def _audit(self, queue: Queue) -> Audit:
        if not queue.exists:
            yield from self.put(queue.path, queue.config)
            queue.exists = True
        jobs, _told, _head = yield from self.read_back(queue.path)
        found = list(jobs.values())
        if queue.dead_letters:
            moved = yield from self.read_back(f"/v0/topics/{queue.dead_letters}")
            queue.moved = set(moved[0].values()) if moved is not None else set()
        self._compare(queue, found)
        _status, state = yield "GET", f"{queue.path}?touch=false", None
        counted = state["queue"]
        if state["count"] != counted["ready"] + counted["in_flight"] or state["count"] != len(found):
            raise self.machine.wrong(f"{queue.name}: holds {len(found)} jobs, told of {state['count']}, {counted}")
        if not queue.leases_durable:
            if counted["in_flight"]:
                raise self.machine.wrong(f"{queue.name}: {counted['in_flight']} leases survived")
            queue.leases.clear()
            queue.ended.clear()
            return
        yield from self._ask_leases(queue, set(found))
        yield from self._ask_ended(queue, set(found))

    def _compare(self, queue: Queue, found: list[str]) -> None:
        machine = self.machine
        here = set(found)
        may_lose = queue.durability == "disk" and (machine.power_failed or machine.io_failed)
        if len(here) != len(found):
            raise machine.wrong(f"{queue.name}: a job is there twice")
        lost = queue.there - here - queue.moved - queue.ending
        if lost and not may_lose:
            raise machine.wrong(f"{queue.name}: lost {sorted(lost)[:5]} of {len(queue.there)}")
        if here & queue.done and not may_lose:
            raise machine.wrong(f"{queue.name}: {sorted(here & queue.done)[:5]} were acked and are back")
        invented = here - queue.there - queue.maybe - queue.ending - queue.done - queue.moved
        if invented:
            raise machine.wrong(f"{queue.name}: {sorted(invented)[:5]} were never written")
        queue.there, queue.maybe, queue.ending = here, set(), set()
        queue.done -= here

    def _ask_leases(self, queue: Queue, here: set[str]) -> Audit:
        """Leases that are kept, are kept."""
        machine = self.machine
        must = queue.durability == "fsync" or not (machine.power_failed or machine.io_failed)
        for held in list(queue.leases.values()):
            now_ms = machine.ring.clock.now_ms()
            if held.ending or held.text not in here or held.deadline <= now_ms + 50:
                held.ending = True  # nobody knows
                continue
            left_ms = max(100, held.deadline - now_ms)
            body = {"node": held.node, "seqs": [held.seq], "lease_ids": [held.lease_id], "lease_ms": left_ms}
            _status, answer = yield "POST", f"{queue.path}/extend", body
            machine.counts["leases asked for after a crash"] += 1
            if answer.get("extended") == 1:
                held.deadline = answer["deadlines"][str(held.seq)]
            elif must:
                raise machine.wrong(f"{queue.name}: the lease {held.lease_id} on {held.text} was forgotten: {answer}")
            else:
                del queue.leases[held.text]

    def _ask_ended(self, queue: Queue, here: set[str]) -> Audit:
        """A lease that was handed back is not in force again."""
        machine = self.machine
        must = queue.durability == "fsync" or not (machine.power_failed or machine.io_failed)
        for held in list(queue.ended.values()):
            if held.text not in here or not must:
                del queue.ended[held.text]
                continue
            body = {"node": held.node, "seqs": [held.seq], "lease_ids": [held.lease_id], "lease_ms": 100}
            _status, answer = yield "POST", f"{queue.path}/extend", body
            machine.counts["leases handed back asked for after a crash"] += 1
            if answer.get("extended") != 0:
                raise machine.wrong(f"{queue.name}: {held.lease_id} on {held.text}, which was handed back, is back")


class Worker(Client):
    """One worker: in turns it produces and works."""

    shared: Workers

    def step(self, wire: Wire) -> None:
        rng = self.rng
        queue = rng.choice(self.shared.queues)
        mine = [held for held in queue.leases.values() if held.node == self.node and not held.ending]
        choice = rng.random()
        if choice < 0.35:
            self._produce(wire, queue)
        elif choice < 0.65 or not mine:
            self._claim(wire, queue)
        else:
            some = rng.sample(mine, rng.randint(1, len(mine)))
            verb = "ack" if choice < 0.82 else "nack" if choice < 0.93 else "extend"
            self._end(wire, queue, some, verb)

    @property
    def node(self) -> str:
        return f"w{self.number}"

    def _wrong(self, queue: Queue, text: str) -> Exception:
        return self.machine.wrong(f"{queue.name}, {self.node}: {text}")

    def _next(self, name: str, status: int, answer: Any) -> bool:
        """What follows any answer; whether it was a good one."""
        if self.machine.tracing:
            self.machine.say(f"worker {self.number} <- {name}: {status} {str(answer)[:200]}")
        self.count(name, status, answer)
        self._later(self.rng.randrange(1000, 200_000), self._step)
        return status == 200

    def _produce(self, wire: Wire, queue: Queue) -> None:
        self.shared.serial += 1
        number = self.shared.serial
        count = self.rng.choice((1, 2, 5))
        texts = {f"~q.{number}.{index}~" + "x" * self.rng.choice((0, 30, 300)) for index in range(count)}
        queue.maybe |= texts

        def written(status: int, answer: Any) -> None:
            if self._next("jobs written", status, answer):
                queue.maybe -= texts
                queue.there |= texts - queue.done - queue.ending

        body = {"records": [{"data": text} for text in sorted(texts)]}
        wire.ask("POST", queue.path, body, written)

    def _claim(self, wire: Wire, queue: Queue) -> None:
        def claimed(status: int, answer: Any) -> None:
            if self._next("claims", status, answer):
                for job in answer["claimed"]:
                    self._take(queue, job)

        lease_ms = self.rng.choice((100, 1000, 60_000))
        body = {"node": self.node, "max": self.rng.choice((1, 2, 8)), "lease_ms": lease_ms}
        wire.ask("POST", f"{queue.path}/claim", body, claimed)

    def _take(self, queue: Queue, job: dict[str, Any]) -> None:
        text, lease_id = job["data"], job["lease_id"]
        if lease_id in self.shared.lease_ids:
            raise self._wrong(queue, f"{lease_id} was given out twice")
        self.shared.lease_ids.add(lease_id)
        if text in queue.done:
            raise self._wrong(queue, f"gets {text}, which was acked")
        if text not in queue.there and text not in queue.maybe and text not in queue.ending:
            raise self._wrong(queue, f"gets {text}, which nobody wrote")
        held = Held(self.node, job["$seq"], text, lease_id, job["deadline"])
        other = queue.leases.get(text)
        if other is not None:
            first = other if other.number < held.number else held
            if not first.ending and first.deadline > self.machine.ring.clock.now_ms():
                raise self._wrong(
                    queue, f"{text} is leased to {first.node} under {first.lease_id} and again {lease_id}"
                )
            if first is held:
                return
        queue.leases[text] = held
        self.machine.counts["jobs leased"] += 1

    def _end(self, wire: Wire, queue: Queue, some: list[Held], verb: str) -> None:
        body: dict[str, Any] = {
            "node": self.node,
            "seqs": [held.seq for held in some],
            "lease_ids": [held.lease_id for held in some],
        }
        deadlines = {held.seq: held.deadline for held in some}
        if verb == "extend":
            body["lease_ms"] = self.rng.choice((100, 2000))
            for held in some:
                held.deadline = min(held.deadline, self.machine.ring.clock.now_ms())  # until the answer tells
        else:
            for held in some:
                held.ending = True
            if verb == "ack":
                queue.ending |= {held.text for held in some}

        def ended(status: int, answer: Any) -> None:
            if not self._next(f"jobs: {verb}", status, answer):
                return
            skipped = set(answer["skipped"])
            now_ms = self.machine.ring.clock.now_ms()
            for held in some:
                if held.seq in skipped:
                    if now_ms <= deadlines[held.seq]:
                        raise self._wrong(queue, f"{verb} of {held.text} came in time and was skipped")
                    if verb == "ack":
                        queue.ending.discard(held.text)
                elif verb == "ack":
                    queue.done.add(held.text)
                    queue.there.discard(held.text)
                    queue.ending.discard(held.text)
                elif verb == "extend":
                    held.deadline = answer["deadlines"][str(held.seq)]
                else:
                    queue.ended[held.text] = held

        wire.ask("POST", f"{queue.path}/{verb}", body, ended)
