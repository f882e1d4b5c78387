"""Backups of a store in use: each is the directory of one instant, whatever happened while it was written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import xxhash

from tests.store.store_world import StoreWorld, small_config
from topics.common.values.backup_result import BackupResult
from topics.errors import CorruptError, RequestError, StorageError, TopicsError, UsageError
from topics.store.archive.archive_note import new_timeline
from topics.store.backup.backup_files import pack_description, remove_tree
from topics.store.backup.backup_manifest import BackupFile, backup_names, read_manifest
from topics.store.backup.capture_copy import Captured
from topics.store.backup.restore_backup import check_backup, copy_backup, find_backup
from topics.store.backup.write_backup import BackupWriter, OwnCopies
from topics.store.checkpoint.capture import Capture
from topics.store.disk.directory_format import CORES, Marker
from topics.store.disk.whole_files import list_if_there
from topics.store.repair.verify_directory import verify

ROOT = "backups"
Answers = list[BackupResult | TopicsError]


def filled(**changes: Any) -> StoreWorld:
    """Sealed segments, an unsealed one, a pack of small topics, deletes in all of them."""
    world = StoreWorld(config=small_config(segment_max_events=10, pack_run_bytes=512, **changes)).open()
    for topic_id in range(1, 4):
        world.create(topic_id)
    for _ in range(4):
        world.append(1, 10, size=100)
        world.append(2, 2)
        world.append(3, 3)
        world.checkpoint()
    world.append(1, 5, size=100)
    world.delete(1, [3, 14])
    world.delete(2, [2])
    return world


def seqs(world: StoreWorld) -> dict[int, list[int]]:
    return {topic_id: sorted(topic.rows) for topic_id, topic in world.catalog.topics.items()}


def backup(world: StoreWorld) -> BackupResult:
    return finished(world, begun(world))


def opened(world: StoreWorld, written: BackupResult) -> StoreWorld:
    """The backup as a data directory, opened on a copy of the disk."""
    ring = world.ring.next_life(power_cut=True)
    return StoreWorld(ring, config=replace(world.config, data_dir=written.path, cold_dir="")).open()


def check_opens_with(world: StoreWorld, written: BackupResult, expected: dict[int, list[int]]) -> None:
    """Open the backup: these records, each with its bytes, and a directory without a fault."""
    again = opened(world, written)
    assert seqs(again) == expected
    again.check_every_record()
    again.close()
    report = again.run(verify(again.loop, again.config.data_dir, ""))
    assert report.sound, report.findings


@pytest.mark.parametrize("named", [False, True])
def test_a_backup_without_its_manifest_is_damaged(named: bool) -> None:
    world = filled()
    backup(world)
    lost = backup(world)
    world.run(world.loop.files.unlink(f"{lost.path}/backup.json"))
    with pytest.raises(CorruptError, match=f"^{lost.path}/backup.json is missing"):
        find_backup(world.loop, lost.path if named else ROOT)


def test_the_newest_backup_has_the_last_name_also_after_the_clock_was_set_back() -> None:
    world = filled()
    world.ring.clock.step_wall_ms(3_600_000)
    ahead = backup(world)
    world.ring.clock.step_wall_ms(-3_600_000)
    later = [backup(world), backup(world)]
    names = backup_names(world.loop.files, ROOT)
    assert [f"{ROOT}/{name}" for name in names] == [ahead.path, *(each.path for each in later)]
    assert [each.taken_ms < ahead.taken_ms for each in later] == [True, True]


def test_a_directory_of_the_last_second_does_not_end_the_names() -> None:
    """A time of the year 10000 was asked for: the call for a backup had no answer."""
    world = filled()
    for path in (ROOT, f"{ROOT}/9999-12-31T23-59-59Z"):
        world.ring.make_directory(path)
    assert [backup(world).path for _ in range(2)] == [f"{ROOT}/9999-12-31T23-59-59Z-{count}" for count in (2, 3)]
    assert new_timeline(world.loop, ["9999-12-31T23-59-59Z-00000000"]).startswith("9999-12-31T23-59-59Z-")


def test_a_backup_that_a_bug_ends_has_an_answer_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller waited forever."""
    world = filled()
    with monkeypatch.context() as patched:
        patched.setattr(BackupWriter, "write", lambda _writer: 1 // 0)
        with pytest.raises(StorageError, match=r"the backup in backups failed by a bug \(ZeroDivisionError"):
            backup(world)
    assert "ZeroDivisionError" in caplog.text
    backup(world)


def test_a_backup_opens_with_all_that_was_acknowledged_before_it() -> None:
    world = filled()
    expected = seqs(world)
    written = backup(world)
    world.append(1, 3)
    check_opens_with(world, written, expected)


def backups_in(world: StoreWorld) -> list[str]:
    return list_if_there(world.loop.files, ROOT)


def begun(world: StoreWorld, root: str = ROOT) -> Answers:
    """A backup whose instant has passed: it copies, or has ended."""
    answers: Answers = []
    world.store.backups.begin(root, answers.append)
    world.loop.run_until(lambda: bool(answers) or world.store.backups._writer is not None)
    return answers


def finished(world: StoreWorld, answers: Answers) -> BackupResult:
    world.loop.run_until(lambda: bool(answers))
    (answer,) = answers
    if isinstance(answer, TopicsError):
        raise answer
    return answer


def test_what_is_deleted_while_a_backup_is_written_is_still_in_it() -> None:
    world = filled()
    expected = seqs(world)
    task = begun(world)
    world.delete(1, [1, 2, 12, 22, 41])
    world.delete(2, [1])
    world.drop(3)
    for _ in range(3):
        world.append(1, 10, size=100)
        world.checkpoint()
    check_opens_with(world, finished(world, task), expected)


def test_a_delete_of_the_time_in_which_a_backup_was_written_is_in_the_next_one_only() -> None:
    world = filled()
    captures: list[Capture] = []
    world.run(world.store.checkpointer.run(on_captured=captures.append))
    before = seqs(world)
    world.delete(1, [1, 12, 22])
    world.delete(3, [2])
    world.drop(2)
    world.checkpoint()  # sets flags in files that were not copied yet
    world.run(world.loop.sleep(3_000_000_000))
    captured = Captured(captures[0], Marker(captures[0].format_number, CORES))
    first = world.run(BackupWriter(world.loop, OwnCopies(world.loop, [captured], lambda: False), ROOT).write())
    captures[0].release()
    for made, expected in ((first, before), (backup(world), seqs(world))):
        check_opens_with(world, made, expected)


def test_a_file_that_has_not_changed_is_copied_once() -> None:
    world = filled()
    world.run(world.loop.sleep(3_000_000_000))
    first = backup(world)
    world.delete(1, [4])
    world.append(1, 1)
    second = backup(world)
    assert first.linked_files == 0
    assert second.linked_files > 0
    assert second.copied_bytes < first.copied_bytes
    expected = seqs(world)
    world.delete(1, [25])
    world.checkpoint()
    third = backup(world)
    for written, seqs_of_it in ((second, expected), (third, seqs(world))):
        check_opens_with(world, written, seqs_of_it)


def test_each_backup_is_whole_without_those_before() -> None:
    world = filled()
    world.run(world.loop.sleep(3_000_000_000))
    first, expected = backup(world), seqs(world)
    second = backup(world)
    world.run(remove_tree(world.loop.files, first.path))
    assert backup_names(world.loop.files, ROOT) == [second.path.removeprefix(f"{ROOT}/")]
    check_opens_with(world, second, expected)


def test_after_the_machine_went_down_all_is_copied_again() -> None:
    world = filled()
    world.run(world.loop.sleep(3_000_000_000))
    backup(world)
    world = world.next_life(power_cut=True)
    assert backup(world).linked_files == 0


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "make_directory"])
def test_a_target_that_fails_leaves_no_backup_and_does_not_harm_the_log(kind: str) -> None:
    world = filled()
    world.ring.faults.fail(kind, errno.ENOSPC, path_part=ROOT, nth=2 if kind in ("open", "write") else 1)
    with pytest.raises(StorageError, match=r"could not be written: backups.*No space"):
        backup(world)
    world.passes(20)
    assert backups_in(world) == []
    assert [file.path for file in world.store.files if file.readers] == []
    assert not world.store.log.read_only
    world.append(1, 1)
    assert seqs(opened(world, backup(world))) == seqs(world)


