"""The programs of docs/migration.md copy everything once, beside stand-ins for `redis-cli` and `kcat`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import topics

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "migration.md").read_text(encoding="utf-8")
STORED = 1002
REDIS_CLI = f"""
after, count = sys.argv[4], int(sys.argv[-1])
first = int(after[1:].partition("-")[0]) + 1 if after.startswith("(") else 1
ids = range(first, min(first + count, {STORED} + 1))
print(json.dumps([[f"{{id}}-0", ["sku", str(id)]] for id in ids]))
"""
KCAT = f"""
first = int(sys.argv[sys.argv.index("-o") + 1])
for offset in range(first, {STORED}):
    print(json.dumps({{"offset": offset, "ts": 5, "key": "k", "payload": json.dumps({{"sku": offset}})}}))
"""


GROUP = f"""
import pathlib
acked = pathlib.Path("acked")  # those of the group, which has 10 read and not done, and the rest not read
done = acked.read_text().split() if acked.exists() else []
if "XACK" in sys.argv:
    acked.write_text(" ".join([*done, *sys.argv[sys.argv.index("XACK") + 3 :]]))
    found = len(sys.argv) - 5
else:
    ids = range(1, 11) if "XAUTOCLAIM" in sys.argv else range(11, {STORED} + 1)
    entries = [[f"{{id}}-0", ["sku", str(id)]] for id in ids if f"{{id}}-0" not in done][:1000]
    found = ["0-0", entries, []] if "XAUTOCLAIM" in sys.argv else {{"resize": entries}} if entries else None
print(json.dumps(found))
"""


def program(source: str) -> str:
    found = re.search(rf"^```python no-run {source}\n(.*?)^```", PAGE, re.M | re.S)
    assert found is not None, source
    return found[1]


STAND_INS = {
    "redis": ("redis-cli", REDIS_CLI, {"redis_id": "2-0"}),
    "kafka": ("kcat", KCAT, {"kafka_offset": 1, "ts": 5}),
}


@pytest.mark.parametrize("source", STAND_INS)
def test_a_program_of_the_page_copies_everything_once(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, stand_in, address = STAND_INS[source]
    script = tmp_path / command
    script.write_text(f"#!{sys.executable}\nimport json, sys\n{stand_in}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    with topics.open("data") as log:
        log.put_topic("orders", durability="fsync")
    for copied in (STORED, 0):
        exec(compile(program(source), "docs/migration.md", "exec"), {"__name__": "__main__"})
        assert re.match(rf"{copied} \w+ copied\n$", capsys.readouterr().out)
    with topics.open("data") as log:
        assert log.state("orders").count == STORED
        assert log.state("orders").config.durability == "fsync", "the settings of the topic are kept"
        second = log.get("orders", 2)
        assert second is not None
        assert json.dumps(second.data) == json.dumps({"sku": "2" if source == "redis" else 1})
        assert second.meta == address


def test_a_program_of_the_page_moves_the_jobs_of_a_group_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "redis-cli"
    script.write_text(f"#!{sys.executable}\nimport json, sys\n{GROUP}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    with topics.open("data") as log:
        log.put_topic("resize", type="queue")
    for moved in (STORED, 0):
        exec(compile(program("redis-queue"), "docs/migration.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == f"{moved} jobs moved\n"
    with topics.open("data") as log:
        jobs = log.claim("resize", "worker", 1000) + log.claim("resize", "worker", 1000)
        assert [job.data for job in jobs] == [{"sku": str(id)} for id in range(1, STORED + 1)]
        assert jobs[0].meta == {"redis_id": "1-0"}
