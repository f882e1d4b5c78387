"""`topics fsck` on a small directory made through the library: damage is named, a rebuild keeps the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import xxhash
from typer.testing import CliRunner, Result

import topics
from topics.cli.root_command import app
from topics.store.format.log_format import WAL_FIRST_BATCH_OFFSET
from topics.store.layouts.segment_format import SEGMENT_HEADER_FIXED

SETTINGS: dict[str, Any] = {
    "io": "portable",
    "segment_max_events": 20,
    "segment_bulk": 1,
    "pack_run_bytes": 1024,
    "wal_file_bytes": 65_536,
    "disk_reserve_bytes": 4096,
}
SEGMENT = "topics/0000000000000001/seg-00000000000000000005.data"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sealed segments and an open one, a pack, two snapshots, a log. Seqs 1 to 4 and 7 of `big` are deleted."""
    path = tmp_path_factory.mktemp("filled") / "data"
    with topics.open(str(path), **SETTINGS) as log:
        log.put_topic("big", durability="fsync", ttl_ms=10**9)
        log.append("big", [topics.NewRecord({"n": n, "pad": "x" * 60}, tag=f"t{n}") for n in range(1, 51)])
        log.append("small", ["a", "b"])
        log.delete("big", before_seq=5)
        log.delete("big", match="t7")
    return path


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "data"))


def fsck(data: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["fsck", "--data-dir", str(data), "--io", "portable", *options])


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def test_a_sound_directory_ends_with_0_and_says_what_was_read(data: Path) -> None:
    done = fsck(data)
    assert (done.exit_code, "all sound" in done.output) == (0, True), done.output
    assert "3 segments, 1 pack, 47 records" in done.output


def test_the_last_batches_of_a_stopped_server_are_said_to_be_normal(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SETTINGS) as log:
        log.append("t", [1])
    done = fsck(tmp_path / "data")
    notes = [line for line in done.output.splitlines() if line.startswith("note:")]
    assert notes
    assert all("sound; whether synced is not recorded, which is normal for the last ones" in note for note in notes)
    assert (done.exit_code, "all sound" in done.output) == (0, True)


def only(data: Path, pattern: str) -> Path:
    """The newest file of that pattern."""
    return max(data.glob(pattern))


FLIPS: list[tuple[str, int | bytes, str]] = [
    (SEGMENT, 4096 + 60, "offset 4096, topic big, seq 5"),
    (SEGMENT, SEGMENT_HEADER_FIXED + 1, "offset 0, topic big: checksum of the segment header"),
    (SEGMENT.replace(".data", ".idx"), 100, "topic big"),
    ("packs/pack-*", b'"b"', "topic number 2, seq 2"),
    ("snapshots/snapshot-*", 100, "checksum"),
    ("topics.json", 2, "remove it"),
    ("wal/shard-00/wal-*", WAL_FIRST_BATCH_OFFSET + 70, f"offset {WAL_FIRST_BATCH_OFFSET}"),
]
"""Newest used file of a pattern; a byte of it, or what the first byte to flip looks like; the report that follows."""


@pytest.mark.parametrize(("pattern", "place", "told"), FLIPS, ids=[pattern.partition("/")[0] for pattern, *_ in FLIPS])
def test_a_flipped_byte_is_reported_with_its_place(data: Path, pattern: str, place: int | bytes, told: str) -> None:
    with topics.open(str(data), **SETTINGS) as log:
        log.append("big", [1])
        log.append("big", [2])  # says of the batch before it that it was synced
        coming = shutil.ignore_patterns("prepare-*")  # renamed while the copy is made
        killed = Path(shutil.copytree(data, data.with_name("killed"), ignore=coming))
    path = max(path for path in killed.glob(pattern) if any(path.read_bytes()))  # not a file prepared for the log
    flip(path, place if isinstance(place, int) else path.read_bytes().index(place))
    done = fsck(killed)
    assert done.exit_code == 1
    (line,) = [line for line in done.output.splitlines() if line.startswith("damage:")]
    assert line.startswith(f"damage: {path}")
    assert told in line