def test_a_backup_that_was_killed_is_removed_by_the_next() -> None:
    world = filled()
    begun(world)
    world.loop.run_until(lambda: bool(backups_in(world)))
    (left,) = backups_in(world)
    assert left.endswith(".partial")
    world = world.next_life()
    written = backup(world)
    assert backups_in(world) == [written.path.removeprefix(f"{ROOT}/")]


def test_a_log_leaves_alone_what_another_one_writes_in_the_same_directory() -> None:
    """Two servers with one directory of backups: one of them is refused, and neither backup is damaged."""
    world = filled()
    world.ring.put_file(f"{ROOT}/2026-01-01T00-00-00Z.partial/topics.json", b"of another log")
    lock = world.ring.lock(f"{ROOT}/2026-01-01T00-00-00Z.partial/lock")
    with pytest.raises(StorageError, match="another log is being backed up to backups: name a directory of its own"):
        backup(world)
    assert backups_in(world) == ["2026-01-01T00-00-00Z.partial"]
    world.ring.unlock(lock)
    written = backup(world)
    assert backups_in(world) == [written.path.removeprefix(f"{ROOT}/")]
    check_opens_with(world, written, seqs(world))


def test_a_backup_holds_no_file_once_it_has_ended() -> None:
    world = filled()
    backup(world)
    world.ring.faults.fail("write", errno.EIO, path_part=ROOT)
    with pytest.raises(StorageError, match="Input/output"):
        backup(world)
    assert [file.path for file in world.store.files if file.readers] == []


