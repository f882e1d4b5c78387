"""Reports to a service manager: when the server is ready, what it does, and that it is alive."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.forked import Forked
from tests.server.server_world import World
from topics.server.service_manager import ServiceManager, ServiceReports, service_manager_of

_EXTENDED = "EXTEND_TIMEOUT_USEC=30000000"


class ReportedWorld:
    """A simulated server in recovery, and the manager that gets its reports."""

    def __init__(self, watchdog_ms: int = 0) -> None:
        self.world = World()
        self.world.recovered = False
        self._received = self.world.ring.network.datagrams["@manager"] = []
        manager = ServiceManager("@manager", watchdog_ms * 1_000_000)
        self.reports = ServiceReports(self.world.loop, manager, self.world.server)
        self.world.start()
        self.reports.start()

    def taken(self) -> list[str]:
        """The lines of all reports since the last call."""
        lines = [line for datagram in self._received for line in datagram.decode().split("\n")]
        self._received.clear()
        return lines

    def recover(self) -> None:
        self.world.recovered = True
        self.world.run_ms(5)
        self.reports.look()


def test_a_start_is_extended_while_it_recovers_and_says_how_far_it_is() -> None:
    reported = ReportedWorld()
    assert reported.taken() == ["STATUS=recovering: 0% done", _EXTENDED]
    reported.world.progress(0.42)
    reported.world.run_ms(1000)
    assert reported.taken() == ["STATUS=recovering: 42% done", _EXTENDED]
    reported.world.run_ms(3000)
    assert reported.taken() == [_EXTENDED] * 3


def test_ready_is_reported_once_and_after_the_recovery() -> None:
    reported = ReportedWorld()
    assert "READY=1" not in reported.taken()
    reported.recover()
    address = reported.world.server.address
    assert reported.taken() == ["READY=1", f"STATUS=serving on http://{address[0]}:{address[1]}"]
    reported.world.run_ms(5000)
    assert reported.taken() == []


def test_a_log_that_takes_no_writes_is_a_status_in_one_line() -> None:
    reported = ReportedWorld()
    reported.recover()
    reported.taken()
    reported.world.backend.log.read_only = "a write failed:\nREADY=0"
    reported.world.run_ms(1000)
    assert reported.taken() == ["STATUS=the log takes no writes any more: a write failed: READY=0"]


def test_a_stop_is_reported_and_extended_until_the_log_is_closed() -> None:
    reported = ReportedWorld()
    reported.recover()
    reported.world.connect()
    reported.taken()
    reported.world.server.stop()
    reported.reports.look()
    assert reported.taken() == ["STOPPING=1", "STATUS=stopping: 1 connections", _EXTENDED]
    reported.world.run_ms(2000)
    assert reported.taken()[:2] == ["STATUS=stopping: closing the log", _EXTENDED]


def test_the_watchdog_hears_of_every_half_of_its_time_also_in_recovery() -> None:
    reported = ReportedWorld(watchdog_ms=2000)
    reported.world.run_ms(1100)
    assert reported.taken().count("WATCHDOG=1") == 2
    reported.recover()
    reported.taken()
    reported.world.run_ms(10_000)
    assert reported.taken() == ["WATCHDOG=1"] * 10


def test_a_loop_that_makes_no_pass_is_not_reported_alive() -> None:
    reported = ReportedWorld(watchdog_ms=2000)
    reported.recover()
    reported.taken()
    reported.world.loop.clock.advance_ns(10_000_000_000)  # type: ignore[attr-defined]
    assert reported.taken() == []


def test_a_manager_that_is_gone_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reported = ReportedWorld(watchdog_ms=2000)
    reported.world.ring.network.datagrams.clear()
    reported.world.run_ms(5000)
    told = [record.message for record in caplog.records if "service manager" in record.message]
    assert told == ["the service manager at @manager gets no reports: No such file or directory"]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": ""}, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, None),
        ({"NOTIFY_SOCKET": "/run/notify"}, ServiceManager("/run/notify", 0)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "5"}, ServiceManager("@n", 5000)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "7"}, ServiceManager("@n", 5000)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "8"}, ServiceManager("@n", 0)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "x"}, ServiceManager("@n", 0)),
    ],
)
def test_the_manager_is_the_one_that_the_variables_name(env: dict[str, str], expected: ServiceManager | None) -> None:
    assert service_manager_of(env, 7) == expected


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_a_process_reports_its_start_and_its_stop(tmp_path: Path, io: str) -> None:
    """With a socket in the place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, (tmp_path / "log").open("wb") as log:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        server = Forked(
            ["serve", "--data-dir", str(tmp_path / "data"), "--port", "0", "--io", io], environment, log.fileno()
        )
        reports: list[str] = []

        def wait_for(line: str) -> None:
            while line not in reports:
                reports.extend(manager.recv(4096).decode().split("\n"))

        try:
            wait_for("READY=1")
            assert reports[0].startswith("STATUS=recovering")
            assert "WATCHDOG=1" in reports
            server.send_signal(signal.SIGTERM)
            wait_for("STOPPING=1")
            assert server.wait(60) == 0
        finally:
            server.kill()
