"""Routers: endpoints, what is forwarded, what is not, and how it looks in the destination."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.contract.conftest import MakeWorld
from tests.contract.world.world import World, seqs, tombstone


def route(world: World, name: str, source: str, dest: str, **fields: Any) -> Any:
    """PUT; fails unless it is answered 200 or 201."""
    answer = world.request("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields})
    assert answer.status in (200, 201), f"{answer.status} {answer.text}"
    return answer.json


def router(world: World, name: str) -> Any:
    answer = world.request("GET", f"/v0/routers/{name}")
    assert answer.status == 200, answer.text
    return answer.json


def refusal(world: World, name: str, body: Any) -> tuple[int, str, Any]:
    answer = world.request("PUT", f"/v0/routers/{name}", body)
    return answer.status, answer.json["error"]["code"], answer.json["error"].get("detail")


def records(world: World, topic: str, from_seq: int = 0, **fields: Any) -> list[Any]:
    return [
        {key: value for key, value in record.items() if key != "$ts"}
        for record in world.diff(topic, from_seq, include_tags=True, limit=1000, **fields)["records"]
    ]


def topic_names(world: World) -> list[str]:
    return [row["topic"] for row in world.request("GET", "/v0/topics").json["topics"]]


# --- endpoints -------------------------------------------------------------------------------------------------------
def test_a_router_is_created_with_its_topics_and_echoes_its_settings(world: World) -> None:
    """9.1, 9.2, 9.3: 201 then 200; omitted fields mean their defaults also on an update."""
    body = {"source": "jobs", "dest": "audit", "filter": "a:*", "guarantee": "exactly_once", "preserve_tag": False}
    answer = world.request("PUT", "/v0/routers/jobs-%3Eaudit", body)
    assert answer.status == 201
    made = answer.json
    made.pop("performance")
    assert made == {
        "router": "jobs->audit",
        "created": True,
        "source": "jobs",
        "dest": "audit",
        "preserve_node": True,
        "preserve_tag": False,
        "filter": ["tag", "Glob", "a:*"],
        "allow_cycle": False,
        "guarantee": "exactly_once",
    }
    assert topic_names(world) == ["audit", "jobs"]
    again = world.request("PUT", "/v0/routers/jobs->audit", {"source": "jobs", "dest": "audit"})
    assert (again.status, again.json["created"], again.json["filter"]) == (200, False, None)
    state = router(world, "jobs-%3Eaudit")
    state.pop("performance")
    assert state == {
        "router": "jobs->audit",
        "source": "jobs",
        "dest": "audit",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
        "forwarded_total": 0,
    }


def test_an_absent_router_is_404_to_read_and_no_error_to_delete(world: World) -> None:
    """9.3, 9.5: only reading names it in an error."""
    answer = world.request("GET", "/v0/routers/none")
    assert (answer.status, answer.json["error"]["code"]) == (404, "router_not_found")
    assert answer.json["error"]["detail"] == {"router": "none"}
    gone = world.request("DELETE", "/v0/routers/none")
    assert (gone.status, gone.json["router"], gone.json["deleted"]) == (200, "none", False)
    route(world, "r", "a", "b")
    assert world.request("DELETE", "/v0/routers/r").json["deleted"] is True
    assert world.request("GET", "/v0/routers/r").status == 404
    assert topic_names(world) == ["a", "b"]


def test_routers_are_listed_by_name_page_by_page_and_filtered(world: World) -> None:
    """9.4, 3.4: prefix, source and dest combine with AND; a page starts after its cursor."""
    for name, source, dest in (("x1", "a", "b"), ("x2", "a", "c"), ("y1", "a", "b"), ("z", "c", "d")):
        route(world, name, source, dest)

    def listed(query: str) -> list[str]:
        return [row["router"] for row in world.request("GET", f"/v0/routers?{query}").json["routers"]]

    assert listed("") == ["x1", "x2", "y1", "z"]
    assert listed("prefix=x") == ["x1", "x2"]
    assert listed("source=a&dest=b") == ["x1", "y1"]
    assert listed("prefix=x&dest=b") == ["x1"]
    assert listed("dest=none") == []
    page = world.request("GET", "/v0/routers?page_size=3").json
    assert [row["router"] for row in page["routers"]] == ["x1", "x2", "y1"]
    assert page["routers"][0] == {
        "router": "x1",
        "source": "a",
        "dest": "b",
        "guarantee": "at_least_once",
        "forwarded_total": 0,
    }
    rest = world.request("GET", f"/v0/routers?page_size=3&cursor={page['next_cursor']}").json
    assert [row["router"] for row in rest["routers"]] == ["z"]
    assert "next_cursor" not in rest
    assert world.request("GET", "/v0/routers?cursor=%25").status == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "a"},
        {"dest": "b"},
        {"source": 1, "dest": "b"},
        {"source": "a", "dest": "b", "filter": ["tag", "Like", "x"]},
        {"source": "a", "dest": "b", "guarantee": "twice"},
        {"source": "a", "dest": "b", "allow_cycle": None},
        {"source": "a", "dest": "a"},
        {"source": "a!", "dest": "b"},
        {"source": "a", "dest": "-b"},
    ],
)
def test_a_router_that_makes_no_sense_is_refused_and_leaves_nothing(world: World, body: Any) -> None:
    """9.2/1, 9.2/4, 9.2/5, R-RTR-10: the shape, equal ends, names of topics."""
    assert refusal(world, "r", body)[:2] == (400, "invalid_request")
    assert topic_names(world) == []


def test_the_checks_of_a_router_come_in_their_order(make_world: MakeWorld) -> None:
    """9.2/3, 9.2/6, 9.2/7, 9.2/8, 9.2/9, R-RTR-7, R-RTR-8, R-LIM-1: name, dest, fan-in, re-point, cap, then cycle."""
    world = make_world(max_routers=2)
    route(world, "ab", "a", "b")
    route(world, "bc", "b", "c")
    assert refusal(world, "-", {"source": "x", "dest": "x"})[:2] == (400, "invalid_request")
    absent = {"source": "x", "dest": "gone", "create_dest": False}
    assert refusal(world, "ab", absent) == (404, "topic_not_found", {"topic": "gone"})
    fan_in = {"topic": "b", "reason": "router_dest_fan_in"}
    assert refusal(world, "other", {"source": "c", "dest": "b"}) == (409, "topic_exists_incompatible", fan_in)
    repoint = {"router": "ab", "reason": "router_repoint_forbidden", "existing_source": "a", "existing_dest": "b"}
    for body in ({"source": "c", "dest": "b"}, {"source": "a", "dest": "new"}):
        assert refusal(world, "ab", body) == (409, "topic_exists_incompatible", repoint)
    cycle = {"source": "c", "dest": "a"}
    assert refusal(world, "ca", cycle) == (429, "throttled", {"limit": "max_routers", "max": 2})
    world.request("DELETE", "/v0/routers/bc")
    route(world, "bc", "b", "c")
    assert topic_names(world) == ["a", "b", "c"]


def test_a_router_that_would_close_a_cycle_is_refused_with_the_way_around(world: World) -> None:
    """R-RTR-9, 9.2/10: [source, dest, ..., source]; allow_cycle skips it; an own previous edge does not count."""
    route(world, "ab", "a", "b")
    route(world, "bc", "b", "c")
    assert refusal(world, "ca", {"source": "c", "dest": "a"}) == (409, "router_cycle", {"cycle": ["c", "a", "b", "c"]})
    assert refusal(world, "ba", {"source": "b", "dest": "a"}) == (409, "router_cycle", {"cycle": ["b", "a", "b"]})
    route(world, "ca", "c", "a", allow_cycle=True)
    assert refusal(world, "ca", {"source": "c", "dest": "a"})[1] == "router_cycle"
    route(world, "bc", "b", "c", allow_cycle=True)
    assert refusal(world, "ab", {"source": "a", "dest": "b"})[2] == {"cycle": ["a", "b", "c", "a"]}


def test_a_router_needs_room_for_both_of_its_topics(make_world: MakeWorld) -> None:
    """R-RTR-10, 9.2/11: when the second creation would hit max_topics, the first is not made either."""
    world = make_world(max_topics=2)
    world.put("one")
    body = {"source": "a", "dest": "b"}
    assert refusal(world, "r", body) == (429, "throttled", {"limit": "max_topics", "max": 2})
    assert topic_names(world) == ["one"]
    route(world, "r", "one", "b")


# --- what is forwarded -----------------------------------------------------------------------------------------------
def test_records_written_after_the_router_are_forwarded_in_order(world: World) -> None:
    """R-RTR-1, R-RTR-2, R-RTR-4: no backfill; data, meta, tag and node as they were, seqs of the destination's own."""
    world.write("a", "before")
    route(world, "r", "a", "b")
    world.write("b", "own")
    world.write_records(
        "a", [{"data": {"x": [1, 2.50]}, "tag": "t", "node": "n", "meta": {"k": 1}}, {"data": None}, {"data": "end"}]
    )
    assert records(world, "b") == [
        {"$seq": 1, "data": "own"},
        {"$seq": 2, "$node": "n", "$tag": "t", "data": {"x": [1, 2.5]}, "meta": {"k": 1}},
        {"$seq": 3, "data": None},
        {"$seq": 4, "data": "end"},
    ]
    assert world.state("b")["head_seq"] == 4
    assert router(world, "r")["forwarded_total"] == 3
    stamps = [record["$ts"] for record in world.diff("b")["records"]]
    assert stamps == sorted(stamps)