def test_one_backup_at_a_time_and_none_in_the_log_itself() -> None:
    world = filled()
    task = begun(world)
    with pytest.raises(RequestError, match="another backup is being written"):
        backup(world)
    finished(world, task)
    for root in ("data", "data/backups"):
        with pytest.raises(UsageError, match="backups cannot be in data"):
            finished(world, begun(world, root))


def test_no_backup_is_made_in_the_archive_of_another_log() -> None:
    world = filled()
    world.ring.make_directory("archives")
    world.ring.make_directory("archives/2026-11-27T12-13-14Z-5f3a9c01")
    for root in ("archives", "archives/backups"):
        with pytest.raises(UsageError, match="cannot be in .*archives, which is an archive: name a directory"):
            finished(world, begun(world, root))
    assert world.ring.list_directory("archives") == ["2026-11-27T12-13-14Z-5f3a9c01"]


def test_a_log_that_is_closed_ends_its_backup() -> None:
    world = filled()
    task = begun(world)
    world.close()
    with pytest.raises(StorageError, match="the log is being closed"):
        finished(world, task)
    assert backups_in(world) == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_segments_of_the_cold_directory_are_in_the_backup(codec: str) -> None:
    world = filled(cold_dir="cold", hot_retain_segments=1, segment_codec=codec)
    world.checkpoint()
    assert world.ring.disk.list_directory("cold/topics/0000000000000001")
    expected = seqs(world)
    task = begun(world)
    world.delete(1, [1, 2])
    world.checkpoint()
    again = opened(world, finished(world, task))
    assert seqs(again) == expected
    again.check_every_record()
    again.delete(1, [5])
    again.checkpoint()
    again.check_every_record()
    again.close()
    report = again.run(verify(again.loop, again.config.data_dir, ""))
    assert report.sound, report.findings


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_segment_that_was_moved_and_is_still_read_is_in_the_backup_as_it_is_listed(codec: str) -> None:
    """The copy had the file of before, which is not compressed and has no deletes of after the move."""
    world = StoreWorld(
        config=small_config(segment_max_events=10, cold_dir="cold", hot_retain_segments=0, segment_codec=codec)
    ).open()
    world.create(1)
    world.append(1, 40, size=100)
    world.run(world.store.checkpointer.run(moves=False))
    read = world.store.files[world.topic(1).rows[5].file_id]
    read.hold()
    world.checkpoint()
    assert read.is_awaited
    assert not read.cold
    world.delete(1, [5, 6])
    world.checkpoint()
    check_opens_with(world, backup(world), seqs(world))
    read.release()


