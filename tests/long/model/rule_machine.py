"""Anything in any order against one server, and after every rule all that can be seen compared with the oracle."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.contract.world.answer import Answer
from tests.contract.world.world import ABSENT, Connection
from tests.long.model.compare_views import compare, shown_payload
from tests.long.model.model_routers import Told
from tests.long.model.model_topic import Record, compact, payload_size
from tests.long.model.oracle import NEVER, Oracle
from tests.long.model.server_host import Host

LOGS = ("a", "b", "c", "d")
QUEUES = ("p", "q")
ROUTERS = ("r", "s", "t", "u", "v")
ROUTE = {"tag": None, "keep": (True, True), "exactly": False, "cycle": False}
SCENES: dict[str, tuple[str, dict[str, Any], list[tuple[str, str, dict[str, Any]]]]] = {
    "nothing": ("a", {}, []),
    "chain": ("a", {"b": {"ttl_ms": 1500}}, [("a", "b", {}), ("b", "c", {"tag": "x*"}), ("a", "d", {"exactly": True})]),
    "mirror": (
        "a",
        {},
        [("a", "b", {"cycle": True}), ("b", "a", {"cycle": True, "keep": (False, True)}), ("b", "q", {})],
    ),
    "blocked": (
        "a",
        {"a": {"ttl_ms": 1500, "cap_records": 6}, "c": {"cap_records": 3, "discard": "reject"}},
        [("a", "c", {}), ("c", "d", {})],
    ),
    "blocked jobs": (
        "q",
        {"q": {"lease_ms": 30_000}, "b": {"cap_records": 3, "discard": "reject"}},
        [("q", "b", {}), ("q", "c", {"tag": "x*"})],
    ),
    "poison": (
        "q",
        {"q": {"lease_ms": 150, "max_deliveries": 1, "dead_letter": "d", "leases_durable": True}},
        [("a", "q", {}), ("d", "p", {})],
    ),
}
"""To begin with: configurations and routers that few examples would come to."""
names = st.sampled_from(LOGS + QUEUES)
FIRST = "first"
STRICT_EACH = 8
"""Requests of which one is sent before with an unknown key and `Prefer: handling=strict`, which is refused."""
some = st.sampled_from((*LOGS, *QUEUES, FIRST, FIRST, FIRST, FIRST))
"""Mostly where the scene begins."""
queues = st.sampled_from(QUEUES)
tags = st.sampled_from([None, None, "x", "x:1", "x:2", "y", ""])
origins = st.sampled_from([None, "n", "m"])
metas = st.sampled_from([None, None, {"k": 1}, {"k": "é", "l": [None, 0.5]}])
kinds = st.sampled_from([None, None, "object", "bytes"])
batches = st.lists(st.tuples(kinds, st.sampled_from([0, 1, 10, 40]), tags, origins, metas), min_size=1, max_size=5)
payloads_that_are_none: tuple[dict[str, Any], ...] = (
    {},
    {"data": 1, "data_base64": "AA=="},
    {"data_base64": "AA"},
    {"data_base64": "AB=="},
    {"data_base64": "A A="},
    {"data_base64": "_w=="},
    {"data_base64": "AA==\n"},
    {"data_base64": "===="},
    {"data_base64": None},
    {"data_base64": 1},
)
"""R-BYTES-1: none, both, no padding, bits that are not zero, a blank, the other alphabet, and what is no base64."""
keys = st.sampled_from([None, None, None, "k", "l", ""])
windows = st.sampled_from([400, 120_000])
behind = st.lists(st.integers(0, 9), max_size=5) | st.just(list(range(10)))
workers = st.sampled_from(["v", "v", "w"])
fences = st.sampled_from(["none", "none", "right", "right", "wrong"])
configs = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.sampled_from([300, 1500]),
        "cap_records": st.sampled_from([3, 6]),
        "cap_bytes": st.sampled_from([60, 150]),
        "discard": st.sampled_from(["old", "reject"]),
    },
)
READERS = ("e", "f", "g", "h")
HOLDS = ("made", "changed", "sought back")
readers = st.sampled_from(("e", "e", "e", *READERS))
limits = st.sampled_from([1, 2, 1000, 1000])
byte_limits = st.sampled_from([None, None, 1, 30, 100])
beginnings = st.sampled_from(
    [0, 0, 0, "seq", "head", "above", "first", "now", {"last": 0}, {"last": 2}, {"last": 5}, "time"]
)
beginnings_of_all = st.sampled_from([0, 0, "first", "now", {"last": 2}, {"time": 1}])
queue_configs = st.fixed_dictionaries(
    {"lease_ms": st.sampled_from([150, 700, 30_000]), "leases_durable": st.booleans()},
    optional={"max_deliveries": st.sampled_from([1, 2]), "dead_letter": st.sampled_from(["d", "p", "q"])},
)
classes = st.sampled_from(["memory", "disk", "fsync"])
settings = st.fixed_dictionaries(
    {
        "http2": st.booleans(),
        "http_parser": st.sampled_from(["h11", "httptools"]),
        "http_lane": st.sampled_from(["off", "auto"]),
        "wal_shards": st.sampled_from([1, 3]),
        "pack_run_bytes": st.sampled_from([0, 0, 4096]),
        "segment_codec": st.sampled_from(["none", "zstd", "zstd"]),
    }
)

meanings = st.sampled_from([None, None, None, "present", "other"])
delays = st.sampled_from([0, 0, 0, 0, 300, 4000])
WRITE = {
    "name": some,
    "batch": batches,
    "key": keys,
    "config": configs,
    "kind": classes,
    "meant": meanings,
    "delay_ms": delays,
    "ttl_ms": st.sampled_from([0, 0, 0, 0, 250, 2500]),
}
CLAIM = {
    "name": some,
    "node": workers,
    "most": st.integers(1, 6),
    "lease_ms": st.sampled_from([None, None, 120, 600]),
    "attempts": st.booleans(),
}
COMPLETE = {
    "name": some,
    "verb": st.sampled_from(["ack", "ack", "nack", "extend"]),
    "node": workers,
    "behind": behind,
    "kind": fences,
    "milliseconds": st.sampled_from([0, 150, 600]),
    "reason": st.sampled_from([None, "", "it broke", 'ü"']),
}
DELETE = {"name": st.sampled_from((*LOGS, *QUEUES, *("b", "c") * 3)), "part": st.integers(0, 8)}
READER = {
    "name": some,
    "reader": readers,
    "delivery": st.sampled_from(["at-least-once", "at-least-once", "at-most-once"]),
    "holds": st.booleans(),
    "trims": st.sampled_from([False, False, True]),
    "begin": beginnings,
}
PAGE = {
    "name": some,
    "reader": readers,
    "limit": limits,
    "most_bytes": byte_limits,
    "lease_ms": st.sampled_from([None, None, 1, 120, 600]),
    "peek": st.sampled_from([False, False, False, True]),
    "stops": st.sampled_from([None, False, True]),
}
COMMIT = {
    "name": some,
    "reader": readers,
    "which": st.integers(0, 5),
    "upto": st.sampled_from([None, None, 0, 1, 3, 9]),
    "gives_back": st.sampled_from([False, False, True]),
}
END = {"pick": st.integers(0, 5), "life": settings}
works = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.fixed_dictionaries(WRITE)),
        st.tuples(st.just("write"), st.fixed_dictionaries(WRITE)),
        st.tuples(st.just("claim"), st.fixed_dictionaries(CLAIM)),
        st.tuples(st.just("complete_jobs"), st.fixed_dictionaries(COMPLETE)),
        st.tuples(st.just("delete_front"), st.fixed_dictionaries(DELETE)),
        st.tuples(st.just("put_reader"), st.fixed_dictionaries(READER)),
        st.tuples(st.just("read_page"), st.fixed_dictionaries(PAGE)),
        st.tuples(st.just("commit_page"), st.fixed_dictionaries(COMMIT)),
        st.tuples(st.just("end"), st.fixed_dictionaries(END)),
    ),
    min_size=3,
    max_size=10,
)


class Inconclusive(Exception):
    """The answer took so long that time by itself may have changed what it says."""


def step(**given: Any) -> Any:
    """A rule, which does nothing once the machine has lost track."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def follow(self: Machine, **values: Any) -> None:
            self.follow(lambda: function(self, **values))
            if not self.lost_track:
                self.counts[function.__name__] += 1

        return rule(**given)(follow)

    return decorate


