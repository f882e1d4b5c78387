"""Goal: the lane never means anything of its own. What it takes, the general path would have answered alike.

Method: two simulated servers, one with the lane, get the same bytes in the same pieces, several connections in one
pass, each with topics of its own; answers, topics and records must be the same, and again after a crash of both.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amount import amount, examples, seeds
from tests.contract.requests.test_transport import MALFORMED
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.sse_client import watch
from tests.contract.world.world import Connection
from tests.server.lane_streams import BODIES, KEYS, READS, STRICT, pieces, plain, plain_read, stream, without_chance
from topics.errors import RequestError, UsageError
from topics.http.lane.lane import REASONS, Lane
from topics.loop.ring import Single
from topics.store.format.codec import scan_log
from topics.store.format.log_format import FrameType, WalHeader

CONFIGS = (
    {"durability": "disk"},
    {"durability": "fsync"},
    {"durability": "memory", "cap_records": 3},
    {"cap_records": 4, "discard": "reject"},
    {"ttl_ms": 3_600_000},
    {"durability": "ephemeral"},
)
CONNECTIONS = 3
UNUSED_FIELDS = (
    *("Via: 1.1 proxy", "DNT: 1", "Pragma: no-cache", "Baggage: user=1", "Priority: u=1", "Forwarded: for=10.0.0.1"),
    *("X-Real-IP: 10.0.0.1", "Tracestate: a=b", "Traceparent: 00-a-b-01", "Cache-Control: no-cache"),
    *(
        "X-Forwarded-For: 10.0.0.1, 10.0.0.2",
        "X-Forwarded-Host: a",
        "X-Forwarded-Port: 443",
        "X-Forwarded-Proto: https",
    ),
    *("X-Forwarded-Server: a", "X-Amzn-Trace-Id: Root=1-a", "X-Request-Id: a-1"),
)


class Pair:
    """Two servers that get the same bytes; the first has the lane.

    single: a request that is the only one of its pass is answered as such there (single.py), otherwise as a row.
    """

    def __init__(self, seed: int = 0, *, single: bool = False, **settings: object) -> None:
        self.single = single
        self.shuffle = bool(seed)
        """Completions come in any order, so each piece has to have arrived before the next one is sent: where a broken
        head is cut decides what is said of it."""
        self.keys = bool(settings.get("api_keys"))
        self.headers = {"Authorization": "Bearer busy"} if self.keys else {}
        self.worlds = [
            SimWorld(seed, shuffle=self.shuffle, only_woken=single, http_lane=lane, **settings)
            for lane in ("auto", "off")
        ]
        self.topics = [[f"t{at}-{number}" for number in range(len(CONFIGS))] for at in range(CONNECTIONS)]
        self.start()
        for world in self.worlds:
            for name, config in zip(itertools.chain(*self.topics), CONFIGS * CONNECTIONS, strict=True):
                world.connect().request("PUT", f"/v0/topics/{name}", config, self.headers)
        self.warm_up()

    def start(self) -> None:
        for world in self.worlds:
            world.start()
        server = self.worlds[0].server
        assert server is not None
        assert server.lane is not None
        if self.single:
            for world in self.worlds:
                assert world.loop is not None
                world.loop._senders.least_passes = 0
        else:
            server.lane.least = 1  # so that every request may show a difference

    def warm_up(self) -> None:
        """The lane learns names by what the general path answers."""
        for world in self.worlds:
            conn = world.connect()
            for name in itertools.chain(*self.topics):
                for key in ("writer", "busy") if self.keys else ("",):
                    conn.send(plain(name, key=key)).answer("POST")
                    conn.send(plain_read(name, key=key)).answer("POST")

    def run(self, rng: random.Random) -> None:
        """A few connections at once, each saying something up to three times."""
        streams: list[list[bytes]] = []
        for at in range(1 if self.single else rng.randint(1, CONNECTIONS)):
            parts = [pieces(rng, stream(rng, self.topics[at], keys=self.keys)) for _ in range(rng.choice((1, 1, 2, 3)))]
            streams.append([*self.whole_requests(rng), *itertools.chain(*parts)])
        self.send(streams, half_close=rng.random() < 0.2)

    def whole_requests(self, rng: random.Random) -> list[bytes]:
        """Return requests with usual heads, each for a pass of its own, or cut after its head; none where all requests
        become rows.
        """
        requests: list[bytes] = []
        for _ in range(rng.randrange(4) if self.single else 0):
            name, key = rng.choice(self.topics[0]), rng.choice(("writer", "busy")) if self.keys else ""
            field = rng.choice(("", STRICT))
            request = (
                plain(name, rng.choice(BODIES), key, field)
                if rng.random() < 0.6
                else plain_read(name, rng.choice(READS), key, field)
            )
            head, end, body = request.partition(b"\r\n\r\n")
            requests += [head + end, body] if rng.random() < 0.4 else [request] * rng.choice((1, 1, 4))
        return requests

    def send(self, streams: list[list[bytes]], *, half_close: bool = False) -> list[bytes]:
        """Each stream on a connection of its own, piece by piece by turns. Returns what was answered."""
        heard = []
        for world in self.worlds:
            conns = [world.connect() for _ in streams]
            if self.single:  # the first bytes of a connection take the general path
                conns[0].send(plain("t2-2", key="writer" if self.keys else "")).answer("POST")
            for turn in range(max(map(len, streams))):
                for conn, parts in zip(conns, streams, strict=True):
                    if turn < len(parts):
                        conn.send(parts[turn])
                if turn % 3 or self.shuffle or self.single:
                    world.settle()
            if half_close:
                for conn in conns:
                    conn.finish_sending()
            heard.append([(without_chance(_all(conn)), conn.ended) for conn in conns])
            for conn in conns:
                conn.reset()
        assert heard[0] == heard[1], f"{streams}\n{heard[0]}\n{heard[1]}"
        return [answers for answers, _ in heard[0]]

    def compare_state(self) -> None:
        """Topics and records."""
        conns = [world.connect() for world in self.worlds]
        query = {"include_tags": True, "limit": 1000}
        for name in sorted(itertools.chain(*self.topics)):
            for method, path, body in (("GET", f"{name}?touch=false", None), ("POST", f"{name}/diff", query)):
                answers = [conn.request(method, f"/v0/topics/{path}", body, self.headers).body for conn in conns]
                lane, general = map(without_chance, answers)
                assert lane == general, f"{lane!r}\n{general!r}"

    def restart(self) -> None:
        for world in self.worlds:
            world.crash()
        self.start()

    def compare_logs(self) -> int:
        """The frames of records in the log, by topic and seq; returns how many both have. Times may differ."""
        lane, general = (_frames(world) for world in self.worlds)
        both = lane.keys() & general.keys()
        for key in both:
            assert lane[key] == general[key], f"{key}\n{lane[key]!r}\n{general[key]!r}"
        return len(both)

    def close(self) -> None:
        for world in self.worlds:
            world.close()

    @property
    def taken(self) -> int:
        server = self.worlds[0].server
        assert server is not None
        assert server.lane is not None
        return server.lane.taken


def _frames(world: SimWorld) -> dict[tuple[int, int], bytes]:
    """Every record in the log's files, without its time and what depends on that: (topic id, seq) -> frame."""
    found = {}
    for path in world._files("/srv/topics"):
        if not path.rpartition("/")[2].startswith("wal-"):
            continue
        data = world.ring.file_bytes(path)
        if not data.rstrip(b"\0"):
            continue
        header = WalHeader.unpack(data, path)
        scan = scan_log(data, epoch=header.epoch, batch_no=header.first_batch_no, chain=header.checksum, start=4096)
        for frame in scan.frames[scan.frames["type"] == FrameType.RECORD]:
            at, length = int(frame["offset"]), int(frame["length"])
            content = bytearray(data[at : at + length - 9])
            for start in (22, 59) if frame["ext_len"] else (22,):  # $ts, and when the write of a key began
                content[start : start + 8] = bytes(8)
            found[int(frame["topic_id"]), int(frame["seq"])] = bytes(content)
    return found


