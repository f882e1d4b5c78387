"""The lane: plain writes of a whole pass handled as columns. Everything else is the general path's (connection.py).

    receives -> scan.c: plain requests, grouped by topic -> records.c: their bodies as rows
        -> one append a topic -> committed: one call renders the answers of a group

The lane has no meaning of its own: it answers "plain, and here are its columns" or "not mine", and then the bytes go to
the general path untouched, which words every error. A connection's requests are answered in order because the lane
takes only from connections that are between requests, and what comes behind waits there (`HttpConnection.take`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Protocol

from topics.engine.durations import milliseconds
from topics.engine.results import AppendRequest, AppendResult
from topics.engine.write_columns import GROUP, WriteColumns
from topics.errors import TopicsError, as_request_error
from topics.http._scan import ffi, lib
from topics.http.connection import HttpConnection, Phase
from topics.http.errors import envelope, extra_headers, status_of
from topics.http.first_bytes import FirstBytes
from topics.http.handlers import records
from topics.http.head import HEAD_END
from topics.http.keyring import Keyring
from topics.http.principal import Principal
from topics.http.service import Service
from topics.tuples import make_tuple

REQUEST = struct.Struct("=6I")
"""receive, topic, off, len, flags, end: a tp_request of columns.h."""
REASONS = ("", "part", "line", "topic", "host", "field", "mixed", "room", "busy", "body")
"""Why a receive, or the end of one, was not the lane's: TP_MISS_* of scan.c, and two known here alone."""
_TOPIC, _HOST, _BUSY, _BODY = 3, 4, 8, 9
_WITHOUT_SEQS = 1
_ROOM = 8192
_RECEIVES = 4096
_DECLINED_KEPT = 1024
_PATH = b"/v0/topics/"
_ANSWER = Phase.ANSWER


class Peer(Protocol):
    """A connection of the loop."""

    state: Any
    owned: bool
    expected: int
    recv_data: int


Row = tuple[Any, memoryview]
"""A Peer and what arrived from it."""


class Columns(Protocol):
    """Connections as columns: `topics.loop.links.Links`."""

    count: int

    def rows(self) -> tuple[int, bytearray | memoryview, Any, Any, Any]: ...

    def view(self, row: int) -> memoryview: ...

    def own(self, conn: Any) -> None: ...

    def leave(self, conn: Any) -> bool: ...

    def since(self, conn: Any, tick: int) -> int: ...

    def connection(self, ref: int) -> Any: ...

    def room(self, size: int) -> tuple[int, Any]: ...

    def answer(  # noqa: PLR0917
        self, number: int, data: Any, refs: Any, spans: Any, count: int, tick: int
    ) -> list[tuple[int, bytes]]: ...


