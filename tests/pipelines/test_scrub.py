"""`scrub`: damage is named by place and record beside a running server, and a backup is compared record by record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.pipelines.pipeline_world import DAY_MS, START_MS, fill, opened, order
from topics.clock import ManualClock
from topics.files import DirectoryBusyError, Piece
from topics.pipelines import scrub
from topics.pipelines.engines import LocalEngine, Stop
from topics.pipelines.scrub import BEYOND, MISSING, NEWER, Options, ScrubReport


def run(data: Path, **more: Any) -> ScrubReport:
    engine = more.pop("engine", None)
    report = scrub.run(Options(str(data), **more), engine=engine, clock=ManualClock())
    json.dumps(report.as_json())
    return report


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """One of the test's own."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


def rot(path: Path, text: bytes, start: int = 0) -> int:
    """Flip a bit where a text is; returns the place."""
    content = bytearray(path.read_bytes())
    place = content.index(text, start)
    content[place] ^= 1
    path.write_bytes(content)
    return place


def segments(data: Path) -> list[Path]:
    return sorted((data / "topics").rglob("*.data"))


# --- one directory


@pytest.mark.parametrize("unit_bytes", [1, 128 << 20])
def test_a_sound_directory_ends_with_0_and_says_what_was_read(
    filled: Path, monkeypatch: pytest.MonkeyPatch, unit_bytes: int
) -> None:
    monkeypatch.setattr(scrub, "UNIT_BYTES", unit_bytes)
    report = run(filled)
    assert (report.exit_code, report.bad, report.findings, report.topics) == (0, 0, [], 3)
    assert report.frames == report.records > 170
    assert report.bytes > sum(path.stat().st_size for path in segments(filled))
    assert report.summary().endswith("all sound")


def test_a_bad_frame_is_named_by_path_offset_topic_and_seq(data: Path) -> None:
    path = segments(data)[0]
    place = rot(path, b'"id":30')
    report = run(data)
    (finding,) = [one for one in report.findings if not one["derived"]]
    assert (report.exit_code, finding["path"], finding["topic"]) == (1, str(path), "orders")
    assert finding["offset"] < place < finding["offset"] + 200
    assert finding["seq"] == 30
    assert "1 damaged place" in report.summary()


def test_damage_in_several_files_and_in_a_snapshot_is_all_found(data: Path) -> None:
    for path in segments(data):
        rot(path, b'"amount"', 4096 + 2000)
    snapshot = sorted((data / "snapshots").iterdir())[0]
    rot(snapshot, b"orders")
    report = run(data)
    found = {finding["path"] for finding in report.findings}
    assert {str(path) for path in segments(data)} | {str(snapshot)} <= found
    assert report.bad == len(report.findings)


def test_the_index_of_a_pack_is_looked_at_once_however_units_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "UNIT_BYTES", 1)
    with opened(tmp_path / "data") as log:
        for number in range(5):
            log.append(f"small-{number}", ["x" * 50] * 5)
    (pack,) = (tmp_path / "data" / "packs").iterdir()
    content = bytearray(pack.read_bytes())
    content[-200] ^= 1
    pack.write_bytes(content)
    report = run(tmp_path / "data")
    assert [finding["derived"] for finding in report.findings] == [True]
    assert report.findings[0]["offset"] is None


def test_only_the_first_findings_are_listed_and_all_are_counted(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "LISTED_MAX", 1)
    for path in segments(data):
        rot(path, b'"amount"', 4096 + 2000)
    report = run(data)
    assert (len(report.findings), report.bad >= len(segments(data))) == (1, True)


class Meddling(LocalEngine):
    """An engine that acts between planning and the first unit; keeps the units of each plan."""

    def __init__(self, meddle: Any) -> None:
        self.meddle = meddle
        self.plans: list[Any] = []

    def run(self, function: Any, units: Any, stop: Stop) -> Any:
        if not self.plans:
            self.meddle()
        self.plans.append(units)
        return super().run(function, units, stop)


def test_what_a_checkpoint_gives_up_while_it_runs_is_no_damage(data: Path) -> None:
    def delete() -> None:
        with opened(data, START_MS + 3 * DAY_MS) as log:
            log.delete("orders", before_seq=60)

    engine = Meddling(delete)
    report = run(data, engine=engine)
    assert (report.exit_code, report.findings, len(engine.plans)) == (0, [], 1)
    assert report.pieces == len(engine.plans[0][0]) - 1


