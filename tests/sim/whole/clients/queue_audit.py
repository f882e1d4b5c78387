"""After a start a queue is compared with the workers' knowledge: jobs, counts, and leases that
survive.
"""

from __future__ import annotations

from typing import Any

from tests.sim.whole.clients.queue_state import Queue
from tests.sim.whole.machine import Audit, Machine


def audit(machine: Machine, queue: Queue, found: list[str], state: dict[str, Any]) -> Audit:
    """found: the jobs that were read. state: the answer to a question for the topic."""
    _compare(machine, queue, found)
    counted, durable = state["queue"], state["config"]["leases_durable"]
    delayed = counted.get("delayed", 0)
    if state["count"] != counted["ready"] + counted["in_flight"] + delayed or state["count"] != len(found):
        raise machine.wrong(f"{queue.name}: holds {len(found)} jobs, told of {state['count']}, {counted}")
    now_ms = max(machine.ring.clock.now_ms(), queue.latest_ms)
    sure = sum(queue.due.get(text, 0) > now_ms for text in found)
    if not sure <= delayed:
        raise machine.wrong(f"{queue.name}: {delayed} jobs are delayed, and {sure} have to be")
    machine.counts["delays that had to last"] += sure
    if queue.leases_durable not in {None, durable}:
        raise machine.wrong(f"{queue.name}: leases_durable is {durable}, and was made {queue.leases_durable}")
    queue.leases_durable = durable
    if not durable:
        if counted["in_flight"]:
            raise machine.wrong(f"{queue.name}: {counted['in_flight']} leases survived")
        queue.leases.clear()
        queue.ended.clear()
        return
    yield from _ask_leases(machine, queue, set(found))
    yield from _ask_ended(machine, queue, set(found))


def _compare(machine: Machine, queue: Queue, found: list[str]) -> None:
    here = set(found)
    may_lose = queue.durability == "disk" and (machine.power_failed or machine.io_failed)
    if len(here) != len(found):
        raise machine.wrong(f"{queue.name}: a job is there twice")
    lost = queue.there - here - queue.moved - queue.ending
    if lost and not may_lose:
        raise machine.wrong(f"{queue.name}: lost {sorted(lost)[:5]} of {len(queue.there)}")
    back = here & queue.done.keys()
    if back and not may_lose:
        raise machine.wrong(f"{queue.name}: {sorted(back)[:5]} were over and are back")
    invented = here - queue.possible - back - queue.moved
    if invented:
        raise machine.wrong(f"{queue.name}: {sorted(invented)[:5]} were never written")
    queue.there, queue.maybe, queue.ending = here, set(), set()
    for text in back:
        del queue.done[text]
    if 0 < queue.cap_records < len(here):
        raise machine.wrong(f"{queue.name}: holds {len(here)} jobs, and has room for {queue.cap_records}")


def _ask_leases(machine: Machine, queue: Queue, here: set[str]) -> Audit:
    """Check that leases survive, if they are durable."""
    must = queue.durability == "fsync" or not (machine.power_failed or machine.io_failed)
    for held in list(queue.leases.values()):
        now_ms = machine.ring.clock.now_ms()
        if held.ending or held.text not in here or held.deadline <= now_ms + 50:
            held.ending = True  # the setting is unknown
            held.deliveries = 0
            continue
        left_ms = max(100, held.deadline - now_ms)
        body = {"node": held.node, "seqs": [held.seq], "lease_ids": [held.lease_id], "lease_ms": left_ms}
        status, answer = yield "POST", f"{queue.path}/extend", body
        machine.counts["leases asked for after a crash"] += 1
        if answer.get("extended") == 1:
            held.deadline = answer["deadlines"][str(held.seq)]
        elif _is_excused(machine, status):
            held.ending, held.deliveries = True, 0
        elif must:
            raise machine.wrong(f"{queue.name}: the lease {held.lease_id} on {held.text} was forgotten: {answer}")
        else:
            del queue.leases[held.text]


def _is_excused(machine: Machine, status: int) -> bool:
    """Return whether an extension had to fail: audits of one core come amid the faults of a life."""
    return status == 500 and machine.disk_failed


def _ask_ended(machine: Machine, queue: Queue, here: set[str]) -> Audit:
    """Check that a lease which was handed back is not in force again."""
    must = queue.durability == "fsync" or not (machine.power_failed or machine.io_failed)
    for held in list(queue.ended.values()):
        if held.text not in here or not must:
            del queue.ended[held.text]
            continue
        body = {"node": held.node, "seqs": [held.seq], "lease_ids": [held.lease_id], "lease_ms": 100}
        status, answer = yield "POST", f"{queue.path}/extend", body
        machine.counts["leases handed back asked for after a crash"] += 1
        if answer.get("extended") != 0 and not _is_excused(machine, status):
            raise machine.wrong(f"{queue.name}: {held.lease_id} on {held.text}, which was handed back, is back")
