"""A topic of another core, with the rights of one key: plain writes to it as rows of messages."""

from __future__ import annotations

from collections.abc import Sequence

from topics.http.access.principal import Principal
from topics.http.handlers import record_endpoints
from topics.http.lane.group_answers import STRICT, WITHOUT_SEQS
from topics.http.plan.plan import Plan
from topics.http.plan.service import FarAnswers, FarName
from topics.http.relay.relay_client import RelayClient
from topics.http.relay.relayed_head import RelayedRoute, plain_head

_MEANT = STRICT | WITHOUT_SEQS
"""The flags of a scan that the core has to know."""


class AskedTopic:
    """Asks a core for plain writes. There may be hundreds of thousands, so each has no plan."""

    __slots__ = ("_asked", "_heads", "_path", "_principal")

    def __init__(self, asked: RelayClient, path: str, principal: Principal) -> None:
        self._asked = asked
        self._path = path
        self._principal = principal
        self._heads: dict[int, bytes] = {}

    def ask(
        self,
        flags: Sequence[int],
        bodies: Sequence[bytes],
        names: Sequence[FarName],
        answers: FarAnswers,
        *,
        at_once: bool = False,
    ) -> bool:
        """See `FarTopic`."""
        heads = self._heads
        for flag in set(flags):
            if flag not in heads:
                heads[flag] = plain_head(self._path, self._principal, flag & _MEANT)
        heads_of = [heads[flag] for flag in flags]
        return self._asked.ask_plain(heads_of, bodies, names, answers, at_once=at_once)


def asked_topic(asked: Sequence[RelayClient], plan: Plan) -> AskedTopic | None:
    """Return the topic of a relayed write; None: it is another request."""
    route, core = plan.route, plan.core
    if core is None or not isinstance(route, RelayedRoute) or route.handler_there is not record_endpoints.write:
        return None
    return AskedTopic(asked[core], plan.request.path, plan.principal)
