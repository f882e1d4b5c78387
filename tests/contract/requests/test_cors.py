"""R-NET-10: pages of the origins in TOPICS_ALLOWED_ORIGINS may read answers, and no others."""

from __future__ import annotations

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.answer import Answer

APP = "https://app.example"
FROM_APP = {"Origin": APP}
ASKS = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,content-type"}
KEY = "topsecret"


def cors(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers if name.startswith("access-control-")}


def shared(answer: Answer, origin: str = APP) -> bool:
    """Whether the answer is readable for a page of the origin, and of no other; never with credentials."""
    found = cors(answer)
    assert "access-control-allow-credentials" not in found
    if origin != "*":
        assert ("vary", "Origin") in answer.headers
    exposed = {name.strip() for name in found.get("access-control-expose-headers", "").split(",")}
    return found.get("access-control-allow-origin") == origin and exposed >= {"Retry-After", "Preference-Applied"}


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/v0/metrics", "/healthz", "/no/such/path"])
def test_a_preflight_of_a_listed_origin_is_answered_without_a_key(make_world: MakeWorld, path: str) -> None:
    """R-NET-10: with all methods and fields of the contract, on any path."""
    world = make_world(api_keys=KEY, allowed_origins=(APP,))
    answer = world.request("OPTIONS", path, headers=FROM_APP | ASKS)
    assert (answer.status, answer.json) == (200, {})
    assert shared(answer)
    assert set(cors(answer)["access-control-allow-methods"].split(", ")) >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    allowed = set(cors(answer)["access-control-allow-headers"].lower().split(", "))
    assert allowed >= {"authorization", "content-type", "idempotency-key", "last-event-id", "prefer"}


@pytest.mark.parametrize("origins", [(), ("https://other.example",)])
def test_a_preflight_of_another_origin_is_a_405(make_world: MakeWorld, origins: tuple[str, ...]) -> None:
    """R-NET-10, 2.1: and so is one without an origin, and OPTIONS that is no preflight."""
    world = make_world(allowed_origins=origins)
    for headers in (FROM_APP | ASKS, ASKS, {"Origin": "null"} | ASKS):
        answer = world.request("OPTIONS", "/v0/topics/t", headers=headers)
        assert (answer.status, cors(answer)) == (405, {})
    world = make_world(allowed_origins=(APP,))
    answer = world.request("OPTIONS", "/v0/topics/t", headers=FROM_APP)
    assert answer.status == 405
    assert shared(answer)


def test_every_kind_of_answer_is_shared_with_a_listed_origin(make_world: MakeWorld) -> None:
    """R-NET-10: successes, failures, text and streams; writes and reads as often as a lane would take them."""
    world = make_world(api_keys=KEY, allowed_origins=(APP, "https://other.example"), gzip_min_bytes=1024)
    headers = FROM_APP | {"Authorization": f"Bearer {KEY}"}
    assert shared(world.request("PUT", "/v0/topics/q", {"type": "queue"}, headers))
    connection = world.connect()
    for n in range(5):
        assert shared(connection.request("POST", "/v0/topics/t", {"records": [{"data": "x" * 2000}]}, headers))
        assert shared(connection.request("POST", "/v0/topics/t/diff", {"from_seq": n}, headers))
    zipped = connection.request("POST", "/v0/topics/t/diff", {}, headers | {"Accept-Encoding": "gzip"})
    assert zipped.header("content-encoding") == "gzip"
    assert cors(zipped)["access-control-allow-origin"] == APP
    for method, path, status in (
        ("GET", "/v0/topics/absent", 404),
        ("GET", "/no/such/path", 404),
        ("BREW", "/v0/topics/t", 405),
        ("POST", "/v0/topics/t", 415),
        ("GET", "/v0/metrics", 200),
        ("GET", "/docs", 200),
        ("HEAD", "/v0/topics/t", 200),
    ):
        answer = world.request(method, path, headers=headers)
        assert answer.status == status, path
        assert shared(answer), path
    assert shared(world.request("GET", "/v0/topics/t", headers=FROM_APP))
    assert world.request("GET", "/v0/topics/t", headers=FROM_APP).status == 401
    assert shared(world.ask("GET", "/v0/topics/q/work?node=n", headers=headers).head())
    wid = world.request("POST", "/v0/watch", {"topics": {"t": {}}}, headers).json["wid"]
    assert shared(world.ask("GET", f"/v0/watch/{wid}?token={KEY}", headers=FROM_APP).head())
    assert cors(world.request("GET", "/v0/topics/t", headers=headers | {"Origin": "https://evil.example"})) == {}


def test_any_origin_is_named_by_a_star_and_never_gets_credentials(make_world: MakeWorld) -> None:
    """R-NET-10."""
    world = make_world(allowed_origins=("*",))
    for origin in (APP, "null", "http://localhost:3000"):
        assert shared(world.request("PUT", "/v0/topics/t", {}, {"Origin": origin}), "*")
        assert shared(world.request("OPTIONS", "/v0/topics/t", headers={"Origin": origin} | ASKS), "*")
    assert cors(world.request("GET", "/v0/topics/t")) == {}
