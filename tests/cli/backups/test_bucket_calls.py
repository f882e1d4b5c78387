"""Values for a bucket are checked before the bucket is asked, and nothing of others is removed."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

import topics
from tests.cli.backups.small_disk import small_disk
from tests.cli.commands.command_runs import SMALL as SMALL_VARIABLES
from tests.cli.commands.command_runs import run
from tests.embedded.bucket.copied_places import OPTIONS, URL, look, send
from tests.embedded.bucket.memory_bucket import MemoryBucket
from tests.embedded.calls.archived_cores import NAMES, Cores
from tests.embedded.conftest import SMALL
from topics.cli.backups.backup_commands import backup, restore, verify
from topics.cli.backups.bucket_calls import OF_WRITES, with_bucket
from topics.cli.backups.copy_command import copy_backup
from topics.embedded import restore_call
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, look_at_copy
from topics.embedded.bucket.bucket_logs import check_takes_backup
from topics.embedded.bucket.restore_bucket import restore_bucket
from topics.errors import StorageError, UsageError
from topics.store.archive.restore_archive import copy_point

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
TO_READ = {name: value for name, value in BucketOptions()._asdict().items() if name != OF_WRITES}
NOWHERE = ("--endpoint", "http://127.0.0.1:9", "--retries", "0")


def test_a_restore_from_a_bucket_leaves_a_directory_of_others(tmp_path: Path) -> None:
    (tmp_path / "new.fetched").mkdir()
    (tmp_path / "new.fetched" / "file").write_text("precious")
    ran = run(["restore", "--from", "s3://b/p", "--to", str(tmp_path / "new"), *NOWHERE], tmp_path)
    assert ran.code != 0
    assert "new.fetched exists, and a restore from a bucket makes it anew: remove it if " in ran.err
    assert (tmp_path / "new.fetched" / "file").read_text() == "precious"


@pytest.fixture
def copied(bucket: MemoryBucket, archives: list[Path], monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """A bucket with an archive, which the commands ask."""

    async def looked(url: str, options: BucketOptions, **beside: bool) -> BucketCopy:
        return await look_at_copy(url, OPTIONS, lambda _url, _options: bucket, **beside)

    send(bucket, archives[3])
    for module in ("cli.backups.copy_command", "embedded.bucket.restore_bucket"):
        monkeypatch.setattr(f"topics.{module}.look_at_copy", looked)
    return bucket


def test_a_full_disk_is_named_with_the_remedy(copied: MemoryBucket, archives: list[Path], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        disk.fill()
        new = str(disk.root / "new")
        remedy = f"{new}.fetched/.*: No space left on device: make room there, or restore to another disk: it is"
        for upto in (None, ("orders", 3)):
            with pytest.raises(StorageError, match=remedy):
                restore_bucket(URL, new, OPTIONS, upto=upto)
        with pytest.raises(StorageError, match=f"{new}/.*: No space left on device: make room there, and call this"):
            copy_backup(URL, new, **BucketOptions()._asdict())
        with pytest.raises(StorageError, match="again/.* cannot be made: no space left on its disk: make room there"):
            topics.restore(archives[3], disk.root / "again" / "new")
        assert not (disk.root / "new.fetched").exists()
        assert not (disk.root / "again").exists(), "what was made above it is removed, too"
        disk.free()
        copy_backup(URL, new, **BucketOptions()._asdict())
    topics.restore(archives[3], tmp_path / "elsewhere")


@pytest.mark.parametrize("place", ["", "/below"])
@pytest.mark.parametrize("mark", ["topics.json", "backup.json", "archive.json", "mirror.json"])
def test_a_copy_is_made_in_no_directory_that_would_take_it_for_its_own(
    copied: MemoryBucket, mark: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / mark).touch()
    with pytest.raises(UsageError, match=f"TO is in {tmp_path}/there, which is .*: name a path elsewhere"):
        copy_backup(URL, f"{tmp_path}/there{place}", **BucketOptions()._asdict())
    assert os.listdir(tmp_path / "there") == [mark]


def test_a_copy_is_not_written_beside_that_of_another_log(copied: MemoryBucket, tmp_path: Path) -> None:
    there = tmp_path / "there" / "2026-01-01T00-00-00Z"
    there.mkdir(parents=True)
    with pytest.raises(
        UsageError, match=f"TO is '{there.parent}', which has a copy of another log, such as 2026-01-01"
    ):
        copy_backup(URL, str(there.parent), **BucketOptions()._asdict())
    assert not os.listdir(there)
    assert os.listdir(there.parent) == [there.name]


def test_a_restore_from_a_bucket_that_is_interrupted_ends_at_once(
    copied: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that still waits for the bucket would abort the process at an end in order."""

    def end(code: int) -> NoReturn:
        assert not os.listdir(tmp_path), "before the process ends"
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    copied.calls_left, copied.error = 5, KeyboardInterrupt
    with pytest.raises(SystemExit) as ended:
        restore(URL, str(tmp_path / "new"), **TO_READ)
    assert ended.value.code == 130


