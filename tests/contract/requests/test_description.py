"""`/openapi.json` and `/docs`, and answers held against what they say."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World
from topics.http.openapi.api_examples import EXAMPLES
from topics.http.route_table import ROUTES


def test_the_description_is_served(world: World) -> None:
    """3.1: as JSON, the same each time."""
    answer = world.request("GET", "/openapi.json")
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert answer.json["openapi"].startswith("3.1")
    assert sum(len(methods) for methods in answer.json["paths"].values()) == len(ROUTES)
    assert world.request("GET", "/openapi.json").json == answer.json


def shape(value: Any) -> Any:
    """Return a JSON value with its types in the place of its numbers, texts and booleans."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_the_examples_are_a_story_that_happens(world: World) -> None:
    """3.1, 4.4: each request is answered with the status and the members of its example."""
    told: dict[str, str] = {}
    for key, example in EXAMPLES.items():
        for method, path, body in example.before:
            assert world.request(method, path, body).status < 300
        if example.text or example.answer is None or {"backup", "archive"} & {*example.id.split("_")}:
            continue  # these need a directory
        path, body = example.path, example.body
        if isinstance(body, dict) and "token" in body:
            body = body | {"token": told["token"]}
        answer = world.request(key.partition(" ")[0], path, body, {"Accept": "application/json"})
        assert (answer.status, shape(answer.json)) == (example.status, shape(example.answer)), key
        told |= {name: value for name, value in answer.json.items() if name == "token"}


def test_the_page_allows_its_own_style_and_nothing_else(world: World) -> None:
    """2.1: a page for people, with a policy."""
    answer = world.request("GET", "/docs")
    assert (answer.status, answer.header("content-type")) == (200, "text/html; charset=utf-8")
    policy = answer.header("content-security-policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
    assert answer.header("x-content-type-options") == "nosniff"


def test_sections_of_the_contract_are_served(world: World) -> None:
    """R-UI-5: with links to others and to rules; what is no section is unknown."""
    answer = world.request("GET", "/docs/contract/7.5")
    assert (answer.status, answer.header("content-type")) == (200, "text/html; charset=utf-8")
    assert '<a href="/docs/contract/13.4">13.4</a>' in answer.text
    assert '<a href="/docs/contract/6.3#R-CAP-5">R-CAP-5</a>' in answer.text
    tag = answer.header("etag")
    assert tag is not None
    assert world.request("GET", "/docs/contract/7.5", headers={"If-None-Match": tag}).status == 304
    for number in ("7.99", "x", "%3Cb%3E", ".."):
        assert world.request("GET", f"/docs/contract/{number}").refusal == (404, "not_found", None)


def test_with_keys_it_takes_one_that_may_read(make_world: MakeWorld) -> None:
    """4.4: like metrics."""
    world = make_world(api_keys="r:r,w:w")
    for headers, status in (({}, 401), ({"Authorization": "Bearer w"}, 403), ({"Authorization": "Bearer r"}, 200)):
        assert world.request("GET", "/openapi.json", headers=headers).status == status
