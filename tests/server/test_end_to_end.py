"""The whole server, engine and store included, on the simulated ring: requests, answers, and what a restart keeps.

Vectors are those of the wire contract, section 15.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.http.byte_stream import Response, Wire
from tests.sim import SimRing
from topics.config import tiny_config
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.store.disk.data_directory import lock_directory

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MS = 1_000_000
DATA_DIR = "/data"


class Life:
    """One process's server on a simulated machine; `next` starts another over the same disk."""

    def __init__(self, ring: SimRing | None = None) -> None:
        self.ring = ring or SimRing(7)
        self.loop = Loop(self.ring, self.ring.clock)
        self.codes: list[int] = []
        config = tiny_config(DATA_DIR)
        self.server = Server(
            config,
            self.loop,
            partial(StoredEngine.open, directory=lock_directory(self.ring, config)),
            on_end=self.codes.append,
        )
        self.server.start()
        self.run_until_ready()
        self.http = Http(self)

    def run_until_ready(self) -> None:
        self.loop.run_until(lambda: self.server.not_ready() is None or bool(self.codes))
        assert not self.codes

    def run_ms(self, ms: int) -> None:
        woken: list[bool] = []
        self.loop.call_later(ms * MS, lambda: woken.append(True))
        self.loop.run_until(lambda: bool(woken))

    def stop(self) -> None:
        self.server.stop()
        self.loop.run_until(lambda: bool(self.codes))
        assert self.codes == [0]

    def next(self, *, power_cut: bool = False) -> Life:
        """After a crash, or after `stop`."""
        return Life(self.ring.next_life(power_cut=power_cut))


