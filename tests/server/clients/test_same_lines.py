"""Lines of a program run unchanged against a directory and a server, blocking and awaited."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

import pytest

import topics

FIRST_LINES = {
    "a directory": 'with topics.open("data") as log:',
    "a server": "with topics.connect(url) as log:",
    "a directory, awaited": 'async with topics.open("data").aio as log:',
    "a server, awaited": "async with await topics.connect_async(url) as log:",
}
LINES = """
    await log.put_topic("jobs", type="queue", max_deliveries=2, dead_letter="jobs.dead")
    await log.append("orders", [{"sku": 1}, {"sku": 2}])
    async for record in log.tail("orders", reader="billing", from_="first"):
        seen.append((record.seq, record.data))
        if record.seq == 2:
            break
    await log.append("jobs", [17, 18])
    async for job in log.work("jobs", node="w1", max=8, retry_ms=0):
        async with job:
            seen.append((job.data, job.deliveries))
            if job.data == 18:
                raise ValueError("too large")
        if job.data == 18 and job.deliveries == 2:
            break
    seen.append(await log.claim("jobs", "w1"))
    seen.append([letter.meta["$dead_letter_reason"] async for letter in log.dead("jobs")])
    seen.append([state.name for state in await log.topics("")])
"""


@pytest.mark.parametrize("first_line", FIRST_LINES.values(), ids=FIRST_LINES.keys())
def test_the_same_lines_run_against_each_kind_of_log(
    first_line: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first line differs; for asyncio the same calls are awaited."""
    monkeypatch.chdir(tmp_path)
    body = first_line + LINES if first_line.startswith("async") else first_line + _without_awaits(LINES)
    definition = "async def" if first_line.startswith("async") else "def"
    found: dict[str, Any] = {"topics": topics, "url": url, "seen": []}
    exec(f"{definition} run():\n" + textwrap.indent(body, "    "), found)
    running = found["run"]()
    if running is not None:
        asyncio.run(running)
    assert found["seen"] == [
        (1, {"sku": 1}), (2, {"sku": 2}), (17, 1), (18, 1), (18, 2),
        [], ["ValueError: too large"], ["jobs", "jobs.dead", "orders"],
    ]  # fmt: skip


def _without_awaits(lines: str) -> str:
    return lines.replace("async ", "").replace("await ", "")
