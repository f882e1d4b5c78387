"""Rights of a key by method and path: accepted, unknown, or without the right."""

from __future__ import annotations

import pytest

from topics.http.access.guard import AccessVerdict, Guard, path_name, shape_scope
from topics.http.access.keyring import NO_KEYS, Keyring, parse_keys
from topics.http.access.principal import FULL, UNAUTHENTICATED, Principal
from topics.http.access.scope import Scope
from topics.http.route_table import route_table
from topics.http.wire.parser import open_parser
from topics.http.wire.request import Request, parse_request

KEYS = "root,reader:r,writer:w,rw:rw,box:rw+d+a:box-|b:,boxreader:r:box-"
_ROUTES = route_table()
_PARSER = open_parser("h11")


def request(method: str, path: str, authorization: str | None = None) -> Request:
    field = "" if authorization is None else f"Authorization: {authorization}\r\n"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n"
    return parse_request(head.encode(), _PARSER, 65_536, 100)


def keyring(text: str = KEYS) -> Keyring:
    return parse_keys(text, 7)


def judge(
    method: str,
    path: str,
    key: str | None = None,
    *,
    token: str = "",
    keys: Keyring | None = None,
    probe_auth: bool = False,
) -> AccessVerdict:
    """key: of the header; token: of the query."""
    asked = request(method, path, None if key is None else f"Bearer {key}")
    guard = Guard(keyring() if keys is None else keys, probe_auth=probe_auth)
    return guard.judge(asked, token, _ROUTES.match(asked.path))


def code(verdict: AccessVerdict) -> str:
    """The refusal's code, or "" for a request that is accepted."""
    refusal = verdict.unauthorized or verdict.forbidden
    return "" if refusal is None else refusal.code


# --- whose request it is ----------------------------------------------------------------------------------------------
def test_without_keys_every_request_has_all_rights_and_counts_for_none() -> None:
    """4.2."""
    for method, path in (("GET", "/v0/topics"), ("DELETE", "/v0/topics/a"), ("PATCH", "/nowhere")):
        assert judge(method, path, "whatever", keys=NO_KEYS) == AccessVerdict(FULL)


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/topics/a", "/nowhere", "/v0/metrics", "/openapi.json"])
@pytest.mark.parametrize("key", [None, "", "Root", "roo", "root x"])
def test_a_request_without_a_valid_key_is_unauthorized_whatever_it_asks_for(path: str, key: str | None) -> None:
    verdict = judge("GET", path, key)
    assert (code(verdict), verdict.principal, verdict.counted) == ("unauthorized", UNAUTHENTICATED, None)


@pytest.mark.parametrize("authorization", ["bearer root", "Basic root", "Bearerroot", "root"])
def test_the_scheme_is_taken_as_it_is_written(authorization: str) -> None:
    asked = request("GET", "/v0/topics", authorization)
    assert code(Guard(keyring()).judge(asked, "", _ROUTES.match(asked.path))) == "unauthorized"


def test_a_request_counts_for_its_key() -> None:
    keys = keyring()
    verdict = judge("GET", "/v0/topics", "reader", keys=keys)
    assert (code(verdict), verdict.principal, verdict.counted) == ("", keys.find(b"reader"), keys.find(b"reader"))
    assert verdict.principal.in_flight_max == 7


def test_a_request_that_its_key_does_not_allow_counts_for_it_all_the_same() -> None:
    """The cap on requests in flight comes before the rights."""
    verdict = judge("PUT", "/v0/topics/a", "reader")
    assert code(verdict) == "forbidden"
    assert verdict.counted is verdict.principal


# --- a key in the query -----------------------------------------------------------------------------------------------
def test_only_streams_take_a_key_from_the_query_and_the_header_goes_first() -> None:
    """4.3."""
    assert code(judge("GET", "/v0/topics", token="root")) == "unauthorized"
    assert code(judge("POST", "/v0/topics/a/claim", token="root")) == "unauthorized"
    assert code(judge("GET", "/v0/topics/a/work", token="root")) == ""
    assert code(judge("GET", "/v0/topics/a/work", "wrong", token="root")) == "unauthorized"
    assert code(judge("GET", "/v0/topics/a/work", "reader", token="root")) == "forbidden"
    assert code(judge("GET", "/v0/topics/a/work", "", token="root")) == ""


def test_a_route_that_looks_at_the_key_itself_gets_every_request() -> None:
    """A watch session is its own credential."""
    keys = keyring()
    assert judge("GET", "/v0/watch/w", keys=keys) == AccessVerdict(UNAUTHENTICATED)
    assert judge("GET", "/v0/watch/w", "wrong", keys=keys) == AccessVerdict(UNAUTHENTICATED)
    for verdict in (
        judge("GET", "/v0/watch/w", "reader", keys=keys),
        judge("GET", "/v0/watch/w", token="reader", keys=keys),
    ):
        assert verdict == AccessVerdict(keys.find(b"reader") or UNAUTHENTICATED)
    assert code(judge("POST", "/v0/watch/w", token="reader")) == "unauthorized"


