"""Refusals before the port is bound, and what other users may read (R-LIFE-1, R-LIFE-2)."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim import SimRing
from topics.config import Config
from topics.errors import UsageError
from topics.loop.loop import Loop
from topics.server.port_file import shown_address, write_port_file
from topics.server.startup import (
    check_address,
    check_config,
    connection_limit,
    only_this_machine,
    wait_for_port,
    wanted_cores,
)
from topics.uring.blocking import BlockingCalls


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "127.1", "2130706433", "::1", "localhost"])
def test_loopback_needs_no_keys_however_it_is_spelled(host: str) -> None:
    """R-LIFE-1."""
    check_config(Config(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no-such-host.invalid"])
def test_any_other_address_is_refused_unless_allowed(host: str) -> None:
    """R-LIFE-1."""
    with pytest.raises(UsageError, match="TOPICS_ALLOW_INSECURE_NO_AUTH"):
        check_config(Config(host=host))
    check_config(Config(host=host, allow_insecure_no_auth=True))


def test_an_address_that_is_not_the_one_resolved_before_is_refused_too() -> None:
    """R-LIFE-1: between looking and binding a name may change its meaning."""
    config = Config(host="log.example")
    with pytest.raises(UsageError, match="'log.example' can be reached from other machines"):
        check_address(config, has_keys=False, address="192.0.2.1")
    check_address(config, has_keys=True, address="192.0.2.1")
    check_address(replace(config, allow_insecure_no_auth=True), has_keys=False, address="192.0.2.1")
    check_address(config, has_keys=False, address="127.0.1.1")


def test_keys_open_any_address_and_blank_entries_are_no_keys() -> None:
    """R-LIFE-1."""
    check_config(Config(host="0.0.0.0", api_keys="secret:read"))
    with pytest.raises(UsageError, match="TOPICS_ALLOW_INSECURE_NO_AUTH"):
        check_config(Config(host="0.0.0.0", api_keys=" , "))
    with pytest.raises(UsageError, match="entry 2 of TOPICS_API_KEYS names an unknown scope"):
        check_config(Config(api_keys="a,b:reed"))


def test_the_port_file_holds_the_address_alone(tmp_path: Path) -> None:
    """R-LIFE-2."""
    path = tmp_path / "port"
    path.write_text("older and longer than the new one")
    write_port_file(str(path), ("127.0.0.1", 4000))
    assert path.read_bytes() == b"127.0.0.1:4000"
    assert list(tmp_path.iterdir()) == [path]
    assert shown_address(("::1", 80)) == "[::1]:80"
    missing, under_a_file = tmp_path / "missing" / "port", path / "port"
    for wrong, why in ((missing, FileNotFoundError), (under_a_file, NotADirectoryError)):
        with pytest.raises(why) as raised:
            write_port_file(str(wrong), ("127.0.0.1", 1))
        assert raised.value.filename == str(wrong)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_no_other_user_may_write_the_port_file_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """R-LIFE-2: nor is a link followed that another user put in its way."""
    path, elsewhere = tmp_path / "port", tmp_path / "elsewhere"
    elsewhere.write_text("not ours")
    (tmp_path / f"port.{os.getpid()}.tmp").symlink_to(elsewhere)
    before = os.umask(umask)
    try:
        write_port_file(str(path), ("127.0.0.1", 4000))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert not path.is_symlink()
    assert elsewhere.read_text() == "not ours"


def test_the_number_of_connections_is_as_set_or_what_descriptors_allow() -> None:
    assert connection_limit(Config(max_connections=7)) == 7
    assert connection_limit(Config()) != 7


def test_the_port_of_a_server_that_was_killed_is_waited_for() -> None:
    """A unit that starts it again at once was refused: the kernel had not taken its io_uring down yet."""
    loop = Loop(ring := SimRing(1), ring.clock)
    held, _address = ring.listen("127.0.0.1", 4000, 1)
    loop.call_later(300_000_000, lambda: loop.spawn(loop.files.close(held), "the kernel"))
    loop.run_task(wait_for_port(loop, Config(port=4000)))
    assert 300_000_000 <= ring.clock.monotonic_ns() < 350_000_000
    ring.listen("127.0.0.1", 4000, 1)


def test_a_port_that_stays_in_use_is_refused_after_a_second() -> None:
    """R-LIFE-1."""
    loop = Loop(ring := SimRing(1), ring.clock)
    ring.listen("127.0.0.1", 4000, 1)
    with pytest.raises(OSError, match="Address already in use"):
        loop.run_task(wait_for_port(loop, Config(port=4000)))
    assert 1_000_000_000 <= ring.clock.monotonic_ns() < 1_100_000_000
    loop.run_task(wait_for_port(loop, Config(port=0)))


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_a_name_that_no_host_can_have_is_an_error_that_names_it(host: str) -> None:
    assert not only_this_machine(host)
    with pytest.raises(OSError, match="cannot resolve the address to listen on: no host has such a name") as caught:
        BlockingCalls().listen(host, 0, 1)
    assert caught.value.filename == host


@pytest.mark.parametrize("name", ["cold_dir", "backup_dir", "archive_dir"])
@pytest.mark.parametrize(("below", "what"), [("", "which is no directory"), ("/new", "and {} is no directory")])
def test_a_directory_that_cannot_be_one_is_refused_before_a_start(
    tmp_path: Path, name: str, below: str, what: str
) -> None:
    """R-LIFE-1."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError) as caught:
        Config(**{name: f"{file}{below}"})  # type: ignore[arg-type]
    assert str(caught.value) == f"{name} is '{file}{below}', {what.format(file)}: name a directory"
    Config(**{name: str(tmp_path / "new" / "newer")})  # type: ignore[arg-type]


def test_what_several_cores_cannot_do_is_refused_by_the_settings_of_one() -> None:
    """13.6: as `topics config show` does, too; and not with one core."""
    check_config(Config(cores="1", access_log="-"))
    with pytest.raises(UsageError, match="^access_log is -, where lines of several cores would be mixed"):
        check_config(Config(cores="2", access_log="-"))


def test_as_many_cores_as_cpus_are_wanted_if_the_settings_say_auto() -> None:
    assert wanted_cores(Config(cores="3")) == 3
    assert wanted_cores(Config(cores="auto")) == len(os.sched_getaffinity(0))
