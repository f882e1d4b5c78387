"""The lane: plain requests of a whole pass, handled as columns.

    receives -> scan.c: plain requests by topic -> write_scan.c: bodies of writes as rows
        -> one append per topic -> committed: one call renders the answers of a group
    reads -> one call to the engine for all -> one call renders their answers

All other requests take the general path (http1_connection.py). The lane adds no meaning: it either
finds that a request is plain, and returns its columns, or leaves the bytes untouched to the general
path, which words every error. The requests of a connection are answered in order, because the lane
only takes from connections that are between requests, and later bytes wait in the connection
(`HttpConnection.receive`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

from topics.engine.bodies.write_columns import GROUP, KEYED, REQUEST, WriteColumns
from topics.engine.values import read_answer, write_answer
from topics.http.access.keyring import Keyring
from topics.http.access.principal import Principal
from topics.http.handlers import record_endpoints
from topics.http.http1.http1_connection import HttpConnection
from topics.http.lane._scan import ffi, lib
from topics.http.lane.far_writes import FarWrites
from topics.http.lane.group_answers import Taken
from topics.http.lane.lane_answers import AROUND_READ_BYTES, Answers, LaneConnections
from topics.http.lane.lane_topics import LaneTopics
from topics.http.lane.plain_writes import LaneTables, PlainWrites
from topics.http.lane.scan_table import ScanTable
from topics.http.lane.single import Single
from topics.http.plan.in_flight import NOTHING_COMES, Coming
from topics.http.plan.service import Service
from topics.http.protocol_choice import FirstBytes
from topics.http.wire.preference import APPLIED

REASONS = {
    lib.TP_MISS_PART: "part",
    lib.TP_MISS_LINE: "line",
    lib.TP_MISS_TOPIC: "topic",
    lib.TP_MISS_HOST: "host",
    lib.TP_MISS_FIELD: "field",
    lib.TP_MISS_MIXED: "mixed",
    lib.TP_MISS_ROOM: "room",
    lib.TP_MISS_BUSY: "busy",
    lib.TP_MISS_BODY: "body",
    lib.TP_MISS_LONE: "lone",
}
"""Names of the reasons why the lane did not take a receive, or the end of one."""
_ROOM = 8192
_RECEIVES = 4096
_LEAST = 2
_NEVER = 1 << 62
_FEW_RECORDS_MAX = 16
"""Records of a write whose answer is never compressed.