def test_node_and_tag_are_dropped_when_the_router_says_so(world: World) -> None:
    """R-RTR-2: they are not even there for deletes and filters."""
    route(world, "r", "a", "b", preserve_node=False, preserve_tag=False)
    world.write_records("a", [{"data": 1, "tag": "t", "node": "n"}])
    assert records(world, "b") == [{"$seq": 1, "data": 1}]
    assert world.delete("b", match="*")["deleted"] == 0
    assert len(records(world, "b", node="n")) == 1


def test_a_filter_forwards_only_tagged_records_that_match(world: World) -> None:
    """R-RTR-6, R-RTR-15: what is filtered is consumed and not counted."""
    route(world, "r", "a", "b", filter=["tag", "Glob", "x:*"])
    world.write_records(
        "a", [{"data": 1, "tag": "x:1"}, {"data": 2}, {"data": 3, "tag": "y"}, {"data": 4, "tag": "x:"}]
    )
    assert world.data("b") == [1, 4]
    assert router(world, "r")["forwarded_total"] == 2
    route(world, "r", "a", "b", filter="y")
    world.write_records("a", [{"data": 5, "tag": "y"}, {"data": 6, "tag": "x:1"}])
    assert world.data("b") == [1, 4, 5]
    assert router(world, "r")["forwarded_total"] == 3


