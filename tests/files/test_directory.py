"""The facts that a data directory states of itself: topics, losses, times, and each refusal with its remedy."""

from __future__ import annotations

import errno
import inspect
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.files.files_world import COLD, HOT, FilesWorld, read_all
from tests.files.sim_calls import SimCalls
from tests.sim.world.sim_file import SimFile
from topics.common.default_incarnation import incarnation_of_id
from topics.engine.shared.topic_snapshot import FloorMarks, PlainTopics, TopicImage, TopicsSnapshot
from topics.errors import CorruptError, FormatError, StorageError, UsageError
from topics.files import (
    Location,
    Loss,
    NoColdDirectoryError,
    NoDirectoryError,
    NotReadableError,
    SeqTooLargeError,
    TopicFiles,
    open_directory,
    read_pieces,
)
from topics.files import newest_snapshot as by_json
from topics.files.file_calls import SYSTEM, SystemCalls
from topics.files.newest_snapshot import TopicEntry
from topics.store.format.floors import Floors
from topics.store.segments.data_files import Pack, PackRun, Segment
from topics.store.segments.store_part import StorePart


@pytest.fixture
def world() -> FilesWorld:
    """Files in both tiers."""
    world = FilesWorld(1, pack_run_bytes=2000)
    for number in range(8):
        world.append(*range(33), name="big", tag="a")
        world.append(number, name="small")
        world.checkpoint()
    return world


def file(world: FilesWorld, path: str) -> SimFile:
    node = world.ring.disk.find(path)
    assert isinstance(node, SimFile)
    return node


def newest_snapshot(world: FilesWorld) -> str:
    return f"{HOT}/snapshots/{max(world.ring.disk.list_directory(f'{HOT}/snapshots'))}"


# --- what it says ----------------------------------------------------------------------------------------------------
def test_names_in_snapshots_are_those_that_the_server_writes() -> None:
    """The room decodes them by the standard library, so the names stand in two places."""

    def names(kind: type[msgspec.Struct]) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(kind)}

    with open(by_json.__file__, encoding="utf-8") as code:
        text = code.read()
    assert set(re.findall(r'store(?:\.get\(|\[)"(\w+)"', text)) <= names(StorePart)
    assert set(re.findall(r'entry(?:\.get\(|\[)"(\w+)"', text)) <= names(Segment)
    assert set(re.findall(r'pack(?:\.get\(|\[)"(\w+)"', text)) <= names(Pack)
    assert set(re.findall(r'catalog(?:\.get\(|\[)"(\w+)"', text)) <= names(TopicsSnapshot)
    assert [field.name for field in msgspec.structs.fields(PackRun)][:4] == [
        "topic_id",
        "first_seq",
        "last_seq",
        "number",
    ]
    columns = re.search(r"fields = \((.*)\)", text)
    assert columns is not None
    known = set(re.findall(r'"(\w+)"', columns[1])) | set(re.findall(r'block\["(\w+)"', text))
    assert known == names(PlainTopics)
    used = {"name", "id", "config", "head", "floors", "gaps"}
    assert used <= names(TopicImage)
    assert names(FloorMarks) <= set(inspect.signature(Floors.raise_to).parameters)


def test_the_incarnation_is_the_snapshots_text_or_derived_from_the_id() -> None:
    def topic(image: dict[str, Any]) -> TopicFiles:
        entry = TopicEntry({"id": 7, "config": {"durability": "disk", "ttl_ms": 0}, **image}, [], [])
        return TopicFiles("t", entry, by_json.EMPTY, Location("data"), SYSTEM)

    assert topic({"incarnation": "00000000000000ab"}).incarnation == "00000000000000ab"
    assert topic({}).incarnation == topic({"incarnation": ""}).incarnation == incarnation_of_id(7)
    assert len({incarnation_of_id(number) for number in range(1000)}) == 1000