def test_json_has_every_finding_with_path_offset_topic_and_seq(data: Path) -> None:
    flip(data / SEGMENT, 4096 + 60)
    done = fsck(data, "--json")
    assert done.exit_code == 1
    answer = json.loads(done.output)
    (finding,) = answer["report"]["findings"]
    place = {name: finding[name] for name in ("path", "offset", "topic", "topic_id", "seq")}
    assert place == {"path": str(data / SEGMENT), "offset": 4096, "topic": "big", "topic_id": 1, "seq": 5}
    assert answer["sound"] is False


def told(data: Path) -> dict[str, Any]:
    """Return what a reader and an administrator see of a directory."""
    with topics.open(str(data), **SETTINGS) as log:
        return {
            state.name: (state, [(record.seq, record.data, record.tag) for record in log.read(state.name, from_seq=0)])
            for state in log.topics()
        }


def incarnations(data: Path) -> set[str]:
    return {state.incarnation for state, _rows in told(data).values()}


def test_segments_alone_bring_back_records_config_head_and_floor_and_no_deleted_record(data: Path) -> None:
    before = told(data)
    assert [seq for seq, _, _ in before["big"][1]][:3] == [5, 6, 8]
    shutil.rmtree(data / "snapshots")
    shutil.rmtree(data / "wal")
    done = fsck(data, "--rebuild")
    assert done.exit_code == 0, done.output
    assert "rebuilt: 2 topics, 47 records" in done.output
    after = told(data)
    assert {name: (state._replace(incarnation=""), rows) for name, (state, rows) in after.items()} == {
        name: (state._replace(incarnation=""), rows) for name, (state, rows) in before.items()
    }
    assert fsck(data).exit_code == 0


@pytest.mark.parametrize("alone", ["segments", "log"])
def test_a_rebuild_keeps_named_readers(tmp_path: Path, alone: str) -> None:
    """R-READER-4: segments state the position of the time when they were written."""
    data = tmp_path / "data"
    with topics.open(data, **SETTINGS) as log:
        log.put_topic("big", durability="fsync")
        log.append("big", list(range(50)))
        with log.reader("big", "billing", holds=True) as reader:
            reader.read(limit=25)
        log.append("big", list(range(50)))
    for snapshot in data.glob("snapshots/*"):
        snapshot.unlink()
    if alone == "segments":
        shutil.rmtree(data / "wal")
    done = fsck(data, "--rebuild")
    assert done.exit_code == 0, done.output
    with topics.open(data, **SETTINGS) as log:
        (state,) = log.readers("big")
        assert (state.name, state.config.holds, state.committed) == ("billing", True, 25)
        with log.reader("big", "billing") as reader:
            assert reader.read(limit=1)[0].seq == 26


def test_a_directory_built_from_its_files_has_other_incarnations_which_stay(data: Path) -> None:
    """R-INC-2: files do not show which seqs were given out."""
    before = incarnations(data)
    shutil.rmtree(data / "snapshots")
    assert fsck(data, "--rebuild").exit_code == 0
    after = incarnations(data)
    assert not before & after
    assert incarnations(data) == after


def test_a_directory_mended_by_its_snapshot_keeps_its_incarnations(data: Path) -> None:
    """R-INC-2."""
    before = incarnations(data)
    flip(data / SEGMENT, 4096 + 60)
    assert fsck(data, "--rebuild").exit_code == 0
    assert incarnations(data) == before


def test_a_rebuild_gives_up_the_damaged_record_alone_and_keeps_a_copy_of_the_file(data: Path) -> None:
    before = told(data)
    content = (data / SEGMENT).read_bytes()
    flip(data / SEGMENT, 4096 + 60)
    done = fsck(data, "--rebuild")
    assert done.exit_code == 0, done.output
    assert "set aside:" in done.output
    assert told(data)["big"][1] == before["big"][1][1:]
    (copy,) = data.glob("set-aside-*/*")
    assert sum(a != b for a, b in zip(copy.read_bytes(), content, strict=True)) == 1


