"""The tables of docs/contract.md say what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from topics.config import Config
from topics.engine.values.topic_config import DEFAULT
from topics.http.access.routes import Access, Route
from topics.http.access.scope import Scope
from topics.http.route_table import ROUTES
from topics.http.wire.error_answers import STATUS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")


def table(section: str) -> list[list[str]]:
    """The rows of the first table of a section, cell by cell."""
    text = PAGE.partition(f"### {section} ")[2]
    found = re.search(r"^\|[ -].*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.M)
    assert found is not None, section
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]


def test_every_error_code_has_its_status() -> None:
    shown = {code.strip("`"): int(status) for code, status, *_ in table("3.2") if code}
    assert shown == STATUS


def described(route: Route) -> str:
    """The scope of a route in the words of the page."""
    if route.access in (Access.PROBE, Access.OPEN):
        return "none"
    if route.access is Access.OWN:
        return "the key that made the session"
    if route.scope == Scope.NONE:
        return "any key"
    return " and ".join(str(one.name).lower() for one in Scope if one in route.scope)


def test_every_endpoint_has_its_scope() -> None:
    shown: dict[str, str] = {}
    for endpoints, _section, scope, _success in table("4.4"):
        method, base = "", ""
        for text in re.findall(r"`([^`]+)`", endpoints):
            if " " in text:
                method, path = text.split()
                base = path.rpartition("/")[0]
            else:  # only what differs from the one before
                path = text if text.startswith(("/v0", "/healthz", "/readyz")) else base + text
            if method:
                shown[f"{method} {path}".replace(":q", ":topic")] = scope
    routes = {f"{route.method} {route.pattern}": described(route) for route in ROUTES}
    assert shown.keys() == routes.keys()
    assert {name: scope for name, scope in routes.items() if not shown[name].startswith(scope)} == {}


def test_every_field_of_a_configuration_has_its_default() -> None:
    shown: dict[str, str] = {}
    for names, _type, default, _meaning in table("5.4"):
        shown |= dict.fromkeys(re.findall(r"`([^`]+)`", names), default.strip("`"))
    config = json.loads(DEFAULT.as_json())
    assert shown.keys() == config.keys()
    assert shown.pop("durability") == "by `durable"
    assert {name: json.loads(text) for name, text in shown.items()} == {name: config[name] for name in shown}


def test_the_limits_are_the_defaults_of_their_settings() -> None:
    shown = {int(number) for row in table("5.2") for number in re.findall(r"\b\d{2,}\b", row[1])}
    assert [name for name in LIMITS if getattr(Config(), name) not in shown] == []


LIMITS = (
    "max_batch_records", "max_record_bytes", "max_meta_bytes", "max_meta_keys", "max_tag_bytes", "max_node_bytes",
    "max_nodes", "max_idempotency_key_bytes", "max_limit", "max_wait_ms", "max_batch_bytes", "max_claim",
    "max_watch_topics", "max_wait_topics",
)  # fmt: skip
