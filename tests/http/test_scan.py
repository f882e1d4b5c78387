"""scan.c beside Python: digests, and the answers of many topics."""

import hashlib
import random
from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.bodies.write_columns import GROUP
from topics.engine.values import read_answer, write_answer
from topics.engine.values.write_answer import LANE_END
from topics.http.handlers.record_endpoints import write_json
from topics.http.lane._scan import ffi, lib
from topics.http.lane.group_answers import REQUEST, STRICT, WITHOUT_SEQS
from topics.http.wire.preference import APPLIED

groups = st.lists(
    st.tuples(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
        st.integers(1, 2**40),
        st.lists(
            st.tuples(
                st.integers(0, 12), st.sampled_from((0, WITHOUT_SEQS, STRICT, STRICT | WITHOUT_SEQS)), st.booleans()
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=5,
)
"""Topics: name, first seq, and of each request its records, flags, and whether it came with the one before."""


TEXTS = write_answer.LANE_TEXTS + read_answer.LANE_TEXTS + APPLIED + b"\0"


def new_scanner(texts: bytes = TEXTS) -> Any:
    scanner = lib.tp_scanner_new(1 << 14, 100, 1 << 20, 0, 255, 0, 0, texts, len(texts))
    return ffi.gc(scanner, lib.tp_scanner_free)


@given(groups)
def test_answers_of_many_topics_are_what_the_general_path_would_say(
    topics: list[tuple[str, int, list[tuple[int, int, bool]]]],
) -> None:
    requests, counts, numbers, expected, receive = b"", [], [], {}, -1
    for name, first, asked in topics:
        numbers += (len(counts), len(asked), first)
        receive += 1
        for records, flags, joined in asked:
            receive += not joined
            requests += REQUEST.pack(receive, 0, 0, 0, flags, 0, 0, 0)
            counts.append(records)
            if records:
                body = write_json(b'"%b"' % name.encode(), first, records, not flags & WITHOUT_SEQS, b"TIMES")
                answer = b"HEAD%d\r\n%b\r\n%b" % (len(body), APPLIED if flags & STRICT else b"", body)
                expected[1000 + receive] = expected.get(1000 + receive, b"") + answer
                first += records
    room = 1 << 14
    scanner = new_scanner()
    out, refs, lengths = ffi.new("char[]", room), ffi.new("uint64_t[]", 99), ffi.new("uint32_t[]", 99)
    sends = ffi.new("uint32_t *")
    names = "\0".join(name for name, _first, _asked in topics).encode()
    arguments = (
        ffi.from_buffer("struct tp_request[]", requests),
        ffi.from_buffer("uint32_t[]", array("I", counts)),
        ffi.from_buffer("uint32_t[]", array("I", numbers[0::3])),
        ffi.from_buffer("uint32_t[]", array("I", numbers[1::3])),
        ffi.from_buffer("uint64_t[]", array("Q", numbers[2::3])),
        len(topics),
        names,
        ffi.from_buffer("uint64_t[]", array("Q", range(1000, 1099))),
        b"HEAD",
        4,
        LANE_END % b"TIMES",
        len(LANE_END % b"TIMES"),
        refs,
        lengths,
        sends,
    )
    assert lib.tp_render_topics(scanner, out, room, *arguments) == sum(map(len, expected.values()))
    at, got = 0, {}
    for send in range(sends[0]):
        got[refs[send]] = bytes(ffi.buffer(out + at, lengths[send]))
        at += lengths[send]
    assert got == expected
    if expected:
        assert lib.tp_render_topics(scanner, out, 20, *arguments) == -1


@pytest.mark.parametrize("reads", [False, True])
def test_a_name_learnt_since_is_no_other_ones_group_however_many_scans_there_were(reads: bool) -> None:
    """A scanner counts from 256 scans before 2^32 on."""
    scanner = new_scanner()
    assert lib.tp_learn_host(scanner, b"x", 1) == 0
    suffix, rows, topics, count = (
        b"/diff" * reads,
        ffi.new("struct tp_read **"),
        ffi.new("uint32_t **"),
        ffi.new("uint32_t *"),
    )
    requests, groups = ffi.new("struct tp_request[]", 10), ffi.new("struct tp_group[]", 10)
    first, reasons = lib.tp_learn_topic(scanner, b"a" + suffix, 1 + len(suffix), lib.TP_NO_KEY), ffi.new("uint8_t[]", 2)
    for scan in range(600):
        name = b"b%d" % scan + suffix
        other = lib.tp_learn_topic(scanner, name, len(name), lib.TP_NO_KEY)
        parts = [
            b"POST /v0/topics/%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % each
            + b"Content-Length: 2\r\n\r\n{}"
            for each in (b"a" + suffix, name)
        ]
        starts, ends = ffi.new("uint64_t[]", [0, len(parts[0])]), ffi.new("uint64_t[]", [*accumulate(map(len, parts))])
        found = lib.tp_scan_requests(scanner, b"".join(parts), starts, ends, 2, requests, groups, 10, reasons)
        assert list(reasons[0:2]) == [0, 0]
        if reads:
            assert lib.tp_scanned_reads(scanner, rows, topics, count) == 2
            assert list(topics[0][0 : count[0]]) == [first, other]
        else:
            grouped = [row[:3] for row in GROUP.iter_unpack(ffi.buffer(groups, found * GROUP.size))]
            assert grouped == [(first, 0, 1), (other, 1, 1)]


@pytest.mark.parametrize("reads", [False, True])
def test_a_request_by_itself_is_what_the_scan_of_many_finds(reads: bool) -> None:
    scanner, suffix = new_scanner(), b"/diff" * reads
    assert lib.tp_learn_host(scanner, b"x", 1) == 0
    known = lib.tp_learn_topic(scanner, b"a" + suffix, 1 + len(suffix), lib.TP_NO_KEY)
    start, end, reasons = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("uint8_t *")
    requests, groups = ffi.new("struct tp_request[1]"), ffi.new("struct tp_group[1]")
    single = ffi.new("struct tp_request *")

    def agree(data: bytes) -> int:
        end[0] = len(data)
        found = lib.tp_scan_requests(scanner, data, start, end, 1, requests, groups, 1, reasons)
        number: int = lib.tp_scan_single(scanner, single, data, len(data))
        if reasons[0]:
            assert number == -1 - reasons[0]
        elif found:
            assert number == groups[0].topic
            assert bytes(ffi.buffer(single)) == bytes(ffi.buffer(requests))
        else:
            assert number == -1
        return number

    for field in (b"", b"Idempotency-Key: k\r\n", b"Expect: 100-continue\r\n"):
        head = b"POST /v0/topics/a%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % suffix
        data = head + field + b"Content-Length: 2\r\n\r\n{}"
        assert (agree(data) == (-1 if reads else known)) is (not field)
        assert agree(data * 2) < -1
        for size in range(1, len(data)):
            assert agree(data[:size]) < -1


@pytest.mark.parametrize("reads", [False, True])
def test_a_scan_takes_as_many_requests_as_there_is_room_for_and_leaves_the_others(reads: bool) -> None:
    scanner, suffix = new_scanner(), b"/diff" * reads
    assert lib.tp_learn_host(scanner, b"x", 1) == 0
    lib.tp_learn_topic(scanner, b"a" + suffix, 1 + len(suffix), lib.TP_NO_KEY)
    head = b"POST /v0/topics/a%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % suffix
    pair = (head + b"Content-Length: 2\r\n\r\n{}") * 2
    ends = [len(pair), 2 * len(pair), 3 * len(pair)]
    bounds = ffi.new("uint64_t[]", [0, *ends[:-1]]), ffi.new("uint64_t[]", ends)
    requests, groups = ffi.new("struct tp_request[]", 3), ffi.new("struct tp_group[]", 3)
    reasons = ffi.new("uint8_t[]", 3)
    found = lib.tp_scan_requests(scanner, pair * 3, *bounds, 3, requests, groups, 3, reasons)
    assert list(reasons) == [0, lib.TP_MISS_ROOM, lib.TP_MISS_ROOM]
    if reads:
        rows, topics, count = ffi.new("struct tp_read **"), ffi.new("uint32_t **"), ffi.new("uint32_t *")
        assert lib.tp_scanned_reads(scanner, rows, topics, count) == 3
    else:
        taken = [row[2] for row in GROUP.iter_unpack(ffi.buffer(groups, found * GROUP.size))]
        assert sum(taken) == 3


def test_of_too_many_hosts_the_one_not_met_for_the_longest_time_is_forgotten() -> None:
    scanner = new_scanner()
    lib.tp_learn_topic(scanner, b"a", 1, lib.TP_NO_KEY)
    requests, groups = ffi.new("struct tp_request *"), ffi.new("struct tp_group *")

    def is_known(host: int) -> bool:
        head = b"POST /v0/topics/a HTTP/1.1\r\nHost: h%d\r\nContent-Type: application/json\r\n" % host
        data = head + b"Content-Length: 2\r\n\r\n{}"
        starts, ends, reasons = ffi.new("uint64_t[]", [0]), ffi.new("uint64_t[]", [len(data)]), ffi.new("uint8_t[]", 1)
        return bool(lib.tp_scan_requests(scanner, data, starts, ends, 1, requests, groups, 1, reasons))

    for host in range(16):
        assert not is_known(host)
        assert lib.tp_learn_host(scanner, b"h%d" % host, 2 + (host > 9)) == host
    for host in (*range(3), *range(4, 16)):
        assert is_known(host)
    assert lib.tp_learn_host(scanner, b"h16", 3) == 3
    assert [host for host in range(17) if not is_known(host)] == [3]
    assert lib.tp_learn_host(scanner, b"x" * 129, 129) == -1


@pytest.mark.parametrize("length", [0, 1, 3, 31, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1000])
def test_a_digest_is_sha_256_whatever_the_length(length: int) -> None:
    text = random.Random(length).randbytes(length)
    digest = ffi.new("unsigned char[32]")
    lib.tp_digest(text, length, digest)
    assert bytes(ffi.buffer(digest)) == hashlib.sha256(text).digest()


@pytest.mark.parametrize("texts", [TEXTS[:-1], TEXTS + b"\0", b"", b"x" * 7 + TEXTS, TEXTS[:-1] + b"x" * 31 + b"\0"])
def test_a_scanner_takes_the_texts_of_both_answers_that_end_and_no_others(texts: bytes) -> None:
    assert lib.tp_scanner_new(1 << 14, 100, 1 << 20, 0, 255, 0, 0, texts, len(texts)) == ffi.NULL
