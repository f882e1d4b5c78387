"""scan.c beside Python: digests, and the answers of many topics."""

import hashlib
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.http._scan import ffi, lib
from topics.http.lane_answers import REQUEST

groups = st.lists(
    st.tuples(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
        st.integers(1, 2**40),
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.booleans()), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=5,
)
"""Of each topic: name, first seq, and of each request its records, flags, and whether it came with the one before."""


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
                last, seqs = first + records - 1, ",".join(map(str, range(first, first + records)))
                listed = "" if flags else f',"seqs":[{seqs}]'
                body = f'{{"topic":"{name}","first_seq":{first},"last_seq":{last}{listed}'
                body += f',"head_seq":{last},"count":{records}'
                answer = f"HEAD{len(body) + 1}\r\n\r\n{body}}}".encode()
                expected[1000 + receive] = expected.get(1000 + receive, b"") + answer
                first += records
    room = 1 << 14
    out, refs, lengths = ffi.new("char[]", room), ffi.new("uint64_t[]", 99), ffi.new("uint32_t[]", 99)
    sends = ffi.new("uint32_t *")
    names = "\0".join(name for name, _first, _asked in topics).encode()
    arguments = (
        ffi.from_buffer("unsigned char[]", requests),
        ffi.from_buffer("uint32_t[]", array("I", counts)),
        ffi.from_buffer("uint64_t[]", array("Q", numbers)),
        len(topics),
        names,
        ffi.from_buffer("uint64_t[]", array("Q", range(1000, 1099))),
        b"HEAD",
        4,
        b"}",
        1,
        refs,
        lengths,
        sends,
    )
    assert lib.tp_render_topics(out, room, *arguments) == sum(map(len, expected.values()))
    at, got = 0, {}
    for send in range(sends[0]):
        got[refs[send]] = bytes(ffi.buffer(out + at, lengths[send]))
        at += lengths[send]
    assert got == expected
    if expected:
        assert lib.tp_render_topics(out, 20, *arguments) == -1


@pytest.mark.parametrize("length", [0, 1, 3, 31, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1000])
def test_a_digest_is_sha_256_whatever_the_length(length: int) -> None:
    text = random.Random(length).randbytes(length)
    digest = ffi.new("unsigned char[32]")
    lib.tp_digest(text, length, digest)
    assert bytes(ffi.buffer(digest)) == hashlib.sha256(text).digest()
