"""Connections as columns, on every ring: what arrives is a row, answers leave in one call, and nothing is lost when a
connection comes back to its object in the middle of something."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.loop.handlers import Recorder
from tests.loop.rings.test_loop_on_rings import RINGS, make_loop, until
from tests.loop.stuck_sends import fill_buffers
from topics.loop import Connection, Loop
from topics.loop._connection_table import ffi, lib
from topics.loop.connection_table import SHARED_BYTES_MAX, ConnectionTable


class ColumnEcho(Recorder):
    """Echoes rows as columns; a connection is owned from its first receive on, until one came back."""

    takes_rows = True

    def __init__(self, table: ConnectionTable) -> None:
        super().__init__()
        self.table = table
        self.rows = 0
        self.waiting: list[tuple[int, bytes]] = []
        self.at_once = True
        self.factor = 1

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        table = self.table
        for row in range(table.count):
            self.rows += 1
            self.waiting.append((table.rows().refs[row], bytes(table.view(row))))
        for conn, view in batch:
            if conn.owned:
                self.events.append(("back", conn.id, table.leave(conn)))
            if conn.expected == 0 and not self.has("back"):
                table.own(conn)
                self.waiting.append((conn.send_data >> 4, bytes(view)))
            else:
                conn.write(bytes(view) * self.factor)
        if self.at_once:
            self.answer()

    def answer(self) -> None:
        """Answer what waits, in one call."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        texts = [text * self.factor for _, text in waiting]
        joined = b"".join(texts)
        number, memory = self.table.room(len(joined))
        ffi.buffer(memory, len(joined))[:] = joined
        refs = ffi.new("uint64_t[]", [ref for ref, _ in waiting])
        lengths = ffi.new("uint32_t[]", [len(text) for text in texts])
        for ref, text in self.table.answer(number, memory, refs, lengths, len(texts), 1):
            conn = self.table.connection(ref)
            if conn is not None:
                if conn.owned:
                    self.table.leave(conn)
                conn.write(text)


class World:
    def __init__(self, loop: Loop, server: type[ColumnEcho] = ColumnEcho) -> None:
        self.loop = loop
        self.server = server(loop.use_connection_table())
        self.listener = loop.listen("127.0.0.1", 0, self.server)
        self.client = Recorder()

    def connect(self) -> Connection:
        future = self.loop.connect(*self.listener.address, self.client)
        until(self.loop, lambda: future.done)
        return future.result()

    def heard(self, conn: Connection) -> bytes:
        return b"".join(event[2] for event in self.client.events if event[:2] == ("data", conn.id))  # type: ignore[misc]


