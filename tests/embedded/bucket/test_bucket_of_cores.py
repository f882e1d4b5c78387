"""The archive of several cores in a bucket: followed, restored to a time of all, damaged and cut off (R-CORE-18)."""

from __future__ import annotations

import asyncio
import filecmp
import os
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import topics
from tests.amount import stride
from tests.embedded.bucket.copied_places import OPTIONS, URL, fetch_all, look, send, verify
from tests.embedded.bucket.memory_bucket import KilledError, MemoryBucket
from tests.embedded.calls.archived_cores import NAMES, SKIPPED, Cores, next_seq
from topics.embedded.bucket.bucket import BucketOptions
from topics.embedded.bucket.bucket_copy import BucketCopy, look_at_copy
from topics.embedded.bucket.bucket_manifest import REMEDY, BucketManifest, joint_of
from topics.embedded.bucket.copied_tree import Tree, copied_trees
from topics.embedded.bucket.needed_cores import needed_of_cores
from topics.embedded.bucket.restore_bucket import restore_bucket
from topics.errors import CorruptError, StorageError, UsageError
from topics.store.archive.archive_note import unpack_note
from topics.store.backup.backup_files import pack_description

MANIFESTS = "manifests/"


class Stage(NamedTuple):
    """An archive as it was when its cores were stopped."""

    archive: Path
    joint: str
    """The joint timeline to which was written last."""
    at_ms: int
    """A time after the last write."""
    count: int
    """Records of each topic."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Stage]:
    """An archive of two cores in two states, and then of three: in another joint timeline."""
    cores, found = Cores(tmp_path_factory.mktemp("cores"), "data"), list[Stage]()
    for number, count in enumerate((2, 2, 3), 1):
        with cores.started(count):
            cores.archived()
            cores.write(*NAMES)
            at_ms = cores.archived()
        copy = cores.path / f"archive-{number}"
        shutil.copytree(cores.archive, copy)
        found.append(Stage(copy, cores.joint.name, at_ms, 2 * number))
    return found


@pytest.fixture(scope="module")
def known() -> dict[frozenset[str], list[int]]:
    """By the manifests of a bucket, which have checksums in their names, the records that it led to."""
    return {}


async def ask(bucket: MemoryBucket, url: str, _options: BucketOptions, **beside: bool) -> BucketCopy:
    return await look_at_copy(url, OPTIONS, lambda at, _: bucket if at == URL else MemoryBucket(), **beside)


def restored(
    bucket: MemoryBucket,
    path: Path,
    at_ms: int | None = None,
    url: str = URL,
    *,
    upto: tuple[str, int] | None = None,
) -> Cores:
    """Restore a bucket, as the command does, to `path`/made."""
    made = Cores(path, "made")
    shutil.rmtree(made.config.data_dir, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", partial(ask, bucket))
        result = restore_bucket(url, made.config.data_dir, OPTIONS, at_ms=at_ms, upto=upto, skipped_seqs=SKIPPED)
    made.taken_ms = result.taken_ms
    assert at_ms in {None, result.taken_ms}
    assert not [*path.glob("made.*")]
    return made


def counts(bucket: MemoryBucket, path: Path, at_ms: int | None = None, url: str = URL) -> list[int]:
    return restored(bucket, path, at_ms, url).counts()


def state(bucket: MemoryBucket, path: Path, known: dict[frozenset[str], list[int]]) -> list[int]:
    """How many records each topic has that the end of a bucket leads to; none if it refuses."""
    has = frozenset(key for key in bucket.objects if key.startswith(MANIFESTS))
    if has not in known:
        try:
            known[has] = counts(bucket, path)
        except UsageError:
            known[has] = []
    return known[has]


def remove_manifests(bucket: MemoryBucket, path: str) -> None:
    """Remove the manifests of one directory of a copy, and not those of the ones below it."""
    for key in [key for key in bucket.objects if key.rpartition("/")[0] == f"{MANIFESTS}{path}"]:
        del bucket.objects[key]


def test_a_copy_follows_an_archive_of_cores_and_leads_to_any_time_of_all(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage in stages:
        sent = send(bucket, stage.archive)
        assert sent.upto_ms > stage.at_ms
        assert counts(bucket, tmp_path) == [stage.count] * len(NAMES)
        found = verify(bucket)
        assert (found.findings, found.incomplete, found.upto_ms) == ([], [], sent.upto_ms)
        again = send(bucket, stage.archive)
        assert (again.objects, again.backups, again.upto_ms) == (0, 0, sent.upto_ms)
    for stage in stages:
        assert counts(bucket, tmp_path, stage.at_ms) == [stage.count] * len(NAMES)
    for stage in stages[1:]:
        assert counts(bucket, tmp_path, url=f"{URL}/{stage.joint}") == [stage.count] * len(NAMES)


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "after"])
def test_a_copy_of_cores_that_ends_at_any_call_leaves_what_was_there_and_continues(
    done_first: bool, stages: list[Stage], tmp_path: Path, known: dict[frozenset[str], list[int]]
) -> None:
    """R-CORE-18: killed between any two calls, or one of them failing, it leads to a time of all cores."""
    states = [list[int](), *([stage.count] * len(NAMES) for stage in stages)]
    objects: dict[str, bytes] = {}
    for at, stage in enumerate(stages):
        calls = 0
        while True:
            bucket = MemoryBucket()
            bucket.objects, bucket.calls_left, bucket.done_first = dict(objects), calls, done_first
            if done_first:
                bucket.error = KilledError
            ended = None
            try:
                send(bucket, stage.archive)
            except (KilledError, StorageError) as error:
                ended = error
            bucket.calls_left = None
            check_whole(bucket, f"call {calls}")
            found = state(bucket, tmp_path, known)
            assert found in states[at : at + 2], f"call {calls}"
            if found:
                assert verify(bucket).findings == [], f"call {calls}"
            if ended is None:
                break
            send(bucket, stage.archive)
            assert state(bucket, tmp_path, known) == states[at + 1], f"call {calls}"
            assert (verify(bucket).findings, verify(bucket).incomplete) == ([], []), f"call {calls}"
            calls += stride(1)
        assert calls > 20
        objects = bucket.objects


def check_whole(bucket: MemoryBucket, where: str) -> None:
    """Check that the bucket has all that any manifest names, and the slot map of each core's log."""
    paths = set[str]()
    for name in (key for key in bucket.objects if key.startswith(MANIFESTS)):
        manifest = msgspec.json.decode(bucket.objects[name], type=BucketManifest)
        assert manifest.piece_keys() <= bucket.objects.keys(), where
        assert manifest.version == 4, "builds that know one core refuse it"
        paths.add(manifest.path)
    assert {*map(joint_of, paths)} - {""} <= paths, where


