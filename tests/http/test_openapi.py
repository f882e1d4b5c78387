"""The description of the server follows the table that routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from topics.config import Config
from topics.http.access.routes import Route
from topics.http.openapi.api_examples import EXAMPLES
from topics.http.openapi.api_operations import OPERATIONS
from topics.http.openapi.contract_pages import SECTIONS, section_page
from topics.http.openapi.description import Description
from topics.http.openapi.document import document, operation_key
from topics.http.pages.guide_pages import NAMES
from topics.http.route_table import ROUTES
from topics.http.wire.error_answers import STATUS

DOCUMENT = document(ROUTES, Config())


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_every_route_is_described(route: Route) -> None:
    assert operation_key(route) in OPERATIONS, "say in topics/http/openapi/api_operations.py what it takes and answers"


def test_it_is_json_and_its_references_lead_somewhere() -> None:
    text = Description(ROUTES, Config()).json.decode()
    assert json.loads(text) == DOCUMENT
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in DOCUMENT["components"]["schemas"]


def test_requests_go_to_the_server_that_is_described() -> None:
    """A generated client that names none asks the one that it has the description of."""
    assert [server["url"] for server in DOCUMENT["servers"]] == ["/"]


def test_names_are_used_once_and_path_parameters_are_declared() -> None:
    seen = [operation["operationId"] for _, _, operation in operations()]
    assert len(seen) == len(set(seen)) == len(ROUTES)
    for path, _, operation in operations():
        declared = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert declared == set(re.findall(r"\{([^}]+)\}", path))


def test_every_object_has_a_name() -> None:
    """From which generators make classes: bodies and answers refer to models, and none has another's shape."""
    for path, method, operation in operations():
        bodies = [operation["requestBody"]] if "requestBody" in operation else []
        for shown in (*bodies, *(response for response in operation["responses"].values() if "content" in response)):
            schema = shown["content"].get("application/json", {}).get("schema", {"type": "string"})
            assert "$ref" in schema or "properties" not in schema, (method, path)
    assert '"title"' not in json.dumps(DOCUMENT["components"]["schemas"])


def test_every_operation_has_an_example_and_its_command() -> None:
    assert list(EXAMPLES) == list(dict.fromkeys(EXAMPLES))
    assert EXAMPLES.keys() == {operation_key(route) for route in ROUTES}
    for _, method, operation in operations():
        (sample,) = operation["x-codeSamples"]
        assert sample["source"].startswith("curl ")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert body is None or "example" in body, (method, operation["operationId"])


def test_every_error_code_is_described_with_its_status() -> None:
    described: set[str] = set()
    for _, _, operation in operations():
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                codes = DOCUMENT["components"]["schemas"][f"{name}Error"]["properties"]["code"]["enum"]
                assert {STATUS[code] for code in codes} == {int(status)}
                described |= set(codes)
    assert described >= set(STATUS) - {"method_not_allowed", "not_acceptable"}


def shown_page() -> str:
    """Return the page, made in steps."""
    making = Description(ROUTES, Config()).page()
    while True:
        try:
            next(making)
        except StopIteration as made:
            return str(made.value.body.decode())


def linked(page: str) -> set[str]:
    return set(re.findall(r"href=['\"]([^'\"]+)", page))


def test_the_page_loads_nothing_and_shows_each_operation() -> None:
    page = shown_page()
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", page)
    for _, _, operation in operations():
        assert operation["summary"] in page.replace("&#x27;", "'")
        assert f"id='{operation['operationId']}'" in page


def test_links_of_the_pages_lead_somewhere() -> None:
    """To a shape, an operation, a section of the contract that exists, or another page."""
    page = shown_page()
    names = set(re.findall(r"id='([^']+)'", page))
    paths = {route.pattern for route in ROUTES}
    for number in SECTIONS:
        found = section_page(number)
        assert found is not None
        page += found.body.decode()
    for link in linked(page):
        if link.startswith("#"):
            assert link[1:] in names, link
        elif link.startswith("/docs/contract/"):
            number, _, rule = link.removeprefix("/docs/contract/").partition("#")
            section = section_page(number)
            assert section is not None, link
            assert not rule or f'id="{rule}"' in section.body.decode(), link
        elif link.startswith("/docs/guides/"):
            assert link.removeprefix("/docs/guides/") in NAMES, link
        else:
            assert link in paths or link.startswith("data:"), link


def test_each_operation_names_a_section_of_the_contract_that_exists() -> None:
    for _, _, operation in operations():
        assert not operation["x-section"] or operation["x-section"] in SECTIONS


def body_of(shown: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of a POST."""
    schema = shown["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    found: dict[str, Any] = shown["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def test_limits_are_those_in_force() -> None:
    """5.2: a client that checks its requests against the description sends what the server takes."""
    other = document(ROUTES, Config(max_tag_bytes=7, max_batch_records=3))
    schemas = [shown["components"]["schemas"] for shown in (DOCUMENT, other)]
    assert [one["NewRecord"]["properties"]["tag"]["maxLength"] for one in schemas] == [256, 7]
    assert schemas[0]["NewRecord"]["properties"]["meta"]["maxProperties"] == 64
    assert schemas[0]["Leases"]["properties"]["seqs"]["maxItems"] == 1000
    records = [body_of(shown, "/v0/topics/{topic}")["properties"]["records"] for shown in (DOCUMENT, other)]
    assert [one["maxItems"] for one in records] == [10_000, 3]


def test_what_excludes_each_other_is_described_so() -> None:
    """7.5, 7.6: a producer's part beside a key, and two places to begin."""
    apart = body_of(DOCUMENT, "/v0/topics/{topic}")["not"]["allOf"]
    assert [part["required"] for part in apart] == [["producer"], ["idempotency_key"]]
    assert body_of(DOCUMENT, "/v0/topics/{topic}/diff")["not"] == {"required": ["from", "from_seq"]}


@pytest.mark.parametrize(("path", "needed"), [("/v0/topics/{topic}", True), ("/v0/topics/{topic}/diff", False)])
def test_a_topic_has_a_possible_name_where_a_write_may_create_it(path: str, needed: bool) -> None:
    """5.1."""
    assert ("pattern" in DOCUMENT["paths"][path]["post"]["parameters"][0]["schema"]) is needed
