"""The images of power cuts, without a disk: what was flushed is there, what came later only perhaps."""

from __future__ import annotations

from pathlib import Path

from tests.long.powercut.images import Entry, images, read_log


def write(offset: int, text: bytes) -> Entry:
    return Entry("W", offset, len(text), memoryview(text))


FLUSH = Entry("F", 0, 0, None)


def test_what_was_flushed_before_the_cut_is_in_every_image() -> None:
    entries = [write(0, b"a" * 512), FLUSH, write(512, b"b" * 512), write(1024, b"c" * 512)]
    for seed in range(20):
        for cut, image in images(entries, [2, 3, 4], 2048, seed):
            assert image[:512] == b"a" * 512, cut


def test_what_was_not_flushed_is_there_in_some_images_and_torn_at_a_sector_in_some() -> None:
    entries = [write(0, b"a" * 2048)]
    found = {bytes(image).count(b"a") for seed in range(200) for _, image in images(entries, [1], 2048, seed)}
    assert found == {0, 512, 1024, 1536, 2048}


def test_later_writes_may_survive_earlier_ones() -> None:
    entries = [write(0, b"a" * 512), write(512, b"b" * 512)]
    found = {bytes(image[::512]) for seed in range(100) for _, image in images(entries, [2], 1024, seed)}
    assert b"\0b" in found


def test_zeros_are_applied_like_writes() -> None:
    entries = [write(0, b"a" * 1024), Entry("Z", 0, 512, None), FLUSH]
    [(_, image)] = images(entries, [3], 1024, 1)
    assert image == bytes(512) + b"a" * 512


def test_a_torn_last_entry_of_the_log_is_dropped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    whole = b"".join(value.to_bytes(8, "little") for value in (ord("W"), 7, 3)) + b"xyz"
    log.write_bytes(whole + whole[:-1])
    assert [(entry.kind, entry.offset, bytes(entry.data or b"")) for entry in read_log(log)] == [("W", 7, b"xyz")]