def test_forwarding_completes_without_any_reader(world: World) -> None:
    """R-RTR-5: within 100 ms, as the lists show, which drive nothing."""
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    world.advance_ms(100)
    listed = {row["topic"]: row["head_seq"] for row in world.request("GET", "/v0/topics").json["topics"]}
    assert listed == {"a": 2, "b": 2}
    assert world.request("GET", "/v0/routers").json["routers"][0]["forwarded_total"] == 2


def test_a_long_poll_on_the_destination_hears_of_copies_at_once(world: World) -> None:
    """R-RTR-4, 7.6: without waiting for the background."""
    route(world, "r", "a", "b")
    poll = world.ask("POST", "/v0/topics/b/diff", {"wait_ms": 20_000})
    assert poll.waiting
    world.write("a", "x")
    assert [record["data"] for record in poll.answer().json["records"]] == ["x"]


def test_several_routers_between_the_same_topics_forward_copies_each(world: World) -> None:
    """R-RTR-7: they differ in what they keep, at most."""
    route(world, "r1", "a", "b")
    route(world, "r2", "a", "b", filter="t")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "t"}])
    assert sorted(world.data("b")) == [1, 2, 2]


def test_deleting_a_router_stops_it_at_once_and_recreating_starts_at_the_head(world: World) -> None:
    """R-RTR-1, R-RTR-11: what came between is not forwarded."""
    route(world, "r", "a", "b")
    world.write("a", 1)
    assert world.data("b") == [1]
    world.request("DELETE", "/v0/routers/r")
    world.write("a", 2)
    route(world, "r", "a", "b")
    world.write("a", 3)
    assert world.data("b") == [1, 3]
    assert router(world, "r")["forwarded_total"] == 1


def test_deleting_a_topic_deletes_the_routers_tied_to_it_and_names_them(world: World) -> None:
    """R-RTR-11, 7.4: the others continue, and a new topic of the name has none."""
    route(world, "jobs->audit", "jobs", "audit")
    route(world, "audit->mirror", "audit", "mirror")
    route(world, "other", "jobs", "x")
    assert world.drop("audit")["routers_removed"] == ["audit->mirror", "jobs->audit"]
    assert [row["router"] for row in world.request("GET", "/v0/routers").json["routers"]] == ["other"]
    world.write("jobs", 1)
    assert world.data("x") == [1]
    assert world.request("GET", "/v0/topics/audit").status == 404
    world.write("audit", "fresh")
    assert world.data("mirror") == []


