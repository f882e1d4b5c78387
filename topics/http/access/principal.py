"""The sender of a request and its rights. Source: wire contract, section 4."""

from __future__ import annotations

from topics.engine.state.refusals import name_forbidden
from topics.engine.values.name_rules import Prefixes
from topics.http.access.scope import Scope

ALL_SCOPES = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN
NO_LIMIT = 1 << 62


class Principal:
    """One key, or the anonymous sender where no key is needed.

    All requests of a key share one object, which lives as long as the server. key_id: the key's
    position among those configured, stable while the process lives; None without a key. in_flight:
    requests between their head and the head of their answer. in_flight_max: their cap. is_valid:
    False once the key was removed or its rights changed; `successor` then has the new rights. mark:
    the beginning of the digest of its secret, by which other cores know it; b"" without a key.
    """

    __slots__ = ("_prefixes", "in_flight", "in_flight_max", "is_valid", "key_id", "mark", "scopes", "successor")

    def __init__(
        self,
        key_id: int | None,
        scopes: Scope,
        prefixes: tuple[bytes, ...] = (),
        in_flight_max: int = NO_LIMIT,
        mark: bytes = b"",
    ) -> None:
        self.key_id = key_id
        self.mark = mark
        self.scopes = scopes
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        self._prefixes = prefixes
        self.is_valid = True
        self.successor: Principal | None = None

    @property
    def of_now(self) -> Principal | None:
        """The current principal of the key; None if the key was removed."""
        principal: Principal | None = self
        while principal is not None and not principal.is_valid:
            principal = principal.successor
        return principal

    @property
    def prefixes(self) -> Prefixes:
        """Prefixes of the names that the key may use; () for all names."""
        return tuple(prefix.decode("utf-8", "surrogateescape") for prefix in self._prefixes)

    @property
    def restricted(self) -> bool:
        """Whether the key may only use some names."""
        return bool(self._prefixes)

    def has_rights_of(self, other: Principal) -> bool:
        return (self.scopes, self._prefixes, self.in_flight_max) == (other.scopes, other._prefixes, other.in_flight_max)

    def may(self, scope: Scope) -> bool:
        """Return whether all of `scope` is granted; `Scope.NONE` always is."""
        return scope in self.scopes

    def allows(self, name: str | bytes) -> bool:
        """Return whether the key may use a topic or router of this name.

        Prefixes are compared byte by byte; a key without prefixes may use any name.
        """
        if not self._prefixes:
            return True
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
        return raw.startswith(self._prefixes)

    def check_names(self, *names: str) -> None:
        """Check the names in a body, in the order that the contract requires.

        Raises: RequestError forbidden with `{topic}`, the first name that is not allowed (R-AUTH-1
        to R-AUTH-6).
        """
        if self._prefixes:
            for name in names:
                if not self.allows(name):
                    raise name_forbidden(name)


FULL = Principal(None, ALL_SCOPES)
"""The principal of every request while no keys are configured (4.2)."""
UNAUTHENTICATED = Principal(None, Scope.NONE)
"""The principal of requests without a valid key, on paths that need none, with keys configured."""
