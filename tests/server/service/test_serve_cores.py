"""The process that starts a process for each core: with stubs in their place, and with whole servers."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import topics
from tests.server.service.cores_process import CoresProcesses, begun, end_of, running
from topics.config import Config
from topics.errors import LockedError, StorageError, UsageError
from topics.loop.choose import open_loop
from topics.server.processes import core_locks
from topics.server.processes.serve_cores import serve_cores
from topics.store.cores.core_directories import read_cores
from topics.store.cores.slot_map import SlotMap

Serve = Callable[..., int]
NO_CORE = "this server has an archive for each of its cores: name one by core"


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serve with a stub for each core, and return the exit code."""

    def served(*stubs: str, **settings: Any) -> int:
        monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
        monkeypatch.setenv("STUBS", json.dumps(stubs))
        monkeypatch.setenv("STUB_PORT_FILE", f"{tmp_path}/port")
        given = {"data_dir": f"{tmp_path}/data", "port": 0, "port_file": f"{tmp_path}/port", **settings}
        return serve_cores(Config(**given), len(stubs), "stub_core")

    return served


def slots_of(directory: Path) -> SlotMap:
    config = Config(data_dir=f"{directory}/data")
    with open_loop(config) as loop:
        layout = loop.run_task(read_cores(loop.files, config.data_dir))
    assert layout is not None
    return layout.slots


