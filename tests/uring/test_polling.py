"""Polling by itself (`spin_us` auto): only where a core may be idle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topics.config import Config
from topics.errors import UsageError
from topics.uring import polling


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Four cores, all of them for this process, without a quota."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(polling, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(polling, "_CGROUPS_MOUNT", tmp_path)
    (tmp_path / "cgroup").write_text("0::/\n")
    return monkeypatch


def test_on_several_cores_that_it_shares_with_all_a_process_may_poll(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert polling.spare_cores() == (4, "")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert polling.spare_cores() == (4, "")


def test_a_process_bound_to_some_cores_may_poll_while_no_more_threads_run_on_all(machine: pytest.MonkeyPatch) -> None:
    """It never polled: a lone read took 50 us instead of 33 on two of 16 cores."""
    machine.setattr(os, "sched_getaffinity", lambda pid: {1, 3})
    assert polling.spare_cores() == (2, "")


def test_on_one_core_or_with_a_quota_no_process_polls(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert polling.spare_cores() == (0, "the process has a quota of CPU time")
    machine.setattr(os, "sched_getaffinity", lambda pid: {2})
    assert polling.spare_cores() == (0, "the process is bound to one core")
    machine.setattr(os, "cpu_count", lambda: 1)
    assert polling.spare_cores() == (0, "there is one core")


def test_the_doctor_says_whether_a_wait_polls_and_why(machine: pytest.MonkeyPatch) -> None:
    assert polling.describe_polling("0") == "never, as asked for"
    assert polling.describe_polling("50") == "up to 50 us, as asked for"
    assert "one of 4 cores is idle" in polling.describe_polling("auto")
    machine.setattr(os, "sched_getaffinity", lambda pid: {0})
    machine.setattr(os, "cpu_count", lambda: 1)
    assert polling.describe_polling("auto") == "auto: never, because there is one core"


@pytest.mark.parametrize(
    ("line", "file", "quotas"),
    [
        ("0::/system.slice/log.service", "system.slice/log.service/cpu.max", ("max 100000", "50000 100000")),
        ("0::/system.slice/log.service", "system.slice/cpu.max", ("max 100000", "50000 100000")),
        ("4:cpu,cpuacct:/pod/box", "cpu/pod/box/cpu.cfs_quota_us", ("-1", "50000")),
        ("4:cpu,cpuacct:/of/the/host", "cpu/cpu.cfs_quota_us", ("-1", "50000")),
    ],
    ids=["own", "above", "version 1", "version 1 in a container"],
)
def test_a_quota_is_found_in_the_groups_of_the_process_and_those_above(
    machine: pytest.MonkeyPatch, tmp_path: Path, line: str, file: str, quotas: tuple[str, str]
) -> None:
    (tmp_path / "cgroup").write_text(f"1:name=systemd:/\n2:cpuset:/\n{line}\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f"{quotas[0]}\n")
    assert polling.spare_cores().count == 4
    (tmp_path / file).write_text(f"{quotas[1]}\n")
    assert polling.spare_cores() == (0, "the process has a quota of CPU time")


def test_without_the_file_of_the_load_no_process_polls(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setattr(polling, "LOAD", str(tmp_path / "missing"))
    assert polling.spare_cores().count == 0


def test_a_program_may_give_a_number() -> None:
    assert Config(spin_us=50).spin_us == "50"  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "never", "-1", "1.5", "1000001"])
def test_another_value_than_auto_or_microseconds_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="use auto, or a number from 0 to 1000000"):
        Config(spin_us=value)
