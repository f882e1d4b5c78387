"""Appends of a client that are gathered: cancelled futures, forks, callbacks, a lost server."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from topics import NoAnswerError
from topics.client.attempts import ServerCall
from topics.client.client_options import Address, ClientOptions
from topics.client.sent_soon import ClientPending, RecordGatherer
from topics.client.sockets import Sockets
from topics.common.values.answers import AppendResult

PATIENCE = 20.0


def stored(_call: ServerCall[AppendResult]) -> AppendResult:
    return AppendResult(1, 1, 1, 1, created=False, deduped=False, append_ns=0, sync_ns=0)


def in_child(do: Callable[[], bool]) -> bool:
    """Whether it holds in a forked child, which is ended after a while."""
    pid = os.fork()
    if pid == 0:
        threading.Timer(PATIENCE, lambda: os._exit(2)).start()
        try:
            os._exit(0 if do() else 1)
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_cancelled_await_takes_no_record_back_and_later_ones_are_sent() -> None:
    may_send = threading.Event()

    def run(call: ServerCall[AppendResult]) -> AppendResult:
        may_send.wait(PATIENCE)
        return stored(call)

    gatherer = RecordGatherer(ClientOptions(), run)

    async def cancel(pending: ClientPending) -> None:
        async def awaits() -> int:
            return await pending

        task = asyncio.create_task(awaits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    first = gatherer.add("t", 1)
    asyncio.run(cancel(first))
    may_send.set()
    assert first.result(PATIENCE) == 1
    assert gatherer.add("t", 2).result(PATIENCE) == 1


def test_a_forked_child_has_a_gatherer_of_its_own() -> None:
    gatherer = RecordGatherer(ClientOptions(), stored)
    assert gatherer.add("t", 1).result(PATIENCE) == 1
    assert in_child(lambda: gatherer.add("t", 2).result(PATIENCE) == 1)


def test_a_callback_that_appends_more_than_may_wait_does_not_wait_for_itself() -> None:
    gatherer = RecordGatherer(ClientOptions(gather_waiting=1), stored)
    later: list[ClientPending] = []
    done = threading.Event()

    def follow(_first: ClientPending) -> None:
        later.extend(gatherer.add("t", number) for number in range(3))
        done.set()

    gatherer.add("t", 0).add_done_callback(follow)
    assert done.wait(PATIENCE)
    assert all(pending.result(PATIENCE) for pending in later)


def test_a_close_without_a_server_waits_for_one_call_and_not_for_every_batch() -> None:
    calls: list[Any] = []
    may_send = threading.Event()

    def run(call: ServerCall[AppendResult]) -> AppendResult:
        may_send.wait(PATIENCE)
        calls.append(call)
        raise NoAnswerError("gone")

    gatherer = RecordGatherer(ClientOptions(gather_records=1), run)
    all_pending = [gatherer.add(f"t{number}", 1) for number in range(20)]
    closing = threading.Thread(target=gatherer.drain)
    closing.start()
    while not gatherer._ends:
        os.sched_yield()
    may_send.set()
    closing.join(PATIENCE)
    assert len(calls) == 1
    for pending in all_pending:
        with pytest.raises(NoAnswerError):
            pending.result(PATIENCE)


def test_a_close_in_a_forked_child_leaves_the_calls_of_its_parent_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        sockets = Sockets(Address.parse(f"http://{host}:{port}"), ClientOptions())
        wire = sockets._connect(PATIENCE)
        server, _ = listener.accept()
        with server:
            sockets._busy[wire] = None

            def close() -> bool:
                sockets.close()
                return sockets.closed

            assert in_child(close)
            server.sendall(b"x")
            assert wire.socket.recv(1) == b"x"
            wire.close()
