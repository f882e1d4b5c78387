"""A copy from a bucket is what was copied there, or refused with its place."""

from __future__ import annotations

import asyncio
import filecmp
import shutil
from pathlib import Path

import msgspec
import pytest

import topics
from tests.embedded.bucket.copied_places import OPTIONS, URL, fetch_all, look, restored, send, verify
from tests.embedded.bucket.memory_bucket import KilledError, MemoryBucket
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import look_at_copy, unlogged_parts
from topics.embedded.bucket.bucket_manifest import REMEDY, BucketManifest, ManifestKey, pack
from topics.embedded.bucket.fetch_copy import fetch
from topics.embedded.bucket.needed_parts import WantedPoint, needed_parts
from topics.errors import CorruptError, StorageError, UsageError
from topics.store.backup.backup_files import pack_description
from topics.store.format.log_format import wal_file_no

UPTO_MAX = 253_402_300_799_999
"""The latest time of a note."""


def same(one: Path, other: Path) -> bool:
    """Return whether two directories have the same files."""
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    return names == {path.relative_to(other) for path in other.rglob("*") if path.is_file()} and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in names
    )


def test_a_directory_that_was_copied_there_and_back_is_the_same(
    backups: list[Path], archives: list[Path], tmp_path: Path
) -> None:
    for number, source in enumerate((backups[1], archives[3])):
        bucket = MemoryBucket()
        send(bucket, source)
        assert fetch_all(bucket, tmp_path / f"{number}") > 0
        assert number or same(source, tmp_path / f"{number}")
        assert topics.verify_backup(tmp_path / f"{number}").sound
        assert fetch_all(bucket, tmp_path / f"{number}") == 0, "all of it is there"


