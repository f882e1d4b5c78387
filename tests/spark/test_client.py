"""The client: patience where it helps, none where it does not, and the key in no message."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.spark.fake_server import FakeServer, Refused
from topics.spark.client import Head, PlannedTopic, SparkClient
from topics.spark.errors import OptionError, ServerError
from topics.spark.options import ServerAddress

SECRET = "s3cret-key"


def client_of(
    fake: FakeServer, naps: list[float] | None = None, *, token: str | None = None, token_file: str | None = None
) -> SparkClient:
    connection = ServerAddress("http://h:4000", token, token_file, retries=3, retry_interval_ms=200, timeout_ms=1000)
    return SparkClient(connection, sleep=(naps if naps is not None else []).append, connect=fake.connect)


def test_states_and_heads_come_back_as_values() -> None:
    fake = FakeServer()
    fake.put("a", 1, 2, 3)
    fake.delete("a", 1)
    life = fake.topics["a"].of
    client = client_of(fake)
    assert client.state("a") == PlannedTopic(3, 2, life, "disk")
    assert client.state("b") is None
    assert client.wait({"a": None, "b": None}, 0) == {"a": Head(3, life), "b": None}
    assert client.checkpoint() == 1


def test_a_checkpoint_that_takes_longer_than_a_wait_is_asked_for_again_by_the_number_in_the_answer() -> None:
    """R-CHK-6: by the newest number, which is lower after a restart of the server; snapshots of others do not count."""
    fake = FakeServer()
    told = [
        {"snapshot": 16, "done": False, "checkpoint": 5},
        {"snapshot": 20, "done": False, "checkpoint": 5},
        {"snapshot": 20, "done": False, "checkpoint": 1},
        {"snapshot": 21, "done": True},
    ]
    fake.route = lambda *_: told.pop(0)  # type: ignore[method-assign]
    assert client_of(fake).checkpoint() == 21
    wait = {"wait_ms": 500}
    asked = [wait, wait | {"checkpoint": 5}, wait | {"checkpoint": 5}, wait | {"checkpoint": 1}]
    assert fake.requests == [("POST", "/v0/checkpoint", body) for body in asked]


def test_lists_are_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.spark.client.LIST_PAGE", 2)
    fake = FakeServer()
    for name in ("a1", "a2", "a3", "b"):
        fake.put(name, 1)
    assert sorted(client_of(fake).states("a")) == ["a1", "a2", "a3"]


@pytest.mark.parametrize(
    "failure",
    [
        Refused(429, "throttled"),
        Refused(503, "not_ready"),
        Refused(500, "internal", {"reason": "disk_full"}),
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("timed out"),
    ],
)
def test_what_may_pass_is_tried_again_with_pauses(failure: Exception) -> None:
    fake, naps = FakeServer(), []
    fake.put("a", 1)
    fake.failures = [failure, failure]
    assert client_of(fake, naps).state("a")
    assert len(naps) == 2
    assert min(naps) >= (1.0 if getattr(failure, "status", 0) in (429, 503) else 0.2), "429 and 503 say when"


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422, 500])
def test_what_cannot_pass_is_told_at_once(status: int) -> None:
    fake, naps = FakeServer(), []
    fake.failures = [Refused(status, "some_code", said="for a reason")]
    with pytest.raises(ServerError, match=f"GET /v0/topics/a was answered {status} some_code: for a reason"):
        client_of(fake, naps).state("a")
    assert naps == []


def test_patience_ends_after_the_retries_with_what_was_wrong() -> None:
    fake = FakeServer()
    fake.failures = [ConnectionRefusedError(111, "Connection refused")] * 4
    with pytest.raises(
        ServerError, match=r"no answer from http://h:4000 after 4 tries \(Connection refused\): start it"
    ):
        client_of(fake).state("a")
    fake.failures = [Refused(429, "throttled", said="too many topics")] * 4
    with pytest.raises(ServerError, match="429 throttled: too many topics: raise retries to wait longer"):
        client_of(fake).state("a")
    fake.failures = [TimeoutError("timed out")] * 4
    with pytest.raises(ServerError, match=r"it took too long\): raise timeoutMs"):
        client_of(fake).state("a")


def test_something_that_is_no_server_of_topics_is_reported_as_such() -> None:
    fake = FakeServer()
    fake.answer = lambda *_: (404, b"<html>")  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="not from a topics server: correct url"):
        client_of(fake).state("a")
    fake.answer = lambda *_: (404, b'{"error":{"code":"not_found","message":"there is no such path"}}')  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="there is no such path: correct url, or upgrade the server"):
        client_of(fake).state("a")
    for body in (b"<html>", b"[1]"):
        fake.answer = lambda *_, body=body: (200, body)  # type: ignore[method-assign]
        with pytest.raises(ServerError, match="GET /v0/topics/a: the answer is not from a topics server: correct url"):
            client_of(fake).state("a")
    fake = FakeServer()
    fake.route = lambda *_: {"head_seq": 1, "earliest_seq": 1, "config": {}}  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="upgrade the server"):
        client_of(fake).state("a")


def test_a_kept_connection_that_the_server_closed_is_replaced_at_once() -> None:
    fake, naps = FakeServer(), []
    fake.put("a", 1)
    client = client_of(fake, naps)
    assert client.state("a")
    fake.failures = [BrokenPipeError(32, "Broken pipe")]
    assert client.state("a")
    assert naps == []


def test_the_key_is_sent_and_shows_in_no_error(tmp_path: Path) -> None:
    fake = FakeServer()
    fake.token = "another"
    with pytest.raises(ServerError, match="401 unauthorized.*give a key") as caught:
        client_of(fake, token=SECRET).state("a")
    assert fake.headers[-1]["Authorization"] == f"Bearer {SECRET}"
    fake.failures = [OSError(5, "Input/output error")] * 4
    with pytest.raises(ServerError) as lost:
        client_of(fake, token=SECRET).state("a")
    (tmp_path / "key").write_text(f"{SECRET} {SECRET}")
    with pytest.raises(OptionError, match="must hold one key") as broken:
        client_of(fake, token_file=str(tmp_path / "key"))
    with pytest.raises(OptionError, match="cannot be read here .*: put it on every machine"):
        client_of(fake, token_file=str(tmp_path / "none"))
    assert SECRET not in f"{caught.value!r} {lost.value!r} {broken.value!r} {caught.value.__context__!r}"


def test_a_key_that_is_replaced_in_its_file_is_read_again(tmp_path: Path) -> None:
    fake = FakeServer()
    fake.put("a", 1)
    file = tmp_path / "key"
    file.write_text("old\n")
    fake.token = "old"
    client = client_of(fake, token_file=str(file))
    assert client.state("a")
    fake.token = "new"
    file.write_text("new\n")
    assert client.state("a")
    fake.token = "newer"
    with pytest.raises(ServerError, match="401"):
        client.state("a")


def test_over_a_socket_one_connection_serves_many_requests() -> None:
    fake = FakeServer()
    fake.put("a", *range(3))
    with fake.served() as url:
        client = SparkClient(ServerAddress(url, None, None, 0, 1, 5000))
        assert [client.state("a") for _ in range(3)] == [PlannedTopic(3, 1, fake.topics["a"].of, "disk")] * 3
        client.close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = SparkClient(ServerAddress(f"http://127.0.0.1:{unused.getsockname()[1]}", None, None, 0, 1, 1000))
        with pytest.raises(ServerError, match=r"after 1 tries \(Connection refused\)"):
            gone.state("a")


def test_a_proxy_whose_server_is_away_is_asked_again() -> None:
    fake, naps = FakeServer(), []
    fake.put("a", 1)
    whole, away = fake.answer, [502, 504, 502]
    fake.answer = lambda *asked: (away.pop(), b"<html>") if away else whole(*asked)  # type: ignore[method-assign]
    assert client_of(fake, naps).state("a")
    assert len(naps) == 3
    away += [502] * 4
    with pytest.raises(ServerError, match="was answered 502: a proxy before the server answers"):
        client_of(fake).state("a")