def test_compressed_segments_of_a_backup_move_to_a_cold_directory_as_they_are() -> None:
    world = filled(cold_dir="cold", hot_retain_segments=1, segment_codec="zstd")
    world.checkpoint()
    written = backup(world)
    config = replace(world.config, data_dir=written.path, cold_dir="cold-again")
    again = StoreWorld(world.ring.next_life(power_cut=True), config=config).open()
    again.append(1, 10, size=100)
    again.checkpoint()
    again.passes(60)
    assert again.ring.disk.list_directory("cold-again/topics/0000000000000001")
    again.check_every_record()
    again = again.next_life()
    again.check_every_record()


def test_the_manifest_states_every_file_with_its_checksum() -> None:
    world = filled()
    written = backup(world)
    directory = written.path
    manifest = world.run(read_manifest(world.loop.files, directory))
    found = world.ring.disk.contents(directory)
    files = {path.removeprefix(f"{directory}/"): data for path, data in found.items() if data is not None}
    del files["backup.json"]
    listed = {file.path: (file.bytes, file.xxh3) for file in manifest.files}
    assert listed == {name: (len(data), xxhash.xxh3_64_hexdigest(data)) for name, data in files.items()}
    assert world.run(check_backup(world.loop, directory)) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda files: [*files, BackupFile("../evil", 5, "0" * 16)],
            r"lists '\.\./evil', which is no file of a backup",
        ),
        (lambda files: [*files, BackupFile("wal/../../evil", 5, "0" * 16)], ".*no file of a backup"),
        (lambda files: [*files, BackupFile("/etc/evil", 5, "0" * 16)], ".*no file of a backup"),
        (lambda files: [*files, BackupFile("backup.json", 5, "0" * 16)], ".*no file of a backup"),
        (lambda files: [*files, files[0]], "lists a file twice"),
        (lambda files: [BackupFile(file.path, -1, file.xxh3) for file in files], ".*with -1 bytes"),
        (lambda files: [BackupFile(file.path, file.bytes, "../../") for file in files], r".*the checksum '\.\./\.\./'"),
        (lambda _files: [], "lists no snapshot of a log"),
        (lambda files: [file for file in files if not file.path.startswith("snapshots")], "lists no snapshot"),
    ],
)
def test_a_manifest_that_no_backup_has_is_refused_although_its_checksum_is_right(
    change: Callable[[list[BackupFile]], list[BackupFile]], why: str
) -> None:
    world = filled()
    written = backup(world)
    manifest = world.run(read_manifest(world.loop.files, written.path))
    changed = msgspec.structs.replace(manifest, files=change(manifest.files))
    world.ring.put_file(f"{written.path}/backup.json", pack_description(changed))
    world.ring.put_file(f"{ROOT}/evil", b"owned")
    for use in (check_backup(world.loop, written.path), copy_backup(world.loop, written.path, "new")):
        with pytest.raises(CorruptError, match=rf"backup\.json {why}.*Use another backup"):
            world.run(use)
    assert "new" not in world.ring.disk.list_directory(".")


@pytest.mark.parametrize(
    "text", [b'{"version":1,"taken_ms":"\xff"}', b'{"version":1', b"", b"\xff", b'{"version":1,"taken_ms":-5}']
)
def test_every_kind_of_damage_to_a_manifest_is_reported_as_such(text: bytes) -> None:
    """With its checksum computed anew, too: no decoder's own exception comes through."""
    world = filled()
    written = backup(world)
    whole = text.removesuffix(b"}")
    for data in (text, whole + b',"xxh3":"' + xxhash.xxh3_64_hexdigest(whole).encode() + b'"}'):
        world.ring.put_file(f"{written.path}/backup.json", data)
        with pytest.raises(CorruptError, match=r"backup\.json (does not match its checksum|is damaged)"):
            world.run(read_manifest(world.loop.files, written.path))


def test_a_file_that_a_manifest_does_not_list_is_found() -> None:
    world = filled()
    written = backup(world)
    world.ring.put_file(f"{written.path}/packs/pack-00000000000000ff.data", b"")
    world.ring.put_file(f"{written.path}/other/file", b"")
    world.ring.put_file(f"{written.path}/lock", b"")
    assert world.run(check_backup(world.loop, written.path)) == [
        f"{written.path}/other is not in the list of the backup: no restore copies it",
        f"{written.path}/packs/pack-00000000000000ff.data is not in the list of the backup: no restore copies it",
    ]
