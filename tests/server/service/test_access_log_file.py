"""The access log: a line for every answer, in batches, without a request that waits for it."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.world.sim_world import SimWorld
from tests.http.http2.h2_peer import H2Client
from tests.server.lane_streams import plain, plain_read
from tests.server.server_world import World
from tests.server.test_command import COMMAND, Process
from topics.config import Config
from topics.server.access_log_file import check_access_log

PATH = "/access.log"
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def world_with(form: str = "json", **settings: Any) -> World:
    return World(access_log=PATH, access_log_format=form, **settings).start()


def text(world: Any) -> str:
    return bytes(world.ring.disk.find(PATH).live).decode()


def lines(world: World) -> list[dict[str, Any]]:
    world.run_ms(world.config.access_log_every_ms + 1)
    return [json.loads(line) for line in text(world).splitlines()]


def test_a_line_has_what_was_asked_and_what_was_answered() -> None:
    world = world_with(api_keys="first:r,second")
    answer = world.connect().get("/v0/metrics?limit=3", "Authorization: Bearer second", "X-Request-Id: a-1")
    (line,) = lines(world)
    assert 0 <= line.pop("duration_seconds") < 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "remote": "127.0.0.1",
        "method": "GET",
        "path": "/v0/metrics",
        "protocol": "HTTP/1.1",
        "status": answer.status,
        "bytes_in": 0,
        "bytes_out": len(answer.body),
        "route": "GET /v0/metrics",
        "principal": "key-2",
        "request_id": "a-1",
    }


def test_refusals_and_heads_that_are_no_request_have_lines_too() -> None:
    world = world_with(api_keys="first")
    world.connect().get("/v0/topics")
    world.connect().get("/none", "Authorization: Bearer first")
    world.connect().ask(b"BAD\r\n\r\n")
    shown = [(line["status"], line["method"], line["path"], line["route"], line["principal"]) for line in lines(world)]
    assert shown == [
        (401, "GET", "/v0/topics", "GET /v0/topics", None),
        (404, "GET", "/none", None, "key-1"),
        (400, None, None, None, None),
    ]


def test_the_combined_format_has_further_fields_at_its_end() -> None:
    world = world_with("combined")
    size = len(world.connect().get("/healthz").body)
    lines_of = r"127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "
    world.run_ms(101)
    assert re.fullmatch(
        lines_of + rf'"GET /healthz HTTP/1\.1" 200 {size} "-" "-" 0 0\.\d{{6}} "GET /healthz" "-"\n', text(world)
    )


@pytest.mark.parametrize("form", ["combined", "json"])
def test_no_client_makes_a_line_or_ends_a_field(form: str) -> None:
    """Nor is a query shown, where a key may be; a path is cut."""
    world = world_with(form)
    world.connect().get('/a"%0ab\\c?token=secret', 'X-Request-Id: q" "\u00e9')
    world.connect().get(f"/{'x' * 5000}")
    world.run_ms(101)
    shown = text(world)
    assert shown.count("\n") == 2
    assert "secret" not in shown
    assert len(shown) < 5000
    if form == "combined":
        assert '"GET /a\\x22%0ab\\x5cc HTTP/1.1"' in shown
        assert shown.splitlines()[0].endswith('"q\\x22 \\x22\\xc3\\xa9"')
    else:
        assert json.loads(shown.splitlines()[0])["path"] == '/a"%0ab\\c'


def test_the_lane_and_the_general_path_have_the_same_lines() -> None:
    """Lone requests are taken by the lane also with an access log; several of a pass are not."""
    shown = []
    for lane in ("auto", "off"):
        world = SimWorld(only_woken=True, http_lane=lane, access_log=PATH, access_log_format="json")
        world.start()
        conn = world.connect()
        for _ in range(4):
            conn.send(plain("t", field="X-Forwarded-For: 10.0.0.1")).answer("POST")
            conn.send(plain_read("t", field="traceparent: 00-a-b-01")).answer("POST")
        conn.send(plain("t", field="X-Request-Id: a-1")).answer("POST")
        server, loop = world.server, world.loop
        assert server is not None
        assert loop is not None
        assert server.lane is None or server.lane.taken >= 3
        log = server.access_log
        assert log is not None
        loop.run_until(lambda log=log: log.written == 9)  # type: ignore[misc]
        found = [json.loads(line) for line in text(world).splitlines()]
        for line in found:
            del line["time"], line["duration_seconds"]
        shown.append(found)
    assert shown[0] == shown[1]
    assert shown[0][8]["request_id"] == "a-1"
    assert [line["route"] for line in shown[0][:2]] == ["POST /v0/topics/:topic", "POST /v0/topics/:topic/diff"]


def test_streams_http2_and_websockets_have_a_line_when_they_open() -> None:
    world = SimWorld(access_log=PATH, access_log_format="json")
    world.start()
    world.connect().request("POST", "/v0/topics/t", {"records": []})
    opening = "\r\n".join(("GET /v0/ws HTTP/1.1", "Host: localhost", *WEBSOCKET, "", ""))
    world.connect().send(opening.encode())
    peer = H2Client()
    peer.begin("GET", "/healthz")
    world.connect().send(peer.take())
    server, loop = world.server, world.loop
    assert server is not None
    assert loop is not None
    log = server.access_log
    assert log is not None
    loop.run_until(lambda: log.written == 3)
    _, *shown = [json.loads(line) for line in text(world).splitlines()]
    found = {(line["status"], line["path"], line["protocol"], line["bytes_out"] is None) for line in shown}
    assert found == {(101, "/v0/ws", "HTTP/1.1", True), (200, "/healthz", "HTTP/2.0", False)}


def test_many_lines_are_one_write() -> None:
    world = world_with()
    client = world.connect()
    world.run_ms(1)
    before = world.ring.effects
    for _ in range(20):
        client.tcp.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert len(lines(world)) == 20
    assert world.ring.effects - before < 20
    assert world.server.access_log is not None
    assert world.server.access_log.written == 20


def test_a_slow_disk_costs_lines_and_no_request_and_both_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "topics.server")
    world = world_with(access_log_bytes=4096, access_log_every_ms=1)
    world.ring.slow_ns["write"] = 1_000_000_000
    client = world.connect()
    for _ in range(60):
        assert client.get("/healthz").status == 200, "no request waits"
    log = world.server.access_log
    assert log is not None
    assert log.dropped > 20
    assert "the access log /access.log is too slow: 1 lines were dropped" in caplog.text
    world.ring.slow_ns.clear()
    world.run_ms(2000)
    assert log.written + log.dropped == 60
    written, page = log.written, client.get("/v0/metrics").body.decode()
    assert f"topics_access_log_dropped_total {float(log.dropped)}" in page
    assert f"topics_access_log_lines_total {float(written)}" in page


def test_a_failing_disk_is_told_once_and_lines_come_again_after_it(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(access_log_every_ms=1)
    world.ring.faults.fail("write", errno.ENOSPC, times=2, path_part=PATH)
    for _ in range(3):
        world.connect().get("/healthz")
    assert len(lines(world)) == 1
    assert caplog.text.count("the access log /access.log takes no lines: No space left on device") == 1


def test_a_stop_writes_the_last_lines_whatever_the_interval() -> None:
    world = world_with(access_log_every_ms=60_000)
    world.connect().get("/healthz")
    world.server.stop()
    world.loop.run_until(lambda: bool(world.codes))
    assert text(world).count("\n") == 1


def test_a_file_that_cannot_be_opened_refuses_the_start(tmp_path: Path) -> None:
    """R-LIFE-1."""
    with pytest.raises(OSError, match="No such file or directory"):
        check_access_log(Config(access_log=str(tmp_path / "none" / "log")))
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic link"):
        check_access_log(Config(access_log=str(tmp_path / "link")))
    check_access_log(Config(access_log=str(tmp_path / "log")))
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) & 0o027 == 0


def test_a_hangup_opens_the_file_again_for_logrotate(tmp_path: Path) -> None:
    """R-LIFE-10."""
    log = tmp_path / "log"
    process = Process(tmp_path, "--access-log", str(log))
    process.ask("GET", "/healthz")
    while not log.read_text():
        process.ask("GET", "/healthz")
    log.rename(tmp_path / "log.1")
    process.process.send_signal(signal.SIGHUP)
    while not log.exists() or "GET /readyz" not in log.read_text():  # a line of before may come into the new file
        process.ask("GET", "/readyz")
    assert process.stop() == 0
    assert "GET /healthz" in (tmp_path / "log.1").read_text()
    assert "GET /readyz" in log.read_text()


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_standard_output_that_nothing_reads_holds_up_no_request_and_no_stop(io: str, tmp_path: Path) -> None:
    """A pipe has room for 64 KiB: beyond it, lines wait, and are dropped."""
    port_file = tmp_path / "port"
    arguments = ["--data-dir", str(tmp_path / "data"), "--port", "0", "--port-file", str(port_file), "--io", io]
    environment = {**os.environ, "TOPICS_ACCESS_LOG": "-", "TOPICS_ACCESS_LOG_BYTES": "4096"}
    environment["TOPICS_ACCESS_LOG_EVERY_MS"] = "1"  # lines are lost for want of room in the pipe, and not of time
    server = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    process = Process.__new__(Process)
    process.process = server
    process.wait_for("ready after")
    process.address = port_file.read_text()
    for at in range(900):
        assert process.ask("POST", "/v0/topics/t", {"records": [{"data": at}]})["count"] == 1
    assert process.stop() == 0
    assert server.stdout is not None
    shown = server.stdout.read()
    assert 100 < shown.count("POST /v0/topics/t HTTP/1.1") < 900
