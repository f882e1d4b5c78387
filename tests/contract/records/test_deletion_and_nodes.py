"""Deleting records, and reading without one's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World, seqs

INVALID = (400, "invalid_request", None)


def tagged(world: World, *tags: str | None, topic: str = "t") -> None:
    world.write_records(topic, [{"data": n, "tag": tag} for n, tag in enumerate(tags, 1)])


def remaining(world: World, topic: str = "t") -> list[int]:
    return seqs(world.diff(topic))


def test_a_prefix_goes_silently(world: World) -> None:
    """R-DEL-1, R-DEL-6, TV-2: everything below a bound."""
    world.write("t", *range(5))
    answer = world.delete("t", before_seq=3)
    assert (answer["deleted"], answer["earliest_seq"], answer["count"], answer["head_seq"]) == (2, 3, 3, 5)
    page = world.diff("t")
    assert (page["tombstone"], seqs(page), page["earliest_seq"]) == (None, [3, 4, 5], 3)


@pytest.mark.parametrize(("bound", "left"), [(0, 5), (1, 5), (2, 4), (5, 1), (6, 0), (7, 0), (2**64 - 1, 0)])
def test_a_bound_beyond_the_head_is_the_head(world: World, bound: int, left: int) -> None:
    """R-DEL-1, 7.7: it deletes nothing yet to come, and 1 or less deletes nothing."""
    world.write("t", *range(5))
    answer = world.delete("t", before_seq=bound)
    assert (answer["deleted"], answer["count"]) == (5 - left, left)
    world.write("t", "later")
    assert remaining(world)[-1] == 6


def test_a_tag_goes_wherever_it_is(world: World) -> None:
    """R-DEL-2, TV-5: holes are passed; the front moves when it is emptied."""
    tagged(world, "a", "b", "c")
    answer = world.delete("t", match="a")
    assert (answer["deleted"], answer["earliest_seq"]) == (1, 2)
    answer = world.delete("t", match="c")
    assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"]) == (1, 2, 3)
    answer = world.delete("t", match="b")
    assert (answer["earliest_seq"], answer["count"], answer["bytes"]) == (4, 0, 0)
    page = world.diff("t")
    assert (page["records"], page["next_from_seq"], page["caught_up"], page["tombstone"]) == ([], 3, True, None)


def test_bound_and_tag_together_are_both_required(world: World) -> None:
    """R-DEL-3: and no prefix is taken."""
    tagged(world, "a", "b", "a", "b", "a")
    assert world.delete("t", before_seq=4, match="a")["deleted"] == 2
    assert remaining(world) == [2, 4, 5]
    assert world.delete("t", before_seq=1, match="*")["deleted"] == 0


def test_a_delete_is_of_its_moment(world: World) -> None:
    """R-DEL-4: the same tag written later is there to stay."""
    tagged(world, "a", "a")
    world.delete("t", match="a")
    tagged(world, "a")
    assert remaining(world) == [3]
    world.crash_and_start()
    assert remaining(world) == [3]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_delete_is_for_good(world: World, durability: str) -> None:
    """R-DEL-5, R-DUR-7: over crashes and restarts; again deletes none."""
    world.put("t", durability=durability)
    tagged(world, "a", "b", "a", "b", "c")
    world.delete("t", match="a")
    world.delete("t", before_seq=3)
    for crash in (True, False):
        world.crash_and_start() if crash else world.restart()
        assert remaining(world) == [4, 5]
        assert world.diff("t")["tombstone"] is None
        assert world.delete("t", match="a")["deleted"] == 0
        assert world.delete("t", before_seq=3)["deleted"] == 0


def test_a_delete_shows_at_once_everywhere(world: World) -> None:
    """R-DEL-7: in state, list and diff, from the answer on."""
    tagged(world, "a", "b", "a")
    answer = world.delete("t", match="a")
    state = world.state("t")
    row = world.request("GET", "/v0/topics").json["topics"][0]
    for shown in (answer, state, row):
        assert (shown["head_seq"], shown["earliest_seq"], shown["count"], shown["bytes"]) == (3, 2, 1, 1)
    assert remaining(world) == [2]


TAGS = ["chat-42:a", "chat-42:", "chat-420:c", "chat-4", "", None, "*", "x*y", "é", "éa", "\n", "Chat-42:a"]
MATCHES: list[tuple[Any, list[str | None]]] = [
    ("chat-42:*", ["chat-42:a", "chat-42:"]),
    (["tag", "Glob", "chat-42:*"], ["chat-42:a", "chat-42:"]),
    ("chat-4", ["chat-4"]),
    (["tag", "Eq", "chat-4"], ["chat-4"]),
    ("*", [tag for tag in TAGS if tag is not None]),
    (["tag", "Glob", "*"], [tag for tag in TAGS if tag is not None]),
    (["tag", "Eq", "*"], ["*"]),
    ("", [""]),
    (["tag", "Eq", ""], [""]),
    ("x**", ["x*y"]),
    ("x*y*", ["x*y"]),
    (["tag", "Eq", "x*y"], ["x*y"]),
    ("é*", ["é", "éa"]),
    (["tag", "Eq", "é"], ["é"]),
    ("e*", []),
    ("\n", ["\n"]),
    ("nothing", []),
]


@pytest.mark.parametrize(("match", "gone"), MATCHES, ids=lambda value: repr(value)[:40])
def test_what_a_predicate_matches(world: World, match: Any, gone: list[str | None]) -> None:
    """R-DEL-8: bytes of the whole tag, or a literal prefix of them; the untagged never match."""
    tagged(world, *TAGS)
    assert world.delete("t", match=match)["deleted"] == len(gone)
    left = [number for number, tag in enumerate(TAGS, 1) if tag not in gone]
    assert remaining(world) == left


BAD_MATCHES = [
    ["tag", "Eq"], ["tag", "Eq", "a", "b"], ["node", "Eq", "a"], ["tag", "eq", "a"], ["tag", "GLOB", "a*"],
    ["tag", "Glob", "a"], ["tag", "Glob", ""], ["tag", "Glob", "*a"], ["tag", "Eq", 5], [], {}, 5, True,
    ["Tag", "Eq", "a"], ["tag", "Ne", "a"], [["tag", "Eq", "a"]], ["tag", None, "a"], {"tag": "a"},
]  # fmt: skip


@pytest.mark.parametrize("match", BAD_MATCHES, ids=repr)
def test_any_other_predicate_is_refused(world: World, match: Any) -> None:
    """7.7: before the topic is looked up."""
    assert world.request("POST", "/v0/topics/none/delete", {"match": match}).refusal == INVALID
    tagged(world, "a")
    assert world.request("POST", "/v0/topics/t/delete", {"match": match, "before_seq": 9}).refusal == INVALID
    assert remaining(world) == [1]


def test_a_delete_says_what_it_deletes(world: World) -> None:
    """7.7: a bound, a predicate or both; then the topic must exist."""
    world.put("t")
    for body in ({}, {"before_seq": None}, {"match": None, "before_seq": None}):
        assert world.request("POST", "/v0/topics/t/delete", body).refusal == INVALID
        assert world.request("POST", "/v0/topics/none/delete", body).refusal == INVALID
    answer = world.request("POST", "/v0/topics/none/delete", {"before_seq": 1})
    assert answer.refusal == (404, "topic_not_found", {"topic": "none"})


def test_a_delete_answers_with_the_state_after_it(world: World) -> None:
    """7.7: exactly these fields."""
    world.write("t", "x", "y")
    answer = world.delete("t", before_seq=2)
    answer.pop("performance")
    assert answer == {"topic": "t", "deleted": 1, "earliest_seq": 2, "head_seq": 2, "count": 1, "bytes": 3}


def test_a_delete_the_disk_refused_deletes_nothing(world: World) -> None:
    """R-DUR-7: 500, and everything is still there."""
    world.put("t", durability="fsync")
    world.write("t", 1, 2, 3)
    world.fail_storage("write", 5, times=10)
    assert world.request("POST", "/v0/topics/t/delete", {"before_seq": 3}).status == 500
    world.heal_storage()
    assert remaining(world) == [1, 2, 3]
    world.crash_and_start()
    assert remaining(world) == [1, 2, 3]


def test_reading_over_a_wide_hole_costs_no_more_than_a_narrow_one(world: World) -> None:
    """7.6, R-TOMB-6: deleted numbers are not stepped through."""
    for _ in range(5):
        world.write_records("t", [{"data": 1, "tag": "x"}] * 10_000)
    world.write("t", "end")
    world.delete("t", match="x")
    page = world.diff("t")
    assert (seqs(page), page["caught_up"]) == ([50_001], True)
    assert page["performance"]["records_scanned"] <= 1


# --- nodes ----------------------------------------------------------------------------------------------------------
def noded(world: World, *nodes: str | None, topic: str = "t") -> None:
    world.write_records(topic, [{"data": n, "node": node} for n, node in enumerate(nodes, 1)])


def test_a_reader_leaves_out_its_own(world: World) -> None:
    """R-NODE-1, R-NODE-2, TV-6: one name or several; the cursor passes them."""
    noded(world, "self", "other", "self")
    page = world.diff("t", node="self")
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([2], 3, True)
    page = world.diff("t", node=["self", "other"])
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["lag"]) == ([], 3, True, 0)
    assert page["tombstone"] is None


@pytest.mark.parametrize(
    ("node", "left"),
    [
        (None, [1, 2, 3, 4, 5]),
        ([], [1, 2, 3, 4, 5]),
        ("a", [2, 3, 4, 5]),
        (["a", "é"], [2, 3, 5]),
        ("", [1, 3, 4, 5]),
        ("A", [1, 2, 3, 4, 5]),
        (["none", "", "a", "a"], [3, 4, 5]),
        ("a*", [1, 2, 3, 4, 5]),
        ("n" * 1000, [1, 2, 3, 4, 5]),
    ],
)
def test_nodes_are_compared_byte_for_byte(world: World, node: Any, left: list[int]) -> None:
    """R-NODE-1: a record without one always passes; an empty name is a name."""
    noded(world, "a", "", None, "é", "ab")
    assert seqs(world.diff("t", node=node)) == left


def test_a_reader_names_so_many_nodes_at_most(make_world: MakeWorld) -> None:
    """R-NODE-6: however often each is named; in a watch, too."""
    world = make_world(max_nodes=3, max_node_bytes=4)
    noded(world, "a", "b")
    assert seqs(world.diff("t", node=["a", "x", "y"])) == [2]
    watch = {"topics": {"t": {}}}
    for node in (["a"] * 4, ["n"] * 50_000, ["aaaaa", "bbbb", "cccc"], "é" * 7):
        for path, body in (("topics/t/diff", {}), ("watch", watch)):
            refused = world.request("POST", f"/v0/{path}", {**body, "node": node})
            assert refused.refusal == (400, "invalid_request", None)
    assert seqs(world.diff("t", node="a" * 12)) == [1, 2]
    assert world.request("POST", "/v0/watch", {**watch, "node": ["a", "x", "y"]}).status == 200


def test_filtered_records_take_no_room_in_an_answer(world: World) -> None:
    """R-NODE-3: neither of the limit nor of the byte budget."""
    noded(world, *(["me"] * 300 + ["you", "me"] * 3))
    page = world.diff("t", node="me", limit=2)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([301, 303], 303, False)
    page = world.diff("t", node="me", max_batch_bytes=7)
    assert seqs(page) == [301, 303]
    assert world.diff("t", node="me", limit=3)["caught_up"] in (True, False)


def test_a_long_run_of_ones_own_may_take_several_reads(world: World) -> None:
    """R-NODE-3: each moves the cursor; what is after it arrives."""
    for _ in range(4):
        world.write_records("t", [{"data": 1}] * 10_000, node="me")
    world.write("t", "mine not")
    cursor, reads, found = 0, 0, []
    while True:
        page = world.diff("t", cursor, node="me")
        found += seqs(page)
        reads += 1
        if page["caught_up"]:
            break
        assert page["next_from_seq"] >= cursor + 10_000 or page["records"]
        cursor = page["next_from_seq"]
    assert (found, page["next_from_seq"]) == ([40_001], 40_001)
    assert reads <= 6


def test_a_topic_may_switch_the_filter_off(world: World) -> None:
    """R-NODE-4: for all its readers, from the next read on."""
    world.put("t", dedupe_node=False)
    noded(world, "me", "you")
    assert seqs(world.diff("t", node="me")) == [1, 2]
    world.put("t")
    assert seqs(world.diff("t", node="me")) == [2]


def test_the_node_of_a_batch_is_for_records_without_one(world: World) -> None:
    """R-NODE-5: an empty name of their own counts as one."""
    world.write_records(
        "t", [{"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": ""}, {"data": 4, "node": None}], node="b"
    )
    assert [record.get("$node") for record in world.diff("t")["records"]] == ["b", "own", "", "b"]
