"""When an answer is compressed."""

import gzip
import zlib

import pytest

from topics.http.wire.compression import HEADERS, Compressor, offers_gzip


@pytest.mark.parametrize(
    ("value", "offered"),
    [
        ("gzip", True), ("GZIP", True), ("x-gzip", False), ("deflate, gzip", True), ("gzip;q=1", True),
        ("gzip; q=0.001", True), ("br;q=1.0, gzip;q=0.8, *;q=0.1", True), ("gzip ; q=0.5", True),
        ("", False), ("gzip;q=0", False), ("gzip;q=0.000", False), ("gzip; Q=0", False), ("identity", False),
        ("br", False), ("*", False), ("gzip;q=x", False), ("gzip;q=", False), ("gzip;q=nan", False), ("gzipped", False),
        ("gzip;q=0, gzip", False),
    ],
)  # fmt: skip
def test_what_offers_gzip(value: str, offered: bool) -> None:
    """3.1: by name, with a weight above 0."""
    assert offers_gzip(value.encode()) is offered


def test_what_would_not_get_shorter_and_what_is_too_long_go_as_they_are() -> None:
    """3.1: it may, it need not."""
    compressor = Compressor(1, 1024, 4096)
    body = b'{"a":1}' * 300
    encoded, headers = compressor.encode(body)
    assert headers == HEADERS
    assert gzip.decompress(encoded) == body
    assert compressor.encode(b"x" * 4097) == (b"x" * 4097, b"")
    noise = gzip.compress(bytes(range(256)) * 8)
    assert compressor.encode(noise) == (noise, b"")


def test_the_same_answer_is_the_same_bytes() -> None:
    """3.1: no time of day in them."""
    compressor = Compressor(6, 1024, 1 << 20)
    assert compressor.encode(b"a" * 2000) == compressor.encode(b"a" * 2000)


def test_level_0_compresses_nothing() -> None:
    """14: TOPICS_GZIP_LEVEL=0."""
    assert Compressor(0, 1024, 1 << 20).min_bytes > 1 << 50


@pytest.mark.parametrize("sizes", [(0, 2000, 0), (20, 100_000, 100), (100, 0, 2000), (5000, 5000, 5000)])
def test_an_answer_around_shared_bytes_is_one_member_and_what_is_shared_is_compressed_once(
    sizes: tuple[int, int, int],
) -> None:
    """3.1."""
    spent: list[int] = []
    compressor = Compressor(1, 1, 1 << 20, spent.append)
    before, shared, after = (b"%d," % size * (size // 5) for size in sizes)
    for more in (b"", b"!", b"?"):
        encoded, headers = compressor.encode_around(before + more, shared, after + more)
        assert headers == HEADERS
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert unpacker.decompress(encoded) == before + more + shared + after + more
        assert unpacker.eof
        assert unpacker.unused_data == b"", "a second member, which some clients leave out"
    assert spent == [8 * len(shared)]
    compressor.encode(b"x" * 100)
    assert spent[1:] == [800]


def test_parts_that_are_too_long_or_get_no_shorter_go_as_they_are() -> None:
    """3.1."""
    noise = gzip.compress(bytes(range(256)) * 8)
    assert Compressor(1, 1, 1 << 20).encode_around(b"[", noise, b"]") == (b"[%b]" % noise, b"")
    assert Compressor(1, 1, 10).encode_around(b"[", b"1" * 9, b"]") == (b"[%b]" % (b"1" * 9), b"")
