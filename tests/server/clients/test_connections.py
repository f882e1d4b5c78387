"""Connections of clients to servers that answer twice, or before they have read a request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from topics.client.attempts import Lost, Send
from topics.client.client_options import Address, ClientOptions
from topics.client.exchange import BadAnswerError, ClientExchange, ServerAnswer, ServerRequest
from topics.client.sockets import Sockets, Wire

PATIENCE = 20.0
BIG = 32 << 20


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


def waited(head_seq: int) -> bytes:
    return answer(b'{"topics":{"t":{"head_seq":%d,"incarnation":"0000000000000000"}}}' % head_seq)


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server; each connection to it is given to a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.settimeout(PATIENCE)
                    threading.Thread(target=serve_one, args=(client,), daemon=True).start()

        def serve_one(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                serve(client)

        threading.Thread(target=accept, daemon=True).start()
        host, port = listener.getsockname()
        yield f"http://{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_that_comes_again_is_not_the_answer_of_the_next_call(is_async: bool) -> None:
    calls = iter(range(1, 10))
    is_answered, came_again = threading.Event(), threading.Event()

    def serve(client: socket.socket) -> None:
        while client.recv(65536):
            told = waited(next(calls))
            client.sendall(told)
            is_answered.wait(PATIENCE)
            client.sendall(told)
            came_again.set()

    with serving(serve) as url, topics.connect(url, timeout=PATIENCE) as log:

        async def ask() -> int:
            head = (await log.aio.wait({"t": 0}))["t"]
            assert head is not None
            return head.head_seq

        async def ask_twice() -> list[int]:
            first = await ask()
            (wire,) = log.aio._sockets._idle
            is_answered.set()
            while wire.reader.came == wire.taken:  # the loop takes it from the socket
                await asyncio.sleep(0)
            return [first, await ask()]

        if is_async:
            assert asyncio.run(ask_twice()) == [1, 2]
        else:
            heads: list[Any] = [log.wait({"t": 0})["t"]]
            is_answered.set()
            came_again.wait(PATIENCE)
            heads.append(log.wait({"t": 0})["t"])
            assert [head.head_seq for head in heads] == [1, 2]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refusal_of_a_body_that_is_not_read_is_told(is_async: bool) -> None:
    refusal = answer(b'{"error":{"code":"payload_too_large","message":"too large"}}', "413 Content Too Large")
    ended = threading.Event()

    def serve(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(refusal)
        client.shutdown(socket.SHUT_WR)
        if is_async:
            ended.wait(PATIENCE)
        else:
            while client.recv(1 << 20):
                pass

    with serving(serve) as url, topics.connect(url, timeout=PATIENCE) as log:

        def append() -> object:
            return asyncio.run(log.aio.append("t", [b"x" * BIG])) if is_async else log.append("t", [b"x" * BIG])

        with pytest.raises(topics.RequestError, match="too large"):
            append()
        ended.set()


def test_an_event_loop_gets_no_connection_of_another_one() -> None:
    may_answer, has_asked = threading.Event(), threading.Event()

    def serve(client: socket.socket) -> None:
        while asked := client.recv(65536):
            if b"slow" in asked:
                has_asked.set()
                may_answer.wait(PATIENCE)
            client.sendall(waited(1))

    with serving(serve) as url, topics.connect(url, timeout=PATIENCE) as log:
        slow = threading.Thread(target=lambda: asyncio.run(log.aio.wait({"slow": 0})), daemon=True)
        slow.start()
        assert has_asked.wait(PATIENCE)

        async def ask() -> int:
            await log.aio.wait({"t": 0})
            may_answer.set()
            while slow.is_alive():
                await asyncio.sleep(0)
            return len(log.aio._sockets._idle)

        assert asyncio.run(ask()) == 1


class Untrusting(ssl.SSLContext):
    """A context that trusts no certificate."""

    tries = 0

    def wrap_socket(self, *_: Any, **__: Any) -> Any:
        self.tries += 1
        raise ssl.SSLCertVerificationError(1, "certificate verify failed")

    wrap_bio = wrap_socket


@pytest.mark.parametrize("is_async", [False, True])
def test_a_certificate_that_is_not_trusted_is_told_at_once(is_async: bool) -> None:
    context = Untrusting(ssl.PROTOCOL_TLS_CLIENT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with topics.connect(url, ssl_context=context, timeout=PATIENCE) as log:

            def state() -> object:
                return asyncio.run(log.aio.state("t")) if is_async else log.state("t")

            with pytest.raises(topics.NoAnswerError, match="ssl_context"):
                state()
    assert context.tries == 1


@pytest.mark.parametrize(
    ("begun", "why"),
    [
        (b"", "closed without an answer"),
        (b"HTTP/1.1 2", "closed without an answer"),
        (answer(b"{}")[:-1], "received 1 bytes, expected 2"),
    ],
)
def test_an_answer_that_ends_early_is_told_in_words_of_the_network(begun: bytes, why: str) -> None:
    exchange = ClientExchange(Address.parse("http://s"), ClientOptions())
    exchange.send(ServerRequest("GET", "/v0/topics"))
    if begun:
        assert exchange.receive(begun) is None
    with pytest.raises(BadAnswerError, match=why):
        exchange.receive(b"")


def test_a_commit_that_ctrl_c_ends_is_made_by_the_next_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages are put back at once, and not when the traceback of the interrupt is forgotten."""
    with topics.connect(url) as log:
        log.append("orders", [1, 2, 3, 4])
        reader = log.reader("orders", "billing", commit_every=100)
        assert [len(reader.read(limit=2)) for _ in range(2)] == [2, 2]

        def interrupted(_send: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(log._sockets, "exchange", interrupted)
            with pytest.raises(KeyboardInterrupt) as interrupt:
                reader.commit()
        assert interrupt.traceback  # held until here
        assert reader.commit() == 4


def test_a_commit_that_is_cancelled_is_made_by_the_next_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        async with await topics.connect_async(url) as log:
            await log.append("orders", [1, 2, 3, 4])
            reader = await log.reader("orders", "billing", commit_every=100)
            assert [len(await reader.read(limit=2)) for _ in range(2)] == [2, 2]
            with monkeypatch.context() as patched:
                patched.setattr(log._sockets, "exchange", lambda send: asyncio.Event().wait())
                with pytest.raises(TimeoutError) as late:
                    async with asyncio.timeout(0):
                        await reader.commit()
            assert late.traceback  # held until here
            return await reader.commit()

    assert asyncio.run(main()) == 4


class _SlowSocket:
    """A peer that takes a byte a second, and then answers."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self.taken = 0

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def send(self, data: memoryview) -> int:
        assert data
        self._clock[0] += 1
        self.taken += 1
        return 1

    def recv(self, _size: int) -> bytes:
        return answer(b"{}")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("whole_s", "taken"), [(10_000, None), (20, 20)])
def test_a_slow_upload_may_take_as_long_as_the_call_and_longer_than_a_silence(
    whole_s: int, taken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    address, options = Address.parse("http://s"), ClientOptions()
    sockets = Sockets(address, options, lambda: clock[0])
    slow: Any = _SlowSocket(clock)
    wire = Wire(slow, ClientExchange(address, options), 0.0)
    monkeypatch.setattr(sockets, "_connect", lambda _timeout: wire)
    sent = Send(ServerRequest("POST", "/v0/topics/t", b"x" * 100), quiet_s=5, whole_s=whole_s)
    outcome = sockets.exchange(sent)
    if taken is None:
        assert isinstance(outcome, ServerAnswer)
    else:
        assert (outcome, slow.taken) == (Lost(True, "it took too long"), taken)
