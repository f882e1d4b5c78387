"""Plain writes to topics of other cores: asked there, and answered with what comes back.

They are found by the scan as those at home are. The owner scans their bodies, and renders whole
answers. So each is a row of a message here, and no request is an object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from topics.engine.bodies.write_columns import GROUP, KEYED, REQUEST
from topics.http.access.principal import Principal
from topics.http.lane._scan import lib
from topics.http.lane.lane_answers import Answers, applied
from topics.http.lane.lane_topics import LaneTopics
from topics.http.lane.scan_table import ScanTable
from topics.http.plan.in_flight import Coming
from topics.http.plan.service import FarName, FarTopic
from topics.http.wire.head import HEAD_END
from topics.http.wire.response import JSON

_ACCEPTS_GZIP = lib.TP_FEW_RECORDS
"""The flag of a request whose answer is compressed if it is long."""


class FarWrites:
    """Asks other cores, and answers the connections."""

    def __init__(self, answers: Answers, topics: LaneTopics, scanned: ScanTable) -> None:
        self._answers = answers
        self._service = answers.service
        self._topics = topics
        self._scanned = scanned
        self.taken = 0
        """Writes that were asked elsewhere."""

    def take(self, buffer: bytearray | memoryview, groups: int, refs: Any) -> int:
        """Ask for the groups of a scan whose topics are far, and take them out of it.

        Those that are not asked are left to the general path. refs: connections by receive. Return
        the number of the other groups, which are the first ones from here on.
        """
        packed, fars = self._scanned.group_bytes, self._topics.fars
        kept = 0
        for at in range(groups):
            number, first, count, *rest = GROUP.unpack_from(packed, at * GROUP.size)
            far = fars.get(number & ~KEYED)
            if far is None:
                GROUP.pack_into(packed, kept * GROUP.size, number, first, count, *rest)
                kept += 1
            elif not number & KEYED:
                self._ask(far, self._topics.principals[number], buffer, refs, (first, count))
        return kept

    def _ask(
        self,
        far: FarTopic,
        principal: Principal | None,
        buffer: bytearray | memoryview,
        refs: Any,
        rows: tuple[int, int],
    ) -> None:
        first, count = rows
        upto = self._scanned.upto
        packed = self._scanned.request_bytes[first * REQUEST.size : (first + count) * REQUEST.size]
        receives, _topics, starts, sizes, flags, ends, _keys, _lengths = zip(*REQUEST.iter_unpack(packed), strict=True)
        if len(set(receives)) < count:
            return  # each answer is a send of its own
        if principal is not None and not Coming().admits(principal, count):
            return
        bodies = [bytes(buffer[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
        names = [(refs[receive], flag, principal) for receive, flag in zip(receives, flags, strict=True)]
        if far.ask(flags, bodies, names, self):
            for receive, end in zip(receives, ends, strict=True):
                upto[receive] = end
            self._service.in_flight.enter(principal, count)
            self.taken += count

    def ask_single(self, conn: Any, number: int, flags: int, body: bytes) -> bool:
        """Ask at once for the only request of the pass. False: it is left to the general path."""
        principal = self._topics.principals[number]
        far = self._topics.fars[number]
        if not far.ask((flags,), (body,), ((conn.ref, flags, principal),), self, at_once=True):
            return False
        conn.state.taken()
        self._service.in_flight.enter(principal)
        self.taken += 1
        return True

    # --- answers -----------------------------------------------------------------------------------------------------
    def answer_whole(self, names: Sequence[FarName], sizes: Sequence[int], text: memoryview) -> None:
        """Send answers of HTTP/1.1, one after the other in `text`."""
        service = self._service
        if not service.closing and max(sizes) < service.compressor.min_bytes:
            if len(names) == 1:
                ref, _flags, principal = names[0]
                service.in_flight.leave(principal)
                self._answers.send_one(ref, bytes(text))
                return
            for principal, count in Counter([principal for _ref, _flags, principal in names]).items():
                service.in_flight.leave(principal, count)
            self._answers.send_whole([ref for ref, _flags, _principal in names], sizes, text)
            return
        at = 0
        for name, size in zip(names, sizes, strict=True):
            body = bytes(text[at : at + size]).partition(HEAD_END)[2]
            self.answer(name, 200, body, JSON, b"")
            at += size

    def answer(self, name: FarName, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        """Answer as the other core has: with what this one has to add."""
        if self._service.closing:
            self._service.answer_turns.answer(partial(self._answer, name, status, body, content_type, headers))
        else:
            self._answer(name, status, body, content_type, headers)

    def _answer(self, name: FarName, status: int, body: bytes, content_type: bytes, headers: bytes) -> None:
        service, (ref, flags, principal) = self._service, name
        service.in_flight.leave(principal)
        may_be_long = flags & _ACCEPTS_GZIP and status < 400 and not headers
        headers += applied(flags)
        if may_be_long and len(body) >= service.compressor.min_bytes:
            body, encoding = service.compressor.encode(body)
            headers += encoding
        last = service.closing
        data = service.writer.render(
            status, body, content_type=content_type, headers=headers, connection=b"close" if last else b""
        )
        self._answers.send_one(ref, data, last=last)

    def waits(self, name: FarName) -> bool:
        """Return whether its client waits for the answer."""
        return self._answers.connection(name[0]) is not None

    def drop(self, name: FarName) -> None:
        """End a request without an answer."""
        ref, _flags, principal = name
        self._service.in_flight.leave(principal)
        conn = self._answers.connection(ref)
        if conn is not None:
            if conn.owned:
                self._answers.leave(conn)
            conn.state.drop()
