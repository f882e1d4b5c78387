"""Named readers over the wire: pages with leases, commits with tokens, what a reader holds and trims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.world.answer import Answer
from tests.contract.world.world import World
from tests.contract.world.world import seqs as seqs_of

PATH = "/v0/topics/t/readers"


def ask(world: World, action: str, body: dict[str, Any] | None = None, name: str = "r") -> Answer:
    return world.request("POST", f"{PATH}/{name}/{action}", body or {})


def make(world: World, records: int = 6, name: str = "r", **settings: Any) -> None:
    if records:
        world.write("t", *range(1, records + 1))
    assert world.request("PUT", f"{PATH}/{name}", settings).status == 201


def seqs(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.json
    return [record["$seq"] for record in answer.json["records"]]


def test_a_reader_is_created_changed_shown_listed_and_deleted(world: World) -> None:
    """7.10, 7.11, 7.12, 7.13, R-READER-1: with its settings and where it is."""
    world.write("t", 1, 2)
    created = world.request("PUT", f"{PATH}/b")
    assert created.status == 201
    shown = {
        "delivery": "at-least-once", "holds": False, "trims": False,
        "position": 0, "committed": 0, "lag_records": 2, "pages": 0,
    }  # fmt: skip
    assert {name: created.json[name] for name in shown} == shown
    assert created.json["lag_ms"] >= 0
    changed = world.request("PUT", f"{PATH}/b", {"holds": True, "from_seq": 99})
    assert (changed.status, changed.json["created"], changed.json["holds"]) == (200, False, True)
    again = world.request("PUT", f"{PATH}/b", {"holds": True})
    assert (again.status, again.json["created"]) == (200, False)
    assert world.request("PUT", f"{PATH}/a", {"delivery": "at-most-once", "trims": True, "from_seq": 2}).status == 201
    got = world.request("GET", f"{PATH}/a").json
    assert (got["topic"], got["reader"], got["delivery"], got["committed"]) == ("t", "a", "at-most-once", 2)
    rows = world.request("GET", PATH).json["readers"]
    assert [(row["reader"], row["lag_records"]) for row in rows] == [("a", 0), ("b", 2)]
    assert world.request("DELETE", f"{PATH}/a").json["deleted"] is True
    assert world.request("DELETE", f"{PATH}/a").json["deleted"] is False
    assert world.request("GET", f"{PATH}/a").refusal == (404, "reader_not_found", {"topic": "t", "reader": "a"})


def test_a_page_is_committed_with_its_token(world: World) -> None:
    """7.14, 7.15, R-READER-3, R-READER-4: as a whole, or up to a seq."""
    make(world)
    page = ask(world, "read", {"limit": 3})
    assert seqs(page) == [1, 2, 3]
    assert page.json["next_from_seq"] == 3
    assert page.json["deadline"] > 0
    token = page.json["token"]
    assert ask(world, "commit", {"token": token, "seq": 2}).json["committed"] == 2
    assert ask(world, "commit", {"token": token, "seq": 4}).refusal[1] == "invalid_request"
    assert ask(world, "commit", {"token": token}).json["committed"] == 3
    late = ask(world, "commit", {"token": token})
    assert late.refusal == (409, "reader_fenced", {"topic": "t", "reader": "r", "committed": 3})
    world.crash_and_start()
    assert world.request("GET", f"{PATH}/r").json["committed"] == 3
    assert seqs(ask(world, "read")) == [4, 5, 6]


def test_what_is_released_of_a_page_is_handed_out_again_before_anything_new(world: World) -> None:
    """7.15, R-READER-10: all of it, or what is above a seq."""
    make(world)
    one, two = ask(world, "read", {"limit": 2}), ask(world, "read", {"limit": 2})
    released = ask(world, "commit", {"token": one.json["token"], "release": True})
    assert (released.status, released.json["committed"]) == (200, 0)
    late = ask(world, "commit", {"token": one.json["token"]})
    assert late.refusal == (409, "reader_fenced", {"topic": "t", "reader": "r", "committed": 0})
    again = ask(world, "read", {"limit": 2})
    assert seqs(again) == [1, 2]
    part = ask(world, "commit", {"token": again.json["token"], "seq": 1, "release": True})
    assert part.json["committed"] == 1
    assert seqs(ask(world, "read")) == [2]
    whole = ask(world, "commit", {"token": two.json["token"], "seq": 4, "release": True})
    assert whole.json["committed"] == 1
    assert seqs(ask(world, "read")) == [5, 6]
    assert ask(world, "commit", {"token": two.json["token"], "release": 1}).refusal[1] == "invalid_request"


def test_a_read_that_waits_gets_what_another_client_releases(world: World) -> None:
    """R-READER-10"""
    make(world, 1)
    page = ask(world, "read")
    waiting = world.connect().start("POST", f"{PATH}/r/read", {"wait_ms": 3000})
    ask(world, "commit", {"token": page.json["token"], "release": True})
    assert seqs(waiting.answer()) == [1]


def test_two_clients_get_disjoint_pages(world: World) -> None:
    """R-READER-2, R-READER-4: and the lowest page that is out bounds the position."""
    make(world)
    one, two = ask(world, "read", {"limit": 2}), ask(world, "read", {"limit": 2})
    assert (seqs(one), seqs(two)) == ([1, 2], [3, 4])
    assert ask(world, "commit", {"token": two.json["token"]}).json["committed"] == 0
    assert world.request("GET", f"{PATH}/r").json["pages"] == 1
    assert ask(world, "commit", {"token": one.json["token"]}).json["committed"] == 4


def test_a_page_whose_lease_has_ended_is_late_and_comes_again(world: World) -> None:
    """R-READER-5: also to a client that waits."""
    make(world, records=2)
    page = ask(world, "read", {"lease_ms": 1})
    assert seqs(page) == [1, 2]
    again = ask(world, "read", {"wait_ms": 4000, "lease_ms": 60_000})
    assert seqs(again) == [1, 2], "a lease is 100 ms at least"
    assert ask(world, "commit", {"token": page.json["token"]}).refusal[1] == "reader_fenced"
    assert ask(world, "commit", {"token": again.json["token"]}).json["committed"] == 2


def test_a_page_that_is_late_is_out_in_no_answer(world: World) -> None:
    """7.10, 7.11, 7.12, R-READER-5: whichever asks first."""
    make(world, records=3)
    for ask_state in (
        lambda: world.request("GET", PATH).json["readers"][0],
        lambda: world.request("PUT", f"{PATH}/r").json,
    ):
        ask(world, "read", {"lease_ms": 60_000, "limit": 1})
        ask(world, "read", {"lease_ms": 100, "limit": 1})
        assert ask_state()["pages"] == 2
        world.advance_ms(150)
        assert ask_state()["pages"] == 1
        ask(world, "seek", {"seq": 0})


def test_what_has_expired_counts_in_no_answer(world: World) -> None:
    """7.10, 7.11, 7.12, R-FLOOR-7, R-TTL-3: whichever asks first."""
    world.put("t", ttl_ms=200)
    make(world, records=0)
    for method, path in (("GET", PATH), ("GET", f"{PATH}/r"), ("PUT", f"{PATH}/r")):
        world.write("t", 1, 2)
        world.advance_ms(300)
        shown = world.request(method, path).json
        shown = shown["readers"][0] if "readers" in shown else shown
        assert (shown["lag_records"], shown["lag_ms"]) == (0, 0), f"{method} {path}"


def test_expiry_up_to_what_a_reader_holds_reports_no_deleted_record_as_lost(world: World) -> None:
    """R-TTL-2, R-TOMB-7, R-READER-8: the reader has committed the deleted record as well."""
    world.put("t", ttl_ms=200)
    world.write_records("t", [{"data": seq, "tag": "x" if seq == 3 else "y"} for seq in range(1, 6)])
    make(world, records=0, holds=True)
    world.delete("t", match="x")
    assert ask(world, "seek", {"seq": 3}).json["committed"] == 3
    world.advance_ms(300)
    page = world.diff("t", 1)
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (2, 2)
    page = world.diff("t", 2)
    assert (page["tombstone"], seqs_of(page)) == (None, [4, 5])


def test_a_read_waits_and_a_look_moves_nothing(world: World) -> None:
    """7.14: wait_ms and peek."""
    make(world, records=1)
    assert seqs(look := ask(world, "read", {"peek": True})) == [1]
    assert "token" not in look.json
    assert seqs(ask(world, "read")) == [1]
    waiting = world.connect().start("POST", f"{PATH}/r/read", {"wait_ms": 3000})
    world.write("t", 2)
    assert seqs(waiting.answer("POST")) == [2]
    empty = ask(world, "read", {"wait_ms": 1})
    assert (seqs(empty), "token" in empty.json, empty.json["caught_up"]) == ([], False, True)


def test_a_read_says_that_the_page_before_is_done(world: World) -> None:
    """R-READER-12, 7.14/2: the position is committed once so many records are done, or by a commit."""
    make(world, 9)
    token = None
    for seq in range(1, 5):
        page = ask(world, "read", {"limit": 1, "done": token, "commit_every": 3})
        assert seqs(page) == [seq]
        token = page.json["token"]
        state = world.request("GET", f"{PATH}/r").json
        assert (state["committed"], state["pages"]) == (3 if seq == 4 else 0, 1)
    assert ask(world, "commit", {"token": token}).json["committed"] == 4
    page = ask(world, "read", {"limit": 2})
    assert seqs(ask(world, "read", {"limit": 9, "done": page.json["token"], "commit_every": 99})) == [7, 8, 9]
    assert ask(world, "commit", {"token": None}).json["committed"] == 6
    late = ask(world, "read", {"done": "page_1"})
    assert (late.status, late.refusal[1]) == (409, "reader_fenced")
    assert ask(world, "read", {"done": 7}).refusal[:2] == (400, "invalid_request")
    assert ask(world, "commit", {}).refusal[:2] == (400, "invalid_request")


def test_a_page_that_is_done_above_one_that_is_out_may_be_committed_again(world: World) -> None:
    """R-READER-13: the answer was lost, and no position shows it."""
    make(world)
    below = ask(world, "read", {"limit": 2})
    above = ask(world, "read", {"limit": 2}).json["token"]
    for _ in range(2):
        assert ask(world, "commit", {"token": above}).json["committed"] == 0
        assert ask(world, "read", {"done": above, "peek": True}).status == 200
    assert ask(world, "commit", {"token": below.json["token"]}).json["committed"] == 4
    assert ask(world, "seek", {"seq": 4}).status == 200
    assert ask(world, "commit", {"token": above}).refusal[1] == "reader_fenced"


def test_a_seek_moves_the_reader(world: World) -> None:
    """7.16, R-READER-6: back and forth, up to the head."""
    make(world)
    page = ask(world, "read")
    assert ask(world, "seek", {"seq": 4}).json["committed"] == 4
    assert ask(world, "commit", {"token": page.json["token"]}).refusal[1] == "reader_fenced"
    assert seqs(ask(world, "read")) == [5, 6]
    assert ask(world, "seek", {"seq": 7}).refusal[:2] == (400, "invalid_request")
    assert ask(world, "seek", {}).refusal[:2] == (400, "invalid_request")


def test_a_gap_is_beside_the_records_and_its_commit_passes_it(world: World) -> None:
    """7.14, R-READER-6: as in a diff."""
    world.put("t", cap_records=2)
    make(world, records=5)
    page = ask(world, "read", {"limit": 1})
    assert (page.json["tombstone"]["gap_to"], seqs(page)) == (3, [4])
    assert ask(world, "commit", {"token": page.json["token"]}).json["committed"] == 4
    assert ask(world, "read").json["tombstone"] is None


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_a_reader_that_stops_at_a_gap_is_shown_it_until_a_seek_passes_it(world: World, delivery: str) -> None:
    """R-READER-11: a tombstone is no page of its own, and commits nothing."""
    world.put("t", cap_records=2)
    make(world, records=5, delivery=delivery)
    for _ in range(2):
        page = ask(world, "read", {"stop_at_gap": True})
        assert (page.json["tombstone"]["gap_to"], "token" in page.json) == (3, False)
    world.crash_and_start()
    shown = world.request("GET", f"{PATH}/r").json
    assert (shown["position"], shown["committed"], shown["pages"]) == (0, 0, 0)
    assert ask(world, "seek", {"seq": 3}).json["committed"] == 3
    assert seqs(ask(world, "read", {"stop_at_gap": True})) == [4, 5]
    assert ask(world, "read", {"stop_at_gap": "yes"}).refusal[:2] == (400, "invalid_request")


def test_at_most_once_there_is_no_token_and_no_page_comes_again(world: World) -> None:
    """R-READER-7: after a crash neither."""
    make(world, delivery="at-most-once")
    page = ask(world, "read", {"limit": 4})
    assert (seqs(page), "token" in page.json, "deadline" in page.json) == ([1, 2, 3, 4], False, False)
    world.crash_and_start()
    assert seqs(ask(world, "read")) == [5, 6]


def test_a_reader_holds_its_records_and_trims_them(world: World) -> None:
    """R-READER-8, R-READER-9: 422 when it lags by the whole cap."""
    world.put("t", cap_records=3)
    make(world, records=3, holds=True, trims=True)
    full = world.request("POST", "/v0/topics/t", {"records": [{"data": 4}]})
    assert (full.status, full.refusal[1]) == (422, "topic_full")
    page = ask(world, "read", {"limit": 2})
    ask(world, "commit", {"token": page.json["token"]})
    state = world.request("GET", "/v0/topics/t").json
    assert (state["earliest_seq"], state["count"]) == (3, 1)
    world.write("t", 4)


HOLD_BEGINS: dict[str, tuple[dict[str, Any], Callable[[World], object]]] = {
    "a new reader": ({"cap_records": 10}, lambda world: make(world, 0, "late", holds=True)),
    "of a topic with a cap of bytes": ({"cap_bytes": 10}, lambda world: make(world, 0, "late", holds=True)),
    "switched on": ({"cap_records": 10}, lambda world: world.request("PUT", f"{PATH}/r", {"holds": True})),
    "a seek back": ({"cap_records": 10}, lambda world: ask(world, "seek", {"seq": 0}, name="h")),
}


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("begun", HOLD_BEGINS)
def test_what_a_cap_took_before_a_reader_held_stays_lost(world: World, begun: str, durability: str) -> None:
    """R-READER-8, R-DUR-8: a replay evicts as it was done, though the hold is below now."""
    config, begins = HOLD_BEGINS[begun]
    world.put("t", durability=durability, **config)
    make(world, 0)
    make(world, 0, "h", holds=True)
    for _ in range(14):
        world.write("t", 1)
        page = ask(world, "read", name="h")
        assert ask(world, "commit", {"token": page.json["token"]}, name="h").json["committed"]
    before = world.diff("t", 0)
    assert (before["tombstone"]["gap_to"], seqs_of(before)) == (4, list(range(5, 15)))
    begins(world)
    world.crash_and_start()
    after = world.diff("t", 0)
    assert (after["tombstone"], seqs_of(after)) == (before["tombstone"], seqs_of(before))


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("ends", ["room", "router", "destination"])
def test_a_reader_trims_no_record_before_the_routers_have_forwarded_it(
    world: World, durability: str, ends: str
) -> None:
    """R-READER-9: a router without room keeps the records, until it finds room or is deleted."""
    world.put("t", durability=durability)
    world.put("b", durability=durability, cap_records=2, discard="reject")
    assert world.request("PUT", "/v0/routers/t-b", {"source": "t", "dest": "b"}).status == 201
    assert world.request("PUT", "/v0/routers/t-c", {"source": "t", "dest": "c"}).status == 201
    make(world, records=4, trims=True, delivery="at-most-once")
    assert seqs(ask(world, "read", {"limit": 3})) == [1, 2, 3]
    world.advance_ms(1000)
    assert world.request("GET", "/v0/topics/t").json["earliest_seq"] == 3
    if ends == "room":
        world.delete("b", before_seq=3)
    else:
        place = "/v0/routers/t-b" if ends == "router" else "/v0/topics/b"
        assert world.request("DELETE", place).status == 200
    world.advance_ms(1000)
    assert world.request("GET", "/v0/topics/t").json["earliest_seq"] == 4
    assert world.data("c") == [1, 2, 3, 4]
    if ends == "room":
        assert world.data("b", 2) == [3, 4]


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (("PUT", "a%20b", {}), (400, "invalid_request")),
        (("PUT", "x", {"delivery": "twice"}), (400, "invalid_request")),
        (("PUT", "x", {"from_seq": 7}), (400, "invalid_request")),
        (("PUT", "x", {"holds": 1}), (400, "invalid_request")),
        (("POST", "x/read", {}), (404, "reader_not_found")),
        (("POST", "r/commit", {}), (400, "invalid_request")),
        (("POST", "r/commit", {"token": "page_0"}), (400, "invalid_request")),
        (("POST", "r/commit", {"token": "lease_1"}), (400, "invalid_request")),
        (("POST", "r/commit", {"token": "page_1"}), (409, "reader_fenced")),
        (("POST", "r/seek", {"seq": -1}), (400, "invalid_request")),
    ],
)
def test_a_wrong_request_changes_nothing(
    world: World, asked: tuple[str, str, dict[str, Any]], refusal: tuple[int, str]
) -> None:
    """7.10/1, 7.10/3, 7.14/1, 7.15/1, 7.15/2, 7.15/3: each with its error."""
    make(world)
    before = world.request("GET", PATH).json["readers"]
    method, path, body = asked
    assert world.request(method, f"{PATH}/{path}", body).refusal[:2] == refusal
    after = world.request("GET", PATH).json["readers"]
    assert [row | {"lag_ms": 0} for row in after] == [row | {"lag_ms": 0} for row in before]


def test_an_absent_topic_has_no_readers(world: World) -> None:
    """7.10/2: 404 topic_not_found."""
    for method, path in (("PUT", "/r"), ("GET", "/r"), ("GET", ""), ("DELETE", "/r"), ("POST", "/r/read")):
        answer = world.request(method, f"/v0/topics/absent/readers{path}", {})
        assert answer.refusal == (404, "topic_not_found", {"topic": "absent"}), method


def test_limits_of_readers_and_of_their_pages(make_world: Any) -> None:
    """R-READER-1, 7.14/3: 429 with the limit."""
    world = make_world(max_readers=1, max_reader_pages=2)
    make(world)
    refused = world.request("PUT", f"{PATH}/other")
    assert refused.refusal == (429, "throttled", {"limit": "max_readers", "max": 1})
    for _ in range(2):
        ask(world, "read", {"limit": 1})
    assert ask(world, "read").refusal == (429, "throttled", {"limit": "max_reader_pages", "max": 2})


def test_the_lag_of_each_reader_is_a_metric(world: World) -> None:
    """12.3: records and ms, of topics that the key may name."""
    make(world)
    page = ask(world, "read", {"limit": 2})
    ask(world, "commit", {"token": page.json["token"]})
    text = world.request("GET", "/v0/metrics").body.decode()
    assert 'topics_reader_lag{reader="r",topic="t"} 4.0' in text
    assert 'topics_reader_lag_ms{reader="r",topic="t"}' in text


def test_a_new_reader_begins_by_from_and_both_are_refused(world: World) -> None:
    """R-FROM-8: each beginning; beside from_seq, or none that it knows, 400."""
    make(world)
    head = world.request("GET", "/v0/topics/t").json["head_seq"]
    for number, (begin, position) in enumerate(
        (("first", 0), ("now", head), ({"last": 1}, head - 1), ({"time": 0}, 0), ({"time": 1 << 60}, head))
    ):
        answer = world.request("PUT", f"{PATH}/b{number}", {"from": begin})
        assert (answer.status, answer.json["position"]) == (201, position)
    for body in ({"from": "first", "from_seq": 0}, {"from": "end"}, {"from": {"last": 10_001}}, {"from": 1}):
        assert world.request("PUT", f"{PATH}/wrong", body).status == 400
        assert world.request("GET", f"{PATH}/wrong").status == 404


@pytest.mark.parametrize("is_made_again", [False, True], ids=["without a reader", "with a reader of the same name"])
def test_a_reader_of_a_topic_that_was_created_again_is_not_found(world: World, is_made_again: bool) -> None:
    """R-INC-6: to requests that name the incarnation; what has come after is as it was."""
    world.write("t", 1, 2)
    made = world.request("PUT", f"{PATH}/r", {"incarnation": ""})
    known = made.json["incarnation"]
    assert known == world.request("GET", "/v0/topics/t?incarnation=true").json["incarnation"]
    assert "incarnation" not in world.request("PUT", f"{PATH}/r").json
    named = {"incarnation": known}
    page = ask(world, "read", named)
    assert seqs(page) == [1, 2]
    assert ask(world, "commit", {"token": page.json["token"]} | named).json["committed"] == 2
    assert ask(world, "seek", {"seq": 1} | named).json["committed"] == 1
    world.request("DELETE", "/v0/topics/t")
    world.write("t", 3)
    if is_made_again:
        assert world.request("PUT", f"{PATH}/r").status == 201
    detail = {"topic": "t", "reader": "r", "reason": "recreated"}
    for action, body in (("read", {}), ("commit", {"token": "page_1"}), ("seek", {"seq": 0})):
        assert ask(world, action, body | named).refusal == (404, "reader_not_found", detail), action
    assert world.request("GET", f"{PATH}/r?incarnation={known}").refusal == (404, "reader_not_found", detail)
    assert world.request("PUT", f"{PATH}/r", named).refusal == (404, "reader_not_found", detail)
    assert [row["position"] for row in world.request("GET", PATH).json["readers"]] == ([0] if is_made_again else [])
    assert ask(world, "read", {"incarnation": "9"}).refusal[:2] == (400, "invalid_request")
