"""Records of bytes in the library: what was given is what is read, wherever the record is."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from tests.sim import SimRing
from topics.config import tiny_config
from topics.embedded.log import Log

DATA = bytes(range(256))


def data_of(log: topics.Log, topic: str) -> list[Any]:
    return [record.data for record in log.read(topic)]


def marked_format(path: Path) -> int:
    marker: int = json.loads((path / "topics.json").read_text())["format"]
    return marker


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_stored_as_they_are(log: topics.Log, kind: type) -> None:
    log.append("t", [kind(DATA), kind(b"")])
    log.append("t", [topics.NewRecord(kind(b"\x00\xff"), tag="a", node="n", meta={"k": 1})])
    first, second, third = log.read("t")
    assert (first.data, second.data, third.data) == (DATA, b"", b"\x00\xff")
    assert type(first.data) is bytes
    assert (third.tag, third.node, third.meta) == ("a", "n", {"k": 1})


def test_a_view_of_other_items_is_stored_as_its_bytes(log: topics.Log) -> None:
    log.append("t", [memoryview(DATA)[::2], memoryview(DATA).cast("I")])
    assert data_of(log, "t") == [DATA[::2], DATA]


def test_a_subclass_of_bytes_is_bytes(log: topics.Log) -> None:
    class Key(bytes):
        pass

    log.append("t", [Key(b"a"), 1, topics.NewRecord(Key(b"b"))])
    assert data_of(log, "t") == [b"a", 1, b"b"]


def test_what_its_caller_changes_afterwards_does_not_change_a_record(log: topics.Log) -> None:
    value = bytearray(b"before")
    log.append("t", [value])
    value[:] = b"after!"
    assert data_of(log, "t") == [b"before"]


class Lengthless(dict[str, int]):
    def __len__(self) -> int:
        raise RuntimeError("no length")


@pytest.mark.parametrize("other", [{1, 2}, range(1 << 40), Lengthless(a=1), {"a": 1}, "text", 1.5])
def test_bytes_before_another_value_are_what_they_are_alone(log: topics.Log, other: Any) -> None:
    def outcome(values: list[Any]) -> list[Any] | str:
        try:
            log.append("t", values)
        except topics.RequestError as error:
            return str(error).split(" cannot be JSON: ")[1]
        return data_of(log, "t")[-1:]

    assert outcome([b"bytes", b"more", other]) == outcome([other])


def test_a_value_that_json_cannot_hold_is_refused_with_what_to_use(log: topics.Log) -> None:
    with pytest.raises(topics.RequestError, match=r"^records\[1\] cannot be JSON: .*; use .* or bytes as data$"):
        log.append("t", [1, object()])
    with pytest.raises(topics.RequestError, match=r"^the value cannot be JSON: .*; use .* or bytes as data$"):
        log.append_soon("t", object())


@pytest.mark.parametrize("others", [[], [b"bytes"], [{"a": 1}]])
def test_a_view_that_was_released_is_refused_by_name(log: topics.Log, others: list[Any]) -> None:
    view = memoryview(b"gone")
    view.release()
    for append in (log.append, log.append_nowait):
        with pytest.raises(topics.RequestError, match=rf"records\[{len(others)}\] cannot be read.*its release"):
            append("t", [*others, view])
    with pytest.raises(topics.RequestError, match="the value cannot be read"):
        log.append_soon("t", view)


def test_bytes_and_json_follow_each_other_in_one_append(log: topics.Log) -> None:
    values = [b"\xff", {"a": 1}, b"", None, bytearray(b"null"), "text"]
    log.append("t", values)
    assert data_of(log, "t") == [b"\xff", {"a": 1}, b"", None, b"null", "text"]
    assert [record.data for record in log.page("t", 2, limit=2).records] == [b"", None]


def test_the_size_of_a_record_is_its_number_of_bytes(log: topics.Log) -> None:
    log.append("t", [DATA, topics.NewRecord(b"xyz", meta={"k": 1})])
    log.append("t", [b"1234567890"] * 10)
    assert (log.state("t").bytes, log.state("t").count) == (256 + 3 + 7 + 100, 12)


def test_columns_say_of_each_payload_whether_it_is_bytes(log: topics.Log) -> None:
    log.append("t", [b"\x00", 1, b"\x01"])
    page = log.columns("t")
    assert page.kind.tolist() == [1, 0, 1]
    assert page.payloads == b"\x001\x01"
    assert page.offsets.tolist() == [0, 1, 2, 3]
    assert log.columns("t", 3).kind.tolist() == []


def test_every_way_to_read_gives_them_back(log: topics.Log) -> None:
    log.append("t", [DATA, 1])
    assert log.get("t", 1).data == DATA  # type: ignore[union-attr]
    assert next(log.tail("t", 0)).data == DATA
    with log.reader("t", "r", delivery="at-least-once") as reader:
        assert [record.data for record in reader.peek()] == [DATA, 1]
        assert [record.data for record in reader.read()] == [DATA, 1]
    page = log.page("t", max_bytes=len(DATA))
    assert ([record.data for record in page.records], page.size) == ([DATA], len(DATA))


def test_appends_that_are_not_waited_for_keep_the_order_of_bytes_and_json(log: topics.Log) -> None:
    values = [b"a", b"b", 1, b"c", "d", "e", bytearray(b"f")]
    soon = [log.append_soon("t", value) for value in values]
    assert [one.result() for one in soon] == list(range(1, 8))
    assert data_of(log, "t") == [b"a", b"b", 1, b"c", "d", "e", b"f"]


def test_asyncio_appends_and_reads_bytes(log: topics.Log) -> None:
    async def use() -> list[Any]:
        await log.aio.append("t", [DATA])
        return [record.data async for record in log.aio.read("t")]

    assert asyncio.run(use()) == [DATA]


@pytest.mark.parametrize("count", [3, 3000])
def test_bytes_stay_bytes_in_segments_and_packs_and_after_a_restart(tmp_path: Path, count: int) -> None:
    path = tmp_path / "data"
    values = [DATA if at % 3 else at for at in range(count)]
    with topics.open(path, **SMALL) as log:
        log.append("t", values)
        log.checkpoint()
        log.append("t", [b"later"])
        assert data_of(log, "t") == [*values, b"later"]
    with topics.open(path, **SMALL) as log:
        assert data_of(log, "t") == [*values, b"later"]


def test_bytes_stay_bytes_in_segments_written_anew(tmp_path: Path) -> None:
    settings = {**SMALL, "segment_max_events": 20, "segment_bulk": 1, "compact_below": 1.0, "hot_tail_bytes": 0}
    with topics.open(tmp_path / "data", **settings) as log:
        log.append("t", [topics.NewRecord(DATA * 999, tag="kept" if at % 3 else "dead") for at in range(100)])
        log.checkpoint()
        files = {place.path for place in map(partial(log.locate, "t"), range(1, 101)) if place}
        log.delete("t", match="dead")
        log.checkpoint()
        log.checkpoint()
        assert not files & {place.path for place in map(partial(log.locate, "t"), range(1, 101)) if place}
        assert data_of(log, "t") == [DATA * 999] * 66


def test_jobs_of_bytes_are_claimed_and_moved_to_the_dead_letter_topic_as_bytes(log: topics.Log) -> None:
    log.put_topic("q", type="queue", max_deliveries=1, dead_letter="dead")
    log.append("q", [DATA, {"json": 1}, topics.NewRecord(b"x", meta={"k": 1})])
    jobs = log.claim("q", "w", 3)
    assert [job.data for job in jobs] == [DATA, {"json": 1}, b"x"]
    log.nack("q", "w", jobs)
    assert log.claim("q", "w", 3) == []
    dead = list(log.read("dead"))
    assert [record.data for record in dead] == [DATA, {"json": 1}, b"x"]
    assert dead[2].meta["k"] == 1
    assert log.state("dead").bytes >= len(DATA)


def test_a_part_of_bytes_is_not_the_same_part_as_one_of_equal_json(log: topics.Log) -> None:
    part = topics.Producer("p", 1)
    text = '"same"'
    log.append_many("t", [text.encode()], producer=part)
    with pytest.raises(topics.RequestError) as refused:
        log.append("t", [text.encode()], producer=part)
    assert refused.value.code == "producer_diverged"
    other = topics.Producer("p", 2)
    assert not log.append("t", [text.encode()], producer=other).deduped
    assert log.append("t", [text.encode()], producer=other).deduped
    assert data_of(log, "t") == ["same", b'"same"']


def test_a_part_in_pieces_keeps_its_bytes(log: topics.Log) -> None:
    for piece, value in enumerate([b"one", 2, b"three"]):
        log.append("t", [value], producer=topics.Producer("p", 1, 0, piece, piece == 2, "a"))
    assert data_of(log, "t") == [b"one", 2, b"three"]


def test_records_in_memory_may_be_bytes(log: topics.Log) -> None:
    log.put_topic("t", durability="ephemeral")
    log.append("t", [DATA])
    assert data_of(log, "t") == [DATA]


# --- limits ----------------------------------------------------------------------------------------------------------
def test_a_record_may_have_sixteen_mebibytes_unless_it_is_set_otherwise(tmp_path: Path) -> None:
    big = bytes(16 << 20)
    with topics.open(tmp_path / "a", **SMALL) as log:
        assert log.append("t", [big]).last_seq == 1
        assert next(log.read("t")).data == big
        for records in ([b"", big + b"x"], [topics.NewRecord(big, meta={})], [1, big + b"x"]):
            with pytest.raises(topics.RequestError, match=r"^records\[\d\] is larger than 16777216 bytes") as refused:
                log.append("t", records)
            assert refused.value.code == "record_too_large"
        assert log.state("t").count == 1
    with topics.open(tmp_path / "b", max_record_bytes=4, **SMALL) as log:
        log.append("t", [b"1234"])
        with pytest.raises(topics.RequestError, match="is larger than 4 bytes"):
            log.append("t", [b"12345"])


def test_records_beyond_four_gibibytes_are_refused_before_anything_is_copied(log: topics.Log) -> None:
    big = bytes(16 << 20)
    for records in ([big] * 256, [topics.NewRecord(big)] * 256, [1, *[big] * 256]):
        with pytest.raises(topics.RequestError, match="append less than 4 GiB in one call") as refused:
            log.append("t", records)
        assert refused.value.code == "batch_too_large"
    assert log.topics() == []


# --- the format of the directory -------------------------------------------------------------------------------------
def test_a_directory_is_marked_before_its_first_record_of_bytes_and_not_for_json(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with topics.open(path, **SMALL) as log:
        log.append("t", [{"base64": b"within a value"}])
        assert marked_format(path) == 1
        log.append("t", [b"x"])
        assert marked_format(path) == 2


def _append_a_repeated_part(log: topics.Log) -> None:
    log.append("t", [b"x"], producer=topics.Producer("p", 1, 0, 1, False, "a"))


REFUSED: dict[str, tuple[str, Callable[[topics.Log], Any]]] = {
    "a topic that is not to be created": ("topic_not_found", lambda log: log.append("new", [b"x"], create=False)),
    "a bad name": ("invalid_request", lambda log: log.append("b ad", [b"x"])),
    "another incarnation": ("incarnation_mismatch", lambda log: log.append("t", [b"x"], incarnation="0" * 16)),
    "no incarnation": ("incarnation_mismatch", lambda log: log.append("new", [b"x"], incarnation="0" * 16)),
    "a record above the cap": ("record_too_large", lambda log: log.append("small", [b"x" * 11])),
    "a full topic": ("topic_full", lambda log: log.append("small", [b"x" * 9])),
    "a topic too many": ("throttled", lambda log: log.append("new", [b"x"])),
    "a piece without the one before": ("producer_incomplete", _append_a_repeated_part),
    "a reader above the head": ("invalid_request", lambda log: log.reader("t", "r", from_seq=100)),
    "a bad name of a reader": ("invalid_request", lambda log: log.reader("t", "b ad")),
    "a delay in a log": ("not_a_queue", lambda log: log.append("t", [topics.NewRecord(b"x", delay_ms=1)])),
    "a delay in a new log": ("not_a_queue", lambda log: log.append("new", [topics.NewRecord(1, delay_ms=1)])),
    "several in the background": (
        "topic_not_found",
        lambda log: log.append_nowait("new", [b"x"], create=False).result(),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_call_leaves_the_format_of_the_directory(tmp_path: Path, reason: str) -> None:
    path, (code, call) = tmp_path / "data", REFUSED[reason]
    with topics.open(path, **{**SMALL, "max_topics": 2}) as log:
        log.put_topic("t")
        log.put_topic("small", cap_bytes=10, discard="reject")
        log.append("small", [12])
        with pytest.raises(topics.RequestError) as refused:
            call(log)
        assert refused.value.code == code
        assert marked_format(path) == 1
        assert [record.data for record in log.read("small")] == [12]
        log.append("t", [b"x"])
        assert marked_format(path) == 2
        assert data_of(log, "t") == [b"x"]


def test_a_write_after_bytes_that_wait_for_the_format_keeps_its_place(log: topics.Log) -> None:
    pending = [log.append_nowait("t", [value]) for value in (b"1", 2, b"3", 4)]
    assert [each.result().last_seq for each in pending] == [1, 2, 3, 4]
    assert data_of(log, "t") == [b"1", 2, b"3", 4]


def test_delays_after_bytes_that_wait_for_a_lower_format_keep_their_places(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with topics.open(path, **SMALL) as log:
        log.put_topic("q", type="queue")
        values = [b"1", topics.NewRecord(2, delay_ms=1), b"3", 4, topics.NewRecord(b"5", delay_ms=1), 6]
        pending = [log.append_nowait("q", [value]) for value in values]
        assert [each.result().last_seq for each in pending] == [1, 2, 3, 4, 5, 6]
        assert marked_format(path) == 3
        assert data_of(log, "q") == [b"1", 2, b"3", 4, b"5", 6]


class Closing:
    """A log on a simulated disk."""

    def __init__(self) -> None:
        self.ring = SimRing(1)
        self.log = Log(tiny_config("data"), self.ring, self.ring.clock)

    def __enter__(self) -> Closing:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()


def test_a_mark_that_cannot_be_written_refuses_the_append_with_the_disks_error() -> None:
    with Closing() as opened:
        log, ring = opened.log, opened.ring
        log.append("t", [1])
        ring.faults.fail("write", errno.EIO, path_part="topics.json")
        with pytest.raises(topics.StorageError, match="the format of the data directory could not be raised"):
            log.append("t", [b"x"])
        ring.faults.fail("rename", errno.ENOSPC, path_part="topics.json")
        with pytest.raises(topics.DiskFullError):
            log.append("t", [b"x", 2])
        assert data_of(log, "t") == [1]
        log.append("t", [b"x"])
        assert data_of(log, "t") == [1, b"x"]
