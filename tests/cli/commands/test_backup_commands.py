"""`topics backup`, `verify` and `restore`, with a server and with a directory."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
import xxhash

import topics
from tests.cli.commands.command_runs import Ran, run, serving
from topics import StorageError, UsageError
from topics.cli import exit_codes
from topics.cli.backups.given_paths import check_directory_path
from topics.cli.backups.mirror_status import STATUS_NAME
from topics.cli.exit_codes import USAGE
from topics.cli.places.place import LogPlace, opened
from topics.config import Config
from topics.embedded.own_loop import own_loop
from topics.store.backup.backup_files import pack_description
from topics.store.backup.backup_manifest import BackupManifest


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    """A backup that a server made of three records."""
    with serving(tmp_path, {"TOPICS_BACKUP_DIR": str(tmp_path / "backups")}) as url:

        def topics(*arguments: str) -> Ran:
            return run(arguments, tmp_path, env={"TOPICS_URL": url})

        assert topics("put", "orders", "1", "2", "3").code == 0
        made = topics("backup")
        refused = topics("backup", "--to", "/etc")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "backups" / "link").symlink_to(tmp_path / "elsewhere")
        leads_out = topics("backup", "--to", f"{tmp_path}/backups/link/below")
        (tmp_path / "backups" / "link").unlink()
    assert made.code == 0, made
    assert json.loads(made.out)["path"].startswith(str(tmp_path / "backups"))
    assert refused.code == 1
    assert f"topics: --to is '/etc': use {tmp_path}/backups, which is TOPICS_BACKUP_DIR" in refused.err
    assert (leads_out.code, list((tmp_path / "elsewhere").iterdir())) == (1, [])
    assert f"/backups/link/below leads out of {tmp_path}/backups by a link: name a directory" in leads_out.err
    return tmp_path / "backups"


def test_a_backup_of_a_server_is_verified_and_restored(backups: Path, tmp_path: Path) -> None:
    verified = run(["verify", str(backups)], tmp_path)
    assert (verified.code, verified.err) == (0, "")
    assert "3 records of" in verified.out
    assert verified.out.endswith("; all sound\n")
    restoring = ["restore", "--from", str(backups), "--to", str(tmp_path / "new"), "--skip", "100"]
    restored = run(restoring, tmp_path)
    assert restored.code == 0, restored
    assert "1 topic, 3 records of" in restored.out
    assert "; each topic leaves out at least 100 seqs above those that the backup knows, and has" in restored.out
    read = run(["get", "orders", "--data-dir", str(tmp_path / "new"), "-o", "raw", "--skip-gaps"], tmp_path)
    assert read.out == "1\n2\n3\n"
    again = run(restoring, tmp_path)
    assert (again.code, again.out) == (USAGE, "")
    assert again.err.startswith(f"topics: --to is '{tmp_path}/new', which exists: restore to a path where nothing is")
    for inside in ("new", "hourly/new"):
        among = run(["restore", "--from", str(backups), "--to", str(backups / inside)], tmp_path)
        assert (among.code, among.out) == (USAGE, "")
        said = f"topics: --to is '{backups}/{inside}', in {backups}, which has backups: name a path elsewhere\n"
        assert among.err == said


def test_a_restore_names_what_one_that_was_killed_has_left(backups: Path, tmp_path: Path) -> None:
    (tmp_path / "new.0123abcd.restoring").mkdir()
    for other in ("new.0123abcd.restoring.old", "old.0123abcd.restoring", "new.x.restoring"):
        (tmp_path / other).mkdir()
    made = run(["restore", "--from", str(backups), "--to", str(tmp_path / "new")], tmp_path)
    said = "is there: remove it if no restore to this path runs, since one that was killed has left it\n"
    assert (made.code, made.out.count("is there:")) == (0, 1), made
    assert made.out.endswith(f"{tmp_path}/new.0123abcd.restoring {said}")


def test_a_damaged_backup_has_exit_code_1(backups: Path, tmp_path: Path) -> None:
    (snapshot, *_) = backups.rglob("snapshot-*")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    verified = run(["verify", str(backups)], tmp_path)
    assert verified.code == 1
    assert f"damage: {snapshot} of the backup has" in verified.out
    assert run(["restore", "--from", str(backups), "--to", str(tmp_path / "new")], tmp_path).code == 1


def test_a_pipe_in_a_backup_is_damage(backups: Path, tmp_path: Path) -> None:
    """A verification of it ended there, and named itself for the rest of the damage."""
    (snapshot, other), (manifest,) = sorted(backups.rglob("snapshot-*")), backups.rglob("backup.json")
    snapshot.unlink()
    os.mkfifo(snapshot)
    other.write_bytes(other.read_bytes()[:-1])
    verifying = ["verify", str(backups)]
    restoring = ["restore", "--from", str(backups), "--to", str(tmp_path / "new")]
    said = f"{snapshot} of the backup is no regular file: restore another backup"
    verified, restored = run(verifying, tmp_path), run(restoring, tmp_path)
    assert (verified.code, restored.code) == (1, 1)
    assert f"damage: {said}" in verified.out
    assert f"damage: {other} of the backup has" in verified.out
    assert f"topics: {said}" in restored.err
    manifest.unlink()
    os.mkfifo(manifest)
    for command in (verifying, restoring):
        ran = run(command, tmp_path)
        said = f"topics: {manifest} is no regular file. Use another backup; `topics verify` shows all damage\n"
        assert (ran.code, ran.err) == (1, said)


def put_socket(path: Path) -> None:
    above = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{above}/{path.name}")  # the path of a socket has 107 bytes at most
    os.close(above)


@pytest.mark.parametrize("put", [os.mkfifo, put_socket])
def test_a_pipe_or_a_socket_in_an_archive_is_damage(put: Callable[[Path], None], tmp_path: Path) -> None:
    """A verification ended there without a remedy, and a restore as well."""
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "log", archive_dir=str(archive), archive_every_ms=10) as log:
        while not list(archive.glob("*/bases/*Z")):
            log.topics()
        log.append("t", [1])
    ((timeline,), (file, *_)) = archive.glob("*Z-*"), sorted(archive.glob("*/log/*/wal-*"))
    verifying = ["verify", str(archive)]
    restoring = ["restore", "--from", str(archive), "--to", str(tmp_path / "new")]
    (base,) = archive.glob("*/bases/*Z")
    for path, remedy, refusal in (
        (file, "", f"{file}: the log after the base begins in this file, and it is damaged. Restore to an earlier"),
        (timeline / "archive.json", ". Name another timeline", f"{timeline}/archive.json is no regular file. Name"),
        (base / "backup.json", ". Use another backup", f"{timeline} is the newest, and its bases are damaged: "),
    ):
        kept = path.rename(tmp_path / "kept")
        put(path)
        verified, restored = run(verifying, tmp_path), run(restoring, tmp_path)
        assert (verified.code, restored.code) == (1, 1), (verified, restored)
        assert f"damage: {path} is no regular file{remedy}" in verified.out
        assert refusal in restored.err
        assert "`topics verify` shows all damage" in restored.err
        path.unlink()
        kept.rename(path)
    assert run(verifying, tmp_path).code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backup", "--to", ""], "--to is '', which is no path: name a directory"),
        (["backup", "--to", "s3://b", "--staging", ""], "--staging is '', which is no path: name a directory"),
        (["restore", "--from", "", "--to", "new"], "--from is '', which is no path: name a directory"),
        (["restore", "--from", "/dev", "--to", ""], "--to is '', which is no path: name a directory"),
        (
            ["restore", "--from", "/dev/null", "--to", "new"],
            "--from is '/dev/null', which is no directory: name a directory",
        ),
        (["verify", ""], "BACKUP is '', which is no path: name a directory"),
        (["verify", "/dev/null"], "BACKUP is '/dev/null', which is no directory: name a directory"),
        (["verify", "n" * 256], f"BACKUP is '{'n' * 256}': File name too long: name a directory"),
        (["mirror", "http://h", "--to", ""], "--to is '', which is no path: name a directory"),
        (
            ["mirror", "http://h", "--to", "/dev/null"],
            "--to is '/dev/null', which is no directory: name a directory",
        ),
        (["mirror", "--status", "--to", ""], "--to is '', which is no path: name a directory"),
        (["promote", "--from", "", "--to", "new"], "--from is '', which is no path: name a directory"),
        (["promote", "--from", "/dev", "--to", ""], "--to is '', which is no path: name a directory"),
        (
            ["promote", "--from", "/dev", "--to", "a\nb"],
            r"--to is 'a\nb', which has a control character, such as the end of a line: use a path without",
        ),
        (
            ["restore", "--from", "/dev", "--to", "a\nb"],
            r"--to is 'a\nb', which has a control character, such as the end of a line: use a path without",
        ),
    ],
)
def test_a_path_that_is_empty_or_a_file_is_refused_by_its_option(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    ran = run(arguments, tmp_path, env={"TOPICS_URL": "http://127.0.0.1:9"})
    assert (ran.code, ran.out, ran.err) == (USAGE, "", f"topics: {sentence}\n")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["verify", "none"], USAGE),
        (["verify", "s3:///p"], USAGE),
        (["verify", "ftp://h/p"], USAGE),
        (["verify", "s3://b/p", "--endpoint", "http://127.0.0.1:9", "--retries", "0"], USAGE),
        (["restore", "--from", "none", "--to", "new"], USAGE),
        (["restore", "--from", "none", "--to", "new", "--seq", "x"], USAGE),
        (["restore", "--from", "none", "--to", "new", "--at", "x"], USAGE),
        (["restore", "--from", "s3://b/p", "--to", "new", "--endpoint", "http://127.0.0.1:9", "--retries", "0"], 1),
        (["copy-backup", "none", "s3://b/p"], USAGE),
        (["copy-backup", "a", "b"], USAGE),
        (["mirror", "--to", "new"], USAGE),
        (["mirror", "http://127.0.0.1:9", "--to", "new", "--timeline", "x"], USAGE),
        (["promote", "--from", "none", "--to", "new"], USAGE),
        (["backup", "--to", "s3:///p"], USAGE),
        (["backup", "--url", "http://127.0.0.1:9", "--timeout", "0.1"], 1),
    ],
)
def test_a_wrong_call_has_exit_code_2_and_what_fails_outside_has_1(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    """Every failure of verify has 2, because 1 is its answer that there is damage."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    words = [str(tmp_path / word) if word in ("none", "new") else word for word in arguments]
    ran = run(words, tmp_path)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
    assert not os.listdir(tmp_path)