@pytest.fixture
def sent_to(bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> MemoryBucket:
    """A bucket to which `topics backup` sends."""
    for module in ("bucket_calls", "copy_command"):
        monkeypatch.setattr(f"topics.cli.backups.{module}.open_bucket", lambda _url, _options: bucket)
    for name, value in SMALL_VARIABLES.items():
        monkeypatch.setenv(name, value)
    return bucket


def test_the_archive_of_cores_of_which_one_has_nothing_is_said_to_lead_to_no_time(
    sent_to: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cores = Cores(tmp_path, "data")
    with cores.started():
        cores.write(*NAMES)
        cores.archived()
    (cores.joint / "core-01").rename(tmp_path / "away")
    copy_backup(str(cores.archive), URL, **BucketOptions()._asdict())
    assert capsys.readouterr().out.endswith("sent; it leads to no time yet: not all cores have archived\n")

    async def looked(url: str, options: BucketOptions, **beside: bool) -> BucketCopy:
        return await look_at_copy(url, OPTIONS, lambda _url, _options: sent_to, **beside)

    for module in ("copy_command", "bucket_calls"):
        monkeypatch.setattr(f"topics.cli.backups.{module}.look_at_copy", looked)
    with pytest.raises(typer.Exit) as ended:
        verify(URL, **TO_READ)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert f"damage: {URL}/{cores.joint.name} has no time of all its cores: the copy of a core was cut off, a" in said
    assert ", no time yet, " in said
    (tmp_path / "away").rename(cores.joint / "core-01")
    copy_backup(str(cores.archive), URL, **BucketOptions()._asdict())
    assert "sent; it leads to 2" in capsys.readouterr().out
    copy_backup(URL, str(tmp_path / "back"), **BucketOptions()._asdict())
    assert "which leads to 2" in capsys.readouterr().out
    assert topics.verify_backup(tmp_path / "back").sound


def back_up(data: Path) -> None:
    places = dict.fromkeys(("url", "key_file", "context", "timeout", "output", "staging"))
    backup(**places, data_dir=str(data), to=URL, **BucketOptions()._asdict())


@pytest.mark.parametrize("kind", ["backups", "archive"])
def test_a_backup_of_another_log_is_refused_before_it_is_made(
    sent_to: MemoryBucket, backups: list[Path], archives: list[Path], kind: str, tmp_path: Path
) -> None:
    """It was made in the directory beside the log, and then the bucket did not take it."""
    send(sent_to, backups[1] if kind == "backups" else archives[3])
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.append("payments", [{"n": 1}])
    for _has_id in (False, True):
        with pytest.raises(UsageError, match=f"{URL} has a copy of another log, such as 20"):
            back_up(data)
        assert not Path(f"{data}.backups").exists()
        with topics.open(data, **SMALL) as log:
            log.backup(tmp_path / "elsewhere")


def test_a_directory_whose_marker_is_a_pipe_is_not_waited_for(sent_to: MemoryBucket, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "topics.json")
    with pytest.raises((UsageError, StorageError, OSError), match="topics.json"):
        back_up(tmp_path / "data")
    assert not sent_to.objects


def test_a_backup_is_sent_beside_those_of_its_log(sent_to: MemoryBucket, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with topics.open(data, **SMALL) as log:
        log.append("orders", [{"n": 1}])
    for count in (1, 2):
        back_up(data)
        assert len(look(sent_to).backups) == count
    newest = max(key for key in sent_to.objects if key.startswith("manifests/"))
    sent_to.objects[newest] += b" "  # damaged: the one before it is of the same log
    back_up(data)
    asyncio.run(check_takes_backup(sent_to, log_id=""))
    with pytest.raises(UsageError, match="has a copy of another log, such as 20"):
        asyncio.run(check_takes_backup(sent_to, "that of another log"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_restore_that_a_signal_ends_leaves_nothing(
    number: signal.Signals, archives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, as of a timer that was too short, left all that it had copied."""

    async def interrupted(*given: Any) -> None:
        await copy_point(*given)
        assert len(os.listdir(tmp_path)) == 1
        os.kill(os.getpid(), number)

    monkeypatch.setattr(restore_call, "copy_point", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
    try:
        with pytest.raises(KeyboardInterrupt):
            restore(str(archives[3]), str(tmp_path / "new"), **TO_READ)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--endpoint", "http://127.0.0.1:9/ x"], "--endpoint is 'http://127.0.0.1:9/ x': use a URL"),
        (["--endpoint", "http://user:pw@127.0.0.1:99999"], "--endpoint is 'http://user:pw@127.0.0.1:99999': use a URL"),
        (["--endpoint", "http://"], "--endpoint is 'http://': use a URL"),
        (["--endpoint", ""], "--endpoint is '': use a URL, such as https://s3.example.com"),
        (["--region", "a\nb"], r"--region is 'a\nb': use a name, such as eu-central-1"),
        (["--region", ""], "--region is '': use a name, such as eu-central-1"),
        (["--request-timeout", "inf"], "--request-timeout is 'inf': "),
        (["--retry-for", "1e300"], "--retry-for is '1e300': "),
        (["--retries", "9" * 23], f"--retries is '{'9' * 23}': "),
    ],
)
def test_a_value_that_no_request_can_have_is_refused_in_one_sentence(
    options: list[str], sentence: str, tmp_path: Path
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p", *options], tmp_path)
    assert ran.code != 0
    assert sentence in ran.err
    assert ran.err.count("\n") == 1, ran.err


def test_the_end_of_a_line_in_a_key_is_refused_without_the_key(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p", *NOWHERE], tmp_path, env={"AWS_SECRET_ACCESS_KEY": "s3cret\n"})
    assert "AWS_SECRET_ACCESS_KEY has a character that no key has" in ran.err
    assert "s3cret" not in ran.err


def test_an_endpoint_of_a_variable_is_named_by_it(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    ran = run(["verify", "s3://b/p"], tmp_path, env={"AWS_ENDPOINT_URL": "zz"})
    assert "AWS_ENDPOINT_URL is 'zz': use a URL" in ran.err


def test_the_endpoint_that_was_asked_is_named_by_what_gave_it(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    asked = ["verify", "s3://b/p", "--retries", "0"]
    ran = run(asked, tmp_path, env={**KEYS, "AWS_ENDPOINT_URL": "http://u:pw@127.0.0.1:9"})
    assert "no connection for a list, once: check AWS_ENDPOINT_URL http://127.0.0.1:9, the network" in ran.err, ran
    assert "pw" not in ran.err
    ran = run([*asked, "--endpoint", "http://127.0.0.1:9"], tmp_path, env=KEYS)
    assert "check --endpoint http://127.0.0.1:9, the network" in ran.err, ran


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verify", "bk", "--endpoint", "http://h"], "--endpoint has no effect on 'bk': leave it out"),
        (["restore", "--from", "bk", "--to", "new", "--retries", "3"], "--retries has no effect with --from 'bk'"),
        (["backup", "--to", "/bk", "--region", "r"], "--region has no effect on a backup to a directory"),
        (["backup", "--request-timeout", "3"], "--request-timeout has no effect on a backup to a directory"),
        (["verify", "s3://b/p", "--part-bytes", "4096"], "No such option: --part-bytes"),
        (["restore", "--from", "s3://b", "--to", "n", "--part-bytes", "4096"], "No such option: --part-bytes"),
        (["copy-backup", "s3://b/p", "new", "--part-bytes", "4096"], "--part-bytes has no effect with FROM s3://b/p"),
        (["copy-backup", "", "s3://b/p"], "FROM is '', which is no path: name a directory"),
        (["copy-backup", "none", "s3://b/p"], "FROM is 'none', and there is no backup and no archive in it: name the"),
        (["copy-backup", "s3://b/p", ""], "TO is '', which is no path: name a directory"),
        (["copy-backup", "/dev/null", "s3://b/p"], "FROM is '/dev/null', which is no directory: name a directory"),
        (["copy-backup", "s3://b/p", "gs://b"], "TO is 'gs://b', which is neither a directory nor a bucket: use a"),
        (["restore", "--from", "s3://b/p", "--to", "s3://b/q"], "--to is 's3://b/q', which is on no disk: name a"),
        (["verify", "s3://b_\u00e9/p"], "BACKUP is 's3://b_\u00e9/p', whose bucket 'b_\u00e9' has other"),
        (["restore", "--from", "s3://", "--to", "n"], "--from is 's3://', which names no place in a bucket: use"),
        (["backup", "--to", "s3://B_/p"], "--to is 's3://B_/p', whose bucket 'B_' has other characters than a-z"),
        (["verify", "s3://b/p?x#y"], "'s3://b/p?x#y', which names no place in a bucket: use s3://BUCKET/PREFIX"),
        (["verify", os.fsdecode(b"s3://b/\xff")], "which names no place in a bucket: use s3://BUCKET/PREFIX"),
    ],
)
def test_what_has_no_effect_or_names_no_place_is_refused_before_a_bucket_is_asked(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    """The endpoint would not answer, and the sentence would name it."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'topics-log[s3]'")
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "TOPICS_URL": "http://127.0.0.1:9"}
    ran = run(arguments, tmp_path, env=nowhere)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert sentence.lower() in ran.err.lower(), ran
    assert not os.listdir(tmp_path)


def test_each_field_of_the_options_about_buckets_has_an_option() -> None:
    given = inspect.signature(with_bucket(lambda options: None)).parameters
    assert list(given) == list(BucketOptions._fields)
    assert BucketOptions(**{name: each.default for name, each in given.items()}) == BucketOptions()
