"""A topic that is exported and imported: equal, with new seqs or with its own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

import topics
from tests.cli.commands.command_runs import run
from tests.embedded.conftest import SMALL
from topics.cli.commands.topic_export import export_lines
from topics.cli.commands.topic_import import TopicImport
from topics.cli.exit_codes import USAGE
from topics.errors import RequestError, UsageError

RECORDS = [
    topics.NewRecord({"k": [1, 1.5, None, True, {"": "\x00\x7f\u2028😀"}]}, "eu", "n1", {"m": [1]}),
    topics.NewRecord("text\nwith lines", None, None, None),
    topics.NewRecord(b"\x00\xff\n", "eu:de", None, {"m": 2}),
    topics.NewRecord(b"", "", "", None),
    topics.NewRecord(2**64 - 1, None, "n2", "meta"),
    topics.NewRecord(-(2**63), None, None, None),
    topics.NewRecord(1e-300, None, None, None),
    topics.NewRecord(None, None, None, None),
]


def nothing(_count: int) -> None:
    pass


def exported(log: topics.Log, topic: str) -> bytes:
    return b"".join(export_lines(log, log.state(topic), skip_gaps=False))


def imported(log: topics.Log, topic: str, lines: bytes, *, keep_seqs: bool, max_missing: int = 5000) -> int:
    work = TopicImport(log, topic, "record", keep_seqs=keep_seqs, max_missing=max_missing)
    return work.run(io.BytesIO(lines), nothing).records


def contents(log: topics.Log, topic: str) -> list[tuple[Any, ...]]:
    return [(each.data, each.tag, each.node, each.meta, each.delay_ms, each.ttl_ms) for each in log.read(topic)]


def test_a_topic_that_is_exported_and_imported_has_equal_records_and_settings(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.put_topic("t", durability="fsync", idempotency_window_ms=5)
        one.append("t", RECORDS)
        assert imported(other, "t", exported(one, "t"), keep_seqs=False) == len(RECORDS)
        assert contents(other, "t") == contents(one, "t") == [tuple(each) for each in RECORDS]
        assert other.state("t").config == one.state("t").config
        assert all(type(a.data) is type(b.data) for a, b in zip(one.read("t"), other.read("t"), strict=True))


def test_with_seqs_kept_the_holes_and_the_head_are_those_of_the_file(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.append("t", [topics.NewRecord(at, "gone" if at % 3 == 0 else "left") for at in range(2500)])
        one.delete("t", match="gone")
        one.delete("t", before_seq=1200)
        one.append("t", ["last"])
        one.append("t", [topics.NewRecord(0, "gone")] * 3)
        one.delete("t", match="gone")
        imported(other, "copy", exported(one, "t"), keep_seqs=True)
        assert [(each.seq, each.data) for each in other.read("copy")] == [
            (each.seq, each.data) for each in one.read("t")
        ]
        assert other.state("copy").head_seq == one.state("t").head_seq == 2504
        assert other.append("copy", [1]).first_seq == 2505


def test_a_topic_with_a_cap_is_imported_whole_and_has_its_cap_afterwards(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.put_topic("t", cap_records=3)
        one.append("t", [1, 2, 3, 4, 5])
        lines = exported(one, "t")
        imported(other, "t", lines, keep_seqs=True)
        assert [each.seq for each in other.read("t", from_="first")] == [3, 4, 5]
        assert other.state("t").config.cap_records == 3


def test_a_queue_is_imported_with_its_jobs_to_be_claimed(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.put_topic("q", type="queue", max_deliveries=3)
        one.append("q", [1, b"two"])
        imported(other, "q", exported(one, "q"), keep_seqs=False)
        assert [job.data for job in other.claim("q", "w", 5)] == [1, b"two"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b'{"$seq":5,"data":1}\n{"$seq":4,"data":1}\n', r"line 2 has \$seq 4, which is not above"),
        (
            b'{"$seq":12,"data":1}\n',
            r"line 1 has \$seq 12, and 11 seqs on the way there are missing, .* --max-missing \(10\)",
        ),
        (b'{"topics_export":1,"head_seq":11,"config":{}}\n', "line 1 has head_seq 11, and 11 seqs on the way"),
    ],
)
def test_a_file_of_which_nothing_is_stored_leaves_no_topic_so_that_it_can_be_mended(
    lines: bytes, told: str, tmp_path: Path
) -> None:
    with topics.open(tmp_path / "a", **SMALL) as log:
        with pytest.raises(UsageError, match=told):
            imported(log, "t", lines, keep_seqs=True, max_missing=10)
        assert log.topics() == []
        assert imported(log, "t", b'{"$seq":11,"data":1}\n', keep_seqs=True, max_missing=10) == 1


class WorkedOn:
    """A log of which a worker claims all jobs of a queue after each append."""

    def __init__(self, log: topics.Log, queue: str) -> None:
        self._log, self._queue = log, queue
        self.claimed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, topic: str, values: Any) -> topics.AppendResult:
        appended = self._log.append(topic, values)
        self.claimed += [job.data for job in self._log.claim(self._queue, "w", 1000)]
        return appended


def test_no_worker_gets_what_stands_for_missing_seqs_of_a_queue(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.put_topic("q", type="queue")
        one.append("q", list(range(1, 8)))
        one.ack("q", "w", one.claim("q", "w", 3))
        one.ack("q", "w", one.claim("q", "w", 4)[2:3])
        worked_on: Any = WorkedOn(other, "q")
        imported(worked_on, "q", exported(one, "q"), keep_seqs=True)
        assert worked_on.claimed == [4, 5, 7]
        assert [(job.seq, job.data) for job in other.read("q")] == [(4, 4), (5, 5), (7, 7)]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b'{"$seq":2,"data":1}\n{"$seq":2,"data":1}\n', "line 2 has $seq 2, which is not above the one before it"),
        (b'{"data":1}\n', "line 1 has no $seq"),
        (b'{"$seq":0,"data":1}\n', "line 1 has a $seq that is no number from 1 on"),
        (b'{"$seq":1,"data":1,"data_base64":""}\n', "line 1 is no record"),
        (b'{"$seq":1,"data_base64":"AA"}\n', "line 1 has data_base64 that is no base64"),
        (b'{"$seq":1,"data_base64":7}\n', "line 1 has data_base64 that is no base64"),
        (b'{"$seq":1,"data":1,"$tag":7}\n', "line 1 has a tag that is no string"),
        (b'{"$seq":1,"data":1,"delay":7}\n', "line 1 has 'delay', which no record has"),
        (b"[1]\n", "line 1 is no record"),
        (b"{\n", "line 1 is no JSON"),
        (b'{"topics_export":1}\n', "line 1 begins as an export, and has no config"),
    ],
)
def test_a_line_that_is_no_record_is_named(lines: bytes, told: str, tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as log, pytest.raises(UsageError) as refused:
        imported(log, "t", lines, keep_seqs=True)
    assert told in str(refused.value)


def test_seqs_are_kept_only_in_a_new_topic(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as log:
        log.append("t", [1])
        with pytest.raises(RequestError, match="is there, with seqs up to 1"):
            imported(log, "t", b'{"$seq":1,"data":1}\n', keep_seqs=True)
        log.put_topic("empty")
        with pytest.raises(RequestError, match="is there, with seqs up to 0: --keep-seqs needs a new topic"):
            imported(log, "empty", b'{"$seq":1,"data":1}\n', keep_seqs=True)
        assert [log.state(name).head_seq for name in ("t", "empty")] == [1, 0]


def test_an_export_leaves_out_what_comes_after_it_began(tmp_path: Path) -> None:
    with topics.open(tmp_path / "a", **SMALL) as log:
        log.append("t", [1, 2])
        state = log.state("t")
        log.append("t", [3])
        lines = b"".join(export_lines(log, state, skip_gaps=False)).splitlines()
    assert [msgspec.json.decode(line).get("data") for line in lines[1:]] == [1, 2]


def test_a_delay_continues_in_the_queue_that_is_imported(tmp_path: Path) -> None:
    """R-DELAY-1: what is left of it."""
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.put_topic("jobs", type="queue")
        log.append("jobs", [topics.NewRecord(1, delay_ms=3_600_000), 2])
        imported(log, "copy", exported(log, "jobs"), keep_seqs=False)
        (before, _), (after, other) = log.read("jobs"), log.read("copy")
        assert 0 <= after.ts + after.delay_ms - (before.ts + before.delay_ms) < 60_000
        assert other.delay_ms == 0
        assert log.state("copy").queue == topics.QueueState(1, 0, 0, (), 1)


def test_what_is_left_of_a_ttl_is_imported_and_an_expired_record_keeps_its_place(tmp_path: Path) -> None:
    """R-RTTL-1."""
    with topics.open(tmp_path / "a") as log:
        log.append("t", [1, topics.NewRecord(2, ttl_ms=3_600_000), 3])
        text = exported(log, "t")
        assert imported(log, "u", text, keep_seqs=True) == 3
        before, after = list(log.read("t"))[1], list(log.read("u"))[1]
        assert 0 <= before.ts + before.ttl_ms - (after.ts + after.ttl_ms) + 1 < 60_000
        late = text.replace(b'"$ts":%d' % before.ts, b'"$ts":%d' % (before.ts - 7_200_000))
        assert imported(log, "v", late, keep_seqs=True) == 3
        assert log.state("v").head_seq == 3


def test_an_import_that_fails_says_which_lines_are_stored_and_leaves_the_limits_of_the_file(tmp_path: Path) -> None:
    """A repaired file, imported again, would be there twice; a topic without its limits grows."""
    with topics.open(tmp_path / "a", **SMALL) as one, topics.open(tmp_path / "b", **SMALL) as other:
        one.put_topic("t", cap_records=5000, ttl_ms=3_600_000)
        one.append("t", list(range(1, 2502)))
        one.delete("t", before_seq=1)
        one.append("t", [topics.NewRecord(1, "gone")])
        one.delete("t", match="gone")
        one.append("t", [7])
        lines = exported(one, "t").splitlines(keepends=True)
        work = TopicImport(other, "t", "record", keep_seqs=True, max_missing=5000)
        with pytest.raises(UsageError) as refused:
            work.run(io.BytesIO(b"".join([*lines, b"{\n"])), nothing)
        assert str(refused.value).startswith("line 2504 is no JSON")
        assert work.stored.text(refused.value) == "lines 1 to 2502 are stored (seqs 1 to 2501), the rest is not"
        state = other.state("t")
        assert (state.config.cap_records, state.config.ttl_ms) == (5000, 3_600_000)
        assert [record.tag for record in other.read("t") if record.tag is not None] == []


def test_the_command_says_which_lines_it_stored(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    file = tmp_path / "lines"
    file.write_bytes(b'{"data":1}\n' * 1500 + b"{\n")
    ran = run(["import", "t", str(file), "--data-dir", str(data)], tmp_path)
    assert ran.code == USAGE
    assert "line 1501 is no JSON" in ran.err
    assert ran.err.endswith("; lines 1 to 1000 are stored (seqs 1 to 1000), the rest is not\n")
    with topics.open(data, **SMALL) as log:
        assert log.state("t").count == 1000