def test_a_backup_of_a_directory_says_where_it_is(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    (tmp_path / "data").mkdir()
    assert run(["put", "orders", "1", "--data-dir", data], tmp_path).code == 0
    made = run(["backup", "--data-dir", data, "--to", str(tmp_path / "backups")], tmp_path, tty=True)
    assert made.code == 0, made
    assert made.out.startswith(f"{tmp_path}/backups/20")
    nowhere = run(["backup", "--data-dir", data], tmp_path)
    assert nowhere.code == 2
    assert nowhere.err == "topics: no directory for backups is named: give --to, or set TOPICS_BACKUP_DIR\n"
    to_file = run(["backup", "--data-dir", data, "--to", "/dev/null"], tmp_path)
    assert (to_file.code, to_file.err) == (2, "topics: --to is '/dev/null', which is no directory: name a directory\n")


@pytest.mark.parametrize("served", [False, True])
def test_a_place_in_which_no_directory_can_be_made_is_named_by_its_option(served: bool, tmp_path: Path) -> None:
    """The sentence had the path and the remedy, and not the option that both are about."""
    sentence = "the backup could not be written: /proc/x: No such file or directory: name another directory"
    refused = f"topics: --to is '/proc/x': {sentence}\n"
    if served:
        with serving(tmp_path, {"TOPICS_BACKUP_DIR": "/proc/x"}) as url:
            env = {"TOPICS_URL": url}
            ran = run(["backup", "--to", "/proc/x"], tmp_path, env=env)
            of_setting = run(["backup"], tmp_path, env=env)
        assert (of_setting.code, of_setting.err) == (1, f"topics: {sentence}\n")
    else:
        data = str(tmp_path / "data")
        (tmp_path / "data").mkdir()
        assert run(["put", "orders", "1", "--data-dir", data], tmp_path).code == 0
        ran = run(["backup", "--data-dir", data, "--to", "/proc/x"], tmp_path)
    assert (ran.code, ran.out, ran.err) == (1, "", refused)


def test_a_backup_of_a_directory_without_a_log_makes_none_there(tmp_path: Path) -> None:
    """It made an empty log, and a backup of that."""
    (tmp_path / "empty").mkdir()
    ran = run(["backup", "--data-dir", str(tmp_path / "empty"), "--to", str(tmp_path / "backups")], tmp_path)
    assert (ran.code, ran.out) == (USAGE, "")
    assert ran.err == (
        f"topics: --data-dir is '{tmp_path}/empty', which has no log: name the data directory of a server\n"
    )
    assert [str(path) for path in tmp_path.rglob("*")] == [str(tmp_path / "empty")]


@pytest.mark.parametrize("variable", ["TOPICS_ARCHIVE_DIR", "TOPICS_BACKUP_DIR", "TOPICS_COLD_DIR"])
def test_a_server_takes_no_directory_of_others_for_its_own(variable: str, tmp_path: Path) -> None:
    """R-LIFE-1: each of them would take the copies for its own."""
    with topics.open(tmp_path / "other", archive_dir=str(tmp_path / "archive")) as log:
        log.append("t", [1])
        log.flush()
    with topics.open(tmp_path / "third") as log:
        made = log.backup(tmp_path / "backups")
    topics.open(tmp_path / "fourth").close()
    (timeline,) = (tmp_path / "archive").glob("*Z-*")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "mirror.json").touch()
    before = sorted(tmp_path.rglob("*"))
    for path, at, kind in (
        (tmp_path / "other", tmp_path / "other", "a data directory"),
        (tmp_path / "third" / "new", tmp_path / "third", "a data directory"),
        (tmp_path / "mirror", tmp_path / "mirror", "a mirror"),
        (timeline, timeline, "of an archive"),
        (tmp_path / "archive" / "new", tmp_path / "archive", "an archive"),
        (Path(made.path) / "new", made.path, "a backup"),
    ):
        env = {variable: str(path)}
        ran = run(["serve", "--data-dir", str(tmp_path / "data"), "--port", "0"], tmp_path, env=env)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == f"topics: {variable} is '{path}', in {at}, which is {kind}: name a directory elsewhere\n"
        ran = run(["put", "t", "1", "--data-dir", str(tmp_path / "fourth")], tmp_path, env=env)
        assert (ran.code, f"topics: {variable} is '{path}', in " in ran.err) == (USAGE, True), ran
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("used", [False, True])
def test_a_server_takes_no_place_in_its_own_log_for_its_backups(used: bool, tmp_path: Path) -> None:
    """The first start was none with this refusal, and each backup had it."""
    if used:
        topics.open(tmp_path / "data").close()
    env = {"TOPICS_BACKUP_DIR": str(tmp_path / "data" / "backups")}
    ran = run(["serve", "--data-dir", str(tmp_path / "data"), "--port", "0"], tmp_path, env=env)
    assert (ran.code, ran.out) == (1, "")
    data = tmp_path / "data"
    assert f"topics: TOPICS_BACKUP_DIR is '{data}/backups', in {data}, which backups are to replace: name" in ran.err
    assert (tmp_path / "data").exists() is used


