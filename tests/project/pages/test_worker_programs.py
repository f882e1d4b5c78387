"""The workers of docs/guides/queues.md do jobs, and end by the signal of a service manager."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import topics
from tests.contract.world.live_world import LiveWorld

PAGE = (Path(__file__).resolve().parents[3] / "docs/guides/queues.md").read_text(encoding="utf-8")
PROGRAMS = {"sync": "import os\nimport signal", "async": "import asyncio\nimport os"}
"""How each program begins, and its name in the tests."""
ENDLESS = {"sync": "import time; time.sleep(600)", "async": "await asyncio.sleep(600)"}
_SECONDS = 60


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    world = LiveWorld(tmp_path)
    world.start()
    yield "http://{}:{}".format(*world.address)
    world.close()


@contextlib.contextmanager
def started(kind: str, url: str, directory: Path, *, at_work: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a program of the page. at_work: a line after the one that prints the job, before the job is done."""
    found = re.search(rf"^```python\n({re.escape(PROGRAMS[kind])}.*?)^```", PAGE, re.M | re.S)
    assert found is not None
    text = re.sub(r"^( +)(print\(.*)$", rf"\1\2\n\1{at_work}", found[1], flags=re.M)
    script = directory / "worker.py"
    script.write_text(text.replace("http://localhost:4000", url))
    worker = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_worker_of_the_page_does_its_jobs(kind: str, url: str, tmp_path: Path) -> None:
    with topics.connect(url) as log:
        log.put_topic("jobs", type="queue", max_deliveries=5, dead_letter="jobs.dead")
        log.append("jobs", [1, 2, 3])
        with started(kind, url, tmp_path) as worker:
            assert sorted(line(worker).split()[-1] for _ in range(3)) == ["1", "2", "3"]
            worker.send_signal(signal.SIGTERM)
            rest, _ = worker.communicate(timeout=_SECONDS)
            assert (rest, worker.returncode) == ("", 0)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_worker_that_is_ended_gives_its_job_back_at_once(kind: str, url: str, tmp_path: Path) -> None:
    with topics.connect(url) as log:
        log.put_topic("jobs", type="queue", lease_ms=3_600_000)
        log.append("jobs", [1])
        with started(kind, url, tmp_path, at_work=ENDLESS[kind]) as worker:
            assert line(worker).split()[-1] == "1"
            worker.send_signal(signal.SIGTERM)
            rest, _ = worker.communicate(timeout=_SECONDS)
            assert (rest, worker.returncode) == ("", 0)
        (job,) = log.claim("jobs", "another")
        assert job.deliveries == 2
