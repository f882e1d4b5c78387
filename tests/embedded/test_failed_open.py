"""A directory that cannot be opened: the caller may continue, and try again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import topics
from topics.errors import CorruptError
from topics.store.format import compressed_segment
from topics.store.format.log_format import (
    BATCH_ALIGN,
    BATCH_HEADER_BYTES,
    WAL_FIRST_BATCH_OFFSET,
    BatchHeader,
    align_up,
)


@pytest.mark.parametrize("io", ["auto", "portable"])
def test_a_directory_that_is_damaged_leaves_no_descriptor_open(tmp_path: Path, io: str) -> None:
    """Nor is the file system busy, so that an administrator can mend it."""
    copy = tmp_path / "copy"
    with topics.open(str(tmp_path / "data"), io=io) as log:
        log.put_topic("t", durability="fsync")
        for number in range(3):
            log.append("t", [number])
        shutil.copytree(
            tmp_path / "data", copy, ignore=shutil.ignore_patterns("*.tmp")
        )  # as a killed process leaves it
    damaged = copy / "wal" / "shard-00" / "wal-0000000000000001.log"
    data = bytearray(damaged.read_bytes())
    first = BatchHeader.unpack(data[WAL_FIRST_BATCH_OFFSET:], "it")
    second = align_up(WAL_FIRST_BATCH_OFFSET + BATCH_HEADER_BYTES + first.body_bytes, BATCH_ALIGN)
    data[second + BATCH_HEADER_BYTES] ^= 1
    damaged.write_bytes(data)
    before = descriptors_below(copy)
    for _ in range(2):
        with pytest.raises(CorruptError, match="damaged"):
            topics.open(str(copy), io=io)
    assert descriptors_below(copy) == before == []


def descriptors_below(directory: Path) -> list[str]:
    links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return [link for link in links if link.startswith(str(directory))]


def test_a_codec_without_its_package_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_segment, "zstandard", None)
    with pytest.raises(topics.StorageError, match=r"segment_codec zstd needs .*: install it by pip install"):
        topics.open(tmp_path / "data", segment_codec="zstd", cold_dir=str(tmp_path / "cold"))
    assert list(tmp_path.iterdir()) == []
