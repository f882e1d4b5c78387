"""A connection to NATS that cannot be made says why."""

from __future__ import annotations

import socket

import pytest

from topics.bridge.carried import TargetDownError
from topics.bridge.jetstream.jetstream_link import JetStreamLink, NatsPlace

pytest.importorskip("nats", reason="nats-py is not installed: `make bridge` installs it")


@pytest.mark.parametrize(("listens", "reason"), [(False, "Connect call failed"), (True, "no answer in time")])
def test_a_server_that_cannot_be_reached_is_named_with_the_reason(listens: bool, reason: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        with pytest.raises(TargetDownError, match=rf"^nats://127.0.0.1:{port} does not answer: .*{reason}"):
            JetStreamLink(NatsPlace(f"nats://127.0.0.1:{port}", {}), connect_s=0.2)


def test_an_error_shows_no_password() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with pytest.raises(TargetDownError) as caught:
            JetStreamLink(NatsPlace(f"nats://user:s3cret@127.0.0.1:{port}", {}), connect_s=0.2)
    assert str(caught.value).startswith(f"nats://127.0.0.1:{port} does not answer: ")
    assert "s3cret" not in str(caught.value)
