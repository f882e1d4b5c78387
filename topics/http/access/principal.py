"""Who a request comes from and what they may do. Source: wire contract, section 4."""

from __future__ import annotations

from topics.engine.state.refusals import name_forbidden
from topics.engine.values.name_rules import Prefixes
from topics.http.access.scope import Scope

ALL_SCOPES = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN
NO_LIMIT = 1 << 62


class Principal:
    """One key (or nobody in particular, without keys). Shared by all requests of the key, alive as long as the server.

    key_id: the key's position among those configured, None without one; stable while the process lives. in_flight:
    requests between their head and the head of their answer; in_flight_max: the most there may be. is_valid: False once
    the key was taken away, or has other rights, which are those of `successor`.
    """

    __slots__ = ("_prefixes", "in_flight", "in_flight_max", "is_valid", "key_id", "scopes", "successor")

    def __init__(
        self, key_id: int | None, scopes: Scope, prefixes: tuple[bytes, ...] = (), in_flight_max: int = NO_LIMIT
    ) -> None:
        self.key_id = key_id
        self.scopes = scopes
        self.in_flight = 0
        self.in_flight_max = in_flight_max
        self._prefixes = prefixes
        self.is_valid = True
        self.successor: Principal | None = None

    @property
    def of_now(self) -> Principal | None:
        """Who the key belongs to by now; None: it was taken away."""
        principal: Principal | None = self
        while principal is not None and not principal.is_valid:
            principal = principal.successor
        return principal

    @property
    def prefixes(self) -> Prefixes:
        """What the names begin with that are the key's own; () where all are."""
        return tuple(prefix.decode("utf-8", "surrogateescape") for prefix in self._prefixes)

    @property
    def restricted(self) -> bool:
        """Only some names are its own."""
        return bool(self._prefixes)

    def has_rights_of(self, other: Principal) -> bool:
        return (self.scopes, self._prefixes, self.in_flight_max) == (other.scopes, other._prefixes, other.in_flight_max)

    def may(self, scope: Scope) -> bool:
        """All of `scope` is granted; `Scope.NONE` always is."""
        return scope in self.scopes

    def allows(self, name: str | bytes) -> bool:
        """The name of a topic or router begins, byte by byte, with one of the key's prefixes, or any name will do."""
        if not self._prefixes:
            return True
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
        return raw.startswith(self._prefixes)

    def check_names(self, *names: str) -> None:
        """Names from a body, in the order in which the contract has them checked.

        Raises: RequestError forbidden with `{topic}`, the first that is not allowed (R-AUTH-1 to R-AUTH-6).
        """
        if self._prefixes:
            for name in names:
                if not self.allows(name):
                    raise name_forbidden(name)


FULL = Principal(None, ALL_SCOPES)
"""Everyone, while no keys are configured (4.2)."""
NOBODY = Principal(None, Scope.NONE)
"""A request without a valid key on a path that asks for none, while keys are configured."""
