"""A backup of a stopped directory of several cores: of one instant, verified, and restored to as many cores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import topics
from tests.embedded.bucket.copied_places import fetch_all, send
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.engine.harness import Answer
from tests.engine.harness import records as rows
from topics.cli.root_command import app
from topics.common.values.backup_result import BackupResult
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.embedded.stopped_cores import backed_up_cores
from topics.engine.moves.set_cores import set_cores
from topics.engine.state.append_request import AppendRequest
from topics.engine.stored_engine import StoredEngine
from topics.loop.loop import Loop
from topics.store.backup.backup_files import unpack_description
from topics.store.backup.backup_manifest import MANIFEST_VERSION, BackupManifest
from topics.store.cores.core_directories import CoreDirectories, core_config, read_cores
from topics.store.disk.data_directory import lock_directory

NAMES = [f"t{number}" for number in range(9)]
CORES = 3


def config_of(path: Path) -> Config:
    return Config(data_dir=str(path), io="portable")


def given_cores(path: Path, cores: int) -> CoreDirectories | None:
    with own_loop(config_of(path)) as loop:
        return loop.run_task(set_cores(loop, config_of(path), cores))


def layout_of(path: Path) -> CoreDirectories:
    with own_loop(config_of(path)) as loop:
        found = loop.run_task(read_cores(loop.files, str(path)))
    assert found is not None
    return found


@contextmanager
def a_core(path: Path, core: int) -> Iterator[tuple[Loop, StoredEngine]]:
    """A core of a directory, opened, and killed."""
    cores = layout_of(path)
    config = core_config(config_of(path), core)
    with own_loop(config) as loop:
        directory = lock_directory(loop.ring, config, core=core, number=cores.number_of(core))
        yield loop, loop.run_task(StoredEngine.open(loop, config, directory=directory))
        directory.release()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with records in segments and packs."""
    path = tmp_path / "data"
    with topics.open(path, io="portable", pack_run_bytes=2048, segment_max_events=50) as log:
        for number, name in enumerate(NAMES):
            log.append(name, [{"n": each} for each in range(10 + 100 * (number % 2))])
    given_cores(path, CORES)
    return path


def backed_up(data: Path, to: Path) -> BackupResult:
    made = backed_up_cores(config_of(data), to)
    assert made is not None
    return made


def records_of(data: Path) -> dict[str, list[object]]:
    """The records of a copy, which is given one core."""
    copy = data.with_name("copy")
    shutil.copytree(data, copy)
    given_cores(copy, 1)
    with topics.open(copy, io="portable") as log:
        found = {name: [record.data for record in log.read(name, on_gap="skip")] for name in NAMES}
    shutil.rmtree(copy)
    return found


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_a_backup_is_restored_to_as_many_cores_and_no_seq_is_given_out_twice(data: Path, tmp_path: Path) -> None:
    wanted = records_of(data)
    assert {len(records) for records in wanted.values()} == {10, 110}
    made = backed_up(data, tmp_path / "backups")
    assert topics.verify_backup(made.path).sound
    restored = topics.restore(tmp_path / "backups", tmp_path / "new", skipped_seqs=1000)
    assert (restored.topics, restored.records, restored.backup) == (len(NAMES), 4 * 110 + 5 * 10, made.path)
    assert records_of(tmp_path / "new") == wanted
    assert topics.fsck(tmp_path / "new").sound
    was, new = layout_of(data), layout_of(tmp_path / "new")
    assert (new.slots, new.stored.numbers, new.damage) == (was.slots, was.stored.numbers, [])
    assert new.stored.id != was.stored.id, "a core directory of one of them would pass for the other's"
    for cores in (2, 1):
        given_cores(tmp_path / "new", cores)
    with topics.open(tmp_path / "new", io="portable") as log:
        assert [log.append(name, [1]).last_seq for name in ("t0", "t1")] == [1011, 1111]


def write_two(loop: Loop, stored: StoredEngine, name: str) -> None:
    answer = Answer()
    stored.engine.append(AppendRequest(name, rows(1, 2)), answer)
    loop.run_until(lambda: answer.given)
    answer.get()


def test_records_that_are_only_in_the_log_of_a_core_that_was_killed_are_in_it(data: Path, tmp_path: Path) -> None:
    slots = layout_of(data).slots
    for core in range(CORES):
        name = next(name for name in NAMES if slots.core_of(name) == core)
        with a_core(data, core) as (loop, stored):
            write_two(loop, stored, name)
    made = backed_up(data, tmp_path / "backups")
    assert topics.restore(made.path, tmp_path / "new").records == 4 * 110 + 5 * 10 + 2 * CORES


def test_what_has_not_changed_is_shared_with_the_backup_before(data: Path, tmp_path: Path) -> None:
    for file in (*data.rglob("*.data"), *data.rglob("packs/*")):
        os.utime(file, (1, 1))  # one that has just been written may be written again, and is copied
    first = backed_up(data, tmp_path / "backups")
    second = backed_up(data, tmp_path / "backups")
    assert (first.linked_files, second.linked_files >= 4) == (0, True)
    assert second.copied_bytes < first.copied_bytes
    assert topics.verify_backup(second.path).sound
    given_cores(data, 2)
    third = backed_up(data, tmp_path / "backups")
    shutil.rmtree(first.path)
    shutil.rmtree(second.path)
    assert topics.verify_backup(third.path).sound
    topics.restore(tmp_path / "backups", tmp_path / "new")
    assert layout_of(tmp_path / "new").slots.cores == 2


