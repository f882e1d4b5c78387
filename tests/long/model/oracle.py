"""The whole server as the wire contract states it: what each request must answer, whatever came before.

Every method takes the instant at which the server is asked. Answers are dicts of the keys that are certain; refusals
are (status, code). What time by itself changes is changed by the next look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.long.model.model_jobs import Jobs
from tests.long.model.model_readers import NamedReader, Next
from tests.long.model.model_routers import Router, Told, closes_a_cycle
from tests.long.model.model_topic import Record, Topic, compact, payload_size

Refusal = tuple[int, str]
NEVER = 1 << 60
READERS_MAX = 3
"""Most readers of a topic, and most pages of a reader that are out."""
DEFAULTS = {"ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "idempotency_window_ms": 120_000}


@dataclass
class Holding:
    """The topic of a name."""

    config: dict[str, Any]
    topic: Topic = field(default_factory=Topic)
    jobs: Jobs | None = None
    dead_lettered: int = 0
    incarnation: str | None = None
    """The incarnation shown last; None: not shown since the topic is another one."""

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        full = DEFAULTS | config
        topic = self.topic
        topic.ttl_ms, topic.cap_records, topic.cap_bytes = full["ttl_ms"], full["cap_records"], full["cap_bytes"]
        topic.discard, topic.window_ms = full["discard"], full["idempotency_window_ms"]
        topic.evict()
        if config.get("type") == "queue":
            self.jobs = self.jobs or Jobs(topic)
            self.jobs.lease_ms = config.get("lease_ms", 30_000)
            self.jobs.max_deliveries = config.get("max_deliveries", 0)
            self.jobs.dead_letters = config.get("dead_letter") is not None


class Oracle:
    def __init__(self) -> None:
        self.places: dict[str, Holding] = {}
        self.routers: dict[str, Router] = {}
        self.settled_at = 0
        """Up to when everything had been forwarded."""
        self.asked_at = 0
        """When the last request left: what it led to happened since then, not when it was answered."""
        self.incarnations: set[str] = set()
        """All that any topic has had."""
        self.given: Next | None = None
        """The page that was read last."""

    # --- time --------------------------------------------------------------------------------------------------------
    def moments(self) -> Iterator[tuple[int, int]]:
        """Return when something will change by itself: before the first instant it has not,
        from the second on it has. It may be that no instant is certain (`NEVER`)."""
        for place in self.places.values():
            topic = place.topic
            for record in topic.live.values():
                since = record.ts if record.since is None else record.since
                for ttl_ms in {topic.ttl_ms, record.ttl_ms} - {0}:
                    yield since + ttl_ms, NEVER if record.is_guessed else record.ts + ttl_ms + 1
            for _, _, since, upto in topic.keys.values():
                yield since + topic.window_ms, upto + topic.window_ms + 1
            for reader in topic.readers.values():
                for page in reader.out.values():
                    yield page.deadline, page.deadline + 1
            if place.jobs is not None:
                for lease in place.jobs.leases.values():
                    yield lease.deadline, lease.deadline + 1
                yield from place.jobs.delayed.values()

    @property
    def since(self) -> int:
        """No copy that comes now is older."""
        return min(self.settled_at, self.asked_at)

    def settle(self, now: int) -> None:
        """All that time has done, and all that can be forwarded."""
        for place in self.places.values():
            if place.jobs is not None:
                place.jobs.look(now)
            for reader in place.topic.readers.values():
                reader.look(now)
            place.topic.stretch(now)
            place.topic.expire(now)
        moved = True
        while moved:
            moved = False
            for router in self.routers.values():
                source, dest = self.places[router.source].topic, self.places[router.dest].topic
                if router.step(source, dest, self.since, now):
                    moved = True
                    self._trim(source)
        self.settled_at = now

    def restart(self, now: int) -> None:
        """Whatever way it ended, nothing that was acknowledged is lost."""
        for place in self.places.values():
            place.dead_lettered = 0
            if place.config.get("durability") == "memory":
                place.incarnation = None
            for reader in place.topic.readers.values():
                reader.seek(reader.committed)  # R-READER-5
            if place.jobs is not None:
                place.jobs.restart(now, durable=bool(place.config.get("leases_durable")))
        self.settle(now)

    # --- topics ------------------------------------------------------------------------------------------------------
    def put(self, now: int, name: str, config: dict[str, Any]) -> bool:
        """Whether it is new."""
        self.settle(now)
        created = name not in self.places
        place = self.places.setdefault(name, Holding(config))
        place.configure(config)
        self.settle(now)
        return created

    def patch(self, now: int, name: str, changes: dict[str, Any]) -> Refusal | None:
        place = self.places.get(name)
        if place is None:
            return 404, "topic_not_found"
        self.put(now, name, place.config | changes)
        return None

    def drop(self, now: int, name: str, *, if_empty: bool) -> dict[str, Any] | Refusal:
        self.settle(now)
        place = self.places.get(name)
        if place is None:
            return {"deleted": False, "routers_removed": []}
        if if_empty and place.topic.count:
            return 409, "topic_not_empty"
        tied = sorted(key for key, router in self.routers.items() if name in (router.source, router.dest))
        sources = [self.places[self.routers.pop(key).source].topic for key in tied]
        del self.places[name]
        for source in sources:
            self._trim(source)
        return {"deleted": True, "routers_removed": tied}

    def learn_incarnation(self, name: str, told: str) -> None:
        """R-INC-2: it is the one it was, or one that no topic has had."""
        place = self.places[name]
        if place.incarnation is None:
            assert told not in self.incarnations, f"{name} has an incarnation again: {told}"
            place.incarnation = told
            self.incarnations.add(told)
        assert told == place.incarnation, f"{name} has the incarnation {told}, not {place.incarnation}"

    def write(
        self, since: int, now: int, name: str, records: list[Record], *, config: dict[str, Any], key: str | None
    ) -> dict[str, Any] | Refusal:
        """since: when it was asked."""
        self.settle(now)
        created = name not in self.places
        if any(record.delay_ms for record in records) and not self._is_queue(name, config):
            return 409, "not_a_queue"
        if created:
            self.put(now, name, config)
        topic = self.places[name].topic
        known = topic.keys.get(key) if key is not None else None
        if known is not None and now - known[3] <= topic.window_ms:
            return _written(known[0], known[1], created=False, deduped=True)
        refused = topic.append(now, records, since)
        if refused:
            return (422 if refused == "topic_full" else 400), refused
        first, last = topic.head - len(records) + 1, topic.head
        jobs = self.places[name].jobs
        if jobs is not None:
            jobs.hold_back(first)
        if key is not None:
            topic.keys[key] = (first, last, since, now)
        self.settle(now)
        return _written(first, last, created=created, deduped=False)

    def _is_queue(self, name: str, config: dict[str, Any]) -> bool:
        """config: of a topic that would be made."""
        place = self.places.get(name)
        return config.get("type") == "queue" if place is None else place.jobs is not None

    def delete(self, now: int, name: str, before: int | None, match: str | None) -> dict[str, Any] | Refusal:
        self.settle(now)
        place = self.places.get(name)
        if place is None:
            return 404, "topic_not_found"
        topic = place.topic
        deleted = topic.delete(now, before, match)
        told = {"deleted": deleted, "earliest_seq": topic.earliest, "head_seq": topic.head, "count": topic.count}
        self.settle(now)
        return told

    # --- queues ------------------------------------------------------------------------------------------------------
    def claim(self, now: int, name: str, node: str, most: int, lease_ms: int | None) -> list[tuple[int, int]]:
        """(seq, deliveries) of each job."""
        self.settle(now)
        place, jobs = self.places[name], self.jobs(name)
        given = jobs.claim(now, node, most, lease_ms or jobs.lease_ms)
        place.dead_lettered += len(jobs.moved)
        if jobs.moved:
            dead = place.config["dead_letter"]
            if dead not in self.places:
                self.put(now, dead, {})
            copies = [
                _dead_letter(record, name, jobs.max_deliveries, jobs.reasons[record.seq]) for record in jobs.moved
            ]
            self.places[dead].topic.expire(now)
            self.places[dead].topic.add(now, copies, self.since)
            self._consume(name, jobs.moved)
        self.settle(now)
        return given

    def complete(
        self,
        verb: str,
        since: int,
        now: int,
        name: str,
        *,
        node: str,
        seqs: list[int],
        fences: list[int | None],
        milliseconds: int,
        reason: str = "",
    ) -> dict[str, Any]:
        """verb: ack, nack or extend; milliseconds: of the delay or the lease; since: when it was asked."""
        self.settle(now)
        jobs = self.jobs(name)
        if verb == "nack":
            done, skipped = jobs.nack(now, node, seqs, fences, milliseconds, reason=reason, since=since)
            return {"nacked": done, "skipped": skipped}
        if verb == "extend":
            acted, skipped = jobs.extend(now, node, seqs, fences, milliseconds)
            return {"extended": len(acted), "skipped": skipped}
        before = dict(jobs.topic.live)
        done, skipped = jobs.ack(now, node, seqs, fences)
        self._consume(name, [record for seq, record in before.items() if seq not in jobs.topic.live])
        self.settle(now)
        return {"acked": done, "skipped": skipped}

    def jobs(self, name: str) -> Jobs:
        jobs = self.places[name].jobs
        assert jobs is not None, f"{name} is no queue"
        return jobs

    def _consume(self, name: str, records: list[Record]) -> None:
        for router in self.routers.values():
            if router.source == name:
                router.kept |= {record.seq: record for record in records if record.seq > router.position}

    # --- named readers -----------------------------------------------------------------------------------------------
    def put_reader(
        self, now: int, topic_name: str, name: str, *, delivery: str, holds: bool, trims: bool, begin: Any
    ) -> dict[str, Any] | Refusal:
        """begin: a seq, or R-FROM."""
        self.settle(now)
        if topic_name not in self.places:
            return 404, "topic_not_found"
        topic = self.places[topic_name].topic
        known = topic.readers.get(name)
        if known is None:
            if len(topic.readers) == READERS_MAX:
                return 429, "throttled"
            position = begin if isinstance(begin, int) else topic.begin(begin)
            if position > topic.head:
                return 400, "invalid_request"
            topic.readers[name] = NamedReader(delivery, holds, trims, position, position)
        else:
            trimmed, known.delivery, known.holds, known.trims = known.trims, delivery, holds, trims
            if trimmed and not trims:
                self._trim(topic)
        self._let_go(topic, now)
        return {"created": known is None} | self.reader_state(topic_name, name)

    def reader_state(self, topic_name: str, name: str) -> dict[str, Any]:
        """Return the members of 7.10 without `lag_ms`."""
        topic = self.places[topic_name].topic
        reader = topic.readers[name]
        return {
            "delivery": reader.delivery,
            "holds": reader.holds,
            "trims": reader.trims,
            "position": reader.position,
            "committed": reader.committed,
            "lag_records": sum(seq > reader.committed for seq in topic.live),
            "pages": len(reader.out),
        }

    def find_reader(self, now: int, topic_name: str, name: str) -> NamedReader | Refusal:
        self.settle(now)
        if topic_name not in self.places:
            return 404, "topic_not_found"
        return self.places[topic_name].topic.readers.get(name) or (404, "reader_not_found")

    def read_page(
        self, now: int, topic_name: str, name: str, limit: int, most_bytes: int, *, peek: bool, stops: bool = False
    ) -> dict[str, Any] | Refusal:
        """Return the answer, with seqs in the place of records; `hand_out` notes who has the page."""
        reader = self.find_reader(now, topic_name, name)
        if isinstance(reader, tuple):
            return reader
        topic = self.places[topic_name].topic
        page = reader.next(topic, limit, most_bytes, moves=not peek)
        is_some = bool(page.seqs) or page.tombstone is not None
        peek = peek or (stops and page.tombstone is not None)  # R-READER-11
        if is_some and not peek and reader.delivery == "at-least-once" and len(reader.out) == READERS_MAX:
            return 429, "throttled"
        self.given = page if is_some and not peek else None
        return {
            "seqs": page.seqs,
            "next_from_seq": page.next_from_seq,
            "tombstone": None if page.tombstone is None else page.tombstone._asdict(),
            "head_seq": topic.head,
            "earliest_seq": topic.earliest,
            "caught_up": page.next_from_seq == topic.head,
            "lag": topic.head - page.next_from_seq,
        }

    def hand_out(self, now: int, topic_name: str, name: str, token: str | None, deadline: int) -> None:
        """The page that was read last is with its client. token: None at most once."""
        topic = self.places[topic_name].topic
        reader, committed = topic.readers[name], topic.readers[name].committed
        assert self.given is not None
        reader.take(self.given, token, deadline)
        self._on_position(topic, reader, committed, now)

    def commit_page(
        self, now: int, topic_name: str, name: str, token: str, seq: int | None, *, gives_back: bool
    ) -> dict[str, Any] | Refusal:
        reader = self.find_reader(now, topic_name, name)
        if isinstance(reader, tuple):
            return reader
        page, committed = reader.out.get(token), reader.committed
        if page is None:
            return 409, "reader_fenced"
        if seq is not None and seq > page.upto:
            return 400, "invalid_request"
        reader.finish(token, seq, gives_back=gives_back)
        self._on_position(self.places[topic_name].topic, reader, committed, now)
        return {"committed": reader.committed}

    def seek(self, now: int, topic_name: str, name: str, seq: int) -> dict[str, Any] | Refusal:
        reader = self.find_reader(now, topic_name, name)
        if isinstance(reader, tuple):
            return reader
        topic, committed = self.places[topic_name].topic, reader.committed
        if seq > topic.head:
            return 400, "invalid_request"
        reader.seek(seq)
        self._on_position(topic, reader, committed, now)
        return {"committed": seq}

    def end_reader(self, now: int, topic_name: str, name: str) -> dict[str, Any] | Refusal:
        self.settle(now)
        if topic_name not in self.places:
            return 404, "topic_not_found"
        topic = self.places[topic_name].topic
        reader = topic.readers.pop(name, None)
        if reader is not None and reader.trims:
            self._trim(topic)
        self._let_go(topic, now)
        return {"deleted": reader is not None}

    def _on_position(self, topic: Topic, reader: NamedReader, before: int, now: int) -> None:
        if reader.trims and reader.committed != before:
            self._trim(topic)
        self._let_go(topic, now)

    def _let_go(self, topic: Topic, now: int) -> None:
        """Lose what caps and expiry take once no reader holds it."""
        topic.evict()
        self.settle(now)

    def _trim(self, topic: Topic) -> None:
        """R-READER-9."""
        upto = min((reader.committed for reader in topic.readers.values() if reader.trims), default=0)
        routers = [router for router in self.routers.values() if self.places[router.source].topic is topic]
        upto = min([upto, *(router.position for router in routers)])
        if topic.earliest <= min(upto, topic.head):
            topic.remove(upto + 1, None)

    # --- routers -----------------------------------------------------------------------------------------------------
    def route(
        self, now: int, name: str, source: str, dest: str, *, allow_cycle: bool, config: dict[str, Any], **kept: Any
    ) -> tuple[int, str | None]:
        """Status and code. config: of the topics it makes; kept: tag, keep_tag, keep_node and exactly_once."""
        self.settle(now)
        if source == dest:
            return 400, "invalid_request"
        known = self.routers.get(name)
        others = [router for router in self.routers.values() if router.name != name]
        if any(router.dest == dest and router.source != source for router in others):
            return 409, "topic_exists_incompatible"
        if known is not None and (known.source, known.dest) != (source, dest):
            return 409, "topic_exists_incompatible"
        if not allow_cycle and closes_a_cycle(self.routers, name, source, dest):
            return 409, "router_cycle"
        for each in (source, dest):
            if each not in self.places:
                self.put(now, each, config)
        if known is None:
            self.routers[name] = Router(name, source, dest, self.places[source].topic.head, **kept)
            return 201, None
        for field_name, value in kept.items():
            setattr(known, field_name, value)
        self.settle(now)
        return 200, None

    def unroute(self, now: int, name: str) -> bool:
        self.settle(now)
        router = self.routers.pop(name, None)
        if router is not None:
            self._trim(self.places[router.source].topic)
        return router is not None

    def above(self, name: str) -> set[str]:
        """The topics it is fed by, through however many routers."""
        found: set[str] = set()
        more = {router.source for router in self.routers.values() if router.dest == name}
        while more - found:
            found |= more
            more = {router.source for router in self.routers.values() if router.dest in found}
        return found

    def is_fed_by_a_cycle(self, name: str) -> bool:
        return any(each in self.above(each) for each in {name} | self.above(name))

    def is_held(self, name: str) -> bool:
        place = self.places.get(name)
        return place is not None and any(reader.holds for reader in place.topic.readers.values())

    # --- what leaves nothing open ------------------------------------------------------------------------------------
    def is_certain(
        self,
        configs: dict[str, dict[str, Any]] | None = None,
        edges: list[tuple[str, str]] | None = None,
        held: str | None = None,
    ) -> bool:
        """Return whether the contract leaves nothing open of what happens with other configurations, more routers
        and another topic that a reader holds.

        How many records arrive at once decides what a cap evicts in a topic that is fed and feeds others. Expiry that
        makes room for a router makes it at an instant that no answer shows.
        """
        settings = {name: place.config for name, place in self.places.items()} | (configs or {})
        pairs = [(router.source, router.dest) for router in self.routers.values()] + (edges or [])
        fed = {dest for _, dest in pairs} | {each.get("dead_letter") for each in settings.values()}
        feeding = {source for source, _ in pairs}
        for name in fed & set(settings):
            config = DEFAULTS | settings[name]
            capped = config["cap_records"] or config["cap_bytes"]
            if capped and config["discard"] == "old" and name in feeding:
                return False
            refuses = config["discard"] == "reject" or name == held or self.is_held(name)
            place = self.places.get(name)
            if capped and refuses and (config["ttl_ms"] or (place is not None and place.topic.expires)):
                return False
        return True


def _written(first: int, last: int, *, created: bool, deduped: bool) -> dict[str, Any]:
    seqs = list(range(first, last + 1))
    return {
        "first_seq": first,
        "last_seq": last,
        "seqs": seqs,
        "head_seq": last,
        "count": len(seqs),
        "created": created,
        "deduped": deduped,
    }


def _dead_letter(record: Record, queue: str, deliveries: int, reason: str) -> Record:
    """R-Q-24, R-Q-35."""
    meta = record.meta.actual if isinstance(record.meta, Told) else record.meta
    told = {
        "$dead_letter_from": queue,
        "$dead_letter_deliveries": str(deliveries),
        "$dead_letter_src_seq": str(record.seq),
    }
    if reason:
        told["$dead_letter_reason"] = reason
    merged = (meta or {}) | told
    return Record(payload_size(record.data) + compact(merged), record.tag, record.node, record.data, merged)
