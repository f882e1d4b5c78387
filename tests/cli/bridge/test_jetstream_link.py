"""A connection to NATS that cannot be made says why."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace

import pytest

from topics.bridge.bridge_errors import TargetDownError
from topics.bridge.jetstream.jetstream_link import JetStreamLink
from topics.bridge.jetstream.jetstream_target import JetStreamTarget
from topics.bridge.jetstream.nats_place import NatsPlace
from topics.bridge.run_bridge import BridgeOptions, target_of
from topics.errors import UsageError

nats_errors = pytest.importorskip("nats.js.errors", reason="nats-py is not installed: `make bridge` installs it")


@pytest.mark.parametrize(
    ("listens", "answer_s", "reason"), [(False, 60.0, "Connection refused$"), (True, 0.2, "no answer in time")]
)
def test_a_server_that_cannot_be_reached_is_named_with_the_reason(listens: bool, answer_s: float, reason: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        with pytest.raises(TargetDownError, match=rf"^nats://127.0.0.1:{port} does not answer: {reason}"):
            JetStreamLink(NatsPlace(f"nats://127.0.0.1:{port}", {}, answer_s))


def test_a_connection_is_tried_twice_without_a_wait_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """nats-py waited for 2 s between tries, where the log had the next one in 0.1 s."""
    delays, sleep = [], asyncio.sleep

    async def refused(**_: object) -> None:
        raise OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call ...")

    async def noted(delay_s: float) -> None:
        delays.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "open_connection", refused)
    monkeypatch.setattr(asyncio, "sleep", noted)
    with pytest.raises(TargetDownError, match="^nats://h:1 does not answer: Connection refused$"):
        JetStreamLink(NatsPlace("nats://h:1", {}))
    assert not any(delays)


def test_no_answer_is_waited_for_longer_than_a_bridge_that_is_to_end_has_patience() -> None:
    """`--once --timeout 1` took 11 s, and `--dry-run --timeout 1` 10 s."""
    plain = BridgeOptions("orders", to="nats://h", patience_s=1.0)
    for options, answer_s in ((plain, 10.0), (replace(plain, is_once=True), 1.0), (replace(plain, is_look=True), 1.0)):
        target = target_of(options)
        assert isinstance(target, JetStreamTarget)
        assert target._place.answer_s == answer_s


def test_an_error_shows_no_password() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with pytest.raises(TargetDownError) as caught:
            JetStreamLink(NatsPlace(f"nats://user:s3cret@127.0.0.1:{port}", {}, 0.2))
    assert str(caught.value).startswith(f"nats://127.0.0.1:{port} does not answer: ")
    assert "s3cret" not in str(caught.value)


class Answering:
    """A server of NATS that answers each connection with the same lines. url: where it is."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._server.accept()
        with self._server, connection:
            connection.sendall(b'INFO {"server_id":"s","version":"2.9.10","max_payload":1048576,"headers":true}\r\n')
            connection.recv(1 << 16)
            for line in self._lines:
                connection.sendall(line + b"\r\n")
            while connection.recv(1 << 16):
                pass


def test_a_user_who_may_not_enter_is_no_server_that_does_not_answer() -> None:
    server = Answering(b"-ERR 'Authorization Violation'")
    with pytest.raises(UsageError, match=r"refuses the user of the bridge \(.*'Authorization Violation'.*mend --set"):
        JetStreamLink(NatsPlace(server.url, {}))


def test_a_user_who_may_not_ask_jetstream_is_named_as_one() -> None:
    server = Answering(b"PONG")
    link = JetStreamLink(NatsPlace(server.url, {}))
    link._told = 'nats: permissions violation for publish to "$js.api.info"'  # as nats-py spells it

    async def late() -> None:
        raise TimeoutError

    try:
        with pytest.raises(UsageError, match="refuses the user of the bridge .*permissions violation for publish"):
            link.run(late())
    finally:
        link.close()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (nats_errors.ServiceUnavailableError(), "has no JetStream that answers: it is off there, or not ready"),
        (nats_errors.NoStreamResponseError(), "has no stream that takes in the messages any more"),
    ],
)
def test_an_answer_that_nothing_takes_a_request_is_tried_again_and_named(error: Exception, sentence: str) -> None:
    server = Answering(b"PONG")
    link = JetStreamLink(NatsPlace(server.url, {}))

    async def fail() -> None:
        raise error

    try:
        with pytest.raises(TargetDownError, match=rf"^{server.url} {sentence}"):
            link.run(fail())
    finally:
        link.close()


def test_a_refusal_that_nats_py_reports_beside_the_call_is_the_calls_own() -> None:
    """It raises the error of a publication in its reader: the future of the answer is never done."""
    link = JetStreamLink(NatsPlace(Answering(b"PONG").url, {}))
    link._told = nats_errors.APIError(code=503, err_code=10077, description="maximum messages exceeded")

    async def late() -> None:
        raise TimeoutError

    try:
        with pytest.raises(nats_errors.APIError, match="maximum messages exceeded"):
            link.run(late())
    finally:
        link.close()


def test_the_first_refusal_ends_a_wait_for_answers_at_once() -> None:
    """It took half a minute, and the reason was that of the last one: wrong last sequence."""
    link = JetStreamLink(NatsPlace(Answering(b"PONG").url, {}))
    full = nats_errors.APIError(code=503, err_code=10077, description="maximum messages exceeded")
    late = nats_errors.APIError(code=400, err_code=10071, description="wrong last sequence: 50")

    async def refused() -> None:
        for error in (full, late):
            await link.nats._error_cb(error)
        await link.until_closed(asyncio.Event().wait())

    try:
        with pytest.raises(nats_errors.APIError, match="maximum messages exceeded"):
            link.run(refused())
    finally:
        link.close()