def _all(conn: Connection) -> bytes:
    """Return all that comes until nothing more does: a network that cuts answers in pieces takes its time."""
    data = b""
    while more := conn.receive():
        data += more
    return data


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


@examples(75)
@given(st.integers(0, 1 << 48))
def test_lane_on_and_lane_off_answer_the_same_bytes_alike(pair: Pair, seed: int) -> None:
    pair.run(random.Random(seed))


@pytest.fixture(scope="module")
def alone() -> Pair:
    return Pair(single=True)


@examples(75)
@given(st.integers(0, 1 << 48))
def test_a_client_alone_is_answered_as_on_the_general_path(alone: Pair, seed: int) -> None:
    alone.run(random.Random(seed))


def test_what_a_client_alone_has_written_is_the_same_on_both_paths(alone: Pair) -> None:
    server = alone.worlds[0].server
    assert server is not None
    assert server.lane is not None
    before = server.lane.single.taken
    for seed in seeds(200):
        alone.run(random.Random(f"alone {seed}"))
    assert server.lane.single.taken > before + amount(40), "too little was taken for this test to mean anything"
    alone.compare_state()
    assert alone.compare_logs() > 30


def test_with_keys_a_client_alone_is_let_in_as_on_the_general_path() -> None:
    pair = Pair(single=True, api_keys=KEYS, max_inflight_per_key=1)
    for seed in seeds(100):
        pair.run(random.Random(f"keys alone {seed}"))
    pair.compare_state()
    assert pair.send([[plain("t0-0", key="nobody"), plain("t0-0")]])[0].count(b"HTTP/1.1 401") == 2
    assert pair.send([[plain("t0-0", key="reader"), plain("t1-0", key="narrow")]])[0].count(b"HTTP/1.1 403") == 2


