"""A whole server on the simulated ring: recovery, probes, limits of time, and the graceful stop."""

from collections.abc import Iterator

import pytest
from h2.errors import ErrorCodes

from tests.http.byte_stream import Wire
from tests.http.http2.h2_peer import H2Client
from tests.server.server_world import World
from topics.engine.values.results import DiffResult, TopicState
from topics.engine.values.topic_config import DEFAULT
from topics.errors import CorruptError

GET = b"GET /v0/topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
DIFF = (
    b"POST /v0/topics/a/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"wait_ms":30000}'
)
JSON = {"content-type": "application/json"}
STATE = TopicState("a", DEFAULT, 9, 4, 5, 310, 500, None, None, None)


@pytest.fixture
def world() -> World:
    world = World()
    world.backend.engine.answers["state"] = STATE
    return world


# --- recovery --------------------------------------------------------------------------------------------------------
def test_while_recovering_only_probes_metrics_and_pages_are_answered(world: World) -> None:
    """R-LIFE-4."""
    world.recovered = False
    client = world.start().connect()
    world.progress(0.25)
    assert client.get("/healthz").status == 200
    assert client.get("/v0/metrics").status == 200
    assert client.get("/ui").status == 200
    for path in ("/readyz", "/v0/topics/a", "/nowhere"):
        response = client.get(path)
        assert response.status == 503
        assert response.code == "not_ready"
        assert response.json["error"]["detail"] == {"replay_progress": 0.25}
        assert response.headers["retry-after"] == "1"
    world.recovered = True
    world.run_ms(5)
    assert client.get("/v0/topics/a").status == 200
    assert client.get("/readyz").json == {"status": "ready", "wal_replay_complete": True, "topics": 0}


def test_data_that_cannot_be_recovered_end_the_server_with_code_1(world: World) -> None:
    world.recovery_error = CorruptError("block 7 is damaged")
    world.start()
    assert world.codes == [1]


def test_a_stop_during_recovery_ends_it(world: World) -> None:
    world.recovered = False
    world.start()
    recovery, on_end = world.server._recovery, world.server._on_end
    assert recovery is not None
    ended_before: list[bool] = []

    def end(code: int) -> None:
        ended_before.append(recovery.done)
        on_end(code)

    world.server._on_end = end
    world.server.stop()
    world.run_ms(500)
    assert world.codes == [0]
    assert not world.backend.closed
    assert ended_before == [True], "what recovery had in flight would meet a ring that is closed"


# --- probes ----------------------------------------------------------------------------------------------------------
def test_a_read_only_log_makes_the_server_not_ready_while_reads_go_on(world: World) -> None:
    """12.2."""
    client = world.start().connect()
    world.backend.log.read_only = "a sync failed"
    response = client.get("/readyz")
    assert response.code == "not_ready"
    assert response.json["error"]["detail"] == {"reason": "read_only"}
    assert client.get("/v0/topics/a").status == 200


def test_uptime_is_counted_from_the_start(world: World) -> None:
    """12.1."""
    client = world.start().connect()
    world.run_ms(1000)
    assert 1000 <= client.get("/healthz").json["uptime_ms"] <= 1100


# --- time limits -----------------------------------------------------------------------------------------------------
def test_a_connection_that_never_sends_is_closed_without_an_answer(world: World) -> None:
    """R-NET-4."""
    client = world.start().connect()
    world.run_ms(59_000)
    assert not client.tcp.ended
    world.run_ms(3000)
    assert client.tcp.receive() == b""
    assert client.tcp.ended


