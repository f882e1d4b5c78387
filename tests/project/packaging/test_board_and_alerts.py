"""The board of Grafana and the alerts: each metric is one that the server shows, and PromQL takes all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.project.packaging.served import get, served
from tests.project.structure.test_tree import ROOT

PACKAGING = ROOT / "packaging"
ALERTS = PACKAGING / "prometheus" / "alerts.yml"
_METRIC = re.compile(r"\b(?:topics|process)_\w+")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)


def board_expressions() -> list[str]:
    board = json.loads((PACKAGING / "grafana" / "topics.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    found += [each["expr"] for each in board["annotations"]["list"]]
    found += [re.sub(r"label_values\((\w+), \w+\)", r"\1", each["query"]) for each in board["templating"]["list"][1:]]
    assert len(found) > 30
    return found


def alert_expressions() -> list[str]:
    text = re.sub(r">-\n\s+", "", ALERTS.read_text())
    return re.findall(r"^ +expr: (.*(?:\n {10,}.*)*)$", text, re.M)


def test_each_metric_of_the_board_and_the_alerts_is_one_that_a_server_shows(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        page = get(address, "/v0/metrics")
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    shown |= {
        f"{name}_{part}": "" for name, kind in shown.items() if kind == "histogram" for part in ("bucket", "count")
    }
    expressions = [*board_expressions(), *alert_expressions()]
    named = {name for expression in expressions for name in _METRIC.findall(re.sub(r'"[^"]*"', '""', expression))}
    # process_open_fds needs Linux 6.2, and neither file names it
    assert named - shown.keys() == set()
    assert len(named) > 30


def test_there_are_ten_alerts_and_the_page_of_metrics_names_each() -> None:
    names = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert len(names) == len(set(names)) == 10 == len(alert_expressions())
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []
    assert "has ten of them" in page
    assert "has ten alerts" in (ROOT / "CHANGELOG.md").read_text()


def test_labels_of_the_board_are_those_of_its_metrics() -> None:
    """By the page of metrics, which another test holds against the server."""
    rows = re.findall(r"^\| `(\w+){([\w,]+)}`", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    labels = {name: set(names.split(",")) for name, names in rows}
    for expression in board_expressions():
        for name, matchers in re.findall(r"\b((?:topics|process)_\w+){([^}]*)}", expression):
            used = set(re.findall(r"(\w+)=~?\"", matchers)) | set(
                re.findall(r"by \(([^)]*)\)", expression.replace(" ", ""))
            )
            known = labels.get(re.sub(r"_(bucket|count)$", "", name), set()) | {"instance", "le"}
            assert {label for each in used for label in re.findall(r"\w+", each)} <= known, expression


@needs_promtool
def test_prometheus_takes_the_rules_and_each_is_raised_as_its_test_says() -> None:
    for arguments in (
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ):
        done = subprocess.run(["promtool", *arguments], cwd=ALERTS.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_each_expression_of_the_board(tmp_path: Path) -> None:
    rules = [
        {"record": f"board:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(board_expressions())
    ]
    path = tmp_path / "board.yml"
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
