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
from topics.http.service import Service
from topics.tuples import make_tuple

REQUEST = struct.Struct("=6I")
"""receive, topic, off, len, flags, end: a tp_request of columns.h."""
REASONS = ("", "part", "line", "topic", "host", "field", "mixed", "room", "busy", "body")
"""Why a receive, or the end of one, was not the lane's: TP_MISS_* of scan.c, and two known here alone."""
_TOPIC, _HOST, _BUSY, _BODY = 3, 4, 8, 9
_WITHOUT_SEQS = 1
_ROOM = 8192
_RECEIVES = 2048
_DECLINED_KEPT = 1024
_PATH = b"/v0/topics/"
_ANSWER = Phase.ANSWER


class Peer(Protocol):
    """A connection of the loop."""

    state: Any
    over_high_water: bool


Row = tuple[Any, memoryview]
"""A Peer and what arrived from it."""


class Lane:
    """One server's. `take` is handed the receives of a pass before anybody else."""

    def __init__(self, service: Service, secret: int) -> None:
        config = service.config
        self._service = service
        self._columns = WriteColumns(config)
        scanner = lib.tp_scanner_new(config.max_head_bytes, config.max_head_fields, config.max_body_bytes, secret)
        if scanner == ffi.NULL:
            raise MemoryError("no memory for the lane's tables")
        self._scanner = ffi.gc(scanner, lib.tp_scanner_free)
        self._names: list[str] = []
        self._names_json: list[bytes] = []
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
        self._ends = ffi.new("uint64_t[]", _RECEIVES)
        self._upto = ffi.new("uint32_t[]", _RECEIVES)
        self._upto_bytes: Any = ffi.buffer(self._upto)
        self._reasons = ffi.new("uint8_t[]", _RECEIVES)
        self._answers = ffi.new("char[]", 1 << 18)
        self._spans = ffi.new("uint32_t[]", 2 * _RECEIVES)
        self._span_count = ffi.new("uint32_t *")
        self.taken = 0
        """Requests."""
        self.missed = [0] * len(REASONS)
        """Receives, or ends of some, by reason."""

    # --- a pass ------------------------------------------------------------------------------------------------------
    def take(self, batch: list[Row]) -> list[Row]:
        """Takes the plain requests of a pass; returns the rows that the general path is to be given, in order."""
        service = self._service
        if service.gate is not None or service.closing or service.engine.refuses_writes:
            return batch
        started_ns = service.now_ns()
        candidates, others = self._candidates(batch)
        if not candidates:
            return batch
        count = len(candidates)
        views = [row[1] for row in candidates]
        buffer = b"".join(views)
        end = 0
        ends = []
        for view in views:
            end += len(view)
            ends.append(end)
        self._ends[0:count] = ends
        groups = lib.tp_scan_requests(
            self._scanner, buffer, self._ends, count, self._requests, self._groups, _ROOM, self._reasons
        )
        if not groups:
            return self._all_missed(batch, candidates)
        self._drop_unusual_topics(groups)
        self._upto_bytes[0 : 4 * count] = bytes(4 * count)
        self._columns.scan(buffer, self._requests, self._groups, groups, self._counts, self._upto)
        missed = self._claim(candidates, ends)
        parsed_ns = service.now_ns()
        states = [row[0].state for row in candidates]
        self._append(buffer, groups, states, started_ns)
        if service.sampling:
            service.sampling = False
            service.parse.add(parsed_ns - started_ns)
            service.append.add(service.now_ns() - parsed_ns)
        if not missed:
            return others
        if not others:
            return missed
        left = {id(row) for row in missed}
        left.update(map(id, others))
        return [row for row in batch if id(row) in left]

    def _candidates(self, batch: list[Row]) -> tuple[list[Row], list[Row]]:
        """Rows of connections that are between requests, the first of each; and all others."""
        candidates = []
        others = []
        seen = set()
        for row in batch[:_RECEIVES]:
            conn = row[0]
            state = conn.state
            if type(state) is FirstBytes and conn not in seen:
                state = state.begin_http1(row[1])
                if type(state) is FirstBytes:
                    seen.add(conn)  # what follows in this pass are not its first bytes
            if type(state) is HttpConnection and state.idle and not conn.over_high_water and conn not in seen:
                candidates.append(row)
                seen.add(conn)
            else:
                others.append(row)
        others += batch[_RECEIVES:]
        self.missed[_BUSY] += len(others)
        return candidates, others

    def _all_missed(self, batch: list[Row], candidates: list[Row]) -> list[Row]:
        missed = self.missed
        for reason in ffi.unpack(self._reasons, len(candidates)):
            missed[reason] += 1
        return batch

    def _drop_unusual_topics(self, groups: int) -> None:
        """A topic that needs more than columns (a cap that refuses, expiry) is not plain; it may be learnt again."""
        takes = self._service.engine.takes_plain
        rows = self._group_bytes
        for at, (number, *_rest) in enumerate(GROUP.iter_unpack(rows[0 : groups * GROUP.size])):
            if not takes(self._names[number]):
                lib.tp_forget_topic(self._scanner, number)
                GROUP.pack_into(rows, at * GROUP.size, number, 0, 0, 0, 0, 0, 0)

    def _claim(self, candidates: list[Row], ends: list[int]) -> list[Row]:
        """The connections something was taken of now wait for its answer, and keep what comes behind it."""
        count = len(candidates)
        missed = []
        start = 0
        for row, reason, upto, end in zip(
            candidates, ffi.unpack(self._reasons, count), ffi.unpack(self._upto, count), ends, strict=True
        ):
            if upto == end:
                row[0].state.phase = _ANSWER
            elif not upto:
                self.missed[reason or _BODY] += 1
                missed.append(row)
            else:
                self.missed[reason or _BODY] += 1
                state = row[0].state
                state.phase = _ANSWER
                state.receive(row[1][upto - start :])
            start = end
        return missed

    def _append(self, buffer: bytes, groups: int, states: list[HttpConnection], started_ns: int) -> None:
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
                self._request_bytes[first * REQUEST.size : (first + count) * REQUEST.size],
                self._count_bytes[4 * first : 4 * (first + count)],
                states,
                taken,
                started_ns,
            )
            self.taken += taken
            service.requests_total += taken
            service.in_progress += taken
            fields = (name, self._columns.rows(buffer, row, rows, size), None, None, None, None, True, None)
            engine.append(make_tuple(AppendRequest, fields), group.done)

    # --- answers -----------------------------------------------------------------------------------------------------
    def answer(self, group: _Group, result: AppendResult) -> None:
        """Renders a group's answers in one call and hands each connection its own."""
        service = self._service
        total = milliseconds(service.now_ns() - group.started_ns)
        times = (total, milliseconds(result.append_ns), milliseconds(result.sync_ns))
        after = _CLOSING % times
        head = service.writer.json_head
        opening = b'{"topic":%b,"first_seq":' % group.topic
        count = len(group.counts) // 4
        requests = ffi.from_buffer("unsigned char[]", group.requests)
        counts = ffi.from_buffer("uint32_t[]", group.counts)
        if 2 * count > len(self._spans):
            self._spans = ffi.new("uint32_t[]", 4 * count)
        while True:
            written = lib.tp_render_answers(
                self._answers,
                len(self._answers),
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
            if written >= 0:
                break
            self._answers = ffi.new("char[]", -written)
        answers = ffi.unpack(self._answers, written)
        spans = iter(ffi.unpack(self._spans, 2 * self._span_count[0]))
        states = group.states
        at = 0
        for receive, size in zip(spans, spans, strict=True):
            states[receive].answer(answers[at : at + size])
            at += size

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
        kept = service.planner.kept
        for _conn, view in rows:
            data = bytes(view[:1024])
            plan = kept.get(data[: data.find(HEAD_END) + 4])
            if plan is None or not plan.plain or not plan.usual_body:
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
                self._learn_topic(plan.name, name, plan.name_json)

    def _learn_topic(self, name: str, raw: bytes, name_json: bytes) -> None:
        if not self._service.engine.takes_plain(name):
            self._declined.add(raw)
            return
        number = lib.tp_learn_topic(self._scanner, raw, len(raw))
        if number < 0:
            lib.tp_forget_topics(self._scanner)
            self._names.clear()
            self._names_json.clear()
        elif number == len(self._names):
            self._names.append(name)
            self._names_json.append(name_json)


_CLOSING = b',"created":false,"deduped":false,"performance":{"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b}}'


class _Group:
    """The requests of one topic and pass, on their way through one append."""

    __slots__ = ("counts", "lane", "requests", "started_ns", "states", "taken", "topic")

    def __init__(  # noqa: PLR0917 - one a topic and pass
        self,
        lane: Lane,
        topic: bytes,
        requests: bytes,
        counts: bytes,
        states: list[HttpConnection],
        taken: int,
        started_ns: int,
    ) -> None:
        self.lane = lane
        self.topic = topic
        """Its name as JSON."""
        self.requests = requests
        self.counts = counts
        self.states = states
        """By number of the receive."""
        self.taken = taken
        self.started_ns = started_ns

    def done(self, result: AppendResult | TopicsError) -> None:
        """The append's outcome. Refusals and the last answers of connections are worded one by one."""
        service = self.lane._service
        service.in_progress -= self.taken
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
        requests = Counter(receive for receive, _count, _flags in self._taken())
        for receive, count in requests.items():
            self.states[receive].answer(answer if last else answer * count, last=last)

    def _close_with(self, result: AppendResult) -> None:
        """The server is going away: every answer is its connection's last, and what is behind it gets none."""
        service = self.lane._service
        performance = b'"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b' % (
            milliseconds(service.now_ns() - self.started_ns),
            milliseconds(result.append_ns),
            milliseconds(result.sync_ns),
        )
        seq = result.first_seq
        for receive, count, flags in self._taken():
            body = records.write_json(self.topic, seq, count, not flags & _WITHOUT_SEQS, performance)
            self.states[receive].answer(service.writer.render(200, body, connection=b"close"), last=True)
            seq += count

    def _taken(self) -> list[tuple[int, int, int]]:
        """receive, records, flags of each request, in order."""
        counts = struct.unpack(f"={len(self.counts) // 4}I", self.counts)
        rows = zip(REQUEST.iter_unpack(self.requests), counts, strict=True)
        return [(row[0], count, row[4]) for row, count in rows if count]
