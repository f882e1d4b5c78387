"""records.c under the address and undefined-behaviour sanitizers, its verdicts compared with the model.

Goal: no byte beyond the text or the caller's room is touched, whatever the text. Method: a C driver gives every text,
and every buffer, a block of exactly its size; random texts, damaged ones, all beginnings of a valid one.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.engine.json import json_model

DRIVER = Path(__file__).with_name("records_sanitized.c")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    binary = tmp_path_factory.mktemp("sanitized") / "driver"
    done = subprocess.run(
        [compiler, "-O1", "-g", *SANITIZE, str(DRIVER), "-o", str(binary)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"this compiler has no sanitizers: {done.stderr.decode()[-200:]}")
    return binary


def cases(seeds: range) -> list[bytes]:
    whole = (
        '{"records":[{"data":{"a":1,"a":[-2.5e3,true,"é\\ud83d\\ude00"]},"tag":"\\n😀","meta":{"k":null}}]}'.encode()
    )
    found = [whole[:size] for size in range(len(whole) + 1)]
    for seed in seeds:
        rng = random.Random(seed)
        for text in (json_model.random_json(rng, 3).encode(), json_model.random_write(rng)):
            found.append(text)
            found.extend(json_model.damaged(text, rng) for _ in range(4))
    return found


def verdict(text: bytes) -> str:
    letters = ""
    for parse in (json_model.parse, json_model.parse_write):
        try:
            parse(text)
            letters += "1"
        except json_model.RefusedError:
            letters += "0"
    return letters


@pytest.mark.slow
def test_no_text_makes_the_scanner_leave_its_buffers(driver: Path, tmp_path: Path) -> None:
    texts = cases(range(600))
    path = tmp_path / "cases"
    path.write_bytes(b"".join(struct.pack("=I", len(text)) + text for text in texts))
    done = subprocess.run([str(driver), str(path)], capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    verdicts = done.stdout.decode()
    for index, text in enumerate(texts):
        assert verdicts[2 * index : 2 * index + 2] == verdict(text), text
