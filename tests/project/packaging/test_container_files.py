"""The image's files: the seccomp profile lets a server run on io_uring, and paths exist.

No image is built here; a filter of the kernel is what a container would add.
"""

from __future__ import annotations

import ctypes.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.forked import without_settings
from tests.project.packaging.served import get, wait_for
from tests.project.structure.test_tree import ROOT
from topics.uring.probe import probe

CONTAINER = ROOT / "packaging" / "container"
_UNDER_THE_PROFILE = """
import ctypes, json, sys
allow, refuse = 0x7FFF0000, 0x00050000 | 1
library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
library.seccomp_init.restype = ctypes.c_void_p
pointer, number, unsigned = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
library.seccomp_rule_add_array.argtypes = [pointer, unsigned, number, unsigned, pointer]
library.seccomp_load.argtypes = [ctypes.c_void_p]
context = library.seccomp_init(refuse)
for rule in json.load(open(sys.argv[1]))["syscalls"]:
    action = allow if rule["action"] == "SCMP_ACT_ALLOW" else 0x00050000 | rule["errnoRet"]
    for name in rule["names"]:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert library.seccomp_rule_add_array(context, action, number, 0, None) == 0, name
assert library.seccomp_load(context) == 0
sys.argv = ["topics", *sys.argv[2:]]
from topics.cli import main
main()
"""


@pytest.mark.skipif(
    ctypes.util.find_library("seccomp") is None, reason="libseccomp is missing: apt-get install libseccomp2"
)
def test_a_server_under_the_profile_has_io_uring_and_serves(tmp_path: Path) -> None:
    if not probe().ok:
        pytest.skip(f"no io_uring here: {probe().reason}")
    port_file = tmp_path / "port"
    command = [sys.executable, "-c", _UNDER_THE_PROFILE, str(CONTAINER / "seccomp.json"), "serve", "--io", "uring"]
    command += ["--data-dir", str(tmp_path / "data"), "--port", "0", "--port-file", str(port_file)]
    environment = without_settings()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        wait_for(server.stderr, "ready after")
        assert "ready" in get(port_file.read_text(), "/readyz")
        assert 'io="uring"' in get(port_file.read_text(), "/v0/metrics")
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()


def test_the_profile_refuses_all_but_what_it_names() -> None:
    profile = json.loads((CONTAINER / "seccomp.json").read_text())
    allowed = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    names = {name for rule in allowed for name in rule["names"]}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= names
    assert not names & {
        "mount",
        "ptrace",
        "bpf",
        "init_module",
        "keyctl",
        "reboot",
        "unshare",
        "perf_event_open",
        "clone3",
    }
    assert [rule["args"] for rule in allowed if "clone" in rule["names"]], "threads, and no namespaces"


def test_the_image_runs_as_a_user_with_a_health_check_and_settings_that_exist() -> None:
    text = (CONTAINER / "Dockerfile").read_text()
    user = text.rindex("USER topics")
    assert user < text.index("HEALTHCHECK") < text.index("ENTRYPOINT")
    assert "/healthz" in text
    documented = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in re.findall(r"TOPICS_\w+", text) if f"`{name}`" not in documented] == []


def test_the_files_that_compose_mounts_exist() -> None:
    text = (CONTAINER / "compose.yaml").read_text()
    for path in [*re.findall(r"- (\.\./[^:]+):", text), *re.findall(r"seccomp=([\w.]+)", text)]:
        assert (CONTAINER / path).is_file(), path
    assert (ROOT / re.findall(r"dockerfile: ([\w/]+)", text)[0]).is_file()
