"""The configured keys: parsed, stored as digests, looked up. Source: wire contract, section 4.1."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

from topics.errors import UsageError
from topics.http.access.principal import ALL_SCOPES, NO_LIMIT, Principal
from topics.http.access.scope import Scope

_SCOPES = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "delete": Scope.DELETE,
    "del": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}

_MARK_BYTES = 16


class Keyring:
    """Digests of secrets and their principals.

    A keyring without keys is false: every request may then do everything (4.2).
    """

    __slots__ = ("_entries", "_next_id")

    def __init__(self, entries: list[tuple[bytes, Principal]]) -> None:
        self._entries = tuple(entries)
        self._next_id = len(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def digests(self) -> bytes:
        """SHA-256 of each secret, 32 bytes at 32 * `key_id`.

        Removed keys have zeros, which no secret hashes to.
        """
        shown = bytearray(32 * self._next_id)
        for digest, principal in self._entries:
            assert principal.key_id is not None, "a key without a number"
            shown[32 * principal.key_id : 32 * principal.key_id + 32] = digest
        return bytes(shown)

    @property
    def key_ids(self) -> frozenset[int]:
        return frozenset(principal.key_id for _, principal in self._entries if principal.key_id is not None)

    def and_of(self, other: Keyring) -> Keyring:
        """Return the union of two keyrings; for equal secrets the key of `other` is used."""
        return Keyring([*(dict(self._entries) | dict(other._entries)).items()])

    def change_to(self, other: Keyring) -> None:
        """Replace the valid keys by those of `other`.

        A key with equal secret and rights is unchanged.
        """
        known = dict(self._entries)
        entries = []
        for digest, new in other._entries:
            principal = known.get(digest)
            if principal is None or not principal.has_rights_of(new):
                principal, new.key_id = new, self._next_id
                self._next_id += 1
            entries.append((digest, principal))
        self._entries = tuple(entries)
        valid = dict(entries)
        for digest, principal in known.items():
            if valid.get(digest) is not principal:
                principal.is_valid, principal.successor = False, valid.get(digest)

    def key_id_of(self, mark: bytes) -> int | None:
        """Return the number of the key with this mark, which another core knows; None: none has."""
        return next((principal.key_id for _, principal in self._entries if principal.mark == mark), None)

    def find(self, token: bytes) -> Principal | None:
        """Return the principal of a token; None for an unknown one.

        The time does not depend on which key it is, nor on whether there is one.
        """
        presented = sha256(token).digest()
        found: Principal | None = None
        for digest, principal in self._entries:
            if compare_digest(digest, presented):
                found = principal
        return found


NO_KEYS = Keyring([])


def parse_keys(text: str, in_flight_max: int = 0, of: str = "TOPICS_API_KEYS") -> Keyring:
    """Parse `TOPICS_API_KEYS`: comma-separated entries `secret[:scopes[:prefixes]]`. For equal
    secrets the last entry is used. in_flight_max: cap of each key, 0 for no limit. of: the name of
    the text in errors.

    Raises: UsageError naming the entry by its number, never by its text.
    """
    found: dict[bytes, tuple[Scope, tuple[bytes, ...]]] = {}
    for number, entry in enumerate((entry for entry in text.split(",") if entry.strip()), 1):
        secret, scopes, prefixes = (*entry.split(":", 2), "", "")[:3]
        secret = secret.strip()
        if not secret:
            raise _bad_entry(number, of, "has an empty secret: write secret:scopes:prefixes")
        digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found.pop(digest, None)
        found[digest] = _parse_scopes(number, of, scopes.strip()), _parse_prefixes(prefixes)
    limit = in_flight_max or NO_LIMIT
    keys = enumerate(found.items())
    return Keyring([(digest, Principal(n, *rights, limit, digest[:_MARK_BYTES])) for n, (digest, rights) in keys])


def _parse_scopes(number: int, of: str, text: str) -> Scope:
    if not text:
        return ALL_SCOPES
    scopes = Scope.NONE
    for token in text.split("+"):
        name = token.strip().lower()
        if name:
            if name not in _SCOPES:
                raise _bad_entry(number, of, f"names an unknown scope: use {', '.join(_SCOPES)}, joined by +")
            scopes |= _SCOPES[name]
    if not scopes:
        raise _bad_entry(number, of, "has a scopes field without a scope: leave it empty for all of them")
    return scopes


def _parse_prefixes(text: str) -> tuple[bytes, ...]:
    prefixes = (prefix.strip() for prefix in text.split("|"))
    return tuple(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes if prefix)


def _bad_entry(number: int, of: str, what: str) -> UsageError:
    return UsageError(f"entry {number} of {of} {what}")
