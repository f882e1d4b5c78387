"""The benchmark of this room runs: the smallest size, so that it does not rot."""

import sys

import pytest

from perf import http_requests


def test_the_cost_of_a_request_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["http_requests", "--smoke"])
    http_requests.main()
    assert "| h11 | new |" in capsys.readouterr().out