def test_before_the_first_checkpoint_there_are_no_topics_and_each_checkpoint_is_a_newer_directory() -> None:
    world = FilesWorld(1)
    world.append(1, name="small")
    empty = world.directory()
    assert (dict(empty.topics), empty.refresh() is empty or empty.snapshot) == ({}, True)
    world.checkpoint()
    newer = empty.refresh()
    assert newer.snapshot > empty.snapshot
    assert list(newer.topics) == ["small"]
    assert newer.refresh() is newer


def test_a_damaged_snapshot_leaves_the_one_before_it(world: FilesWorld) -> None:
    newest = world.directory()
    file(world, newest_snapshot(world)).live[100] ^= 1
    older = world.directory()
    assert older.snapshot < newest.snapshot
    assert read_all(older.topics["big"], older) == world.diff_all("big")
    for name in world.ring.disk.list_directory(f"{HOT}/snapshots"):
        file(world, f"{HOT}/snapshots/{name}").live[70] ^= 1
    with pytest.raises(CorruptError, match="no snapshot is sound: stop the server and restore"):
        world.directory()


def test_losses_are_clipped_to_the_range_asked_for(world: FilesWorld) -> None:
    world.put("big", cap_records=40)
    world.append(1, name="big")
    world.checkpoint()
    topic = world.directory().topics["big"]
    floor = topic.head - 40
    assert topic.losses(1, topic.head) == [Loss("big", 1, floor, "cap")]
    assert topic.losses(floor - 3, floor + 7) == [Loss("big", floor - 3, floor, "cap")]
    assert topic.losses(5, 6) == [Loss("big", 5, 6, "cap")]
    assert topic.losses(floor + 1, topic.head) == []
    assert (topic.earliest, topic.first_kept) == (floor + 1, floor + 1)


def test_the_first_seq_at_a_time_is_that_of_the_first_record_not_before_it() -> None:
    world = FilesWorld(1, pack_run_bytes=0)
    for number in range(70):
        world.append(number, name="big")
        world.advance_ms(10 + number % 3)
    world.delete(before_seq=4, name="big")
    world.checkpoint()
    directory = world.directory()
    topic = directory.topics["big"]
    records = read_all(topic, directory).records
    for ts in {record[1] + step for record in records for step in (-1, 0, 1)} | {0, 1 << 60}:
        assert topic.first_seq_at(ts) == min((r[0] for r in records if r[1] >= ts), default=topic.head + 1)


# --- refusals --------------------------------------------------------------------------------------------------------
class Refused(SimCalls):
    """Each call on a path that matches fails."""

    def __init__(self, world: FilesWorld, pattern: str, number: int) -> None:
        def before(_name: str, path: str) -> None:
            if re.search(pattern, path):
                raise OSError(number, os.strerror(number), path)

        super().__init__(lambda: world.ring.disk, before)


class OwnDirectory(Refused):
    """The data directory itself belongs to the reader, what is in it to another user."""

    def owner(self, path: str) -> int:
        return self.user() if path == HOT else super().owner(path)


def rewritten(path: str, old: bytes, new: bytes) -> Callable[[FilesWorld], None]:
    def change(world: FilesWorld) -> None:
        node = file(world, path)
        assert old in bytes(node.live)
        node.live[:] = bytes(node.live).replace(old, new)

    return change


def test_a_directory_of_another_user_says_whose_it_is_and_what_to_do(world: FilesWorld) -> None:
    for pattern in (r"topics\.json", "snapshot"):
        with pytest.raises(NotReadableError) as error:
            open_directory(HOT, COLD, calls=Refused(world, pattern, errno.EACCES))
        assert str(error.value) == (
            "data directory data belongs to user 1000, and user 0 may not read it: run as its owner, or read by url"
        )
    with pytest.raises(NotReadableError) as error:
        open_directory(HOT, COLD, calls=OwnDirectory(world, "snapshot", errno.EACCES))
    assert str(error.value).startswith("data/snapshots belongs to user 1000, and user 0 may not read it")
    directory = world.directory()
    calls = Refused(world, r"seg-.*\.data", errno.EACCES)
    with pytest.raises(NotReadableError, match="belongs to user 1000"):
        list(read_pieces(directory.location, directory.topics["big"].pieces, calls=calls))
    assert calls.descriptors == 0


