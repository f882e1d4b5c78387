"""The archive of a server over a network that stalls, cuts off, or leads to another program."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from topics.client.archive_client import ArchiveClient
from topics.errors import NoAnswerError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\n"


@contextmanager
def answering(answer: bytes, *, then_closes: bool) -> Iterator[str]:
    """Yield the URL of a server that gives one answer, and then is silent or closes."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not then_closes:
                    done.wait()

        thread = threading.Thread(target=answer_once)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("then_closes", [False, True], ids=["stalls", "is-cut-off"])
def test_a_piece_of_which_a_part_comes_is_no_piece(then_closes: bool) -> None:
    with answering(HEAD + bytes(40), then_closes=then_closes) as url:
        client = ArchiveClient(url, None, quiet_seconds=0.2)
        with pytest.raises(NoAnswerError, match=f"no answer from {url}: "):
            client.piece("timeline", "log/shard-00/wal-0000000000000001.log", 0, 100)
        client.close()


def test_a_server_that_recovers_is_no_refusal() -> None:
    body = b'{"error":{"code":"recovering","message":"the server reads its log"}}'
    head = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body, then_closes=True) as url:
        client = ArchiveClient(url, None, quiet_seconds=5)
        with pytest.raises(NoAnswerError, match="does not serve its archive now: the server reads its log"):
            client.state()
        client.close()


STATE = (
    b'{"timeline":"t","now_ms":1,"upto_ms":1,"shards":{"0":{"file":1,"bytes":1,"batch":1}},"holes":[],"bases":["b"]}'
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (STATE, b"{}"),
        (b'"t"', b"null"),
        (b'"upto_ms":1', b'"upto_ms":"1"'),
        (b'"0"', b'"a"'),
        (b'"bytes":1', b'"bytes":[]'),
        (b"[]", b'[{"from_ms":1,"to_ms":[]}]'),
        (b'["b"]', b"[1]"),
    ],
)
def test_an_answer_of_another_program_names_the_url(old: bytes, new: bytes) -> None:
    """A value of another type ended a mirror with a trace."""
    body = b'{"archive":%s}' % STATE.replace(old, new)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body, then_closes=True) as url:
        client = ArchiveClient(url, None, quiet_seconds=5)
        with pytest.raises(NoAnswerError, match=f"{url} answered what no topics server says"):
            client.state()
        client.close()
