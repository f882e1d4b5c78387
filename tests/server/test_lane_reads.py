"""Goal: what the lane reads is what the general path reads, whatever the index has been through.

Method: one simulated server; each question is asked twice, once as a plain request and once with a field in its head
that the lane does not know, and both answers must have the same bytes.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.amount import seeds
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import Connection
from tests.server.lane_streams import plain, plain_read, without_chance
from topics.store.format.file_table import FileKind
from topics.store.in_memory.hot_tail import HOT_RANGE


class Reads:
    """One server that asks itself."""

    def __init__(self, seed: int, durability: str = "disk", ttl_ms: int = 0, **settings: object) -> None:
        self.rng = random.Random(f"reads {seed}")
        self.config = {"durability": durability, "ttl_ms": ttl_ms}
        self.world = SimWorld(2 * seed, **settings)
        self.world.start()
        self.world.put("t", **self.config)
        self.taken = 0
        self.warm_up()

    def warm_up(self) -> None:
        server = self.world.server
        assert server is not None
        assert server.lane is not None
        self.lane = server.lane
        self.lane.least = 1
        self.conn = self.world.connect()
        self.other = self.world.connect()
        self.conn.send(plain("t")).answer("POST")
        self.conn.send(plain_read("t")).answer("POST")

    def ask(self, body: str, times: int = 1) -> bytes:
        """Both ways; returns what was said."""
        before = self.lane.taken
        request = plain_read("t", body.encode())
        answers = _all(self.conn.send(request * times))
        self.taken += self.lane.taken - before
        general = _all(self.other.send(request.replace(b"Host:", b"X: y\r\nHost:") * times))
        if self.config["ttl_ms"] and without_chance(answers) != without_chance(general):
            answers = _all(self.conn.send(request * times))  # a record has expired between the two
        assert without_chance(answers) == without_chance(general), body
        return answers

    def ask_around(self, count: int) -> None:
        """Cursors, limits and budgets of all kinds."""
        head = self.world.state("t")["head_seq"]
        for _ in range(count):
            rng = self.rng
            cursor = rng.choice((0, 1, head - 1, head, head + 1, rng.randint(0, max(head, 1))))
            fields = {"from_seq": max(cursor, 0), "limit": rng.choice((1, 2, 3, 10, 0, 1000, 5000))}
            if rng.random() < 0.3:
                fields["max_batch_bytes"] = rng.choice((1, rng.randint(5, 60), 1 << 40))
            if rng.random() < 0.3:
                fields["wait_ms"] = 1
            body = ",".join(f'"{name}":{value}' for name, value in fields.items())
            if rng.random() < 0.3:
                body += ',"include_tags":true,"include_meta":false'
            self.ask("{" + body + "}", rng.choice((1, 1, 2)))

    def write(self, count: int) -> None:
        rng = self.rng
        for _ in range(count):
            records = [
                {"data": {"n": rng.randrange(1000)}}
                | ({"tag": rng.choice(("a", "b\n"))} if rng.random() < 0.3 else {})
                | ({"node": "n\\"} if rng.random() < 0.2 else {})
                | ({"meta": {"m": 1}} if rng.random() < 0.3 else {})
                for _ in range(rng.choice((1, 1, 2, 7, 40)))
            ]
            self.world.write_records("t", records)

    def change(self) -> None:
        rng = self.rng
        head = self.world.state("t")["head_seq"]
        turn = rng.randrange(5)
        if turn == 0:
            self.world.delete("t", match=rng.choice(("a", "b\n")))
        elif turn == 1:
            self.world.delete("t", before_seq=rng.randint(1, head))
        elif turn == 2:
            self.world.put("t", **self.config, cap_records=rng.choice((0, 20, 60)))
        elif turn == 3:
            self.world.advance_ms(2000)
        else:
            self.world.restart() if rng.random() < 0.5 else self.world.crash_and_start()
            self.warm_up()


def _all(conn: Connection) -> bytes:
    data = b""
    while more := conn.receive():
        data += more
    return data


@pytest.mark.parametrize(("durability", "ttl_ms"), [("disk", 0), ("disk", 2500), ("ephemeral", 0), ("ephemeral", 2500)])
@pytest.mark.parametrize("seed", seeds(2))
def test_whatever_a_topic_has_been_through_it_is_read_the_same_both_ways(
    seed: int, durability: str, ttl_ms: int
) -> None:
    reads = Reads(seed, durability, ttl_ms, wal_shards=1 + seed % 2)
    for _ in range(12):
        reads.write(6)
        reads.ask_around(10)
        reads.change()
        reads.ask_around(6)
    assert reads.taken > 30, "the lane has taken too little for this test to mean anything"


@pytest.mark.parametrize("seed", range(6))
def test_limits_are_clamped_alike_both_ways(seed: int) -> None:
    """5.2: `ReadBounds` and index_reads.c have the formula each."""
    rng = random.Random(f"bounds {seed}")
    records, size = sorted(rng.choices(range(1, 12), k=2)), sorted(rng.choices(range(1, 400), k=2))
    reads = Reads(
        seed,
        **{"default_limit": records[seed % 2], "max_limit": records[1 - seed % 2]},
        **{"default_batch_bytes": size[seed // 2 % 2], "max_batch_bytes": size[1 - seed // 2 % 2]},
    )
    reads.write(10)
    head = reads.world.state("t")["head_seq"]
    for _ in range(60):
        fields = {"from_seq": rng.randint(0, head)}
        if rng.random() < 0.7:
            fields["limit"] = rng.choice((0, *range(1, 14), (1 << 32) - 1))
        if rng.random() < 0.7:
            fields["max_batch_bytes"] = rng.choice((0, rng.randint(1, 500), 1 << 60))
        reads.ask(json.dumps(fields))
    assert reads.taken > 20


def test_a_topic_of_several_chunks_is_read_across_them() -> None:
    reads = Reads(9)
    for first in range(0, 9000, 100):  # larger batches would not be in memory
        reads.world.write_records("t", [{"data": first + at} for at in range(100)])
    head = reads.world.state("t")["head_seq"]
    before = reads.taken
    for cursor in (0, 8190, 8191, 8192, 8193, head - 3):
        reads.ask(f'{{"from_seq":{cursor},"limit":7}}')
    reads.world.delete("t", before_seq=8195)
    for cursor in (8194, 8195, 8200, head):
        reads.ask(f'{{"from_seq":{cursor},"limit":7}}')
    assert reads.taken - before >= 8


def test_chunks_of_class_ephemeral_are_read_as_columns_until_their_last_record_is_gone() -> None:
    reads = Reads(4, "ephemeral")
    server = reads.world.server
    assert server is not None
    assert server.engine is not None
    files, ranges = server.engine._core.files, server.engine._core.memory.ranges
    other = "x" * 900
    for first in range(0, 2400, 100):
        reads.world.write_records("t", [{"data": first + at, "meta": other} for at in range(100)])
        reads.world.write_records("kept", [{"data": other, "tag": "a"}], config={"durability": "ephemeral"})
    reads.world.write("t", "y" * 400_000)  # a chunk of its own
    head = reads.world.state("t")["head_seq"]
    for floor in (0, 300, 900, 2000, head):
        reads.world.delete("t", before_seq=floor + 1)
        before = reads.taken
        for cursor in range(floor, head, 190):
            reads.ask(f'{{"from_seq":{cursor},"limit":7}}')
        assert reads.taken - before == len(range(floor, head, 190))
        assert len(ranges.packed) == HOT_RANGE.size * sum(file.kind is FileKind.MEMORY for file in files)


def test_a_read_that_waits_and_finds_nothing_is_parked_by_the_general_path() -> None:
    reads = Reads(1)
    head = reads.world.state("t")["head_seq"]
    before = reads.lane.taken
    reads.conn.send(plain_read("t", b'{"from_seq":%d,"wait_ms":5000}' % head))
    assert reads.conn.nothing_came
    assert reads.lane.taken == before
    reads.other.send(plain("t", b'{"records":[{"data":"late"}]}')).answer("POST")
    assert reads.conn.answer("POST").json["records"][0]["data"] == "late"


def test_a_damaged_record_is_refused_in_the_words_of_the_general_path() -> None:
    reads = Reads(2)
    reads.world.write("t", "some text to be found")
    answer = reads.ask('{"from_seq":0}')
    assert b"some text to be found" in answer
    tail = reads.world.server.engine._core.reader.tail  # type: ignore[union-attr]
    for chunk in next(iter(tail._files.values())):
        at = bytes(chunk.view).find(b"some text to be found")
        if at >= 0:
            chunk.view[at] ^= 1
    before = reads.lane.taken
    assert b" 500 " in reads.ask('{"from_seq":0}')
    assert reads.lane.taken == before


def test_an_answer_that_would_be_compressed_is_compressed() -> None:
    reads = Reads(3)
    reads.world.write("t", *["x" * 100] * 30)
    request = plain_read("t", b'{"limit":30}').replace(b"Host:", b"Accept-Encoding: gzip\r\nHost:")
    assert b"Content-Encoding: gzip" in _all(reads.conn.send(request))
    small = plain_read("t", b'{"limit":1}').replace(b"Host:", b"Accept-Encoding: gzip\r\nHost:")
    before = reads.lane.taken
    assert b"Content-Encoding" not in _all(reads.conn.send(small))
    assert reads.lane.taken == before + 1


def test_what_was_prefetched_of_a_cold_segment_is_not_read_from_it_on_either_path() -> None:
    """3.3: `cold_segments_read` counts the files that a read has read."""
    world = SimWorld(
        only_woken=True,
        cold_dir="/srv/cold",
        hot_retain_segments=0,
        segment_max_events=50,
        pack_run_bytes=64,
        checkpoint_every_ms=100,
        hot_tail_bytes=4096,
        prefetch_bytes=4 << 20,
    )
    world.start()
    for _ in range(4):
        world.write_records("t", [{"data": number} for number in range(50)], durability="fsync")
        world.advance_ms(3000)
    assert world.loop is not None
    world.loop._senders.least_passes = 0
    server = world.server
    assert server is not None
    assert server.lane is not None
    conn, reported = world.connect(), []
    for at in range(8):
        body = b'{"from_seq":%d,"limit":5}' % (5 * at)
        answer = conn.send(plain_read("t", body, field="X-General: path" if at % 2 else "")).answer("POST").json
        assert len(answer["records"]) == 5
        reported.append(answer["performance"].get("cold_segments_read", 0))
    assert reported == [1, 1, 0, 0, 0, 0, 0, 0]
    assert server.lane.single.reads_taken == 3


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_no_read_of_the_lane_has_a_record_that_is_expired(durability: str) -> None:
    """R-TTL-1. The general path removes it when asked, so a later comparison with that shows nothing."""
    reads = Reads(0, durability, ttl_ms=2500)
    request = plain_read("t", b'{"from_seq":0}')
    for _ in range(40):
        reads.world.write_records("t", [{"data": {"n": 1}}])
        reads.world.advance_ms(7)
    for _ in range(400):
        reads.world.advance_ms(7)
        now_ms = reads.world.ring.clock.now_ms()
        answer = reads.conn.send(request).answer("POST").json
        assert [record["$ts"] for record in answer["records"] if now_ms - record["$ts"] > 2500] == []
    assert answer["head_seq"] >= 40
    assert answer["records"] == []