def lone_client(pair: Pair, name: str, key: str = "") -> tuple[SimWorld, Lane, Connection]:
    """Return the world with the lane, and a connection of it whose requests are taken by themselves."""
    world = pair.worlds[0]
    assert world.server is not None
    assert world.server.lane is not None
    conn = world.connect()
    for _ in range(3):
        assert conn.send(plain(name, key=key)).answer("POST").status == 200
        assert conn.send(plain_read(name, key=key)).answer("POST").status == 200
    before = world.server.lane.single.taken
    assert conn.send(plain(name, key=key)).answer("POST").status == 200
    assert world.server.lane.single.taken == before + 1
    return world, world.server.lane, conn


@pytest.mark.parametrize("name", ["t0-0", "t0-1"])
def test_the_writes_of_a_client_alone_form_a_streak_until_another_request_comes(name: str) -> None:
    pair = Pair(single=True)
    world, lane, conn = lone_client(pair, name)

    def is_streak() -> bool:
        before, streak = lane.single.writes_taken, lane.single._streak
        assert conn.send(plain(name)).answer("POST").status == 200
        assert lane.single.writes_taken == before + 1
        return streak is not None and streak is lane.single._streak and streak._topic is not None

    assert is_streak()
    for body in BODIES[:4]:
        conn.send(plain(name, body)).answer("POST")
    before = conn.request("GET", f"/v0/topics/{name}").json["head_seq"]
    assert is_streak()
    assert is_streak()
    world.connect().request("PUT", f"/v0/topics/{name}", {"durability": "disk", "cap_records": 2})
    world.settle()
    for _ in range(3):
        conn.send(plain(name)).answer("POST")
    state = conn.request("GET", f"/v0/topics/{name}").json
    assert (state["count"], state["head_seq"]) == (2, before + 5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_writes_of_a_client_alone_form_a_streak_beside_watchers_that_get_each_at_once(count: int) -> None:
    """R-WATCH-9. Nothing but what comes wakes this world: what a pass leaves undone stays so."""
    pair = Pair(single=True)
    world, lane, conn = lone_client(pair, "t0-0")
    head = world.state("t0-0")["head_seq"]
    watchers = [watch(world, {"t0-0": {"from_seq": head}}) for _ in range(count)]
    for watcher in watchers:
        assert watcher.one().event == "caught-up"
    for _ in range(2):
        conn.send(plain("t0-0")).answer("POST")
    for watcher in watchers:
        watcher.frames(2 * 2)
    streak = lane.single._streak
    assert streak is not None
    for seq in range(head + 3, head + 10):
        assert streak._topic is not None, "the streak has ended"
        assert conn.send(plain("t0-0")).answer("POST").status == 200
        for watcher in watchers:
            found = [frame for frame in watcher.frames(2, within_ms=5) if frame.event == "record"]
            assert [record["$seq"] for record in found[-1].data["records"]] == [seq]


def test_a_key_at_its_cap_is_refused_to_a_client_alone_too() -> None:
    pair = Pair(single=True, api_keys=KEYS, max_inflight_per_key=1)
    world, lane, conn = lone_client(pair, "t0-1", key="writer")
    head = conn.send(plain_read("t0-1", b'{"from_seq":0,"limit":1}', key="writer")).answer("POST").json["head_seq"]
    world.connect().send(plain_read("t0-1", b'{"from_seq":%d,"wait_ms":30000}' % head, key="writer"))
    world.settle()
    before = lane.single.taken
    for request in (plain("t0-1", key="writer"), plain_read("t0-1", key="writer")) * 2:
        assert conn.send(request).answer("POST").status == 429
    assert lane.single.taken == before


def test_a_gate_that_is_closed_is_closed_to_a_client_alone_too() -> None:
    _world, lane, conn = lone_client(Pair(single=True), "t0-1")
    before = lane.single.taken
    lane.single._service.gate = lambda plan: RequestError("not_ready", "the server stops")
    for request in (plain("t0-1"), plain_read("t0-1")):
        assert conn.send(request).answer("POST").status == 503
    lane.single._service.gate = None
    lane.single._service.closing = True
    answer = conn.send(plain("t0-1")).answer("POST")
    assert (answer.status, conn.ended) == (200, True), "every answer closes its connection"
    assert lane.single.taken == before


def test_a_receive_that_is_alone_and_left_to_the_general_path_counts_as_missed_by_its_reason() -> None:
    world, lane, conn = lone_client(Pair(single=True), "t0-1")

    def missed(request: bytes, method: str = "POST") -> dict[str, int]:
        before = list(lane.missed)
        conn.send(request).answer(method)
        return {name: count for at, name in REASONS.items() if (count := lane.missed[at] - before[at])}

    assert missed(plain("t0-1")) == {}
    assert missed(plain_read("t0-1")) == {}
    assert missed(b"GET /v0/topics/t0-1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET") == {"line": 1}
    assert missed(plain("t0-1", b'{"records":[{"data":1}],"node":"n"}')) == {"body": 1}
    assert missed(plain_read("t0-1", b'{"from_seq":0,"tag":"t"}')) == {"body": 1}
    assert missed(plain("t0-1", field="X-Unknown: 1")) == {"field": 1}
    conn = world.connect()
    assert missed(plain("t0-1")) == {"lone": 1}, "the first of its connection"


def test_a_head_and_a_body_that_come_one_after_the_other_are_a_plain_request() -> None:
    """Many clients send them by two calls."""
    world, lane, conn = lone_client(Pair(single=True), "t0-1")
    for request in (plain("t0-1"), plain_read("t0-1"), plain("t0-1", field=STRICT)):
        head, end, body = request.partition(b"\r\n\r\n")
        before = lane.single.taken
        conn.send(head + end)
        world.settle()
        answer = conn.send(body).answer("POST")
        assert (answer.status, lane.single.taken - before) == (200, 1)


def test_a_body_that_comes_in_parts_is_left_to_the_general_path() -> None:
    world, lane, conn = lone_client(Pair(single=True), "t0-1")
    head, end, body = plain("t0-1").partition(b"\r\n\r\n")
    before, earlier = lane.single.taken, conn.request("GET", "/v0/topics/t0-1?touch=false").json["head_seq"]
    for part in (head + end, body[:5], body[5:]):
        conn.send(part)
        world.settle()
    assert conn.answer("POST").status == 200
    assert lane.single.taken == before
    assert conn.request("GET", "/v0/topics/t0-1?touch=false").json["head_seq"] == earlier + 1


def test_a_body_with_the_next_request_after_it_is_left_to_the_general_path() -> None:
    world, _lane, conn = lone_client(Pair(single=True), "t0-1")
    head, end, body = plain("t0-1").partition(b"\r\n\r\n")
    conn.send(head + end)
    world.settle()
    conn.send(body + plain_read("t0-1"))
    assert [conn.answer("POST").status for _ in range(2)] == [200, 200]


def test_a_head_whose_body_does_not_come_ends_its_connection_in_time() -> None:
    """R-NET-4."""
    world, _lane, conn = lone_client(Pair(single=True, head_timeout_ms=1000), "t0-1")
    head, end, _body = plain("t0-1").partition(b"\r\n\r\n")
    conn.send(head + end)
    world.settle()
    world.advance_ms(10_000)
    assert conn.receive() == b""
    assert conn.ended


def test_a_body_of_which_a_part_comes_with_the_head_is_arriving_wherever_it_is_cut() -> None:
    """T18: its pace is looked at, and its key's cap. Here the part ends as a head does."""
    world, _lane, conn = lone_client(Pair(single=True), "t0-1")
    head, end, _body = plain("t0-1", b'{"records":[\r\n\r\n{"data":1}]}').partition(b"\r\n\r\n")
    before = conn.request("GET", "/v0/topics/t0-1?touch=false").json["head_seq"]
    conn.send(head + end + b'{"records":[\r\n\r\n')
    world.settle()
    assert world.server is not None
    (state,) = [one.state for one in world.server.listener.connections if one.state.held_bytes]
    assert [arriving.bytes for arriving in state.arriving] == [len(b'{"records":[\r\n\r\n')]
    assert conn.send(b'{"data":1}]}').answer("POST").json["head_seq"] == before + 1


def test_a_head_that_comes_in_parts_is_scanned_by_the_general_path_alone() -> None:
    """A client that sends byte after byte would otherwise have the whole head scanned for each of them."""
    world, lane, conn = lone_client(Pair(single=True), "t0-1")
    head, end, body = plain("t0-1").partition(b"\r\n\r\n")
    scanned: list[int] = []
    scan = lane.single._scan
    lane.single._scan = lambda data, size: (scanned.append(size), scan(data, size))[1]  # type: ignore[assignment]
    for at in range(len(head + end)):
        conn.send((head + end)[at : at + 1])
        world.settle()
    assert conn.send(body).answer("POST").status == 200
    assert scanned == [1]


def test_a_request_whose_head_is_here_when_the_server_stops_is_finished() -> None:
    """R-LIFE-7: it is under way, as one of the general path."""
    pair = Pair(single=True)
    world, _lane, conn = lone_client(pair, "t0-1")
    head, end, body = plain("t0-1").partition(b"\r\n\r\n")
    conn.send(head + end)
    world.settle()
    world.begin_stop()
    world.advance_ms(600)
    answer = conn.send(body).answer("POST")
    assert (answer.status, answer.header("connection")) == (200, "close")
    assert world.finish_stop() == 0


@pytest.mark.parametrize("field", UNUSED_FIELDS)
def test_fields_that_proxies_and_tracing_add_are_plain_however_often_they_are_there(pair: Pair, field: str) -> None:
    for often in (field, f"{field}\r\n{field.upper()} "):
        for request in (plain("t0-1", field=often), plain_read("t0-1", field=often)):
            before = pair.taken
            assert pair.send([[request, request * 2]])[0].count(b"HTTP/1.1 200 ") == 3
            assert pair.taken - before == 3


@pytest.mark.parametrize("field", ["X-Forwarded: a", "Via: \x01", "Via : a", "X_Real-IP: a", " Via: a", "Via"])
def test_what_only_looks_like_one_of_these_fields_is_left_to_the_general_path(pair: Pair, field: str) -> None:
    before = pair.taken
    pair.send([[plain("t0-1", field=field)]])
    assert pair.taken == before


def test_strict_requests_are_plain_where_all_their_keys_are_known(pair: Pair) -> None:
    """R-STRICT-1, R-STRICT-2: the columns leave others to the general path, which names the likely key."""
    misspelled = b'{"records":[{"data":1},{"data":2,"tga":"t"}]}'
    for at, request in enumerate((plain("t0-1", field=STRICT), plain_read("t0-1", field=STRICT))):
        before = pair.taken
        answers = pair.send([[request, request * 2]])[0]
        assert (pair.taken - before, answers.count(b"Preference-Applied: handling=strict\r\n")) == (3, 3), at
    before = pair.taken
    (answers,) = pair.send([[plain("t0-1", misspelled, field=STRICT)]])
    assert b"records[1].tga is an unknown key: did you mean tag?" in answers
    assert (pair.taken - before, answers[9:12]) == (0, b"400")
    assert pair.send([[plain("t0-1", misspelled)]])[0][9:12] == b"200"
    assert pair.taken - before == 1, "without the header it is ignored"


def test_strict_requests_of_a_client_alone_are_plain_where_all_their_keys_are_known() -> None:
    """R-STRICT-1, R-STRICT-2."""
    pair = Pair(single=True)
    _world, lane, conn = lone_client(pair, "t0-1")
    before = lane.single.taken
    for request in (plain("t0-1", field=STRICT), plain_read("t0-1", field=STRICT)):
        answer = conn.send(request).answer("POST")
        assert (answer.status, answer.header("preference-applied")) == (200, "handling=strict")
    assert lane.single.taken == before + 2
    for body in (b'{"records":[{"data":1}],"creat":true}', b'{"records":[{"data":1,"tga":"t"}]}'):
        answer = conn.send(plain("t0-1", body, field=STRICT)).answer("POST")
        assert (answer.status, answer.header("preference-applied")) == (400, "handling=strict")
    assert lane.single.taken == before + 2


def test_a_client_that_remains_alone_leaves_the_columns() -> None:
    pair = Pair(single=True)
    world = pair.worlds[0]
    assert world.server is not None
    assert world.server.lane is not None
    first, second = world.connect(), world.connect()
    for _ in range(3):
        for conn in (first, second):
            conn.send(plain("t0-1"))
        assert [conn.answer("POST").status for conn in (first, second)] == [200, 200]
    assert first.send(plain("t0-1")).answer("POST").status == 200
    before = world.server.lane.single.taken
    for _ in range(4):
        assert first.send(plain("t0-1")).answer("POST").status == 200
    assert world.server.lane.single.taken >= before + 3


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_poll_that_waits_gets_the_write_of_a_client_alone_in_the_same_pass(durability: str) -> None:
    """Nothing but what comes wakes this world: what the end of a pass leaves undone stays so."""
    pair = Pair(single=True)
    world = pair.worlds[0]
    assert world.server is not None
    assert world.server.lane is not None
    poller, writer = world.connect(), world.connect()
    name = pair.topics[0][CONFIGS.index({"durability": durability})]
    writer.send(plain(name)).answer("POST")
    head = world.state(name)["head_seq"]
    for turn in range(3):
        poller.send(plain_read(name, b'{"from_seq":%d,"wait_ms":30000}' % (head + turn)))
        world.settle()
        # The first request after another client's is answered at the end of the pass.
        writer.send(plain_read(pair.topics[1][0])).answer("POST")
        before = world.server.lane.single.taken
        sent_ms = world.now_ms()
        assert writer.send(plain(name)).answer("POST").status == 200
        assert world.server.lane.single.taken == before + 1
        assert [record["$seq"] for record in poller.answer("POST").json["records"]] == [head + turn + 1]
        assert world.now_ms() - sent_ms < 5, "a timer has ended a pass with hooks"


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_write_that_needs_no_sync_is_taken_by_itself_beside_a_poll_that_asks_again_after_each(
    durability: str,
) -> None:
    world = SimWorld()
    world.start()
    world.put("t", durability=durability)
    assert world.server is not None
    assert world.server.lane is not None
    writer, poller = world.connect(), world.connect()
    for _ in range(4):  # they become columns
        for conn in (writer, poller):
            conn.send(plain("t"))
        assert [conn.answer("POST").status for conn in (writer, poller)] == [200, 200]
    taken = []
    for turn in range(8, 30):
        poller.send(plain_read("t", b'{"from_seq":%d,"wait_ms":30000}' % turn))
        world.settle()
        before = world.server.lane.single.taken
        assert writer.send(plain("t")).answer("POST").status == 200
        taken.append(world.server.lane.single.taken - before)
        assert [record["$seq"] for record in poller.answer("POST").json["records"]] == [turn + 1]
    assert taken[:2] == [0, 0], "others were there of late"
    assert taken[-9:] == [0 if durability == "fsync" else 1] * 9
    world.stop()


def test_a_client_that_remains_alone_reads_with_the_budget_of_a_pass_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a pass, which is left out, would renew it. The passes without data are the simulator's own."""
    pair = Pair(single=True, pass_read_bytes=4096)
    world = pair.worlds[0]
    assert world.server is not None
    assert world.server.lane is not None
    assert world.loop is not None
    traffic, deliver, run_hooks = world.loop._traffic, world.loop._traffic.deliver, world.loop._run_hooks
    received = [False]

    def noted_deliver() -> bool:
        received[0] = bool(traffic.used)
        return deliver()

    def noted_take_single(single: Single) -> bool | None:
        received[0] = True
        return take_single(single)

    take_single = traffic.take_single
    monkeypatch.setattr(traffic, "deliver", noted_deliver)
    monkeypatch.setattr(traffic, "take_single", noted_take_single)
    monkeypatch.setattr(world.loop, "_run_hooks", lambda: run_hooks() if received[0] else None)
    conn = world.connect()
    for _ in range(8):
        assert conn.send(plain("t0-1")).answer("POST").status == 200
    before = world.server.lane.single.taken
    for _ in range(100):
        assert conn.send(plain_read("t0-1", b'{"from_seq":0,"limit":8}')).answer("POST").status == 200
    assert world.server.lane.single.taken >= before + 99
    assert world.server.service.turns.seen_ns == 0, "time until the next pass would count as this one's"


def test_reads_of_several_clients_leave_out_the_end_of_their_pass_unless_something_else_was_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SimWorld(0, only_woken=True)
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    assert world.loop is not None
    conns = [world.connect() for _ in range(4)]
    for conn in conns:
        assert conn.send(plain("t")).answer("POST").status in {200, 201}
        assert conn.send(plain_read("t")).answer("POST").status == 200
    loop, deliver = world.loop, world.loop._traffic.deliver
    passes: list[bool] = []

    def noted_deliver() -> bool:
        table = loop._traffic.table
        rows = 0 if table is None else table.count
        is_settled = deliver()
        if rows == len(conns):
            passes.append(is_settled)
        return is_settled

    def ask(*requests: bytes) -> bool:
        """Send one request over each connection; return whether the pass with all of them was settled."""
        passes.clear()
        for conn, request in zip(conns, requests, strict=True):
            conn.send(request)
        for conn in conns:
            assert conn.answer("POST").status == 200
        return bool(passes and passes[0])

    for _ in range(3):  # they become columns
        ask(*[plain_read("t")] * 4)
    monkeypatch.setattr(loop._traffic, "deliver", noted_deliver)
    taken = world.server.lane.taken
    assert ask(*[plain_read("t")] * 4)
    assert world.server.service.turns.seen_ns == 0
    assert not ask(*[plain_read("t")] * 3, plain("t"))
    assert not ask(plain("t"), *[plain_read("t")] * 3)
    assert ask(*[plain_read("t")] * 4)
    assert world.server.lane.taken == taken + 16
    general = plain_read("t").replace(b"Host:", b"X: y\r\nHost:")
    assert not ask(*[plain_read("t")] * 3, general)
    world.stop()


def test_lane_on_and_lane_off_keep_the_same_records(pair: Pair) -> None:
    before = pair.taken
    for seed in seeds(120):
        pair.run(random.Random(f"state {seed}"))
    assert pair.taken > before + amount(40), "the lane has taken too little for this test to mean anything"
    pair.compare_state()
    assert pair.compare_logs() > 30


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_refused_alike_alone_behind_plain_requests_and_cut(pair: Pair, name: str) -> None:
    data = MALFORMED[name]
    for request in (plain("t0-1"), plain_read("t0-1")):
        pair.send([[data], [request + data], [request * 2, data + request]])
        pair.send([[data[: len(data) // 2], data[len(data) // 2 :] + request]])


@pytest.mark.parametrize(
    "length",
    [
        b"Content-Length: %d\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: %d",
        b"Content-Length: %d\r\nContent-Length: 0",
        b"Content-Length: 0\r\nContent-Length: %d",
        b"Content-Length : %d",
        b"Content-Length: %d\n",
        b"Content-Length: %d\r\n x: y",
        b"Content-Length: 0x%x",
        b"Content-Length: %d,0",
        b"Content_Length: %d",
        b"Content-Length:\x0b%d",
        b"Content-Length: %d\0",
    ],
)
def test_a_request_smuggled_behind_a_doubtful_length_is_served_by_neither(pair: Pair, length: bytes) -> None:
    inner = plain("smuggled")
    head = b"POST /v0/topics/t0-1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = b'{"records":[{"data":1}]}'
    outer = head + length % len(body) + b"\r\n\r\n" + body
    pair.send([[outer + inner], [plain("t0-1") + outer + inner], [plain("t0-1"), outer, inner]])
    pair.send([[head + length % (len(body) + len(inner)) + b"\r\n\r\n" + body + inner]])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_a_simulated_world_of_any_order_both_recover_to_the_same(seed: int) -> None:
    pair = Pair(seed, wal_shards=1 + seed % 3)
    for life in range(2):
        before = pair.taken
        for turn in range(30):
            pair.run(random.Random(f"{seed} {life} {turn}"))
        pair.send([[plain(name)] for name in ("t0-1", "t1-0", "t2-2")])
        assert pair.taken > before
        pair.compare_state()
        for world in pair.worlds:
            world.advance_ms(3000)
        pair.restart()
        pair.compare_state()
        pair.warm_up()


def test_with_keys_the_lane_lets_in_whom_the_general_path_lets_in() -> None:
    pair = Pair(api_keys=KEYS)
    before = pair.taken
    for seed in seeds(200):
        pair.run(random.Random(f"keys {seed}"))
    assert pair.taken > before + amount(40), "the lane has taken too little for this test to mean anything"
    pair.compare_state()
    assert pair.send([[plain("t0-0", key="nobody"), plain("t0-0")]])[0].count(b"HTTP/1.1 401") == 2
    assert pair.send([[plain("t0-0", key="reader"), plain("t1-0", key="narrow")]])[0].count(b"HTTP/1.1 403") == 2


def test_requests_in_flight_of_a_key_are_counted_as_on_the_general_path() -> None:
    pair = Pair(api_keys=KEYS, max_inflight_per_key=2)
    streams = [[plain(name, key="writer")] for name in ("t0-1", "t1-1", "t2-1")]
    before = pair.taken
    assert [answers[9:12] for answers in pair.send(streams)] == [b"200", b"200", b"429"]
    assert pair.taken - before == 2
    assert [answers[9:12] for answers in pair.send(streams)] == [b"200", b"200", b"429"]
    assert pair.send([[plain("t0-1", key="writer") * 3]])[0].count(b" 200 OK") == 3
    assert [answers[9:12] for answers in pair.send(streams[:2])] == [b"200", b"200"]


def test_pipelined_requests_are_answered_in_order_whatever_path_they_take(pair: Pair) -> None:
    first, second = pair.topics[0][:2]
    spaced = plain(first, b'{"records":[{"data":{"a": 1}}]}')
    requests = [plain(first), plain(first), spaced, plain(first), plain(second), plain(first), plain(second)]
    (answers,) = pair.send([[b"".join(requests)]])
    names = [part[:4] for part in answers.split(b'{"topic":"')[1:]]
    assert names == [name.encode()[:4] for name in (first, first, first, first, second, first, second)]


def test_a_second_receive_waits_for_the_answer_to_the_first(pair: Pair) -> None:
    name = pair.topics[0][1]
    before = pair.taken
    pair.send([[plain(name), plain(name)]])
    assert pair.taken > before


def test_a_full_disk_is_told_to_each_request_as_the_general_path_tells_it() -> None:
    pair = Pair()
    name = pair.topics[0][0]
    for world in pair.worlds:
        world.fail_storage("write", 5)
    (answers,) = pair.send([[plain(name) + plain(name, field=STRICT) + plain(name)]])
    assert answers.count(b"HTTP/1.1 500") == 3
    assert [b"Preference-Applied" in answer for answer in answers.split(b"HTTP/1.1")[1:]] == [False, True, False]
    (answers,) = pair.send([[plain(name) * 2]])
    assert answers.count(b"HTTP/1.1 500") == 2


def test_answers_during_a_shutdown_close_their_connection(pair: Pair) -> None:
    ending = Pair()
    heard = []
    for world in ending.worlds:
        conn = world.connect().send(plain("t0-1", field=STRICT) + plain("t0-1"))
        world.advance_us(1)
        world.begin_stop()
        heard.append(without_chance(conn.receive()))
    assert heard[0] == heard[1]


def test_a_write_alone_in_its_pass_goes_the_general_way_while_others_were_there_of_late() -> None:
    world = SimWorld()
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    first, second = world.connect(), world.connect()
    for _ in range(3):
        assert first.send(plain("t")).answer("POST").status < 300
    assert world.server.lane.taken == 0
    for conn in (first, second):
        conn.send(plain("t"))
    assert [conn.answer("POST").status for conn in (first, second)] == [200, 200]
    assert world.server.lane.taken == 2
    assert first.send(plain("t")).answer("POST").status == 200


def test_however_many_hosts_there_were_the_next_one_is_learnt() -> None:
    world = SimWorld(all_in_lane=True)
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    conn = world.connect()
    for host in range(40):
        request = plain("t").replace(b"localhost", b"host%d" % host)
        before = world.server.lane.taken
        for _ in range(2):
            assert conn.send(request).answer("POST").status < 300
        assert world.server.lane.taken == before + 1
    assert len(world.server.lane._hosts) == 16


def test_the_write_that_creates_a_topic_is_enough_to_learn_it() -> None:
    world = SimWorld()
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    conns = [world.connect() for _ in range(4)]
    for turn in range(2):
        for number, conn in enumerate(conns):
            conn.send(plain(f"t{number}"))
        assert [conn.answer("POST").status for conn in conns] == [(201, 200)[turn]] * 4
    assert world.server.lane.taken == 4


def test_a_write_that_waits_for_its_turn_is_learnt_from_too() -> None:
    """A pass has time for two of these; with more topics than that, most would stay unknown for long."""
    world = SimWorld(pass_requests_us=20)
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    conns = [world.connect() for _ in range(30)]
    for turn in range(2):
        for number, conn in enumerate(conns):
            conn.send(plain(f"t{number}"))
        assert [conn.answer("POST").status for conn in conns] == [(201, 200)[turn]] * 30
    assert world.server.lane.taken == 30


def test_a_request_of_a_key_that_was_taken_away_is_not_learnt_from(tmp_path: Path) -> None:
    """R-AUTH-10: requests are learnt from by the next receive, and keys may change before it."""
    keys = tmp_path / "keys"
    keys.write_text("one")
    keys.chmod(0o600)
    world = SimWorld(api_keys_file=str(keys))
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    conn = world.connect()
    assert conn.send(plain("t", key="one")).answer("POST").status == 201
    keys.write_text("two:r")
    world.server.reload_keys()
    assert conn.send(plain("t", key="one")).answer("POST").status == 401
    assert conn.send(plain("t", key="two")).answer("POST").status == 403
    assert world.server.lane._topics.names == []


def test_idempotency_keys_mean_the_same_in_the_lane() -> None:
    """R-IDEM: once, again with other records, twice at a time, in a row, after a crash."""
    pair = Pair()

    def keyed(key: str, records: int = 1, topic: str = "t0-0") -> bytes:
        body = b'{"records":[' + b",".join([b'{"data":1}'] * records) + b"]}"
        return plain(topic, body, field=f"Idempotency-Key: {key}")

    before = pair.taken
    assert b'"deduped":false' in pair.send([[keyed("a")]])[0]
    assert b'"deduped":true' in pair.send([[keyed("a")]])[0]
    repeated = pair.send([[keyed("b", 3)], [keyed("a", 2)], [keyed("b")]])
    assert [b'"deduped":true' in answers for answers in repeated] == [False, True, True]
    assert pair.taken - before == 4, "a duplicate of what is on its way is the general path's"
    strict = [plain("t0-0", field=f"{STRICT}\r\nIdempotency-Key: {key}") for key in ("a", "strict")]
    assert all(b"Preference-Applied" in pair.send([[request]])[0] for request in strict)
    pair.send([[keyed("c") + plain("t0-0") + keyed("c")], [plain("t0-0") + keyed("c"), keyed("d"), keyed("d")]])
    pair.send([[keyed("e", 20)], [keyed("f" * 256)], [keyed("f" * 257)]])
    pair.send([[keyed("g", topic=name) for name in pair.topics[0]]] * 2)
    pair.compare_state()
    for world in pair.worlds:
        world.advance_ms(3000)
    pair.restart()
    pair.warm_up()
    assert b'"deduped":true' in pair.send([[keyed("b")]])[0]
    pair.compare_state()


def test_a_topic_whose_writes_all_have_idempotency_keys_is_learnt() -> None:
    world = SimWorld()
    world.start()
    assert world.server is not None
    assert world.server.lane is not None
    conns = [world.connect() for _ in range(3)]
    for turn in range(3):
        for number, conn in enumerate(conns):
            conn.send(plain("t", field=f"Idempotency-Key: {turn}-{number}"))
        assert all(conn.answer("POST").status in {200, 201} for conn in conns)
    assert world.server.lane.taken >= 3
    assert len(world.data("t")) == 9


def test_off_means_off_and_anything_else_is_refused() -> None:
    world = SimWorld(http_lane="off")
    world.start()
    assert world.server is not None
    assert world.server.lane is None
    with pytest.raises(UsageError, match="http_lane"):
        SimWorld(http_lane="maybe")


@pytest.mark.parametrize(
    "body",
    [
        b'{"records": [{"data": {"a": [1, 2]}, "tag": "t", "meta": {"k": "v"}}, {"data": "x y"}]}',
        b'{"records":[{"tag":"\\u00e9\\n","node":"n\\\\","data":{"a":"\\u00e9 "}}]}',
        b'{"records":[{"data":1,"tag":"t"},{"data":2}]}',
    ],
)
def test_white_space_and_escapes_are_plain_and_stored_as_the_general_path_does(pair: Pair, body: bytes) -> None:
    before = pair.taken
    pair.send([[plain("t0-1", body) * 2, plain("t0-1", body), plain("t0-1")]])
    assert pair.taken - before == 4
    pair.compare_state()


def test_receives_of_a_connection_that_was_a_column_keep_their_order_in_a_pass() -> None:
    """2.1: the second of two receives in one pass does not overtake the first, which gave the column up."""
    world = SimWorld()
    world.start()
    world.put("a")
    connections = [world.connect() for _ in range(4)]
    for _ in range(3):
        for connection in connections:
            connection.start("POST", "/v0/topics/a", {"records": [{"data": 1}]})
        for connection in connections:
            assert connection.answer("POST").status == 200
    assert world.server is not None
    lane = world.server.lane
    assert lane is not None
    conn = next(conn for conn in world.server.listener.connections if conn.owned)
    rows = [(conn, memoryview(b"DELETE /v0/topics/a H")), (conn, memoryview(b"TTP/1.1\r\nHost: localhost\r\n\r\n"))]
    left: list[tuple[object, memoryview]] = []
    others = lane._scan_new(list(rows), left)
    assert [bytes(view) for _, view in left + others] == [bytes(view) for _, view in rows]
