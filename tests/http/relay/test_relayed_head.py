"""Heads of relayed requests: plans of those that come again are kept, within bounds."""

from __future__ import annotations

import pytest

from tests.http.byte_stream import Echo, FakeCores, make_service
from topics.http.relay import relayed_head
from topics.http.relay.relayed_head import RelayedPlans, encoded_head


def head(path: str, *lines: str) -> bytes:
    """The parts of a request that are relayed."""
    service = make_service(Echo().routes(), cores=FakeCores(lambda _call: None))
    text = "\r\n".join([f"GET /v0/topics/{path} HTTP/1.1", "Host: localhost", *lines]) + "\r\n\r\n"
    return encoded_head(service.planner.plan(text.encode()))


def test_a_head_that_comes_again_has_the_same_plan() -> None:
    plans = RelayedPlans(Echo().routes())
    assert plans.plan(head("far?a=1")) is plans.plan(head("far?a=1", "User-Agent: another"))
    assert plans.plan(head("far?a=1")) is not plans.plan(head("far?a=2"))


@pytest.mark.parametrize("once", [head("far", "Idempotency-Key: k"), head("far?a=" + "x" * 2000)])
def test_a_head_that_comes_once_or_is_long_is_not_kept(once: bytes) -> None:
    plans = RelayedPlans(Echo().routes())
    assert plans.plan(once) is not plans.plan(once)


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