def test_files_that_vanish_are_looked_for_in_the_newest_snapshot(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scrub.scan_unit
    hidden: list[Piece] = []

    def hiding_the_first(location: Any, pieces: tuple[Piece, ...]) -> scrub._Scanned:
        found = real(location, pieces)
        if not hidden:
            hidden.extend(pieces)
            return scrub._Scanned(0, 0, 0, 0, [], list(pieces))
        return found

    monkeypatch.setattr(scrub, "scan_unit", hiding_the_first)
    report = run(data)
    assert (report.exit_code, report.records, report.pieces) == (0, 180, len(hidden))


def test_a_file_that_is_missing_and_listed_by_the_newest_snapshot_is_damage(data: Path) -> None:
    path = segments(data)[0]
    path.unlink()
    report = run(data)
    (finding,) = report.findings
    assert (report.exit_code, finding["path"], finding["seq"], finding["offset"]) == (1, str(path), 1, None)
    assert finding["message"].endswith("lists it, and it is missing or another file")


@pytest.mark.parametrize("size", [0, 40])
def test_a_pack_without_a_header_that_the_newest_snapshot_lists_is_damage(tmp_path: Path, size: int) -> None:
    """While it is read it may be another pack of that number that is only begun; listed once more, it is not."""
    with opened(tmp_path / "data") as log:
        for number in range(3):
            log.append(f"small-{number}", ["x" * 50] * 5)
    (pack,) = (tmp_path / "data" / "packs").iterdir()
    pack.write_bytes(pack.read_bytes()[:size])
    report = run(tmp_path / "data")
    assert (report.exit_code, report.pieces) == (1, 0)
    assert [(one["path"], one["topic"], one["seq"]) for one in report.findings] == [
        (str(pack), f"small-{number}", 1) for number in range(3)
    ]
    assert {one["message"].partition(" lists it")[2] for one in report.findings} == {
        ", and it is missing or another file"
    }


def test_a_directory_that_never_holds_still_is_given_up(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1000))

    def all_gone(_location: Any, pieces: tuple[Piece, ...]) -> scrub._Scanned:
        return scrub._Scanned(0, 0, 0, 0, [], list(pieces))

    monkeypatch.setattr(scrub, "scan_unit", all_gone)
    monkeypatch.setattr(scrub, "_key", lambda piece: (piece.path, next(numbers), piece.run, piece.end))
    with pytest.raises(DirectoryBusyError, match="vanished 16 times before they could be scrubbed"):
        run(data)


# --- against a backup


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data, tmp_path / "backup"))


def compared(data: Path, backup: Path) -> dict[str, Any]:
    report = run(data, backup=str(backup))
    assert report.backup is not None
    return report.backup


def test_a_copy_has_no_difference(data: Path, backup: Path) -> None:
    found = compared(data, backup)
    assert (found["wrong"], found["topics"]["orders"]["differing"]) == (0, 0)
    assert found["topics"]["orders"]["same"] + found["topics"]["prices:eur"]["same"] == run(data).records


def test_what_happened_since_the_backup_is_explained(data: Path, backup: Path) -> None:
    with opened(data, START_MS + 4 * DAY_MS) as log:
        log.append("orders", [order(n) for n in range(201, 211)])
        log.delete("orders", match="customer-4")
        log.put_topic("orders", cap_records=100)
        log.append("new", [1])
        log.delete_topic("prices:eur")
        log.append("prices:eur", [2])
    with opened(backup) as log:
        log.append("old", [1])
    found = compared(data, backup)
    assert found["wrong"] == 0
    orders = found["topics"]["orders"]
    assert [one["reason"] for one in orders["here_only"]["ranges"]] == [NEWER]
    reasons = {one["reason"] for one in orders["backup_only"]["ranges"]}
    assert "deleted since" in reasons
    assert any(reason.startswith("lost") for reason in reasons)
    told = {name: about["state"] for name, about in found["topics"].items() if "state" in about}
    assert {name: text.partition(":")[0] for name, text in told.items()} == {
        "new": "not in the backup", "old": "only in the backup", "prices:eur": "another topic of that name",
    }  # fmt: skip


def test_a_record_that_differs_and_one_that_the_backup_lacks_are_wrong(data: Path, tmp_path: Path) -> None:
    """One incarnation with two histories: two copies that both continued."""
    backup = Path(shutil.copytree(data, tmp_path / "backup"))
    with opened(data, START_MS + 4 * DAY_MS) as log:
        log.append("orders", [order(n) for n in range(201, 206)])
    with opened(backup, START_MS + 4 * DAY_MS) as log:
        log.append("orders", [order(201), order(999), topics.NewRecord(203, tag="gone"), order(204), order(205)])
        log.delete("orders", match="gone")
    found = compared(data, backup)["topics"]["orders"]
    assert (found["differing_seqs"], found["wrong"]) == ([202], 2)
    assert found["here_only"]["ranges"] == [{"from_seq": 203, "to_seq": 203, "records": 1, "reason": MISSING}]
    assert run(data, backup=str(backup)).exit_code == 1


def test_records_of_bytes_are_compared_by_their_bytes(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with opened(data) as log:
        log.append("orders", [b"\x00\xff", 1, b""])
    shutil.copytree(data, backup)
    assert run(data).exit_code == 0
    assert compared(data, backup)["wrong"] == 0
    for path, values in ((data, [b"a", b"1", b"same"]), (backup, [b"b", 1, b"same"])):
        with opened(path) as log:
            log.append("orders", values)
    found = compared(data, backup)["topics"]["orders"]
    assert (found["differing_seqs"], found["same"]) == ([4, 5], 4)


def test_a_backup_that_goes_on_behind_the_directory_says_which_is_older(data: Path, backup: Path) -> None:
    with opened(backup, START_MS + 4 * DAY_MS) as log:
        log.append("orders", [order(n) for n in range(201, 204)])
    found = compared(data, backup)["topics"]["orders"]
    assert found["backup_only"]["ranges"] == [{"from_seq": 201, "to_seq": 203, "records": 3, "reason": BEYOND}]
    assert found["wrong"] == 3


def test_damage_in_a_backup_is_wrong_and_the_rest_is_compared(
    data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.pipelines.source.UNIT_BYTES", 1)
    path = segments(backup)[0]
    rot(path, b'"id":30')
    report = run(data, backup=str(backup))
    assert report.backup is not None
    assert (report.exit_code, report.bad, report.backup["wrong"]) == (1, 0, 1)
    assert str(path) in report.backup["unreadable"][0]
    assert report.backup["topics"]["orders"]["same"] > 100
