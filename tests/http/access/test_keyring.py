"""`TOPICS_API_KEYS` and what a key may do."""

import pytest

from topics.errors import RequestError, UsageError
from topics.http.access.keyring import Keyring, parse_keys
from topics.http.access.principal import ALL_SCOPES, FULL, UNAUTHENTICATED, Principal
from topics.http.access.scope import Scope

R, W, D, A = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN


def found(text: str, token: str) -> Principal:
    principal = parse_keys(text).find(token.encode())
    assert principal is not None
    return principal


@pytest.mark.parametrize(
    ("entry", "scopes"),
    [
        ("s", ALL_SCOPES), ("s:", ALL_SCOPES), ("s::", ALL_SCOPES), ("s::p", ALL_SCOPES), (" s : : ", ALL_SCOPES),
        ("s:read", R), ("s:r", R), ("s:WRITE", W), ("s:w", W), ("s:delete", D), ("s:del", D), ("s:d", D),
        ("s:admin", A), ("s:A", A), ("s:rw", R | W), ("s: read + Del ", R | D), ("s:rw+a+d", ALL_SCOPES),
        ("s:r+", R), ("s:+r", R),
    ],
)  # fmt: skip
def test_the_spellings_of_scopes(entry: str, scopes: Scope) -> None:
    """4.1: case-insensitive, joined by plus, an empty field is all of them."""
    principal = found(entry, "s")
    assert principal.scopes == scopes
    for scope in (R, W, D, A, R | W):
        assert principal.may(scope) is (scope in scopes)


@pytest.mark.parametrize("text", ["s:reed", "s:r+x", "s:+", "s:+ +", ":read", " :", "::", "ok,:r", "s:r:,x:y"])
def test_an_entry_that_could_mean_everything_or_nothing_is_refused_without_its_text(text: str) -> None:
    """4.1: the process refuses to start."""
    with pytest.raises(UsageError, match=r"^entry [12] of TOPICS_API_KEYS") as caught:
        parse_keys(text)
    assert "reed" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_blank_entries_are_no_keys(text: str) -> None:
    """4.1, 4.2: without any, nothing is asked."""
    assert not parse_keys(text)


def test_prefixes_are_compared_byte_by_byte() -> None:
    """4.1: at least one of them; later colons belong to the field."""
    principal = found("s:r: a | b:c: ||ü", "s")
    for name in ("a", "ab", "b:c:d", "ü", "über"):
        assert principal.allows(name)
    for name in ("", "A", "b", "b:cd", "u", "\ud800"):
        assert not principal.allows(name)
    assert not principal.allows(b"\xc3")
    assert principal.allows(b"a\xff")
    assert principal.restricted


def test_no_prefix_is_any_name() -> None:
    """4.1: an empty list of them."""
    principal = found("s:r: | ", "s")
    assert principal.allows("anything")
    assert principal.allows("")
    assert not principal.restricted


def test_the_last_of_equal_secrets_counts() -> None:
    """4.1: wherever it stands."""
    ring = parse_keys("s:r,t:w, s :d:x")
    assert len(ring) == 2
    again = ring.find(b"s")
    assert again is not None
    assert again.scopes == D
    assert not again.allows("y")


def test_a_token_that_is_no_key_is_unauthenticated() -> None:
    """4.1: neither a part of a secret nor more than it."""
    ring = parse_keys("secret,other")
    for token in (b"", b"secre", b"secret ", b"SECRET", b"secret,other"):
        assert ring.find(token) is None


def test_secrets_need_not_be_ascii() -> None:
    """4.1: they are bytes, in UTF-8."""
    assert parse_keys("geheimnis-ü").find("geheimnis-ü".encode()) is not None


def test_no_text_of_a_secret_is_kept() -> None:
    """4.1: only digests."""
    ring: Keyring = parse_keys("topsecret:r:p")
    assert "topsecret" not in repr(ring._entries)
    assert all(len(digest) == 32 for digest, _ in ring._entries)


def test_every_digest_is_compared_whatever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """4.1: no early exit."""
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return a == b

    monkeypatch.setattr("topics.http.access.keyring.compare_digest", compare)
    ring = parse_keys("a,b,c")
    for token in (b"a", b"c", b"x"):
        compared.clear()
        ring.find(token)
        assert len(compared) == 3


def test_names_of_a_body_are_refused_with_the_first_that_is_foreign() -> None:
    """R-AUTH-2: in the order given."""
    principal = found("s::a", "s")
    principal.check_names("a1", "a2")
    with pytest.raises(RequestError) as caught:
        principal.check_names("a1", "b", "c")
    assert (caught.value.code, caught.value.detail) == ("forbidden", {"topic": "b"})
    FULL.check_names("b", "c")


def test_the_full_and_the_unauthenticated_principal() -> None:
    """4.2: without keys, everything; on a path that asks for no key, nothing."""
    assert (FULL.key_id, UNAUTHENTICATED.key_id) == (None, None)
    assert FULL.may(R | W | D | A)
    assert UNAUTHENTICATED.may(Scope.NONE)
    assert not UNAUTHENTICATED.may(R)
