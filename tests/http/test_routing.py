"""Paths, methods, queries: 2.1, 2.2 and the order of 2.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.byte_stream import Peer
from topics.http.route_table import route_table
from topics.http.wire.query import boolean, parse_query, token_of, unsigned


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v0",
        "/v0/topics/",
        "/v0/topics/a/",
        "/v0//topics",
        "/V0/topics",
        "/v0/Topics/a",
        "/v0/topics/a/b/c",
        "/%76%30/topics",
        "*",
    ],
)
def test_paths_match_exactly(peer: Peer, path: str) -> None:
    """2.1."""
    response = peer.ask("GET", path)
    assert response.status == 404
    assert response.code == "not_found"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("jobs", "jobs"),
        ("a%3Eb", "a>b"),
        ("a->b", "a->b"),
        ("a%2Fb", "a/b"),
        ("%C3%A9", "é"),
        ("a+b", "a+b"),
        ("%zz", "%zz"),
        ("100%", "100%"),
        ("delete", "delete"),
    ],
)
def test_a_parameter_is_one_segment_decoded_after_matching(peer: Peer, raw: str, name: str) -> None:
    """2.1."""
    assert peer.ask("GET", f"/v0/topics/{raw}").json["name"] == name


def test_undecodable_utf_8_is_400_after_the_method_check(peer: Peer) -> None:
    """2.1."""
    response = peer.ask("GET", "/v0/topics/%FF")
    assert response.code == "invalid_request"
    assert not peer.wire.closed, "the request was well-formed HTTP"
    assert peer.ask("BREW", "/v0/topics/%FF").status == 405


@pytest.mark.parametrize("method", ["OPTIONS", "BREW", "TRACE"])
def test_a_known_path_with_another_method_is_405_with_allow(peer: Peer, method: str) -> None:
    """2.1."""
    response = peer.ask(method, "/v0/topics/jobs")
    assert response.code == "method_not_allowed"
    assert set(response.headers["allow"].split(", ")) == {"DELETE", "GET", "HEAD", "POST", "PUT"}


def test_allow_has_no_head_where_there_is_no_get(peer: Peer) -> None:
    """2.1."""
    for method in ("GET", "HEAD"):
        assert peer.ask(method, "/v0/topics/jobs/delete").headers["allow"] == "POST"


def test_head_is_get_without_the_body(peer: Peer) -> None:
    """2.1."""
    get = peer.ask("GET", "/v0/topics/jobs")
    head = peer.ask("HEAD", "/v0/topics/jobs")
    assert head.status == 200
    assert head.body == b""
    assert int(head.headers["content-length"]) == len(get.body) + len("HEAD") - len("GET")
    assert peer.ask("HEAD", "/nowhere").status == 404


def test_the_last_of_equal_keys_wins_and_of_token_the_first() -> None:
    """2.2."""
    assert parse_query("a=1&a=2&token=x&token=y") == {"a": "2", "token": "x"}


@given(
    st.lists(st.sampled_from(["token", "%74oken", "toke%6E", "to%6ben", "tokens", "=", "&", "x", "a%20b", "%", "+"]))
)
def test_the_token_is_found_without_decoding_the_rest(parts: list[str]) -> None:
    """2.2, 4.3."""
    text = "".join(parts)
    assert token_of(text) == parse_query(text).get("token")


def test_pairs_behind_the_first_thousand_are_not_looked_at() -> None:
    """2.2: a head holds sixty thousand."""
    for behind, seen in ((999, True), (1000, False)):
        for filler in ("&", "a=1&", "%61&"):
            text = f"{filler * behind}token=x"
            assert (parse_query(text).get("token") == "x") is (token_of(text) == "x") is seen


def test_form_decoding_keeps_malformed_escapes() -> None:
    """2.2."""
    assert parse_query("a+b=c%20d&%zz=%4&flag&=x&&e=1=2") == {
        "a b": "c d",
        "%zz": "%4",
        "flag": "",
        "": "x",
        "e": "1=2",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("1", True), ("false", False), ("0", False), ("TRUE", None), ("yes", None), ("", None)],
)
def test_booleans_are_exact_words_or_the_default(value: str, expected: bool | None) -> None:
    """2.2."""
    for default in (True, False):
        assert boolean({"k": value}, "k", default) is (default if expected is None else expected)


@pytest.mark.parametrize(
    ("value", "number"), [("7", 7), ("007", 7), ("-1", 5), ("1.0", 5), ("", 5), ("x", 5), ("²", 5)]
)
def test_integers_that_do_not_parse_are_the_default(value: str, number: int) -> None:
    """2.2."""
    assert unsigned({"k": value}, "k", 5) == number


def test_every_route_of_the_server_has_a_scope_and_probes_are_always_answered() -> None:
    table = route_table()
    for path in ("/healthz", "/readyz", "/v0/health", "/v0/ready", "/v0/metrics"):
        match = table.match(path)
        assert match is not None
        assert match.methods["GET"].always
    match = table.match("/v0/topics/diff/diff")
    assert match is not None
    assert match.parameters == ("diff",)
