"""SimRing by itself: what only a simulator promises. What it shares with the kernel is in the conformance suite."""

import errno
import os

import pytest

from tests.sim import Faults, SimDisk, SimRing, SimStalledError, SimStoppedError, sweep
from topics.loop.ring import F_BUFFER, F_MORE


def finish(ring: SimRing, *user_data: int) -> dict[int, int]:
    """Waits for these operations' completions; their results."""
    results: dict[int, int] = {}
    while not set(user_data) <= set(results):
        ring.submit_and_wait(None)
        results |= {data: res for data, res, _ in zip(*ring.reap(), strict=True)}
    return results


def opened(ring: SimRing, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    ring.queue_open(1, path, flags, 0o600)
    fd = finish(ring, 1)[1]
    assert fd >= 0, os.strerror(-fd)
    return fd


def test_a_commit_is_durable_once_both_results_are_in() -> None:
    ring = SimRing()
    ring.put_file("wal", bytes(1024))
    fd = opened(ring, "wal")
    ring.queue_commit(1, 2, fd, b"x" * 512, 0)
    assert finish(ring, 1, 2) == {1: 512, 2: 0}
    after = SimRing(disk=ring.power_cut())
    assert after.file_bytes("wal") == b"x" * 512 + bytes(512)


@pytest.mark.parametrize("keep", [0, 100])
def test_a_short_or_failed_write_cancels_its_sync(keep: int) -> None:
    ring = SimRing()
    fd = opened(ring, "wal")
    if keep:
        ring.faults.shorten("write", keep)
    else:
        ring.faults.fail("write", errno.EIO)
    ring.queue_commit(1, 2, fd, b"x" * 512, 0)
    assert finish(ring, 1, 2) == {1: keep or -errno.EIO, 2: -errno.ECANCELED}


def test_operations_of_a_process_that_holds_faults_do_not_fail_and_count_for_no_rule() -> None:
    """A process beside it fails, and its operations are counted from the first one."""
    ring = SimRing()
    beside = ring.beside("beside")
    fds = [opened(each, "wal") for each in (ring, beside)]
    ring.holds_faults = True
    ring.faults.fail("write", errno.EIO, nth=2)
    for each, fd in zip((ring, ring, beside, beside), (*fds[:1] * 2, *fds[1:] * 2), strict=True):
        each.queue_write(1, fd, b"x", 0)
        assert finish(each, 1) == {1: 1 if ring.faults.seen["write"] < 4 else -errno.EIO}


def test_unsynced_bytes_survive_a_kill_and_a_power_cut_only_by_chance() -> None:
    images = set()
    for seed in range(40):
        ring = SimRing(seed)
        ring.put_file("wal", b"old." * 256)
        fd = opened(ring, "wal")
        ring.queue_write(1, fd, b"new." * 256, 0)
        finish(ring, 1)
        assert SimRing(disk=ring.kill()).file_bytes("wal") == b"new." * 256
        images.add(ring.disk.after_power_cut(ring.rng).find("wal").live[::512].decode())
    assert images == {"oo", "on", "no", "nn"}


def test_a_new_name_needs_an_fsync_of_its_directory() -> None:
    survived = {True: set(), False: set()}
    for directory_synced in (True, False):
        for seed in range(20):
            ring = SimRing(seed)
            fd = opened(ring, "new")
            ring.queue_fsync(1, fd, data_only=False)
            finish(ring, 1)
            if directory_synced:
                ring.queue_fsync(1, opened(ring, ".", os.O_RDONLY | os.O_DIRECTORY), data_only=False)
                finish(ring, 1)
            survived[directory_synced].add(SimRing(disk=ring.power_cut()).list_directory(".") == ["new"])
    assert survived == {True: {True}, False: {True, False}}


def test_a_failed_sync_loses_its_pages_although_reads_show_them() -> None:
    ring = SimRing()
    ring.put_file("wal", b"o" * 4096)
    fd = opened(ring, "wal")
    ring.queue_write(1, fd, b"n" * 4096, 0)
    finish(ring, 1)
    ring.faults.fail("sync", errno.EIO)
    ring.queue_fsync(1, fd, data_only=True)
    ring.queue_fsync(2, fd, data_only=True)
    assert finish(ring, 1, 2) == {1: -errno.EIO, 2: 0}, "the second sync succeeds: the pages are clean"
    assert ring.file_bytes("wal") == b"n" * 4096
    assert ring.disk.find("wal").read(0, 4096, direct=True) == b"o" * 4096
    assert SimRing(disk=ring.power_cut()).file_bytes("wal") == b"o" * 4096


def test_a_dsync_write_makes_its_own_range_durable_alone() -> None:
    firsts = set()
    for seed in range(10):
        ring = SimRing(seed)
        ring.put_file("wal", b"o" * 1024)
        fd = opened(ring, "wal")
        ring.queue_write(1, fd, b"n" * 1024, 0)
        finish(ring, 1)
        ring.queue_write(1, fd, b"d" * 512, 512, dsync=True)
        assert finish(ring, 1) == {1: 512}
        image = SimRing(disk=ring.power_cut()).file_bytes("wal")
        assert image[512:] == b"d" * 512
        firsts.add(image[:512])
    assert firsts == {b"o" * 512, b"n" * 512}


@pytest.mark.parametrize("kind", ["write", "dsync", "sync"])
def test_what_is_made_in_place_takes_its_time_and_the_rest_of_the_world_comes_after_it(kind: str) -> None:
    """It took the usual time on a slow disk, too, so nothing was ever held up by it."""
    ring = SimRing()
    fd = opened(ring, "wal")
    ring.slow_ns.update(write=3_000_000, sync=10_000_000)
    ring.sync_factor = 5
    took_ns = 3_000_000 if kind == "write" else 50_000_000
    began_ns = ring.clock.monotonic_ns()
    seen_ns: list[int] = []
    ring.events.after(took_ns // 2, lambda: seen_ns.append(ring.clock.monotonic_ns()))
    if kind == "sync":
        assert ring.sync_now(fd) == 0
    else:
        assert ring.write_now(fd, b"x", 0, dsync=kind == "dsync") == 1
    assert not seen_ns
    assert ring.clock.monotonic_ns() == began_ns + took_ns
    ring.submit_and_wait(0)
    assert seen_ns[0] > began_ns + took_ns


def test_times_in_place_differ_like_those_through_the_ring() -> None:
    ring = SimRing(shuffle=True)
    fd, took_ns = opened(ring, "wal"), set()
    for _ in range(40):
        began_ns = ring.clock.monotonic_ns()
        ring.write_now(fd, b"x", 0, dsync=True)
        took_ns.add(ring.clock.monotonic_ns() - began_ns)
    assert {10_000, 100_000, 2_000_000} < took_ns


def test_a_kill_may_come_amid_a_write_in_place_between_two_pages() -> None:
    written = set()
    for seed in range(40):
        ring = SimRing(seed, shuffle=True)
        fd = opened(ring, "wal")
        ring.stop_at(ring.effects + 1)
        with pytest.raises(SimStoppedError):
            ring.write_now(fd, b"x" * 12_288, 0, dsync=True)
        written.add(len(SimRing(disk=ring.kill()).file_bytes("wal")))
    assert written == {4096, 8192, 12_288}


def test_a_full_disk_writes_what_fits_and_heals_when_a_file_goes() -> None:
    ring = SimRing(disk=SimDisk(capacity_bytes=8192))
    ring.put_file("other", bytes(4096))
    fd = opened(ring, "wal")
    ring.queue_write(1, fd, bytes(8192), 0)
    assert finish(ring, 1) == {1: 4096}
    ring.queue_write(1, fd, bytes(4096), 4096)
    assert finish(ring, 1) == {1: -errno.ENOSPC}
    ring.queue_unlink(1, "other")
    finish(ring, 1)
    assert ring.free_bytes(".") == 4096
    ring.queue_write(1, fd, bytes(4096), 4096)
    assert finish(ring, 1) == {1: 4096}


def test_a_misaligned_direct_write_is_refused() -> None:
    ring = SimRing()
    fd = opened(ring, "wal", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    ring.queue_write(1, fd, b"x" * 100, 0)
    assert finish(ring, 1) == {1: -errno.EINVAL}


def test_the_boot_id_changes_with_the_power_alone() -> None:
    ring = SimRing()
    assert SimRing(disk=ring.kill()).boot_id() == ring.boot_id()
    assert SimRing(disk=ring.disk.after_power_cut(ring.rng)).boot_id() != ring.boot_id()


def test_a_lock_dies_with_its_process() -> None:
    ring = SimRing()
    ring.lock("lock")
    with pytest.raises(BlockingIOError):
        SimRing(disk=ring.disk).lock("lock")
    assert SimRing(disk=ring.kill()).lock("lock") >= 0


def test_a_client_is_accepted_answered_and_closed() -> None:
    ring = SimRing(receive_buffer_bytes=8)
    listener, (_, port) = ring.listen("127.0.0.1", 0, 16)
    ring.queue_accept(1, listener)
    client = ring.network.client(port)
    client.send(b"hello, world")
    fd = finish(ring, 1)[1]
    assert ring.peer_of(fd) == client.address
    ring.queue_recv(2, fd)
    got = b""
    while len(got) < 12:
        ring.submit_and_wait(None)
        for data, res, flags in zip(*ring.reap(), strict=True):
            assert (data, flags & (F_BUFFER | F_MORE)) == (2, F_BUFFER | F_MORE)
            got += bytes(ring.received(flags, res))
            ring.recycle([flags])
    assert got == b"hello, world"
    ring.queue_sends([(3, fd, b"bye")])
    assert finish(ring, 3) == {3: 3}
    client.close()
    assert finish(ring, 2) == {2: 0}
    ring.queue_close(4, fd)
    assert finish(ring, 4) == {4: 0}
    ring.events.run_until_idle()
    assert ring.open_fds == [listener]


def test_waiting_for_what_cannot_happen_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(SimStalledError, match="seed 7"):
        SimRing(7).submit_and_wait(None)


def test_a_slow_reader_keeps_a_send_waiting() -> None:
    ring = SimRing()
    listener, (_, port) = ring.listen("127.0.0.1", 0, 16)
    ring.queue_accept(1, listener)
    client = ring.network.client(port)
    fd = finish(ring, 1)[1]
    data = bytes(ring.network.socket_buffer_bytes)
    ring.queue_sends([(2, fd, data)])
    assert finish(ring, 2) == {2: len(data)}
    ring.queue_sends([(2, fd, data)])
    ring.submit_and_wait(1_000_000_000)
    assert ring.reap() == ([], [], [])
    assert client.receive(100) == bytes(100)
    assert finish(ring, 2) == {2: 100}


def test_time_is_virtual_and_a_timeout_moves_it() -> None:
    ring = SimRing()
    before = ring.clock.monotonic_ns()
    ring.submit_and_wait(3_600_000_000_000)
    assert ring.clock.monotonic_ns() == before + 3_600_000_000_000


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[int]:
        ring = SimRing(seed, shuffle=True)
        fd = opened(ring, "file")
        for number in range(20):
            ring.queue_write(100 + number, fd, b"x", number)
        order: list[int] = []
        while len(order) < 20:
            ring.submit_and_wait(None)
            order += ring.reap()[0]
        return order

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_lying_sync_answers_zero_and_keeps_nothing_for_certain() -> None:
    images = set()
    for seed in range(10):
        ring = SimRing(seed)
        ring.put_file("wal", b"o" * 512)
        fd = opened(ring, "wal")
        ring.faults.lie()
        ring.queue_commit(1, 2, fd, b"n" * 512, 0)
        assert finish(ring, 1, 2) == {1: 512, 2: 0}
        images.add(ring.next_life(power_cut=True).file_bytes("wal")[:1])
    assert images == {b"o", b"n"}


def test_a_rename_is_there_whole_or_not_at_all() -> None:
    outcomes = set()
    for seed in range(30):
        ring = SimRing(seed)
        ring.put_file("old", b"o")
        ring.put_file("new", b"n")
        ring.queue_rename(1, "old", "new")
        finish(ring, 1)
        after = ring.next_life(power_cut=True)
        outcomes.add(tuple((name, after.file_bytes(name)) for name in after.list_directory(".")))
    assert outcomes == {(("new", b"o"),), (("new", b"n"), ("old", b"o"))}


def test_a_preallocated_file_may_be_short_until_it_is_synced() -> None:
    sizes = set()
    for seed in range(10):
        ring = SimRing(seed)
        ring.put_file("wal", b"x")
        ring.allocate(opened(ring, "wal"), 4096)
        assert ring.file_size("wal") == 4096
        sizes.add(ring.next_life(power_cut=True).file_size("wal"))
    assert sizes == {1, 4096}


def test_a_descriptor_closed_under_a_receive_leaves_the_connection_open() -> None:
    """The kernel's rule: close(2) ends no operation. Cancelling by user_data does."""
    ring = SimRing()
    listener, (_, port) = ring.listen("127.0.0.1", 0, 16)
    ring.queue_accept(1, listener)
    client = ring.network.client(port)
    fd = finish(ring, 1)[1]
    ring.queue_recv(2, fd)
    ring.queue_close(3, fd)
    assert finish(ring, 3) == {3: 0}
    ring.events.run_until_idle()
    assert not client.ended
    ring.queue_cancel(4, 2)
    assert finish(ring, 2, 4) == {2: -errno.ECANCELED, 4: 0}
    ring.events.run_until_idle()
    assert client.ended


@pytest.mark.parametrize("ends", ["cancel", "shutdown"])
def test_what_ends_a_receive_may_complete_before_it_or_after_it(ends: str) -> None:
    """The kernel promises no order of the two, so a caller that closes has to wait for both."""
    orders = set()
    for seed in range(20):
        ring = SimRing(seed, shuffle=True)
        listener, (_, port) = ring.listen("127.0.0.1", 0, 16)
        ring.queue_accept(1, listener)
        ring.network.client(port)
        fd = finish(ring, 1)[1]
        ring.queue_recv(2, fd)
        ring.submit_and_wait(1_000_000)
        if ends == "cancel":
            ring.queue_cancel(3, 2)
        else:
            ring.queue_shutdown(3, fd)
        completed: list[int] = []
        while len(completed) < 2:
            ring.submit_and_wait(None)
            completed += ring.reap()[0]
        orders.add(tuple(completed))
    assert orders == {(2, 3), (3, 2)}


def test_clients_of_a_dead_process_see_the_end_and_reach_the_next_one() -> None:
    ring = SimRing()
    listener, (_, port) = ring.listen("127.0.0.1", 4000, 16)
    ring.queue_accept(1, listener)
    client = ring.network.client(port)
    finish(ring, 1)
    after = ring.next_life(power_cut=False)
    after.events.run_until_idle()
    assert client.ended
    with pytest.raises(ConnectionRefusedError):
        after.network.client(port)
    after.listen("127.0.0.1", 4000, 16)
    after.network.client(port)


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_connection_that_was_sent_outlives_the_process_that_sent_it(power_cut: bool) -> None:
    giver = SimRing()
    taker = SimRing(network=giver.network)
    mailbox = taker.open_mailbox("mailbox")
    listener, address = giver.listen("127.0.0.1", 0, 4)
    clients = [giver.network.client(address[1]) for _ in range(2)]
    giver.queue_accept(1, listener)
    giver.submit_and_wait(None)
    giver.submit_and_wait(1_000_000)
    sent, _kept = giver.reap()[1]
    assert giver.send_descriptor("mailbox", sent, b"x") == 0
    giver.next_life(power_cut=power_cut)
    taker.submit_and_wait(1_000_000)
    assert clients[1].ended
    assert clients[0].ended == power_cut, "the machine ends as a whole, and a process by itself"
    fd, data = taker.take_descriptor(mailbox, 16)
    assert data == b"x"
    if not power_cut:
        assert taker.send_now(fd, b"here") == 4
        taker.submit_and_wait(1_000_000)
        assert clients[0].receive() == b"here"


def test_a_sweep_meets_every_operation_once() -> None:
    def run(faults: Faults) -> None:
        ring = SimRing(faults=faults)
        ring.queue_open(1, "file", os.O_RDWR | os.O_CREAT, 0o600)
        fd = finish(ring, 1)[1]
        for offset in (0, 512):
            ring.queue_commit(1, 2, fd, bytes(512), offset)
            finish(ring, 1, 2)

    assert sweep(run, {"open": errno.EMFILE, "write": errno.EIO, "sync": errno.EIO}) == 5


def test_a_buffer_changed_under_way_is_caught() -> None:
    ring = SimRing()
    buffer = bytearray(512)
    ring.queue_write(1, opened(ring, "file"), buffer, 0)
    ring.submit_and_wait(0)
    buffer[0] = 1
    with pytest.raises(AssertionError, match="changed while"):
        finish(ring, 1)


def test_a_close_of_the_root_directory_ends_the_wait_and_one_of_a_file_does_not() -> None:
    """The root is a listener's spare descriptor, which it gives up to accept."""
    ring = SimRing()
    for path, waited in (("/", False), ("file", True)):
        fd = opened(ring, path, os.O_RDONLY | os.O_DIRECTORY if path == "/" else os.O_RDWR | os.O_CREAT)
        began_ns = ring.clock.monotonic_ns()
        ring.queue_close(2, fd)
        ring.submit_and_wait(1_000_000_000)
        assert ring.reap()[0] == [2]
        assert (ring.clock.monotonic_ns() - began_ns >= 1_000_000_000) == waited


def test_two_sends_in_flight_on_one_connection_are_caught() -> None:
    ring = SimRing()
    listener, (_, port) = ring.listen("127.0.0.1", 0, 16)
    ring.queue_accept(1, listener)
    ring.network.client(port)
    fd = finish(ring, 1)[1]
    ring.queue_sends([(2, fd, b"a"), (3, fd, b"b")])
    with pytest.raises(AssertionError, match="reorder"):
        ring.submit_and_wait(None)
