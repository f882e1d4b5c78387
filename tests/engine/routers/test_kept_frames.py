"""Frames that a router keeps of acknowledged jobs: they are those of the records, or the jobs stay."""

from __future__ import annotations

import pytest

from tests.engine.harness import Answer, Harness
from topics.common.values.configs import RouterConfig
from topics.engine.queue.queue_results import ClaimRequest, HeldJobs
from topics.errors import CorruptError


def held() -> Harness:
    """A queue of two jobs, both leased, and a router out of it that finds no room."""
    h = Harness()
    h.put("q", type="queue")
    h.put("full", cap_records=1, discard="reject")
    h.append("there", name="full")
    made = Answer()
    h.engine.put_router("router", RouterConfig(source="q", dest="full"), lambda _name: True, made)
    h.settle()
    made.get()
    h.append("aaaa", "bbbb", name="q")
    claimed = Answer()
    h.engine.claim(ClaimRequest("q", "w", 2, None), claimed)
    h.settle()
    assert claimed.get().count == 2
    return h


def ack(h: Harness, *seqs: int) -> Answer:
    answer = Answer()
    h.engine.ack(HeldJobs("q", "w", seqs), answer)
    h.settle()
    return answer


def test_a_job_is_acknowledged_once_the_router_keeps_its_frame() -> None:
    h = held()
    assert ack(h, 1).get().done == 1
    router = h.engine._core.routers.by_name["router"]
    assert list(router.kept) == [1]
    assert b"aaaa" in router.kept[1]


def test_a_job_whose_frame_is_damaged_is_not_acknowledged_and_nothing_of_it_is_kept() -> None:
    """The router could never forward it, nor anything after it, and the record would be gone."""
    h = held()
    memory = h.store.log.file.memory
    assert memory is not None
    memory[bytes(memory).index(b"bbbb")] ^= 1
    with pytest.raises(CorruptError) as broken:
        ack(h, 2).get()
    assert broken.value.detail == {"topic": "q", "seq": 2}
    assert not h.engine._core.routers.by_name["router"].kept
    assert h.state("q").count == 2