# --- probes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v0/health", "/v0/ready"])
def test_probes_need_a_key_only_where_the_setting_says_so(path: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        assert judge(method, path) == AccessVerdict(UNAUTHENTICATED)
        assert code(judge(method, path, probe_auth=True)) == "unauthorized"
        verdict = judge(method, path, "writer", probe_auth=True)
        assert (code(verdict), verdict.counted) == ("", None), "any key will do, and a probe counts for none"


# --- rights -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v0/topics", {"root", "reader", "rw", "box", "boxreader"}),
        ("HEAD", "/v0/topics", {"root", "reader", "rw", "box", "boxreader"}),
        ("POST", "/v0/topics/box-1", {"root", "writer", "rw", "box"}),
        ("POST", "/v0/topics/box-1/claim", {"root", "rw", "box"}),
        ("DELETE", "/v0/topics/box-1", {"root", "box"}),
        ("PUT", "/v0/topics/box-1", {"root", "box"}),
        ("PUT", "/v0/topics/other", {"root"}),
        ("GET", "/v0/topics/b:c", {"root", "reader", "rw", "box"}),
        ("GET", "/v0/topics/b%3Ac", {"root", "reader", "rw", "box"}),
        ("GET", "/v0/routers/box-r", {"root", "reader", "rw", "box", "boxreader"}),
        ("GET", "/v0/routers/r", {"root", "reader", "rw"}),
        ("BREW", "/v0/topics/box-1", {"root", "writer", "rw", "box"}),
        ("PATCH", "/v0/topics/box-1", {"root", "box"}),
        ("GET", "/v0/topics/box-1/unknown", {"root", "writer", "rw", "box"}),
        ("GET", "/nowhere", {"root", "reader", "writer", "rw", "box", "boxreader"}),
    ],
)
def test_a_key_needs_the_scopes_of_a_route_and_the_name_in_its_path(method: str, path: str, allowed: set[str]) -> None:
    """4.3, 4.4: what is no route has a scope by the shape of its path."""
    for key in ("root", "reader", "writer", "rw", "box", "boxreader"):
        assert code(judge(method, path, key)) == ("" if key in allowed else "forbidden"), key


def test_a_refusal_names_the_scopes_that_are_needed() -> None:
    forbidden = judge("POST", "/v0/topics/a/claim", "reader").forbidden
    assert forbidden is not None
    assert "read and write" in str(forbidden)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v0/topics/a", b"a"),
        ("/v0/topics/a/diff", b"a"),
        ("/v0/routers/a%2Fb", b"a/b"),
        ("/v0/topics/%FF", b"\xff"),
        ("/v0/topics/", b""),
        ("/v0/topics", None),
        ("/v0/watch/a", None),
        ("/docs", None),
    ],
)
def test_the_name_in_a_path_is_decoded(path: str, name: bytes | None) -> None:
    assert path_name(path) == name


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v0/topics/a/b/c", Scope.WRITE),
        ("GET", "/v0/routers/a/b", Scope.READ),
        ("PUT", "/v0/routers/a/b", Scope.ADMIN),
        ("DELETE", "/v0/routers/a/b", Scope.DELETE),
        ("POST", "/v0/routers/a", Scope.ADMIN),
        ("POST", "/v0/topics", Scope.NONE),
    ],
)
def test_what_is_no_route_has_a_scope_by_the_shape_of_its_path(method: str, path: str, scope: Scope) -> None:
    assert shape_scope(method, path) == scope


# --- keys that change -------------------------------------------------------------------------------------------------
def judged_again(keys: Keyring, principal: Principal, path: str = "/v0/topics/a") -> AccessVerdict:
    asked = request("PUT", path)
    match = _ROUTES.match(path)
    assert match is not None
    return Guard(keys).judge_again(principal, asked, "PUT", match.methods["PUT"])


def test_a_request_whose_key_was_taken_away_meanwhile_is_unauthorized() -> None:
    """R-AUTH-10."""
    keys = keyring()
    principal = judge("PUT", "/v0/topics/a", "root", keys=keys).principal
    assert code(judged_again(keys, principal)) == ""
    keys.change_to(parse_keys("other"))
    verdict = judged_again(keys, principal)
    assert (code(verdict), verdict.principal, verdict.counted) == ("unauthorized", UNAUTHENTICATED, None)


def test_a_request_whose_key_has_other_rights_by_now_has_those() -> None:
    """R-AUTH-10."""
    keys = keyring()
    principal = judge("PUT", "/v0/topics/a", "root", keys=keys).principal
    keys.change_to(parse_keys("root:r"))
    verdict = judged_again(keys, principal)
    assert (code(verdict), verdict.principal) == ("forbidden", keys.find(b"root"))
    keys.change_to(parse_keys("root:a:b"))
    assert code(judged_again(keys, principal)) == "forbidden"
    assert code(judged_again(keys, principal, "/v0/topics/b")) == ""