# --- stubs ------------------------------------------------------------------------------------------------------------
def test_it_is_ready_when_all_are_and_ends_with_0_after_all(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, caplog.at_level(logging.INFO):
        manager.bind(f"{tmp_path}/manager")
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/manager")
        reports: list[str] = []

        def read() -> None:  # the kernel holds only some
            while "STOPPING=1" not in reports:
                reports.extend(manager.recv(4096).decode().split("\n"))

        reader = threading.Thread(target=read)
        reader.start()
        assert serve("ready wait", "ready port stop wait") == 0
        reader.join()
    assert reports[0] == "STATUS=preparing the directories of cores"
    assert "READY=1" in reports
    assert "STATUS=core 0 serving; core 1 serving" in reports
    assert [record for record in caplog.records if record.getMessage().startswith("all cores are ready")]
    host, port = (tmp_path / "port").read_text().split(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)


def test_a_core_gets_the_settings_and_the_port_and_keys_in_no_place_that_others_see(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_API_KEYS", "secret:read")
    deep = f"{tmp_path}/{'deep' * 30}"  # the name of a socket has 107 bytes at most
    assert serve("note ready wait", "note ready port stop wait", api_keys="secret:read", data_dir=deep) == 0
    for core in range(2):
        note = json.loads((tmp_path / f"port.{core}").read_text())
        assert note["argv"][1] == str(core)
        assert "secret" not in json.dumps([note["argv"], note["variables"]])
        assert note["variables"]["NOTIFY_SOCKET"] == f"{deep}/core-{core:02d}/reports"
        assert int(note["variables"]["WATCHDOG_USEC"]) > 0
        assert note["group"], "a signal of the terminal comes once, by the supervisor"
        assert (note["config"]["api_keys"], note["config"]["port_file"]) == ("secret:read", "")
        assert (tmp_path / "port").read_text().endswith(f":{note['config']['port']}")


def test_the_settings_come_as_they_were_given() -> None:
    config = Config(allowed_hosts=("a", "b"), compact_below=0.25, sync_every_ms=None, access_log="é")
    assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config


def test_a_stop_before_a_core_handles_signals_is_no_failure(serve: Serve) -> None:
    assert serve("stop wait", "wait") == 0


def test_a_core_that_ends_before_it_was_ready_ends_all_with_its_code(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert serve("ready wait", "exit:3") == 3
    assert "core 1 ended with 3 before it was ready" in caplog.text
    assert not (tmp_path / "port").exists()


def test_a_port_file_that_cannot_be_written_ends_all(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    assert serve("ready wait", "ready wait", port_file="/no/such/directory/port") == 1
    assert "/no/such/directory/port" in caplog.text


# --- what is refused --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cores", "settings", "said"),
    [
        (0, {}, "cores is 0: use 1 to 1024"),
        (1025, {}, "cores is 1025: use 1 to 1024"),
        (2, {"host": "0.0.0.0"}, "TOPICS_API_KEYS"),
        (2, {"access_log": "-"}, "access_log is -"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, cores: int, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        serve_cores(Config(data_dir=f"{tmp_path}/data", port=0, **settings), cores, "none")
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as caught:
            serve_cores(Config(data_dir=f"{tmp_path}/data", port=port), 2, "none")
    assert caught.value.filename == f"127.0.0.1:{port}"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_or_broken_starts_no_core(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    log = topics.open(data)
    with pytest.raises(LockedError, match="is in use"):
        serve("exit:7", "exit:7")
    log.close()
    assert serve("exit:7", "ready wait") == 7, "from here on it is one of two cores"
    monkeypatch.setattr(core_locks, "_CLOSE_NS", 0)
    with (data / "core-01" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a core does whose supervisor was killed
        with pytest.raises(LockedError, match="core-01 is in use by another process"):
            serve("exit:7", "exit:7", shutdown_grace_ms=0)
    (data / "core-01").rename(tmp_path / "core-01")
    with pytest.raises(StorageError, match="core-01 is missing, .* put it back"):
        serve("exit:7", "exit:7")
    (tmp_path / "core-01").rename(data / "core-01")
    (data / "core-01" / "topics.json").write_text("")
    with pytest.raises(StorageError, match="the marker topics.json is missing or damaged: .*write this to it"):
        serve("exit:7", "exit:7")


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_the_cores_ends_at_once_and_the_next_start_continues(
    serve: Serve, tmp_path: Path, number: signal.Signals, cores: int
) -> None:
    """Slots may be moving then. A SIGHUP before it is no order to stop (R-LIFE-10)."""
    topics.open(tmp_path / "data").close()
    assert serve("exit:7", "ready wait") == 7, "from here on it is one of two cores"
    with (tmp_path / "data" / "core-01" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with begun(tmp_path, cores) as process:
            assert process.stderr is not None
            assert any("core-01 is in use, and waited for" in line for line in process.stderr)
            process.send_signal(signal.SIGHUP)
            process.send_signal(number)
            assert "stopped before the cores" in process.stderr.read()
            assert process.wait() == 0
    assert serve("exit:7", "ready wait") == 7


# --- whole servers ----------------------------------------------------------------------------------------------------
NAMES = [f"t{number}" for number in range(8)]


def append_to_all(server: CoresProcesses, seq: int) -> None:
    assert [server.append(name, seq) for name in NAMES] == [seq] * len(NAMES)


def test_cores_serve_one_port_and_outlive_each_other_and_not_their_supervisor(tmp_path: Path) -> None:
    """The directory is one that one core has used. Three cores have it in the end."""
    with topics.open(tmp_path / "data") as log:
        for name in NAMES:
            log.append(name, [1])
    keys = tmp_path / "keys"
    keys.write_text("first")
    keys.chmod(0o600)
    with running(tmp_path, 2, key="first", api_keys_file=str(keys)) as server:
        slots = slots_of(tmp_path)
        of_core = {core: [name for name in NAMES if slots.core_of(name) == core] for core in range(2)}
        assert all(of_core.values()), "choose other names"
        append_to_all(server, 2)

        pids = server.pids()
        server.process.send_signal(signal.SIGSTOP)  # so that the core stays away
        os.kill(pids[1], signal.SIGKILL)
        for name in of_core[0]:
            assert server.records(name) == [1, 2]
        status, refusal = server.ask("GET", f"/v0/topics/{of_core[1][0]}")
        assert (status, refusal["error"]["code"]) == (503, "not_ready")
        server.process.send_signal(signal.SIGCONT)
        server.wait_for("core 1 ended with -9; it is started again", "core 1 topics.server: ready after")
        assert server.pids()[0] == pids[0]
        append_to_all(server, 3)

        keys.write_text("first\nsecond")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("core 0 topics.server: keys read again: 2", "core 1 topics.server: keys read again: 2")

        ends = [end_of(pid) for pid in server.pids().values()]
        server.process.kill()
        server.process.wait()
    with running(tmp_path, 3, key="second", api_keys_file=str(keys)) as server:
        for end in ends:
            end()
        assert set(map(slots_of(tmp_path).core_of, NAMES)) == {0, 1, 2}, "choose other names"
        for name in NAMES:
            assert server.records(name) == [1, 2, 3]
        append_to_all(server, 4)
        pids = server.pids()
        assert sorted(pids) == [0, 1, 2]
        assert len(list((tmp_path / "data").glob("core-*/mailbox"))) == 3
        assert server.stop() == 0
        assert [path for path in (tmp_path / "data").rglob("*") if path.is_socket()] == [], "none stays"
        assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]


def backed_up(server: CoresProcesses) -> dict[str, Any]:
    """The newest backup, once it has ended."""
    backup: dict[str, Any] = {"state": "running"}
    while backup["state"] == "running":
        status, answer = server.ask("GET", "/v0/backups")
        assert status in (200, 503), answer
        backup = answer["backup"] if status == 200 else backup
    return backup


def test_a_backup_of_cores_that_serve_is_whole_or_none_whichever_is_killed(tmp_path: Path) -> None:
    """R-CORE-14: what was acknowledged before it is in it, also if a core is killed amid the next one."""
    backups = tmp_path / "backups"
    with running(tmp_path, 2, backup_dir=str(backups)) as server:
        names = {slots_of(tmp_path).core_of(name): name for name in NAMES}
        router = {"source": names[0], "dest": names[1], "create_source": True, "create_dest": True}
        assert server.ask("PUT", "/v0/routers/r", router)[0] == 201
        for number in range(10):
            server.append(names[0], number)
        assert server.ask("POST", "/v0/backups")[0] == 200
        whole = backed_up(server)
        assert whole["state"] == "done", whole
        for core in range(2):
            pid = server.pids()[core]
            assert server.ask("POST", "/v0/backups")[0] == 200
            os.kill(pid, signal.SIGKILL)
            server.wait_for(f"core {core} ended with -9; it is started again", f"core {core} topics.server: ready")
            backed_up(server)
        assert server.stop() == 0
    made = sorted(path for path in backups.iterdir() if path.suffix != ".partial")
    assert str(made[0]) == whole["path"]
    for number, path in enumerate(made):
        assert topics.verify_backup(path).sound
        topics.restore(path, tmp_path / f"new-{number}" / "data", skipped_seqs=1000)
        with running(tmp_path / f"new-{number}", 2) as server:
            for name in names.values():
                assert server.records(name) == list(range(10))


def test_an_archive_of_cores_that_serve_leads_to_all_that_was_acknowledged(tmp_path: Path) -> None:
    """R-CORE-16: also if a core was killed, and after a stop. Another number of cores continues the archive."""
    settings = {"archive_dir": str(tmp_path / "archive"), "archive_every_ms": 10}
    for cores, number in ((2, 1), (3, 2)):
        with running(tmp_path, cores, **settings) as server:
            append_to_all(server, 2 * number - 1)
            os.kill(server.pids()[1], signal.SIGKILL)
            server.wait_for("core 1 ended with -9; it is started again", "core 1 topics.server: ready")
            append_to_all(server, 2 * number)
            status, refusal = server.ask("GET", "/v0/archive")
            assert (status, NO_CORE in refusal["error"]["message"]) == (400, True)
            written_ms = time.time_ns() // 1_000_000
            while max((end for _, _, end in topics.verify_backup(tmp_path / "archive").ranges), default=0) < written_ms:
                for core in range(cores):  # an idle core notes its time once a second while a mirror asks
                    assert server.ask("GET", f"/v0/archive?core={core}&mirror=cellar&upto_ms=0")[0] in {200, 503}
            assert server.stop() == 0
        assert topics.verify_backup(tmp_path / "archive").sound
        topics.restore(tmp_path / "archive", tmp_path / f"new-{cores}" / "data", skipped_seqs=1000)
        with running(tmp_path / f"new-{cores}", cores) as server:
            for name in NAMES:
                assert server.records(name) == list(range(1, 2 * number + 1))


@pytest.mark.slow
@pytest.mark.parametrize("io", ["uring", "portable"])
def test_any_number_of_cores_after_any_other_one_has_every_record(tmp_path: Path, io: str) -> None:
    for seq, cores in enumerate((2, 3, 1, 4, 2, 1), 1):
        with running(tmp_path, cores, io=io) as server:
            append_to_all(server, seq)
            for name in NAMES:
                assert server.records(name) == list(range(1, seq + 1))
            assert server.stop() == 0
