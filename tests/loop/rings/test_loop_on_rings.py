"""The loop on every ring: io_uring, the portable one, and the simulator in order and shuffled by seeds.

Both ends of each connection live in the same loop, so the simulator's network and the kernel's are used alike.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.loop.handlers import Recorder
from tests.loop.rings.kernel_world import limited
from tests.sim import SimRing
from topics.clock import SystemClock
from topics.loop import Connection, Listener, Loop, StreamLimits
from topics.loop.operations import SERIAL_MAX
from topics.loop.portable.portable_ring import PortableRing
from topics.loop.signals import install_signal_handlers
from topics.uring.probe import probe
from topics.uring.uring_ring import UringRing

KERNEL_RINGS = ["uring", "portable"]
RINGS = [*KERNEL_RINGS, "sim", "sim-seed-1", "sim-seed-2"]
BUFFERS, BUFFER_BYTES = 16, 1024


def make_loop(kind: str) -> Loop:
    if kind == "uring":
        if not probe().ok:
            pytest.skip(f"no io_uring here: {probe().reason}")
        return Loop(UringRing(64, 256, BUFFERS, BUFFER_BYTES), SystemClock())
    if kind == "portable":
        return Loop(PortableRing(BUFFERS, BUFFER_BYTES), SystemClock())
    seed = int(kind[9:] or 0)
    ring = SimRing(
        seed, shuffle=seed > 0, split=seed > 0, receive_buffers=BUFFERS, receive_buffer_bytes=BUFFER_BYTES, fd_limit=64
    )
    return Loop(ring, ring.clock)


@pytest.fixture(params=RINGS)
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = make_loop(request.param)
    yield made
    made.close()


@pytest.fixture(params=KERNEL_RINGS)
def kernel_loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = make_loop(request.param)
    yield made
    made.close()


@pytest.fixture
def directory(loop: Loop, tmp_path: Path) -> str:
    if loop.ring.name != "sim":
        return str(tmp_path)
    loop.files.make_directory("/data")
    return "/data"


def until(loop: Loop, done: Callable[[], bool], wait_ns: int = 5_000_000, passes: int = 6000) -> None:
    """Runs passes until `done`, and fails instead of waiting for ever.

    Half a minute, because a busy disk takes seconds.
    """
    for _ in range(passes):
        if done():
            return
        loop.run_pass(wait_ns)
    raise AssertionError("it never came to an end")


def pair(loop: Loop, server: Recorder, client: Recorder, limits: StreamLimits | None = None) -> Listener:
    """One connection: `server.conn` and `client.conn`."""
    listener = loop.listen("127.0.0.1", 0, server, limits=limits or StreamLimits())
    join(loop, listener, server, client)
    return listener


def join(loop: Loop, listener: Listener, server: Recorder, client: Recorder) -> None:
    count = len(server.conns)
    future = loop.connect("127.0.0.1", listener.address[1], client)
    until(loop, lambda: future.done and len(server.conns) > count)
    assert future.result() is client.conn


def test_bytes_cross_unchanged_in_both_directions_with_back_pressure(loop: Loop) -> None:
    message = os.urandom(200_000) if loop.ring.name != "sim" else bytes(range(256)) * 800
    server, client = Recorder(), Recorder()

    def echo(conn: Connection, data: bytes) -> None:
        conn.write(data)
        if conn.over_high_water:
            conn.pause_reading()

    server.on_receive = echo
    server.drained = lambda conn: conn.resume_reading()  # type: ignore[method-assign]
    pair(loop, server, client, StreamLimits(send_high_water_bytes=8192, send_low_water_bytes=2048))
    for start in range(0, len(message), 10_000):
        client.conn.write(message[start : start + 10_000])
    until(loop, lambda: len(client.data()) >= len(message))
    assert client.data() == message
    assert server.conn.outbound_bytes == client.conn.outbound_bytes == 0


def test_a_reader_that_pauses_after_every_row_gets_everything_in_order(loop: Loop) -> None:
    message = b"".join(b"%07d\n" % number for number in range(8_000))
    server, client = Recorder(), Recorder()

    def pause(conn: Connection, data: bytes) -> None:
        if not conn.paused:
            conn.pause_reading()
            loop.call_later(1_000, conn.resume_reading)

    server.on_receive = pause
    pair(loop, server, client)
    client.conn.write(message)
    until(loop, lambda: len(server.data()) >= len(message))
    assert server.data() == message


def test_a_connection_goes_through_a_mailbox_while_its_client_sends_and_loses_no_byte(
    loop: Loop, directory: str
) -> None:
    message = b"".join(b"%07d\n" % number for number in range(8_000))
    server, client = Recorder(), Recorder()
    address, parts, stayed = f"{directory}/mailbox", list[bytes](), list[int]()

    def give(conn: Connection, data: bytes) -> None:
        if conn.hand_overs:
            conn.write(b"%d " % len(data))
        else:
            parts.append(data)
            if len(parts) == 1:
                assert loop.give_away(conn, address, lambda: b"".join(parts), stayed.append)

    server.on_receive = give
    box = loop.open_mailbox(address, pair(loop, server, client))
    for start in range(0, len(message), 5_000):
        client.conn.write(message[start : start + 5_000])
        loop.run_pass(0)
    first = server.conns[0].id

    def arrived() -> bytes:
        return b"".join(e[2] for e in server.events if e[0] == "data" and e[1] != first)  # type: ignore[misc]

    until(loop, lambda: len(arrived()) >= len(message))
    assert arrived() == message
    assert (box.taken, stayed, len(server.conns)) == (1, [], 2)
    assert server.conn.peer == server.conns[0].peer
    until(loop, lambda: sum(map(int, client.data().split())) == len(message))
    client.conn.close()
    until(loop, lambda: ("lost", server.conn.id, 0) in server.events or server.has("end"))
    assert ("lost", first, 0) in server.events


def test_one_greedy_sender_does_not_starve_the_others_of_buffers(loop: Loop) -> None:
    server, greedy, modest = Recorder(), Recorder(), Recorder()
    listener = pair(loop, server, greedy)
    join(loop, listener, server, modest)
    greedy.conn.write(bytes(300_000))
    modest.conn.write(b"me too")
    modest_id = server.conns[1].id
    until(loop, lambda: any(event[:2] == ("data", modest_id) for event in server.events))
    until(loop, lambda: len(server.data()) == 300_006)


def test_close_delivers_what_was_written_and_both_ends_are_told(loop: Loop) -> None:
    server, client = Recorder(), Recorder()
    listener = pair(loop, server, client)
    server.conn.write(b"x" * 50_000)
    server.conn.close()
    until(loop, lambda: client.has("end") and server.has("lost"))
    assert client.data() == b"x" * 50_000
    client.conn.close()
    until(loop, lambda: client.has("lost"))
    assert server.events[-1] == ("lost", server.conn.id, 0)
    assert listener.connections == []


def test_an_answer_reaches_a_peer_that_is_still_sending_when_we_close(loop: Loop) -> None:
    server, client = Recorder(), Recorder()

    def refuse(conn: Connection, data: bytes) -> None:
        conn.write(b"too large")
        conn.close()

    server.on_receive = refuse
    pair(loop, server, client)
    client.conn.write(bytes(300_000))
    until(loop, lambda: client.has("end"))
    assert client.data() == b"too large"
    client.conn.close()
    until(loop, lambda: server.has("lost") and client.has("lost"))
    assert client.events[-1] == ("lost", client.conn.id, 0)


def test_abort_in_the_middle_ends_every_operation(loop: Loop) -> None:
    server, client = Recorder(), Recorder()
    listener = pair(loop, server, client)
    server.conn.write(bytes(1 << 20))
    client.conn.pause_reading()
    for _ in range(5):
        loop.run_pass(0)
    server.conn.abort()
    client.conn.abort()
    until(loop, lambda: server.has("lost") and client.has("lost"))
    listener.stop_accepting()
    until(loop, lambda: loop._operations.in_flight == 0)
    assert not loop._operations.sending


@pytest.mark.parametrize("with_slots", [False, True])
def test_numbers_of_connections_begin_again_at_their_end_without_those_in_use(loop: Loop, with_slots: bool) -> None:
    if with_slots:
        loop.use_connection_table()
    server, client = Recorder(), Recorder()
    server.on_receive = Connection.write
    listener = pair(loop, server, client)
    operations = loop._operations
    used = operations._serial
    operations._serial = SERIAL_MAX - 3
    for _ in range(4):
        join(loop, listener, server, client)
    assert operations._serial < SERIAL_MAX - 3
    assert operations._serial > used or with_slots
    for number, conn in enumerate(client.conns):
        conn.write(b"%d" % number)
    until(loop, lambda: len(client.data()) == 5)
    assert sorted(client.data()) == sorted(b"01234")
    numbers = [conn.send_data for conn in server.conns + client.conns] + [*operations.receiving, *operations.accepting]
    assert len(set(numbers)) == len(numbers) == 21


def test_completions_reach_their_callbacks_however_many_there_were(loop: Loop, directory: str) -> None:
    loop._operations._callback_serial = 1 << 40

    async def work() -> bytes:
        fd = await loop.files.open(f"{directory}/a", os.O_RDWR | os.O_CREAT)
        await loop.files.write_all(fd, b"abc", 0)
        found = await loop.files.read(fd, 3, 0)
        await loop.files.close(fd)
        return found

    assert loop.run_task(work()) == b"abc"


def test_a_refused_connect_names_the_address(loop: Loop) -> None:
    listener = loop.listen("127.0.0.1", 0, Recorder())
    port = listener.address[1]
    listener.stop_accepting()
    until(loop, lambda: loop._operations.in_flight == 0)
    future = loop.connect("127.0.0.1", port, Recorder())
    until(loop, lambda: future.done)
    with pytest.raises(ConnectionRefusedError, match=str(port)):
        future.result()


def test_files_are_written_read_renamed_and_removed(loop: Loop, directory: str) -> None:
    files = loop.files

    async def work() -> bytes:
        fd = await files.open(f"{directory}/new", os.O_RDWR | os.O_CREAT)
        await files.allocate_zeroed(fd, 8192)
        await files.write_all(fd, b"hello", 4096)
        await files.fdatasync(fd)
        await files.rename(f"{directory}/new", f"{directory}/kept")
        await files.sync_directory(directory)
        data = await files.read(fd, 10_000, 4094)
        await files.close(fd)
        return data

    data = loop.run_task(work())
    assert data[:7] == b"\0\0hello"
    assert len(data) == 8192 - 4094
    assert files.list_directory(directory) == ["kept"]
    loop.run_task(files.unlink(f"{directory}/kept"))
    with pytest.raises(FileNotFoundError, match="kept"):
        loop.run_task(files.open(f"{directory}/kept", os.O_RDONLY))


def test_a_commit_chain_reports_the_write_and_the_sync(loop: Loop, directory: str) -> None:
    fd = loop.run_task(loop.files.open(f"{directory}/log", os.O_RDWR | os.O_CREAT))
    results: list[tuple[int, int]] = []
    loop.files.commit_nowait(fd, b"z" * 5000, 0, lambda write, sync: results.append((write, sync)))
    until(loop, lambda: bool(results))
    assert results == [(5000, 0)]
    loop.run_task(loop.files.close(fd))


def test_closing_the_loop_ends_connections_tasks_and_listeners(loop: Loop) -> None:
    server, client = Recorder(), Recorder()
    pair(loop, server, client)
    task = loop.spawn(loop.sleep(10**15))
    loop.close()
    assert server.has("lost")
    assert client.has("lost")
    assert task.done
    assert loop._operations.in_flight == 0


def test_out_of_descriptors_it_neither_spins_nor_ends_and_heals(loop: Loop) -> None:
    server, client = Recorder(), Recorder()
    with Descriptors(loop) as descriptors:
        listener = loop.listen("127.0.0.1", 0, server, limits=StreamLimits(refusal=b"busy"))
        until(loop, lambda: loop._operations.in_flight == 1)  # the accept; the spare is open
        descriptors.leave(1)
        loop.connect("127.0.0.1", listener.address[1], client)
        until(loop, lambda: loop.stats().emfile > 0)
        passes = loop.stats().passes
        # Each wait ends by an event or a timer: those that end by their time would be counted, too.
        until(loop, lambda: client.has("end") or client.has("lost"), wait_ns=1_000_000_000)
        assert loop.stats().passes - passes < 60
        assert b"busy".startswith(client.data())  # one send, as much as fits
        assert loop.stats().refused == 1
    third = loop.connect("127.0.0.1", listener.address[1], client)
    until(loop, lambda: third.done and len(server.conns) == 1)


class Descriptors:
    """Takes descriptors away from the process, or from the simulated one."""

    def __init__(self, loop: Loop) -> None:
        self.ring = loop.ring
        self.taken: list[int] = []

    def __enter__(self) -> Descriptors:
        if not isinstance(self.ring, SimRing):
            gc.collect()  # what an earlier test has left would be closed meanwhile, and leave room
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))
            self.limit = limited(resource.RLIMIT_NOFILE, highest + 10)
            self.limit.__enter__()
        return self

    def leave(self, count: int) -> None:
        """From now on `count` are left."""
        if isinstance(self.ring, SimRing):
            self.before, self.ring.fd_limit = self.ring.fd_limit, max(self.ring.open_fds) + 1 + count
            return
        with suppress(OSError):
            while True:
                self.taken.append(os.dup(0))
        for _ in range(count):
            os.close(self.taken.pop())

    def __exit__(self, *_: object) -> None:
        if isinstance(self.ring, SimRing):
            self.ring.fd_limit = self.before
            return
        self.limit.__exit__(None, None, None)
        for fd in self.taken:
            os.close(fd)


def test_a_signal_ends_the_wait_and_reaches_its_callback(kernel_loop: Loop) -> None:
    seen: list[int] = []

    def on_signal(number: int) -> None:
        seen.append(number)
        kernel_loop.stop()

    uninstall = install_signal_handlers(kernel_loop, on_signal)
    try:
        timer = threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        kernel_loop.run()
        timer.join()
    finally:
        uninstall()
    assert seen == [signal.SIGTERM]


def test_signals_that_were_blocked_come_once_they_are_handled(kernel_loop: Loop) -> None:
    """A new process of a core is started so: it is not ended by what comes before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # other threads have not blocked it
        seen: list[int] = []
        uninstall = install_signal_handlers(kernel_loop, seen.append)
        try:
            for _ in range(10_000):
                if seen:
                    break
                kernel_loop.run_pass(1_000_000)
        finally:
            uninstall()
    finally:
        signal.sigtimedwait({signal.SIGTERM}, 0)  # it is still blocked if the test fails
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert seen == [signal.SIGTERM]


