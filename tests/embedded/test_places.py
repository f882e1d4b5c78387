"""Directories, disks and ends of processes, all unusual."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import topics

SMALL: dict[str, Any] = {"wal_file_bytes": 1 << 20, "wal_spare_files": 0, "disk_reserve_bytes": 1 << 16}


@pytest.fixture(params=["auto", "portable"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"io": request.param, **SMALL}


def values(log: topics.Log, topic: str = "t") -> list[Any]:
    return [record.data for record in log.read(topic)]


def run(code: str, where: Path) -> str:
    """Return what another Python process prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a b/ü€\n'\"", "x" * 255, os.fsdecode(b"\xff\xfe"), "deep/" * 200])
def test_any_path_the_kernel_takes_will_do(tmp_path: Path, settings: dict[str, Any], name: str) -> None:
    for expected in ([1], [1, 1]):
        with topics.open(tmp_path / name, **settings) as log:
            log.append("t", [1])
            assert values(log) == expected


def test_a_path_that_will_not_do_is_refused_in_a_sentence(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name, words in (
        ("file", "file is not a directory"),
        ("file/data", "not usable: Not a directory: let this user read and write there, or name another directory"),
        ("link", "a link is not followed"),
        ("x" * 256, "File name too long"),
        ("deep/" * 700, "use one of at most 3500"),
    ):
        with pytest.raises(topics.StorageError, match=words):
            topics.open(tmp_path / name, **settings)


def test_a_relative_path_means_the_directory_it_meant_when_the_log_was_opened(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with topics.open("data", **settings) as log:
        monkeypatch.chdir(tmp_path / "elsewhere")
        log.put_topic("t", durability="fsync")
        log.append_many("t", [b"1"] * 1000)
    assert os.listdir(tmp_path / "elsewhere") == []
    with topics.open(tmp_path / "data", **settings) as log:
        assert len(values(log)) == 1000


def test_a_file_that_may_not_grow_is_an_error_of_the_storage(tmp_path: Path) -> None:
    code = """if True:
        import resource, topics
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))
        try:
            topics.open("data", wal_file_bytes=1 << 20)
        except topics.StorageError as error:
            print(error)
    """
    assert "data cannot be opened: File too large" in run(code, tmp_path)


def test_a_process_that_ends_without_closing_loses_nothing_it_handed_over(tmp_path: Path) -> None:
    code = f"""if True:
        import topics
        log = topics.open("data", **{SMALL})
        log.append("t", [1])
        log.append_soon("t", 2)
    """
    assert run(code, tmp_path) == ""
    with topics.open(tmp_path / "data") as log:
        assert values(log) == [1, 2]


def test_an_emptied_log_file_or_pack_is_found_damaged(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", **SMALL) as log:
        log.append("t", [1])
    (pack,) = (tmp_path / "data" / "packs").glob("*.data")
    whole = pack.read_bytes()
    pack.write_bytes(b"")
    with pytest.raises(topics.StorageError, match="pack"):
        topics.open(tmp_path / "data", **SMALL)
    pack.write_bytes(whole)
    newest = max((tmp_path / "data" / "wal" / "shard-00").glob("wal-*"))
    newest.write_bytes(b"")
    with pytest.raises(topics.CorruptError, match="cut short at 0 bytes"):
        topics.open(tmp_path / "data", **SMALL)


def test_an_await_that_is_cancelled_leaves_the_log_to_the_others(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def hurry(log: topics.Log) -> int:
        late = 0
        for number in range(60):
            try:
                await asyncio.wait_for(log.aio.append("t", [number]), timeout=0.0001 * (number % 5))
            except TimeoutError:
                late += 1
        return late

    with topics.open(tmp_path / "data", **settings) as log:
        log.put_topic("t", durability="fsync")
        for _ in range(2):  # two event loops, the first of which is closed
            assert asyncio.run(hurry(log)) > 0
        assert log.append("t", ["last"]).count == 1
        found = values(log)
    assert found[-1] == "last"
    assert len(found) <= 121


def test_tails_of_asyncio_end_with_the_log_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def follow(log: topics.Log) -> list[Any]:
        seen = []
        async for record in log.aio.tail("t", 0):
            seen.append(record.data)
            if len(seen) == 2:
                closing = asyncio.get_running_loop().run_in_executor(None, log.close)
        await closing
        return seen

    log = topics.open(tmp_path / "data", **settings)
    log.append("t", [1, 2])
    assert asyncio.run(follow(log)) == [1, 2]


def test_iterators_left_in_the_middle_harm_no_other_call(tmp_path: Path, settings: dict[str, Any]) -> None:
    with topics.open(tmp_path / "data", **settings) as log:
        log.append("t", list(range(2500)))
        left = [log.read("t") for _ in range(20)] + [log.tail("t", 0) for _ in range(20)]
        for iterator in left:
            assert next(iterator).data == 0
        left[0].close()  # type: ignore[attr-defined]
        assert log.append("t", [1]).last_seq == 2501
    assert len(list(left[20])) <= 1000
    with pytest.raises(topics.UsageError, match="closed"):
        list(left[1])
