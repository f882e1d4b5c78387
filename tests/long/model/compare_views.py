"""All that a client can see of a server, against the oracle."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tests.long.model.model_routers import Told
from tests.long.model.model_topic import Topic, compact, payload_size

if TYPE_CHECKING:
    from tests.long.model.rule_machine import Machine

_ROUNDS = 60
_ROUND_MS = 20
_READS: tuple[tuple[int, int, dict[str, str]], ...] = (
    (1000, 1 << 20, {}),
    (2, 90, {}),
    (3, 1 << 20, {"node": "n"}),
    (1000, 70, {}),
    (1000, 1 << 20, {"match": "x*"}),
    (2, 1 << 20, {"match": "x"}),
    (2, 90, {"only_node": "n"}),
)
"""Limit, bytes and filters of readers."""


def compare(machine: Machine) -> None:
    """Topics and routers, in an order in which reading one catches up the next."""
    oracle = machine.oracle
    for name in sorted(oracle.places):
        _forwarded(machine, name)  # a reader of its source trims what was forwarded
    for name in sorted(oracle.places):
        _records(machine, name)
        _cursors(machine, name)
    for name in sorted(oracle.places):
        _readers(machine, name)
        _state(machine, name)
    for name in sorted(oracle.routers):
        answer = machine.ask("GET", f"/v0/routers/{name}")
        oracle.settle(machine.now)
        machine.agree(answer, {"forwarded_total": oracle.routers[name].forwarded})


def _diff(machine: Machine, name: str, from_seq: int, **fields: Any) -> Any:
    answer = machine.ask("POST", f"/v0/topics/{name}/diff", {"from_seq": from_seq, **fields})
    machine.oracle.settle(machine.now)
    return machine.agree(answer, {})


def _forwarded(machine: Machine, name: str) -> None:
    """A reader of a destination finds earlier records (R-RTR-4); those in a circle of routers come soon (R-RTR-5)."""
    oracle = machine.oracle
    topic = oracle.places[name].topic
    for _ in range(_ROUNDS if oracle.is_fed_by_a_cycle(name) else 1):
        head = _diff(machine, name, 1 << 40)["head_seq"]
        if head == topic.head:
            break
        machine.host.pass_ms(_ROUND_MS)
    assert head == topic.head, f"{name} ends at {head}, not {topic.head}"


def _records(machine: Machine, name: str) -> None:
    """Every record, with all it says."""
    topic = machine.oracle.places[name].topic
    cursor, found = topic.lost, {}
    while True:
        page = _diff(machine, name, cursor, limit=1000, include_tags=True)
        assert cursor < page["next_from_seq"] or page["caught_up"], page
        found |= {record["$seq"]: record for record in page["records"]}
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert list(found) == list(topic.live), f"{name}: {list(found)}, not {list(topic.live)}"
    for seq, record in topic.live.items():
        told = found[seq]
        topic.learn_ts(machine.now, seq, told["$ts"])
        if isinstance(record.meta, Told):
            if record.meta.actual is None:
                record.meta.learn(told["meta"])
            record.size = payload_size(record.data) + compact(record.meta.actual)
        meta = record.meta.actual if isinstance(record.meta, Told) else record.meta
        shown = shown_payload(told), told.get("$tag"), told.get("$node"), told.get("meta")
        assert shown == (record.data, record.tag, record.node, meta), f"{name} {seq}"
        assert told.get("$delay_ms", 0) == record.delay_ms, f"{name} {seq}"
        assert told.get("$ttl_ms", 0) == record.ttl_ms, f"{name} {seq}"
    stamps = [record["$ts"] for record in found.values()]
    assert stamps == sorted(stamps), "R-SEQ-5"


def _cursors(machine: Machine, name: str) -> None:
    """Compare what returning readers get, and those that skip their own records."""
    topic = machine.oracle.places[name].topic
    interesting = {0, topic.lost - 1, topic.lost, topic.earliest - 1, topic.head // 2, topic.head, topic.head + 3}
    interesting |= {edge for gap in topic.gaps for edge in (gap[0] - 1, gap[0])}
    interesting |= {edge for seq in topic.holes for edge in (seq - 1, seq)}
    seen = (topic.head, topic.lost, topic.deleted, topic.count, topic.earliest, tuple(topic.gaps), len(topic.holes))
    if machine.compared.get(name) == seen:
        return
    machine.compared[name] = seen
    for cursor in sorted(interesting - {-1}):
        limit, most, which = _READS[(cursor + topic.head) % len(_READS)]
        page = _diff(machine, name, cursor, limit=limit, max_batch_bytes=most, **which)
        node, match, only_node = which.get("node"), which.get("match"), which.get("only_node")
        seqs, next_from_seq, tombstone = topic.read(cursor, limit, node, most, match=match, only_node=only_node)
        told = [record["$seq"] for record in page["records"]], page["next_from_seq"], page["tombstone"]
        expected = seqs, next_from_seq, None if tombstone is None else tombstone._asdict()
        assert told == expected, f"{name} from {cursor}, limit {limit} and {most}, {which}: {told}, not {expected}"
        assert (page["head_seq"], page["earliest_seq"]) == (topic.head, topic.earliest)
        assert (page["caught_up"], page["lag"]) == (next_from_seq == topic.head, topic.head - next_from_seq)
    _beginnings(machine, name)
    _times(machine, name)


def _beginnings(machine: Machine, name: str) -> None:
    """Compare what readers get that begin by what is there (R-FROM-4)."""
    topic = machine.oracle.places[name].topic
    count = topic.head % 7
    begin: Any = ("first", "now", {"last": count}, {"last": topic.count + 1})[topic.head % 4]
    node = "n" if topic.head % 3 == 0 else None
    body = {"from": begin, "limit": 3, "node": node}
    page = machine.agree(machine.ask("POST", f"/v0/topics/{name}/diff", body), {})
    machine.oracle.settle(machine.now)
    seqs, next_from_seq, tombstone = topic.read(topic.begin(begin), 3, node)
    told = [record["$seq"] for record in page["records"]], page["next_from_seq"], page["tombstone"]
    # A gap inside comes after the beginning, and is reported (R-TRIM-3).
    expected = seqs, next_from_seq, None if tombstone is None else tombstone._asdict()
    assert told == expected, f"{name} from {begin}: {told}, not {expected}"


def _times(machine: Machine, name: str) -> None:
    """Compare what readers get that know a time and no seq (R-FROM); every `$ts` is known by now."""
    topic = machine.oracle.places[name].topic
    stamps = [record.ts for record in topic.live.values()]
    if not stamps:
        return
    for time in sorted({stamps[0], stamps[len(stamps) // 2] + 1, stamps[-1], stamps[-1] + 1}):
        body = {"from": {"time": time}, "limit": 3}
        page = machine.agree(machine.ask("POST", f"/v0/topics/{name}/diff", body), {})
        machine.oracle.settle(machine.now)
        first = next((seq for seq, record in topic.live.items() if record.ts >= time), 0)
        seqs, next_from_seq, tombstone = topic.read(first - 1 if first else topic.head, 3, None)
        assert tombstone is None, "R-FROM-2"
        told = [record["$seq"] for record in page["records"]], page["next_from_seq"], page["tombstone"]
        assert told == (seqs, next_from_seq, None), f"{name} from {time}: {told}, not {seqs}, {next_from_seq}"


def _readers(machine: Machine, name: str) -> None:
    """Compare all named readers, listed and by themselves, and what comes next for each."""
    oracle = machine.oracle
    answer = machine.ask("GET", f"/v0/topics/{name}/readers")
    oracle.settle(machine.now)
    topic = oracle.places[name].topic
    rows = machine.agree(answer, {"topic": name})["readers"]
    assert [row["reader"] for row in rows] == sorted(topic.readers), f"{name}: {rows}"
    for row in rows:
        expected = oracle.reader_state(name, row["reader"])
        shown = {key: row[key] for key in expected}
        assert shown == expected, f"{name} {row['reader']}: {shown}, not {expected}"
        oldest = next((each for seq, each in topic.live.items() if seq > expected["committed"]), None)
        least, most = (0, 0) if oldest is None else (machine.before - oldest.ts, machine.now - oldest.ts)
        assert max(0, least) <= row["lag_ms"] <= max(0, most), f"{name} {row}: not {least} .. {most}"
    seen = repr(topic.readers), topic.head, topic.earliest, topic.count, topic.lost, tuple(topic.gaps)
    if machine.compared_readers.get(name) == seen:
        return
    machine.compared_readers[name] = seen
    for reader in topic.readers:
        told = machine.agree(machine.ask("GET", f"/v0/topics/{name}/readers/{reader}"), {"topic": name})
        oracle.settle(machine.now)
        expected = oracle.reader_state(name, reader)
        assert {key: told[key] for key in expected} == expected, f"{name} {reader}: {told}, not {expected}"
        machine.read_page(name=name, reader=reader, limit=2, most_bytes=None, lease_ms=None, peek=True)


def _state(machine: Machine, name: str) -> None:
    answer = machine.ask("GET", f"/v0/topics/{name}?touch=false&incarnation=true")
    machine.oracle.settle(machine.now)
    machine.oracle.learn_incarnation(name, answer.json["incarnation"])
    place = machine.oracle.places[name]
    topic: Topic = place.topic
    expected: dict[str, Any] = {
        "head_seq": topic.head,
        "earliest_seq": topic.earliest,
        "next_seq": topic.head + 1,
        "count": topic.count,
        "bytes": topic.bytes,
        "type": "log",
    }
    if place.jobs is not None:
        count, ready, in_flight = place.jobs.counters(machine.now)
        expected |= {"type": "queue", "count": count}
        expected["queue"] = {"ready": ready, "in_flight": in_flight, "dead_lettered": place.dead_lettered}
        expected["queue"] |= place.jobs.shown_delayed()
    told = machine.agree(answer, expected)
    assert {key: told["config"][key] for key in place.config} == place.config, name
    for known in (place.incarnation, machine.other_incarnation(place.incarnation)):  # R-INC-5
        page = _diff(machine, name, topic.head, limit=1, incarnation=known)
        shown = (page["incarnation"], page["tombstone"] is not None)
        assert shown == (place.incarnation, known != place.incarnation), f"{name} read as of {known}: {page}"


def shown_payload(shown: dict[str, Any]) -> Any:
    """JSON, or `bytes`: a record has one of the two, and bytes in one spelling (R-BYTES-2)."""
    assert ("data" in shown) is not ("data_base64" in shown), shown
    if "data" in shown:
        return shown["data"]
    data = base64.b64decode(shown["data_base64"], validate=True)
    assert base64.b64encode(data).decode() == shown["data_base64"], shown
    return data
