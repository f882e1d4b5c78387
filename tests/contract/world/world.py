"""A server and its clients, as far as the suite knows them: bytes over connections, a clock, crashes.

Two backends offer the same: `sim_world.SimWorld`, a server in this process on simulated time, disk and network, and
`live_world.LiveWorld`, a real `topics serve` on loopback. What only one of them can do skips the test on the other.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from tests.contract.world.answer import Answer, take_answer

ABSENT = object()


class Stream(Protocol):
    """A client's side of a TCP connection, as a backend gives it."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """Return what has arrived by now, perhaps nothing."""

    @property
    def ended(self) -> bool:
        """The server has ended it, and all it sent has been received."""

    def finish_sending(self) -> None: ...

    def reset(self) -> None: ...


class Connection:
    """One connection to the server, driven byte by byte or request by request."""

    def __init__(self, world: World, stream: Stream) -> None:
        self._world = world
        self._stream = stream
        self._received = bytearray()

    def send(self, data: bytes) -> Connection:
        self._stream.send(data)
        return self

    def request(self, method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> Answer:
        """Sends a request and waits for its answer."""
        return self.start(method, path, body, headers).answer(method)

    def start(self, method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> Connection:
        """Sends a request; `answer` waits for what comes."""
        return self.send(request_bytes(method, path, body, headers))

    def answer(self, method: str = "GET", within_ms: int = 5000) -> Answer:
        """The next whole response. Fails when there is none in time or the connection ends first."""
        found: list[Answer] = []

        def arrived() -> bool:
            ended = self._take()
            answer = take_answer(self._received, method, ended=ended)
            if answer is not None:
                found.append(answer)
            return bool(found) or ended

        self._world.wait_for(arrived, within_ms)
        assert found, f"the connection ended or stayed silent; it said {bytes(self._received[:300])!r}"
        self._world.look_at(found[0])
        return found[0]

    def head(self, within_ms: int = 5000) -> Answer:
        """An answer without a body (a 101); what comes after it stays."""
        return self.answer("HEAD", within_ms)

    def take_bytes(self) -> bytes:
        """All that has come so far and was not read as an answer; lets no time pass."""
        self._take()
        data = bytes(self._received)
        self._received.clear()
        return data

    @property
    def over(self) -> bool:
        """The server has closed; lets no time pass."""
        return self._take()

    @property
    def waiting(self) -> bool:
        """No byte of an answer has come, after time enough for one."""
        self._world.settle()
        ended = self._take()
        return not ended and not self._received

    @property
    def nothing_came(self) -> bool:
        """No byte of an answer so far; lets no time pass."""
        self._take()
        return not self._received

    def receive(self) -> bytes:
        """All that has come and was not read as an answer, after the server had time to say it."""
        self._world.settle()
        self._take()
        data = bytes(self._received)
        self._received.clear()
        return data

    def take_into(self, buffer: bytearray) -> bool:
        """Moves what has come to `buffer`, letting no time pass; whether the connection has ended."""
        ended = self._take()
        buffer += self._received
        self._received.clear()
        return ended

    @property
    def ended(self) -> bool:
        """The server has closed, after time enough to do so."""
        self._world.settle()
        return self._take()

    def ends(self, within_ms: int = 5000) -> bool:
        """The server closes within a time."""
        self._world.wait_until(self._take, within_ms)
        return self._take()

    def finish_sending(self) -> Connection:
        """Half-close: the client has no more to say, and still listens."""
        self._stream.finish_sending()
        return self

    def reset(self) -> None:
        """The client is gone at once."""
        self._stream.reset()
        self._world.settle()

    def _take(self) -> bool:
        self._received += self._stream.receive()
        return self._stream.ended


class World:
    """The actions of a test. Backends fill in the methods that raise NotImplementedError."""

    connection_type: type[Connection] = Connection
    """The client of the protocol of the requests."""

    # --- a backend's part --------------------------------------------------------------------------------------------
    def connect(self) -> Connection:
        raise NotImplementedError

    def wait_until(self, done: Any, within_ms: int) -> None:
        """Let time pass until `done()` or the limit."""
        raise NotImplementedError

    def wait_for(self, done: Any, within_ms: int) -> None:
        """Let time pass until `done()`, which is within the limit; real time has a longer one."""
        self.wait_until(done, within_ms)

    def settle(self) -> None:
        """Time enough for whatever the server does at once; nothing that waits for a clock ends by it."""
        raise NotImplementedError

    def now_ms(self) -> int:
        """The server's wall clock."""
        raise NotImplementedError

    def advance_ms(self, milliseconds: int) -> None:
        """Lets time pass."""
        raise NotImplementedError

    def advance_to_ms(self, instant_ms: int) -> None:
        """Lets time pass until the wall clock first shows an instant; a request sent then meets that millisecond."""
        raise NotImplementedError

    def step_clock_ms(self, milliseconds: int) -> None:
        """Move only the wall clock, as an administrator would."""
        raise NotImplementedError

    def crash(self) -> None:
        """SIGKILL: what the operating system was given survives."""
        raise NotImplementedError

    def power_cut(self) -> None:
        """Cut the power: anything that was not synced may be lost."""
        raise NotImplementedError

    def begin_stop(self) -> None:
        """SIGTERM."""
        raise NotImplementedError

    def finish_stop(self, within_ms: int = 15_000) -> int:
        """Waits for the end that `begin_stop` began; the exit code."""
        raise NotImplementedError

    def start(self, *, ready: bool = True, **settings: Any) -> None:
        """Starts the server on the same data, with settings changed; ready: waits for the end of recovery."""
        raise NotImplementedError

    def fail_storage(self, kind: str, error: int, **options: Any) -> None:
        """The next operation of a kind ("write", "sync", ...) fails with an errno."""
        raise NotImplementedError

    def heal_storage(self) -> None:
        raise NotImplementedError

    def fill_disk(self) -> None:
        raise NotImplementedError

    def free_disk(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    # --- in terms of it ----------------------------------------------------------------------------------------------
    def stop(self) -> int:
        """A graceful stop; the exit code."""
        self.begin_stop()
        return self.finish_stop()

    def restart(self, **settings: Any) -> None:
        """A graceful stop and a new start."""
        assert self.stop() == 0
        self.start(**settings)

    def crash_and_start(self, **settings: Any) -> None:
        self.crash()
        self.start(**settings)

    def request(self, method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> Answer:
        """One request on a connection of its own.

        body: bytes go as they are; anything else as JSON with its Content-Type.
        """
        return self.connect().request(method, path, body, headers)

    def ask(self, method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> Connection:
        """Sends a request whose answer is fetched later: `.waiting`, `.answer()`."""
        return self.connect().start(method, path, body, headers)

    def raw(self, data: bytes) -> bytes:
        """Sends bytes on a connection of their own; what comes back until the server falls silent."""
        return self.connect().send(data).receive()

    def look_at(self, answer: Answer) -> None:
        """Look at an answer that a test is about to get."""

    # --- shorthands; each fails unless the answer is 200 or 201 ------------------------------------------------------
    def put(self, topic: str, **config: Any) -> Any:
        return _good(self.request("PUT", f"/v0/topics/{topic}", config))

    def write(self, topic: str, *data: Any, **fields: Any) -> Any:
        """Writes records: each argument is the `data` of one."""
        return self.write_records(topic, [{"data": each} for each in data], **fields)

    def write_records(self, topic: str, records: list[dict[str, Any]], **fields: Any) -> Any:
        return _good(self.request("POST", f"/v0/topics/{topic}", {"records": records, **fields}))

    def write_singly(self, topic: str, *data: Any) -> None:
        for each in data:
            self.write(topic, each)

    def diff(self, topic: str, from_seq: int = 0, **fields: Any) -> Any:
        return _good(self.request("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, **fields}))

    def delete(self, topic: str, **fields: Any) -> Any:
        return _good(self.request("POST", f"/v0/topics/{topic}/delete", fields))

    def state(self, topic: str) -> Any:
        """Without touching."""
        return _good(self.request("GET", f"/v0/topics/{topic}?touch=false"))

    def drop(self, topic: str) -> Any:
        return _good(self.request("DELETE", f"/v0/topics/{topic}"))

    def data(self, topic: str, from_seq: int = 0) -> list[Any]:
        """The `data` of every readable record."""
        found: list[Any] = []
        while True:
            page = self.diff(topic, from_seq, limit=1000)
            found += [record["data"] for record in page["records"]]
            if page["caught_up"]:
                return found
            assert page["next_from_seq"] > from_seq, "a reader that is not caught up moves"
            from_seq = page["next_from_seq"]


def request_bytes(method: str, path: str, body: Any = ABSENT, headers: dict[str, str] | None = None) -> bytes:
    """A whole HTTP/1.1 request. Headers given replace those that would be set."""
    fields = {"Host": "127.0.0.1"}
    if body is ABSENT:
        content = b""
    elif isinstance(body, bytes):
        content = body
        fields["Content-Length"] = str(len(content))
    else:
        content = json.dumps(body).encode()
        fields["Content-Type"] = "application/json"
        fields["Content-Length"] = str(len(content))
    fields.update(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content


def _good(answer: Answer) -> Any:
    assert answer.status in (200, 201), f"{answer.status} {answer.text[:300]}"
    return answer.json


def seqs(page: Any) -> list[int]:
    """The seqs of a diff's records."""
    return [record["$seq"] for record in page["records"]]


def tombstone(gap_from: int, gap_to: int, reason: str, head_seq: int, earliest_seq: int | None = None) -> Any:
    """The tombstone of a gap, as a diff shows it."""
    return {
        "gap_from": gap_from,
        "gap_to": gap_to,
        "reason": reason,
        "missed_estimate": gap_to - gap_from + 1,
        "earliest_seq": gap_to + 1 if earliest_seq is None else earliest_seq,
        "head_seq": head_seq,
    }