def test_a_backup_is_not_served_itself(tmp_path: Path) -> None:
    """Deletes would be marked in files that other backups have in common with it."""
    with topics.open(tmp_path / "data") as log:
        log.append("t", [1])
        made = log.backup(tmp_path / "backups")
    before = sorted(Path(made.path).rglob("*"))
    sentence = f"data directory {made.path} is a backup, and others have files in common with it: make a data directory"
    ran = run(["serve", "--data-dir", made.path, "--port", "0"], tmp_path)
    assert (ran.code, ran.out, sentence in ran.err) == (1, "", True), ran
    for words in (["put", "t", "2"], ["backup", "--to", str(tmp_path / "more")], ["fsck", "--rebuild"]):
        ran = run([*words, "--data-dir", made.path], tmp_path)
        assert (ran.code, ran.out, sentence in ran.err) == (USAGE, "", True), ran
    assert run(["get", "t", "--data-dir", made.path, "-o", "raw"], tmp_path).out == "1\n"
    with pytest.raises(topics.UsageError, match="is a backup, and others have files in common with it"):
        topics.fsck(made.path, rebuild=True)
    assert sorted(Path(made.path).rglob("*")) == before


def test_a_command_on_a_directory_makes_no_hole_in_the_archive_of_its_server(tmp_path: Path) -> None:
    data, archive = tmp_path / "log", tmp_path / "archive"
    with topics.open(data, archive_dir=str(archive), archive_every_ms=10) as log:
        log.append("t", [1, 2, 3])
    backup, put = ["backup", "--to", str(tmp_path / "backups")], ["put", "t", "4"]
    for words in (backup, put):
        ran = run([*words, "--data-dir", str(data)], tmp_path)
        assert (ran.code, ran.out) == (USAGE, "")
        assert f"topics: --data-dir is '{data}', whose log has an archive (20" in ran.err
        assert "and TOPICS_ARCHIVE_DIR is not set, so the archive would get a hole: set it" in ran.err
        assert f"or remove {data}/archive if there is no archive any more" in ran.err
    for words in (backup, put):
        assert run([*words, "--data-dir", str(data)], tmp_path, env={"TOPICS_ARCHIVE_DIR": str(archive)}).code == 0
    (note,) = archive.glob("*/archive.json")
    assert b'"holes":[]' in note.read_bytes()
    verified = run(["verify", str(archive)], tmp_path)
    assert "and 1 record in the log" in verified.out, "the backup was made before the fourth"
    (data / "archive").unlink()
    assert run([*backup, "--data-dir", str(data)], tmp_path).code == 0


