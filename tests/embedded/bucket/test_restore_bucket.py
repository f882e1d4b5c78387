"""A restore of a bucket reads what it needs to a directory beside the new one, which it removes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import topics
from tests.embedded.bucket.copied_places import OPTIONS, URL, send
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.embedded.conftest import SMALL
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, look_at_copy
from topics.embedded.bucket.restore_bucket import fetched
from topics.embedded.restore_call import restore_copy
from topics.errors import CorruptError, LockedError, UsageError


@pytest.fixture
def looked(bucket: MemoryBucket, archives: list[Path], monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """A bucket with an archive, which a restore asks."""

    async def look(url: str, _options: BucketOptions, **beside: bool) -> BucketCopy:
        return await look_at_copy(url, OPTIONS, lambda _url, _options: bucket, **beside)

    send(bucket, archives[3])
    monkeypatch.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", look)
    return bucket


def test_a_directory_that_was_made_meanwhile_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(_url: str, _options: object, **_beside: bool) -> BucketCopy:
        (tmp_path / "new.fetched").mkdir()
        return BucketCopy(MemoryBucket(), [], [])

    monkeypatch.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", look)
    monkeypatch.setattr("topics.embedded.bucket.restore_bucket.needed_parts", lambda *_, **__: ("", None))
    said = f"another restore has just begun in {tmp_path}/new.fetched: wait for that one, or restore to another"
    with pytest.raises(LockedError, match=said), fetched("s3://b/p", str(tmp_path / "new"), OPTIONS):
        pass
    assert (tmp_path / "new.fetched").is_dir()


def test_an_error_of_a_restore_names_places_of_the_bucket(
    looked: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that it was read to is removed by then."""
    monkeypatch.chdir(tmp_path)
    said = []
    for kind in (CorruptError, UsageError):
        with pytest.raises(kind) as caught, fetched(URL, "new", OPTIONS) as copy:
            raise kind(f"{copy.path}/T/log is what `topics verify {copy.root}` finds")
        said.append(str(caught.value))
        assert not os.listdir(tmp_path)
    assert said == [f"{URL}/T/log is what `topics verify {URL}` finds"] * 2


def test_a_restore_that_is_interrupted_leaves_nothing_of_what_it_has_read(looked: MemoryBucket, tmp_path: Path) -> None:
    """The next one was refused until a person had removed it."""
    looked.calls.clear()
    with fetched(URL, str(tmp_path / "new"), OPTIONS):
        of_fetch = len(looked.calls) - 1
    looked.calls_left, looked.error = of_fetch, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), fetched(URL, str(tmp_path / "new"), OPTIONS):
        pass
    assert not os.listdir(tmp_path)


def archive_one(archive: Path, data: Path, topic: str) -> str:
    """Archive a log with one topic; return the name of its timeline."""
    with topics.open(data, **SMALL, archive_dir=str(archive), archive_every_ms=10) as log:
        log.append(topic, [{"n": number} for number in range(100)])
    return (data / "archive").read_text().split()[0]


def test_logs_of_other_servers_are_read_only_if_they_have_a_topic_in_common(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore from a bucket read the logs of all of them, and leaves out the same seqs without."""
    archive = tmp_path / "archive"
    own = archive_one(archive, tmp_path / "data", "orders")
    bare = archive_one(archive, tmp_path / "bare", "parts")
    shutil.copytree(tmp_path / "data", tmp_path / "copied")
    (tmp_path / "copied" / "archive").unlink()
    related = archive_one(archive, tmp_path / "copied", "orders")
    assert len({own, bare, related}) == 3
    send(bucket, archive)

    async def looked(_url: str, options: BucketOptions, **beside: bool) -> BucketCopy:
        buckets = {URL: bucket}
        return await look_at_copy(f"{URL}/{own}", options, lambda url, _: buckets.get(url, MemoryBucket()), **beside)

    monkeypatch.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", looked)
    bucket.calls.clear()
    with fetched(URL, str(tmp_path / "new"), OPTIONS) as copy:
        restore_copy(copy.path, tmp_path / "new", skipped_seqs=1, fetch_rest=copy.fetch_rest)
    read = {key.split("/")[1] for call, key in bucket.calls if call == "get" and key.startswith("logs/")}
    assert read == {own, related}
    topics.restore(archive / own, tmp_path / "same", skipped_seqs=1)
    new_seqs = []
    for made in ("new", "same"):
        with topics.open(tmp_path / made, **SMALL) as log:
            new_seqs.append(log.append("orders", [{}]).first_seq)
    assert new_seqs[0] == new_seqs[1] > 200
    assert sorted(os.listdir(tmp_path)) == ["archive", "bare", "copied", "data", "new", "same"]
