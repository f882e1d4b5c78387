"""The C files of engine/json under the address and undefined-behaviour sanitizers, compared with the model.

Goal: no byte beyond the text or the caller's room is touched, whatever the text. Method: a C driver gives every text,
and every buffer, a block of exactly its size; random texts, damaged ones, all beginnings of a valid one. Once
for each way through a string (AVX2, SSE2, NEON, byte by byte), so that all agree with the model, and so with each
other. NEON is that of an emulated machine where this one is another.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from itertools import product
from pathlib import Path

import pytest

import build_ffi
from tests.engine.json import json_model

(records,) = (extension for extension in build_ffi.EXTENSIONS if extension.module.endswith("._records"))
DRIVER = Path(__file__).with_name("records_sanitized.c")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


EMULATED = "env ASAN_OPTIONS=detect_leaks=0 qemu-aarch64 -L /usr/aarch64-linux-gnu"
"""The emulator of programs of aarch64-linux-gnu-gcc; the search for leaks needs ptrace, which it lacks.

Debian has both in gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""


@pytest.fixture(scope="module", params=["-DTP_AS_BUILT", "-DTP_NO_AVX2", "-U__SSE2__", "aarch64"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a driver for each way through a string: by AVX2 where the machine has it, by SSE2, byte by byte,
    and by NEON.
    """
    runner = EMULATED.split() if request.param == "aarch64" else []
    compiler = shutil.which("aarch64-linux-gnu-gcc") if runner else shutil.which("gcc") or shutil.which("clang")
    if compiler is None or (runner and shutil.which("qemu-aarch64") is None):
        pytest.skip("no C compiler, or nothing that runs its programs")
    binary = tmp_path_factory.mktemp("sanitized") / "driver"
    probe = binary.with_name("probe.c")
    probe.write_text("int main(void) { return 0; }\n")
    if subprocess.run(
        [compiler, *SANITIZE, str(probe), "-o", str(binary)], capture_output=True, check=False
    ).returncode:
        pytest.skip("this compiler has no sanitizers")
    flags = [] if runner else [request.param]
    files = [str(DRIVER), *map(str, records.sources)]
    done = subprocess.run(
        [compiler, "-O1", "-g", *SANITIZE, *flags, *files, "-o", str(binary)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [*runner, str(binary)]


def cases(seeds: range) -> list[bytes]:
    whole = (
        '{"records":[{"data":{"a":1,"a":[-2.5e3,true,"é\\ud83d\\ude00"]},"tag":"\\n😀","meta":{"k":null}}]}'.encode()
    )
    found = [whole[:size] for size in range(len(whole) + 1)]
    for before, after in product((0, 1, 15, 16, 17, 31, 33, 63, 64, 65, 80, 96, 97, 130), (0, 1, 31, 70)):
        for byte in (b"", b"\x1f", b" ", b"\x7f", b"\\n", b"\\", b'"', b"\x80", b"\xff", b"\xc3\xa9"):
            found.append(b'"%b%b%b"' % (b"x" * before, byte, b"y" * after))
    for seed in seeds:
        rng = random.Random(seed)
        write = json_model.random_write(rng)
        publish = b'{"op":"publish","topic":"t","request_id":"1",' + write.lstrip()[1:]
        for text in (json_model.random_json(rng, 3).encode(), write, publish):
            found.append(text)
            found.extend(json_model.damaged(text, rng) for _ in range(4))
    return found


def verdict(text: bytes) -> str:
    """1 or 0 for the value and for the body of a write; ? for a body whose fault C leaves to Python."""
    letters = ""
    for parse in (json_model.parse, json_model.parse_write):
        try:
            parse(text)
            letters += "1"
        except json_model.RefusedError as error:
            letters += "?" if str(error).startswith(("incarnation", "producer")) else "0"
    return letters


@pytest.mark.slow
def test_no_text_makes_the_scanner_leave_its_buffers(driver: list[str], tmp_path: Path) -> None:
    texts = cases(range(600))
    path = tmp_path / "cases"
    path.write_bytes(b"".join(struct.pack("=I", len(text)) + text for text in texts))
    done = subprocess.run([*driver, str(path)], capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    verdicts = done.stdout.decode()
    for index, text in enumerate(texts):
        found, expected = verdicts[2 * index : 2 * index + 2], verdict(text)
        assert found == expected or (found[0] == expected[0] and expected[1] == "?"), text
