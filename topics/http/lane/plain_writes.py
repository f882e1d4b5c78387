"""Appends plain writes that a scan has found: of many topics at once if they need only seqs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from topics.common.tuples import make_tuple
from topics.engine.bodies.write_columns import GROUP, KEYED, REQUEST, GroupColumns, WriteColumns
from topics.engine.state.append_request import AppendRequest
from topics.engine.state.idempotency import Key
from topics.http.access.principal import Principal
from topics.http.lane.group_answers import Group, GroupAnswers, Groups, Taken
from topics.http.lane.scan_table import ScanTable

_MANY = 2
"""Groups from which on they are appended together."""


class LaneTables(NamedTuple):
    """The memory for scans of one server: of heads and of bodies, each valid until the next one."""

    scanned: ScanTable
    columns: WriteColumns


class NumberedTopics(Protocol):
    """The topics that the groups of a scan have by number: see `LaneTopics`."""

    names: list[str]
    names_json: list[bytes]
    principals: list[Principal | None]
    are_counted: bool


class PlainWrites:
    """Appends the groups of a scan whose bodies are rows, for answers of one kind."""

    def __init__(self, answers: GroupAnswers, tables: LaneTables) -> None:
        self._answers = answers
        self._service = answers.service
        self._scanned, self._columns = tables
        self.taken = 0
        """Writes taken as columns."""

    def key(self, buffer: bytearray | memoryview, at: int) -> bytes:
        """Return the idempotency key of request `at`."""
        start, length = REQUEST.unpack_from(self._scanned.request_bytes, at * REQUEST.size)[6:8]
        return bytes(buffer[start : start + length])

    def append(self, topics: NumberedTopics, buffer: bytearray | memoryview, groups: int, columns: Taken) -> None:
        """Append the first `groups` of the scan, from the buffer with their bodies."""
        engine, answers, packed = self._service.engine, self._answers, self._scanned.group_bytes
        left = self._append_many(topics, buffer, groups, columns) if groups >= _MANY else range(groups)
        for at in left:
            number, first, count, taken, row, rows, size = GROUP.unpack_from(packed, at * GROUP.size)
            if not taken:
                continue
            identity = None
            if number & KEYED:
                number -= KEYED
                identity = Key(self.key(buffer, first))
            name = topics.names[number]
            group = Group(answers, columns, first, count, taken, topics.names_json[number], topics.principals[number])
            group.begin()
            self.taken += taken
            if not engine.takes_plain(name):
                # An answer just given may have changed the topic, so that the append has to wait.
                buffer = bytearray(buffer)
            its = self._columns.rows(buffer, row, rows, size)
            fields = (name, its, None, identity, None, None, True, None, None, None)
            engine.append(make_tuple(AppendRequest, fields), group.done)

    def _append_many(
        self, topics: NumberedTopics, buffer: bytearray | memoryview, count: int, columns: Taken
    ) -> list[int]:
        """Append the groups that need only columns, all topics at once.

        Return the positions of the others among the `count` groups of the scan.
        """
        names, principals = topics.names, topics.principals
        groups = GroupColumns.of(self._scanned.group_memory, count)
        spans = self._columns.spans(groups)
        plain: list[int] | None = None
        others: list[int] = []
        if 0 in groups.taken or max(groups.topics) >= KEYED:
            keyed = {names[number - KEYED] for number in groups.topics if number >= KEYED}
            # Groups of topics with keyed requests stay in their order.
            others = [at for at, number in enumerate(groups.topics) if number >= KEYED or names[number] in keyed]
            apart = set(others)
            plain = [at for at, taken in enumerate(groups.taken) if taken and at not in apart]
            if not plain:
                return others
            groups = groups.select(plain)
        counted = (
            {number: who for number in groups.topics if (who := principals[number]) is not None}
            if topics.are_counted
            else {}
        )
        groups_of_many = Groups(self._answers, columns, counted)
        left = self._service.engine.append_plain(
            [names[number] for number in groups.topics], groups, buffer, spans, groups_of_many.done
        )
        if left:
            others += left if plain is None else [plain[at] for at in left]
            gone = set(left)
            groups = groups.select([at for at in range(len(groups.topics)) if at not in gone])
        self.taken += groups_of_many.begin(groups)
        return others