It has fewer bytes than `gzip_min_bytes` may be set to.
"""
_DECLINED_KEPT = 1024
_DECLINED_MAX = 16
"""Tries per second to learn a name."""
_TEXTS = write_answer.LANE_TEXTS + read_answer.LANE_TEXTS + APPLIED + b"\0"
_PATH = b"/v0/topics/"
_READ_SUFFIX = b"/diff"


Row = tuple[Any, memoryview]
"""A connection of the loop, and the bytes that arrived from it."""


class Lane:
    """The lane of one server. `take` sees all received bytes of a pass first."""

    def __init__(self, service: Service, table: LaneConnections, keyring: Keyring, secret: int) -> None:
        config = service.config
        self._service = service
        self._table = table
        self._columns = columns = WriteColumns(config, _FEW_RECORDS_MAX)
        scanner = lib.tp_scanner_new(
            config.max_head_bytes,
            config.max_head_fields,
            config.max_body_bytes,
            config.max_command_bytes,
            config.max_idempotency_key_bytes,
            service.access_log is not None,
            secret,
            _TEXTS,
            len(_TEXTS),
        )
        if scanner == ffi.NULL:
            raise MemoryError("no memory for the lane's tables")
        self._scanned = scanned = ScanTable(ffi.gc(scanner, lib.tp_scanner_free), _RECEIVES, _ROOM)
        self.answers = Answers(service, table, scanned, _ROOM)
        self._topics = LaneTopics(scanned)
        self.change_keys(keyring)
        self._hosts: list[bytes] = []
        """Host values that the scanner knows, by their places."""
        self._declined: dict[bytes, int] = {}
        """Number of refusals to learn a name, in this tick."""
        self._declined_tick = 0
        self._reads = ffi.new("struct tp_read **"), ffi.new("uint32_t **"), ffi.new("uint32_t *")
        self._long_read_bytes = max(config.gzip_min_bytes - AROUND_READ_BYTES, 0) if config.gzip_level else 1 << 62
        """Bytes of elements from which on an answer may be compressed.

        A read of a client that accepts gzip is then not plain.
        """
        self._missed = ffi.new("uint32_t[]", _RECEIVES)
        self.is_settled = False
        """Whether the receives that the last `take` has taken were all plain reads, whose answers
        it has queued.
        """
        self.least = _LEAST if service.access_log is None else _NEVER
        """Receives in a pass from which on connections become columns; tests set 1.

        With an access log none do: a line for each request costs more than columns save.
        """
        self._reads_taken = 0
        """Reads taken as columns."""
        self.missed = [0] * (max(REASONS) + 1)
        """Receives not taken, or not to their ends, by reason."""
        self.tables = LaneTables(scanned, columns)
        self._writes = writes = PlainWrites(self.answers, self.tables)
        self._far = FarWrites(self.answers, self._topics, scanned)
        append = partial(writes.append, self._topics)
        self.single = Single(self.answers, self._topics, scanned, columns, self._long_read_bytes, append, self._far)

    @property
    def taken(self) -> int:
        """Requests taken."""
        return self._reads_taken + self._writes.taken + self._far.taken + self.single.taken

    def count_answers(self) -> None:
        """Count the answers so far by route and status, those of lone requests among them."""
        self.single.count_answers()

    # --- a pass ------------------------------------------------------------------------------------------------------
    def take(self, batch: list[Row]) -> list[Row]:
        """Take the plain requests of a pass, from the table's rows and from `batch`.

        Return the rows for the general path, in order.
        """
        service, table = self._service, self._table
        left: list[Row] = []
        self.is_settled = False
        if service.gate is not None or service.closing or service.engine.refuses_writes:
            refs: Any = table.rows()[2] if table.count else ()
            for row in range(table.count):
                self._give_back(refs[row], table.view(row), left)
            return left + self._released(batch) if left else self._released(batch)
        self.is_settled = True
        if table.count:
            count, buffer, refs, starts, ends = table.rows()
            self._scan(buffer, count, refs, starts, ends, table.view, left)
            if count < self.least and not batch and service.has_few_senders():
                # From its next request on it is answered by `Single`.
                conn = table.connection(refs[0])
                if conn is not None and conn.owned:
                    self.leave(conn)
        if batch:
            if len(batch) + table.count < self.least and not batch[0][0].owned:
                self.missed[self.single.reason if len(batch) == 1 else lib.TP_MISS_LONE] += len(batch)
                return batch
            others = self._scan_new(batch, left)
            return left + others if left else others
        return left

    def connections(self) -> list[Any]:
        """Return the connections of the table that bytes were received from in this pass."""
        table = self._table
        if not table.count:
            return []
        refs = table.rows()[2]
        found = (table.connection(refs[row]) for row in range(table.count))
        return [conn for conn in found if conn is not None]

    def _released(self, batch: list[Row]) -> list[Row]:
        for conn, _view in batch:
            if conn.owned:
                self.leave(conn)
        return batch

    def _scan_new(self, batch: list[Row], left: list[Row]) -> list[Row]:
        """Make columns of connections between requests, and take their receives; return others."""
        table = self._table
        fresh: list[Row] = []
        others = []
        # These have a receive of this pass already; later ones must not overtake it.
        seen = {row[0] for row in left}
        for row in batch:
            conn = row[0]
            state = conn.state
            if type(state) is FirstBytes and conn not in seen:
                state = state.begin_http1(row[1])
                if type(state) is FirstBytes:
                    seen.add(conn)  # later bytes of this pass are not its first ones
            if conn.owned and conn not in seen:
                self.leave(conn)
                self.missed[lib.TP_MISS_BUSY] += 1
                others.append(row)
                seen.add(conn)  # otherwise the next receive of this pass would overtake this one
            elif (
                conn.expected == 0
                and conn not in seen
                and type(state) is HttpConnection
                and state.idle
                and conn.recv_data
                and len(fresh) < _RECEIVES
            ):
                table.own(conn)
                fresh.append(row)
                seen.add(conn)
            else:
                self.missed[lib.TP_MISS_BUSY] += 1
                others.append(row)
                seen.add(conn)
        if fresh:
            views = [row[1] for row in fresh]
            ends = list(accumulate(map(len, views)))
            refs = ffi.new("uint64_t[]", [row[0].ref for row in fresh])
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
        """Take the plain requests of these receives; add the rest to `left`."""
        service = self._service
        started_ns = service.now_ns()
        while count > _RECEIVES:
            count -= 1
            self._give_back(refs[count], view(count), left)
        data = ffi.from_buffer("char[]", buffer)
        scanned = self._scanned
        groups = scanned.scan(data, starts, ends, count)
        scanned.upto_bytes[0 : 4 * count] = bytes(4 * count)
        requests, coming = 0, NOTHING_COMES
        if groups and self._topics.fars:
            groups = self._far.take(buffer, groups, refs)
            self.is_settled = False
        if groups:
            last = scanned.groups[groups - 1]
            requests = last.first + last.count
            coming = self._drop_unusual_topics(buffer, groups)
            self._columns.scan(
                ffi.cast("unsigned char *", data),
                scanned.requests,
                scanned.groups,
                groups,
                scanned.counts,
                scanned.upto,
            )
        reads = self._read(refs, coming, started_ns)
        missed = lib.tp_missed(ends, scanned.upto, count, self._missed)
        for at in range(missed):
            row = self._missed[at]
            self.missed[scanned.reasons[row] or lib.TP_MISS_BODY] += 1
            upto = scanned.upto[row]
            rest = view(row)[upto - starts[row] :] if upto else view(row)
            self._give_back(refs[row], rest, left, answered=not upto)
        if reads is None or not self.answers.send(*reads) or missed or groups:
            self.is_settled = False
        if not groups:
            return
        parsed_ns = service.now_ns()
        columns = Taken(
            scanned.request_bytes[0 : requests * REQUEST.size],
            scanned.count_bytes[0 : requests * 4],
            bytes(ffi.buffer(refs, 8 * count)),
            started_ns,
        )
        self._writes.append(self._topics, buffer, groups, columns)
        if service.sampling:
            service.sampling = False
            service.parse.add(parsed_ns - started_ns)
            service.append.add(service.now_ns() - parsed_ns)

    def _read(self, refs: Any, coming: Coming, started_ns: int) -> tuple[int, Any, int] | None:
        """Take the reads found by the scan. Return the arguments of `Answers.send`, or None.

        Their answers are rendered by then. coming: the writes of this pass, by principal.
        """
        rows, numbers, topic_count = self._reads
        count = lib.tp_scanned_reads(self._scanned.scanner, rows, numbers, topic_count)
        if not count:
            return None
        service = self._service
        names: list[str | None] = []
        for number in ffi.unpack(numbers[0], topic_count[0]):
            principal = self._topics.principals[number]
            full = principal is not None and coming.is_full(principal)
            names.append(None if full else self._topics.names[number])
        found = service.engine.read_plain(names, rows[0], count, self._long_read_bytes)
        if not found.taken:
            return None
        service.in_flight.answered_at_once(found.taken)
        self._reads_taken += found.taken
        return self.answers.render_reads(found, refs, started_ns)

    def _give_back(self, ref: int, view: memoryview, left: list[Row], *, answered: bool = True) -> None:
        """Pass a receive, or its end, to the general path.

        answered: no request taken before it waits for its answer.
        """
        conn = self._table.connection(ref)
        if conn is None or not conn.owned:
            return  # closed in the meantime
        self._table.leave(conn)
        if not answered:
            conn.state.taken()
        left.append((conn, view))

    def leave(self, conn: Any) -> None:
        """Return a connection of the table to the general path, because of an unusual event."""
        self.answers.leave(conn)

    def refresh(self, conn: Any) -> None:
        """Set the start of the current wait in an owned connection's state."""
        service = self._service
        conn.state.since = max(conn.state.since, self._table.since(conn, service.tick))

    def _drop_unusual_topics(self, buffer: bytearray | memoryview, groups: int) -> Coming:
        """Make the groups empty that need more than columns, and return the counts by key.

        A topic whose write may be refused or that needs expiry is forgotten, and may be learnt
        again. The requests of a key that might exceed its cap are left to the general path, and so
        are duplicates of undecided writes, which would hold the buffer.
        """
        rows = self._scanned.group_bytes
        if not self._topics.are_counted:
            numbers = self._scanned.group_topics(groups)
            if max(numbers) < KEYED:
                names = self._topics.names
                for at in self._service.engine.not_plain([names[number] for number in numbers]):
                    self._topics.forget(numbers[at])
                    GROUP.pack_into(rows, at * GROUP.size, numbers[at], 0, 0, 0, 0, 0, 0)
                return NOTHING_COMES
        takes = self._service.engine.takes_plain
        coming = Coming()
        keys: set[tuple[int, bytes]] = set()
        for at, (number, first, count, *_rest) in enumerate(GROUP.iter_unpack(rows[0 : groups * GROUP.size])):
            if number & KEYED:
                number -= KEYED
                key = self._writes.key(buffer, first)
                if (number, key) in keys or self._service.engine.key_in_flight(self._topics.names[number], key):
                    GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)
                    continue
                keys.add((number, key))
            principal = self._topics.principals[number]
            if principal is not None and not coming.admits(principal, count):
                GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)
                continue
            if not takes(self._topics.names[number]):
                self._topics.forget(number)
                GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)
        return coming

    # --- learning ----------------------------------------------------------------------------------------------------
    def learn(self) -> None:
        """Learn names of plain topics and Host values from requests that the lane did not know.

        A request may have waited for its turn, so it is learnt from once it was served.
        """
        service = self._service
        served = service.served
        if service.gate is not None:
            served.clear()
            return
        if self._declined_tick != service.tick or len(self._declined) > _DECLINED_KEPT:
            self._declined.clear()
            self._declined_tick = service.tick
        while served:
            plan = served.popleft()
            route, request = plan.route, plan.request
            if route is None or request.authority or not plan.usual_body or not plan.is_let_in:
                continue
            far = None
            if plan.core is not None:
                far = None if service.cores is None else service.cores.far_topic(plan)
                if far is None:
                    continue
            elif route.handler not in {record_endpoints.write, record_endpoints.diff}:
                continue
            host = request.headers.get(b"host", b"")
            if host and host not in self._hosts:
                self._learn_host(host)
            path = request.framing.target.partition(b"?")[0]
            reads = route.handler is record_endpoints.diff
            target = plan.name.encode() + _READ_SUFFIX if reads else plan.name.encode()
            if path == _PATH + target and self._declined.get(target, 0) < _DECLINED_MAX:
                if far is None:
                    self._learn_topic(plan.name, target, plan.name_json, plan.counted, reads=reads)
                else:
                    self._topics.learn(plan.name, target, plan.name_json, plan.counted, far)

    def _learn_host(self, host: bytes) -> None:
        place = lib.tp_learn_host(self._scanned.scanner, host, len(host))
        if place >= 0:
            self._hosts[place : place + 1] = [host]

    def change_keys(self, keyring: Keyring) -> None:
        """Replace the valid keys, and forget the topics, which were learnt with the old ones."""
        digests = keyring.digests
        if digests and lib.tp_learn_keys(self._scanned.scanner, digests, len(digests) // 32) < 0:
            raise MemoryError("no memory for the digests of keys")
        self._topics.forget_all()
        self._service.served.clear()

    def _learn_topic(
        self, name: str, raw: bytes, name_json: bytes, principal: Principal | None, *, reads: bool
    ) -> None:
        """Learn a topic. raw: the bytes of the target after `_PATH`."""
        engine = self._service.engine
        if not (engine.reads_plain(name) if reads else engine.will_take_plain(name)):
            self._declined[raw] = self._declined.get(raw, 0) + 1
            return
        self._topics.learn(name, raw, name_json, principal)
