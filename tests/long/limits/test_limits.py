"""Every field has a case, and no case makes a pass of many steps: lines of Python are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import topics
from tests.amount import stride
from tests.contract.world.sim_world import SimWorld
from tests.long.limits import crowds, large_records, large_states
from tests.long.limits.case_sender import Client
from tests.long.limits.cases import CASES, HEAD, cases
from tests.long.limits.crowds import CROWDS, Crowd
from tests.long.limits.fields import fields
from tests.long.limits.known import known
from tests.long.limits.stored_jobs import CASES as STORED
from tests.long.limits.values import Scale
from tests.long.limits.waiting_clients import KINDS, SETTINGS, Waiting
from topics.loop.loop import Loop

ROOT = str(Path(topics.__file__).parent)
LINES_MAX = 20_000
"""A line takes some 0.1 us. Data are large enough for five lines a record, or fourteen a topic, to show."""
WAITING, WAITING_LINES_MAX = 800, 80_000
"""Clients that wait for one write, and the lines of a pass of theirs."""
SMALL = {
    "max_head_bytes": 8192,
    "max_body_bytes": 1 << 16,
    "max_record_bytes": 1 << 13,
    "max_batch_records": 500,
    "max_claim": 50,
    "max_watch_topics": 16,
    "max_wait_topics": 16,
    "max_prefixes": 16,
    "max_nodes": 50,
    "max_readers": 200,
    "wal_file_bytes": 8 << 20,
    "checkpoint_wal_bytes": 1 << 40,
    "checkpoint_every_ms": 1 << 40,
    "verify": False,  # no server counts anew what it has counted
}
ROOM_BYTES = 2048
MORE = {
    "GET /v0/topics": 80_000,  # a page has up to 1000 topics
    "GET /v0/metrics": 120_000,  # in turns, which end by time, and that stands still here
    "POST /v0/topics/:": 30_000,  # of which 500 records that expire in the same pass; a thousand at most do
    "WS publish": 30_000,  # the same
    "GET /v0/topics/:/dead": 25_000,  # a step decodes 128 records, if earlier operations left as many
    "WS subscribe": 40_000,  # 64 records one by one, twice
    "POST /v0/checkpoint": 160_000,  # the same, and eight segments at a time share the turns
}
"""Lines of operations that take more, by operation."""


class Lines:
    """Counts the lines of the package that a pass runs; `most` is of the longest pass."""

    def __init__(self) -> None:
        self.most = self._count = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ROOT) else None

    def _line(self, _frame: FrameType, _event: str, _argument: Any) -> Any:
        self._count += 1
        return self._line

    def run(self, run_pass: Any, loop: Loop, timeout_ns: int | None) -> None:
        self._count = 0
        before = sys.gettrace()
        sys.settrace(self)
        try:
            run_pass(loop, timeout_ns)
        finally:
            sys.settrace(before)
            self.most = max(self.most, self._count)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    world = SimWorld(0, **SMALL)
    world.start()
    client = Client(world, Scale(world.config, SMALL["max_body_bytes"] - ROOM_BYTES, records=4000, topics=1500))
    client.fill()
    yield client
    world.close()


def test_every_field_has_cases() -> None:
    """A field that `/openapi.json` or a WebSocket's command has gained needs some."""
    declared = {operation: {f for f in its if not f.endswith("unknown")} for operation, its in CASES.items()}
    assert declared == fields(), "say in tests/long/limits/cases.py what the costliest values of the new field are"


@pytest.mark.parametrize("operation", sorted(CASES))
def test_no_value_of_a_field_makes_a_long_pass(client: Client, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, run_pass = Lines(), Loop.run_pass
    found = []
    for case in [case for case in cases() if case.operation == operation][:: stride(1)]:
        request = client.prepare(case)
        client.probe()
        lines.most = 0
        with monkeypatch.context() as counted:
            counted.setattr(Loop, "run_pass", lambda loop, timeout_ns: lines.run(run_pass, loop, timeout_ns))
            status = client.send(case, request)
        assert status != 500
        if "allowed" in case.name or case.name == HEAD.name or case.name.startswith("text of"):
            assert 200 <= status < 300, (
                f"{case.field}: {case.name} is meant to pass the limits, and is answered {status}"
            )
        if lines.most > MORE.get(operation, LINES_MAX) and known(case.operation, case.field, case.name) is None:
            found.append((case.field, case.name, lines.most))
    assert found == [], "lines of Python in one pass of the loop"


@pytest.mark.parametrize("names", [1, 50])
@pytest.mark.parametrize("kind", list(KINDS))
def test_clients_that_one_write_wakes_take_turns(kind: str, names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = SMALL | SETTINGS
    world = SimWorld(0, **settings)
    world.start()
    waiting, lines, run_pass = Waiting(world, kind, WAITING, names), Lines(), Loop.run_pass
    with monkeypatch.context() as counted:
        counted.setattr(Loop, "run_pass", lambda loop, timeout_ns: lines.run(run_pass, loop, timeout_ns))
        waiting.wake()
    world.close()
    assert lines.most <= WAITING_LINES_MAX, "lines of Python in one pass of the loop"


@pytest.mark.parametrize("case", list(STORED))
def test_a_queue_of_leased_jobs_is_measured(case: str) -> None:
    assert STORED[case](10_000) > 0


@pytest.mark.parametrize("case", large_states.CASES, ids=[case.name for case in large_states.CASES])
def test_what_a_topic_keeps_besides_its_records_is_measured(case: large_states.Case) -> None:
    assert large_states.longest_ms(case, 1000) > 0


@pytest.mark.parametrize("crowd", CROWDS, ids=lambda crowd: crowd.name)
def test_each_crowd_is_measured(crowd: Crowd) -> None:
    longest_ms, _grown_mb = crowds.measure(crowd, 2 / crowd.clients)
    assert longest_ms > 0


def test_each_way_of_a_large_record_is_measured(tmp_path: Path) -> None:
    with large_records.served(tmp_path) as run:
        for case in large_records.CASES:
            assert run.longest_ms(case, 10_000) > 0
