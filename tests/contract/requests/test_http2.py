"""HTTP/2 with prior knowledge on the wire: how it is chosen, what it announces, how it ends."""

from __future__ import annotations

from h2.settings import SettingCodes

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import Connection, World
from tests.http.http2.h2_peer import H2Client, Seen
from topics.http.http2.h2_connection import PREFACE


class Client:
    """A client whose frames the test sees."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection: Connection = Connection(world, world.connect()._stream)
        self.h2 = H2Client()

    def exchange(self) -> None:
        self.connection.send(self.h2.take())
        self.h2.feed(self.connection.receive())
        self.connection.send(self.h2.take())

    def ask(self, method: str, path: str) -> Seen:
        return self.answered(self.h2.begin(method, path))

    def answered(self, stream: int) -> Seen:
        """Exchange until the stream has an answer, for which a busy machine may take a while."""
        for _ in range(100):
            self.exchange()
            if self.h2.seen[stream].status:
                break
        return self.h2.seen[stream]


def test_the_first_bytes_choose_the_protocol(world: World) -> None:
    """R-NET-1: one listener; the whole preface, in however many pieces, is HTTP/2, anything else HTTP/1."""
    client = Client(world)
    assert client.ask("GET", "/healthz").status == 200
    for byte in PREFACE[:-1]:
        slow = world.connect()
        slow.send(bytes((byte,)))
    assert b"HTTP/1.1 400 " in world.raw(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
    assert b"HTTP/1.1 400 " in world.raw(b"PRI * HTTP/1.1\r\n\r\n")
    assert b"HTTP/1.1 200 " in world.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")


def test_an_upgrade_to_h2c_is_ignored(world: World) -> None:
    """R-NET-1: the answer is HTTP/1.1's own."""
    fields = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    answer = world.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_the_settings_announced(world: World) -> None:
    """R-NET-5: windows of 1 MiB and 4 MiB, 1024 streams, no extended CONNECT."""
    client = Client(world)
    client.exchange()
    settings = client.h2.server_settings
    assert settings[SettingCodes.INITIAL_WINDOW_SIZE] == 1 << 20
    assert settings[SettingCodes.MAX_CONCURRENT_STREAMS] == 1024
    assert not settings.get(SettingCodes.ENABLE_CONNECT_PROTOCOL)
    assert client.h2.h2.outbound_flow_control_window == 4 << 20


def test_a_silent_client_is_pinged_and_dropped_when_it_does_not_answer(world: World) -> None:
    """R-NET-5: after 20 s and 20 s; one that answers stays for as long as it likes."""
    alive, dead = Client(world), Client(world)
    alive.exchange()
    dead.exchange()
    for _ in range(6):
        world.advance_ms(18_000)
        alive.exchange()
    assert dead.connection.ended
    assert len(alive.h2.pings) >= 2
    assert alive.ask("GET", "/healthz").status == 200


def test_a_reset_stream_gives_back_what_it_held(make_world: MakeWorld) -> None:
    """R-NET-11: the cap of requests in flight of a key is free again."""
    world = make_world(api_keys="key", max_inflight_per_key=1)
    client = Client(world)
    auth = {"authorization": "Bearer key", "content-type": "application/json"}
    assert client.connection is not None
    create = client.h2.begin("PUT", "/v0/topics/t", None, auth)
    assert client.answered(create).status == 201
    for _ in range(2):
        poll = client.h2.begin("POST", "/v0/topics/t/diff", b'{"wait_ms":20000}', auth)
        client.exchange()
        assert client.h2.seen[poll].status == 0
        refused = client.h2.begin("GET", "/v0/topics/t", None, auth)
        assert client.answered(refused).status == 429
        client.h2.h2.reset_stream(poll)
        client.exchange()


def test_a_stop_says_goaway_and_answers_what_is_under_way(world: World) -> None:
    """R-NET-2, R-LIFE-7: a waiting poll ends empty, a new request is refused, then the connection ends."""
    client = Client(world)
    assert client.ask("PUT", "/v0/topics/t").status == 201
    poll = client.h2.begin("POST", "/v0/topics/t/diff", b'{"wait_ms":20000}', {"content-type": "application/json"})
    client.exchange()
    world.begin_stop()
    assert client.answered(poll).response.json["records"] == []
    assert client.h2.goaways[0] == (0, (1 << 31) - 1)
    assert client.ask("GET", "/v0/topics/t").status == 503
    assert client.connection.ends(5000)
    assert world.finish_stop() == 0


def test_the_websocket_path_is_no_path_for_http_2(world: World) -> None:
    """R-NET-2, 11.1: 405 whatever the method; there is no extended CONNECT."""
    client = Client(world)
    for method in ("GET", "POST", "PUT", "HEAD", "DELETE"):
        assert client.ask(method, "/v0/ws").status == 405
