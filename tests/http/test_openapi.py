"""The description of the server follows the table that routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from topics.http.errors import STATUS
from topics.http.openapi.description import Description
from topics.http.openapi.document import document, operation_key
from topics.http.openapi.operations import OPERATIONS
from topics.http.openapi.page import HEADERS
from topics.http.routes import Route
from topics.http.table import ROUTES

DOCUMENT = document(ROUTES)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_every_route_is_described(route: Route) -> None:
    assert operation_key(route) in OPERATIONS, "say in topics/http/openapi/operations.py what it takes and answers"


def test_it_is_json_and_its_references_lead_somewhere() -> None:
    text = Description(ROUTES).json.decode()
    assert json.loads(text) == DOCUMENT
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in DOCUMENT["components"]["schemas"]


def test_names_are_used_once_and_path_parameters_are_declared() -> None:
    seen = [operation["operationId"] for _, _, operation in operations()]
    assert len(seen) == len(set(seen)) == len(ROUTES)
    for path, _, operation in operations():
        declared = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert declared == set(re.findall(r"\{([^}]+)\}", path))


def test_every_error_code_is_described_with_its_status() -> None:
    described: set[str] = set()
    for _, _, operation in operations():
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = response["content"]["application/json"]["schema"]
                codes = schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]
                assert {STATUS[code] for code in codes} == {int(status)}
                described |= set(codes)
    assert described >= set(STATUS) - {"method_not_allowed", "not_acceptable"}


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = Description(ROUTES).page.decode()
    assert "<script" not in page
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", page)
    assert b"default-src 'none'" in HEADERS
    assert b"unsafe" not in HEADERS
    for _, _, operation in operations():
        assert operation["summary"] in page.replace("&#x27;", "'")