def test_a_command_on_a_directory_of_other_shards_makes_no_hole_either(tmp_path: Path) -> None:
    data, archive = tmp_path / "log", tmp_path / "archive"
    with topics.open(data, archive_dir=str(archive), archive_every_ms=10, wal_shards=2) as log:
        log.append("t", [1, 2, 3])
    backup, env = ["backup", "--data-dir", str(data), "--to", str(tmp_path / "b")], {"TOPICS_ARCHIVE_DIR": str(archive)}
    ran = run(backup, tmp_path, env=env)
    assert (ran.code, ran.out) == (USAGE, "")
    assert "whose log has 2 shards, and TOPICS_WAL_SHARDS is 1, so its archive (20" in ran.err
    assert run(backup, tmp_path, env={**env, "TOPICS_WAL_SHARDS": "2"}).code == 0
    (note,) = archive.glob("*/archive.json")
    assert b'"holes":[]' in note.read_bytes()


def without_id(backup: Path) -> None:
    """Make of a backup what a build made whose markers had no id of a log."""
    marker, manifest = backup / "topics.json", backup / "backup.json"
    fields = json.loads(marker.read_bytes())
    assert fields.pop("log")
    marker.write_bytes(json.dumps(fields).encode())
    about = msgspec.json.decode(manifest.read_bytes().rpartition(b',"xxh3":')[0] + b"}", type=BackupManifest)
    (listed,) = (file for file in about.files if file.path == marker.name)
    listed.bytes, listed.xxh3 = marker.stat().st_size, xxhash.xxh3_64_hexdigest(marker.read_bytes())
    manifest.write_bytes(pack_description(about))