class Http:
    """A client of one life."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.tcp = life.ring.network.client(life.server.address[1])
        self._pending = Wire()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}"]
        if body is not None:
            lines.append("Content-Type: application/json")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.tcp.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    def answer(self) -> Response:
        """The next whole answer, waited for."""
        wire = Wire()

        def came() -> bool:
            wire.sent += self.tcp.receive()
            head, end, body = wire.sent.partition(b"\r\n\r\n")
            if not end:
                return False
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return len(body) >= size

        while not came():
            self.life.loop.run_pass(MS)  # our receiving is no event to the server: do not let it sleep on
        (response,) = wire.take()
        return response

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        self.send(method, path, body, **headers)
        response = self.answer()
        assert response.status == status, response.body
        return response.json

    def write(self, topic: str, *data: Any, status: int = 200, **fields: Any) -> Any:
        records = [item if isinstance(item, dict) and "data" in item else {"data": item} for item in data]
        return self.ask("POST", f"/v0/topics/{topic}", {"records": records, **fields}, status)

    def diff(self, topic: str, **fields: Any) -> Any:
        return self.ask("POST", f"/v0/topics/{topic}/diff", fields)

    def seqs(self, topic: str, **fields: Any) -> list[int]:
        return [record["$seq"] for record in self.diff(topic, **fields)["records"]]

    def state(self, topic: str) -> Any:
        return self.ask("GET", f"/v0/topics/{topic}")


@pytest.fixture
def life() -> Life:
    return Life()


@pytest.fixture
def http(life: Life) -> Http:
    return life.http


def counts(state: Any) -> tuple[int, int, int]:
    return state["head_seq"], state["earliest_seq"], state["count"]


def test_a_cap_evicts_the_oldest_and_the_reader_is_told(http: Http) -> None:
    """TV-1."""
    http.ask("PUT", "/v0/topics/t", {"cap_records": 3}, 201)
    for number in range(1, 7):
        http.write("t", number)
    assert counts(http.state("t")) == (6, 4, 3)
    lost = {"gap_from": 1, "gap_to": 3, "reason": "cap", "missed_estimate": 3, "earliest_seq": 4, "head_seq": 6}
    answer = http.diff("t")
    assert answer["tombstone"] == lost
    assert [record["$seq"] for record in answer["records"]] == [4, 5, 6]
    assert (answer["next_from_seq"], answer["caught_up"]) == (6, True)
    assert http.diff("t", from_seq=3)["tombstone"] is None
    assert http.diff("t", from_seq=2)["tombstone"]["gap_from"] == 3


def test_a_delete_is_silent(http: Http) -> None:
    """TV-2."""
    http.write("t", 1, 2, 3, 4, 5, status=201)
    answer = http.ask("POST", "/v0/topics/t/delete", {"before_seq": 3})
    assert (answer["deleted"], answer["earliest_seq"], answer["count"]) == (2, 3, 3)
    answer = http.diff("t")
    assert answer["tombstone"] is None
    assert [record["$seq"] for record in answer["records"]] == [3, 4, 5]


def test_what_expired_is_told_as_ttl(life: Life, http: Http) -> None:
    """TV-4."""
    http.ask("PUT", "/v0/topics/t", {"ttl_ms": 150}, 201)
    http.write("t", 1, 2, 3)
    life.run_ms(200)
    http.write("t", 4)
    assert counts(http.state("t")) == (4, 4, 1)
    tombstone = http.diff("t")["tombstone"]
    assert (tombstone["gap_to"], tombstone["reason"]) == (3, "ttl")


def test_deletes_by_tag_move_the_front_over_what_is_gone(http: Http) -> None:
    """TV-5."""
    http.write("t", *({"data": 1, "tag": tag} for tag in "abc"), status=201)
    for tag, earliest in (("a", 2), ("c", 2), ("b", 4)):
        answer = http.ask("POST", "/v0/topics/t/delete", {"match": tag})
        assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"]) == (1, earliest, 3)
    answer = http.diff("t")
    assert (answer["records"], answer["next_from_seq"], answer["caught_up"], answer["tombstone"]) == ([], 3, True, None)


def test_a_reader_does_not_get_its_own_records(http: Http) -> None:
    """TV-6."""
    http.write("t", *({"data": 1, "node": node} for node in ("self", "other", "self")), status=201)
    assert http.seqs("t", node="self") == [2]
    answer = http.diff("t", node=["self", "other"])
    assert (answer["records"], answer["next_from_seq"], answer["lag"]) == ([], 3, 0)


def test_reads_come_in_pages(http: Http) -> None:
    """TV-7."""
    http.write("t", *range(300), status=201)
    answer = http.diff("t")
    assert (len(answer["records"]), answer["next_from_seq"], answer["lag"]) == (256, 256, 44)
    http.write("t", *range(900))
    assert len(http.seqs("t", limit=5000)) == 1000


def test_a_recreated_topic_is_told_to_an_old_cursor(http: Http) -> None:
    """TV-8."""
    http.write("t", 1, 2, 3, 4, 5, status=201)
    assert http.ask("DELETE", "/v0/topics/t")["deleted"] is True
    http.write("t", 1, 2, status=201)
    answer = http.diff("t", from_seq=5)
    assert answer["tombstone"]["reason"] == "recreated"
    assert [record["$seq"] for record in answer["records"]] == [1, 2]
    assert answer["next_from_seq"] == 2


def test_bytes_are_those_of_compact_json(http: Http) -> None:
    """TV-9."""
    for data, meta, size in (("x", None, 3), (1, None, 1), ({"a": 1}, {"k": "v"}, 16), ("é", None, 4), (None, None, 4)):
        http.write("t", {"data": data, "meta": meta}, status=201)
        assert http.state("t")["bytes"] == size
        http.ask("DELETE", "/v0/topics/t")


def test_a_repeated_key_answers_as_before(http: Http) -> None:
    """TV-21."""
    first = http.write("t", 1, 2, status=201, idempotency_key="k")
    assert first["seqs"] == [1, 2]
    http.write("t", 3)
    again = http.write("t", 4, idempotency_key="k")
    assert (again["seqs"], again["head_seq"], again["count"], again["deduped"]) == ([1, 2], 2, 2, True)
    assert set(again["performance"]) == {"server_total_ms"}
    assert http.state("t")["head_seq"] == 3


def test_a_put_replaces_all_of_the_config(http: Http) -> None:
    """TV-22."""
    http.ask("PUT", "/v0/topics/t", {"cap_records": 100}, 201)
    config = http.ask("PUT", "/v0/topics/t", {"ttl_ms": 5})["config"]
    assert (config["cap_records"], config["ttl_ms"]) == (0, 5)
    config = http.ask("PUT", "/v0/topics/t", {"durable": True, "durability": "disk"})["config"]
    assert (config["durability"], config["durable"]) == ("disk", False)


def test_records_come_back_as_they_were_sent(http: Http) -> None:
    sent = {"data": {"b": [1.50, "é\u2028", None], "a": 2**64 - 1}, "tag": "t", "node": "n", "meta": {"k": "v"}}
    http.write("t", sent, status=201)
    (record,) = http.diff("t", include_tags=True)["records"]
    assert record.pop("$ts") > 0
    expected = {"$seq": 1, "$node": "n", "$tag": "t", "data": sent["data"], "meta": sent["meta"]}
    assert record == expected


def test_a_long_poll_answers_with_the_write_that_ends_it(life: Life, http: Http) -> None:
    http.write("t", 1, status=201)
    waiting = Http(life)
    waiting.send("POST", "/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 30_000})
    life.run_ms(100)
    assert waiting.tcp.receive() == b""
    http.write("t", 2)
    assert [record["$seq"] for record in waiting.answer().json["records"]] == [2]


def test_a_long_poll_ends_with_404_when_its_topic_goes(life: Life, http: Http) -> None:
    http.write("t", 1, status=201)
    waiting = Http(life)
    waiting.send("POST", "/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 30_000})
    life.run_ms(100)
    http.ask("DELETE", "/v0/topics/t")
    assert waiting.answer().code == "topic_not_found"


def test_a_stop_answers_long_polls_and_keeps_everything(life: Life, http: Http) -> None:
    http.ask("PUT", "/v0/topics/t", {"cap_records": 2}, 201)
    http.write("t", 1, 2, 3)
    waiting = Http(life)
    waiting.send("POST", "/v0/topics/t/diff", {"from_seq": 3, "wait_ms": 30_000})
    life.run_ms(100)
    life.server.stop()
    answer = waiting.answer().json
    assert (answer["records"], answer["caught_up"], answer["next_from_seq"]) == ([], True, 3)
    life.loop.run_until(lambda: bool(life.codes))
    after = life.next().http
    assert counts(after.state("t")) == (3, 2, 2)
    assert after.state("t")["config"]["cap_records"] == 2
    assert after.diff("t")["tombstone"]["reason"] == "cap"


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_killed_server_has_every_acknowledged_record(life: Life, http: Http, durability: str) -> None:
    http.ask("PUT", "/v0/topics/t", {"durability": durability}, 201)
    for number in range(20):
        http.write("t", number)
    http.ask("POST", "/v0/topics/t/delete", {"before_seq": 3})
    after = life.next().http
    assert counts(after.state("t")) == (20, 3, 18)
    assert [record["data"] for record in after.diff("t")["records"]] == list(range(2, 20))


def test_a_power_cut_takes_nothing_acknowledged_as_fsync(life: Life, http: Http) -> None:
    http.ask("PUT", "/v0/topics/t", {"durability": "fsync"}, 201)
    for number in range(20):
        performance = http.write("t", number)["performance"]
        assert performance["fsync_ms"] > 0
    after = life.next(power_cut=True).http
    assert [record["data"] for record in after.diff("t")["records"]] == list(range(20))
    assert after.write("t", 20)["first_seq"] > 20


def test_pipelined_writes_are_answered_in_order_with_consecutive_seqs(life: Life, http: Http) -> None:
    http.ask("PUT", "/v0/topics/t", {"durability": "fsync"}, 201)
    clients = [Http(life) for _ in range(5)]
    for client in clients:
        client.send("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    seqs = sorted(client.answer().json["first_seq"] for client in clients)
    assert seqs == [1, 2, 3, 4, 5]