@pytest.mark.parametrize("part", [b"GET / HTT", b"PRI * HTTP/2.0\r\n"])
def test_a_partial_head_is_closed_without_an_answer_however_it_trickles(world: World, part: bytes) -> None:
    """R-NET-4."""
    client = world.start().connect()
    for index in range(len(part) - 1):
        client.tcp.send(part[index : index + 1])
        world.run_ms(60_000 // len(part))
    world.run_ms(10_000)
    assert client.tcp.receive() == b""
    assert client.tcp.ended


def test_the_time_counts_from_the_last_answer(world: World) -> None:
    """R-NET-4."""
    client = world.start().connect()
    world.run_ms(40_000)
    assert len(client.ask(GET)) == 1
    world.run_ms(40_000)
    assert len(client.ask(GET)) == 1
    world.run_ms(63_000)
    assert client.tcp.ended


def test_clients_that_make_the_server_hold_too_much_are_dropped_the_largest_first() -> None:
    world = World(max_client_bytes=50_000, max_body_bytes=1 << 20).start()
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    largest, chunked, small = (world.connect() for _ in range(3))
    small.tcp.send(head + b"Content-Length: 90000\r\n\r\n" + b" " * 10_000)
    chunked.tcp.send(head + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + b" " * 20_000)
    world.run_ms(2000)
    largest.tcp.send(head + b"Content-Length: 90000\r\n\r\n" + b" " * 30_000)
    world.run_ms(2000)
    assert [client.tcp.ended for client in (largest, chunked, small)] == [True, False, False]


@pytest.mark.parametrize("probes_first", [False, True])
@pytest.mark.parametrize("h2", [False, True])
def test_a_client_without_a_key_is_dropped_first(h2: bool, probes_first: bool) -> None:
    world = World(max_client_bytes=250_000, max_body_bytes=1 << 20, api_keys="secret").start()
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    owner, idle, *strangers = (world.connect() for _ in range(8))
    for client in strangers if probes_first else ():
        assert client.get("/v0/health").status == 200
    if h2:
        peer = H2Client()
        fields = {"authorization": "Bearer secret", "content-type": "application/json"}
        peer.begin("POST", "/v0/topics/t", b" " * 60_000, fields, end=False)
        owner.tcp.send(peer.take())
    else:
        head_of_owner = head + b"Authorization: Bearer secret\r\nContent-Length: 90000\r\n\r\n"
        owner.tcp.send(head_of_owner + b" " * 65_000)
    world.run_ms(1000)
    for client in strangers:
        client.tcp.send(head + b"Content-Length: 65000\r\n\r\n" + b" " * 50_000)
    world.run_ms(2500)
    assert not owner.tcp.ended
    assert not idle.tcp.ended, "holds nothing"
    assert 2 <= sum(client.tcp.ended for client in strangers) <= 4


def test_what_many_clients_are_sent_of_the_same_bytes_is_held_once() -> None:
    world = World(max_client_bytes=1_000_000, http_lane="off").start()
    shared = b"1," * 250_000
    readers = [world.connect() for _ in range(10)]
    for client in readers:
        assert client.ask(DIFF) == []
    for done in world.backend.engine.waiting:
        done(DiffResult(shared, 1, 9, 9, 1, None, 0, 0))
    world.run_ms(3000)
    assert not any(client.tcp.ended for client in readers)
    assert sum(conn.outbound_bytes for conn in world.loop._traffic.connections()) > 1_000_000
    for client in readers:
        received = b""
        while data := client.tcp.receive():
            received += data
            world.run_ms(10)
        assert received.endswith(b"}}")
        assert shared in received


def test_what_came_while_nothing_was_read_counts_for_what_clients_make_the_server_hold() -> None:
    world = World(max_client_bytes=150_000, http_lane="off").start()
    client = world.connect()
    body = b'{"records":[{"data":1}]}'
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    client.tcp.send(head % len(body) + body + b" " * 70_000)  # reading pauses
    world.run_ms(1500)
    assert not client.tcp.ended
    client.tcp.send(b" " * 200_000)
    world.run_ms(1500)
    assert client.tcp.ended


def test_a_request_being_answered_has_no_time_limit(world: World) -> None:
    client = world.start().connect()
    assert client.ask(DIFF) == []
    world.run_ms(200_000)
    assert not client.tcp.ended
    world.backend.engine.waiting[0](DiffResult(b"", 0, 9, 9, 1, None, 0, 0))
    assert client.responses()[0].status == 200


def test_a_body_that_stops_arriving_is_not_waited_for_forever(world: World) -> None:
    client = world.start().connect()
    client.tcp.send(DIFF[:-5])
    world.run_ms(63_000)
    assert client.tcp.ended


def test_a_body_that_trickles_is_not_waited_for(world: World) -> None:
    """T18: a byte a second is a request that never ends; 240 a second over ten seconds is slow, and enough."""
    world.start()
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    trickling, slow = world.connect(), world.connect()
    for client in (trickling, slow):
        client.tcp.send(head)
    for second in range(30):
        if not trickling.tcp.ended:
            trickling.tcp.send(b" ")
        slow.tcp.send(b" " * 300)
        world.run_ms(1000)
        assert trickling.tcp.ended is (second >= 11) or 9 <= second <= 11
    assert not slow.tcp.ended
    assert world.server.service.in_flight.requests == 0


def test_one_body_after_the_other_that_each_come_at_once_are_no_trickle(world: World) -> None:
    """R-NET-4: whenever the server looks, some body is arriving, and it is another one each time."""
    client = world.start().connect()
    body = b'{"limit":1}'
    head = b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    client.tcp.send(head + body[:6])
    for _ in range(300):
        world.run_ms(100)
        client.tcp.send(body[6:] + head + body[:6])
    assert not client.tcp.ended


def test_each_body_of_an_http2_connection_has_to_keep_the_pace(world: World) -> None:
    """T18: one that moves is no cover for others."""
    tcp, client = world.start().connect().tcp, H2Client()
    moving, *trickling = [client.begin("POST", "/v0/topics/t/diff", None, JSON, end=False) for _ in range(3)]
    for _ in range(12):
        client.h2.send_data(moving, b" " * 300)
        for stream in trickling:
            if client.seen[stream].reset is None:
                client.h2.send_data(stream, b" ")
        tcp.send(client.take())
        world.run_ms(1000)
        client.feed(tcp.receive())
    assert [client.seen[stream].reset for stream in trickling] == [ErrorCodes.CANCEL] * 2
    client.send_body(moving, b"{}")
    tcp.send(client.take())
    world.run_ms(5)
    world.backend.engine.waiting[0](DiffResult(b"", 0, 9, 9, 1, None, 0, 0))
    world.run_ms(5)
    client.feed(tcp.receive())
    assert client.seen[moving].response.status == 200


def test_any_pace_will_do_when_told_so() -> None:
    """14: TOPICS_MIN_BODY_BYTES_PER_S=0."""
    world = World(min_body_bytes_per_s=0).start()
    client = world.connect()
    client.tcp.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    for _ in range(60):
        client.tcp.send(b" ")
        world.run_ms(1000)
    assert not client.tcp.ended


def test_a_stop_waits_for_a_body_that_moves_behind_one_that_does_not(world: World) -> None:
    """R-LIFE-7."""
    tcp, client = world.start().connect().tcp, H2Client()
    _, moving = [client.begin("POST", "/v0/topics/t/diff", None, JSON, end=False) for _ in range(2)]
    tcp.send(client.take())
    world.run_ms(5)
    world.server.stop()
    for _ in range(10):
        client.h2.send_data(moving, b" ")
        tcp.send(client.take())
        world.run_ms(300)
        client.feed(tcp.receive())
    client.send_body(moving, b"{}")
    tcp.send(client.take())
    world.run_ms(5)
    world.backend.engine.waiting[0](DiffResult(b"", 0, 9, 9, 1, None, 0, 0))
    world.run_ms(5)
    client.feed(tcp.receive())
    assert client.seen[moving].response.status == 200


def test_a_body_that_stopped_arriving_does_not_delay_the_stop(world: World) -> None:
    """R-LIFE-7."""
    stalled, moving = world.start().connect(), world.connect()
    for client in (stalled, moving):
        client.tcp.send(DIFF[:-8])
    world.run_ms(10)
    world.server.stop()
    for byte in DIFF[-8:-1]:
        world.run_ms(300)
        assert world.codes == []
        moving.tcp.send(bytes([byte]))
    moving.tcp.send(DIFF[-1:])
    world.run_ms(5)
    world.backend.engine.waiting[0](DiffResult(b"", 0, 9, 9, 1, None, 0, 0))
    assert moving.responses()[0].status == 200
    assert not stalled.responses()
    world.run_ms(1500)
    assert world.codes == [0]


def test_a_reader_that_takes_nothing_is_dropped(world: World) -> None:
    client = world.start().connect()
    big = DiffResult(b'"' + b"x" * 5_000_000 + b'"', 1, 9, 9, 1, None, 1, 0)
    world.backend.engine.answers["diff"] = big
    client.tcp.send(DIFF)
    world.run_ms(25_000)
    assert len(world.server.listener.connections) == 1
    world.run_ms(10_000)
    assert world.server.listener.connections == []


def test_a_refused_client_that_goes_on_sending_gets_its_answer_and_is_cut_off(world: World) -> None:
    client = world.start().connect()
    head = b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1099511627776\r\n\r\n"
    assert client.ask(head + b"x" * 1000)[0].status == 413
    client.tcp.send(b"x" * 1000)
    world.run_ms(100)
    assert not client.tcp.reset_by_server, "a reset could overtake the answer"
    world.run_ms(2000)
    assert world.server.listener.connections == []


# --- stopping --------------------------------------------------------------------------------------------------------
def test_idle_connections_do_not_delay_the_stop(world: World) -> None:
    """R-LIFE-7."""
    client = world.start().connect()
    assert client.get("/healthz").status == 200
    world.server.stop()
    world.run_ms(1000)
    assert world.codes == [0]
    assert world.backend.closed
    assert client.tcp.ended


def test_new_requests_are_told_and_probes_say_so(world: World) -> None:
    """R-LIFE-7."""
    world.start()
    clients = [world.connect() for _ in range(3)]
    world.server.stop()
    for client, path, status in zip(clients, ("/v0/topics/a", "/readyz", "/healthz"), (503, 503, 200), strict=True):
        response = client.get(path)
        assert response.status == status
        assert response.headers["connection"] == "close"
        if status == 503:
            assert response.code == "shutting_down"
            assert response.headers["retry-after"] == "1"


def test_requests_in_progress_finish_and_long_polls_answer_at_once(world: World) -> None:
    """R-LIFE-7."""
    client = world.start().connect()
    engine = world.backend.engine
    engine.at_shutdown = DiffResult(b"", 0, 9, 9, 1, None, 0, 0)
    assert client.ask(DIFF) == []
    world.server.stop()
    (response,) = client.responses()
    assert response.status == 200
    assert response.json["caught_up"] is True
    assert response.headers["connection"] == "close"
    world.run_ms(500)
    assert world.codes == [0]


def test_a_request_that_does_not_finish_is_abandoned_after_the_grace(world: World) -> None:
    """R-LIFE-7."""
    client = world.start().connect()
    client.ask(DIFF)
    world.server.stop()
    world.run_ms(9000)
    assert world.codes == []
    world.run_ms(2500)
    assert world.codes == [0]
    assert world.backend.closed


def test_a_stop_waits_for_a_client_that_takes_its_answer_slowly(world: World) -> None:
    """R-LIFE-7."""
    world.ring.network.socket_buffer_bytes = 4000
    client = world.start().connect()
    client.tcp.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    world.run_ms(5)
    world.server.stop()
    wire = Wire()
    ms = 0
    while not client.tcp.ended:
        world.run_ms(50)
        ms += 50
        wire.sent += client.tcp.receive(2000)
    (response,) = wire.take()
    assert response.status == 200
    assert ms > 2000, "the client is to be slower than any pause"
    client.tcp.close()
    world.run_ms(20)
    assert world.codes == [0]


def test_a_stop_waits_for_an_answer_over_http2_whose_client_opens_its_window_slowly(world: World) -> None:
    """R-LIFE-7."""
    world.ring.network.socket_buffer_bytes = 4000
    tcp, client = world.start().connect().tcp, H2Client()
    stream = client.begin("GET", "/openapi.json")
    tcp.send(client.take())
    world.run_ms(5)
    world.server.stop()
    ms = 0
    while not tcp.ended:
        world.run_ms(50)
        ms += 50
        client.feed(tcp.receive(2000))
        updates = client.take()
        if updates and not tcp.ended:
            tcp.send(updates)
    assert client.seen[stream].response.json["openapi"]
    assert ms > 2000, "the client is to be slower than any pause"


def test_a_client_that_takes_nothing_does_not_delay_the_stop(world: World) -> None:
    """R-LIFE-8."""
    world.ring.network.socket_buffer_bytes = 4000
    client = world.start().connect()
    client.tcp.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    world.run_ms(5)
    world.server.stop()
    world.run_ms(4000)
    assert world.codes == [0]


@pytest.mark.parametrize("error", [OSError("no disk"), ValueError("a bug")])
def test_a_stop_that_fails_ends_the_server_all_the_same(world: World, error: Exception) -> None:
    """R-LIFE-7: with code 1; a supervisor would wait for ever otherwise."""
    world.start()

    async def close() -> None:
        raise error

    world.backend.close = close  # type: ignore[method-assign]
    world.server.stop()
    world.run_ms(1000)
    assert world.codes == [1]


def test_streams_that_cannot_be_ended_do_not_keep_the_log_from_closing(world: World) -> None:
    """R-LIFE-7: one bug is not to cost the checkpoint."""
    world.start()

    def fail() -> Iterator[None]:
        raise ValueError("a bug")
        yield

    world.server.service.streams.at_drain.append(fail)
    world.server.stop()
    world.run_ms(1000)
    assert (world.codes, world.backend.closed) == ([1], True)


def test_asked_twice_the_server_does_not_wait(world: World) -> None:
    client = world.start().connect()
    client.ask(DIFF)
    world.server.stop()
    world.run_ms(100)
    world.server.stop()
    world.run_ms(100)
    assert world.codes == [0]


# --- connections -----------------------------------------------------------------------------------------------------
def test_a_client_that_goes_frees_what_it_held(world: World) -> None:
    """R-NET-11."""
    client = world.start().connect()
    client.ask(DIFF)
    client.tcp.reset()
    world.run_ms(10)
    assert world.backend.engine.cancelled == 1
    assert world.server.service.in_flight.requests == 0


def test_a_fault_in_one_connection_ends_that_one_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, two = world.start().connect(), world.connect()
    broken, _ = world.server.listener.connections
    broken.state.service = None
    one.tcp.send(GET)
    assert two.ask(GET)[0].status == 200
    world.run_ms(5)
    assert one.tcp.ended
    assert "a bug of ours" in caplog.text


@pytest.mark.parametrize("fault", ["lost", "overdue"])
def test_a_fault_in_the_look_at_a_connection_or_at_its_end_is_its_own(
    world: World, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    one, two = world.start().connect(), world.connect()
    broken, _ = world.server.listener.connections

    class Broken(type(broken.state)):  # type: ignore[misc]
        def fail(self, *_: object) -> None:
            raise ValueError("a bug")

    setattr(Broken, fault, Broken.fail)
    broken.state = Broken(world.server.service, broken)
    if fault == "lost":
        one.tcp.reset()
    world.run_ms(3000)
    assert one.tcp.ended or fault == "lost"
    assert "a bug of ours" in caplog.text
    assert two.ask(GET)[0].status == 200
    assert len(world.server.listener.connections) == 1


def test_many_clients_are_served_in_one_pass(world: World) -> None:
    world.start()
    clients = [world.connect() for _ in range(50)]
    for client in clients:
        client.tcp.send(GET + GET)
    world.run_ms(5)
    assert [len(client.responses(0)) for client in clients] == [2] * 50