def test_the_newest_backup_of_a_directory_says_if_it_may_be_of_any_log(tmp_path: Path) -> None:
    """An older build put those of several logs beside each other, and a restore took the newest without a word."""
    root = tmp_path / "backups"
    made = []
    for name, topic in (("2026-01-01T00-00-00Z", "orders"), ("2026-01-02T00-00-00Z", "payments")):
        with topics.open(tmp_path / topic) as log:
            log.append(topic, [1])
            backup = Path(log.backup(tmp_path / f"{topic}-backups").path)
        made.append(backup.rename(backup.with_name(name)))
        without_id(made[-1])
    root.mkdir()
    said = f"2026-01-02T00-00-00Z does not state its log, since an older version made it: if {root} has the backups of"
    for backup in made:
        backup.rename(root / backup.name)
        alone = len(os.listdir(root)) == 1
        for command in (["verify", str(root)], ["restore", "--from", str(root), "--to", str(tmp_path / "new")]):
            ran = run(command, tmp_path)
            assert (ran.code, said in ran.out) == (0, not alone), ran
        shutil.rmtree(tmp_path / "new")
    newest = root / made[-1].name
    for command in (["verify", str(newest)], ["restore", "--from", str(newest), "--to", str(tmp_path / "new")]):
        assert said not in run(command, tmp_path).out
    (tmp_path / "link").symlink_to(root)
    assert said.partition(" if ")[0] in run(["verify", str(tmp_path / "link")], tmp_path).out
    with topics.open(tmp_path / "payments") as log:
        with_id = Path(log.backup(root).path)
    assert "does not state its log" not in run(["verify", str(root)], tmp_path).out
    with topics.open(tmp_path / "orders") as log, pytest.raises(topics.UsageError) as refused:
        log.backup(root)
    assert f"{root}, which has those of another log, such as {with_id.name}: name a directory of its" in str(
        refused.value
    )


