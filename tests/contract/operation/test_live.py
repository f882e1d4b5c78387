"""The contract on real processes, files and sockets: what a simulated machine cannot vouch for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forked import run, without_settings
from tests.contract.world.live_world import LiveWorld
from tests.contract.world.world import tombstone


def test_a_killed_server_comes_back_with_all_it_acknowledged(live_world: LiveWorld) -> None:
    """R-DUR-2, R-DUR-3, R-DUR-6, R-DUR-12, R-DUR-1: kill -9 on real files, twice, writing all the time."""
    world = live_world
    world.start()
    world.put("d", durability="disk", cap_records=1000)
    world.put("f", durability="fsync")
    for life in range(2):
        for number in range(50):
            world.write("d", [life, number], idempotency_key=f"{life}.{number}")
            world.write("f", [life, number])
        world.delete("f", before_seq=10)
        heads = {topic: world.state(topic)["head_seq"] for topic in "df"}
        world.crash_and_start()
        for topic in "df":
            state = world.state(topic)
            assert state["head_seq"] == heads[topic] == 50 * (life + 1)
            assert state["config"]["durability"] == {"d": "disk", "f": "fsync"}[topic]
        assert world.data("d") == [[each, n] for each in range(life + 1) for n in range(50)]
        assert world.data("f") == [[each, n] for each in range(life + 1) for n in range(50)][9:]
        assert world.write("d", "again", idempotency_key=f"{life}.7")["seqs"] == [50 * life + 8]


def test_a_kill_in_the_middle_of_writes_loses_no_answer(live_world: LiveWorld) -> None:
    """R-DUR-2: what a client got an answer for is there; the rest is there whole or not at all."""
    world = live_world
    world.start()
    world.put("t", durability="fsync")
    acknowledged: dict[int, Any] = {}
    connection = world.connect()
    killer = threading.Timer(0.15, world.process.kill)  # type: ignore[union-attr]
    number = 0
    try:
        while True:
            data = [number, "x" * (number % 700)]
            answer = connection.request("POST", "/v0/topics/t", {"records": [{"data": data}, {"data": data}]}).json
            acknowledged |= dict.fromkeys(answer["seqs"], data)
            if number == 0:
                killer.start()
            number += 1
    except AssertionError:
        killer.join()
    world.crash_and_start()
    found = {}
    cursor = 0
    while True:
        page = world.diff("t", cursor, limit=1000)
        found |= {record["$seq"]: record["data"] for record in page["records"]}
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert {seq: found.get(seq) for seq in acknowledged} == acknowledged
    assert len(found) - len(acknowledged) in (0, 2)


def test_sigterm_drains_and_exits_with_0(live_world: LiveWorld) -> None:
    """R-LIFE-7, R-LIFE-8: a parked poll is answered, an idle connection does not hold it up."""
    world = live_world
    world.start(shutdown_grace_ms=60_000)
    world.write("t", 1)
    idle = world.connect()
    assert idle.request("GET", "/healthz").status == 200
    waiting = world.ask("POST", "/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 30_000})
    assert waiting.waiting
    world.begin_stop()
    answer = waiting.answer()
    assert (answer.status, answer.json["records"], answer.header("connection")) == (200, [], "close")
    assert world.finish_stop(within_ms=30_000) == 0, "the grace is longer"
    world.start()
    assert world.data("t") == [1]


def test_the_port_file_is_complete_and_names_a_port_that_is_bound(live_world: LiveWorld) -> None:
    """R-LIFE-2: host and port without a newline; port 0 is a free one."""
    live_world.start()
    text = live_world.port_file.read_text()
    host, _, port = text.partition(":")
    assert (host, text) == ("127.0.0.1", text.strip())
    assert int(port) > 0
    assert live_world.request("GET", "/healthz").status == 200
    assert [path.name for path in live_world.port_file.parent.glob("port*")] == ["port"], "no temporary file is left"


def test_starting_up_says_whether_keys_are_asked_for(live_world: LiveWorld) -> None:
    """R-LIFE-3: before the first request."""
    live_world.start()
    assert "auth" in live_world.stderr()


def test_a_recovering_server_answers_503(live_world: LiveWorld) -> None:
    """R-LIFE-4, R-LIFE-5: the port is bound first; nothing is served half recovered."""
    world = live_world
    world.start()
    for _ in range(20):
        world.write("t", *range(10_000))
    world.crash()
    world.start(ready=False)
    seen = []
    while True:
        answer = world.request("GET", "/v0/topics/t?touch=false")
        seen.append(answer.status)
        if answer.status == 200:
            assert answer.json["head_seq"] == 200_000
            break
        assert answer.refusal[:2] == (503, "not_ready")
        assert answer.header("retry-after") == "1"
        assert world.request("GET", "/healthz").status == 200
    assert seen[0] == 503 or len(seen) == 1


BAD_STARTS: list[dict[str, str]] = [
    {"TOPICS_PORT": "http"},
    {"TOPICS_PORT": ""},
    {"TOPICS_PORT": " 4000"},
    {"TOPICS_PORT": "70000"},
    {"TOPICS_HOST": "0.0.0.0"},
    {"TOPICS_HOST": "::"},
    {"TOPICS_HOST": "no-such-host.invalid"},
    {"TOPICS_DATA_DIR": "/proc/nothing/here"},
    {"TOPICS_PORT_FILE": "/proc/nothing/port"},
    {"TOPICS_API_KEYS": "secret:nonsense"},
]


@pytest.mark.parametrize("case", BAD_STARTS, ids=lambda case: " ".join(f"{name}={case[name]}" for name in case))
def test_a_wrong_setting_is_fatal_before_the_port_is_bound(tmp_path: Path, case: dict[str, str]) -> None:
    """R-LIFE-1, R-LIFE-2, 14: a sentence on stderr and a non-zero exit."""
    clean = without_settings()
    done = run(["serve"], {**clean, "TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path), **case})
    assert done.code > 0, done.stderr
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_directory_in_use_is_refused(live_world: LiveWorld) -> None:
    """R-LIFE-1, R-LIFE-2: in a process of its own."""
    live_world.start()
    clean = without_settings()
    env = {**clean, "TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(live_world.directory / "data")}
    done = run(["serve"], env)
    assert done.code > 0
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_settings_come_from_the_environment(live_world: LiveWorld) -> None:
    """14: blanks trimmed, what cannot be parsed is the default, booleans are only on for true and 1."""
    live_world.start(
        max_topics=" 2 ", max_batch_records="many", max_tag_bytes="-4", wal_shards="0", allow_insecure_no_auth="yes"
    )
    world = live_world
    world.put("a")
    world.put("b")
    assert world.request("PUT", "/v0/topics/c").refusal == (429, "throttled", {"limit": "max_topics", "max": 2})
    world.write("a", 1, 2, 3)
    world.write_records("a", [{"data": 1, "tag": "long enough"}])


@pytest.mark.parametrize("host", ["127.0.0.1:0", "[::1]:0", "::1", "localhost", "127.1"])
def test_a_host_may_carry_the_port_and_loopback_needs_no_keys(tmp_path: Path, host: str) -> None:
    """14, R-LIFE-1: also in brackets; a bare IPv6 address is a host. However it is spelled, no foreign Host is served
    there."""
    world = LiveWorld(tmp_path, host=host, port=0 if ":0" not in host else 1)
    try:
        world.start()
    except AssertionError as error:
        if "::1" in host and "assign" in str(error):
            pytest.skip("no IPv6 here")
        raise
    else:
        assert world.request("GET", "/v0/topics", headers={"Host": "evil.example"}).status == 403
        assert world.request("GET", "/v0/topics", headers={"Host": host}).status == 200
    finally:
        world.close()


def test_two_readers_and_a_cap_on_a_real_server(live_world: LiveWorld) -> None:
    """TV-1, R-NET-3: the first vector, over sockets."""
    world = live_world
    world.start()
    world.put("t", cap_records=3)
    world.write_singly("t", *range(1, 7))
    page = world.diff("t")
    assert page["tombstone"] == tombstone(1, 3, "cap", 6)
    assert [record["$seq"] for record in page["records"]] == [4, 5, 6]


def test_a_server_with_keys_shows_them_to_no_client(live_world: LiveWorld) -> None:
    """R-LIFE-3, 4.1: neither its log nor its files hold a key that was configured or tried; its files are its own."""
    live_world.start(api_keys="sesame-one:rw+a,sesame-two:r:p")
    for token in ("sesame-one", "sesame-two", "sesame-wrong", "sesame-one, sesame-two"):
        auth = {"Authorization": f"Bearer {token}"}
        for method, path in (("PUT", "/v0/topics/p1"), ("GET", "/v0/topics"), ("GET", "/nowhere"), ("GET", "/v0/ws")):
            live_world.request(method, path, headers=auth)
        live_world.request("GET", f"/v0/topics/p1/work?node=n&token={token.replace(' ', '%20')}")
        live_world.raw(f"GET /v0/topics HTTP/1.1\r\nAuthorization: Bearer {token}\r\nBroken\r\n\r\n".encode())
    assert live_world.request("GET", "/v0/metrics", headers={"Authorization": "Bearer sesame-two"}).status == 200
    directory = live_world.directory / "data"
    assert live_world.stop() == 0
    told = live_world.stderr()
    assert "auth: on, 2 keys" in told
    assert "sesame" not in told
    for path in [directory, *directory.rglob("*")]:
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert path.is_dir() or b"sesame" not in path.read_bytes()