def test_a_signal_that_c_code_handles_is_left_to_it(kernel_loop: Loop) -> None:
    """`getsignal` reports such a handler as None, which `signal` does not take."""
    getsignal, before = signal.getsignal, [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGTERM else getsignal(number))
        uninstall = install_signal_handlers(kernel_loop, lambda number: None)
        assert getsignal(signal.SIGINT) != before[0]
        assert getsignal(signal.SIGTERM) == before[1]
        uninstall()
    assert [getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_ends_the_wait(kernel_loop: Loop) -> None:
    thread = threading.Thread(target=lambda: kernel_loop.call_soon_threadsafe(kernel_loop.stop))
    kernel_loop.call_soon(thread.start)
    kernel_loop.run()
    thread.join()
    assert kernel_loop.stats().passes >= 1


def test_no_timer_fires_while_a_loop_is_closed(loop: Loop) -> None:
    """Whatever it would begin could use what is closed."""
    fired: list[str] = []

    async def wait() -> None:
        try:
            await loop.sleep(60_000_000_000)
        finally:
            await loop.next_pass()
            await loop.next_pass()

    loop.spawn(wait(), "wait")
    loop.run_pass(0)
    loop.call_later(1_000_000, lambda: fired.append("late"))
    loop.call_later(0, lambda: fired.append("at once"))
    loop.close()
    assert fired == []


def test_a_call_in_a_thread_returns_or_raises_to_its_task(loop: Loop) -> None:
    assert loop.run_task(loop.files.to_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        loop.run_task(loop.files.to_thread(divmod, 7, 0))
    assert loop.files.in_threads == 0


def test_a_call_that_does_not_return_stops_neither_the_loop_nor_its_close(kernel_loop: Loop) -> None:
    loop, answers, ended = kernel_loop, threading.Event(), threading.Event()

    def hang() -> None:
        answers.wait()
        ended.set()

    task = loop.spawn(loop.files.to_thread(hang))
    loop.run_task(loop.sleep(1_000_000))
    assert not task.done
    loop.close()
    answers.set()
    ended.wait()
