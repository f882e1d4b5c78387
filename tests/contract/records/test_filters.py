"""Reading only the records of some tags or nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.records.test_deletion_and_nodes import BAD_MATCHES, INVALID, MATCHES, TAGS, noded, tagged
from tests.contract.world.world import World, seqs


@pytest.mark.parametrize(("match", "found"), MATCHES, ids=lambda value: repr(value)[:40])
def test_a_reader_gets_what_a_delete_would_take(world: World, match: Any, found: list[str | None]) -> None:
    """R-MATCH-1, R-DEL-8: bytes of the whole tag, or a literal prefix of them; never a record without one."""
    tagged(world, *TAGS)
    page = world.diff("t", match=match)
    assert seqs(page) == [number for number, tag in enumerate(TAGS, 1) if tag in found]
    assert (page["tombstone"], page["caught_up"]) == (None, True)


@pytest.mark.parametrize("match", [*BAD_MATCHES, "x" * 257, ["tag", "Glob", "x" * 257 + "*"]], ids=repr)
def test_any_other_filter_is_refused(world: World, match: Any) -> None:
    """R-MATCH-1, R-DEL-11: before the topic is looked up, and in a watch, too."""
    for path, body in (("topics/none/diff", {}), ("watch", {"topics": {"none": {}}})):
        assert world.request("POST", f"/v0/{path}", {**body, "match": match}).refusal == INVALID


def test_null_is_no_filter(world: World) -> None:
    """R-MATCH-1, R-MATCH-2: neither are no nodes."""
    tagged(world, "a", None)
    for only_node in (None, []):
        assert seqs(world.diff("t", match=None, only_node=only_node)) == [1, 2]


@pytest.mark.parametrize(
    ("only_node", "left"),
    [("a", [1]), ("", [2]), (["a", "é", "none"], [1, 4]), ("A", []), ("a*", []), ("n" * 1000, []), ("x" * 70_000, [])],
)
def test_a_reader_may_name_the_nodes_it_wants(world: World, only_node: Any, left: list[int]) -> None:
    """R-MATCH-2: byte for byte; a record without a node does not come, whatever names are given."""
    noded(world, "a", "", None, "é", "ab")
    page = world.diff("t", only_node=only_node)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == (left, 5, True)


def test_nodes_that_are_wanted_are_no_deduplication(world: World) -> None:
    """R-MATCH-2: `dedupe_node` is about `node`."""
    world.put("t", dedupe_node=False)
    noded(world, "a", "b", None)
    assert seqs(world.diff("t", only_node="a")) == [1]
    assert seqs(world.diff("t", node="a")) == [1, 2, 3]


def test_nodes_are_left_out_or_wanted(make_world: MakeWorld) -> None:
    """R-MATCH-2, R-NODE-6: not both; and no more than a reader may name."""
    world = make_world(max_nodes=3, max_node_bytes=4)
    noded(world, "a", "b")
    both = world.request("POST", "/v0/topics/t/diff", {"node": "a", "only_node": "b"})
    assert both.refusal == INVALID
    assert both.json["error"]["message"] == "node and only_node are both given: send one of them"
    for only_node in (["a"] * 4, ["aaaaa", "bbbb", "cccc"], 1, [1], {}):
        assert world.request("POST", "/v0/topics/t/diff", {"only_node": only_node}).refusal == INVALID


def test_tag_and_node_both_have_to_match(world: World) -> None:
    """R-MATCH-3."""
    pairs = [("a", "x"), ("a", "y"), ("ab", "x"), (None, "x"), ("a", None)]
    world.write_records("t", [{"data": 1, "tag": tag, "node": node} for tag, node in pairs])
    assert seqs(world.diff("t", match="a*", only_node="x")) == [1, 3]
    assert seqs(world.diff("t", match="a", node="x")) == [2, 5]


def test_what_does_not_match_moves_the_cursor_and_takes_no_room(world: World) -> None:
    """R-MATCH-4: neither of the limit nor of the bytes; at the end the cursor is the head."""
    tagged(world, *["b"] * 300, *["a", "b"] * 3)
    page = world.diff("t", match="a", limit=2)
    assert (seqs(page), page["caught_up"]) == ([301, 303], False)
    page = world.diff("t", page["next_from_seq"], match="a", limit=2)
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["lag"]) == ([305], 306, True, 0)
    assert seqs(world.diff("t", match="a", max_batch_bytes=7)) == [301, 303]
    page = world.diff("t", match="none")
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 306, True)


@pytest.mark.parametrize(
    "fields", [{"match": "no"}, {"match": "n*"}, {"only_node": "no"}, {"match": "a", "node": "me"}]
)
def test_a_long_run_of_others_may_take_several_reads(make_world: MakeWorld, fields: Any) -> None:
    """R-MATCH-6: each moves the cursor, past no record that matches."""
    world = make_world(max_filter_records=1000)
    for _ in range(3):
        world.write_records("t", [{"data": 1, "tag": "a", "node": "me"}] * 2500)
    world.write_records("t", [{"data": 1, "tag": "a"}, {"data": 2, "tag": "no", "node": "no"}])
    wanted = 7501 if "node" in fields else 7502
    cursor, found = 0, []
    for _reads in range(200):
        page = world.diff("t", cursor, **fields)
        found += seqs(page)
        if page["caught_up"]:
            break
        assert page["next_from_seq"] > cursor
        cursor = page["next_from_seq"]
    assert [seq for seq in found if seq > 7500] == [wanted] or found == [wanted, 7502]
    assert page["next_from_seq"] == 7502


@pytest.mark.parametrize("fields", [{"match": "a"}, {"match": "no"}, {"only_node": "no"}])
def test_a_loss_is_told_whole_whatever_was_lost(world: World, fields: Any) -> None:
    """R-MATCH-5, R-TOMB-2: the server does not know any more whether the lost records matched."""
    world.put("t", cap_records=3)
    tagged(world, "a", "b", "a", "b", "a", "b")
    tombstone = world.diff("t", **fields)["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["missed_estimate"]) == (1, 3, 3)
    assert world.diff("t", 3, **fields)["tombstone"] is None


def test_a_long_poll_waits_for_a_record_that_matches(world: World) -> None:
    """7.6, R-MATCH-4: others do not end it, and at its end the cursor is the head."""
    tagged(world, "b")
    poll = world.ask("POST", "/v0/topics/t/diff", {"match": "a", "wait_ms": 20_000})
    tagged(world, "b", "ab", None)
    assert poll.waiting
    tagged(world, "b", "a")
    page = poll.answer().json
    assert (seqs(page), page["next_from_seq"]) == ([6], 6)
    poll = world.ask("POST", "/v0/topics/t/diff", {"from_seq": 6, "match": "a", "wait_ms": 500})
    tagged(world, "b")
    page = poll.answer().json
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 7, True)


def test_a_long_poll_is_answered_when_it_has_looked_at_enough(make_world: MakeWorld) -> None:
    """R-MATCH-6: with a cursor that moved."""
    world = make_world(max_filter_records=1000)
    world.write_records("t", [{"data": 1, "tag": "b"}] * 5000)
    page = world.diff("t", match="a*", wait_ms=20_000)
    assert (seqs(page), page["caught_up"]) == ([], False)
    assert 0 < page["next_from_seq"] < 5000


def test_a_filter_holds_after_a_crash(world: World) -> None:
    """R-MATCH-1: tags are found where the records are."""
    world.put("t", durability="fsync")
    tagged(world, "a", "b", "ab", None, "a")
    world.crash_and_start()
    assert seqs(world.diff("t", match="a")) == [1, 5]
    assert seqs(world.diff("t", match="a*")) == [1, 3, 5]


def test_deleted_records_do_not_come_through_a_filter(world: World) -> None:
    """R-DEL-7, R-MATCH-1: and a tag that is used again is another one."""
    tagged(world, "a", "b", "a")
    world.delete("t", match="a")
    tagged(world, "c", "a")
    assert seqs(world.diff("t", match="a")) == [5]
    assert seqs(world.diff("t", match="*")) == [2, 4, 5]


def test_a_strict_reader_may_filter(world: World) -> None:
    """R-STRICT-2: the keys are known, and a misspelled one is named."""
    strict = {"Prefer": "handling=strict"}
    tagged(world, "a", "b")
    fields = {"match": "a", "only_node": None}
    assert seqs(world.request("POST", "/v0/topics/t/diff", fields, strict).json) == [1]
    assert world.request("POST", "/v0/watch", {"topics": {"t": {}}, **fields}, strict).status == 200
    refused = world.request("POST", "/v0/topics/t/diff", {"macth": "a"}, strict)
    assert "did you mean match?" in refused.json["error"]["message"]
