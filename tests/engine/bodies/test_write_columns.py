"""Bodies of writes scanned as columns: one by itself beside many."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.json.json_model import damaged, random_write
from tests.store.format.frames_by_hand import record_at
from topics.config import Config
from topics.engine.bodies.write_columns import GROUP, WriteColumns
from topics.engine.json._records import ffi, lib

FEW = 2
columns = WriteColumns(Config(max_batch_records=6), FEW)
request = ffi.new("struct tp_request *")
single = columns.single(request)


@given(st.integers(0, 1 << 40), st.integers(0, 9), st.booleans(), st.booleans())
def test_a_body_by_itself_has_the_rows_that_it_has_among_many_and_stays_as_it_is(
    seed: int, before: int, broken: bool, few: bool
) -> None:
    rng = random.Random(seed)
    body = random_write(rng)
    if broken:
        body = damaged(body, rng)
    received = b"x" * before + body + b"y"
    request.off, request.len, request.end = before, len(body), before + len(body)
    request.flags = lib.TP_FEW_RECORDS if few else 0

    buffer = bytearray(received)
    rows = single(ffi.from_buffer(buffer), memoryview(buffer))
    assert buffer == received
    found = None if rows is None else [record_at(rows, at) for at in range(rows.count)]

    group = ffi.new("struct tp_group *", {"count": 1})
    counts, upto = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    columns.scan(ffi.from_buffer(buffer), request, group, 1, counts, upto)
    _topic, _first, _count, taken, row, count, size = GROUP.unpack(ffi.buffer(group))
    if rows is None:
        assert not taken
        return
    expected = columns.rows(buffer, row, count, size)
    assert (taken, rows.count, rows.size) == (1, count, size)
    assert found == [record_at(expected, at) for at in range(count)]


def test_a_scan_takes_as_many_records_as_there_is_room_for_and_leaves_the_other_writes() -> None:
    """A pass has 40,000 of them at most by default, whatever the clients send."""
    body = b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 6)
    many = 1 << 12
    requests, groups = ffi.new("struct tp_request[]", many), ffi.new("struct tp_group[]", many)
    for at in range(many):
        requests[at].off, requests[at].len, requests[at].end = at * len(body), len(body), (at + 1) * len(body)
        requests[at].receive = at
        groups[at].first, groups[at].count = at, 1
    counts, upto = ffi.new("uint32_t[]", many), ffi.new("uint32_t[]", many)
    columns.scan(ffi.from_buffer(bytearray(body * many)), requests, groups, many, counts, upto)
    taken = list(counts)
    assert (1 << 14) - 6 <= sum(taken) <= 1 << 14 < 6 * many
    left = taken.index(0)
    assert taken == [6] * left + [0] * (many - left)
    assert list(upto)[left:] == [0] * (many - left)
