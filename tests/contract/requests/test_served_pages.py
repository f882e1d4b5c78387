"""`/` and `/ui`: pages without data, that no key guards and no other origin changes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

import topics
from tests.contract.conftest import MakeWorld
from tests.contract.world.world import Answer, World
from topics.http.pages.guide_pages import NAMES
from topics.http.route_table import ROUTES

PAGES = ("/", "/ui")
DOCS = ("/docs", "/docs/contract/7.5", "/docs/guides/queues")
ALL = (*PAGES, *DOCS)
FOLDER = Path(topics.__file__).parent / "http" / "pages"
SCRIPTS = sorted(FOLDER.rglob("*.js"))
BYTES_MAX = 80_000
GUIDE_BYTES_MAX = 100_000


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def rules(answer: Answer) -> dict[str, list[str]]:
    """Return the policy of a page, by directive."""
    policy = answer.header("content-security-policy")
    assert policy is not None
    return {name: values for name, *values in (rule.split() for rule in policy.split(";"))}


@pytest.mark.parametrize("path", ALL)
def test_a_page_needs_no_key_and_is_the_same_whatever_the_server_holds(make_world: MakeWorld, path: str) -> None:
    """R-UI-1, R-UI-5, 4.3/2."""
    world = make_world(api_keys="secret-key")
    before = world.request("GET", path)
    assert before.status == 200
    with_key = {"Authorization": "Bearer secret-key"}
    body = {"records": [{"data": "a-secret-record"}]}
    assert world.request("POST", "/v0/topics/secret-topic", body, with_key).status == 201
    for headers in ({}, with_key, {"Authorization": "Bearer wrong"}):
        assert world.request("GET", path, headers=headers).text == before.text
    assert "secret" not in before.text
    head = world.request("HEAD", path)
    assert (head.status, head.text) == (200, "")


def test_a_page_states_whether_the_server_asks_for_keys(make_world: MakeWorld) -> None:
    """R-UI-1: so that it asks for one before it is refused."""
    assert '<html data-keys="yes" ' in make_world(api_keys="k").request("GET", "/ui").text
    assert '<html data-keys="no" ' in make_world().request("GET", "/ui").text


def test_other_methods_need_a_key_like_everything_else(make_world: MakeWorld) -> None:
    """4.3, 2.1."""
    world = make_world(api_keys="k:r")
    for path in PAGES:
        assert world.request("POST", path, {}).refusal == (401, "unauthorized", None)
        answer = world.request("POST", path, {}, {"Authorization": "Bearer k"})
        assert (answer.status, answer.header("allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ALL)
def test_the_policy_allows_a_page_its_own_script_and_style_and_nothing_else(world: World, path: str) -> None:
    """R-UI-2."""
    answer = world.request("GET", path)
    assert answer.header("content-type") == "text/html; charset=utf-8"
    assert answer.header("cache-control") == "no-cache"
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"
    found = rules(answer)
    assert next(iter(found)) == "default-src"
    assert found["default-src"] == found["frame-ancestors"] == found["base-uri"] == ["'none'"]
    for kind in ("script", "style"):
        pieces = re.findall(rf"<{kind}>(.*?)</{kind}>", answer.text, re.DOTALL)
        assert [hash_of(piece) for piece in pieces] == found.get(f"{kind}-src", [])
        assert answer.text.count(f"<{kind}") == len(pieces), "one with attributes, which no hash allows"
    assert found.get("connect-src", ["'self'"]) == ["'self'"]
    assert "unsafe" not in str(found)
    loaded = re.sub(r"<a [^>]*>", "", answer.text)
    assert not re.search(r"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", loaded)
    assert not re.search(r"\s(?:on\w+|style)=[\"']", answer.text), "an attribute that the policy refuses"


def test_every_guide_is_served_and_its_links_lead_to_what_is_there(world: World) -> None:
    """R-UI-5: also to headings of other guides; files that are not served are no links."""
    found = {name: world.request("GET", f"/docs/guides/{name}") for name in NAMES}
    assert {answer.status for answer in found.values()} == {200}
    assert {"index", "tutorial", "settings", "queues", "auth"} <= found.keys()
    assert "contract" not in found
    ids = {name: set(re.findall(r' id="([^"]+)"', answer.text)) for name, answer in found.items()}
    for name, answer in found.items():
        assert len(answer.text) < GUIDE_BYTES_MAX, name
        for link in re.findall(r'href="([^"]+)"', answer.text):
            path, _, heading = link.partition("#")
            guide = path.removeprefix("/docs/guides/") if path else name
            if path and not path.startswith("/docs/guides/"):
                assert path in {"/", "/docs", "/docs/contract/1"} or path.startswith(("http", "data:")), (name, link)
                continue
            assert guide in found, (name, link)
            assert not heading or heading in ids[guide], (name, link)
    for name in ("none", "..", "contract", "%3Cb%3E"):
        assert world.request("GET", f"/docs/guides/{name}").refusal == (404, "not_found", None)


def test_the_docs_ask_for_a_key_where_there_are_any(make_world: MakeWorld) -> None:
    """R-UI-1: for the forms that send."""
    assert "<input type='password'" in make_world(api_keys="k").request("GET", "/docs").text
    assert "<input type='password'" not in make_world().request("GET", "/docs").text


def test_all_pages_together_are_small(world: World) -> None:
    """Blanks for readers of a style are not sent."""
    texts = [world.request("GET", path).text for path in PAGES]
    assert sum(len(text.encode()) for text in texts) < BYTES_MAX
    style = texts[1].partition("<style>\n")[2].partition("</style>")[0]
    assert len(style) > 10_000
    assert not re.search(r"\s{2}|[{};:,]\s|\s[{}]", style)


@pytest.mark.parametrize("path", ALL)
def test_a_browser_that_has_a_page_is_not_sent_it_again(world: World, path: str) -> None:
    """R-UI-3."""
    tag = world.request("GET", path).header("etag")
    assert tag is not None
    for known in (tag, "*", f'"other", {tag}', tag.removeprefix("W/")):
        answer = world.request("GET", path, headers={"If-None-Match": known})
        assert (answer.status, answer.text, answer.header("etag")) == (304, "", tag)
    assert world.request("GET", path, headers={"If-None-Match": 'W/"other"'}).status == 200


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_compressed_for_those_who_offer_it(world: World, path: str) -> None:
    """R-UI-3."""
    plain = world.request("GET", path)
    zipped = world.request("GET", path, headers={"Accept-Encoding": "gzip"})
    assert (zipped.header("content-encoding"), zipped.header("vary")) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(zipped.body).decode() == plain.text


def test_a_foreign_host_gets_no_page(world: World) -> None:
    """2.4: a name that was bound again to this machine."""
    for path in PAGES:
        assert world.request("GET", path, headers={"Host": "evil.example"}).status == 403


def test_without_pages_their_paths_are_unknown(make_world: MakeWorld) -> None:
    """R-UI-4, R-UI-5."""
    world = make_world(ui="off", api_keys="k:r")
    for path in PAGES:
        assert world.request("GET", path).refusal == (401, "unauthorized", None)
        assert world.request("GET", path, headers={"Authorization": "Bearer k"}).refusal == (404, "not_found", None)
    for path in DOCS:
        assert world.request("GET", path).refusal == (401, "unauthorized", None)
        assert world.request("GET", path, headers={"Authorization": "Bearer k"}).status == 200
    assert "/ui" not in world.request("GET", "/openapi.json", headers={"Authorization": "Bearer k"}).json["paths"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_markup_of_text(script: Path) -> None:
    """R-UI-2: the browser refuses it, too, where it knows how."""
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert way not in script.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_asks_for_routes_that_the_server_has(script: Path) -> None:
    """R-UI-1: the page has no interface of its own."""
    paths = {route.pattern for route in ROUTES}
    for path in re.findall(r'["`](/(?:v0/\w+|healthz|openapi\.json|docs))', script.read_text()):
        assert path in paths, path
    for rest in re.findall(r'ofTopic\([^,()]+, ["`](/\w+)', script.read_text()):
        assert f"/v0/topics/:topic{rest}" in paths, rest
