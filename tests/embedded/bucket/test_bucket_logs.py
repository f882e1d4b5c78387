"""A prefix of a bucket has the backups of one log, or an archive: a restore takes the newest of it."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

import topics
from tests.embedded.bucket.copied_places import OPTIONS, URL, fetch_all, look, restored, send, verify
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.embedded.conftest import SMALL
from topics.embedded.bucket.bucket_copy import look_at_copy
from topics.embedded.bucket.bucket_logs import check_may_join
from topics.errors import UsageError


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backups of another log."""
    root = tmp_path_factory.mktemp("other")
    with topics.open(root / "data", **SMALL) as log:
        log.append("payments", [{"n": 1}])
        made = Path(log.backup(root / "backups").path)
    made.rename(made.with_name("2031-01-01T00-00-00Z"))  # another second than that of `backups`
    return root / "backups"


def mixed(bucket: MemoryBucket, *sources: Path) -> MemoryBucket:
    """A bucket with copies that a build which compared no ids has put there."""
    for source in sources:
        one = MemoryBucket()
        send(one, source)
        bucket.objects |= one.objects
    return bucket


def test_the_backups_of_another_log_are_not_added(bucket: MemoryBucket, backups: list[Path], other: Path) -> None:
    send(bucket, backups[0])
    before = dict(bucket.objects)
    (name,) = look(bucket).backups
    said = (
        f"{URL} has a copy of another log, such as {name.path}: use a prefix of its own for each log, and for backups"
    )
    with pytest.raises(UsageError, match=said):
        send(bucket, other)
    assert bucket.objects == before
    send(bucket, backups[1])


def test_an_archive_and_backups_are_not_added_to_each_other(
    bucket: MemoryBucket, backups: list[Path], archives: list[Path]
) -> None:
    """A restore took the archive, and said nothing of the backups."""
    for first, second in ((backups[0], archives[0]), (archives[0], backups[0])):
        bucket.objects.clear()
        send(bucket, first)
        before = dict(bucket.objects)
        with pytest.raises(UsageError, match="has a copy of another log, such as 20.*, and for backups and an archive"):
            send(bucket, second)
        assert bucket.objects == before
        send(bucket, first)


def test_copies_of_several_logs_are_refused_with_their_names(
    bucket: MemoryBucket, backups: list[Path], other: Path, archives: list[Path], tmp_path: Path
) -> None:
    (payments,) = sorted(other.glob("*Z"))
    below = {URL: bucket}
    for sources, named in (((backups[1], other), payments.name), ((other, archives[3]), payments.name)):
        bucket.objects.clear()
        mixed(bucket, *sources)
        said = f"{URL} has the copies of several logs: name one of them: .*{URL}/{named}"
        for call in (
            lambda: verify(bucket),
            lambda: restored(bucket, tmp_path / "new"),
            lambda: fetch_all(bucket, tmp_path),
        ):
            with pytest.raises(UsageError, match=said):
                call()
        assert not list(tmp_path.iterdir())
        looking = look_at_copy(f"{URL}/{payments.name}", OPTIONS, lambda url, _: below.get(url, MemoryBucket()))
        assert [each.path for each in asyncio.run(looking).backups] == [payments.name]


def test_a_bucket_is_asked_for_each_marker_once(bucket: MemoryBucket, backups: list[Path]) -> None:
    send(bucket, backups[1])
    bucket.calls.clear()
    assert len(look(bucket).backups) == 2
    assert sum(key.startswith("pieces/") for call, key in bucket.calls if call == "get") == 1


def test_a_directory_with_backups_of_several_logs_is_not_copied(
    bucket: MemoryBucket, backups: list[Path], other: Path, archives: list[Path], tmp_path: Path
) -> None:
    (payments,) = other.glob("*Z")
    for source, said in (
        (backups[1], f"has the backups of several logs: name a backup of one of them: .*/{payments.name}"),
        (archives[3], f"has backups, such as {payments.name}, and a log, 20.*: name one of them"),
    ):
        directory = tmp_path / source.name
        shutil.copytree(source, directory)
        shutil.copytree(payments, directory / payments.name)
        with pytest.raises(UsageError, match=said):
            send(bucket, directory)
        assert not bucket.objects


def test_a_copy_from_a_bucket_is_not_written_beside_that_of_another_log(
    bucket: MemoryBucket, backups: list[Path], other: Path, archives: list[Path], tmp_path: Path
) -> None:
    """Then neither of the two could be restored without its name."""
    for first, second, may in (
        (backups[0], backups[1], True),
        (archives[0], archives[3], True),
        (backups[0], other, False),
        (backups[0], archives[0], False),
        (archives[0], backups[0], False),
    ):
        bucket.objects.clear()
        send(bucket, second)
        directory = tmp_path / "there"
        shutil.copytree(first, directory)
        copy = look(bucket)
        joining = check_may_join(bucket, copy.backups, copy.logs, str(directory))
        if may:
            asyncio.run(joining)
        else:
            (name,) = (each.name for each in first.iterdir())
            said = f"to is '{directory}', which has a copy of another log, such as {name}: name another directory"
            with pytest.raises(UsageError, match=re.escape(said)):
                asyncio.run(joining)
        shutil.rmtree(directory)
        asyncio.run(check_may_join(bucket, copy.backups, copy.logs, str(directory)))
