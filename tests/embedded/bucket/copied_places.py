"""Backups and archives in several states, made once for all tests, and calls on a bucket in memory."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import topics
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.embedded.conftest import SMALL
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, look_at_copy
from topics.embedded.bucket.fetch_copy import CopyFetch, fetch
from topics.embedded.bucket.needed_parts import WantedPoint, needed_parts
from topics.embedded.bucket.send_copy import CopySender, SentCopy
from topics.embedded.bucket.verify_copy import VerifiedCopy, verify_copy
from topics.embedded.restore_call import find_record_in
from topics.store.archive.restore_point import RestorePoint
from topics.store.archive.timelines import Timeline

OPTIONS = BucketOptions(parallel=1, part_bytes=1 << 16)
"""One request at a time, so that the n-th of two runs is the same."""
URL = MemoryBucket.url


def make_backups(root: Path) -> list[Path]:
    """Return a directory of backups as it was after one, and after two of them."""
    with topics.open(root / "data", **SMALL) as log:
        stages = []
        for number in (1, 2):
            log.append("orders", [{"n": number, "x": "x" * 40_000}] * 5)
            log.backup(root / "backups")
            stages.append(root / f"backups-{number}")
            shutil.copytree(root / "backups", stages[-1])
    return stages


def make_archives(root: Path) -> list[Path]:
    """Return an archive as it was with 5, 10, 15 and 20 records.

    From 15 on it has a second base, and from 20 on a second timeline: that of a restored directory.
    """
    stages, archive = list[Path](), root / "archive"
    for data, count, bases in (("data", 5, 1), ("data", 10, 1), ("data", 15, 2), ("restored", 20, 1)):
        if data == "restored":
            topics.restore(archive, root / data, skipped_seqs=1000)
        every_ms = 1 if bases == 2 else 10**9
        settings = {**SMALL, "archive_dir": str(archive), "archive_every_ms": 10, "archive_base_every_ms": every_ms}
        with topics.open(root / data, **settings) as log:
            while len(list(_timeline_of(archive, root / data).glob("bases/*Z"))) < bases:
                log.append("other", ["a base is made beside this"])
            log.append("orders", [{"n": n, "x": "x" * 20_000} for n in range(count - 5, count)])
        stages.append(root / f"archive-{count}")
        shutil.copytree(archive, stages[-1])
    return stages


def _timeline_of(archive: Path, data: Path) -> Path:
    name = data / "archive"
    return archive / (name.read_text().split()[0] if name.exists() else "none")


def send(
    bucket: MemoryBucket,
    source: Path,
    *,
    rereads: bool = False,
    options: BucketOptions = OPTIONS,
    whole_files: int = 256,
) -> SentCopy:
    sender = CopySender(bucket, str(source), options, rereads=rereads, whole_files=whole_files)
    return asyncio.run(sender.step())


def look(bucket: MemoryBucket, url: str = URL) -> BucketCopy:
    return asyncio.run(look_at_copy(url, OPTIONS, lambda _url, _options: bucket))


def verify(bucket: MemoryBucket) -> VerifiedCopy:
    return asyncio.run(verify_copy(look(bucket), OPTIONS))


def fetch_all(bucket: MemoryBucket, to: Path) -> int:
    """Copy all that a bucket has; return the bytes that were read."""
    return asyncio.run(fetch(look(bucket), str(to), OPTIONS)).bytes


def restored(
    bucket: MemoryBucket, to: Path, at_ms: int | None = None, *, record: tuple[str, int] | None = None
) -> list[int]:
    """Restore a bucket, as the command does; return the numbers of the records."""
    copy, root = look(bucket), f"{to}.fetched"
    reading = CopyFetch(copy, root, OPTIONS)
    shutil.rmtree(to, ignore_errors=True)

    def find(timelines: list[Timeline]) -> RestorePoint:
        assert record is not None, "a time needs no search"
        return find_record_in(
            timelines, record, lambda base: asyncio.run(reading.fetch_after(os.path.relpath(base, root)))
        )

    path, needed = needed_parts(copy, WantedPoint(at_ms) if record is None else WantedPoint(find=find, root=root))
    asyncio.run(reading.fetch(needed.parts))
    topics.restore(f"{to}.fetched/{path}", to, at=at_ms, upto=record, skipped_seqs=1000)
    shutil.rmtree(f"{to}.fetched")
    with topics.open(to, **SMALL) as log:
        found, page = list[int](), log.page("orders", 0)
        while True:
            found += [record.data["n"] for record in page.records]
            if page.caught_up:
                return found
            page = log.page("orders", page.next_from_seq)