@pytest.fixture(params=RINGS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    loop = make_loop(request.param)
    yield World(loop)
    loop.close()


def test_rows_are_answered_in_one_call_each_to_its_connection(world: World) -> None:
    conns = [world.connect() for _ in range(5)]
    said = dict.fromkeys(conns, b"")
    for turn in range(20):
        for number, conn in enumerate(conns):
            text = bytes([65 + turn + number])  # one byte: a network that cuts cannot bring in half of it
            said[conn] += text
            conn.write(text)
        until(world.loop, lambda: all(world.heard(conn) == said[conn] for conn in conns))
    assert world.server.rows > 50
    assert all(conn.owned for conn in world.server.conns)
    assert not any(conn.outbound_bytes for conn in world.server.conns)
    assert world.loop.stats().sends == 200, "each write and each answer"


def test_what_arrives_before_the_answer_brings_a_connection_back(world: World) -> None:
    conn = world.connect()
    conn.write(b"1")
    until(world.loop, lambda: world.heard(conn) == b"1")
    world.server.at_once = False
    conn.write(b"2")
    until(world.loop, lambda: len(b"".join(text for _, text in world.server.waiting)) == 1)
    conn.write(b"3")
    until(world.loop, lambda: world.server.has("back") and b"3" in world.heard(conn))
    assert not world.server.conn.owned
    world.server.answer()
    until(world.loop, lambda: world.heard(conn).endswith(b"2"))


def test_a_receive_does_not_overtake_one_that_came_while_an_answer_was_on_its_way() -> None:
    """All three in one pass: a receive, which is the Connection's, the end of the send, and another receive."""
    table = ffi.gc(lib.tp_table_new(8), lib.tp_table_free)
    slot = lib.tp_table_open(table)
    recv_data, send_data = slot << 4 | 2, slot << 4 | 3
    lib.tp_table_set(table, slot, 7, send_data)
    lib.tp_table_reads(table, slot, recv_data)
    lib.tp_table_own(table, slot)
    refs, lengths = ffi.new("uint64_t[]", [send_data >> 4]), ffi.new("uint32_t[]", [1])
    number = lib.tp_table_buffer(table, 1, ffi.new("char **"))
    lib.tp_table_answer(table, number, refs, lengths, 1, 1, ffi.new("uint64_t[1]"), ffi.new("int[1]"))
    lib.tp_table_begin(table)
    user_data = ffi.new("uint64_t[]", [recv_data, send_data, recv_data])
    flags = ffi.new("uint32_t[]", [3 | 5 << 16, 0, 3 | 6 << 16])
    rest = lib.tp_table_sort(table, 3, user_data, ffi.new("int[]", [1, 1, 1]), flags, 0)
    assert [flag >> 16 for flag in flags[0:rest]] == [5, 6]
    lib.tp_table_begin(table)
    assert lib.tp_table_sort(table, 1, user_data, ffi.new("int[]", [1]), flags, 0) == 0, "in the next pass it is a row"


def test_an_answer_larger_than_the_socket_takes_goes_out_whole(world: World) -> None:
    conn = world.connect()
    conn.write(b"a")
    until(world.loop, lambda: world.heard(conn) == b"a")
    size = world.server.factor = 300_000 if world.loop.ring.name == "sim" else 6_000_000
    conn.pause_reading()
    conn.write(b"b")
    for _ in range(20):
        world.loop.run_pass(1_000_000)
    assert world.server.conn.outbound_bytes
    assert not world.loop.pinned(), "the rest is the connection's own: the buffer is free for others"
    conn.resume_reading()
    until(world.loop, lambda: len(world.heard(conn)) == 1 + size, passes=20_000)


@pytest.mark.parametrize("end", [Connection.abort, Connection.close])
def test_an_owned_connection_ends_like_any_other(world: World, end: Callable[[Connection], None]) -> None:
    conn = world.connect()
    conn.write(b"x")
    until(world.loop, lambda: world.heard(conn) == b"x")
    assert world.server.conn.owned
    world.server.at_once = False
    conn.write(b"y")
    until(world.loop, lambda: bool(world.server.waiting))
    end(world.server.conn)
    until(world.loop, lambda: (world.server.has("lost") and world.client.has("lost")) or world.client.has("end"))
    world.server.answer()  # to no link
    other = world.connect()
    world.server.events.clear()
    world.server.at_once = True
    other.write(b"z")
    until(world.loop, lambda: world.heard(other) == b"z")


def test_a_peer_that_leaves_while_its_connection_is_owned_is_noticed(world: World) -> None:
    conn = world.connect()
    conn.write(b"x")
    until(world.loop, lambda: world.heard(conn) == b"x")
    conn.close()
    until(world.loop, lambda: world.server.has("end"))
    world.server.conn.close()
    until(world.loop, lambda: world.server.has("lost"))


class SpanEcho(ColumnEcho):
    """Answers with the bytes where the kernel put them, and with lists of what is not a row yet."""

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        table = self.table
        late: list[tuple[int, bytes]] = []
        if table.count:
            self.rows += table.count
            count, memory, refs, starts, ends = table.rows()
            late += table.answer_spans(memory, refs, starts, ends, count)
        for conn, view in batch:
            if table.can_own(conn):
                table.own(conn)
                late += table.answer_spans(b"<" + view + b">", [conn.ref], [1], [1 + len(view)], 1)
            else:
                if conn.owned:
                    table.leave(conn)
                conn.write(bytes(view))
        for ref, data in late:
            back = table.connection(ref)
            assert back is not None
            back.write(data)


@pytest.fixture(params=RINGS)
def span_world(request: pytest.FixtureRequest) -> Iterator[World]:
    loop = make_loop(request.param)
    yield World(loop, SpanEcho)
    loop.close()


@pytest.mark.parametrize("server", [ColumnEcho, SpanEcho])
@pytest.mark.parametrize("ring", RINGS)
def test_answers_go_by_bytes_while_sends_are_stuck_in_all_buffers(ring: str, server: type[ColumnEcho]) -> None:
    loop = make_loop(ring)
    try:
        world = World(loop, server)
        conn = world.connect()
        conn.write(b"a")
        until(loop, lambda: world.heard(conn) == b"a")
        assert world.server.conn.owned
        stuck = fill_buffers(world.server.table)
        for text in (b"ab", b"abc"):
            conn.write(text[-1:])
            until(loop, lambda text=text: world.heard(conn) == text)  # type: ignore[misc]
        assert not world.server.conn.owned
        assert set(loop.pinned().values()) == {65536 - 1}
        assert len(loop.pinned()) == stuck
    finally:
        loop.close()


def test_a_buffer_is_kept_and_counted_until_the_last_of_its_sends_has_ended() -> None:
    table = ffi.gc(lib.tp_table_new(8), lib.tp_table_free)
    slots = [lib.tp_table_open(table) for _ in range(60)]
    sends = [slot << 4 | 3 for slot in slots]
    for slot, send in zip(slots, sends, strict=True):
        lib.tp_table_set(table, slot, 7, send)
        lib.tp_table_own(table, slot)
    for first in range(0, 60, 2):  # two answers a pass
        number = lib.tp_table_buffer(table, 1000, ffi.new("char **"))
        refs = ffi.new("uint64_t[]", slots[first : first + 2])
        lengths = ffi.new("uint32_t[]", [400, 600])
        lib.tp_table_answer(table, number, refs, lengths, 2, 1, ffi.new("uint64_t[2]"), ffi.new("int[2]"))

    def pinned() -> dict[int, int]:
        keys, shares = ffi.new("uint64_t[60]"), ffi.new("uint64_t[60]")
        found = lib.tp_table_pinned(table, 60, keys, shares)
        return dict(zip(keys[0:found], shares[0:found], strict=True))

    def end(ended: list[int], res: list[int]) -> int:
        columns = ffi.new("uint64_t[]", ended), ffi.new("int[]", res), ffi.new("uint32_t[]", [0] * len(ended))
        return int(lib.tp_table_sort(table, len(ended), *columns, 0))

    assert pinned() == {send: 32768 - (400, 600)[at % 2] for at, send in enumerate(sends)}
    assert end(sends[0::2], [400] * 30) == 0
    assert pinned() == dict.fromkeys(sends[1::2], 65536 - 600)
    assert lib.tp_table_trim(table) == 0
    assert end(sends[1::2], [599] * 30) == 30, "short: the Connections go on with a copy of the rest"
    assert len(pinned()) == 30, "not before they have it"
    for slot in slots[1::2]:
        lib.tp_table_leave(table, slot, ffi.new("char **"), ffi.new("uint32_t *"))
    assert pinned() == {}
    assert lib.tp_table_trim(table) == (30 - 8) * 65536
    assert lib.tp_table_trim(table) == 0


def test_spans_of_what_was_received_are_answers(span_world: World) -> None:
    world = span_world
    conns = [world.connect() for _ in range(4)]
    said = dict.fromkeys(conns, b"")
    for turn in range(30):
        for number, conn in enumerate(conns):
            for part in range(1 + (turn + number) % 3):  # the second comes after its answer, or before
                text = bytes([65 + turn + part]) * (1 + number * 40)
                said[conn] += text
                conn.write(text)
                if turn % 2:
                    world.loop.run_pass(0)
        until(world.loop, lambda: all(world.heard(conn) == said[conn] for conn in conns))
    assert world.server.rows > 10
    table = world.loop.use_connection_table()
    ref = world.server.conns[0].ref
    for start, end in ((0, 0), (3, 2), (2, 9)):
        with pytest.raises(ValueError, match="a span"):
            table.answer_spans(b"12345678", [ref], [start], [end], 1)
    gone = world.server.conns[1]
    gone.abort()
    assert table.answer_spans(b"12345678", [gone.ref], [2], [4], 1) == [(gone.ref, b"34")]


# --- the same bytes to many -----------------------------------------------------------------------------------------
class Sharer(Recorder):
    """Writes nothing by itself."""

    def __init__(self, table: ConnectionTable) -> None:
        super().__init__()
        self.table = table

    def receive(self, batch: list[tuple[Connection, memoryview]]) -> None:
        for conn, view in batch:
            self.events.append(("data", conn.id, bytes(view)))


class SharingWorld:
    def __init__(self, loop: Loop, count: int) -> None:
        self.loop = loop
        self.server = Sharer(loop.use_connection_table())
        self.table = self.server.table
        self.listener = loop.listen("127.0.0.1", 0, self.server)
        self.client = Recorder()
        futures = [loop.connect(*self.listener.address, self.client) for _ in range(count)]
        until(loop, lambda: all(future.done for future in futures) and len(self.server.conns) == count)
        self.conns = [future.result() for future in futures]
        self.ends = list(self.server.conns)
        self.refs = self.table.column([conn.ref for conn in self.ends])

    def share(self, data: bytes) -> list[int]:
        return self.table.share(data, self.refs, len(self.ends))

    def idle(self, sharing: list[Connection]) -> None:
        """Wait until all is sent. A short send, as the simulator makes some, ends the sharing: these begin it again."""
        until(self.loop, lambda: not any(conn.outbound_bytes for conn in self.ends))
        for conn in sharing:
            assert conn.shares or self.table.begin_sharing(conn)

    def count_heard(self) -> int:
        return sum(len(event[2]) for event in self.client.events if event[0] == "data")  # type: ignore[arg-type]

    def heard(self) -> list[bytes]:
        """Return the bytes of each client, sorted."""
        texts: dict[int, list[bytes]] = {conn.id: [] for conn in self.conns}
        for event in self.client.events:
            if event[0] == "data":
                texts[event[1]].append(event[2])  # type: ignore[index, arg-type]
        return sorted(map(b"".join, texts.values()))


@pytest.fixture(params=RINGS)
def sharing(request: pytest.FixtureRequest) -> Iterator[SharingWorld]:
    loop = make_loop(request.param)
    yield SharingWorld(loop, 5)
    loop.close()


def test_one_call_sends_to_all_that_share_and_names_the_others(sharing: SharingWorld) -> None:
    world = sharing
    assert world.share(b"a") == [0, 1, 2, 3, 4], "none shares yet"
    assert [world.table.begin_sharing(conn) for conn in world.ends[:4]] == [True] * 4
    assert world.share(b"b") == [4]
    assert world.share(b"c") == [0, 1, 2, 3, 4], "all have a send in flight"
    assert [conn.outbound_bytes for conn in world.ends] == [1, 1, 1, 1, 0]
    until(world.loop, lambda: world.heard() == [b"", b"b", b"b", b"b", b"b"])
    world.idle(world.ends[:4])
    assert world.share(b"d") == [4]
    until(world.loop, lambda: world.heard() == [b"", b"bd", b"bd", b"bd", b"bd"])
    world.idle([])
    assert not world.loop.pinned()


def test_a_write_of_its_own_follows_a_shared_send_and_ends_the_sharing(sharing: SharingWorld) -> None:
    world = sharing
    for conn in world.ends:
        assert world.table.begin_sharing(conn)
    assert world.share(b"one ") == []
    for conn in world.ends[:2]:
        conn.write(b"two ")
    assert [conn.shares for conn in world.ends] == [False, False, True, True, True]
    assert world.share(b"three") == [0, 1, 2, 3, 4]
    until(world.loop, lambda: world.heard() == [b"one "] * 3 + [b"one two "] * 2)
    world.idle(world.ends[2:])
    assert world.share(b"four") == [0, 1]
    until(world.loop, lambda: world.heard() == [b"one four"] * 3 + [b"one two "] * 2)


@pytest.mark.parametrize("end", [Connection.abort, Connection.close])
def test_a_connection_that_shares_ends_like_any_other(sharing: SharingWorld, end: Callable[[Connection], None]) -> None:
    world = sharing
    for conn in world.ends:
        world.table.begin_sharing(conn)
    gone, *others = world.ends
    world.share(b"x")
    end(gone)
    assert not gone.shares
    until(world.loop, lambda: world.client.has("end") or world.client.has("lost"))
    world.idle(others)
    assert world.share(b"y") == [0], "a name of none is skipped"
    until(world.loop, lambda: [text[-1:] for text in world.heard()].count(b"y") == 4)
    assert not world.table.begin_sharing(gone)


def test_a_peer_that_takes_only_some_gets_the_rest_from_its_connection(sharing: SharingWorld) -> None:
    world = sharing
    for conn in world.ends:
        world.table.begin_sharing(conn)
    world.conns[2].pause_reading()
    text = bytes(range(256)) * 200
    sent = 0
    while not any(conn.outbound_bytes for conn in world.ends) and sent < 400:
        sent += 1
        for at in world.share(text):
            world.ends[at].write(text)
        until(world.loop, lambda: sum(conn.outbound_bytes == 0 for conn in world.ends) >= 4)
    assert sum(conn.outbound_bytes > 0 for conn in world.ends) <= 1
    world.conns[2].resume_reading()
    until(world.loop, lambda: world.count_heard() == len(text) * sent * 5, passes=20_000)
    assert world.heard() == [text * sent] * 5


def test_more_than_a_connection_takes_at_once_is_not_shared(sharing: SharingWorld) -> None:
    world = sharing
    world.ends[1].set_water_marks(3, 1)
    for conn in world.ends:
        assert world.table.begin_sharing(conn)
    assert world.share(b"four") == [1]
    world.idle([])
    assert world.share(bytes(SHARED_BYTES_MAX + 1)) == [0, 1, 2, 3, 4]


def test_shared_sends_go_by_bytes_while_all_buffers_are_in_flight() -> None:
    loop = make_loop(RINGS[-1])
    try:
        world = SharingWorld(loop, 2)
        for conn in world.ends:
            world.table.begin_sharing(conn)
        fill_buffers(world.table)
        assert world.share(b"x") == [0, 1]
        for conn in world.ends:
            conn.write(b"x")
        until(loop, lambda: world.heard() == [b"x", b"x"])
    finally:
        loop.close()
