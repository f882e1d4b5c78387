"""Plans: what a head asks for, worked out once: its route, body and refusals, and which plans are kept."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engine.fake_store import FakeLoop
from tests.http.byte_stream import Echo, Peer, make_service
from tests.http.fake_engine import FakeEngine
from topics.config import Config
from topics.errors import RequestError
from topics.http.access.keyring import parse_keys
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.plan import plan
from topics.http.plan.plan import Plan, Planner
from topics.http.plan.service import Service
from topics.http.route_table import route_table
from topics.http.wire.error_answers import BadRequestError
from topics.http.wire.query import parse_query

GET = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/v0/topics/a"),
    (b":authority", b"localhost"),
)


def planner(keys: str = "", **settings: object) -> Planner:
    """Return the plan of a server with its real routes."""
    return make_service(route_table(), keyring=parse_keys(keys), **settings).planner


def head(method: str, target: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def plan_of(method: str, target: str, *fields: str, keys: str = "", **settings: object) -> Plan:
    return planner(keys, **settings).plan(head(method, target, *fields))


def code(refusal: RequestError | None) -> str | None:
    return None if refusal is None else refusal.code


JSON = "Content-Type: application/json"


# --- route and name ---------------------------------------------------------------------------------------------------
def test_a_plan_has_the_route_the_decoded_name_and_the_query() -> None:
    found = plan_of("POST", "/v0/topics/a%3Eb/diff?limit=3&x=%41", JSON, "Content-Length: 2")
    assert found.route is not None
    assert (found.route.pattern, found.name, found.name_json) == ("/v0/topics/:topic/diff", "a>b", b'"a>b"')
    assert found.query == {"limit": "3", "x": "A"}
    assert (found.content_length, found.has_body, found.missing, found.plain) == (2, True, None, True)


@pytest.mark.parametrize(
    ("method", "target", "missing"),
    [
        ("GET", "/nowhere", "not_found"),
        ("BREW", "/v0/topics/a", "method_not_allowed"),
        ("HEAD", "/v0/topics/a/work", "method_not_allowed"),
        ("GET", "/v0/topics/%FF", "invalid_request"),
        ("BREW", "/v0/topics/%FF", "method_not_allowed"),
        ("HEAD", "/v0/topics/a", None),
    ],
)
def test_what_there_is_not_is_refused_and_such_a_plan_is_not_plain(
    method: str, target: str, missing: str | None
) -> None:
    """2.4/4-6."""
    found = plan_of(method, target)
    assert code(found.missing) == missing
    assert found.plain is (missing is None)


def test_a_head_that_is_no_request_is_an_error() -> None:
    with pytest.raises(BadRequestError):
        planner().plan(b"nonsense\r\n\r\n")


# --- bodies -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "length", "is_too_large"),
    [
        ("/v0/topics/a", 500, False),
        ("/v0/topics/a", 501, True),
        ("/v0/topics/a/diff", 100, False),
        ("/v0/topics/a/diff", 101, True),
        ("/nowhere", 101, False),
    ],
)
def test_a_body_has_the_limit_of_its_route(target: str, length: int, is_too_large: bool) -> None:
    found = plan_of("POST", target, JSON, f"Content-Length: {length}", max_body_bytes=500, max_command_bytes=100)
    assert code(found.too_large) == ("payload_too_large" if is_too_large else None)


@pytest.mark.parametrize(
    ("most", "of_commands", "limit"), [(0, 0, 0), (0, 70, 70), (50, 70, 50), (90, 70, 70), (90, 0, 90)]
)
def test_no_limit_is_0_and_the_smaller_of_two_counts(most: int, of_commands: int, limit: int) -> None:
    found = plan_of("POST", "/v0/topics/a/diff", max_body_bytes=most, max_command_bytes=of_commands)
    assert found.max_body_bytes == limit


@pytest.mark.parametrize(
    ("fields", "when_empty", "when_not"),
    [
        ((JSON,), None, None),
        (("Content-Type: application/json; charset=utf-8",), None, None),
        ((), None, "unsupported_media_type"),
        (("Content-Type: text/plain",), None, "unsupported_media_type"),
        ((JSON, "Content-Encoding: gzip"), None, None),
        ((JSON, "Content-Encoding: identity"), None, None),
        ((JSON, "Content-Encoding: br"), "unsupported_media_type", "unsupported_media_type"),
    ],
)
def test_a_body_must_be_json_unless_it_is_empty_where_that_means_defaults(
    fields: tuple[str, ...], when_empty: str | None, when_not: str | None
) -> None:
    """2.3/2-3."""
    found = plan_of("POST", "/v0/topics/a/diff", *fields, "Content-Length: 2")
    assert (code(found.body_refusal(True)), code(found.body_refusal(False))) == (when_empty, when_not)
    strict = plan_of("POST", "/v0/topics/a", *fields, "Content-Length: 2")
    assert code(strict.body_refusal(True)) == when_not


def test_a_body_in_chunks_or_one_that_is_waited_for_needs_a_second_look() -> None:
    chunked = plan_of("POST", "/v0/topics/a", JSON, "Transfer-Encoding: chunked")
    expected = plan_of("POST", "/v0/topics/a", JSON, "Content-Length: 2", "Expect: 100-continue")
    assert (chunked.has_body, chunked.plain, expected.expects_continue, expected.plain) == (True, False, True, False)
    assert not plan_of("POST", "/v0/topics/a", JSON, "Content-Length: 0", "Expect: 100-continue").expects_continue


# --- keys -------------------------------------------------------------------------------------------------------------
def test_a_plan_has_the_key_of_its_head_and_not_its_text() -> None:
    found = plan_of("GET", "/v0/topics/a", "Authorization: Bearer one", "Cookie: c", keys="one:r,two")
    assert (found.principal.key_id, found.unauthorized, found.forbidden) == (0, None, None)
    assert b"authorization" not in found.request.headers
    assert b"cookie" not in found.request.headers
    assert not found.plain, "it counts for its key"


def test_a_key_in_the_query_is_taken_out_of_the_plan() -> None:
    found = plan_of("GET", "/v0/topics/a/work?token=one&max=2", keys="one,two")
    assert (found.principal.key_id, found.query) == (0, {"max": "2"})
    assert "one" not in repr(found.request)
    stranger = plan_of("GET", "/v0/topics/a/work?token=three&max=2", keys="one,two")
    assert (stranger.principal, stranger.query, code(stranger.unauthorized)) == (UNAUTHENTICATED, {}, "unauthorized")


def test_a_plan_made_again_has_the_rights_of_now() -> None:
    """R-AUTH-10."""
    keys = parse_keys("one")
    service = make_service(route_table(), keyring=keys)
    first = service.planner.plan(head("PUT", "/v0/topics/a", "Authorization: Bearer one"))
    keys.change_to(parse_keys("one:r"))
    again = service.planner.again(first)
    assert (code(first.forbidden), code(again.forbidden)) == (None, "forbidden")
    assert (again.route, again.name) == (first.route, first.name)
    keys.change_to(parse_keys("two"))
    assert code(service.planner.again(first).unauthorized) == "unauthorized"


# --- which plans are kept ---------------------------------------------------------------------------------------------
def test_the_plan_of_a_head_is_made_once() -> None:
    made = planner()
    one, other = head("GET", "/v0/topics/a"), head("GET", "/v0/topics/b")
    found = made.plan(one)
    assert made.kept == {one: found}
    assert made.plan(other) is not found


def test_the_plan_of_a_head_with_a_key_is_found_again_by_its_digest() -> None:
    made = planner("one,two")
    keyed = head("GET", "/v0/topics/a", "Authorization: Bearer one")
    found = made.plan(keyed)
    assert made.plan(keyed) is found
    assert keyed not in made.kept
    assert made.plan(head("GET", "/v0/topics/a", "Authorization: Bearer two")) is not found


@pytest.mark.parametrize(
    "again",
    [
        head("GET", "/v0/topics/a/work"),
        head("GET", "/v0/topics/a?token=one"),
        head("GET", "/v0/topics/a", "X: " + "x" * 1024),
        head("POST", "/v0/topics/a", JSON, "Content-Length: 2", "Idempotency-Key: k"),
    ],
    ids=["a stream", "a key in the query", "a long head", "an idempotency key"],
)
def test_the_plan_of_a_head_that_will_not_come_again_is_not_kept(again: bytes) -> None:
    made = planner()
    first = made.plan(again)
    assert not made.kept
    assert made.plan(again) is not first


def test_no_plan_outlives_a_change_of_the_keys() -> None:
    made = planner("one")
    heads = head("GET", "/v0/topics/a", "Authorization: Bearer one"), head("GET", "/healthz")
    before = [made.plan(each) for each in heads]
    made.forget()
    assert not made.kept
    assert all(made.plan(each) is not old for each, old in zip(heads, before, strict=True))


def test_heads_with_secrets_or_keys_of_one_use_are_not_kept(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes()))
    for name in ("Authorization", "Cookie", "Idempotency-Key"):
        peer.ask("GET", "/v0/topics/a", **{name: "secret"})
    planner = peer.service.planner
    assert not any(b"secret" in head for head in planner.kept)
    assert not any(b"secret" in plan.request.headers.values() for plan in planner._kept_secret.values())
    peer.ask("GET", "/v0/topics/a")
    assert len(peer.service.planner.kept) == 1


def test_as_many_heads_as_a_client_invents_are_not_all_kept(echo: Echo) -> None:
    peer = Peer(make_service(echo.routes()))
    for number in range(3000):
        peer.ask("GET", f"/v0/topics/t{number}", X=str(number))
    assert len(peer.service.planner.kept) <= 1024


def test_a_full_cache_of_plans_or_targets_loses_few_of_them_at_a_time() -> None:
    """All at once they took 3 to 4 ms of one request, of which 4,000 to new topics came before."""
    made, kept, aims = planner(), [0], [0]
    for number in range(9000):
        made.plan(head("GET", f"/v0/topics/t{number}"))
        kept.append(len(made.kept))
        aims.append(len(made._aims))
    assert max(before - after for sizes in (kept, aims) for before, after in pairwise(sizes)) < 16
    assert max(kept) == 1024
    newest = head("GET", "/v0/topics/t8999")
    assert made.plan(newest) is made.kept[newest], "the oldest have left"


def test_the_plan_of_a_keyed_list_is_kept_by_its_digest() -> None:
    """4.1: the secret itself is not; another key, another name, or a body gives another plan."""
    keyring, loop = parse_keys("one,two:r"), FakeLoop()
    service = Service(Config(), route_table(), FakeEngine(), loop, keyring)  # type: ignore[arg-type]
    planner = service.planner
    keyed = (*GET, (b"authorization", b"Bearer one"))
    plan = planner.plan_list(keyed, True)
    assert planner.plan_list(keyed, True) is plan
    assert planner.plan_list(keyed, False) is not plan
    assert planner.plan_list((*GET, (b"authorization", b"Bearer two")), True).principal is not plan.principal
    assert planner.plan_list((*GET, (b"authorization", b"Bearer no")), True).unauthorized is not None
    assert "one" not in repr((planner._kept_lists, planner._kept_secret_lists))
    planner.forget()
    assert planner.plan_list(keyed, True) is not plan


@pytest.mark.parametrize("target", ["/v0/topics/a", "/v0/topics/q/work", "/v0/watch/w", "/v0/health", "/nowhere"])
def test_a_query_is_decoded_behind_the_key(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4, 4.3: sixty thousand pairs are no work for a server without keys."""
    decoded: list[str] = []
    monkeypatch.setattr(plan, "parse_query", lambda text: (decoded.append(text), parse_query(text))[1])
    peer = Peer(make_service(route_table(), keyring=parse_keys("secret")))
    for token in ("", "&token=wrong"):
        peer.ask("GET", f"{target}?a=1&b=2{token}")
        assert decoded == []
