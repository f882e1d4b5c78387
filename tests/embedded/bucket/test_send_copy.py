"""A bucket leads to a whole state, whatever fails and wherever the copy is killed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.amount import stride
from tests.embedded.bucket.copied_places import OPTIONS, fetch_all, look, restored, send, verify
from tests.embedded.bucket.memory_bucket import KilledError, MemoryBucket
from topics.embedded.bucket.bucket_manifest import BucketManifest, piece_bytes
from topics.embedded.bucket.copied_tree import copied_trees
from topics.embedded.bucket.send_copy import CopySender
from topics.errors import CorruptError, StorageError, UsageError
from topics.store.archive.archive_note import NOTE_VERSION, ArchiveNote, ShardEnd
from topics.store.archive.archived_log import archived_name
from topics.store.backup.backup_files import pack_description, unpack_description
from topics.store.backup.backup_manifest import MANIFEST_VERSION, BackupManifest
from topics.store.format.log_format import wal_file_no


def manifests(bucket: MemoryBucket) -> set[str]:
    return {key for key in bucket.objects if key.startswith("manifests/")}


def test_a_copy_of_backups_leads_to_the_newest_and_sends_only_what_is_new(
    backups: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    first = send(bucket, backups[0])
    assert (first.backups, first.objects) == (1, len([key for key in bucket.objects if key.startswith("pieces/")]))
    assert restored(bucket, tmp_path / "new") == [1] * 5
    assert send(bucket, backups[0]).objects == 0
    second = send(bucket, backups[1])
    assert second.backups == 1
    assert restored(bucket, tmp_path / "new") == [1] * 5 + [2] * 5
    assert verify(bucket).findings == []


def test_a_copy_of_an_archive_follows_it_and_leads_to_its_end(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage, count in zip(archives, (5, 10, 15, 20), strict=True):
        send(bucket, stage)
        assert restored(bucket, tmp_path / "new") == list(range(count))
        assert verify(bucket).findings == []
    logs = [key for key in manifests(bucket) if "/bases/" not in key]
    assert len(logs) == 3, "two of the timeline that grew, one of the other"


def test_a_log_that_grows_is_sent_in_few_pieces_and_few_times(tmp_path: Path, archives: list[Path]) -> None:
    """The note is moved through the log of a whole archive, a block at a time."""
    log = GrowingLog(archives[1], tmp_path / "archive")
    bucket = MemoryBucket()
    sender, sent, sizes = CopySender(bucket, str(log.source), OPTIONS), 0, range(4096, log.end.size + 1, 4096)
    for size in sizes:
        log.end_at(size)
        sent += asyncio.run(sender.step()).bytes
    assert len(sizes) > 20
    (manifest,) = look(bucket).logs
    pieces = manifest.files[log.name]
    assert len(pieces) <= 8
    once = sum(len(data) for key, data in bucket.objects.items() if key.startswith("pieces/"))
    once += sum(piece_bytes(piece) for name in manifest.files for piece in manifest.files[name] if name < log.name)
    assert sent - once <= 6 * sizes[-1]


def test_a_step_of_one_process_reads_back_only_the_manifest_that_it_has_written(
    archives: list[Path], tmp_path: Path
) -> None:
    log, bucket = GrowingLog(archives[1], tmp_path / "archive"), MemoryBucket()
    sender = CopySender(bucket, str(log.source), OPTIONS)
    for size in range(4096, 8 * 4096, 4096):
        log.end_at(size)
        bucket.calls.clear()
        asyncio.run(sender.step())
        read = [key for action, key in bucket.calls if action == "get" and "/bases/" not in key]
        assert len(read) == 1
        manifests = [key for key in bucket.objects if key.startswith("manifests/") and "/bases/" not in key]
        assert len(manifests) <= 2
    check_whole(bucket, log.source, "all of it")


@pytest.mark.parametrize("whole_files", [256, 0], ids=["whole", "additions"])
@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
def test_parts_of_a_log_that_larger_ones_replace_leave_after_all_that_names_them(
    done_first: bool, whole_files: int, tmp_path: Path, archives: list[Path]
) -> None:
    """Killed at any call of five steps."""
    log = GrowingLog(archives[1], tmp_path / "archive")
    objects: dict[str, bytes] = {}
    removed = 0
    for size in (4096, 8192, 12288, 20480, log.end.size):
        log.end_at(size)
        calls = 0
        while True:
            bucket = MemoryBucket()
            bucket.objects, bucket.calls_left, bucket.done_first = dict(objects), calls, done_first
            ended = outcome(lambda bucket=bucket: send(bucket, log.source, whole_files=whole_files))
            removed += len(objects.keys() - bucket.objects.keys())
            bucket.calls_left = None
            check_whole(bucket, log.source, f"size {size}, call {calls}")
            if bucket.objects.keys() & objects.keys() == objects.keys() and size > 4096:
                assert verify(bucket).findings == []
            if ended is None:
                assert verify(bucket).findings == []
                break
            calls += stride(1)
        objects = bucket.objects
    assert removed


class ManyFiles:
    """A timeline with a base and more and more log files of one block, of which the last one grows."""

    def __init__(self, archive: Path, source: Path) -> None:
        self._log = GrowingLog(archive, source)
        self.source = source
        (self._path,) = source.glob("*/archive.json")
        self._directory = self._path.parent / "log" / "shard-00"
        self._last = self._log.end.file_no
        self._upto_ms = 0

    def grow(self, count: int) -> None:
        for _ in range(count):
            self._last += 1
            (self._directory / Path(archived_name(0, self._last)).name).write_bytes(self._last.to_bytes(4096, "little"))
        self._upto_ms += 1
        shards = {0: ShardEnd(self._last, 4096, 1)}
        self._path.write_bytes(pack_description(ArchiveNote(upto_ms=self._upto_ms, shards=shards)))


def test_a_step_writes_what_is_new_and_not_the_names_of_all_files(tmp_path: Path, archives: list[Path]) -> None:
    log, bucket = ManyFiles(archives[1], tmp_path / "archive"), MemoryBucket()
    log.grow(1000)
    sender, written = CopySender(bucket, str(log.source), OPTIONS), list[int]()
    for _ in range(60):
        asyncio.run(sender.step())
        (newest,) = logs_of(bucket)
        assert newest.note().shards[0].file_no in {wal_file_no(Path(name).name) for name in newest.files}
        stored = max(key for key in manifests(bucket) if "/bases/" not in key)
        written.append(len(bucket.objects[stored]))
        assert len(manifests(bucket)) <= 5, "a base's, two of the log, and what they add to"
        log.grow(1)
    assert written[0] > 100_000
    folds = [size for size in written[1:] if size > 100_000]
    assert len(folds) == 1, "an addition has up to the root of twice as many files"
    assert sum(written[1:]) - sum(folds) < 3 * written[0]
    assert len(logs_of(bucket)[0].files) >= 1059


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
def test_a_copy_that_folds_its_additions_is_whole_after_every_call(
    done_first: bool, tmp_path: Path, archives: list[Path]
) -> None:
    log = ManyFiles(archives[1], tmp_path / "archive")
    log.grow(30)
    objects: dict[str, bytes] = {}
    added = whole = 0
    for step in range(12):
        calls = 0
        while True:
            bucket = MemoryBucket()
            bucket.objects, bucket.calls_left, bucket.done_first = dict(objects), calls, done_first
            ended = outcome(lambda bucket=bucket: send(bucket, log.source, whole_files=0))
            bucket.calls_left = None
            check_whole(bucket, log.source, f"call {calls}")
            found = [manifest.note().upto_ms for manifest in logs_of(bucket)]
            assert max(found, default=0) >= step, "it leads as far as after the last step"
            if ended is None:
                break
            calls += stride(1)
        objects = bucket.objects
        stored = max(key for key in manifests(bucket) if "/bases/" not in key)
        is_added = bool(msgspec.json.decode(objects[stored], type=BucketManifest).adds_to)
        added, whole = added + is_added, whole + (not is_added)
        log.grow(1)
    assert added > 5
    assert whole >= 2


def test_an_addition_without_its_whole_manifest_is_damage(tmp_path: Path, archives: list[Path]) -> None:
    log, bucket = ManyFiles(archives[1], tmp_path / "archive"), MemoryBucket()
    log.grow(30)
    send(bucket, log.source, whole_files=0)
    (whole,) = [key for key in manifests(bucket) if "/bases/" not in key]
    log.grow(1)
    send(bucket, log.source, whole_files=0)
    good = bucket.objects.pop(whole)
    with pytest.raises(CorruptError, match="is missing, although the bucket lists it"):
        look(bucket)
    bucket.objects[whole] = good[:-1]
    with pytest.raises(CorruptError, match="does not match the SHA-256 in its name"):
        look(bucket)
    log.grow(1)
    send(bucket, log.source, whole_files=0)
    assert len(look(bucket).logs[0].files) >= 33, "it is made anew of the directory"


def note_of(path: Path) -> ArchiveNote:
    return unpack_description(path.read_bytes(), str(path), ArchiveNote, NOTE_VERSION, "")


class GrowingLog:
    """A copy of an archive whose note is moved through its largest log file."""

    def __init__(self, archive: Path, source: Path) -> None:
        shutil.copytree(archive, source)
        self.source = source
        (self._path,) = source.glob("*/archive.json")
        # A close may have begun another file, which has next to nothing.
        *_, largest = sorted(source.glob("*/log/shard-00/*.log"), key=lambda path: path.stat().st_size)
        file_no = wal_file_no(largest.name)
        assert file_no is not None
        for later in largest.parent.iterdir():
            if later.name > largest.name:
                later.unlink()
        self.end = ShardEnd(file_no, largest.stat().st_size, note_of(self._path).shards[0].batch_no)
        self.name = archived_name(0, self.end.file_no)
        self._upto_ms = 0

    def end_at(self, size: int) -> None:
        """Have the archive end at this byte of the file."""
        self._upto_ms += 1
        shards = {0: ShardEnd(self.end.file_no, size, self.end.batch_no)}
        self._path.write_bytes(pack_description(ArchiveNote(upto_ms=self._upto_ms, shards=shards)))


@pytest.mark.parametrize("what", ["backups", "archives"])
@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
def test_a_copy_that_ends_at_any_call_leaves_what_was_there_and_continues(
    what: str,
    done_first: bool,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """Killed between any two calls, or one of them failing: the bucket leads to a whole state."""
    stages: list[Path] = request.getfixturevalue(what)[-2:]
    known: dict[frozenset[str], list[int]] = {}
    states = [list[int]()]
    whole = MemoryBucket()
    for stage in stages:
        send(whole, stage)
        states.append(restored(whole, tmp_path / "new"))
    before = MemoryBucket()
    for at, stage in enumerate(stages):
        calls = 0
        while True:
            bucket = MemoryBucket()
            bucket.objects = dict(before.objects)
            bucket.calls_left, bucket.done_first = calls, done_first
            if done_first:
                bucket.error = KilledError
            ended = outcome(lambda bucket=bucket, stage=stage: send(bucket, stage))
            bucket.calls_left = None
            assert isinstance(ended, type(None) | KilledError | StorageError)
            check_whole(bucket, stage, f"call {calls}")
            has = frozenset(manifests(bucket))
            if has not in known:
                known[has] = state(bucket, tmp_path / "new")
            assert known[has] in states[at : at + 2], f"call {calls}"
            if known[has]:
                assert verify(bucket).findings == [], f"call {calls}"
            if ended is None:
                break
            again = send(bucket, stage)
            assert again.objects <= len(bucket.objects)
            assert verify(bucket).findings == []
            has = frozenset(manifests(bucket))
            if has not in known:
                known[has] = state(bucket, tmp_path / "new")
            assert known[has] == states[at + 1]
            calls += stride(1)
        assert calls > 5
        before = bucket


def check_whole(bucket: MemoryBucket, source: Path, where: str) -> None:
    """Check that the bucket has all that any manifest names, and the bases that a note relies on."""
    for name in manifests(bucket):
        manifest = msgspec.json.decode(bucket.objects[name], type=BucketManifest)
        assert manifest.piece_keys() <= bucket.objects.keys(), where
    for tree in copied_trees(str(source)):
        if tree.log is not None and any(tree.log.text == log.description for log in logs_of(bucket)):
            assert {base.path for base in tree.backups} <= {base.path for base in look(bucket).backups}, where


def logs_of(bucket: MemoryBucket) -> list[BucketManifest]:
    """Return the logs of the newest manifests; none before the first one is whole."""
    try:
        return look(bucket).logs
    except UsageError:
        return []


def outcome(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def state(bucket: MemoryBucket, to: Path) -> list[int]:
    """Return the numbers of the records that a bucket leads to; none if it refuses."""
    try:
        return restored(bucket, to)
    except UsageError:
        return []


def test_a_bucket_that_stores_other_bytes_is_found_by_reading_back_and_mended(
    backups: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, backups[0])
    key = next(key for key, data in bucket.objects.items() if key.startswith("pieces/") and len(data) > 100)
    good = bucket.objects[key]
    bucket.objects[key] = bytes(reversed(good))
    assert send(bucket, backups[0]).objects == 0, "its size is right"
    assert verify(bucket).findings == [f"{bucket.url}/{key} does not match the SHA-256 in its name"]
    with pytest.raises(
        CorruptError, match=f"{key} does not match the SHA-256 in its name: `topics copy-backup --reread`"
    ):
        restored(bucket, tmp_path / "new")
    assert send(bucket, backups[0], rereads=True).objects == 1
    assert bucket.objects[key] == good
    bucket.objects[key] = b""
    assert send(bucket, backups[0]).objects == 1, "its size is wrong"
    del bucket.objects[key]
    assert send(bucket, backups[0]).objects == 1
    assert bucket.objects[key] == good


def test_a_log_whose_pieces_were_damaged_is_sent_again(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, archives[0])
    for key in [key for key in bucket.objects if key.startswith("logs/")]:
        bucket.objects[key] = bytes(len(bucket.objects[key]))
    assert send(bucket, archives[0], rereads=True).objects > 0
    assert restored(bucket, tmp_path / "new") == list(range(5))


def test_a_bucket_that_changes_what_it_stores_gets_no_manifest(backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, backups[0])
    before = dict(bucket.objects)
    bucket.damage = lambda _key, data: data[:-1]
    with pytest.raises(CorruptError, match=r"took \d+ bytes, and is with \d+ bytes in the bucket's list"):
        send(bucket, backups[1])
    bucket.damage = lambda _key, data: bytes(len(data))
    with pytest.raises(CorruptError, match="was sent, and has other bytes: the bucket is damaged: use another one"):
        send(bucket, backups[1], rereads=True)
    bucket.damage = lambda key, data: data[:-1] if key.startswith("manifests/") else data
    with pytest.raises(CorruptError, match=r"manifests/.* was sent, and has other bytes.*is as it was"):
        send(bucket, backups[1])
    assert manifests(bucket) == {key for key in before if key.startswith("manifests/")}
    assert before.items() <= bucket.objects.items()


def test_a_bucket_with_a_short_list_gets_no_manifest(archives: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, archives[0])
    before = manifests(bucket)
    bucket.hidden = lambda key: key.startswith("logs/")
    with pytest.raises(CorruptError, match="is not in the bucket's list"):
        send(bucket, archives[1])
    bucket.hidden = lambda key: key.startswith("manifests/") and "/bases/" not in key
    with pytest.raises(StorageError, match="does not list the manifests that this process left"):
        send(bucket, archives[1])
    assert manifests(bucket) == before


def test_two_processes_that_copy_to_one_prefix_are_noticed(archives: list[Path], bucket: MemoryBucket) -> None:
    first = CopySender(bucket, str(archives[0]), OPTIONS)
    asyncio.run(first.step())
    send(bucket, archives[1])
    note = next(archives[0].glob("*/archive.json"))
    assert note.exists()
    second = CopySender(bucket, str(archives[2]), OPTIONS)
    second._seen = first._seen  # as if it had looked at the same time as the first
    with pytest.raises(StorageError, match="another one copies to the same prefix"):
        asyncio.run(second.step())
    assert verify(bucket).findings == []
    asyncio.run(second.step())
    assert verify(bucket).findings == []


def test_an_archive_older_than_its_copy_is_refused(archives: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, archives[1])
    with pytest.raises(UsageError, match="is newer than .*: use another prefix"):
        send(bucket, archives[0])


def test_another_backup_of_the_same_name_is_refused(backups: list[Path], bucket: MemoryBucket, tmp_path: Path) -> None:
    send(bucket, backups[0])
    other = tmp_path / "other"
    shutil.copytree(backups[0], other)
    (manifest,) = other.glob("*/backup.json")
    found = unpack_description(manifest.read_bytes(), "", BackupManifest, MANIFEST_VERSION, "")
    found.boot = "another"
    manifest.write_bytes(pack_description(found))
    with pytest.raises(UsageError, match="has another backup with the name .*: use a prefix for each server"):
        send(bucket, other)


def test_a_damaged_or_missing_file_of_a_backup_is_named_and_not_copied(
    backups: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(backups[0], source)
    (snapshot, *_) = source.rglob("snapshot-*")
    data = snapshot.read_bytes()
    snapshot.write_bytes(bytes(len(data)))
    with pytest.raises(CorruptError, match=f"{snapshot} is not what backup.json says: `topics verify"):
        send(bucket, source)
    snapshot.unlink()
    with pytest.raises(StorageError, match=f"{snapshot} is missing: it was removed while it was copied, or"):
        send(bucket, source)
    assert manifests(bucket) == set()


@pytest.mark.parametrize("name", ["*/archive.json", "*/log/*/wal-*", "*/bases/*/backup.json", "*/bases/*/snapshots/*"])
def test_a_pipe_in_an_archive_is_named_and_not_waited_for(
    name: str, archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    """A copy waited forever for the first byte of it."""
    source = tmp_path / "source"
    shutil.copytree(archives[0], source)
    (*_, path) = sorted(source.glob(name))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptError, match=f"^{path} is no regular file: `topics verify` shows all damage"):
        send(bucket, source)


def test_files_that_the_archive_removed_stay_in_the_bucket(
    archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, archives[1])
    source = tmp_path / "archive"
    shutil.copytree(archives[2], source)
    for base in sorted(source.glob("*/bases/*Z"))[:1]:
        shutil.rmtree(base)
    send(bucket, source)
    assert verify(bucket).findings == []
    assert fetch_all(bucket, tmp_path / "all") > 0
    assert len(list((tmp_path / "all").glob("*/bases/*Z"))) >= 2


def test_a_directory_without_a_backup_is_refused(tmp_path: Path, bucket: MemoryBucket) -> None:
    with pytest.raises(
        UsageError, match="is .*, and there is no backup and no archive in it: name the directory of one"
    ):
        send(bucket, tmp_path)
    assert bucket.calls == []
