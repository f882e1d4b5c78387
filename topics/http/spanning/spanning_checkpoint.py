"""Checkpoints (7.9) and backups (7.18) of all cores, and the archive (7.20, 7.21) of each.

Source: R-CORE-9, R-CORE-14, R-CORE-19.

Each core makes a checkpoint of its own. Core 0 joins them, whichever was asked, because it knows
what an answer that was not done has left: which cores, and the numbers of their checkpoints. It
also writes the backups, and knows the newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from topics.errors import RequestError
from topics.http.access.principal import UNAUTHENTICATED
from topics.http.handlers.archive_endpoints import archive_state
from topics.http.handlers.backup_endpoints import place_of_backup
from topics.http.handlers.checkpoint_endpoint import asked_checkpoint
from topics.http.plan.call import Call
from topics.http.relay.relayed_head import inner_plan
from topics.http.spanning.portion_answers import UNKNOWN, PortionAnswer, failed, pass_on
from topics.http.spanning.portions import AskedCores, ToAsk, ask_each, ask_each_or_fail
from topics.http.wire.query import unsigned

JOINING_CORE = 0
_KNOWN_MAX = 128
"""Most answers that were not done and can be asked about again."""


class _CoreCheckpoint(msgspec.Struct):
    snapshot: int
    done: bool
    checkpoint: int = 0


class _Checkpoints:
    """The checkpoints of one request. `left`: of cores that were not done, and their numbers."""

    def __init__(self, cores: int) -> None:
        self.left = dict.fromkeys(range(cores), 0)
        self.snapshots: dict[int, int] = {}


class JoinedCheckpoints:
    """The requests that core 0 joins."""

    def __init__(self, cores: AskedCores) -> None:
        self._cores = cores
        self._known: dict[int, _Checkpoints] = {}
        """Requests that were answered before they were done, by the number of the answer."""
        self._last = 0

    def join(self, call: Call) -> None:
        """Answer once each core has a checkpoint that begins from now on, or after `wait_ms`."""
        wait_ms, number = asked_checkpoint(call)
        checkpoints = self._known.get(number) or _Checkpoints(self._cores.count)
        plan = inner_plan(self._cores.inner, "POST", "checkpoint", UNAUTHENTICATED, {})
        asked = {
            core: ToAsk(plan, msgspec.json.encode({"wait_ms": wait_ms, "checkpoint": of_core}))
            for core, of_core in checkpoints.left.items()
        }
        then = partial(self._reply, call, checkpoints, number)
        if asked:
            ask_each_or_fail(call, self._cores, asked, then)
        else:
            then([])

    def _reply(self, call: Call, checkpoints: _Checkpoints, number: int, answers: Sequence[PortionAnswer]) -> None:
        for answer in answers:
            found = msgspec.json.decode(answer.body, type=_CoreCheckpoint)
            checkpoints.snapshots[answer.core] = found.snapshot
            if not found.done:
                checkpoints.left[answer.core] = found.checkpoint
            else:
                checkpoints.left.pop(answer.core, None)
        done = b"true"
        if checkpoints.left:
            done = b'false,"checkpoint":%d' % self._number_of(checkpoints, number)
        shape = b'{"snapshot":%d,"done":%b,"performance":{"server_total_ms":%b}}'
        call.reply(shape % (min(checkpoints.snapshots.values()), done, call.total_ms()))

    def _number_of(self, checkpoints: _Checkpoints, number: int) -> int:
        """Return the number by which they are asked about. number: the one that was sent."""
        if self._known.get(number) is checkpoints:
            return number
        if len(self._known) >= _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._last += 1
        self._known[self._last] = checkpoints
        return self._last


def checkpoint(cores: AskedCores, call: Call) -> None:
    """Have core 0 answer a request of a client."""
    wait_ms, number = asked_checkpoint(call)
    plan = inner_plan(cores.inner, "POST", "checkpoints", UNAUTHENTICATED, {})
    asked = ToAsk(plan, msgspec.json.encode({"wait_ms": wait_ms, "checkpoint": number}))

    def reply(answers: list[PortionAnswer]) -> None:
        if not failed(call, answers):
            pass_on(call, answers[0])

    ask_each(call, cores, {JOINING_CORE: asked}, reply)


def make_backup(cores: AskedCores, call: Call) -> None:
    """Have core 0 begin a backup."""
    place_of_backup(call)
    _have_backup(cores, call, "POST")


def get_backup(cores: AskedCores, call: Call) -> None:
    """Have core 0 answer how far the newest backup is."""
    _have_backup(cores, call, "GET")


def get_archive(cores: AskedCores, call: Call) -> None:
    """Have a core answer how far its archive is."""
    _have_archive(cores, call, "archive")


def get_archived_file(cores: AskedCores, call: Call) -> None:
    """Have a core answer a piece of a file of its archive."""
    _have_archive(cores, call, "archive/file")


def _have_archive(cores: AskedCores, call: Call, path: str) -> None:
    """Have the core answer that a mirror names, which follows each by itself (R-CORE-19)."""
    archive_state(call)
    query = call.plan.query
    core = unsigned(query, "core", cores.count)
    if core >= cores.count:
        highest = cores.count - 1
        message = f"this server has an archive for each of its cores: name one by core (0 to {highest})"
        raise RequestError("invalid_request", f"{message}, as `topics mirror` of this version or later does")
    asked = ToAsk(inner_plan(cores.inner, "GET", path, call.principal, dict(query)))

    def reply(answers: list[PortionAnswer]) -> None:
        if not failed(call, answers):
            pass_on(call, answers[0])

    ask_each(call, cores, {core: asked}, reply)


def _have_backup(cores: AskedCores, call: Call, method: str) -> None:
    asked = ToAsk(inner_plan(cores.inner, method, "backups", call.principal, {}), bytes(call.body))

    def reply(answers: list[PortionAnswer]) -> None:
        if method == "POST" and answers[0].status == UNKNOWN:
            call.drop()  # perhaps it was begun
        elif not failed(call, answers):
            pass_on(call, answers[0])

    ask_each(call, cores, {JOINING_CORE: asked}, reply)
