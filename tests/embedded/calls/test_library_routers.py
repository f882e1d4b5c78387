"""Routers of the library: the server's, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embedded.conftest import SMALL
from topics import NewRecord, RequestError, UsageError
from topics.engine.values.predicate import Predicate
from topics.store.format.log_format import FLAG_ROUTED


@pytest.fixture
def log(tmp_path: Path) -> Iterator[topics.Log]:
    with topics.open(tmp_path / "data", **SMALL) as opened:
        opened.put_topic("a")
        yield opened


def test_a_router_forwards_what_its_filter_lets_through(log: topics.Log) -> None:
    log.append("a", ["before"])
    made = log.put_router("r", "a", "b", filter="x*", preserve_tag=False)
    assert (made.created, made.config.source, made.config.dest) == (True, "a", "b")
    assert made.config.filter == Predicate.of("x*")
    log.append("a", [NewRecord(1, tag="x1"), NewRecord(2, tag="y"), NewRecord(3, tag="x")])
    assert [(record.data, record.tag) for record in log.read("b")] == [(1, None), (3, None)]
    state = log.router("r")
    assert (state.name, state.forwarded, state.config.guarantee) == ("r", 2, "at_least_once")
    assert not log.put_router("r", "a", "b").created
    assert log.router("r").config.filter is None


def test_routers_are_listed_and_deleted(log: topics.Log) -> None:
    for name, dest in (("r1", "b"), ("r2", "c"), ("s", "d")):
        log.put_router(name, "a", dest)
    assert [router.name for router in log.routers()] == ["r1", "r2", "s"]
    assert [router.name for router in log.routers("r")] == ["r1", "r2"]
    assert [router.name for router in log.routers(dest="d")] == ["s"]
    assert [router.name for router in log.routers(source="b")] == []
    assert log.delete_router("r1").deleted
    assert not log.delete_router("r1").deleted
    with pytest.raises(RequestError) as absent:
        log.router("r1")
    assert absent.value.code == "router_not_found"


def test_more_routers_than_a_page_are_all_listed(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data", max_limit=2, **SMALL) as log:
        log.put_topic("a")
        for number in range(5):
            log.put_router(f"r{number}", "a", f"b{number}")
        assert len(log.routers()) == 5
        assert len(asyncio.run(log.aio.routers("r"))) == 5


@pytest.mark.parametrize("pack_run_bytes", [0, 1 << 20])
@pytest.mark.parametrize("tag", [None, "k"])
def test_files_with_exactly_once_copies_are_sound_and_an_opening_finds_which_they_are(
    tmp_path: Path, pack_run_bytes: int, tag: str | None
) -> None:
    """R-EO-3: from the index; its parity is in the bit that marks such copies elsewhere."""
    options = SMALL | {"segment_max_events": 10, "pack_run_bytes": pack_run_bytes}
    with topics.open(tmp_path / "data", **options) as log:
        log.append("a", [NewRecord(0, tag=tag)])
        log.put_router("r", "a", "b", guarantee="exactly_once")
        log.append("a", [NewRecord(number, tag=tag) for number in range(20)])
        assert log.page("b").head_seq == 20
        log.checkpoint()
    assert topics.fsck(tmp_path / "data").sound
    with topics.open(tmp_path / "data", **options) as log:
        log.append("b", ["a client's"])
        flags = log._opened.engine._core.registry.by_name["b"].index.select(0, 21, 100).flags
        assert [bool(each & FLAG_ROUTED) for each in flags.tolist()] == [True] * 20 + [False]


def test_the_same_from_asyncio(log: topics.Log) -> None:
    async def route() -> None:
        assert (await log.aio.put_router("r", "a", "b", guarantee="exactly_once")).created
        await log.aio.append("a", [1])
        assert (await log.aio.router("r")).forwarded == 1
        assert (await log.aio.delete_router("r")).deleted

    asyncio.run(route())
    assert [record.data for record in log.read("b")] == [1]


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda log: log.put_router(5, "a", "b"), "name is 5: use a string"),
    (lambda log: log.put_router("r", b"a", "b"), "source is b'a': use a string"),
    (lambda log: log.put_router("r", "a", None), "dest is None: use a string"),
    (lambda log: log.put_router("r", "a", "b", filter=5), 'filter is 5: use a tag, or its beginning and "*"'),
    (lambda log: log.put_router("r", "a", "b", allow_cycle=1), "allow_cycle is 1: use True or False"),
    (
        lambda log: log.put_router("r", "a", "b", guarantee="once"),
        "guarantee is 'once': use 'at_least_once' or 'exactly_once'",
    ),
    (lambda log: log.router(None), "name is None: use a string"),
    (lambda log: log.routers(5), "prefix is 5: use a string"),
    (lambda log: log.routers(source=5), "source is 5: use a string"),
    (lambda log: log.delete_router(b"r"), "name is b'r': use a string"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_argument_is_named_with_what_may_stand_there(
    log: topics.Log, call: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        call(log)
    assert str(refused.value) == words
    assert log.routers() == []


def test_a_refused_router_leaves_nothing(log: topics.Log) -> None:
    log.put_router("r", "a", "b")
    with pytest.raises(RequestError) as cycle:
        log.put_router("s", "b", "a")
    assert cycle.value.code == "router_cycle"
    assert [router.name for router in log.routers()] == ["r"]
