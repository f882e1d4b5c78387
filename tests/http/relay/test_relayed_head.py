"""Heads of relayed requests: plans of those that come again are kept, within bounds."""

from __future__ import annotations

import pytest

from tests.http.byte_stream import Echo, FakeCores, make_service
from topics.http.access.guard import AccessVerdict
from topics.http.access.keyring import parse_keys
from topics.http.access.principal import UNAUTHENTICATED, Principal
from topics.http.access.routes import Body, Route, RouteTable
from topics.http.access.scope import Scope
from topics.http.handlers import record_endpoints
from topics.http.lane.group_answers import STRICT, WITHOUT_SEQS
from topics.http.relay import relayed_head
from topics.http.relay.relay_message import DamagedRelayError
from topics.http.relay.relayed_head import (
    RelayedPlan,
    RelayedPlans,
    head_there,
    inner_plan,
    inner_route,
    plain_head,
)


def head(path: str, *lines: str) -> bytes:
    """The parts of a request that are relayed."""
    service = make_service(Echo().routes(), cores=FakeCores(lambda _call: None))
    text = "\r\n".join([f"GET /v0/topics/{path} HTTP/1.1", "Host: localhost", *lines]) + "\r\n\r\n"
    return head_there(service.planner.plan(text.encode()))


def test_a_head_that_comes_again_has_the_same_plan() -> None:
    plans = RelayedPlans(Echo().routes())
    assert plans.plan(head("far?a=1")) is plans.plan(head("far?a=1", "User-Agent: another"))
    assert plans.plan(head("far?a=1")) is not plans.plan(head("far?a=2"))


@pytest.mark.parametrize("once", [head("far", "Idempotency-Key: k"), head("far?a=" + "x" * 2000)])
def test_a_head_that_comes_once_or_is_long_is_not_kept(once: bytes) -> None:
    plans = RelayedPlans(Echo().routes())
    assert plans.plan(once) is not plans.plan(once)


def test_inner_requests_are_found_in_a_table_of_their_own_and_those_that_come_again_kept() -> None:
    inner = RouteTable([inner_route("POST", "begin", lambda call: call.reply(b"{}"))])
    plan = inner_plan(inner, "POST", "begin", UNAUTHENTICATED, {})
    plans = RelayedPlans(Echo().routes(), inner=inner)
    assert plans.plan(plan.head_there).route is plan.route
    assert plans.plan(plan.head_there) is plans.plan(plan.head_there)
    with pytest.raises(DamagedRelayError):
        RelayedPlans(Echo().routes()).plan(plan.head_there)
    assert make_service(Echo().routes()).planner.plan(b"POST /inner/begin HTTP/1.1\r\nHost: localhost\r\n\r\n").missing


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayed_head, "_KEPT_PLANS", 3)
    plans = RelayedPlans(Echo().routes())
    first = plans.plan(head("far0"))
    for number in range(1, 4):
        plans.plan(head(f"far{number}"))
    assert plans.plan(head("far0")) is not first


def test_a_head_states_rights_and_strictness() -> None:
    plans = RelayedPlans(Echo().routes())
    assert plans.plan(head("far")).principal.prefixes == ()
    assert plans.plan(head("far", "Prefer: handling=strict")).strict


def test_the_head_of_a_request_is_kept_until_its_rights_change() -> None:
    service = make_service(Echo().routes(), cores=FakeCores(lambda _call: None))
    plan = service.planner.plan(b"GET /v0/topics/far HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head_there(plan) is head_there(plan)
    plan.relayed = plan
    other = plan.judged(AccessVerdict(Principal(None, Scope.READ, (b"mine-",))))
    assert other.relayed is None
    assert RelayedPlans(service.routes).plan(head_there(other)).principal.prefixes == ("mine-",)


def test_a_stream_states_its_key_and_no_other_request_does() -> None:
    keyring = parse_keys("first-first-first,second-second-second")
    service = make_service(Echo().routes(), keyring=keyring, cores=FakeCores(lambda _call: None))
    other = parse_keys("second-second-second")
    plans = RelayedPlans(service.routes, other.key_id_of)

    def there(path: str, secret: str) -> RelayedPlan:
        text = f"GET /v0/topics/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n"
        data = head_there(service.planner.plan(text.encode()))
        assert secret.encode() not in data
        assert plans.plan(data) is not plans.plan(data) or not path.endswith("work"), "its number may change"
        return plans.plan(data)

    known = there("far/work", "second-second-second")
    assert (known.principal.key_id, known.unauthorized) == (0, None), "its number on that core"
    unknown = there("far/work", "first-first-first").unauthorized
    assert unknown is not None
    assert unknown.code == "unauthorized"
    for secret in ("first-first-first", "second-second-second"):
        plan = there("far", secret)
        assert (plan.principal.key_id, plan.unauthorized) == (None, None)


@pytest.mark.parametrize(
    ("target", "lines", "flags"),
    [
        ("far", (), 0),
        ("far?return_seqs=true", (), 0),
        ("far?return_seqs=0", (), WITHOUT_SEQS),
        ("far", ("Prefer: handling=strict",), STRICT),
        ("far?return_seqs=no", (), None),
        ("far?return_seqs=true&x=1", (), None),
        ("far", ("Idempotency-Key: k",), None),
    ],
)
def test_plain_writes_have_the_flags_of_the_lane(target: str, lines: tuple[str, ...], flags: int | None) -> None:
    routes = RouteTable([Route("POST", "/v0/topics/:topic", Scope.WRITE, record_endpoints.write, Body.JSON)])
    service = make_service(routes, cores=FakeCores(lambda _call: None))
    text = "\r\n".join([f"POST /v0/topics/{target} HTTP/1.1", "Host: localhost", *lines]) + "\r\n\r\n"
    plan = service.planner.plan(text.encode())
    there = RelayedPlans(routes).plan(head_there(plan))
    assert there.flags == flags
    if flags is not None:
        assert RelayedPlans(routes).plan(plain_head(plan.request.path, plan.principal, flags)).flags == flags