class Lane:
    """One server's. `take` is asked before anybody else when something was received in a pass."""

    def __init__(self, service: Service, links: Columns, keyring: Keyring, secret: int) -> None:
        config = service.config
        self._service = service
        self._links = links
        self._columns = WriteColumns(config)
        scanner = lib.tp_scanner_new(config.max_head_bytes, config.max_head_fields, config.max_body_bytes, secret)
        if scanner == ffi.NULL:
            raise MemoryError("no memory for the lane's tables")
        self._scanner = ffi.gc(scanner, lib.tp_scanner_free)
        self._names: list[str] = []
        self._names_json: list[bytes] = []
        self._principals: list[Principal | None] = []
        """Whose requests these are, where that is counted."""
        self.change_keys(keyring)
        self._hosts: set[bytes] = set()
        self._declined: set[bytes] = set()
        """Names that were not learnt, of this tick."""
        self._declined_tick = 0
        self._requests = ffi.new("unsigned char[]", REQUEST.size * _ROOM)
        self._groups = ffi.new("unsigned char[]", GROUP.size * _ROOM)
        self._counts = ffi.new("uint32_t[]", _ROOM)
        self._request_bytes: Any = ffi.buffer(self._requests)
        self._group_bytes: Any = ffi.buffer(self._groups)
        self._count_bytes: Any = ffi.buffer(self._counts)
        self._upto = ffi.new("uint32_t[]", _RECEIVES)
        self._upto_bytes: Any = ffi.buffer(self._upto)
        self._reasons = ffi.new("uint8_t[]", _RECEIVES)
        self._missed = ffi.new("uint32_t[]", _RECEIVES)
        self._spans = ffi.new("uint32_t[]", 2 * _ROOM)
        self._span_count = ffi.new("uint32_t *")
        self.taken = 0
        """Requests."""
        self.missed = [0] * len(REASONS)
        """Receives, or ends of some, by reason."""

    # --- a pass ------------------------------------------------------------------------------------------------------
    def take(self, batch: list[Row]) -> list[Row]:
        """Takes the plain requests of a pass, those of the table's rows and of `batch`.

        Returns the rows that the general path is to be given, in order.
        """
        service, links = self._service, self._links
        left: list[Row] = []
        if service.gate is not None or service.closing or service.engine.refuses_writes:
            refs: Any = links.rows()[2] if links.count else ()
            for row in range(links.count):
                self._give_back(refs[row], links.view(row), left)
            return left + self._released(batch) if left else self._released(batch)
        if links.count:
            count, buffer, refs, starts, ends = links.rows()
            self._scan(buffer, count, refs, starts, ends, links.view, left)
        if batch:
            others = self._scan_new(batch, left)
            return left + others if left else others
        return left

    def connections(self) -> list[Any]:
        """Those of the table that something was received from in this pass."""
        links = self._links
        if not links.count:
            return []
        refs = links.rows()[2]
        found = (links.connection(refs[row]) for row in range(links.count))
        return [conn for conn in found if conn is not None]

    def _released(self, batch: list[Row]) -> list[Row]:
        for conn, _view in batch:
            if conn.owned:
                self.leave(conn)
        return batch

    def _scan_new(self, batch: list[Row], left: list[Row]) -> list[Row]:
        """Receives of connections that are not columns yet, those between requests; returns the others."""
        links = self._links
        fresh: list[Row] = []
        others = []
        seen = {row[0] for row in left}  # with a receive of this pass already: what comes behind it is not looked at
        for row in batch:
            conn = row[0]
            state = conn.state
            if type(state) is FirstBytes and conn not in seen:
                state = state.begin_http1(row[1])
                if type(state) is FirstBytes:
                    seen.add(conn)  # what follows in this pass are not its first bytes
            if conn.owned and conn not in seen:
                self.leave(conn)
                self.missed[_BUSY] += 1
                others.append(row)
            elif (
                conn.expected == 0
                and conn not in seen
                and type(state) is HttpConnection
                and state.idle
                and conn.recv_data
                and len(fresh) < _RECEIVES
            ):
                links.own(conn)
                fresh.append(row)
                seen.add(conn)
            else:
                self.missed[_BUSY] += 1
                others.append(row)
        if fresh:
            views = [row[1] for row in fresh]
            ends = list(accumulate(map(len, views)))
            refs = ffi.new("uint64_t[]", [row[0].send_data >> 4 for row in fresh])
            starts_column = ffi.new("uint64_t[]", [0, *ends[:-1]])
            ends_column = ffi.new("uint64_t[]", ends)
            self._scan(bytearray().join(views), len(fresh), refs, starts_column, ends_column, views.__getitem__, left)
            for conn, _view in others:
                if conn.owned:
                    self.leave(conn)
        return others

    def _scan(  # noqa: PLR0917 - columns
        self,
        buffer: bytearray | memoryview,
        count: int,
        refs: Any,
        starts: Any,
        ends: Any,
        view: Callable[[int], memoryview],
        left: list[Row],
    ) -> None:
        """Takes what is plain of these receives; what is not goes to `left`."""
        service = self._service
        started_ns = service.now_ns()
        while count > _RECEIVES:
            count -= 1
            self._give_back(refs[count], view(count), left)
        data = ffi.from_buffer("char[]", buffer)
        groups = lib.tp_scan_requests(
            self._scanner, data, starts, ends, count, self._requests, self._groups, _ROOM, self._reasons
        )
        self._upto_bytes[0 : 4 * count] = bytes(4 * count)
        if groups:
            self._drop_unusual_topics(groups)
            self._columns.scan(
                ffi.cast("unsigned char *", data), self._requests, self._groups, groups, self._counts, self._upto
            )
        missed = lib.tp_missed(ends, self._upto, count, self._missed)
        for at in range(missed):
            row = self._missed[at]
            self.missed[self._reasons[row] or _BODY] += 1
            upto = self._upto[row]
            rest = view(row)[upto - starts[row] :] if upto else view(row)
            self._give_back(refs[row], rest, left, answered=not upto)
        if not groups:
            return
        parsed_ns = service.now_ns()
        self._append(buffer, groups, bytes(ffi.buffer(refs, 8 * count)), started_ns)
        if service.sampling:
            service.sampling = False
            service.parse.add(parsed_ns - started_ns)
            service.append.add(service.now_ns() - parsed_ns)

    def _give_back(self, ref: int, view: memoryview, left: list[Row], *, answered: bool = True) -> None:
        """A receive, or its end, goes to the general path; not `answered`: what was taken before it is waited for."""
        conn = self._links.connection(ref)
        if conn is None or not conn.owned:
            return  # closed since
        self._links.leave(conn)
        if not answered:
            conn.state.phase = _ANSWER
        left.append((conn, view))

    def leave(self, conn: Any) -> None:
        """A connection of the table that something unusual happens to is the general path's again."""
        if self._links.leave(conn):
            conn.state.phase = _ANSWER

    def refresh(self, conn: Any) -> None:
        """Tells an owned connection's state since when it waits."""
        service = self._service
        conn.state.since = max(conn.state.since, self._links.since(conn, service.tick))

    def _drop_unusual_topics(self, groups: int) -> None:
        """A topic that needs more than columns (a cap that refuses, expiry) is not plain; it may be learnt again.

        Neither are requests that might be more than their key may have in flight.
        """
        takes = self._service.engine.takes_plain
        rows = self._group_bytes
        coming: dict[Principal, int] = {}
        for at, (number, _first, count, *_rest) in enumerate(GROUP.iter_unpack(rows[0 : groups * GROUP.size])):
            principal = self._principals[number]
            if principal is not None:
                coming[principal] = coming.get(principal, principal.in_flight) + count
                if coming[principal] > principal.in_flight_max:
                    GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)
                    continue
            if not takes(self._names[number]):
                lib.tp_forget_topic(self._scanner, number)
                GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)

    def _append(self, buffer: bytearray | memoryview, groups: int, refs: bytes, started_ns: int) -> None:
        service = self._service
        engine = service.engine
        for number, first, count, taken, row, rows, size in GROUP.iter_unpack(
            self._group_bytes[0 : groups * GROUP.size]
        ):
            if not taken:
                continue
            name = self._names[number]
            group = _Group(
                self,
                self._names_json[number],
                self._principals[number],
                self._request_bytes[first * REQUEST.size : (first + count) * REQUEST.size],
                self._count_bytes[4 * first : 4 * (first + count)],
                refs,
                taken,
                started_ns,
            )
            self.taken += taken
            service.requests_total += taken
            service.in_progress += taken
            if group.principal is not None:
                group.principal.in_flight += taken
            if not engine.takes_plain(name):
                buffer = bytearray(buffer)  # an answer just given had the topic changed: the append may have to wait
            fields = (name, self._columns.rows(buffer, row, rows, size), None, None, None, None, True, None)
            engine.append(make_tuple(AppendRequest, fields), group.done)

    # --- answers -----------------------------------------------------------------------------------------------------
    def answer(self, group: _Group, result: AppendResult) -> None:
        """Renders a group's answers in one call and queues them in one."""
        service, links = self._service, self._links
        total = milliseconds(service.now_ns() - group.started_ns)
        after = _CLOSING % (total, milliseconds(result.append_ns), milliseconds(result.sync_ns))
        head = service.writer.json_head
        opening = b'{"topic":%b,"first_seq":' % group.topic
        count = len(group.counts) // 4
        requests = ffi.from_buffer("unsigned char[]", group.requests)
        counts = ffi.from_buffer("uint32_t[]", group.counts)
        room = group.taken * (len(head) + len(opening) + len(after) + 256) + 21 * result.count
        number, memory = links.room(room)
        written = lib.tp_render_answers(
            memory,
            room,
            requests,
            counts,
            count,
            result.first_seq,
            head,
            len(head),
            opening,
            len(opening),
            after,
            len(after),
            self._spans,
            self._span_count,
        )
        assert written > 0, "answers larger than the room for them"
        refs = ffi.from_buffer("uint64_t[]", group.refs)
        for ref, data in links.answer(number, memory, refs, self._spans, self._span_count[0], service.tick):
            self.answer_one(ref, data)

    def answer_one(self, ref: int, data: bytes, *, last: bool = False) -> None:
        """By hand: to a connection that is not a column any more, or will not be."""
        conn = self._links.connection(ref)
        if conn is not None:
            if conn.owned:
                self.leave(conn)
            conn.state.answer(data, last=last)

    # --- learning ----------------------------------------------------------------------------------------------------
    def learn(self, rows: list[Row]) -> None:
        """What the general path has just answered and the lane did not know: names of plain topics, Host values.

        rows: those `take` gave back, handled since.
        """
        service = self._service
        if service.gate is not None:
            return
        if self._declined_tick != service.tick or len(self._declined) > _DECLINED_KEPT:
            self._declined.clear()
            self._declined_tick = service.tick
        known = service.planner.known
        for _conn, view in rows:
            data = bytes(view[:1024])
            plan = known(data[: data.find(HEAD_END) + 4])
            if plan is None or not plan.usual_body:
                continue
            if plan.foreign or plan.unauthorized or plan.forbidden or plan.missing:
                continue
            route, request = plan.route, plan.request
            if route is None or route.handler is not records.write or request.authority:
                continue
            host = request.headers.get(b"host", b"")
            if host and host not in self._hosts and lib.tp_learn_host(self._scanner, host, len(host)) == 0:
                self._hosts.add(host)
            path = request.framing.target.partition(b"?")[0]
            name = plan.name.encode()
            if path == _PATH + name and name not in self._declined:
                self._learn_topic(plan.name, name, plan.name_json, plan.counted)

    def change_keys(self, keyring: Keyring) -> None:
        """Other keys are valid from now on; what was learnt of topics was learnt with the old ones."""
        digests = keyring.digests
        if digests and lib.tp_learn_keys(self._scanner, digests, len(digests) // 32) < 0:
            raise MemoryError("no memory for the digests of keys")
        self._forget_topics()

    def _forget_topics(self) -> None:
        lib.tp_forget_topics(self._scanner)
        self._names.clear()
        self._names_json.clear()
        self._principals.clear()

    def _learn_topic(self, name: str, raw: bytes, name_json: bytes, principal: Principal | None) -> None:
        if not self._service.engine.takes_plain(name):
            self._declined.add(raw)
            return
        key = lib.TP_NO_KEY if principal is None or principal.key_id is None else principal.key_id
        number = lib.tp_learn_topic(self._scanner, raw, len(raw), key)
        if number < 0:
            self._forget_topics()
        elif number == len(self._names):
            self._names.append(name)
            self._names_json.append(name_json)
            self._principals.append(principal)


_CLOSING = b',"created":false,"deduped":false,"performance":{"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b}}'


class _Group:
    """The requests of one topic and pass, on their way through one append."""

    __slots__ = ("counts", "lane", "principal", "refs", "requests", "started_ns", "taken", "topic")

    def __init__(  # noqa: PLR0917 - one a topic and pass
        self,
        lane: Lane,
        topic: bytes,
        principal: Principal | None,
        requests: bytes,
        counts: bytes,
        refs: bytes,
        taken: int,
        started_ns: int,
    ) -> None:
        self.lane = lane
        self.topic = topic
        """Its name as JSON."""
        self.principal = principal
        self.requests = requests
        self.counts = counts
        self.refs = refs
        """Names of connections, by number of the receive."""
        self.taken = taken
        self.started_ns = started_ns

    def done(self, result: AppendResult | TopicsError) -> None:
        """The append's outcome. Refusals and the last answers of connections are worded one by one."""
        service = self.lane._service
        service.in_progress -= self.taken
        if self.principal is not None:
            self.principal.in_flight -= self.taken
        if isinstance(result, TopicsError):
            self._fail(result)
        elif service.closing:
            self._close_with(result)
        else:
            self.lane.answer(self, result)

    def _fail(self, error: TopicsError) -> None:
        """Each request gets the error, as the general path words it."""
        service = self.lane._service
        service.refused_total += self.taken
        refusal = as_request_error(error)
        status, body, headers = status_of(refusal), envelope(refusal), extra_headers(refusal)
        last = service.closing
        answer = service.writer.render(status, body, headers=headers, connection=b"close" if last else b"")
        requests = Counter(ref for ref, _count, _flags in self._taken())
        for ref, count in requests.items():
            self.lane.answer_one(ref, answer if last else answer * count, last=last)

    def _close_with(self, result: AppendResult) -> None:
        """The server is going away: every answer is its connection's last, and what is behind it gets none."""
        service = self.lane._service
        performance = b'"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b' % (
            milliseconds(service.now_ns() - self.started_ns),
            milliseconds(result.append_ns),
            milliseconds(result.sync_ns),
        )
        seq = result.first_seq
        for ref, count, flags in self._taken():
            body = records.write_json(self.topic, seq, count, not flags & _WITHOUT_SEQS, performance)
            self.lane.answer_one(ref, service.writer.render(200, body, connection=b"close"), last=True)
            seq += count

    def _taken(self) -> list[tuple[int, int, int]]:
        """ref, records, flags of each request, in order."""
        refs = struct.unpack(f"={len(self.refs) // 8}Q", self.refs)
        counts = struct.unpack(f"={len(self.counts) // 4}I", self.counts)
        rows = zip(REQUEST.iter_unpack(self.requests), counts, strict=True)
        return [(refs[row[0]], count, row[4]) for row, count in rows if count]