def test_a_rebuild_sets_an_unreadable_marker_aside(data: Path) -> None:
    (data / "topics.json").write_text("garbage")
    with pytest.raises(topics.FormatError, match=r"topics\.json: .*: `topics fsck` shows all damage"):
        topics.open(data, **SETTINGS)
    assert fsck(data).exit_code == 1
    done = fsck(data, "--rebuild")
    assert done.exit_code == 0, done.output
    assert fsck(data).exit_code == 0
    assert [path.read_text() for path in data.glob("set-aside-*/topics.json")] == ["garbage"]


def test_a_rebuild_of_a_newer_directory_is_refused_and_changes_nothing(data: Path) -> None:
    marker, log_file = data / "topics.json", min(data.glob("wal/*/wal-*.log"))
    flip(data / SEGMENT, 4096 + 60)
    for path, damage in (
        (marker, lambda: marker.write_text('{"format":9,"cores":1}')),
        (data / SEGMENT, lambda: _set(data / SEGMENT, 4, 7)),
        (only(data, "snapshots/*"), lambda: _set_version(only(data, "snapshots/*"))),
        (log_file, lambda: _set(log_file, 4, 6)),
    ):
        sound = path.read_bytes()
        damage()
        before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
        looked = fsck(data)
        assert looked.exit_code == 1
        assert "a rebuild refuses" in looked.output
        assert "--rebuild" not in looked.output
        done = fsck(data, "--rebuild")
        assert done.exit_code == 2, done.output
        assert "use the version of topics that made it" in done.output.replace("\n", " ")
        assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
        path.write_bytes(sound)


def _set(path: Path, at: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] = value
    path.write_bytes(content)


def _set_version(snapshot: Path) -> None:
    """Make a sound snapshot of version 9."""
    _set(snapshot, 4, 9)
    content = snapshot.read_bytes()
    checksum = xxhash.xxh3_64_intdigest(content[:56], seed=xxhash.xxh3_64_intdigest(content[64:]))
    snapshot.write_bytes(content[:56] + checksum.to_bytes(8, "little") + content[64:])


def test_a_rebuild_of_a_sound_directory_changes_nothing(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    done = fsck(data, "--rebuild")
    assert (done.exit_code, "rebuilt" in done.output) == (0, False)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_directory_whose_first_start_was_cut_short_is_sound(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"format":1,"cores":1}')
    done = fsck(tmp_path)
    assert (done.exit_code, "nothing was written here yet" in done.output) == (0, True), done.output


def test_a_directory_in_use_cannot_be_looked_at(data: Path) -> None:
    with topics.open(str(data), **SETTINGS):
        done = fsck(data)
    assert (done.exit_code, "in use" in done.output, "stop" in done.output) == (2, True, True)


def test_what_is_missing_or_not_ours_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    done = fsck(tmp_path / "none")
    assert (done.exit_code, "does not exist" in done.output) == (2, True)
    assert not (tmp_path / "none").exists()
    done = fsck(tmp_path)
    assert (done.exit_code, "not a data directory" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("linked", ["wal", "snapshots", "topics/0000000000000001"])
def test_a_rebuild_follows_no_link(data: Path, linked: str, tmp_path: Path) -> None:
    """It writes and cuts files, and would do so wherever the link points to."""
    moved = tmp_path / "elsewhere"
    (data / linked).rename(moved)
    (data / linked).symlink_to(moved)
    flip(data / SEGMENT, 4096 + 60)
    before = {path: path.read_bytes() for path in [moved, *moved.rglob("*")] if path.is_file()}
    done = fsck(data, "--rebuild")
    assert done.exit_code == 2
    assert f"{data / linked} is a link" in done.output.replace("\n", "")
    assert before == {path: path.read_bytes() for path in [moved, *moved.rglob("*")] if path.is_file()}


def test_a_snapshot_that_claims_a_terabyte_is_damage_not_the_end_of_the_memory(data: Path) -> None:
    newest = only(data, "snapshots/*")
    with newest.open("r+b") as file:
        file.truncate(1 << 40)
    done = fsck(data)
    assert done.exit_code == 1
    assert "the snapshot has 1099511627776 bytes; its header says" in done.output.replace("\n", " ")
    with topics.open(str(data), **SETTINGS) as log:  # by the other copy
        assert len(list(log.read("small"))) == 2
    assert fsck(data, "--rebuild").exit_code == 0
