"""A caller's mistake is that caller's error: the log continues for all others."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topics
from topics import Job, NewRecord, Producer, RequestError, UsageError

WRONG: list[Callable[[Any], Any]] = [
    lambda log: log.append(["t"], [1]),
    lambda log: log.append("t", [1], node=5),
    lambda log: log.append("t", [1], incarnation=5),
    lambda log: log.wait({}),
    lambda log: log.wait(["t"]),
    lambda log: log.wait({5: 1}),
    lambda log: log.wait({"t": "1"}),
    lambda log: log.wait({"t": (1, "x")}),
    lambda log: log.wait({"t": (1, None, 2)}),
    lambda log: log.wait({f"t{number}": 0 for number in range(257)}),
    lambda log: log.wait({"t": 1}, wait_ms=-1),
    lambda log: log.checkpoint(timeout=-1),
    lambda log: log.checkpoint(timeout="1"),
    lambda log: log.checkpoint(timeout=float("nan")),
    lambda log: log.checkpoint(timeout=True),
    lambda log: log.append_many("t", [b"1"], incarnation="0123456789ABCDEF"),
    lambda log: log.append("t", [1], key=5),
    lambda log: log.append("t", "abc"),
    lambda log: log.append("t", b"abc"),
    lambda log: log.append("t", {"a": 1}),
    lambda log: log.append("t", NewRecord(1)),
    lambda log: log.append("t", 5),
    lambda log: log.append("t", []),
    lambda log: log.append("t", [1], create="yes"),
    lambda log: log.append("t", [1], key="\udc80"),
    lambda log: log.append("t", [1], node="\udc80"),
    lambda log: log.append_soon(5, 1),
    lambda log: log.append_soon("t", NewRecord(1)),
    lambda log: log.append_many("t", "text"),
    lambda log: log.append_many("t", []),
    lambda log: log.append_many("t", ["1"]),
    lambda log: log.append_many("t", [b"1", None]),
    lambda log: list(log.read("t", limit="x")),
    lambda log: log.delete("t", match=5),
    lambda log: log.delete("t", match="\udc80"),
    lambda log: log.delete_topic("t", if_empty="no"),
    lambda log: log.state("t", touch=1),
    lambda log: log.topics(5),
    lambda log: log.page("t", node="\udc80"),
    lambda log: log.page("t", only_node="\udc80"),
    lambda log: log.page("t", match=5),
    lambda log: log.page("t", node="a", only_node="b"),
    lambda log: log.tail("t", reader="r", match="a"),
    lambda log: log.ack("q", "n", 5),
    lambda log: log.ack("q", "n", Job(seq=1, ts=1, lease_id="x", deadline=1, deliveries=1, data=1)),
    lambda log: log.put_topic("t", dead_letter="\udc80"),
    lambda log: log.page("t", 0, limit="x"),
    lambda log: log.page("t", 0, limit=-1),
    lambda log: log.page("t", 1.5),
    lambda log: log.page("t", from_time=-1),
    lambda log: log.page("t", 1, from_time=1),
    lambda log: list(log.read("t", from_time="1")),
    lambda log: log.page("t", 1, from_="now"),
    lambda log: log.page("t", 0, from_="now"),
    lambda log: log.page("t", 0, from_time=1),
    lambda log: log.columns("t", 0, from_="now"),
    lambda log: list(log.read("t", 0, from_="now")),
    lambda log: next(log.tail("t", 0, from_="now")),
    lambda log: next(log.tail("t", 0, from_="now", reader="r")),
    lambda log: log.reader("t", "r", from_seq=0, from_="now"),
    lambda log: log.page("t", from_="now", from_time=1),
    lambda log: log.page("t", from_="latest"),
    lambda log: log.page("t", from_=5),
    lambda log: log.page("t", from_={}),
    lambda log: log.page("t", from_={"last": 1, "time": 1}),
    lambda log: log.page("t", from_={"last": 10_001}),
    lambda log: log.page("t", from_={"time": "1"}),
    lambda log: log.columns("t", from_="tail"),
    lambda log: next(log.tail("t", from_={"last": -1})),
    lambda log: next(log.tail_many(["t"])),
    lambda log: next(log.tail_many(None)),
    lambda log: next(log.tail_many({})),
    lambda log: next(log.tail_many({5: 0})),
    lambda log: next(log.tail_many({"t": -1})),
    lambda log: next(log.tail_many({"t": True})),
    lambda log: next(log.tail_many({"t": "latest"})),
    lambda log: next(log.tail_many({f"t{number}": 0 for number in range(257)})),
    lambda log: next(log.tail_many({"t": 0}, max_bytes=0)),
    lambda log: log.page("t", -1),
    lambda log: log.delete("t", before_seq="x"),
    lambda log: log.state(b"t"),
    lambda log: log.columns("t", 0, limit=None),
    lambda log: log.claim("q", "n", limit=-1),
    lambda log: log.claim("q", "n", lease_ms=-1),
    lambda log: log.ack("q", "n", ["x"]),
    lambda log: log.put_topic(5),
    lambda log: log.patch_topic(5),
    lambda log: log.patch_topic("t", durabilty="fsync"),
    lambda log: log.patch_topic("t", durability="strong"),
    lambda log: log.patch_topic("t", ttl_ms=None),
    lambda log: log.delete_topic(None),
]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with topics.open(tmp_path / "data") as log:
        log.append("t", [1, 2, 3])
        yield log


@pytest.mark.parametrize("call", WRONG)
def test_an_argument_of_a_wrong_kind_is_a_usage_error_and_harms_no_other_call(log: topics.Log, call: Any) -> None:
    with pytest.raises(UsageError):
        call(log)
    assert log.append("t", [4]).last_seq == 4


ON_NO_DISK: list[Callable[[Any], Any]] = [
    topics.open,
    lambda path: topics.open("data", cold_dir=path),
    lambda path: topics.open("data", backup_dir=path),
    lambda path: topics.open("data", archive_dir=path),
    lambda path: topics.restore(path, "new"),
    lambda path: topics.restore("data", path),
    topics.verify_backup,
    topics.fsck,
]


@pytest.mark.parametrize("call", ON_NO_DISK)
def test_the_url_of_a_bucket_is_no_directory_and_none_is_made(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/p", "http://127.0.0.1:4000"):
        with pytest.raises(UsageError, match=f"'{url}'.*(on no disk|writes to a disk)"):
            call(url)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_to_a_bucket_or_to_two_lines_names_the_remedy(
    log: topics.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for to in ("s3://bucket/p", Path("s3://bucket/p")):
        with pytest.raises(UsageError, match="to is .*s3:.*, which is on no disk: .*`topics copy-backup` copies"):
            log.backup(to)
    for call in (log.backup, lambda to: topics.restore(tmp_path, to)):
        with pytest.raises(UsageError, match=r"to is 'a\\nb', which has a control character.*: use a path without"):
            call("a\nb")
    assert os.listdir(tmp_path) == ["data"]


class Text(str):
    """A string as `numpy.str_` is one: encoders of JSON refuse it."""

    __slots__ = ()


class Number(int):
    """An integer that encoders of JSON refuse."""


def claimed(log: topics.Log, *seqs: int) -> list[int]:
    log.put_topic("q", type="queue")
    log.append("q", [1, 2])
    log.claim("q", "n", 2)
    return list(seqs)


SUBCLASSES: list[Callable[[Any], Any]] = [
    lambda log: log.append(Text("u"), [1]),
    lambda log: log.append_soon(Text("u"), 1).result(),
    lambda log: log.append("t", [1], key=Text("k"), node=Text("n")),
    lambda log: log.append("t", [1], producer=Producer(Text("p"), Number(1), Number(0))),
    lambda log: log.put_topic(Text("u")),
    lambda log: log.put_topic("t", durability=Text("fsync"), ttl_ms=Number(1_000_000), cap_records=Number(9)),
    lambda log: log.delete(Text("t"), before_seq=Number(2)),
    lambda log: log.delete("t", match=Text("x*")),
    lambda log: log.delete_topic(Text("t")),
    lambda log: log.put_router(Text("r"), Text("t"), Text("u"), filter=Text("x*")),
    lambda log: log.reader(Text("t"), Text("r"), from_seq=Number(2)),
    lambda log: log.reader("t", "r", from_={"last": Number(2)}, commit_every=Number(1)),
    lambda log: log.reader("t", "r", delivery=Text("at-most-once")).read(limit=Number(2)),
    lambda log: log.reader("t", "r").seek(Number(2)),
    lambda log: [(reader := log.reader("t", "r")).read(limit=Number(2)), reader.commit(Number(1))],
    lambda log: log.delete_reader(Text("t"), Text("r")),
    lambda log: log.page("t", node=Text("n")),
    lambda log: list(log.read("t", only_node=Text("n"), match=Text("x"))),
    lambda log: log.patch_topic("t", dead_letter=Text("d"), priority=Number(3)),
    lambda log: log.wait({Text("t"): Number(0)}, wait_ms=Number(1)),
    lambda log: log.ack(Text("q"), Text("n"), claimed(log, Number(1))),
    lambda log: log.nack("q", "n", claimed(log, Number(1)), delay_ms=Number(5), reason=Text("late")),
    lambda log: log.extend("q", "n", claimed(log, Number(1)), lease_ms=Number(5000)),
]
"""Calls that clients have, too."""


@pytest.mark.parametrize("call", [*SUBCLASSES, lambda log: log.flush(Text("t"), Number(2))])
def test_a_subclass_of_a_string_or_an_integer_is_stored_as_a_plain_one(tmp_path: Path, call: Any) -> None:
    """In the midst of a checkpoint it would be refused, and no later checkpoint would end."""
    path = tmp_path / "data"
    with topics.open(path) as log:
        log.append("t", [1, 2, 3])
        call(log)
        assert log.checkpoint(timeout=20) > 0
        shown = [(state.name, state.head_seq) for state in log.topics()]
    with topics.open(path) as log:
        assert [(state.name, state.head_seq) for state in log.topics()] == shown


def test_the_same_from_asyncio(log: topics.Log) -> None:
    async def wrong() -> None:
        for topic in (None, b"t", 5):
            with pytest.raises(UsageError):
                await log.aio.append(topic, [1])  # type: ignore[arg-type]
        assert (await log.aio.state("t")).head_seq == 3
        await log.aio.put_topic("u", cap_records=1)
        assert (await log.aio.patch_topic("u", ttl_ms=5)).after.cap_records == 1
        assert (await log.aio.delete_topic("u")).deleted

    asyncio.run(wrong())


def test_what_the_engine_cannot_take_is_the_error_of_its_caller(log: topics.Log) -> None:
    def start(done: Any) -> None:
        raise TypeError("of this call")

    with pytest.raises(TypeError, match="of this call"):
        log._driver.call(start)
    assert log.append("t", [4]).last_seq == 4


def test_an_event_loop_that_is_closed_before_its_answer_comes_harms_no_other_call(log: topics.Log) -> None:
    async def abandon() -> None:
        waiting = asyncio.ensure_future(log.aio.page("t", 3, wait_ms=20_000))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(abandon())
    assert log.append("t", [4]).last_seq == 4
    assert log.append("t", [5]).last_seq == 5


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_close_beside_calls_of_other_threads_leaves_none_waiting(tmp_path: Path, durability: str) -> None:
    for number in range(5):
        log = topics.open(tmp_path / str(number))
        log.put_topic("t", durability=durability)
        began, refused = threading.Barrier(5), []

        def write(log: Any = log, began: Any = began, refused: Any = refused) -> None:
            began.wait()
            try:
                while True:
                    log.append("t", [1])
            except UsageError as error:
                refused.append(error)

        threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait()
        for _ in range(3):
            log.append("t", [2])
        log.close()
        for thread in threads:
            thread.join(20)
        assert len(refused) == 4


KEYS_65 = dict.fromkeys(map(str, range(65)))
TOO_MUCH: list[tuple[str, Callable[[Any], Any]]] = [
    ("node has 129 bytes: use at most 128", lambda log: log.append("t", [1], node="n" * 129)),
    ("idempotency_key has 257 bytes", lambda log: log.append("t", [1], key="k" * 257)),
    ("idempotency_key has 257 bytes", lambda log: log.append_many("t", [b"1"], key="k" * 257)),
    ("node has 130 bytes", lambda log: log.append("t", [1], node="\u00e9" * 65)),
    ("10001 elements", lambda log: log.append("t", [1] * 10_001)),
    ("10001 elements", lambda log: log.append_many("t", [b"1"] * 10_001)),
    (r"records\[1\].tag is longer", lambda log: log.append("t", [1, NewRecord(1, tag="t" * 257)])),
    (r"records\[1\].node is longer", lambda log: log.append("t", [1, NewRecord(1, node="n" * 129)])),
    (r"records\[0\].meta is larger", lambda log: log.append("t", [NewRecord(1, meta={"m": "m" * 20_000})])),
    (
        r"records\[0\].meta has more",
        lambda log: log.append("t", [NewRecord(1, meta=dict.fromkeys(map(str, range(65))))]),
    ),
    (r"records\[0\].tag must be a string", lambda log: log.append("t", [NewRecord(1, tag=5)])),
    (r"records\[0\].node must be a string", lambda log: log.append("t", [NewRecord(1, node=b"\xff")])),
    (r"records\[1\]", lambda log: log.append("t", [1, object()])),
    (r"records\[0\]", lambda log: log.append("t", [NewRecord(1, tag="\udc80")])),
    ("node must be 1 to 128", lambda log: log.claim("q", "n" * 129)),
    ("node must be 1 to 128", lambda log: log.claim("q", "")),
    ("topic name", lambda log: log.append("no/name", [1])),
    ("topic name", lambda log: log.append("t" * 256, [1])),
]


@pytest.mark.parametrize(("words", "call"), TOO_MUCH)
def test_the_limits_are_those_of_the_wire_and_named_with_what_was_given(log: topics.Log, words: str, call: Any) -> None:
    log.put_topic("q", type="queue")
    with pytest.raises(RequestError, match=words):
        call(log)
    assert log.append("t", [4]).last_seq == 4


@pytest.mark.parametrize("path", [None, 5, "", " ", "a\0b", b"", ["x"]])
def test_a_path_that_is_none_is_named(path: Any) -> None:
    with pytest.raises(UsageError, match="^path is"):
        topics.open(path)


def test_a_setting_that_does_not_exist_or_takes_something_else_is_named(tmp_path: Path) -> None:
    for settings, words in (
        ({"hot_tial_bytes": 1}, "hot_tial_bytes is no setting .did you mean hot_tail_bytes"),
        ({"data_dir": "x"}, "data_dir is no setting"),
        ({"sync_every_ms": "x"}, "sync_every_ms is 'x': use a whole number"),
        ({"max_limit": -1}, "max_limit is -1: use 0 to"),
    ):
        with pytest.raises(UsageError, match=words):
            topics.open(tmp_path / "data", **settings)
    assert not (tmp_path / "data").exists()


def test_no_limit_at_all_reads_all_there_is(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", max_limit=0, default_limit=0, max_idempotency_key_bytes=0) as log:
        log.append("t", [1, 2, 3], key="k" * 300)
        assert [record.data for record in log.read("t")] == [1, 2, 3]
