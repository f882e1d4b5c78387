"""Parts of producers through the library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topics
from topics import NewRecord, Producer, RequestError, UsageError
from topics.files.directory import open_directory


def test_a_part_is_appended_once_by_whatever_call_and_known_after_opening_again(tmp_path: Path) -> None:
    part = Producer("job", epoch=7, part=3)

    async def from_asyncio(log: topics.Log) -> list[topics.Log]:
        wrote = [await log.aio.append("t", [2, {"a": 1}], producer=part)]
        wrote.append(await log.aio.append_many("t", [b"2", b'{ "a": 1 }'], producer=part))
        return wrote  # type: ignore[return-value]

    with topics.open(tmp_path) as log:
        first = log.append("t", [{"a": 1}, NewRecord(2)], producer=part)
        assert (first.deduped, first.last_seq) == (False, 2)
        again = [log.append_many("t", [b"2", b'{"a":1}'], producer=part), *asyncio.run(from_asyncio(log))]
        assert {(each.deduped, each.first_seq, each.count) for each in again} == {(True, 1, 2)}
        assert log.append("t", [2], producer=Producer("job", 7)).deduped is False
    with topics.open(tmp_path) as log:
        assert log.append("t", [{"a": 1}, 2], producer=part).deduped
        with pytest.raises(RequestError, match="other records") as caught:
            log.append("t", [{"a": 1}], producer=part)
        assert caught.value.code == "producer_diverged"
        assert caught.value.detail == {"topic": "t", "producer": "job", "epoch": 7, "part": 3}


def test_a_part_may_come_in_pieces(tmp_path: Path) -> None:
    with topics.open(tmp_path) as log:
        staged = log.append("t", [1, 2], producer=Producer("job", 7, last=False))
        assert (staged.first_seq, staged.count, staged.created) == (0, 2, True)
        assert [(state.name, state.count) for state in log.topics()] == [("t", 0)]
    assert [*open_directory(str(tmp_path)).topics] == ["t"]
    with topics.open(tmp_path) as log:
        assert log.append_many("t", [b"3"], producer=Producer("job", 7, piece=1)).last_seq == 3
        assert [record.data for record in log.read("t")] == [1, 2, 3]
        with pytest.raises(RequestError) as caught:
            log.append("t", [1], producer=Producer("job", 7, part=1, piece=2))
        assert caught.value.code == "producer_incomplete"


WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("producer is 'job': use topics.Producer", lambda log: log.append("t", [1], producer="job")),
    ("producer.id is 5", lambda log: log.append("t", [1], producer=Producer(5, 0))),  # type: ignore[arg-type]
    ("producer.epoch is -1", lambda log: log.append("t", [1], producer=Producer("job", -1))),
    ("producer.epoch is True", lambda log: log.append_many("t", [b"1"], producer=Producer("job", True))),
    ("producer.part is 65536", lambda log: log.append("t", [1], producer=Producer("job", 0, 65_536))),
    ("producer.piece is -1", lambda log: log.append("t", [1], producer=Producer("job", 0, 0, -1))),
    ("producer.last is 1", lambda log: log.append("t", [1], producer=Producer("job", 0, last=1))),  # type: ignore[arg-type]
    ("producer.attempt is 1", lambda log: log.append("t", [1], producer=Producer("job", 0, attempt=1))),  # type: ignore[arg-type]
    ("leave out key", lambda log: log.append("t", [1], key="k", producer=Producer("job", 0))),
]


@pytest.mark.parametrize(("words", "call"), WRONG, ids=[words for words, _ in WRONG])
def test_a_producer_of_a_wrong_kind_is_a_usage_error(tmp_path: Path, words: str, call: Any) -> None:
    with topics.open(tmp_path) as log:
        with pytest.raises(UsageError, match=words):
            call(log)
        for wrong, why in (("", "producer.id is empty"), ("x" * 257, "producer.id has 257 bytes")):
            with pytest.raises(RequestError, match=why):
                log.append("t", [1], producer=Producer(wrong, 0))
        assert log.topics() == []
