"""Writes the golden directory of format 3: python -m tests.store.golden.make_third DIRECTORY

A killed server's two directories, `data` and `cold`: a queue whose jobs have delays in a compressed segment, a
segment, a pack and the log, jobs without one among them, one that is done, and records of bytes.
"""

from __future__ import annotations

from typing import Any

from tests.contract.world.queue_client import Queue, seqs_of
from tests.contract.world.sim_world import SimWorld
from tests.store.golden.make_second import write_golden

DELAYS_MS = (0, 10_000, 2_000_000_000)
"""No delay, one that has ended when the directory is opened, and one that has not."""
_CHECKPOINT_MS = 1100


def job(number: int) -> dict[str, Any]:
    delay = {"delay_ms": DELAYS_MS[number % 3]} if number % 3 else {}
    if number % 4 == 0:
        return {"data_base64": "AAEC", **delay}
    return {"data": f"job {number} ".ljust(60, "x"), "meta": {"n": number}, **delay}


def write(served: SimWorld, topic: str, numbers: range) -> None:
    served.write_records(topic, [job(number) for number in numbers])


def fill(served: SimWorld) -> None:
    served.start()
    jobs = Queue(served, "jobs", durability="fsync", lease_ms=1000)
    Queue(served, "few", durability="fsync")
    for begin in (1, 11, 21, 31):
        write(served, "jobs", range(begin, begin + 10))
        served.advance_ms(_CHECKPOINT_MS)
    write(served, "few", range(1, 7))
    done = seqs_of(jobs.claim(1))
    jobs.ack(*done)
    for _ in range(2):
        served.advance_ms(_CHECKPOINT_MS)
    # What follows is in the log and in no snapshot.
    write(served, "jobs", range(41, 47))
    write(served, "few", range(7, 10))


def expected(served: SimWorld) -> dict[str, Any]:
    """The answers that clients must get."""
    found: dict[str, Any] = {}
    for topic in ("few", "jobs"):
        queue = Queue(served, topic, durability="fsync", lease_ms=1000)
        found[topic] = {
            "records": served.diff(topic, include_tags=True)["records"],
            "queue": served.state(topic)["queue"],
            "claimed": seqs_of(queue.claim(100)),
        }
    return found


if __name__ == "__main__":
    write_golden(fill, expected, waited_ms=DELAYS_MS[1] + 5000)
