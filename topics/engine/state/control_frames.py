"""Payloads of the control frames the engine writes and reads back: compact JSON.

A frame that removes records says how far the topic had come (`upto`) and which caps held (`cap`: records, bytes):
recovery evicts what had been evicted by then before it removes the rest. So an append needs no frame for what its
arrival evicts, and every replay ends at the same floors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from topics.engine.state.losses import FloorMarks
from topics.engine.values.predicate import Predicate
from topics.engine.values.topic_config import TopicConfig

if TYPE_CHECKING:
    from topics.engine.state.topic import Topic


class CreatePayload(msgspec.Struct, omit_defaults=True):
    """TOPIC_CREATE."""

    name: str
    config: msgspec.Raw
    incarnation: str = ""
    """The topic's; "" in a frame of a version that knew none."""


class ConfigPayload(msgspec.Struct, omit_defaults=True):
    """TOPIC_CONFIG."""

    config: msgspec.Raw
    head: int = 0
    """Seqs given out without a frame so far (class `ephemeral`)."""
    generation: int = 0
    """Reservations up to this one no longer count: all before is on stable storage with this frame."""
    floors: FloorMarks | None = None
    """What was lost while no frame told of it (class `ephemeral`)."""
    keys_forgotten: int = 0
    """Idempotency keys and parts of producers, of writes up to this seq, were forgotten with their records, by a
    restart (class `ephemeral`)."""
    incarnation: str = ""
    """The incarnation of the topic at that time. One that a start in class `memory` or `ephemeral` has drawn is in no
    other frame. "": as before."""


class RemovalPayload(msgspec.Struct, omit_defaults=True):
    """DELETE_RECORDS and FLOORS."""

    upto: int
    """The highest seq given out."""
    cap: tuple[int, int] = (0, 0)
    """cap_records and cap_bytes in force with discard old."""
    ttl: int = 0
    """FLOORS: records up to here expired."""
    evicted: int = 0
    """FLOORS: records up to here were evicted by caps, for which records counted that no frame tells of."""
    before: int | None = None
    """DELETE_RECORDS: exclusive bound."""
    match: tuple[bool, str] | None = None
    """DELETE_RECORDS: is_prefix and value of the predicate."""
    seqs: list[int] = msgspec.field(default_factory=list)
    """CONSUME: first and last of each run of consecutive seqs."""

    def predicate(self) -> Predicate | None:
        return None if self.match is None else Predicate(self.match[0], self.match[1].encode())


class LeaseRow(msgspec.Struct, array_like=True):
    """One lease. until: its deadline, ms; lease_id 0: it has ended, the job is ready."""

    seq: int
    lease_id: int
    until: int
    deliveries: int
    node: str


class LeasesPayload(msgspec.Struct, omit_defaults=True):
    """LEASES: each of these jobs is leased like this from now on."""

    leases: list[LeaseRow] = msgspec.field(default_factory=list)
    ended: list[int] = msgspec.field(default_factory=list)
    """Runs of seqs, as in RemovalPayload: their leases ended, they are ready."""
    forgotten: bool = False
    """From here on leases are no longer told of: none of those told before counts."""


class ReservationPayload(msgspec.Struct):
    """HEAD_RESERVATION; the frame's seq is the highest reserved one."""

    generation: int


def to_runs(seqs: list[int]) -> list[int]:
    """First and last of each run of consecutive numbers among these, which ascend."""
    runs: list[int] = []
    for seq in seqs:
        if runs and seq == runs[-1] + 1:
            runs[-1] = seq
        else:
            runs += (seq, seq)
    return runs


def from_runs(runs: list[int]) -> list[int]:
    """The numbers again."""
    return [seq for first, last in zip(runs[::2], runs[1::2], strict=True) for seq in range(first, last + 1)]


def encode(payload: msgspec.Struct) -> bytes:
    return msgspec.json.encode(payload)


def removal(topic: Topic, **values: Any) -> RemovalPayload:
    """For the next operation staged on the topic: by then all that is given out now is applied."""
    config = topic.next_config
    cap = (config.cap_records, config.cap_bytes) if config.discard == "old" else (0, 0)
    return RemovalPayload(topic.next_seq - 1, cap, **values)


def parse_config(raw: msgspec.Raw) -> TopicConfig:
    return _parse_config(bytes(raw))


@lru_cache(maxsize=1024)
def _parse_config(text: bytes) -> TopicConfig:
    """Topics of one config share it: of 100,000 at a start, nearly all are alike."""
    return TopicConfig.parse(text)