class Machine(RuleBasedStateMachine):
    """Subclasses say where the server runs."""

    failures: ClassVar[list[Exception]] = []
    """Failures, first to last: on a real server they may not happen again."""
    counts: ClassVar[Counter[str]] = Counter()
    """Counts over all examples: the tries of each rule, and how often the server was too slow to be certain."""

    def host_of(self, seed: int) -> Host:
        raise NotImplementedError

    @initialize(
        seed=st.integers(0, 1000), life=settings, synced=st.booleans(), scene=st.sampled_from(list(SCENES)), works=works
    )
    def begin(self, *, seed: int, life: dict[str, Any], synced: bool, scene: str, works: Any) -> None:
        """synced: every topic is of class fsync, and the power may fail."""
        self.counts["examples"] += 1
        self.host = self.host_of(seed)
        self.synced = synced
        self.oracle = Oracle()
        self.compared: dict[str, Any] = {}
        """The state of a topic when it was last read from every cursor."""
        self.compared_readers: dict[str, Any] = {}
        """The state of a topic and its named readers when what comes next for each was last read."""
        self.lease_numbers: set[int] = set()
        self.tokens: list[tuple[str, str, str]] = []
        """Topic, reader and token of every page that was handed out."""
        self.lost_track = False
        self.asks = 0
        self.made = 0
        self.restarts = 0
        self.marked = False
        """Exactly-once routers make copies whose size is known once they are read: then no cap counts bytes."""
        self.host.begin(**life)
        self.before = self.now = self.oracle.settled_at = self.host.now_ms()
        self.first, configs, routers = SCENES[scene]
        for name, config in configs.items():
            self.put(name, self.complete(config, name, "disk"))
        for at, (source, dest, fields) in enumerate(routers):
            self.route(**{"name": ROUTERS[at], "source": source, "dest": dest, **ROUTE, **fields})
        self.work(works=works)

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.counts["segments that were compressed at the end"] += self.host.compressed_segments()
            self.host.close()

    def follow(self, step: Callable[[], None]) -> None:
        """Not by ending the example: what is drawn must not depend on how long a real server took."""
        if not self.lost_track:
            try:
                step()
            except Inconclusive:
                self.lost_track = True
                self.counts["lost track"] += 1
            except Exception as error:
                self.failures.append(error)
                raise

    # --- asking ------------------------------------------------------------------------------------------------------
    def calm(self) -> None:
        """Lets time pass until nothing is about to change by itself: what is asked then has one right answer."""
        moments = sorted(self.oracle.moments())
        until = self.host.now_ms()
        for first, last in moments:
            if first <= until + self.host.guard_ms and until < last < NEVER:
                until = last
        wait_ms = until - self.host.now_ms()
        if wait_ms > 0:
            self.host.pass_ms(wait_ms + 1)
        self.before = self.oracle.asked_at = self.host.now_ms()

    def asked(self) -> None:
        """An answer is there. When something changed while it was waited for, nothing follows from it, nor after it."""
        self.now = self.host.now_ms()
        if any(first <= self.now and last > self.before for first, last in self.oracle.moments()):
            raise Inconclusive

    def ask(self, method: str, path: str, body: Any = ABSENT) -> Answer:
        self.calm()
        self.asks += 1
        if isinstance(body, dict) and self.asks % STRICT_EACH == 0:
            self.refused_strictly(method, path, body)
        answer = self.host.connection.request(method, path, body)
        self.asked()
        return answer

    def refused_strictly(self, method: str, path: str, body: dict[str, Any]) -> None:
        """R-STRICT-2: with an unknown key the same request is refused, and changes nothing that is seen later."""
        headers = {"Prefer": "handling=strict"}
        answer = self.host.connection.request(method, path, body | {"unknwn": 1}, headers)
        assert answer.refusal[:2] == (400, "invalid_request"), answer.text

    def agree(self, answer: Answer, expected: Any) -> Any:
        """expected: keys with their values, or status and code of a refusal."""
        if isinstance(expected, tuple):
            assert answer.refusal[:2] == expected, f"{answer.status} {answer.text[:500]}, not {expected}"
            return None
        assert answer.status in (200, 201), f"{answer.status} {answer.text[:500]}, not {expected}"
        told = answer.json
        shown = {key: told.get(key) for key in expected}
        assert shown == expected, f"{shown}, not {expected}"
        return told

    # --- topics ------------------------------------------------------------------------------------------------------
    def complete(self, config: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
        """A configuration that the contract is certain about; a name keeps its class and its window."""
        known = self.oracle.places.get(name)
        config = config | {"durability": "fsync" if self.synced else kind}
        if known is not None:
            kept = ("durability", "idempotency_window_ms")
            config |= {key: known.config[key] for key in kept if key in known.config}
            config = {key: value for key, value in config.items() if key not in kept or key in known.config}
        if config.get("dead_letter") == name or self.marked:
            config = {key: value for key, value in config.items() if key not in ("dead_letter", "cap_bytes")}
        return config | ({"type": "queue"} if name in QUEUES else {})

    def put(self, name: str, config: dict[str, Any]) -> None:
        answer = self.ask("PUT", f"/v0/topics/{name}", config)
        self.agree(answer, {"created": self.oracle.put(self.now, name, config)})
        shown = answer.json["config"]
        assert {key: shown[key] for key in config} == config

    @step(name=st.sampled_from(LOGS), config=configs, kind=classes, window=windows)
    def configure(self, name: str, config: dict[str, Any], kind: str, window: int) -> None:
        config = self.complete(config | {"idempotency_window_ms": window}, name, kind)
        if self.oracle.is_certain({name: config}):
            self.put(name, config)

    @step(name=queues, config=configs, more=queue_configs, kind=classes)
    def configure_queue(self, name: str, config: dict[str, Any], more: dict[str, Any], kind: str) -> None:
        config = self.complete(config | more, name, kind)
        if self.oracle.is_certain({name: config}):
            self.put(name, config)

    @step(name=some, config=configs, more=queue_configs, unlimited=st.sets(st.sampled_from(["ttl_ms", "cap_records"])))
    def patch(self, name: str, config: dict[str, Any], more: dict[str, Any], unlimited: set[str]) -> None:
        """Some fields change, and all others stay."""
        name = self.first if name == FIRST else name
        place = self.oracle.places.get(name)
        before = {} if place is None else place.config
        changes = dict.fromkeys(unlimited, 0) | config | (more if name in QUEUES else {})
        possible = self.complete(before | changes, name, "disk")
        changes = {key: possible[key] for key in changes if key in possible}
        if not self.oracle.is_certain({name: before | changes}):
            return
        answer = self.ask("PATCH", f"/v0/topics/{name}", changes)
        refused = self.oracle.patch(self.now, name, changes)
        if refused is not None:
            assert answer.refusal[:2] == refused
            return
        for shown, known in (("before", before), ("after", before | changes)):
            assert {key: answer.json[shown][key] for key in known} == known

    def need(self, name: str) -> None:
        """Create an absent topic if only a configuration can, or if all must survive a power cut."""
        if name not in self.oracle.places and (self.synced or name in QUEUES):
            self.put(name, self.complete({}, name, "disk"))

    def records(self, batch: list[tuple[str | None, int, str | None, str | None, Any]]) -> list[Record]:
        made = []
        for kind, more, tag, node, meta in batch:
            self.made += 1
            data: Any = self.made
            if kind == "object":
                data = {"n": self.made, "x": "é" + "x" * more}
            elif kind == "bytes":
                data = b"%d\x00\xff" % self.made + b"x" * more
            size = payload_size(data) + (0 if meta is None else compact(meta))
            made.append(Record(size, tag, node, data, meta))
        return made

    @step(**WRITE)
    def write(  # noqa: PLR0917
        self,
        name: str,
        batch: Any,
        key: str | None,
        config: dict[str, Any],
        kind: str,
        meant: str | None,
        delay_ms: int = 0,
        ttl_ms: int = 0,
    ) -> None:
        """The configuration counts when the write makes the topic; meant: which incarnation it names, if any.

        delay_ms: of every other record; ttl_ms: of the others.
        """
        name = self.first if name == FIRST else name
        present = self.oracle.places[name].incarnation if name in self.oracle.places else None
        if meant == "other" or (meant == "present" and present is None):
            body = body_of(self.records(batch), key) | {"incarnation": self.other_incarnation(present)}
            answer = self.ask("POST", f"/v0/topics/{name}", body)
            self.agree(answer, (409, "incarnation_mismatch"))
            self.oracle.settle(self.now)
            return
        records = self.records(batch)
        if name not in QUEUES:
            delay_ms = delay_ms if delay_ms == 300 else 0
        for record in records[::2]:
            record.delay_ms = delay_ms
        for record in records[1::2]:  # A full one that routers fill would have room at an unknown instant.
            record.ttl_ms = 0 if name in self.oracle.places and self.is_capped(name) else ttl_ms
        body = body_of(records, key)
        config = self.complete(config, name, kind)
        if name not in self.oracle.places and not self.oracle.is_certain({name: config}):
            return
        if name not in self.oracle.places or len(records) == 1:
            body["config"] = config
        if meant == "present":
            body["incarnation"] = present
        answer = self.ask("POST", f"/v0/topics/{name}", body)
        self.agree(answer, self.oracle.write(self.before, self.now, name, records, config=config, key=key))

    @step(name=names, batch=batches, payload=st.sampled_from(payloads_that_are_none), at=st.integers(0, 5))
    def write_no_payload(self, name: str, batch: Any, payload: dict[str, Any], at: int) -> None:
        """R-BYTES-1, R-SEQ-6: neither this record is there, nor those beside it, nor their topic."""
        records = body_of(self.records(batch), None)["records"]
        records[at % len(records)] = {key: value for key, value in records[0].items() if "data" not in key} | payload
        answer = self.ask("POST", f"/v0/topics/{name}", {"records": records})
        self.agree(answer, (400, "invalid_request"))

    def other_incarnation(self, present: str | None) -> str:
        """One that some topic has had, or none."""
        return next((each for each in sorted(self.oracle.incarnations) if each != present), "0" * 16)

    @step(where=st.lists(st.tuples(some, batches, keys), min_size=2, max_size=6))
    def write_at_once(self, where: Any) -> None:
        """Several clients in one moment: seqs show in which order they came."""
        asked = self.independent(where)
        connections = self.host.others(len(asked))
        for connection, (name, _, _) in zip(connections, asked, strict=True):  # the second request may take the lane
            connection.request("GET", f"/v0/topics/{name}?touch=false")
        self.calm()
        for connection, (name, records, key) in zip(connections, asked, strict=True):
            connection.start("POST", f"/v0/topics/{name}", body_of(records, key))
        answers = [connection.answer() for connection in connections]
        self.asked()
        self.apply_by_seq(asked, answers)

    def apply_by_seq(self, asked: list[Any], answers: list[Answer]) -> None:
        order = sorted(
            range(len(asked)), key=lambda at: (asked[at][0], answers[at].json["first_seq"], answers[at].json["deduped"])
        )
        for at in order:
            name, records, key = asked[at]
            self.agree(answers[at], self.oracle.write(self.before, self.now, name, records, config={}, key=key))

    def independent(self, where: list[Any]) -> list[Any]:
        """Return the writes whose order changes nothing: whatever is written is admitted, and nothing that one
        of them leads to by routers comes between the others."""
        where = [(self.first if name == FIRST else name, batch, key) for name, batch, key in where]
        found = {name for name, _, _ in where if self.takes_anything(name)}
        found = {name for name in found if not self.oracle.above(name) & found}
        return [(name, self.records(batch), key) for name, batch, key in where if name in found]

    def takes_anything(self, name: str) -> bool:
        place = self.oracle.places.get(name)
        if place is None:
            return False
        if self.oracle.is_held(name):
            return not self.is_capped(name)
        return not self.is_capped(name) or (place.topic.discard == "old" and not self.feeds(name))

    def keeps_all(self, name: str) -> bool:
        """Return whether records stay until a read after a start, which may take a real server seconds."""
        return not self.is_capped(name) and not self.oracle.places[name].topic.expires

    def is_room_for(self, name: str, config: dict[str, Any]) -> bool:
        """Whether the contract is certain about such a topic, with a reader that holds."""
        return self.oracle.is_certain({name: config}, held=name)

    def is_capped(self, name: str) -> bool:
        topic = self.oracle.places[name].topic
        return bool(topic.cap_records or topic.cap_bytes)

    def feeds(self, name: str) -> bool:
        return any(router.source == name for router in self.oracle.routers.values())

    @step(**DELETE)
    def delete_front(self, name: str, part: int) -> None:
        if name in self.oracle.places:
            self.delete(name, max(0, self.oracle.places[name].topic.head - part), None)

    @step(name=names, part=st.none() | st.integers(-2, 5), match=st.sampled_from(["x", "x:*", "x*", "*", "", "y"]))
    def delete_tagged(self, name: str, part: int | None, match: str) -> None:
        place = self.oracle.places.get(name)
        self.delete(name, None if part is None or place is None else max(0, place.topic.head - part), match)

    def delete(self, name: str, before: int | None, match: str | None) -> None:
        answer = self.ask("POST", f"/v0/topics/{name}/delete", {"before_seq": before, "match": match})
        self.agree(answer, self.oracle.delete(self.now, name, before, match))

    @step(name=names, if_empty=st.booleans())
    def drop(self, name: str, if_empty: bool) -> None:
        answer = self.ask("DELETE", f"/v0/topics/{name}" + ("?if_empty=true" if if_empty else ""))
        self.agree(answer, self.oracle.drop(self.now, name, if_empty=if_empty))

    # --- waits -------------------------------------------------------------------------------------------------------
    def known_of(self, name: str) -> Any:
        """Return what a client that has just looked knows of a topic."""
        place = self.oracle.places.get(name)
        if place is None or place.incarnation is None:
            return None if place is None else place.topic.head
        return {"seq": place.topic.head, "incarnation": place.incarnation}

    @step(name=names, wrong=st.sampled_from(["nothing", "seq", "there", "incarnation"]))
    def wait_at_once(self, name: str, wrong: str) -> None:
        """For all topics, of which one is known wrongly; or for no time."""
        known = {each: self.known_of(each) for each in LOGS + QUEUES}
        head = self.oracle.places[name].topic.head if name in self.oracle.places else 0
        if wrong == "there":
            known[name] = None if name in self.oracle.places else 3
        elif wrong != "nothing":
            known[name] = {"seq": head, "incarnation": "0" * 16} if wrong == "incarnation" else head + 1
        wait_ms = 0 if wrong == "nothing" else 30_000
        answer = self.ask("POST", "/v0/wait", {"topics": known, "wait_ms": wait_ms})
        self.oracle.settle(self.now)
        told = self.agree(answer, {})["topics"]
        assert list(told) == list(known)
        for each, shown in told.items():
            self.see_head(each, shown)

    def see_head(self, name: str, shown: Any) -> None:
        place = self.oracle.places.get(name)
        assert (shown is None) == (place is None), f"{name}: {shown}"
        if place is not None:
            self.oracle.learn_incarnation(name, shown["incarnation"])
            if not self.oracle.is_fed_by_a_cycle(name):
                assert shown["head_seq"] == place.topic.head, f"{name}: {shown}, not {place.topic.head}"

    @step(name=names, batch=batches, what=st.sampled_from(["write", "write", "drop", "put"]))
    def wait_for_news(self, name: str, batch: Any, what: str) -> None:
        """Change a topic (a write, a delete or a new one) while a client waits for all of them."""
        if any(self.oracle.is_fed_by_a_cycle(each) for each in self.oracle.places):
            return
        known = {each: self.known_of(each) for each in LOGS + QUEUES}
        (waiting,) = self.host.others(1)
        self.calm()
        waiting.start("POST", "/v0/wait", {"topics": known, "wait_ms": 30_000})
        if not waiting.waiting:  # a router that found room again brought something
            assert any(told is not None for told in waiting.answer().json["topics"].values())
            return
        before = self.oracle.places.get(name)
        head = before.topic.head if before is not None else 0
        if what == "write":
            self.write(name=name, batch=batch, key=None, config={}, kind="disk", meant=None)
        elif what == "drop":
            self.drop(name=name, if_empty=False)
        else:
            self.need(name)
        after = self.oracle.places.get(name)
        if self.lost_track or (after is before and (after is None or after.topic.head == head)):
            waiting.reset()
            return
        told = waiting.answer().json["topics"][name]
        assert (told is None) == (after is None), f"{name}: {told}"
        if after is not None:
            assert told["head_seq"] == after.topic.head
            self.oracle.learn_incarnation(name, told["incarnation"])

    @step(wait_ms=st.sampled_from([0, 30_000]), number=st.sampled_from([0, 1, 2, 2**40]))
    def checkpoint(self, wait_ms: int, number: int) -> None:
        """Ask for a checkpoint, which changes nothing visible. number: of any that there may have been."""
        told = self.agree(self.ask("POST", "/v0/checkpoint", {"wait_ms": wait_ms, "checkpoint": number}), {})
        assert told["done"] or not wait_ms
        assert ("checkpoint" in told) is not told["done"]

    # --- queues ------------------------------------------------------------------------------------------------------
    @step(**CLAIM)
    def claim(self, name: str, node: str, most: int, lease_ms: int | None, attempts: bool) -> None:
        name = self.queue_of(name)
        if name not in self.oracle.places:
            return
        if self.synced and (dead := self.oracle.places[name].config.get("dead_letter")) is not None:
            self.need(dead)
        records = {seq: (each.data, each.tag, each.meta) for seq, each in self.oracle.places[name].topic.live.items()}
        body = {"node": node, "max": most, "lease_ms": lease_ms, "include_attempts": attempts}
        answer = self.ask("POST", f"/v0/topics/{name}/claim", body)
        given = self.oracle.claim(self.now, name, node, most, lease_ms)
        jobs = self.oracle.jobs(name)
        told = self.agree(answer, {"count": len(given), "ready": jobs.counters(self.now)[1]})
        assert [(job["$seq"], job["deliveries"]) for job in told["claimed"]] == given
        for job in told["claimed"]:
            number = int(job["lease_id"][6:], 16)
            assert number not in self.lease_numbers, f"{job['lease_id']} was given out before"
            self.lease_numbers.add(number)
            length = lease_ms or jobs.lease_ms
            assert self.before + length <= job["deadline"] <= self.now + length
            lease = jobs.leases[job["$seq"]]
            lease.number, lease.deadline = number, job["deadline"]
            assert ("attempts" in job) is attempts
            assert not attempts or jobs.is_told(job["$seq"], job["attempts"])
            data, tag, meta = records[job["$seq"]]
            assert (shown_payload(job), job.get("$tag")) == (data, tag)
            assert job.get("meta") == getattr(meta, "actual", meta)

    def queue_of(self, name: str) -> str:
        """A queue there is, rather than none."""
        if name in QUEUES and name in self.oracle.places:
            return name
        return next((each for each in (self.first, *QUEUES) if each in QUEUES and each in self.oracle.places), "q")

    def fenced(self, name: str, seqs: list[int], kind: str) -> tuple[list[int | None], list[str]]:
        if kind == "none":
            return [], []
        leases = self.oracle.jobs(name).leases
        numbers = [leases[seq].number + (kind == "wrong") if seq in leases else None for seq in seqs]
        return numbers, ["" if number is None else f"lease_{number:x}" for number in numbers]

    @step(**COMPLETE)
    def complete_jobs(
        self, *, name: str, verb: str, node: str, behind: list[int], kind: str, milliseconds: int, reason: str | None
    ) -> None:
        name = self.queue_of(name)
        if name not in self.oracle.places:
            return
        jobs = self.oracle.jobs(name)
        known = sorted(jobs.topic.live | jobs.leases)
        seqs = [known[-1 - back] if back < len(known) else 1 + back for back in behind]
        numbers, ids = self.fenced(name, seqs, kind)
        body: dict[str, Any] = {"node": node, "seqs": seqs, "lease_ids": ids}
        if verb == "extend":
            milliseconds = max(milliseconds, 100)
            body["lease_ms"] = milliseconds
        elif verb == "nack":
            body["delay_ms"] = milliseconds
            body["reason"] = reason
        answer = self.ask("POST", f"/v0/topics/{name}/{verb}", body)
        expected = self.oracle.complete(
            verb,
            self.before,
            self.now,
            name,
            node=node,
            seqs=seqs,
            fences=numbers,
            milliseconds=milliseconds,
            reason=reason or "",
        )
        told = self.agree(answer, expected)
        if verb == "extend":
            assert sorted(map(int, told["deadlines"])) == sorted(set(seqs) - set(told["skipped"])) or told["skipped"]
            for seq, deadline in told["deadlines"].items():
                assert self.before + milliseconds <= deadline <= self.now + milliseconds
                jobs.leases[int(seq)].deadline = deadline

    # --- named readers -----------------------------------------------------------------------------------------------
    def reader_of(self, name: str, reader: str) -> tuple[str, str]:
        """A topic and a reader there is, rather than none."""
        name = self.first if name == FIRST else name
        with_readers = [each for each, place in sorted(self.oracle.places.items()) if place.topic.readers]
        if (name not in self.oracle.places or not self.oracle.places[name].topic.readers) and with_readers:
            name = with_readers[0]
        known = self.oracle.places[name].topic.readers if name in self.oracle.places else {}
        return name, reader if reader in known or not known or reader == READERS[-1] else min(known)

    @step(**READER)
    def put_reader(self, *, name: str, reader: str, delivery: str, holds: bool, trims: bool, begin: Any) -> None:
        name = self.first if name == FIRST else name
        place = self.oracle.places.get(name)
        known = None if place is None else place.topic.readers.get(reader)
        holds = holds and self.oracle.is_certain(held=name)
        if known is not None and (known.out or known.late):
            delivery = known.delivery  # the contract is silent about pages that are out then
        begin = self.beginning(name, begin)
        body = {"delivery": delivery, "holds": holds, "trims": trims}
        body["from_seq" if isinstance(begin, int) else "from"] = begin
        answer = self.ask("PUT", f"/v0/topics/{name}/readers/{reader}", body)
        held_expires = known is not None and place is not None and place.topic.expires
        expected = self.oracle.put_reader(
            self.now, name, reader, delivery=delivery, holds=holds, trims=trims, begin=begin
        )
        if isinstance(expected, dict) and held_expires:
            del expected["lag_records"]  # what it held may have expired, and is removed by the next look
        told = self.agree(answer, expected)
        assert told is None or (answer.status == 201) is told["created"]

    def beginning(self, name: str, begin: Any) -> Any:
        """A seq or R-FROM; a time is that of a record, which compare has read."""
        topic = self.oracle.places[name].topic if name in self.oracle.places else None
        head = 0 if topic is None else topic.head
        if begin == "time":
            stamps = [] if topic is None else [record.ts for record in topic.live.values()]
            return {"time": stamps[len(stamps) // 2] if stamps else 1}
        return (
            {"seq": head // 2, "head": head, "above": head + 1}.get(begin, begin) if isinstance(begin, str) else begin
        )

    @step(name=some, reader=readers)
    def end_reader(self, name: str, reader: str) -> None:
        name, reader = self.reader_of(name, reader)
        answer = self.ask("DELETE", f"/v0/topics/{name}/readers/{reader}")
        self.agree(answer, self.oracle.end_reader(self.now, name, reader))

    @step(**PAGE)
    def read_page(
        self,
        *,
        name: str,
        reader: str,
        limit: int,
        most_bytes: int | None,
        lease_ms: int | None,
        peek: bool,
        stops: bool | None = None,
    ) -> None:
        name, reader = self.reader_of(name, reader)
        body: dict[str, Any] = {"limit": limit, "peek": peek} | ({} if stops is None else {"stop_at_gap": stops})
        body |= {} if most_bytes is None else {"max_batch_bytes": most_bytes}
        body |= {} if lease_ms is None else {"lease_ms": lease_ms}
        answer = self.ask("POST", f"/v0/topics/{name}/readers/{reader}/read", body)
        self.see_page(
            answer, name, reader, limit=limit, most_bytes=most_bytes, lease_ms=lease_ms, peek=peek, stops=bool(stops)
        )

    def see_page(
        self,
        answer: Answer,
        name: str,
        reader: str,
        *,
        limit: int,
        most_bytes: int | None,
        lease_ms: Any,
        peek: bool,
        stops: bool = False,
    ) -> None:
        oracle = self.oracle
        most_bytes = most_bytes or 1 << 20
        expected = oracle.read_page(self.now, name, reader, limit, most_bytes, peek=peek, stops=stops)
        if isinstance(expected, tuple):
            self.agree(answer, expected)
            return
        seqs = expected.pop("seqs")
        topic = oracle.places[name].topic
        at_most_once = topic.readers[reader].delivery == "at-most-once"
        told = self.agree(answer, expected)
        assert [record["$seq"] for record in told["records"]] == seqs, f"{name} {reader}: {told}, not {seqs}"
        for record in told["records"]:
            known = topic.live[record["$seq"]]
            topic.learn_ts(self.now, record["$seq"], record["$ts"])
            shown = shown_payload(record), record.get("$tag"), record.get("$node")
            assert shown == (known.data, known.tag, known.node), f"{name} {reader}: {record}"
            assert isinstance(known.meta, Told) or record.get("meta") == known.meta
        assert ("token" in told) is ("deadline" in told) is (oracle.given is not None and not at_most_once), told
        if oracle.given is None:
            return
        token, deadline = told.get("token"), told.get("deadline", 0)
        if token is not None:
            length = 30_000 if lease_ms is None else max(100, lease_ms)
            assert self.before + length <= deadline <= self.now + length
            assert all(token != other for _, _, other in self.tokens), f"{token} was given out before"
            self.tokens.append((name, reader, token))
        oracle.hand_out(self.now, name, reader, token, deadline)

    @step(**COMMIT)
    def commit_page(self, *, name: str, reader: str, which: int, upto: int | None, gives_back: bool) -> None:
        """Mostly of a page that is out; of one that is not out, or another reader's, now and then."""
        name, reader = self.reader_of(name, reader)
        found = self.oracle.find_reader(self.host.now_ms(), name, reader)
        out = [] if isinstance(found, tuple) else list(found.out)
        others = [token for _, _, token in self.tokens] or ["page_1"]
        token = out[which % len(out)] if out and which else others[-1 - which % len(others)]
        page = None if isinstance(found, tuple) else found.out.get(token)
        seq = None if upto is None else (0 if page is None else page.after) + upto
        body = {"token": token, "seq": seq, "release": gives_back}
        answer = self.ask("POST", f"/v0/topics/{name}/readers/{reader}/commit", body)
        self.agree(answer, self.oracle.commit_page(self.now, name, reader, token, seq, gives_back=gives_back))

    @step(name=some, reader=readers, back=st.integers(-1, 7))
    def seek(self, name: str, reader: str, back: int) -> None:
        name, reader = self.reader_of(name, reader)
        head = self.oracle.places[name].topic.head if name in self.oracle.places else 0
        seq = max(0, head - back)
        answer = self.ask("POST", f"/v0/topics/{name}/readers/{reader}/seek", {"seq": seq})
        self.agree(answer, self.oracle.seek(self.now, name, reader, seq))

    @step(name=st.sampled_from(LOGS), reader=readers, way=st.sampled_from(HOLDS), life=settings)
    def hold_what_a_cap_has_taken(self, name: str, reader: str, way: str, life: dict[str, Any]) -> None:
        """A reader that holds begins below records that a cap took, or is moved there, and the server is killed.

        way: it is made so, its settings become so, or it is sought back.
        """
        config = self.complete({"cap_records": 3}, name, "disk")
        if name in self.oracle.places or self.restarts == self.host.restarts_max or not self.is_room_for(name, config):
            return
        self.put(name, config)
        self.write_some(name, 5)
        put = partial(self.put_reader, name=name, reader=reader, delivery="at-least-once", trims=False)
        if way == "made":
            put(holds=True, begin=0)
        elif way == "changed":
            put(holds=False, begin=0)
            put(holds=True, begin=0)
        else:
            put(holds=True, begin="now")
            self.write_some(name, 2)
            self.seek(name=name, reader=reader, back=7)
        self.end(pick=1, life=life)

    def write_some(self, name: str, records: int) -> None:
        for _ in range(records):
            self.write(name=name, batch=[(None, 0, None, None, None)], key=None, config={}, kind="disk", meant=None)

    @step(name=some, reader=readers, batch=batches, lease_ms=st.sampled_from([120, 600]))
    def wait_for_a_page(self, name: str, reader: str, batch: Any, lease_ms: int) -> None:
        """A read that finds nothing waits for a write; nothing else changes meanwhile."""
        name, reader = self.reader_of(name, reader)
        place = self.oracle.places.get(name)
        if place is None or reader not in place.topic.readers or self.oracle.is_fed_by_a_cycle(name):
            return
        if place.topic.readers[reader].out or place.topic.expires:
            return
        if place.topic.readers[reader].trims and self.feeds(name):
            return  # they are deleted once they are forwarded, at the pace of the router (R-READER-9)
        (waiting,) = self.host.others(1)
        self.calm()
        body = {"limit": 1000, "wait_ms": 20_000, "lease_ms": lease_ms}
        waiting.start("POST", f"/v0/topics/{name}/readers/{reader}/read", body)
        if waiting.waiting:
            self.asked()
            told = self.oracle.read_page(self.now, name, reader, 1000, 1 << 20, peek=False)
            assert self.oracle.given is None, f"{name} {reader}: {told}, and it waits"
            self.write(name=name, batch=batch, key=None, config={}, kind="disk", meant=None)
            told = self.oracle.read_page(self.now, name, reader, 1000, 1 << 20, peek=False)
            if self.lost_track or self.oracle.given is None:
                waiting.reset()
                return
        answer = waiting.answer()
        self.asked()
        self.see_page(answer, name, reader, limit=1000, most_bytes=None, lease_ms=lease_ms, peek=False)

    # --- where to begin ----------------------------------------------------------------------------------------------
    @step(name=names, begin=beginnings, follows=st.booleans())
    def watch(self, name: str, begin: Any, follows: bool) -> None:
        """R-FROM-7: the beginning of a session is taken once, and its stream brings what comes from there on."""
        begin = self.beginning(name, begin)
        start = {"from_seq": begin} if isinstance(begin, int) else {"from": begin}
        answer = self.ask("POST", "/v0/watch", {"topics": {name: start}, "include_tags": True})
        self.oracle.settle(self.now)
        if name not in self.oracle.places:
            self.agree(answer, (404, "topic_not_found"))
            return
        topic = self.oracle.places[name].topic
        from_seq = begin if isinstance(begin, int) else topic.begin(begin)
        told = self.agree(answer, {})
        expected = {"from_seq": from_seq, "head_seq": topic.head, "earliest_seq": topic.earliest}
        assert told["topics"] == {name: expected}, f"{told['topics']}, not {expected}"
        self.follow_stream(told["stream_url"], {name: from_seq}, follows=follows)

    @step(prefix=st.sampled_from(["", "", "a", "q", "none"]), begin=beginnings_of_all, follows=st.booleans())
    def watch_prefix(self, prefix: str, begin: Any, follows: bool) -> None:
        """R-PREFIX-3: a session with a prefix has all topics whose names begin so, each from the same beginning."""
        start = {"from_seq": begin} if isinstance(begin, int) else {"from": begin}
        answer = self.ask("POST", "/v0/watch", {"prefixes": {prefix: start}, "include_tags": True})
        self.oracle.settle(self.now)
        expected, cursors = {}, {}
        for name, place in self.oracle.places.items():
            if name.startswith(prefix):
                topic = place.topic
                cursors[name] = begin if isinstance(begin, int) else topic.begin(begin)
                expected[name] = {
                    "from_seq": cursors[name],
                    "head_seq": topic.head,
                    "earliest_seq": topic.earliest,
                }
        told = self.agree(answer, {})
        if not any(self.oracle.is_fed_by_a_cycle(name) for name in expected):
            assert told["topics"] == expected, f"{told['topics']}, not {expected}"
            self.follow_stream(told["stream_url"], cursors, follows=follows)

    def follow_stream(self, path: str, cursors: dict[str, int], *, follows: bool) -> None:
        """Compare what a stream brings of these topics, if they change by no clock and by no other topic."""
        topics = {name: self.oracle.places[name].topic for name in sorted(cursors)}
        moves = any(topic.expires or self.oracle.is_fed_by_a_cycle(name) for name, topic in topics.items())
        if moves or not follows or not topics:
            return
        self.calm()
        stream = self.host.stream(path)
        frames = stream.rest()
        stream.leave()
        self.asked()
        for name in topics:
            self.see_frames(name, [frame for frame in frames if frame.data["topic"] == name], cursors[name])
        assert {frame.data["topic"] for frame in frames} == topics.keys(), frames

    def see_frames(self, name: str, frames: list[Any], cursor: int) -> None:
        topic = self.oracle.places[name].topic
        assert [frame.event for frame in frames].count("caught-up") == 1, frames
        assert frames[-1].event == "caught-up", frames
        expected: list[Any] = []
        while True:
            seqs, next_from_seq, tombstone = topic.read(cursor, 256, None, 262_144)
            if tombstone is not None:
                expected.append((tombstone.gap_from, tombstone.gap_to))
            expected += seqs
            if next_from_seq == topic.head:
                break
            cursor = next_from_seq
        shown: list[Any] = []
        for frame in frames[:-1]:
            if frame.event == "tombstone":
                shown.append((frame.data["gap_from"], frame.data["gap_to"]))
            for record in frame.data.get("records", ()):
                shown.append(record["$seq"])
                known = topic.live[record["$seq"]]
                assert (shown_payload(record), record.get("$tag")) == (known.data, known.tag), f"{name}: {record}"
        assert shown == expected, f"{name} by a stream: {shown}, not {expected}"

    # --- routers -----------------------------------------------------------------------------------------------------
    @step(
        name=st.sampled_from(ROUTERS),
        source=names,
        dest=names,
        tag=st.sampled_from([None, None, "x", "x:*", "*"]),
        keep=st.tuples(st.booleans(), st.booleans()),
        exactly=st.booleans(),
        cycle=st.booleans(),
    )
    def route(
        self, *, name: str, source: str, dest: str, tag: str | None, keep: tuple[bool, bool], exactly: bool, cycle: bool
    ) -> None:
        oracle = self.oracle
        if any((each.source, each.dest) == (source, dest) for each in oracle.routers.values() if each.name != name):
            return  # which of two comes first is theirs
        if not oracle.is_certain(edges=[(source, dest)]):
            return
        exactly = exactly and not any(place.topic.cap_bytes for place in oracle.places.values())
        self.marked = self.marked or exactly
        if source != dest:
            self.need(source)
            self.need(dest)
        body: dict[str, Any] = {"source": source, "dest": dest, "allow_cycle": cycle, "filter": tag}
        body |= {"preserve_tag": keep[0], "preserve_node": keep[1]}
        body["guarantee"] = "exactly_once" if exactly else "at_least_once"
        answer = self.ask("PUT", f"/v0/routers/{name}", body)
        kept = {"tag": tag, "keep_tag": keep[0], "keep_node": keep[1], "exactly_once": exactly}
        status, code = oracle.route(self.now, name, source, dest, allow_cycle=cycle, config={}, **kept)
        assert answer.status == status, f"{answer.status} {answer.text[:300]}, not {status} {code}"
        assert code is None or answer.error["code"] == code

    @step(name=st.sampled_from(ROUTERS))
    def end_route(self, name: str) -> None:
        answer = self.ask("DELETE", f"/v0/routers/{name}")
        self.agree(answer, {"deleted": self.oracle.unroute(self.now, name)})

    # --- many at a time ----------------------------------------------------------------------------------------------
    @step(works=works)
    def work(self, works: list[tuple[str, dict[str, Any]]]) -> None:
        """Whatever rules an example has, most have this one: without records nothing else means much."""
        for verb, values in works:
            getattr(self, verb)(**values)
            self.follow(lambda: compare(self))

    # --- time and the ends of lives ----------------------------------------------------------------------------------
    @step(milliseconds=st.sampled_from([1, 60, 200, 800]))
    def pass_time(self, milliseconds: int) -> None:
        self.host.pass_ms(milliseconds)

    @step(**END)
    def end(self, pick: int, life: dict[str, Any]) -> None:
        """A stop, a kill or a power cut; the next life may have other settings."""
        if self.restarts == self.host.restarts_max:
            return
        self.calm()
        self.host.end(self.ending(pick))
        self.next_life(life)

    def ending(self, pick: int) -> str:
        durable = all(place.config.get("durability") == "fsync" for place in self.oracle.places.values())
        endings = [how for how in self.host.endings if durable or how != "power_cut"]
        return endings[pick % len(endings)]

    def next_life(self, life: dict[str, Any]) -> None:
        self.restarts += 1
        self.host.begin(**life)
        self.oracle.restart(self.host.now_ms())

    @step(where=st.lists(st.tuples(some, batches, keys), min_size=1, max_size=4), life=settings, cut=st.booleans())
    def end_in_the_middle_of_writes(self, where: Any, life: dict[str, Any], cut: bool) -> None:
        """No client is answered: each write is there whole or not at all, and its key says which."""
        asked = [each for each in self.independent(where) if self.keeps_all(each[0])]
        if self.restarts == self.host.restarts_max:
            return
        connections = self.host.others(len(asked))
        self.calm()
        for connection, (name, records, key) in zip(connections, asked, strict=True):
            connection.start("POST", f"/v0/topics/{name}", body_of(records, key))
        since = self.before
        self.host.end(self.ending(2 if cut else 1))
        until = self.host.now_ms()
        self.host.begin(**life)
        self.restarts += 1
        found = self.find(asked)
        for first, at in sorted((first, at) for at, first in found.items()):
            name, records, key = asked[at]
            told = self.oracle.write(since, until, name, records, config={}, key=key)
            assert isinstance(told, dict), told
            assert (told["first_seq"], told["deduped"]) == (first, False), f"{told}, not at {first}"
        self.oracle.restart(self.host.now_ms())

    def find(self, asked: list[Any]) -> dict[int, int]:
        """The first seqs of those that are there."""
        found: dict[int, int] = {}
        for name in {name for name, _, _ in asked}:
            head, seen = self.oracle.places[name].topic.head, {}
            connection: Connection = self.host.connection
            page = connection.request("POST", f"/v0/topics/{name}/diff", {"from_seq": head, "limit": 1000}).json
            for record in page["records"]:
                seen[_text(shown_payload(record))] = record["$seq"]
            for at, (other, records, _) in enumerate(asked):
                seqs = [seen.get(_text(record.data)) for record in records]
                if other == name and any(seqs):
                    assert seqs == list(range(seqs[0] or 0, (seqs[0] or 0) + len(seqs))), f"a part of a write: {seqs}"
                    found[at] = seqs[0] or 0
        return found

    # --- after every rule --------------------------------------------------------------------------------------------
    def check_invariants(self, settings: Any, name_output: Any = None, runtimes: Any = None) -> None:
        if hasattr(self, "before"):
            self.follow(lambda: compare(self))


def body_of(records: list[Record], key: str | None) -> dict[str, Any]:
    made = [
        _payload(each.data)
        | {"tag": each.tag, "node": each.node}
        | ({} if each.meta is None else {"meta": each.meta})
        | ({"delay_ms": each.delay_ms} if each.delay_ms else {})
        | ({"ttl_ms": each.ttl_ms} if each.ttl_ms else {})
        for each in records
    ]
    return {"records": made} | ({} if key is None else {"idempotency_key": key})


def _payload(data: Any) -> dict[str, Any]:
    return {"data_base64": base64.b64encode(data).decode()} if isinstance(data, bytes) else {"data": data}


def _text(data: Any) -> str:
    if isinstance(data, bytes):
        return data.partition(b"\0")[0].decode()
    return str(data["n"] if isinstance(data, dict) else data)