def test_a_time_before_the_last_needs_the_cores_of_then_and_one_base_of_each(
    stages: list[Stage], bucket: MemoryBucket
) -> None:
    for stage in stages:
        send(bucket, stage.archive)
    whole = look(bucket)
    needed = needed_of_cores(whole, stages[0].at_ms).copy
    for core in range(2):
        (log,) = (each for each in needed.logs if each.path.startswith(f"{stages[0].joint}/core-{core:02d}/"))
        mine = [base for base in whole.backups if base.path.startswith(f"{log.path}/")]
        read = [base for base in needed.backups if base.path.startswith(f"{log.path}/")]
        before = [base for base in mine if base.backup().taken_ms <= stages[0].at_ms]
        assert read[0] == before[-1]
        assert {*map(id, read)} <= {id(before[-1]), id(mine[-1])}
    end = needed_of_cores(whole, None)
    assert end.at_ms > stages[-1].at_ms
    assert {joint_of(base.path) for base in end.copy.backups} == {stage.joint for stage in stages}, "for their seqs"


def test_no_seq_is_given_out_twice_also_of_topics_that_have_moved(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage in stages:
        send(bucket, stage.archive)
    assert next_seq(restored(bucket, tmp_path, stages[0].at_ms)) > stages[-1].count + SKIPPED


def test_the_log_of_a_copied_directory_is_read_for_its_seqs(bucket: MemoryBucket, tmp_path: Path) -> None:
    """It is of another line, and clients may know its records."""
    cores = Cores(tmp_path, "data")
    with cores.started():
        cores.write(*NAMES)
        cores.archived()
    first = cores.joint.name
    other = Cores(tmp_path, "copied")
    shutil.copytree(cores.config.data_dir, other.config.data_dir)
    for name in ("archive-of-cores", "core-00/archive", "core-01/archive"):
        (Path(other.config.data_dir) / name).unlink()
    with other.started():
        other.archived()  # its first base, which does not know what follows
        for _ in range(5):
            other.write(*NAMES)
        other.archived()
    send(bucket, cores.archive)
    with pytest.raises(UsageError, match="has the logs of several servers: name a timeline of one of them"):
        restored(bucket, tmp_path)
    assert next_seq(restored(bucket, tmp_path, url=f"{URL}/{first}")) > 12 + SKIPPED


def same(one: Path, other: Path) -> bool:
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    return names == {path.relative_to(other) for path in other.rglob("*") if path.is_file()} and all(
        filecmp.cmp(one / name, other / name, shallow=False) or name.suffix == ".log" for name in names
    )


def test_a_copy_back_that_is_killed_at_any_call_continues_and_is_the_same(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, stages[-1].archive)
    bucket.error = KilledError
    calls, to = 0, tmp_path / "to"
    while True:
        bucket.calls_left = calls
        try:
            fetch_all(bucket, to)
        except KilledError:
            bucket.calls_left = None
            if to.exists() and not calls % 7:
                topics.verify_backup(to)  # which finds damage, or is refused with a sentence
            calls += 1
            continue
        break
    bucket.calls_left = None
    assert calls > 10
    assert same(stages[-1].archive, to)
    assert topics.verify_backup(to).sound
    assert fetch_all(bucket, to) == 0, "all of it is there"
    made = Cores(tmp_path, "made")
    topics.restore(to, made.config.data_dir, skipped_seqs=SKIPPED)
    assert made.counts() == [stages[-1].count] * len(NAMES)


def test_a_core_that_has_sent_nothing_yet_holds_its_times_back(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    last = stages[-1]
    shutil.copytree(last.archive, tmp_path / "archive")
    shutil.move(tmp_path / "archive" / last.joint / "core-02", tmp_path / "away")
    sent = send(bucket, tmp_path / "archive")
    assert stages[1].at_ms < sent.upto_ms < last.at_ms
    found = verify(bucket)
    waits = f"{URL}/{last.joint} has no time of all its cores: the copy of a core was cut off, a core has no base"
    assert (found.findings, [each.startswith(waits) for each in found.incomplete]) == ([], [True])
    assert found.upto_ms == sent.upto_ms
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", partial(ask, bucket))
        result = restore_bucket(URL, str(tmp_path / "new"), OPTIONS)
    assert f"{URL}/{last.joint} has no time of all its cores yet, so it is left out" in result.damage
    with pytest.raises(UsageError, match="the archive has no time of all cores yet"):
        restored(bucket, tmp_path, url=f"{URL}/{last.joint}")
    with pytest.raises(UsageError, match=r"does not have it of all cores.*or earlier"):
        restored(bucket, tmp_path, last.at_ms)
    shutil.move(tmp_path / "away", tmp_path / "archive" / last.joint / "core-02")
    assert send(bucket, tmp_path / "archive").upto_ms > last.at_ms
    assert counts(bucket, tmp_path) == [last.count] * len(NAMES)


def test_a_joint_timeline_alone_is_no_copy_yet(stages: list[Stage], bucket: MemoryBucket, tmp_path: Path) -> None:
    for archive, left in ((stages[0].archive, stages[0].joint), (stages[-1].archive, stages[-1].joint)):
        bucket.objects.clear()
        send(bucket, archive)
        for key in list(bucket.objects):
            if key.startswith(f"{MANIFESTS}{left}/core-"):
                del bucket.objects[key]
        with pytest.raises(UsageError, match=r"and no log yet|no time of all cores yet"):
            restored(bucket, tmp_path, url=f"{URL}/{left}")
    assert counts(bucket, tmp_path) == [stages[1].count] * len(NAMES)
    with pytest.raises(UsageError, match="has a part of an archive and no log yet: let `topics copy-backup` end first"):
        asyncio.run(ask(bucket, f"{URL}/{left}", OPTIONS))


def test_a_slot_map_without_its_manifest_is_missed_and_sent_again(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, stages[-1].archive)
    first, last = stages[0].joint, stages[-1].joint
    remove_manifests(bucket, last)
    said = f"{URL}/manifests/{last} has no manifest, which says what each core owns: {REMEDY}"
    assert verify(bucket).findings == [said]
    with pytest.raises(CorruptError, match=said):
        restored(bucket, tmp_path)
    assert counts(bucket, tmp_path, url=f"{URL}/{first}") == [stages[1].count] * len(NAMES)
    send(bucket, stages[-1].archive)
    assert (verify(bucket).findings, verify(bucket).incomplete) == ([], [])
    assert counts(bucket, tmp_path) == [stages[-1].count] * len(NAMES)


def test_a_damaged_or_missing_slot_map_is_named_and_mended(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, stages[0].archive)
    (key,) = (key for key in bucket.objects if "/slot-map/" in key)
    good = bucket.objects[key]
    for bad, fault in (
        (good[:100] + b"?" + good[101:], "does not match the SHA-256 in its name"),
        (None, "is missing"),
    ):
        if bad is None:
            del bucket.objects[key]
        else:
            bucket.objects[key] = bad
        assert verify(bucket).findings == [f"{URL}/{key} {fault}"]
        with pytest.raises(CorruptError, match=f"{URL}/{stages[0].joint} has a damaged slot map: `topics copy-backup"):
            restored(bucket, tmp_path)
        with pytest.raises(CorruptError, match=f"{URL}/{key} {fault}"):
            fetch_all(bucket, tmp_path / f"back-{fault[:4]}")
        assert send(bucket, stages[0].archive, rereads=True).objects == 1
        assert bucket.objects[key] == good
    assert counts(bucket, tmp_path) == [stages[0].count] * len(NAMES)


def test_the_log_of_a_core_without_its_manifest_holds_its_times_back(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    send(bucket, stages[0].archive)
    (log,) = (log.path for log in look(bucket).logs if "/core-01/" in log.path)
    remove_manifests(bucket, log)
    found = verify(bucket)
    assert [each.startswith(f"{URL}/{stages[0].joint} has no time of all its cores") for each in found.findings] == [
        True
    ]
    assert [each.startswith(f"{URL}/manifests/{log} has bases and no manifest") for each in found.incomplete] == [True]
    with pytest.raises(UsageError, match="the archive has no time of all cores yet"):
        restored(bucket, tmp_path)
    send(bucket, stages[0].archive)
    assert counts(bucket, tmp_path) == [stages[0].count] * len(NAMES)


def test_another_archive_of_the_same_name_is_refused(stages: list[Stage], bucket: MemoryBucket, tmp_path: Path) -> None:
    first, last = stages[0], stages[-1]
    send(bucket, first.archive)
    before = dict(bucket.objects)
    shutil.copytree(last.archive / last.joint, tmp_path / "archive" / first.joint)
    with pytest.raises(UsageError, match=f"{URL} has another archive with the name {first.joint}: use a prefix"):
        send(bucket, tmp_path / "archive")
    assert bucket.objects == before


def test_a_part_of_it_is_not_sent(stages: list[Stage], bucket: MemoryBucket, tmp_path: Path) -> None:
    """It would be taken for the log of one core."""
    joint = stages[0].archive / stages[0].joint
    timeline = next(joint.glob("core-00/*Z-*"))
    for part in (joint / "core-00", timeline, next(timeline.glob("bases/*Z"))):
        with pytest.raises(UsageError, match=f"source is '{part}', a part of {joint}, which has all cores: name that"):
            send(bucket, part)
    (tmp_path / "link").symlink_to(timeline)
    with pytest.raises(UsageError, match=f"source is '{tmp_path}/link', a part of {joint}, which has all cores"):
        send(bucket, tmp_path / "link")
    shutil.copytree(joint / "core-00", tmp_path / "copied")
    with pytest.raises(UsageError, match="a part of the archive that it was copied from, which has all cores"):
        send(bucket, tmp_path / "copied")
    shutil.copytree(joint, tmp_path / "renamed")
    with pytest.raises(UsageError, match="of several cores, which no restore finds by this name: give it the name"):
        send(bucket, tmp_path / "renamed")
    assert bucket.calls == []
    send(bucket, joint)
    assert counts(bucket, tmp_path) == [stages[0].count] * len(NAMES)


def test_one_whose_slot_map_is_missing_is_named(stages: list[Stage], bucket: MemoryBucket, tmp_path: Path) -> None:
    archive, last = tmp_path / "archive", stages[-1]
    shutil.copytree(last.archive, archive)
    (archive / last.joint / "slot-map").unlink()
    with pytest.raises(CorruptError, match=f"{last.joint}/slot-map is missing, which says what each core owns"):
        send(bucket, archive)
    assert counts(bucket, tmp_path) == [stages[1].count] * len(NAMES), "what is before it was sent"
    shutil.copy(last.archive / last.joint / "slot-map", archive / last.joint)
    for name in ("slot-map", "archive.json"):
        good = (archive / last.joint / name).read_bytes()
        (archive / last.joint / name).write_bytes(good[:-1] + b"?")
        with pytest.raises(CorruptError, match=f"{last.joint}/{name}"):
            send(bucket, archive)
        (archive / last.joint / name).write_bytes(good)
    (archive / last.joint / "archive.json").unlink()
    with pytest.raises(CorruptError, match=f"{last.joint}/archive.json is missing, which is there before a base of"):
        send(bucket, archive)
    for bases in archive.glob(f"{last.joint}/core-00/*/bases"):
        shutil.rmtree(bases)
    assert [*copied_trees(str(archive))][-1] == Tree([], None)
    assert [*copied_trees(str(archive / last.joint))] == [Tree([], None)]
    assert counts(bucket, tmp_path) == [stages[1].count] * len(NAMES)


def test_one_whose_first_base_is_made_while_it_is_listed_is_not_damaged(
    stages: list[Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(stages[-1].archive, archive)
    joint, list_names = archive / stages[-1].joint, os.listdir
    (joint / "archive.json").rename(tmp_path / "note")

    def listed(path: str) -> list[str]:
        names = list_names(path)
        if path == str(joint) and (tmp_path / "note").exists():
            (tmp_path / "note").rename(joint / "archive.json")
        return names

    monkeypatch.setattr(os, "listdir", listed)
    trees = copied_trees(str(archive))
    assert sum(tree.joint is not None for tree in trees) == len([*archive.iterdir()])


def test_archives_of_one_core_and_of_several_are_restored_one_at_a_time(
    stages: list[Stage], archives: list[Path], bucket: MemoryBucket, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(stages[-1].archive, archive)
    shutil.copytree(archives[0], archive, dirs_exist_ok=True)
    send(bucket, archive)
    with pytest.raises(UsageError, match="has the logs of one core and of several: name one of them"):
        restored(bucket, tmp_path)
    assert counts(bucket, tmp_path, url=f"{URL}/{stages[-1].joint}") == [stages[-1].count] * len(NAMES)
    (alone,) = (path.name for path in archives[0].iterdir())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("topics.embedded.bucket.restore_bucket.look_at_copy", partial(ask, bucket))
        assert restore_bucket(f"{URL}/{alone}", str(tmp_path / "one"), OPTIONS).topics == 2


def test_a_record_as_the_end_leads_to_the_same_as_in_the_directory(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage in stages:
        send(bucket, stage.archive)
    directory = Cores(tmp_path, "none")
    for name, seq in ((NAMES[0], 2), (NAMES[1], 3), (NAMES[-1], 6)):
        made = restored(bucket, tmp_path, upto=(name, seq))
        same = directory.restored("same", source=stages[-1].archive, upto=(name, seq))
        assert made.taken_ms == same.taken_ms
        found = made.counts()
        assert found == same.counts()
        assert found[NAMES.index(name)] == 2 * ((seq + 1) // 2)
        shutil.rmtree(same.config.data_dir)
    for name, seq in ((NAMES[0], 7), ("none", 1)):
        with pytest.raises(UsageError, match=f"upto is seq {seq} of topic {name}, whose write is not in the archive"):
            restored(bucket, tmp_path, upto=(name, seq))
    assert not [*tmp_path.glob("made*")]


def test_a_record_of_before_is_found_with_the_bases_of_its_core_alone(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    for stage in stages:
        send(bucket, stage.archive)
    bucket.calls.clear()
    made = restored(bucket, tmp_path, upto=(NAMES[0], 2), url=f"{URL}/{stages[0].joint}")
    assert made.counts()[0] == 2
    read = [key for call, key in bucket.calls if call == "get" and "/log/" in key]
    assert len(read) == len({*read}), "each once"


def test_a_joint_timeline_of_which_only_the_map_was_sent_is_named(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    last = stages[-1]
    shutil.copytree(last.archive, tmp_path / "archive")
    for core in (tmp_path / "archive" / last.joint).glob("core-*"):
        shutil.rmtree(core)
    send(bucket, tmp_path / "archive")
    copy = look(bucket)
    assert needed_of_cores(copy, None).left_out == [
        f"{URL}/{last.joint} has no time of all its cores yet, so it is left out"
    ]
    assert needed_of_cores(copy, stages[0].at_ms).left_out == []
    send(bucket, last.archive)
    assert needed_of_cores(look(bucket), None).left_out == []


def test_a_joint_timeline_that_is_removed_while_it_is_copied_is_no_whole_one(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path
) -> None:
    last = stages[-1]
    shutil.copytree(last.archive, tmp_path / "archive")
    first, trees = tmp_path / "archive" / stages[0].joint, copied_trees(str(tmp_path / "archive"))
    assert [next(trees).joint is None for _ in range(2)] == [False, True]
    first.rename(f"{first}.removed")
    with pytest.raises(FileNotFoundError, match=first.name):
        list(trees)
    send(bucket, tmp_path / "archive")
    assert counts(bucket, tmp_path) == [last.count] * len(NAMES)
    assert verify(bucket).incomplete == []


@pytest.mark.parametrize("lacks", ["bases", "times"])
def test_a_copy_says_that_it_leads_to_what_a_restore_leads_to(
    stages: list[Stage], bucket: MemoryBucket, tmp_path: Path, lacks: str
) -> None:
    """A core has no base yet, or its clock was set back."""
    shutil.copytree(stages[0].archive, tmp_path / "archive")
    (timeline,) = (tmp_path / "archive").glob("*/core-01/*Z-*")
    if lacks == "bases":
        shutil.rmtree(timeline / "bases")
    else:
        note = unpack_note((timeline / "archive.json").read_bytes(), "")
        back = msgspec.structs.replace(note.of_core, set_back=((note.upto_ms - 10, note.upto_ms + 1000),))
        (timeline / "archive.json").write_bytes(pack_description(msgspec.structs.replace(note, of_core=back)))
    sent, found = send(bucket, tmp_path / "archive"), verify(bucket)
    assert sent.upto_ms == found.upto_ms
    assert send(bucket, tmp_path / "archive").upto_ms == found.upto_ms
    assert bool(found.upto_ms) == (lacks == "times")


def test_backups_are_not_added_to_it(stages: list[Stage], backups: list[Path], bucket: MemoryBucket) -> None:
    send(bucket, stages[0].archive)
    with pytest.raises(UsageError, match="has a copy of another log"):
        send(bucket, backups[0])
    bucket.objects.clear()
    send(bucket, backups[0])
    before = dict(bucket.objects)
    with pytest.raises(UsageError, match="has a copy of another log"):
        send(bucket, stages[0].archive)
    assert bucket.objects == before