def test_an_archive_that_is_verified_counts_the_records_of_its_log(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "log", archive_dir=str(archive), archive_every_ms=10) as log:
        while not list(archive.glob("*/bases/*Z")):
            log.topics()
        log.append("t", [1, 2, 3])
    verified = run(["verify", str(archive)], tmp_path)
    assert (verified.code, verified.err) == (0, "")
    times, counts = verified.out.splitlines()
    (timeline,) = archive.glob("*Z-*")
    assert times.startswith(f"{timeline}: can be restored as of 20")
    assert "0 records in the newest base and 3 records in the log, up to " in counts


def test_an_archive_without_a_base_is_not_sound(tmp_path: Path) -> None:
    """Nothing can be restored from it: it was looked at, and the answer is bad."""
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "log", archive_dir=str(archive), archive_every_ms=10) as log:
        log.append("t", [1])
    ((base,), (timeline,)) = archive.glob("*/bases/*Z"), archive.glob("*Z-*")
    manifest = base / "backup.json"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    for sentence, restoring in (
        (f"{manifest} does not match its checksum", f"{timeline} is the newest, and its bases are damaged: {manifest}"),
        (f"{archive} has no base yet, so no restore leads there: its server makes one", "the archive has no base yet"),
    ):
        verified = run(["verify", str(archive)], tmp_path)
        assert (verified.code, verified.err) == (1, "")
        assert f"damage: {sentence}" in verified.out
        restored = run(["restore", "--from", str(archive), "--to", str(tmp_path / "new")], tmp_path)
        assert restored.code in {1, USAGE}
        assert restoring in restored.err
        shutil.rmtree(base, ignore_errors=True)


def test_a_damaged_newest_timeline_is_not_passed_over(tmp_path: Path) -> None:
    """A restore of the end led to that of an older one, without a word."""
    archive, options = tmp_path / "archive", {"archive_dir": str(tmp_path / "archive"), "archive_every_ms": 10}
    with topics.open(tmp_path / "log", **options) as log:  # type: ignore[arg-type]
        log.append("t", [1])
    (first,) = archive.glob("*Z-*")
    topics.restore(archive, tmp_path / "second")
    with topics.open(tmp_path / "second", **options) as log:  # type: ignore[arg-type]
        log.append("t", [2])
    (second,) = set(archive.glob("*Z-*")) - {first}
    (manifest,) = second.glob("bases/*Z/backup.json")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(topics.CorruptError, match=f"{second} is the newest, and its bases are damaged"):
        topics.restore(archive, tmp_path / "new")
    assert f"{manifest} does not match its checksum" in str(topics.verify_backup(archive).findings)
    shutil.rmtree(manifest.parent)
    made = topics.restore(archive, tmp_path / "new")
    assert f"{second} has log up to 20" in made.damage
    assert made.damage.endswith(" and no base, so it is left out")


def test_a_restore_to_a_time_names_what_the_archive_has_beyond_it(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "log", archive_dir=str(archive), archive_every_ms=10) as log:
        while not list(archive.glob("*/bases/*Z")):
            log.topics()
        log.append("t", [1])
        first_ms = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 <= first_ms:
            pass  # what follows has another time
        log.append("t", [2, 3])
    source = ["restore", "--from", str(archive), "--to"]
    made = run([*source, str(tmp_path / "one"), "--seq", "t=1"], tmp_path)
    assert (made.code, "1 topic, 1 record of " in made.out) == (0, True), made
    assert "\nleft out: what the archive has from then to 20" in made.out
    whole = run([*source, str(tmp_path / "all"), "--skip", "1"], tmp_path)
    assert "; each topic leaves out at least 1 seq above those that the archive knows, and has another" in whole.out
    assert (whole.code, "1 topic, 3 records of " in whole.out, "left out" in whole.out) == (0, True, False), whole


