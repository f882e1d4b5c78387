"""The load client as Python starts it: a plan becomes C's memory, and its counts become figures."""

from __future__ import annotations

import resource
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.bench.load._load import ffi, lib
from topics.bench.load.latency_histogram import SLOTS, LatencyHistogram
from topics.bench.load.load_plan import LoadGroup, LoadMessage, json_sizes
from topics.errors import TopicsError

NUMBERS_MAX = 1 << 29
"""Records of one run. Their marks take memory only as far as they are used."""
SPARE_FILES = 200
PHASES = ("connecting", "running", "draining", "done")


class LoadError(TopicsError):
    """A load that could not run, such as one whose connections were refused."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Measurements of one group. slots: uint64, (slots, 3): answers, deliveries, slowest in ns."""

    name: str
    steps: dict[str, LatencyHistogram]
    delivery: LatencyHistogram
    slots: NDArray[np.uint64]
    samples: NDArray[np.uint64]
    requests: int
    records: int
    deliveries: int
    bytes_received: int
    all_requests: int
    all_records: int
    all_deliveries: int
    errors: int
    throttled: int
    unsent: int
    unanswered: int
    altered: int
    misread: int
    wrong: int
    fewest: int
    most: int
    seen: NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Measurements of one run. acked: uint8 by record number, as far as numbers were given.

    stalls: uint64, (n, 2): when the client's thread had no core, from and to.
    """

    groups: list[GroupFigures]
    seconds: float
    slot_seconds: float
    client_cpu_seconds: float
    client_without_core_seconds: float
    acked: NDArray[np.uint8]
    stalls: NDArray[np.uint64]
    error: str


@dataclass
class LoadClient:
    """One run of a plan. `run` blocks; another thread may ask for `requests_so_far` meanwhile.

    stall_room: how many times without a core are noted.

    next_number: the number of the first record that the load writes.
    """

    groups: list[LoadGroup]
    host: str
    port: int
    seconds: float
    warmup: float = 0.0
    drain_seconds: float = 15.0
    slot_seconds: float = 0.1
    next_number: int = 0
    numbers_max: int = NUMBERS_MAX
    stall_room: int = 0
    _keep: list[Any] = field(default_factory=list, init=False)
    _arrays: list[dict[str, NDArray[Any]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        slot_count = int((self.warmup + self.seconds) / self.slot_seconds) + 1
        self._acked = np.zeros(self.numbers_max, np.uint8)
        self._groups = ffi.new("struct tp_load_group[]", [self._laid_out(group, slot_count) for group in self.groups])
        fields = {
            "groups": self._groups,
            "group_count": len(self.groups),
            "host": self._text(self.host.encode()),
            "port": self.port,
            "warmup_ns": int(self.warmup * 1e9),
            "measured_ns": int(self.seconds * 1e9),
            "drain_ns": int(self.drain_seconds * 1e9),
            "slot_ns": int(self.slot_seconds * 1e9),
            "slot_count": slot_count,
            "acked": ffi.from_buffer("uint8_t[]", self._acked),
            "numbers_max": self.numbers_max,
            "next_number": self.next_number,
            "stall_room": self.stall_room,
        }
        self._stalls = np.zeros((self.stall_room, 2), np.uint64)
        if self.stall_room:
            fields["stalls"] = ffi.from_buffer("uint64_t[]", self._stalls)
        self._load = ffi.new("struct tp_load *", fields)

    @property
    def phase(self) -> str:
        return PHASES[self._load.phase]

    def requests_so_far(self) -> int:
        """Return how many requests were answered and records delivered, with the warm-up."""
        return sum(one.all_requests + one.all_deliveries for one in self._groups)

    def started_ns(self) -> int:
        """Return when the load began, CLOCK_MONOTONIC; 0 before."""
        return int(self._load.started_ns)

    def stop(self) -> None:
        lib.tp_load_stop(self._load)

    def run(self) -> LoadFigures:
        """Run the load. Raises: LoadError if it could not be run to its end."""
        _allow_files(sum(group.connections for group in self.groups) + SPARE_FILES)
        code = lib.tp_load_run(self._load)
        error = ffi.string(self._load.error).decode(errors="replace")
        if code:
            raise LoadError(f"the load client stopped: {error}")
        load = self._load
        return LoadFigures(
            [self._figures(*each) for each in zip(self._groups, self.groups, self._arrays, strict=True)],
            load.took_ns / 1e9,
            self.slot_seconds,
            load.cpu_ns / 1e9,
            load.without_core_ns / 1e9,
            self._acked[: load.next_number],
            self._stalls[: load.stall_count],
            error,
        )

    def run_watched(self, every_seconds: float, look: Any) -> LoadFigures:
        """Run the load in a thread, and call `look(self)` meanwhile. Ctrl-C stops the load."""
        result: list[LoadFigures | BaseException] = []

        def run() -> None:
            try:
                result.append(self.run())
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=run, name="load")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(every_seconds)
                look(self)
        finally:
            if thread.is_alive():
                self.stop()
            thread.join()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    def _text(self, value: bytes) -> Any:
        """Return C's copy of a text, which lives as long as this object; NULL for an empty one."""
        if not value:
            return ffi.NULL
        kept = ffi.new("char[]", value)
        self._keep.append(kept)
        return kept

    def _messages(self, messages: list[LoadMessage]) -> Any:
        rows = [
            {
                "head": self._text(message.head),
                "head_len": len(message.head),
                "body": self._text(message.body),
                "body_len": len(message.body),
                "rest": self._text(message.rest),
                "rest_len": len(message.rest),
                "take": int(message.take),
                "first": self._text(message.first or b""),
                "asks_from": message.asks_from,
                "asks": message.asks,
            }
            for message in messages
        ]
        kept = ffi.new("struct tp_message[]", rows or 1)
        self._keep.append(kept)
        return kept

    def _sizes(self, record_bytes: Collection[int]) -> Any:
        kept = ffi.new("int64_t[]", json_sizes(record_bytes) or 1)
        self._keep.append(kept)
        return kept

    def _laid_out(self, group: LoadGroup, slot_count: int) -> dict[str, Any]:
        """Return the fields of a group in C. Its arrays live as long as this object."""
        arrays: dict[str, NDArray[Any]] = {
            "answered": np.zeros((len(group.steps), SLOTS), np.uint64),
            "delivered": np.zeros(SLOTS, np.uint64),
            "slots": np.zeros((slot_count, 3), np.uint64),
            "samples": np.zeros((group.samples, 3), np.uint64),
        }
        if group.marks:
            arrays["seen"] = np.zeros(self.numbers_max, np.uint8)
        self._arrays.append(arrays)
        pointers = {
            name: ffi.from_buffer("uint8_t[]" if name == "seen" else "uint64_t[]", array)
            for name, array in arrays.items()
            if array.size
        }
        return {
            "messages": self._messages(list(group.messages)),
            "message_count": len(group.messages),
            "steps": len(group.steps),
            "connections": group.connections,
            "rate": group.rate,
            "topics": group.topics,
            "next_topic": group.first_topic,
            "openings": self._messages([LoadMessage(one) for one in group.openings]),
            "opening_count": len(group.openings),
            "ready": self._text(group.ready),
            "end": int(group.end),
            "size": group.size,
            "answer": self._text(group.answer),
            "refused": self._text(group.refused),
            "ping": self._text(group.ping),
            "pong": self._text(group.pong),
            "channel": group.channel,
            "hears": group.hears,
            "hears_itself": group.hears_itself,
            "shares": group.shares,
            "waits": group.waits,
            "stops_empty": group.stops_empty,
            "may_be_throttled": group.may_be_throttled,
            "most_requests": group.most_requests,
            "sample_room": group.samples,
            "sizes": self._sizes(group.record_bytes),
            "size_count": len(group.record_bytes),
            **pointers,
        }

    def _figures(self, group: Any, plan: LoadGroup, arrays: dict[str, NDArray[Any]]) -> GroupFigures:
        steps = {name: LatencyHistogram(arrays["answered"][at]) for at, name in enumerate(plan.steps)}
        return GroupFigures(
            plan.name,
            steps if plan.messages else {},
            LatencyHistogram(arrays["delivered"]),
            arrays["slots"],
            arrays["samples"][: group.sample_count],
            group.requests,
            group.records,
            group.deliveries,
            group.bytes,
            group.all_requests,
            group.all_records,
            group.all_deliveries,
            group.errors,
            group.throttled,
            group.unsent,
            group.unanswered,
            group.altered,
            group.misread,
            group.wrong,
            group.fewest,
            group.most,
            arrays.get("seen"),
        )


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files. Raises: LoadError if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise LoadError(f"{count:,} open files are needed and {hard:,} are allowed: raise the limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Labels of a text: how many, and how many are in a record that is not as it was sent."""

    found: int
    altered: int


def count_labels(text: bytes, seen: NDArray[np.uint8], sizes: Collection[int]) -> LabelCounts:
    """Count each label of a text in seen[its number], and compare the bytes of its record.

    sizes: of the records that were written, as `labelled_json` has them. Raises: LoadError for a
    number beyond `seen`.
    """
    known = json_sizes(sizes)
    altered = ffi.new("int64_t *")
    found = lib.tp_labels(text, len(text), ffi.from_buffer("uint8_t[]", seen), len(seen), known, len(known), altered)
    if found < 0:
        raise LoadError("a record has a number that no request of this run had")
    return LabelCounts(found, altered[0])
