"""Settings that change what a client meets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World


def outcome(world: World, *records: dict[str, Any], **fields: Any) -> str:
    answer = world.request("POST", "/v0/topics/t", {"records": list(records), **fields})
    return "accepted" if answer.status in (200, 201) else str(answer.error["code"])


@pytest.mark.parametrize(
    ("setting", "value", "good", "bad", "code"),
    [
        ("max_batch_records", 2, [{"data": 1}] * 2, [{"data": 1}] * 3, "batch_too_large"),
        ("max_record_bytes", 10, [{"data": "x" * 8}], [{"data": "x" * 9}], "record_too_large"),
        ("max_meta_bytes", 10, [{"data": 1, "meta": "x" * 8}], [{"data": 1, "meta": "x" * 9}], "invalid_request"),
        ("max_tag_bytes", 4, [{"data": 1, "tag": "xxxx"}], [{"data": 1, "tag": "xxxxx"}], "invalid_request"),
        ("max_node_bytes", 4, [{"data": 1, "node": "xxxx"}], [{"data": 1, "node": "xxxxx"}], "invalid_request"),
    ],
)
def test_limits_of_writes_are_settings(  # noqa: PLR0917 - a row of the table
    make_world: MakeWorld, setting: str, value: int, good: list[Any], bad: list[Any], code: str
) -> None:
    """14: with the fixed limits as defaults."""
    world = make_world(**{setting: value})
    assert outcome(world, *good) == "accepted"
    assert outcome(world, *bad) == code


def test_the_largest_page_is_a_setting(make_world: MakeWorld) -> None:
    """14: a larger limit is clamped to it; so is the default."""
    world = make_world(max_limit=3)
    world.write("t", *range(5))
    for limit in (0, 4, 1000):
        assert len(world.diff("t", limit=limit)["records"]) == 3
    assert len(world.diff("t", limit=2)["records"]) == 2


def limits() -> list[str]:
    """The rows of the table of limits in docs/settings.md."""
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    table = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
    names = [name.lower() for name in re.findall(r"^\| `TOPICS_([A-Z0-9_]+)`", table, re.M)]
    assert len(names) > 20
    return [name for name in names if name != "test_min_heartbeat_ms"]


@pytest.mark.parametrize("setting", limits())
def test_zero_is_no_limit(make_world: MakeWorld, setting: str) -> None:
    """14: everything that one of these may refuse, cut short or skip is accepted whole."""
    world = make_world(**{setting: 0})
    world.put("t", idempotency_window_ms=60_000)
    records = [{"data": [n, "x" * 1000], "meta": {"k": n}, "tag": "a:b", "node": "n"} for n in range(300)]
    answer = world.request("POST", "/v0/topics/t", {"records": records, "idempotency_key": "k" * 40})
    assert (answer.status, answer.json["count"]) == (200, 300)
    page = world.diff("t", include_tags=True)
    assert page["records"], "a read skips nothing"
    assert page["next_from_seq"] == page["records"][-1]["$seq"]
    assert len(world.diff("t", limit=1000)["records"]) == 300
    reader = world.ask("POST", "/v0/topics/t/diff", {"from_seq": 300, "wait_ms": 5000})
    assert reader.waiting
    world.write("t", 301)
    assert [record["data"] for record in reader.answer().json["records"]] == [301]
    assert world.request("PUT", "/v0/routers/r", {"source": "t", "dest": "u"}).status == 201
    assert world.request("POST", "/v0/watch", {"topics": {"t": {}, "u": {}}}).status == 200
    world.put("q", type="queue")
    world.write("q", *range(30))
    assert world.request("POST", "/v0/topics/q/claim", {"node": "n", "max": 30}).json["count"] == 30


def test_a_segment_of_one_record_is_a_segment(make_world: MakeWorld) -> None:
    """14: the smallest there may be changes nothing a reader sees."""
    world = make_world(segment_max_events=1)
    world.write_records("t", [{"data": n, "tag": str(n)} for n in range(20)])
    world.delete("t", match="7")
    for crash in (False, True, False):
        world.crash_and_start() if crash else world.restart()
        assert world.data("t") == [n for n in range(20) if n != 7]


@pytest.mark.parametrize("settings", [{"segment_max_bytes": 1}, {"segment_max_age_ms": 1}, {"hot_tail_bytes": 4096}])
def test_settings_of_storage_have_no_effect_on_the_wire(make_world: MakeWorld, settings: dict[str, int]) -> None:
    """14: sizes and ages of segments."""
    world = make_world(**settings)
    expected = []
    for number in range(5):
        world.write("t", *[[number, n, "x" * 50] for n in range(40)])
        expected += [[number, n, "x" * 50] for n in range(40)]
        world.advance_ms(100)
        assert world.data("t") == expected
        world.restart()
        assert world.data("t") == expected


def test_old_segments_are_read_from_the_cold_directory(make_world: MakeWorld) -> None:
    """14, 5.4: what moved is read, deleted and kept like anything else; a read reports how many files it took."""
    world = make_world(
        cold_dir="/srv/cold",
        hot_retain_segments=1,
        segment_max_events=5,
        pack_run_bytes=64,
        checkpoint_every_ms=100,
    )
    for number in range(4):
        world.write_records("t", [{"data": number * 5 + n, "tag": str(n)} for n in range(5)], durability="fsync")
        world.advance_ms(3000)
    whole = world.diff("t")
    assert [record["data"] for record in whole["records"]] == list(range(20))
    assert whole["performance"]["cold_segments_read"] == 3
    assert "cold_segments_read" not in world.diff("t", from_seq=15)["performance"]
    world.delete("t", match="3")
    world.advance_ms(3000)
    world.crash_and_start()
    left = [n for n in range(20) if n % 5 != 3]
    assert [record["data"] for record in world.diff("t")["records"]] == left