def test_a_restore_names_the_option_that_is_wrong(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with topics.open(tmp_path / "log", archive_dir=str(archive), archive_every_ms=10) as log:
        while not list(archive.glob("*/bases/*Z")):
            log.append("t", [1])
    for option, value in (
        ("--skip", "0"),
        ("--skip", str(1 << 63)),
        ("--seq", "t=0"),
        ("--seq", f"t={'9' * 5000}"),
        ("--at", "253402300800000"),
        ("--at", "9" * 30),
        ("--at", "x" * 5000),
        ("--at", str(1 << 62)),
        ("--at", "99999999d"),
        ("--at", "4102444800000"),
        ("--at", "1"),
        ("--seq", f"t={1 << 40}"),
    ):
        said = run(["restore", "--from", str(archive), "--to", str(tmp_path / "new"), option, value], tmp_path)
        assert said.code == USAGE, said
        assert said.err.startswith(f"topics: {option} "), said
        assert len(said.err) < 500
        assert "Traceback" not in said.err
        assert "skipped_seqs" not in said.err
    (base,) = archive.glob("*/bases/*Z")
    assert re.search(rf"name a time in its place: {base.name[:10]}T\S+Z to {base.name[:10]}T\S+Z\n", said.err), said
    assert list(tmp_path.glob("new*")) == []


def test_a_directory_that_this_user_may_not_read_is_named_by_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the system is feigned, since root may read all."""
    (tmp_path / "bk").mkdir()
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(UsageError, match="--from is .*/bk', which this user may not read: name another directory, or"):
        check_directory_path("--from", str(tmp_path / "bk"))
    place = LogPlace(data_dir=str(tmp_path / "bk"))
    with pytest.raises(UsageError, match="--data-dir is .*/bk', which this user may not read: run this as the user of"):
        opened(place, {}, writes=False, timeout=1).__enter__()
    denied = PermissionError(errno.EACCES, "Permission denied", "/nr/x")
    assert (
        exit_codes.sentence(denied)
        == "/nr/x: Permission denied: name another path, or run this as a user who may use it"
    )

    with pytest.raises(StorageError, match="/nr/x: Permission denied: run this as a user who may"), own_loop(Config()):
        raise denied

    def deny(_path: str) -> NoReturn:
        raise denied

    monkeypatch.setattr(os, "stat", deny)
    with pytest.raises(UsageError, match="BACKUP is '/nr/x', which this user may not read: name another directory"):
        check_directory_path("BACKUP", "/nr/x")


def test_a_mirror_that_has_nothing_yet_is_not_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / STATUS_NAME).write_text("{}")
    ran = run(["promote", "--from", str(tmp_path), "--to", str(tmp_path / "new")], tmp_path)
    said = f"--from is '{tmp_path}', a mirror that has nothing of its server yet: `topics mirror --status --to"
    assert (ran.code, ran.out) == (USAGE, "")
    assert said in ran.err


def test_a_place_without_a_backup_is_named_by_its_option(tmp_path: Path) -> None:
    for words, option in ((["verify"], "BACKUP"), (["restore", "--to", "new", "--from"], "--from")):
        ran = run([*words, "none"], tmp_path)
        assert (ran.code, ran.out) == (USAGE, "")
        assert re.match(f"topics: {option} is '.*none': there is no backup in .*none: name the directory", ran.err), ran


@pytest.mark.parametrize(
    ("option", "values"),
    [("--seq", ("t=2", "t=3")), ("--at", ("10m", "5m")), ("--from", ("bk", "bk2")), ("--to", ("new", "new2"))],
)
def test_an_end_or_a_place_that_is_given_twice_is_refused(option: str, values: tuple[str, str], tmp_path: Path) -> None:
    """The last one would be taken, and a restore of another instant looks as good."""
    words = ["restore", "--from", "bk", "--to", "new"]
    if option in words:
        del words[words.index(option) : words.index(option) + 2]
    ran = run([*words, option, values[0], option, values[1]], tmp_path)
    said = f"topics: {option} is given 2 times, as {values[0]!r} and {values[1]!r}: leave out all but one\n"
    assert (ran.code, ran.out, ran.err) == (USAGE, "", said)


def test_a_time_for_a_backup_is_refused_by_its_option(backups: Path, tmp_path: Path) -> None:
    for option, value in (("--at", "17"), ("--seq", "t=1")):
        ran = run(["restore", "--from", str(backups), "--to", str(tmp_path / "new"), option, value], tmp_path)
        assert ran.err.startswith(f"topics: {option} is "), ran
        assert "is no archive (TOPICS_ARCHIVE_DIR): a backup has one time, so leave it out" in ran.err
