"""The access log of whole lives: a line for each answer, and in its file what was given to it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.sim.genome import Choices
from tests.sim.whole.clients.http_client import Answered, Wire
from tests.sim.whole.machine import Machine
from tests.sim.whole.monitors.listed import find
from tests.sim.world.sim_file import SimFile

PATH = "/srv/access.log"
_REFUSED_UNREAD = 429
Asked = tuple[str, str]


class AccessLines:
    """The lines of one machine, which it compares with the requests of its clients at each end.

    An answer that has come has its line, and no request has two. Without a failure no line is left
    out, and the file of a server that has stopped has all of them.
    """

    def __init__(self, machine: Machine, choices: Choices) -> None:
        rng = choices.stream("access log")
        machine.plan.forced |= {
            "access_log": PATH,
            "access_log_format": "json",
            "access_log_every_ms": rng.choice((2, 1000)),
        }
        machine.on_serving = self._begin
        machine.on_end = self._end
        self._machine = machine
        self._asked: Counter[Asked] = Counter()
        self._came: Counter[tuple[Asked, int]] = Counter()
        self._lines: list[bytes] = []
        self._is_on = False
        self._file_begin = 0
        self._failures = 0
        self.counts: Counter[str] = Counter()

    def watched(self, wire: Wire) -> Wire:
        """Have a client's requests and their answers counted."""
        ask = wire.ask

        def asked(method: str, path: str, body: dict[str, Any] | None, answered: Answered) -> None:
            request = method, path.partition("?")[0]
            self._asked[request] += 1

            def come(status: int, answer: Any) -> None:
                if status:
                    self._came[request, status] += 1
                answered(status, answer)

            ask(method, path, body, come)

        wire.ask = asked  # type: ignore[method-assign]
        return wire

    def upgrade(self) -> None:
        """Count a request of a WebSocket's connection, whose answer is not compared."""
        self._asked["GET", "/v0/ws"] += 1

    def _begin(self) -> None:
        server = self._machine.server
        assert server is not None
        assert server.service.access_log is not None
        log, lines = server.service.access_log, self._lines
        write = log._write

        def noted(line: bytes) -> None:
            lines.append(line)
            write(line)

        log._write = noted
        self._is_on = True
        self._file_begin = len(self._contents)
        self._failures = len(self._machine.ring.faults.failures)

    @property
    def _contents(self) -> bytes:
        node = find(self._machine.ring.disk.root, PATH, durable=False)
        return bytes(node.live) if isinstance(node, SimFile) else b""

    def _end(self, power_cut: bool) -> None:
        if self._is_on:
            self._compare_with_requests()
            self._compare_with_file()
        self._is_on = False
        self._asked, self._came = Counter(), Counter()
        self._lines = []

    def _compare_with_requests(self) -> None:
        told: Counter[tuple[Asked, int]] = Counter()
        for line in map(json.loads, self._lines):
            told[(line["method"], line["path"]), line["status"]] += 1
        missing = self._came - told
        if self._machine.descriptors_are_few:  # a connection that there is no descriptor for is refused unread
            missing = Counter({answer: count for answer, count in missing.items() if answer[1] != _REFUSED_UNREAD})
        if missing:
            raise self._machine.wrong(f"answers have no line in the access log: {missing.most_common(3)}")
        requests: Counter[Asked] = Counter()
        for (request, _status), count in told.items():
            requests[request] += count
        if more := requests - self._asked:
            raise self._machine.wrong(f"the access log has lines that no request stands for: {more.most_common(3)}")
        self.counts["answers"] += self._came.total()

    def _compare_with_file(self) -> None:
        machine = self._machine
        assert machine.server is not None
        assert machine.server.access_log is not None
        written, given = self._contents[self._file_begin :], b"".join(self._lines)
        failed = any(PATH in path for _kind, path in machine.ring.faults.failures[self._failures :])
        if failed or machine.space_was_scarce or machine.descriptors_are_few or machine.is_interrupted:
            self.counts["ends after failures"] += 1
            return
        if dropped := machine.server.access_log.dropped:
            raise machine.wrong(f"the access log left out {dropped} lines, and nothing had failed")
        if not given.startswith(written):
            raise machine.wrong("the file of the access log has not the lines that it was given")
        if machine.stopped and written != given:
            raise machine.wrong(f"a server has stopped, and {len(given) - len(written)} bytes of lines are not written")
        self.counts["whole files" if machine.stopped else "files of killed servers"] += 1
        self.counts["lines in files"] += written.count(b"\n")
