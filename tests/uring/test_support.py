"""The probe and the opening of a ring on kernels that refuse something: each cause is named with its remedy.

Refusals are real where they can be had for one process (seccomp, locked memory); each runs in a child of its own.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topics.uring import setup
from topics.uring.kernel_probe import NEEDED_OPCODES
from topics.uring.probe import probe
from topics.uring.support import describe
from topics.uring.uring_ring import UringRing

SUPPORT = probe()
needs_ring = pytest.mark.skipif(not SUPPORT.ok, reason=f"io_uring: {SUPPORT.reason}")
IO_URING_SETUP = 425

SECCOMP = f"""
import ctypes, struct
def refuse(error):
    code = struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, {IO_URING_SETUP})
    code += struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | error) + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0
"""


def run_child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_ring
def test_this_kernel_supports_all_we_need() -> None:
    assert SUPPORT.reason == SUPPORT.remedy == ""
    assert set(SUPPORT.opcodes) == set(NEEDED_OPCODES.values())
    assert "SUBMIT_ALL" in SUPPORT.flags
    assert describe(SUPPORT).startswith("io_uring: yes")


@pytest.mark.real
@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (errno.EPERM, "seccomp", "--security-opt seccomp="),
        (errno.ENOSYS, "built without io_uring", "Linux 6.0"),
        (errno.EINVAL, "too old", "Linux 6.0"),
    ],
)
def test_a_refused_setup_is_explained_with_its_remedy(error: int, cause: str, remedy: str) -> None:
    if setup.disabled_level():
        pytest.skip("the sysctl kernel.io_uring_disabled refuses first")
    code = f"{SECCOMP}\nfrom topics.uring.probe import probe\nrefuse({error})\nprint(probe())"
    text = run_child(code)
    assert "ok=False" in text
    assert cause in text
    assert remedy in text
    assert "--io portable" in text


@pytest.mark.real
def test_asking_for_uring_never_degrades_and_auto_does() -> None:
    code = f"""{SECCOMP}
from topics.config import Config
from topics.errors import UsageError
from topics.loop import choose
choose.open_portable = lambda config: "the portable ring"
refuse({errno.EPERM})
ring, reason = choose.open_ring(Config(io="auto"), shared=False)
assert ring == "the portable ring"
print(reason)
try:
    choose.open_ring(Config(io="uring"), shared=False)
except UsageError as error:
    print(error)
"""
    auto, uring = run_child(code).splitlines()
    assert "seccomp" in auto
    assert uring == f"--io uring: {auto}"


@pytest.mark.parametrize("level", [1, 2])
def test_the_sysctl_is_named(level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "io_uring_disabled"
    path.write_text(f"{level}\n")
    monkeypatch.setattr(setup, "DISABLED_SYSCTL", str(path))
    reason, remedy = setup.explain_refusal(errno.EPERM)
    assert f"kernel.io_uring_disabled is {level}" in reason
    assert "sysctl -w kernel.io_uring_disabled=0" in remedy


@pytest.mark.real
@needs_ring
@pytest.mark.skipif(os.getuid() != 0, reason="changes user: needs root")
def test_too_little_locked_memory_halves_the_queues_and_at_last_says_the_number() -> None:
    code = """
import os, resource, sys
from topics.uring.uring_ring import UringRing
def limit(kib):
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (kib * 1024, 8 << 20))
os.setgid(54321); os.setuid(54321)
limit(64)
ring = UringRing(1024, 4096, 8, 256)
print(ring.setup.entries, ring.setup.completions)
ring.close()
limit(0)
try:
    UringRing(1024, 4096, 8, 256)
except OSError as error:
    print(error)
"""
    sizes, error = run_child(code).splitlines()
    entries, completions = map(int, sizes.split())
    assert 64 <= entries < 1024
    assert 256 <= completions < 4096
    assert "RLIMIT_MEMLOCK is 0 KiB" in error
    assert "64 SQEs and 256 CQEs (1024 and 4096 were asked for" in error
    assert "LimitMEMLOCK=64M" in error


@pytest.mark.real
@needs_ring
def test_flags_the_kernel_does_not_take_are_left_out_one_set_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = setup.lib.TP_SUBMIT_ALL | setup.lib.TP_DEFER_TASKRUN
    monkeypatch.setattr(setup, "OWN_SETUPS", (impossible, setup.lib.TP_SUBMIT_ALL))
    ring = UringRing(64, 256, 8, 256)
    assert ring.setup.flags == ("SUBMIT_ALL",)
    ring.close()


def test_every_setup_submits_all_and_a_shared_one_belongs_to_no_thread() -> None:
    for flags in setup.OWN_SETUPS + setup.SHARED_SETUPS:
        assert flags & setup.lib.TP_SUBMIT_ALL
    for flags in setup.SHARED_SETUPS:
        assert not flags & (setup.lib.TP_SINGLE_ISSUER | setup.lib.TP_DEFER_TASKRUN)


def test_running_out_of_descriptors_is_no_question_of_support() -> None:
    reason, remedy = setup.explain_refusal(errno.EMFILE)
    assert "descriptor" in reason
    assert "ulimit -n" in remedy


WITHOUT_BINDING = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name == "topics.uring._ring":
            raise ImportError("liburing.so.2: cannot open shared object file")

sys.meta_path.insert(0, Refused())
"""


def without_binding(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where the io_uring binding cannot be loaded."""
    command = [sys.executable, "-c", WITHOUT_BINDING + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_binding_that_cannot_be_loaded_leaves_the_portable_ring(tmp_path: Path) -> None:
    code = f"""
import topics
with topics.open({str(tmp_path / "data")!r}) as log:
    log.append("t", [{{"n": 1}}])
    print([record.data for record in log.read("t")])
"""
    done = without_binding(code)
    assert (done.stdout, done.stderr) == ("[{'n': 1}]\n", "")


def test_who_asks_for_a_binding_that_cannot_be_loaded_is_told_what_to_install(tmp_path: Path) -> None:
    done = without_binding(f"import topics\ntopics.open({str(tmp_path / 'data')!r}, io='uring')")
    told = done.stderr.splitlines()[-1]
    assert "--io uring: the binding cannot be loaded: liburing.so.2: cannot open shared object file." in told
    assert "Install liburing (apt-get install liburing2)" in told
    assert not (tmp_path / "data").exists()


def test_the_doctor_says_what_to_install_for_a_binding_that_cannot_be_loaded(tmp_path: Path) -> None:
    main = f"from topics.cli import main\nsys.argv = ['topics', 'doctor', '--data-dir', {str(tmp_path)!r}]\nmain()"
    done = without_binding(main)
    assert done.returncode == 0, done.stderr
    assert "io_uring: no: the binding cannot be loaded" in done.stdout
    assert "engine: portable" in done.stdout