def test_a_record_deleted_before_it_is_forwarded_never_is(world: World) -> None:
    """R-DEL-9, R-RTR-13: the destination's cap holds the router back meanwhile; copies already there stay."""
    world.put("b", cap_records=1, discard="reject")
    route(world, "r", "a", "b")
    world.write_records("a", [{"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3}])
    assert world.data("b") == [1]
    world.delete("a", match="gone")
    world.delete("a", before_seq=2)
    assert world.data("b") == [1]
    world.delete("b", before_seq=2)
    assert world.data("b", 1) == [3]
    assert router(world, "r")["forwarded_total"] == 2


def test_a_full_destination_holds_the_router_back_until_there_is_room(world: World) -> None:
    """TV-15, R-RTR-13, R-RTR-3, R-RTR-15, R-CAP-7: nothing is skipped."""
    world.put("b", cap_records=2, discard="reject")
    route(world, "r", "a", "b")
    world.write("a", 1, 2, 3, 4)
    assert world.data("b") == [1, 2]
    assert router(world, "r")["forwarded_total"] == 2
    world.delete("b", before_seq=3)
    page = world.diff("b", 2)
    assert ([record["data"] for record in page["records"]], seqs(page)) == ([3, 4], [3, 4])
    assert router(world, "r")["forwarded_total"] == 4


def test_a_full_destination_is_tried_again_without_any_reader(world: World) -> None:
    """R-RTR-5, R-RTR-13, R-TTL-3: here the room comes from expiry."""
    world.put("b", cap_records=1, discard="reject", ttl_ms=1000)
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    world.advance_ms(1500)
    listed = {row["topic"]: row["head_seq"] for row in world.request("GET", "/v0/topics").json["topics"]}
    assert listed["b"] == 2


def test_the_quota_holds_routers_back_like_a_full_destination(make_world: MakeWorld) -> None:
    """R-RTR-13: max_total_bytes."""
    world = make_world(max_total_bytes=30)
    route(world, "r", "a", "b")
    world.write("a", "x" * 8, "y" * 8)
    assert world.data("b") == ["x" * 8]
    world.delete("a", before_seq=2)
    assert world.data("b") == ["x" * 8, "y" * 8]


def test_a_destination_that_discards_evicts_as_for_writes(world: World) -> None:
    """R-RTR-14: it is reported to readers as cap."""
    world.put("b", cap_records=2)
    route(world, "r", "a", "b")
    world.write("a", 1, 2, 3)
    page = world.diff("b")
    assert page["tombstone"] == tombstone(1, 1, "cap", 3)
    assert [record["data"] for record in page["records"]] == [2, 3]


def test_a_mirror_ends_after_eight_hops(world: World) -> None:
    """TV-14, R-RTR-12, R-RTR-2: wherever it begins."""
    route(world, "ab", "a", "b", allow_cycle=True)
    route(world, "ba", "b", "a", allow_cycle=True)
    world.write_records("a", [{"data": 1, "node": "n"}])
    world.advance_ms(1000)
    assert (world.state("a")["head_seq"], world.state("b")["head_seq"]) == (5, 4)
    assert {record["$node"] for topic in "ab" for record in records(world, topic)} == {"n"}
    world.write("b", 2)
    world.advance_ms(1000)
    assert (world.state("a")["head_seq"], world.state("b")["head_seq"]) == (9, 9)


def test_a_chain_of_nine_ends_at_the_eighth_copy(world: World) -> None:
    """R-RTR-12, R-RTR-15: a record with hop 8 is consumed and not counted."""
    names = [f"t{number}" for number in range(10)]
    for source, dest in itertools.pairwise(names):
        route(world, f"{source}-", source, dest)
    world.write("t0", "x")
    world.advance_ms(1000)
    assert [world.state(name)["head_seq"] for name in names] == [1] * 9 + [0]
    assert router(world, "t8-")["forwarded_total"] == 0


def test_a_reader_at_the_end_of_a_chain_sees_what_was_just_written(world: World) -> None:
    """R-RTR-4: also through chains."""
    for source, dest in ("ab", "bc", "cd"):
        route(world, f"{source}{dest}", source, dest)
    world.write("a", "x")
    assert world.data("d") == ["x"]


# --- loss ------------------------------------------------------------------------------------------------------------
def test_what_the_source_lost_is_a_hole_in_the_destination(world: World) -> None:
    """TV-16, R-TRIM-1, R-TRIM-3, R-RTR-15: here a full destination keeps the router from forwarding in time."""
    world.put("a", ttl_ms=1000)
    world.put("b", cap_records=1, discard="reject")
    world.write("b", "own")
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    world.advance_ms(2000)
    world.delete("b", before_seq=2)
    world.write("a", 3)
    page = world.diff("b")
    assert page["tombstone"] == tombstone(1, 3, "source_trim", 4)
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(4, 3)]
    assert router(world, "r")["forwarded_total"] == 3


def test_holes_above_live_records_are_an_interior_gap_until_those_are_gone(world: World) -> None:
    """R-TRIM-2, R-TRIM-3: the older copies stay readable."""
    world.put("a", cap_records=2)
    world.put("b", cap_records=2, discard="reject")
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    assert world.data("b") == [1, 2]
    world.write("a", 3, 4, 5, 6)
    world.state("b")
    world.delete("b", before_seq=2)
    page = world.diff("b", 1)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([2], 2, False)
    assert page["tombstone"] is None
    head = page["head_seq"]
    behind = world.diff("b", 2)
    assert behind["tombstone"] == tombstone(3, 4, "source_trim", head)
    assert [record["data"] for record in behind["records"]] == [5]
    state = world.state("b")
    assert (state["earliest_seq"], state["count"]) == (2, 2)
    world.delete("b", before_seq=3)
    assert world.diff("b")["tombstone"] == tombstone(1, 4, "source_trim", world.state("b")["head_seq"])


@pytest.mark.parametrize("ending", ["none", "restart", "crash_and_start"])
def test_holes_that_came_one_after_the_other_are_one_gap(world: World, ending: str) -> None:
    """R-TRIM-2, R-TRIM-3, R-RTR-16: also after a restart."""
    world.put("a", cap_records=2)
    world.put("b", cap_records=2, discard="reject")
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    assert world.data("b") == [1, 2]
    for more in ((3, 4, 5, 6), (7, 8)):
        world.write("a", *more)
        head = world.state("b")["head_seq"]
    if ending != "none":
        getattr(world, ending)()
    page = world.diff("b", 2)
    assert page["tombstone"] == tombstone(3, 6, "source_trim", head)
    assert (page["next_from_seq"], page["caught_up"]) == (6, True)


# --- exactly once ----------------------------------------------------------------------------------------------------
def test_exactly_once_says_in_the_meta_where_a_copy_came_from(world: World) -> None:
    """R-EO-1, R-EO-2, R-EO-4: beside, or around, what was there."""
    route(world, "r", "a", "b", guarantee="exactly_once")
    many = {f"k{number}": number for number in range(64)}
    has_key = {f"k{number}": number for number in range(63)} | {"_topics_router": 1}
    metas: list[Any] = [None, {}, {"k": 1}, many, has_key, ["x"], "s"]
    world.write_records("a", [{"data": n, **({} if m is None else {"meta": m})} for n, m in enumerate(metas)])
    found = [record["meta"] for record in records(world, "b")]
    topic_id = found[0]["_topics_router"]["source_topic_id"]
    assert isinstance(topic_id, int)
    for number, meta in enumerate(found, 1):
        assert meta["_topics_router"] == {
            "idempotency_key": f"router:r:{topic_id}:1:{number}",
            "router": "r",
            "source_topic": "a",
            "source_topic_id": topic_id,
            "source_epoch": 1,
            "source_seq": number,
        }
        meta.pop("_topics_router")
    original = "_topics_original_meta"
    has_key.pop("_topics_router")
    assert found == [{}, {}, {"k": 1}, {original: many}, has_key, {original: ["x"]}, {original: "s"}]


def test_what_clients_write_to_the_destination_keeps_exactly_once_from_nothing(world: World) -> None:
    """R-EO-3, R-RTR-15: a client that may write there could state copies that were never made."""
    route(world, "r", "a", "b", guarantee="exactly_once")
    world.write("a", 1)
    first = records(world, "b")[0]["meta"]["_topics_router"]
    prefix = first["idempotency_key"].removesuffix("1")
    for seq in (2, 4):
        forged = first | {"idempotency_key": f"{prefix}{seq}", "source_seq": seq}
        world.write_records("b", [{"data": f"here {seq}", "meta": {"_topics_router": forged}, "tag": str(seq)}])
    world.write("a", 2, 3, 4)
    assert world.data("b") == [1, "here 2", "here 4", 2, 3, 4]
    assert router(world, "r")["forwarded_total"] == 4


def test_what_exactly_once_adds_is_exempt_from_the_limits(make_world: MakeWorld) -> None:
    """R-EO-5: those are for what clients send."""
    world = make_world(max_record_bytes=100, max_meta_bytes=50)
    route(world, "r", "a", "b", guarantee="exactly_once")
    world.write_records("a", [{"data": "x" * 50, "meta": {"k": "y" * 40}}])
    assert len(records(world, "b")) == 1


def test_source_ids_differ_between_instances_of_a_source(world: World) -> None:
    """R-EO-2: recreated, it is another one."""
    found = []
    for _ in range(2):
        route(world, "r", "a", "b", guarantee="exactly_once")
        world.write("a", 1)
        found.append(records(world, "b")[-1]["meta"]["_topics_router"]["source_topic_id"])
        world.drop("a")
    assert found[0] != found[1]


def test_routers_do_not_touch_idempotency(world: World) -> None:
    """R-RTR-19: a key of the source means nothing in the destination."""
    route(world, "r", "a", "b")
    world.write("a", 1, idempotency_key="k")
    assert world.write("a", 1, idempotency_key="k")["deduped"] is True
    assert world.data("b") == [1]
    assert world.write("b", 2, idempotency_key="k")["deduped"] is False
    assert world.data("b") == [1, 2]


# --- restarts --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["restart", "crash", "power_cut"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_destination_is_after_a_restart_what_its_readers_saw(make_world: MakeWorld, end: str, shards: int) -> None:
    """R-RTR-16, R-DUR-13, R-DUR-2: with direct writes between the copies, deletes in it, and a trimmed source."""
    world = make_world(wal_shards=shards)
    for topic in "abc":
        world.put(topic, durability="fsync")
    world.write("a", "before")
    route(world, "ab", "a", "b", preserve_tag=False)
    route(world, "bc", "b", "c", guarantee="exactly_once")
    for number in range(6):
        world.write_records("a", [{"data": f"a{number}", "tag": str(number), "node": "n"}])
        assert world.data("b")[-1] == f"a{number}"
        world.write_records("b", [{"data": f"b{number}", "tag": str(number)}])
    world.delete("b", match="3")
    world.delete("b", before_seq=3)
    world.delete("a", match="2")
    world.put("a", durability="fsync", cap_records=1)
    seen = [records(world, topic) for topic in "abc"], [router(world, name)["forwarded_total"] for name in ("ab", "bc")]
    if end == "restart":
        world.restart()
    else:
        getattr(world, end)()
        world.start()
    assert [row["topic"] for row in world.request("GET", "/v0/topics").json["topics"]] == ["a", "b", "c"]
    now = [records(world, topic) for topic in "abc"], [router(world, name)["forwarded_total"] for name in ("ab", "bc")]
    assert now == seen
    assert seen[1][0] == 6
    world.write("a", "later")
    assert world.data("c")[-1] == "later"
    assert world.data("b").count("later") == 1


def test_a_router_created_after_history_does_not_backfill_after_a_crash(world: World) -> None:
    """R-RTR-16, R-RTR-1: its position is durable with it."""
    world.write("a", 1, 2)
    route(world, "r", "a", "b")
    world.crash_and_start()
    world.write("a", 3)
    assert world.data("b") == [3]


def test_routers_and_their_ends_are_durable_before_the_answer(make_world: MakeWorld) -> None:
    """9.2, 9.5, R-DUR-1: through power cuts, with several shards of log."""
    world = make_world(wal_shards=3)
    for number in range(6):
        route(world, f"r{number}", f"a{number}", f"b{number}", filter="x")
    route(world, "r1", "a1", "b1", filter="y")
    world.request("DELETE", "/v0/routers/r2")
    world.drop("a3")
    world.drop("b4")
    world.power_cut()
    world.start()
    listed = [row["router"] for row in world.request("GET", "/v0/routers").json["routers"]]
    assert listed == ["r0", "r1", "r5"]
    assert router(world, "r1")["filter"] == ["tag", "Eq", "y"]
    route(world, "r3", "a3", "b3")
    world.write("a3", 1)
    assert world.data("b3") == [1]


def test_holes_and_their_tombstones_survive(world: World) -> None:
    """R-TRIM-3, R-DUR-9: an interior gap stays one over a crash."""
    world.put("a", cap_records=1)
    world.put("b", cap_records=2, discard="reject")
    route(world, "r", "a", "b")
    world.write("a", 1)
    assert world.data("b") == [1]
    world.put("b", cap_records=1, discard="reject")
    world.write("a", 2, 3)
    world.put("b", cap_records=2, discard="reject")
    assert world.data("b") == [1, 3]
    before = world.diff("b", 1)["tombstone"]
    assert before == tombstone(2, 2, "source_trim", 3)
    world.crash_and_start()
    assert world.diff("b", 1)["tombstone"] == before
    assert world.data("b") == [1, 3]
    world.restart()
    assert world.diff("b", 1)["tombstone"] == before


def test_a_mirror_does_not_begin_again_after_a_crash(world: World) -> None:
    """R-RTR-12, R-RTR-16: hops are remembered."""
    route(world, "ab", "a", "b", allow_cycle=True)
    route(world, "ba", "b", "a", allow_cycle=True)
    world.write("a", 1)
    for _ in range(12):
        world.crash_and_start()
        world.advance_ms(20)
    world.advance_ms(1000)
    assert (world.state("a")["head_seq"], world.state("b")["head_seq"]) == (5, 4)


# --- frames, metrics, keys -------------------------------------------------------------------------------------------
def frames(world: World) -> int:
    for line in world.request("GET", "/v0/metrics").text.splitlines():
        if line.startswith("topics_wal_frames_total "):
            return int(float(line.split()[1]))
    raise AssertionError("no such metric")


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_one_record_to_many_destinations_is_one_frame(world: World, guarantee: str) -> None:
    """R-RTR-17, R-EO-6, 12.3: and routers are counted."""
    for topic in ("a", "b0", "b1", "b2", "b3"):
        world.put(topic, durability="fsync")
    for number in range(4):
        route(world, f"r{number}", "a", f"b{number}", guarantee=guarantee)
    before = frames(world)
    world.write("a", "x")
    for number in range(4):
        assert world.data(f"b{number}") == ["x"]
    assert frames(world) == before + 1
    assert world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json["routers"] == 4


def test_names_of_routers_sources_and_destinations_are_a_keys_own(make_world: MakeWorld) -> None:
    """R-AUTH-2, 9.2/2, R-AUTH-3, R-AUTH-4: lists filter, the others refuse with the first such name."""
    world = make_world(api_keys="root,box:r+w+d+a:box-")

    def ask(key: str, method: str, path: str, body: Any = None) -> Any:
        fields = {} if body is None else {"body": body}
        return world.request(method, f"/v0/routers{path}", **fields, headers={"Authorization": f"Bearer {key}"})

    for source, dest, name in (("a", "box-b", "a"), ("box-a", "b", "b"), ("a", "b", "a")):
        answer = ask("box", "PUT", "/box-r", {"source": source, "dest": dest})
        assert (answer.status, answer.json["error"]["detail"]) == (403, {"topic": name})
    assert ask("root", "GET", "").json["routers"] == []
    for router_name, source, dest in (("box-1", "box-a", "box-b"), ("box-2", "box-a", "c"), ("r", "box-a", "box-b")):
        assert ask("root", "PUT", f"/{router_name}", {"source": source, "dest": dest}).status == 201
    assert [row["router"] for row in ask("box", "GET", "").json["routers"]] == ["box-1"]
    for method in ("GET", "DELETE"):
        answer = ask("box", method, "/box-2")
        assert (answer.status, answer.json["error"]["detail"]) == (403, {"topic": "c"})
        assert ask("box", method, "/r").status == 403
    assert ask("box", "GET", "/box-none").status == 404
    assert ask("box", "DELETE", "/box-none").json["deleted"] is False
    assert ask("box", "GET", "/box-1").json["dest"] == "box-b"
    assert ask("box", "DELETE", "/box-1").json["deleted"] is True


def written_bytes(world: World) -> int:
    wal = world.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json["wal"]
    return int(wal["bytes_written"])


def test_copies_stay_out_of_the_log(world: World) -> None:
    """R-RTR-17: a record of 20,000 bytes to four destinations is written once."""
    world.put("a", durability="fsync")
    for number in range(4):
        route(world, f"r{number}", "a", f"b{number}")
    before = written_bytes(world)
    world.write("a", "x" * 20_000)
    for number in range(4):
        assert world.data(f"b{number}") == ["x" * 20_000]
    assert written_bytes(world) - before < 25_000


@pytest.mark.parametrize("durability", ["ephemeral", "memory"])
@pytest.mark.parametrize("dest", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_is_forwarded_to_every_class(world: World, durability: str, dest: str) -> None:
    """R-RTR-2, R-DUR-5: what a strong destination took of a weak source stays there."""
    world.put("a", durability=durability)
    world.put("b", durability=dest)
    route(world, "r", "a", "b")
    world.write("a", 1, 2)
    assert world.data("b") == [1, 2]
    world.power_cut()
    world.start()
    if dest == "fsync":
        assert world.data("b") == [1, 2]
    world.write("a", 3)
    assert world.data("b")[-1] == 3
    assert world.data("b").count(3) == 1


# --- queues ----------------------------------------------------------------------------------------------------------
def claim(world: World, queue: str, most: int = 10) -> list[Any]:
    answer = world.request("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": most})
    assert answer.status == 200, answer.text
    return list(answer.json["claimed"])


def ack(world: World, queue: str, *done: int) -> int:
    answer = world.request("POST", f"/v0/topics/{queue}/ack", {"node": "w", "seqs": list(done)})
    assert answer.status == 200, answer.text
    return int(answer.json["acked"])


def test_a_router_into_a_queue_makes_jobs(world: World) -> None:
    """R-RTR-18, R-RTR-4: a claim sees what was just written to the source, with its tag and meta, after a crash too."""
    world.put("a", durability="fsync")
    world.put("jobs", type="queue", durability="fsync")
    route(world, "r", "a", "jobs", preserve_node=False)
    world.write_records("a", [{"data": {"n": 1}, "tag": "t", "node": "n", "meta": {"k": 1}}, {"data": 2}])
    first = claim(world, "jobs", 1)[0]
    assert (first["$seq"], first["data"], first["$tag"], first["meta"]) == (1, {"n": 1}, "t", {"k": 1})
    assert ack(world, "jobs", 1) == 1
    assert world.data("a") == [{"n": 1}, 2]
    world.crash_and_start()
    assert [(job["$seq"], job["data"]) for job in claim(world, "jobs")] == [(2, 2)]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_job_acked_before_it_was_forwarded_is_still_forwarded(make_world: MakeWorld, shards: int) -> None:
    """R-RTR-18, R-RTR-13: over kills, checkpoints and power cuts; one that was deleted is not."""
    world = make_world(wal_shards=shards)
    world.put("jobs", type="queue", durability="fsync")
    world.put("b", cap_records=1, discard="reject", durability="fsync")
    route(world, "r", "jobs", "b", filter="*")
    world.write_records("jobs", [{"data": n, "tag": "no" if n == 5 else "t"} for n in range(1, 8)])
    world.write("jobs", "untagged")
    assert world.data("b") == [1]
    claim(world, "jobs", 4)
    assert ack(world, "jobs", 1, 2, 4) == 3
    assert ack(world, "jobs", 3) == 1
    world.delete("jobs", match="no")
    claim(world, "jobs")
    assert ack(world, "jobs", 7, 8) == 2
    found, ends = [1], ["crash", "restart", "power_cut", "crash", "restart"]
    for seq, end in zip(range(1, 7), [*ends, ""], strict=True):
        world.delete("b", before_seq=seq + 1)
        found += world.data("b", seq)
        if end == "restart":
            world.restart()
        elif end:
            getattr(world, end)()
            world.start()
    assert found == [1, 2, 3, 4, 6, 7]
    assert router(world, "r")["forwarded_total"] == 6


def test_an_ack_comes_after_the_forward(world: World) -> None:
    """R-RTR-18, R-RTR-5: no client had read the destination, and the background had no time."""
    world.put("jobs", type="queue")
    route(world, "r", "jobs", "b")
    world.write("jobs", 1)
    claim(world, "jobs")
    world.write("jobs", 2)
    claim(world, "jobs")
    assert ack(world, "jobs", 1, 2) == 2
    assert world.data("b") == [1, 2]


def test_many_routers_that_are_held_back_hold_no_client_up(world: World) -> None:
    """R-RTR-5, R-RTR-13: two hundred blocked ones, and one that is not."""
    world.put("full", cap_records=1, discard="reject")
    for number in range(200):
        route(world, f"r{number:03}", "a", "full")
    route(world, "zz", "a", "b")
    world.write("a", 1, 2)
    world.advance_ms(100)
    listed = {row["topic"]: row["head_seq"] for row in world.request("GET", "/v0/topics").json["topics"]}
    assert listed["b"] == 2
    world.put("full")
    world.advance_ms(1000)
    assert world.request("GET", "/v0/routers/r150").json["forwarded_total"] == 2
    assert len(world.data("full")) == 400