def test_equal_files_of_several_backups_are_one_file(backups: list[Path], bucket: MemoryBucket, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(backups[0], source)
    (first,) = source.glob("*Z")
    later = source / "2099-01-01T00-00-00Z"
    shutil.copytree(first, later)
    send(bucket, source)
    fetch_all(bucket, tmp_path / "back")
    for name in (path.relative_to(first) for path in first.rglob("*") if path.name.startswith("snapshot-")):
        assert (tmp_path / "back" / later.name / name).samefile(tmp_path / "back" / first.name / name)


@pytest.mark.parametrize("what", ["backups", "archives"])
def test_a_copy_from_a_bucket_that_is_killed_at_any_call_has_nothing_half_done_and_continues(
    what: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stages: list[Path] = request.getfixturevalue(what)
    bucket = MemoryBucket()
    send(bucket, stages[-1])
    bucket.error = KilledError
    calls, to, whole = 0, tmp_path / "to", 0
    while True:
        bucket.calls_left = calls
        try:
            fetch_all(bucket, to)
        except KilledError:
            for described in to.rglob("backup.json") if to.exists() else ():
                assert topics.verify_backup(described.parent).sound
            calls, whole = calls + 1, whole + len(list(to.rglob("*.json")))
            continue
        break
    bucket.calls_left = None
    assert calls > 3
    assert topics.verify_backup(to).sound
    assert not list(to.rglob("*.partial"))


def test_a_restore_of_a_time_reads_one_base_and_the_log_after_it(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage in archives[:3]:
        send(bucket, stage)
    first, *_, last = look(bucket).backups
    _, needed = needed_parts(look(bucket), WantedPoint())
    assert [base.path for base in needed.backups] == [last.path]
    assert needed.logs[0].files.keys() < look(bucket).logs[0].files.keys()
    _, needed = needed_parts(look(bucket), WantedPoint(first.backup().taken_ms))
    assert [base.path for base in needed.backups] == [first.path, last.path]
    assert restored(bucket, tmp_path / "new", record=("orders", 3)) == list(range(5))
    (note,) = archives[1].glob("*/archive.json")
    at_ms = msgspec.json.decode(note.read_bytes())["upto_ms"]
    assert restored(bucket, tmp_path / "new", at_ms) == list(range(10))


def test_a_restore_of_a_time_reads_nothing_of_its_timeline_before_its_base(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """It read the first base, and all of the log after that."""
    for stage in archives[:3]:
        send(bucket, stage)
    whole = look(bucket)
    last, (log,) = whole.backups[-1], whole.logs
    _, needed = needed_parts(whole, WantedPoint(last.backup().taken_ms))
    assert [base.path for base in needed.backups] == [last.path]
    (read,) = needed.logs
    begins = last.backup().first_log_files[0]
    assert {wal_file_no(Path(path).name) for path in read.files} >= {begins}
    assert all((wal_file_no(Path(path).name) or 0) >= begins for path in read.files)
    assert len(read.files) < len(log.files)
    assert restored(bucket, tmp_path / "new", log.note().upto_ms) == list(range(15))


def test_a_restore_of_a_record_reads_nothing_of_its_timeline_before_its_base(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """It read all bases, and all of the log."""
    for stage in archives[:3]:
        send(bucket, stage)

    def read_for(record: tuple[str, int] | None, expected: int) -> list[str]:
        bucket.calls.clear()
        assert restored(bucket, tmp_path / "new", record=record) == list(range(expected))
        return sorted(key for call, key in bucket.calls if call == "get" and key.startswith(("logs/", "pieces/")))

    assert read_for(("orders", 15), 15) == read_for(None, 15)
    of_log = [key for key in read_for(("orders", 3), 5) if key.startswith("logs/")]
    (log,), begins = look(bucket).logs, look(bucket).backups[0].backup().first_log_files[0]
    after = {name: pieces for name, pieces in log.files.items() if (wal_file_no(Path(name).name) or 0) >= begins}
    assert of_log == sorted(log.key(name, piece) for name, pieces in after.items() for piece in pieces), "each once"
    with pytest.raises(UsageError, match="upto is seq 99 of topic orders, whose write is not in the archive"):
        restored(bucket, tmp_path / "new", record=("orders", 99))


def test_a_restore_of_the_end_reads_all_of_the_other_timelines(archives: list[Path], bucket: MemoryBucket) -> None:
    """No seq that they know is given out again, also none of a topic that was deleted before their newest base."""
    send(bucket, archives[3])
    whole = look(bucket)
    _, needed = needed_parts(whole, WantedPoint())
    *others, newest = sorted(needed.logs, key=lambda log: log.note().upto_ms)
    assert others
    for log in others:
        bases = [base.path for base in whole.backups if base.path.startswith(f"{log.path}/")]
        assert {bases[0], bases[-1]} <= {base.path for base in needed.backups}
    assert len([base for base in needed.backups if base.path.startswith(f"{newest.path}/")]) == 1


def test_a_restore_of_one_timeline_reads_what_the_others_know_of_seqs(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """Seqs of records that were written in another one were given out again, other than from the directory."""
    send(bucket, archives[3])
    first, second = sorted(log.path for log in look(bucket).logs)

    def opening(url: str, _options: BucketOptions) -> MemoryBucket:
        return MemoryBucket() if url.endswith(first) else bucket

    assert [log.path for log in asyncio.run(look_at_copy(f"{URL}/{first}", OPTIONS, opening)).logs] == [first]
    beside = asyncio.run(look_at_copy(f"{URL}/{first}", OPTIONS, opening, beside=True))
    path, needed = needed_parts(beside, WantedPoint())
    assert (path, sorted(log.path for log in needed.logs)) == (first, [first, second])
    asyncio.run(fetch(needed, str(tmp_path / "fetched"), OPTIONS))
    topics.restore(tmp_path / "fetched" / first, tmp_path / "new", skipped_seqs=1)
    topics.restore(archives[3] / first, tmp_path / "same", skipped_seqs=1)
    new_seqs = []
    for made in ("new", "same"):
        with topics.open(tmp_path / made) as log:
            new_seqs.append(log.append("orders", [{}]).first_seq)
    assert new_seqs[0] == new_seqs[1] > 1000 + 20, "the second timeline began 1,000 seqs above the first one"


def test_the_newest_timeline_of_a_bucket_is_that_of_a_restore(archives: list[Path], bucket: MemoryBucket) -> None:
    """The one that was begun last, and none where an earlier one has later times: the clock was ahead."""
    send(bucket, archives[3])
    copy = look(bucket)
    first, _ = sorted(copy.logs, key=lambda log: log.path)
    note = msgspec.structs.replace(first.note(), upto_ms=UPTO_MAX)
    ahead = msgspec.structs.replace(first, description=pack_description(note).decode())
    copy = copy._replace(logs=[ahead if log is first else log for log in copy.logs])
    with pytest.raises(UsageError, match=f"was begun last .* and {URL}/{first.path} has later times"):
        needed_parts(copy, WantedPoint())
    with pytest.raises(UsageError, match="and the archive begins at"):
        needed_parts(copy, WantedPoint(1))


def test_a_base_without_its_manifest_is_missed(archives: list[Path], bucket: MemoryBucket, tmp_path: Path) -> None:
    for stage in archives[:3]:
        send(bucket, stage)
    assert verify(bucket).findings == []
    whole, bases = dict(bucket.objects), look(bucket).backups
    assert len(bases) > 1
    for removed in (bases[:1], bases[-1:], bases):
        gone = tuple(f"manifests/{base.path}/" for base in removed)
        bucket.objects = {key: data for key, data in whole.items() if not key.startswith(gone)}
        assert verify(bucket).findings == [
            f"{URL}/manifests/{base.path} has no manifest any more, so no restore begins with this base: {REMEDY}"
            for base in removed
        ]
    with pytest.raises(CorruptError, match="is the newest, and its bases are damaged: .* has no manifest any more"):
        needed_parts(look(bucket), WantedPoint())
    send(bucket, archives[2])
    assert verify(bucket).findings == []
    assert restored(bucket, tmp_path / "new") == list(range(15))


def test_a_timeline_without_the_manifest_of_its_log_is_missed(archives: list[Path], bucket: MemoryBucket) -> None:
    """A restore of the end led to that of the timeline before, without a word."""
    send(bucket, archives[3])
    first, second = sorted(log.path for log in look(bucket).logs)
    for key in list(bucket.objects):
        if key.startswith(f"manifests/{second}/") and "/bases/" not in key:
            del bucket.objects[key]
    missed = f"{URL}/manifests/{second} has bases and no manifest of their log: its copy was cut off, or the manifest"
    found = verify(bucket)
    assert (found.findings, [each.startswith(missed) for each in found.incomplete]) == ([], [True])
    assert unlogged_parts(look(bucket)) == found.incomplete
    assert needed_parts(look(bucket), WantedPoint())[0] == first
    send(bucket, archives[3])
    assert verify(bucket).incomplete == []


def test_the_log_of_an_archive_without_a_base_is_not_sound(archives: list[Path], bucket: MemoryBucket) -> None:
    """The base was not finished yet when it was copied."""
    send(bucket, archives[1])
    (log,) = look(bucket).logs
    bucket.objects = {key: data for key, data in bucket.objects.items() if not key.startswith("manifests/")}
    key, data = pack(msgspec.structs.replace(log, bases=[], version=1), 1)
    bucket.objects[str(key)] = data
    assert verify(bucket).findings == [
        f"{URL} has no base yet, so no restore leads there: `topics copy-backup` sends one"
    ]


def test_one_backup_of_a_bucket_is_named_by_its_url(backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, backups[1])
    first, _ = look(bucket).backups
    asked: list[str] = []

    class Below(MemoryBucket):
        async def sizes(self, prefix: str) -> dict[str, int]:
            return {} if len(asked) == 1 else await bucket.sizes(prefix)

        async def get(self, key: str) -> bytes | None:
            return await bucket.get(key)

    found = asyncio.run(look_at_copy(f"{URL}/{first.path}", OPTIONS, lambda url, _: asked.append(url) or Below()))
    assert asked == [f"{URL}/{first.path}", URL]
    assert [each.path for each in found.backups] == [first.path]


def test_a_missing_or_changed_object_is_named_and_nothing_is_made(
    backups: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, backups[0])
    objects = dict(bucket.objects)
    for key, data in objects.items():
        for changed in (None, b"", data[:-1], bytes(len(data))):
            if changed == data:
                continue
            bucket.objects = {**objects, key: changed or b""}
            if changed is None:
                del bucket.objects[key]
                if key.startswith("manifests/"):
                    continue  # there is no copy then
            with pytest.raises(CorruptError, match=f"{URL}/{key} .*`topics copy-backup --reread` sends it again"):
                fetch_all(bucket, tmp_path / "back")
            assert not list((tmp_path / "back").rglob("backup.json"))


def test_a_bucket_that_lists_a_manifest_it_has_not_is_damaged(backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, backups[0])
    (key,) = [key for key in bucket.objects if key.startswith("manifests/")]

    class Lists(MemoryBucket):
        async def sizes(self, prefix: str) -> dict[str, int]:
            return {key: 100}

    with pytest.raises(CorruptError, match="is missing, although the bucket lists it"):
        look(Lists())


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "wal/../../outside"])
def test_a_manifest_that_names_a_path_outside_is_refused(path: str, bucket: MemoryBucket, tmp_path: Path) -> None:
    manifest = BucketManifest(1, "2026-11-27T12-13-14Z", "backup.json", "{}", {path: []})
    key, data = pack(manifest, 1)
    bucket.objects[str(key)] = data
    with pytest.raises(CorruptError, match="which is outside of the copy"):
        fetch_all(bucket, tmp_path / "back")
    key, data = pack(BucketManifest(1, "../up", "backup.json", "{}", {}), 1)
    bucket.objects = {str(ManifestKey("../up", 1, key.sha256)): data}
    with pytest.raises(CorruptError, match="which is outside of the copy"):
        fetch_all(bucket, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_what_is_there_of_another_copy_is_kept_and_refused(
    backups: list[Path], archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, archives[1])
    shutil.copytree(archives[0], tmp_path / "archive")
    with pytest.raises(UsageError, match=r"archive.json is of another copy: use a directory where it is not"):
        fetch_all(bucket, tmp_path / "archive")
    assert filecmp.cmp(*(next(each.glob("*/archive.json")) for each in (archives[0], tmp_path / "archive")))


def test_times_of_a_bucket_with_backups_only_are_refused(backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, backups[0])
    with pytest.raises(UsageError, match="a backup has one time, so leave out --at and --seq"):
        needed_parts(look(bucket), WantedPoint(1))
    with pytest.raises(UsageError, match="has no copy of a backup or an archive"):
        look(MemoryBucket())


def test_a_copy_whose_manifests_were_removed_is_not_said_to_be_none(
    backups: list[Path], archives: list[Path], bucket: MemoryBucket
) -> None:
    """It was said that there is none."""
    for source in (backups[0], archives[0]):
        bucket.objects.clear()
        send(bucket, source)
        for key in [key for key in bucket.objects if key.startswith("manifests/")]:
            del bucket.objects[key]
        with pytest.raises(UsageError, match="has parts of a copy, and no manifests: a first copy was cut off, or"):
            look(bucket)


def test_a_bucket_that_fails_is_distinguished_from_a_damaged_one(backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, backups[0])
    bucket.calls_left = 0
    with pytest.raises(StorageError, match="503 SlowDown") as caught:
        look(bucket)
    assert not isinstance(caught.value, CorruptError)