def test_a_disk_that_fails_says_which_file(world: FilesWorld) -> None:
    directory = world.directory()
    for pattern, kind in ((r"seg-.*\.data", "big"), (r"pack-.*\.data", "small")):
        calls = Refused(world, pattern, errno.EIO)
        with pytest.raises(StorageError, match=f"{pattern}.* cannot be read: Input/output error"):
            list(read_pieces(directory.location, directory.topics[kind].pieces, calls=calls))
        assert calls.descriptors == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "nowhere does not exist on this machine"),
        (f"{HOT}/topics", "data/topics is not a data directory of topics, it has no topics.json"),
        (f"{HOT}/topics.json", "data/topics.json is a file: name the directory"),
    ],
)
def test_what_is_no_data_directory_is_refused(world: FilesWorld, path: str, message: str) -> None:
    with pytest.raises(NoDirectoryError, match=message):
        open_directory(path, calls=world.calls)


def test_so_is_one_of_another_format_or_of_many_cores(world: FilesWorld) -> None:
    rewritten(f"{HOT}/topics.json", b'"format":1', b'"format":9')(world)
    with pytest.raises(
        FormatError, match=r"has format 9, and this build knows 1 to \d+: use the version of topics that made"
    ):
        world.directory()
    rewritten(f"{HOT}/topics.json", b'"format":9', b'"format":1')(world)
    rewritten(f"{HOT}/topics.json", b'"cores":1', b'"cores":4')(world)
    with pytest.raises(FormatError, match="was made for 4 cores"):
        world.directory()


def test_the_cold_directory_has_to_be_named_and_to_be_the_right_one(world: FilesWorld) -> None:
    with pytest.raises(NoColdDirectoryError, match="has older segments in a cold directory: name it, too"):
        open_directory(HOT, calls=world.calls)
    with pytest.raises(NoColdDirectoryError, match="nowhere is not the one of data: is it mounted"):
        open_directory(HOT, "nowhere", calls=world.calls)
    mark = file(world, f"{COLD}/cold-directory")
    mark.live[:] = bytes(mark.live).replace(b'"id":"', b'"id":"0')
    with pytest.raises(NoColdDirectoryError, match="cold is not the one of data"):
        world.directory()


def test_columns_and_bounds_that_cannot_be_are_refused_at_once(world: FilesWorld) -> None:
    directory = world.directory()
    for options, message in (
        ({"columns": ["seq", "size", "body"]}, "'body' is unknown or repeated"),
        ({"columns": ["seq", "seq"]}, "'seq' is unknown or repeated"),
        ({"batch_rows": 0}, "batch_rows and batch_bytes must be at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            read_pieces(directory.location, [], **options)  # type: ignore[arg-type]


def test_seqs_that_no_column_can_hold_are_refused() -> None:
    world = FilesWorld(1)
    world.append(1, name="big")
    world.engine._core.registry.by_name["big"].next_seq = (1 << 63) - 1
    world.append(2, name="big")
    world.append(3, name="big")
    world.checkpoint()
    directory = world.directory()
    topic = directory.topics["big"]
    assert topic.head == 1 << 63
    with pytest.raises(SeqTooLargeError, match="topic big has seqs above 2\\^63 - 1"):
        read_all(topic, directory)
    below = topic.plan(1, (1 << 63) - 1)
    assert [
        row
        for batch in read_pieces(directory.location, below, columns=["seq"], calls=world.calls)
        for row in batch["seq"].to_pylist()
    ] == [1, (1 << 63) - 1]


def test_the_kernels_calls_read_what_is_there(tmp_path: Any) -> None:
    path = str(tmp_path / "file")
    with open(path, "wb") as out:
        out.write(b"0123456789")
    fd = SYSTEM.open(path)
    buffer = bytearray(8)
    assert (SYSTEM.size(fd), SYSTEM.read_into(fd, buffer, 4), bytes(buffer)) == (10, 6, b"456789\0\0")
    SYSTEM.close(fd)
    assert SYSTEM.list_directory(str(tmp_path)) == ["file"]
    assert SystemCalls().owner(path) == SYSTEM.user()