def test_what_it_lists_is_a_manifest_that_older_versions_refuse(data: Path, tmp_path: Path) -> None:
    text = Path(backed_up(data, tmp_path / "backups").path, "backup.json").read_bytes()
    with pytest.raises(topics.FormatError, match="has version 2, and this build knows 1"):
        unpack_description(text, "backup.json", BackupManifest, MANIFEST_VERSION, "")
    manifest = unpack_description(text, "backup.json", BackupManifest, MANIFEST_VERSION + 1, "")
    assert manifest.logs == ["core-00/", "core-01/", "core-02/"]


def test_damage_of_what_cores_share_and_of_each_is_found_and_not_restored(data: Path, tmp_path: Path) -> None:
    made = Path(backed_up(data, tmp_path / "backups").path)
    names = ["slot-map", "topics.json", "core-01/topics.json"]
    names += [name for name in contents(made) if name.startswith("core-02/") and name.endswith(".data")][:1]
    for name in names:
        was = (made / name).read_bytes()
        (made / name).write_bytes(bytes([was[0] ^ 1, *was[1:]]))
        assert not topics.verify_backup(made).sound, name
        with pytest.raises(topics.CorruptError):
            topics.restore(made, tmp_path / "new")
        (made / name).write_bytes(was)
    (made / "core-01").rename(tmp_path / "away")
    assert any("core-01 is missing" in each for each in topics.verify_backup(made).findings)
    with pytest.raises(topics.CorruptError):
        topics.restore(made, tmp_path / "new")
    assert not [*tmp_path.glob("new*")]


def test_a_directory_whose_cores_run_or_that_is_not_whole_is_refused_as_it_is(data: Path, tmp_path: Path) -> None:
    with a_core(data, 1), pytest.raises(topics.LockedError, match="core-01 is in use"):
        backed_up(data, tmp_path / "backups")
    with own_loop(config_of(data)) as loop:
        locked = lock_directory(loop.ring, config_of(data))
        with pytest.raises(topics.LockedError, match="in use"):
            backed_up(data, tmp_path / "backups")
        locked.release()
    with pytest.raises(topics.UsageError, match="which they are to replace"):
        backed_up(data, data / "backups")
    with pytest.raises(topics.UsageError, match="no directory for backups is named"):
        backed_up_cores(config_of(data), None)
    (data / "core-01").rename(tmp_path / "away")
    with pytest.raises(topics.StorageError, match="core-01 is missing"):
        backed_up(data, tmp_path / "backups")
    assert not (tmp_path / "backups").exists()


def test_the_backups_of_two_directories_are_not_mixed(data: Path, tmp_path: Path) -> None:
    backed_up(data, tmp_path / "backups")
    with topics.open(tmp_path / "other", io="portable") as log:
        log.append("t0", [1])
    given_cores(tmp_path / "other", 2)
    with pytest.raises(topics.UsageError, match="which has those of another log"):
        backed_up(tmp_path / "other", tmp_path / "backups")


def test_segments_of_cold_directories_are_in_it(tmp_path: Path) -> None:
    config = replace(config_of(tmp_path / "data"), cold_dir=str(tmp_path / "cold"))
    small: dict[str, Any] = {"segment_max_bytes": 65536, "pack_run_bytes": 2048, "hot_retain_segments": 0}
    with topics.open(config.data_dir, io="portable", cold_dir=config.cold_dir, **small) as log:
        for name in NAMES:
            log.append(name, [os.urandom(50_000) for _ in range(5)])
        log.checkpoint()
        log.checkpoint()
    assert [*(tmp_path / "cold").rglob("*.data")]
    with own_loop(config) as loop:
        loop.run_task(set_cores(loop, config, 2))
    made = backed_up_cores(config, tmp_path / "backups")
    assert made is not None
    restored = topics.restore(made.path, tmp_path / "new")
    assert restored.records == 5 * len(NAMES)


def invoked(*command: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*command])
    return done.exit_code, " ".join((done.output or str(done.exception)).split())


def test_commands_back_up_verify_and_restore_it(data: Path, tmp_path: Path) -> None:
    code, output = invoked("backup", "--data-dir", str(data), "--to", str(tmp_path / "backups"))
    assert (code, '"linked_files":0' in output) == (0, True), output
    code, output = invoked("verify", str(tmp_path / "backups"))
    assert (code, "all sound" in output) == (0, True), output
    code, output = invoked("restore", "--from", str(tmp_path / "backups"), "--to", str(tmp_path / "new"))
    assert (code, "9 topics, 490 records" in output) == (0, True), output
    (made,) = (tmp_path / "backups").iterdir()
    code, output = invoked("get", "t0", "--data-dir", str(made))
    assert (code, "a backup of several cores: make a data directory of it by" in output) == (1, True), output


def test_a_copy_in_a_bucket_is_the_same_backup(data: Path, tmp_path: Path) -> None:
    wanted = records_of(data)
    backed_up(data, tmp_path / "backups")
    bucket = MemoryBucket()
    send(bucket, tmp_path / "backups")
    fetch_all(bucket, tmp_path / "back")
    assert topics.verify_backup(tmp_path / "back").sound
    topics.restore(tmp_path / "back", tmp_path / "new")
    assert records_of(tmp_path / "new") == wanted
