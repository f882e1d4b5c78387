"""Payloads of the control frames that the engine writes and reads back: compact JSON.

A frame that removes records states the topic's head at that time (`upto`) and the caps in force
(`cap`: records, bytes). Recovery first evicts the records that had been evicted by then, and
removes the others after that. An append therefore needs no frame for the records that it evicts,
and every replay ends at the same floors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import msgspec

from topics.common.values.answers import Attempt
from topics.engine.values.floor_marks import FloorMarks
from topics.engine.values.predicate import Predicate
from topics.engine.values.topic_config import TopicConfig, read_config


class RemovingTopic(Protocol):
    """The members of a topic that a frame which removes records describes."""

    next_config: TopicConfig
    next_seq: int


class CreatePayload(msgspec.Struct, omit_defaults=True):
    """The payload of TOPIC_CREATE."""

    name: str
    config: msgspec.Raw
    incarnation: str = ""
    """The topic's incarnation; "" in a frame of a version without incarnations."""


class ConfigPayload(msgspec.Struct, omit_defaults=True):
    """The payload of TOPIC_CONFIG."""

    config: msgspec.Raw
    head: int = 0
    """The highest seq given out, whose records may have no frames (class `ephemeral`)."""
    generation: int = 0
    """Reservations up to this one are void: this frame puts everything before it on stable
    storage.
    """
    floors: FloorMarks | None = None
    """The floors of losses that no other frame states (class `ephemeral`)."""
    keys_forgotten: int = 0
    """Idempotency keys and producers' parts of writes up to this seq were forgotten: a restart lost
    their records (class `ephemeral`).
    """
    incarnation: str = ""
    """The incarnation of the topic from here on; "": unchanged. An incarnation drawn by a start in
    class `memory` or `ephemeral` is in no other frame.
    """


class RemovalPayload(msgspec.Struct, omit_defaults=True):
    """The payload of DELETE_RECORDS, FLOORS and CONSUME."""

    upto: int
    """The highest seq given out."""
    cap: tuple[int, int] = (0, 0)
    """cap_records and cap_bytes in force, if discard is "old"."""
    ttl: int = 0
    """FLOORS: records up to this seq expired."""
    evicted: int = 0
    """FLOORS: records up to this seq were evicted by caps that counted records without frames."""
    before: int | None = None
    """DELETE_RECORDS: exclusive upper bound of the seqs."""
    match: tuple[bool, str] | None = None
    """DELETE_RECORDS: is_prefix and value of the predicate."""
    seqs: list[int] = msgspec.field(default_factory=list)
    """CONSUME: first and last of each run of consecutive seqs.

    FLOORS: those of records that expired by a ttl of their own.
    """
    holes: list[int] = msgspec.field(default_factory=list)
    """CONSUME, of a topic that leaves class `ephemeral` (gone_records.py): runs of `seqs` that
    expired.
    """

    def predicate(self) -> Predicate | None:
        return None if self.match is None else Predicate(self.match[0], self.match[1].encode())


class LeaseRow(msgspec.Struct, array_like=True):
    """One lease.

    until: its deadline, ms. lease_id 0: the lease has ended and the job is ready.
    """

    seq: int
    lease_id: int
    until: int
    deliveries: int
    node: str


class AttemptRow(msgspec.Struct, array_like=True):
    """One attempt of each of some jobs: see `Attempt`. seqs: runs, as in RemovalPayload."""

    seqs: list[int]
    delivery: int
    node: str
    ended: str
    at: int
    reason: str = ""


class JobsMove(msgspec.Struct, array_like=True):
    """Jobs on their way to a dead-letter topic of another core, whose queue has noted that."""

    token: str
    """The name of the queue in that topic: random hex digits."""
    number: int
    """It is 1 higher with each move of the queue."""
    mark: int
    """A random number, by which two moves of one number differ: a queue may be put back."""
    dead_letter: str
    seqs: list[int]
    """Runs, as in RemovalPayload. None: the last move has ended."""


NO_MOVE = JobsMove("", 0, 0, "", [])
"""States in the log that nothing is known of the moves before."""


class LeasesPayload(msgspec.Struct, omit_defaults=True):
    """The payload of LEASES: the state of these jobs' leases from this frame on."""

    leases: list[LeaseRow] = msgspec.field(default_factory=list)
    ended: list[int] = msgspec.field(default_factory=list)
    """Seqs whose leases ended, so that the jobs are ready: runs, as in RemovalPayload."""
    forgotten: bool = False
    """Whether leases are no longer logged from here on, so that all leases logged before are
    void.
    """
    attempts: list[AttemptRow] = msgspec.field(default_factory=list)
    """Attempts that ended here, or that are known when leases begin to be logged."""
    move: JobsMove | None = None
    """A move that begins, whether leases are logged or not; or `NO_MOVE`."""


class ReaderPayload(msgspec.Struct, omit_defaults=True):
    """The payload of READER_PUT, READER_POSITION and READER_DELETE.

    The frame's seq is the position: of a new reader, or the committed one.
    """

    reader: str
    delivery: str = ""
    holds: bool = False
    trims: bool = False


class ReservationPayload(msgspec.Struct):
    """The payload of HEAD_RESERVATION. The frame's seq is the highest reserved one."""

    generation: int


def to_runs(seqs: list[int]) -> list[int]:
    """Return first and last of each run of consecutive numbers in an ascending list."""
    runs: list[int] = []
    for seq in seqs:
        if runs and seq == runs[-1] + 1:
            runs[-1] = seq
        else:
            runs += (seq, seq)
    return runs


def attempt_row(seqs: list[int], one: Attempt) -> AttemptRow:
    """Build the row of an attempt that is the same of these jobs, ascending."""
    return AttemptRow(to_runs(seqs), one.delivery, one.node, one.ended, one.at, one.reason)


def from_runs(runs: list[int]) -> list[int]:
    """Return the numbers in runs: the inverse of `to_runs`."""
    return [seq for first, last in zip(runs[::2], runs[1::2], strict=True) for seq in range(first, last + 1)]


def encode(payload: msgspec.Struct) -> bytes:
    return msgspec.json.encode(payload)


def removal(topic: RemovingTopic, **values: Any) -> RemovalPayload:
    """Build the payload for the next operation staged on the topic.

    By the time that operation is applied, everything given out until now is applied, too.
    """
    config = topic.next_config
    cap = (config.cap_records, config.cap_bytes) if config.discard == "old" else (0, 0)
    return RemovalPayload(topic.next_seq - 1, cap, **values)


def parse_config(raw: msgspec.Raw) -> TopicConfig:
    return _parse_config(bytes(raw))


@lru_cache(maxsize=1024)
def _parse_config(text: bytes) -> TopicConfig:
    """Parse a config with a cache: nearly all of 100,000 topics at a start have equal configs."""
    return read_config(text)
