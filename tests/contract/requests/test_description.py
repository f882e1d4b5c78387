"""`/openapi.json` and `/docs`, and answers held against what they say."""

from __future__ import annotations

import base64
import hashlib
import re

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World
from topics.http.route_table import ROUTES


def test_the_description_is_served(world: World) -> None:
    """3.1: as JSON, the same each time."""
    answer = world.request("GET", "/openapi.json")
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert answer.json["openapi"].startswith("3.1")
    assert sum(len(methods) for methods in answer.json["paths"].values()) == len(ROUTES)
    assert world.request("GET", "/openapi.json").json == answer.json


def test_the_page_allows_its_own_style_and_nothing_else(world: World) -> None:
    """2.1: a page for people, with a policy."""
    answer = world.request("GET", "/docs")
    assert (answer.status, answer.header("content-type")) == (200, "text/html; charset=utf-8")
    policy = answer.header("content-security-policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
    assert answer.header("x-content-type-options") == "nosniff"


def test_with_keys_it_takes_one_that_may_read(make_world: MakeWorld) -> None:
    """4.4: like metrics."""
    world = make_world(api_keys="r:r,w:w")
    for path in ("/openapi.json", "/docs"):
        for headers, status in (({}, 401), ({"Authorization": "Bearer w"}, 403), ({"Authorization": "Bearer r"}, 200)):
            assert world.request("GET", path, headers=headers).status == status
