"""The digests of scan.c beside hashlib's."""

import hashlib
import random

import pytest

from topics.http._scan import ffi, lib


@pytest.mark.parametrize("length", [0, 1, 3, 31, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1000])
def test_a_digest_is_sha_256_whatever_the_length(length: int) -> None:
    text = random.Random(length).randbytes(length)
    digest = ffi.new("unsigned char[32]")
    lib.tp_digest(text, length, digest)
    assert bytes(ffi.buffer(digest)) == hashlib.sha256(text).digest()
