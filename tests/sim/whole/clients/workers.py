"""Queues that several workers share: produce, claim, ack, hand back, extend, through every crash.

The order in which concurrent requests arrive is unknown, so only what must hold for any order is
checked: a job has one holder at a time, an acked job stays done, nothing is lost or invented (a
dead letter is not lost), a lease that is answered in time counts, and no lease id is given out
twice, however the process ended.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.clients.payloads import stored
from tests.sim.whole.clients.queue_audit import audit
from tests.sim.whole.clients.queue_state import Held, Queue
from tests.sim.whole.machine import Audit, Machine
from tests.sim.whole.monitors.consumed import Consumed


class Workers(Clients):
    """All clients of the queues."""

    may_stall = False

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        names = [f"q{number}" for number in range(rng.choice((1, 2)))]
        self.queues = [Queue(name, rng, machine.dead_letters_of(name)) for name in names]
        self.lease_ids: set[tuple[str, str]] = set()
        """All that were given out, of one counter each: that of the server, or of a core's queue."""
        self.consumed = Consumed(machine)
        self.clients = [Worker(self, number) for number in range(rng.choice((2, 4)))]
        machine.monitor.living.append(self.live_texts)

    def paths(self) -> list[str]:
        names = [name for queue in self.queues for name in (queue.name, queue.dead_letters) if name]
        return [f"/v0/topics/{name}" for name in names]

    def live_texts(self) -> set[bytes]:
        """Return texts of jobs that certainly exist."""
        lossy = self.machine.power_failed or self.machine.io_failed
        sure = [queue.there - queue.ending for queue in self.queues if queue.durability == "fsync" or not lossy]
        return {text[: text.index("~", 1) + 1].encode() for texts in sure for text in texts}

    def crashed(self) -> None:
        super().crashed()
        for queue in self.queues:
            queue.crashed(self.machine.ring.clock.now_ms())

    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        return [self._audit(queue) for queue in self.queues if is_there(queue.path)]

    def asked_beside(self, is_there: Callable[[str], bool]) -> list[str]:
        return [queue.dead_letters for queue in self.queues if queue.dead_letters and is_there(queue.path)]

    def comes_once(self, queue: Queue) -> bool:
        """Return whether a job of a queue has to come once to its dead letters (R-CORE-15)."""
        return queue.is_apart and not (self.machine.io_failed or self.machine.lied)

    def _audit(self, queue: Queue) -> Audit:
        if not queue.exists:
            yield from self.put(queue.path, queue.config)
            queue.exists = True
        are_apart = bool(queue.dead_letters) and self.machine.are_apart(queue.name, queue.dead_letters)
        queue.is_apart = self.comes_once(queue) and are_apart
        jobs, moved, state = yield from self._read_all(queue)
        if queue.dead_letters:
            here = set(jobs.values())
            neither = queue.redriving - moved - here - queue.ending - queue.done.keys()
            if neither and not self.machine.io_failed:
                raise self.machine.wrong(f"{queue.name}: {sorted(neither)[:5]} were redriven, and are nowhere")
            lost = queue.moved - moved - queue.redriving
            queue.doubled |= here & moved
            queue.redriving.clear()
            if lost and not (self.machine.power_failed or self.machine.io_failed):  # its class is `disk`
                raise self.machine.wrong(f"{queue.dead_letters}: lost {sorted(lost)[:5]}")
            queue.moved = moved
        yield from audit(self.machine, queue, list(jobs.values()), state)

    def _leaving(self, queue: Queue) -> int:
        """Return how many jobs of a queue are on their way to another core, or to what was one (R-CORE-15)."""
        machine = self.machine
        return machine.home(queue.name).engine.moving_jobs(queue.name) if machine.has_cores else 0

    def _read_all(self, queue: Queue) -> Generator[Any, Any, tuple[dict[int, str], set[str], Any]]:
        """Return the jobs, by seq, the dead letters, and the state of a queue.

        R-CORE-15: jobs that are on their way may leave the queue in between; none come.
        """
        told_of = None
        while True:
            leaving = self._leaving(queue)
            jobs, _told, _head = yield from self.read_back(queue.path)
            if told_of is not None and len(jobs) > told_of:
                raise self.machine.wrong(f"{queue.name}: holds {len(jobs)} jobs, and told of {told_of} before")
            page = (yield from self.read_back(f"/v0/topics/{queue.dead_letters}")) if queue.dead_letters else None
            dead = [] if page is None else [*page[0].values()]
            twice = {text for text, count in Counter(dead).items() if count > 1} - queue.redriven
            if queue.is_apart and twice:
                raise self.machine.wrong(f"{queue.dead_letters}: {sorted(twice)[:5]} came there twice")
            _status, state = yield "GET", f"{queue.path}?touch=false", None
            told_of = state["count"]
            if not 0 < len(jobs) - told_of <= leaving:
                return jobs, set(dead), state
            self.machine.counts["audits during which jobs left for another core"] += 1


class Worker(Client):
    """One worker, which produces and works by turns."""

    shared: Workers

    def step(self, wire: Wire) -> None:
        rng = self.rng
        queue = rng.choice(self.shared.queues)
        mine = [held for held in queue.leases.values() if held.node == self.node and not held.ending]
        choice = rng.random()
        if queue.dead_letters and rng.random() < 0.08:
            self._list_dead(wire, queue)
        elif choice < 0.03 and queue.seqs:
            self._delete(wire, queue)
        elif choice < 0.06 and self.number == 0 and queue.is_changed and queue.leases_durable is not None:
            self._change(wire, queue)
        elif choice < 0.35:
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
        """Plan the next step after any answer. Return whether the answer was a success."""
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
        queue.sent += count
        others = len(queue.possible) - queue.sent
        delays = {text: self.rng.choice((1, 30, 500, 20_000)) for text in sorted(texts) if self.rng.random() < 0.15}
        for text, delay_ms in delays.items():
            queue.due[text] = self.machine.ring.clock.now_ms() + delay_ms
        self.machine.counts["jobs written with a delay"] += len(delays)

        def written(status: int, answer: Any) -> None:
            if self._next("jobs written", status, answer):
                queue.seqs.update(zip(sorted(texts), range(answer["first_seq"], answer["last_seq"] + 1), strict=True))
                queue.maybe -= texts
                here = texts - queue.done.keys() - queue.ending
                queue.there |= here
                if queue.durability == "fsync" and answer["first_seq"] >= queue.deleting:
                    self.machine.monitor.acked([stored(text) for text in here])
            elif status in {422, 429, 503}:
                if status == 422 and others + queue.sent <= queue.cap_records:
                    raise self._wrong(queue, f"refused {count} jobs, with {others + queue.sent - count} others at most")
                queue.over(texts, self._now_ns)

        rows = [{"data": text} | ({"delay_ms": delays[text]} if text in delays else {}) for text in sorted(texts)]
        body = {"records": rows}
        wire.ask("POST", queue.path, body, written)

    def _claim(self, wire: Wire, queue: Queue) -> None:
        asked_ns = self._now_ns
        wait_ms = self.rng.choice((0, 0, 0, 0, 0, 0, 5, 50))

        def claimed(status: int, answer: Any) -> None:
            if self._next("claims", status, answer):
                for job in answer["claimed"]:
                    self._take(queue, job, asked_ns)
                waited_ns = self._now_ns - asked_ns
                if wait_ms and not answer["claimed"] and waited_ns < wait_ms * 1_000_000 and not self.machine.stopping:
                    raise self._wrong(queue, f"was to wait {wait_ms} ms for a job, and waited {waited_ns / 1e6:.0f}")
                self.machine.counts["claims that waited for jobs"] += wait_ms > 0 and waited_ns > 1_000_000

        lease_ms = self.rng.choice((100, 1000, 60_000))
        body = {"node": self.node, "max": self.rng.choice((1, 2, 8)), "lease_ms": lease_ms}
        if wait_ms:
            body["wait_ms"] = wait_ms
        if self.rng.random() < 0.5:
            body["include_attempts"] = True
        wire.ask("POST", f"{queue.path}/claim", body, claimed)

    def _check_attempts(self, queue: Queue, job: dict[str, Any]) -> None:
        """Check that a job's attempts are those that there were, and the last one is there."""
        text, attempts = job["data"], job["attempts"]
        deliveries = [attempt["delivery"] for attempt in attempts]
        if deliveries != sorted(set(deliveries)) or max(deliveries, default=0) >= job["deliveries"]:
            raise self._wrong(queue, f"{text} comes for time {job['deliveries']} after {attempts}")
        for attempt in attempts:
            if attempt["ended"] == "nacked":
                keys = [(text, attempt["node"], delivery) for delivery in (0, attempt["delivery"])]
                known = set().union(*(queue.reasons.get(key, set()) for key in keys))
                if attempt.get("reason", "") not in known:
                    raise self._wrong(queue, f"{text}: {attempt}, and its reason was one of {known}")
        noted = queue.noted.get(text)
        if noted is not None and text not in queue.redriven:
            told = [each.get("reason", "") for each in attempts if each["delivery"] == noted[0]]
            if told != [noted[1]]:
                raise self._wrong(queue, f"{text} was handed back with {noted}, and has the attempts {attempts}")
            self.machine.counts["attempts that had to be there"] += 1

    def _take(self, queue: Queue, job: dict[str, Any], asked_ns: int) -> None:
        held = Held(self.node, job)
        if "attempts" in job:
            self._check_attempts(queue, job)
        text, lease_id = held.text, held.lease_id
        now_ms = self.machine.ring.clock.now_ms()
        counted = queue.name if self.machine.has_cores else "", lease_id
        if counted in self.shared.lease_ids:
            raise self._wrong(queue, f"{lease_id} was given out twice")
        self.shared.lease_ids.add(counted)
        if queue.done.get(text, asked_ns) < asked_ns:
            raise self._wrong(queue, f"gets {text}, which was over before it asked")
        if text not in queue.possible and text not in queue.done:
            raise self._wrong(queue, f"gets {text}, which nobody wrote")
        is_dead = queue.dead.get(text, asked_ns) < asked_ns and text not in queue.redriven
        if is_dead and self.shared.comes_once(queue):
            raise self._wrong(queue, f"gets {text}, which was a dead letter before it asked")
        queue.seqs[text] = held.seq
        other = queue.leases.get(text)
        if other is not None:
            first, second = (other, held) if other.number < held.number else (held, other)
            if not first.ending and first.deadline > now_ms:
                raise self._wrong(
                    queue, f"{text} is leased to {first.node} under {first.lease_id} and again {second.lease_id}"
                )
            if second.deliveries <= first.deliveries and second.deliveries and text not in queue.redriven:
                raise self._wrong(
                    queue, f"{text} comes for time {second.deliveries}, and for time {first.deliveries} before that"
                )
            if first is held:
                return
        early_ms = max(queue.delayed.get(text, 0), queue.due.get(text, 0)) - now_ms
        if early_ms > 0:
            raise self._wrong(queue, f"gets {text} {early_ms} ms too early")
        queue.leases[text] = held
        self.machine.counts["jobs leased"] += 1

    def _end(self, wire: Wire, queue: Queue, some: list[Held], verb: str) -> None:
        body: dict[str, Any] = {
            "node": self.node,
            "seqs": [held.seq for held in some],
            "lease_ids": [held.lease_id for held in some],
        }
        deadlines = {held.seq: held.deadline for held in some}
        asked_ms, delay_ms, snapshot, reason = self.machine.ring.clock.now_ms(), 0, 0, ""
        if verb == "extend":
            body["lease_ms"] = self.rng.choice((100, 2000))
            for held in some:
                held.deadline = min(held.deadline, self.machine.ring.clock.now_ms())  # until the answer comes
        else:
            for held in some:
                held.ending = True
            if verb == "ack":
                queue.ending |= {held.text for held in some}
                snapshot = self.shared.consumed.now(queue.name)
            else:
                body["delay_ms"] = delay_ms = self.rng.choice((0, 0, 1, 30, 500))
                reason = self.rng.choice(("", "", "broken", f"broken by {self.node} " + "x" * 300))
                if reason:
                    body["reason"] = reason
                for held in some:
                    key = (held.text, self.node, held.deliveries)
                    queue.reasons.setdefault(key, set()).add(reason)

        def ended(status: int, answer: Any) -> None:
            if not self._next(f"jobs: {verb}", status, answer):
                return
            skipped = set(answer["skipped"])
            if verb == "ack" and queue.durability == "fsync":
                done = {held.seq for held in some if held.seq >= queue.deleting} - skipped
                self.shared.consumed.acked(queue.name, done, snapshot)
            now_ms = self.machine.ring.clock.now_ms()
            for held in some:
                if held.seq in skipped:
                    if now_ms <= deadlines[held.seq]:
                        raise self._wrong(queue, f"{verb} of {held.text} came in time and was skipped")
                    if verb == "ack" and held.text in queue.there:  # else a delete may have removed it
                        queue.ending.discard(held.text)
                elif verb == "ack":
                    queue.over({held.text}, self._now_ns)
                elif verb == "extend":
                    held.deadline = answer["deadlines"][str(held.seq)]
                else:
                    queue.ended[held.text] = held
                    if queue.leases.get(held.text) is held and held.deliveries:
                        queue.noted[held.text] = held.deliveries, reason
                    if delay_ms:
                        queue.delayed[held.text] = asked_ms + delay_ms
                        self.machine.counts["jobs delayed"] += 1

        wire.ask("POST", f"{queue.path}/{verb}", body, ended)

    def _list_dead(self, wire: Wire, queue: Queue) -> None:
        """List dead letters, and redrive some of them."""

        def listed(status: int, answer: Any) -> None:
            if status != 200:
                self._next("lists of dead letters", status, answer)
                return
            found: dict[str, int] = {}
            for record in answer["dead"]:
                text, meta = record["data"], record["meta"]
                known = set().union(*(reasons for key, reasons in queue.reasons.items() if key[0] == text))
                if meta["$dead_letter_from"] != queue.name or meta.get("$dead_letter_reason", "") not in known | {""}:
                    raise self._wrong(queue, f"{text} is a dead letter with {meta}, and came back with {known}")
                if queue.is_apart and text not in queue.dead:
                    queue.dead[text] = self._now_ns
                    self.machine.counts["dead letters of queues of another core"] += 1
                if text not in queue.redriving | queue.doubled | queue.done.keys() | queue.ending:
                    found[text] = record["$seq"]
            chosen = self.rng.sample(sorted(found), min(len(found), self.rng.choice((1, 3))))
            if not chosen or self.wire is None:
                self._next("lists of dead letters", status, answer)
                return
            queue.redrive(set(chosen))

            def redriven(status: int, answer: Any) -> None:
                if not self._next("redrives", status, answer):
                    queue.doubled |= set(chosen)  # R-CORE-15: jobs may be there beside their dead letters
                else:
                    done = {text for text in chosen if found[text] not in answer["skipped"]}
                    queue.redriving -= set(chosen)
                    queue.moved -= done
                    queue.there |= done - queue.done.keys() - queue.ending
                    queue.maybe -= queue.there
                    self.machine.counts["dead letters redriven"] += len(done)

            self.wire.ask("POST", f"{queue.path}/redrive", {"seqs": [found[text] for text in chosen]}, redriven)

        wire.ask("GET", f"{queue.path}/dead?limit={self.rng.choice((2, 100))}", None, listed)

    def _delete(self, wire: Wire, queue: Queue) -> None:
        """Delete all jobs below one of the older ones."""
        known = sorted(queue.seqs[text] for text in queue.there if text in queue.seqs)
        if not known:
            self._produce(wire, queue)
            return
        before = self.rng.choice(known[: len(known) // 4 + 1]) + 1
        below = {text for text in queue.possible if queue.seqs.get(text, 0) < before}
        sure = below & queue.there & queue.seqs.keys()
        queue.ending |= below
        queue.deleting = max(queue.deleting, before)

        def deleted(status: int, answer: Any) -> None:
            if self._next("deletes of jobs", status, answer):
                queue.over(sure, self._now_ns)

        wire.ask("POST", f"{queue.path}/delete", {"before_seq": before}, deleted)

    def _change(self, wire: Wire, queue: Queue) -> None:
        """Switch whether leases survive a restart."""
        durable = not queue.leases_durable
        queue.leases_durable = None
        queue.noted.clear()

        def changed(status: int, answer: Any) -> None:
            if self._next("changes of a queue", status, answer):
                queue.leases_durable = durable

        wire.ask("PATCH", queue.path, {"leases_durable": durable}, changed)

    @property
    def _now_ns(self) -> int:
        return self.machine.ring.clock.monotonic_ns()
