"""Many clients at once: backlog, duplicates after a failure, topics that come and go under their writers."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from tests.amount import seeds
from tests.contract.conftest import MakeWorld, is_live
from tests.contract.world.sim_world import SimWorld
from tests.contract.world.world import World


def test_a_saturated_log_asks_to_come_back_in_a_second(make_world: MakeWorld) -> None:
    """3.2: on every path that changes something; what was taken is kept, and afterwards there is room again."""
    world = make_world(max_backlog_bytes=4096)
    world.put("t", durability="fsync")
    record = {"records": [{"data": "x" * 1500}]}
    asked: list[Any] = [world.ask("POST", "/v0/topics/t", record) for _ in range(12)]
    asked += [world.ask("PUT", f"/v0/topics/new{number}", {}) for number in range(3)]
    answers = [each.answer() for each in asked]
    refused = [answer for answer in answers if answer.status == 429]
    for answer in refused:
        status, code, detail = answer.refusal
        assert (status, code) == (429, "throttled")
        assert detail is None or set(detail) == {"retry_after_ms"}
        assert answer.header("retry-after") == "1"
    taken = [answer.json for answer in answers[:12] if answer.status == 200]
    assert len(taken) + sum(answer.status == 429 for answer in answers[:12]) == 12
    assert taken
    assert world.state("t")["count"] == len(taken)
    world.write("t", 1)


def test_duplicates_behind_a_failed_write_are_all_answered(world: World) -> None:
    """R-IDEM-5, R-IDEM-6: the next one executes; in the end at most one has appended."""
    world.put("t", durability="fsync")
    world.fail_storage("write", errno.ENOSPC)
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    answers = [each.answer() for each in [world.ask("POST", "/v0/topics/t", body) for _ in range(6)]]
    assert {answer.status for answer in answers} <= {200, 500}
    world.heal_storage()
    world.advance_ms(5000)
    assert world.request("POST", "/v0/topics/t", body).status == 200
    assert world.data("t") == [1]
    assert sum(answer.status == 200 and not answer.json["deduped"] for answer in answers) <= 1


def test_an_empty_name_before_a_known_path_is_absent(world: World) -> None:
    """2.1: as an unknown path or as a topic without a name."""
    for path in ("/v0/topics//diff", "/v0/topics//delete"):
        answer = world.request("POST", path, {"before_seq": 1})
        assert answer.refusal in ((404, "not_found", None), (404, "topic_not_found", {"topic": ""}))


@pytest.mark.parametrize("seed", seeds(8))
def test_topics_come_and_go_under_their_writers(request: pytest.FixtureRequest, seed: int) -> None:
    """R-REC-1, R-SEQ-2, R-DUR-1, R-DUR-13: every request is answered, instances do not mix, a crash changes nothing."""
    if is_live(request.config):
        pytest.skip("a simulated machine")
    rng = random.Random(seed)
    world = SimWorld(seed + 1, shuffle=True, split=True, checkpoint_every_ms=20, hot_tail_bytes=4096)
    world.start()
    generation = 0
    for _ in range(6):
        pending = []
        for _ in range(rng.randint(5, 25)):
            choice = rng.random()
            topic = rng.choice("ab")
            generation += 1
            if choice < 0.5:
                count = rng.randint(1, 3)
                body: dict[str, Any] = {"records": [{"data": [generation, n, count]} for n in range(count)]}
                body["config"] = {"durability": rng.choice(["fsync", "disk"])}
                pending.append(world.ask("POST", f"/v0/topics/{topic}", body))
            elif choice < 0.65:
                pending.append(world.ask("DELETE", f"/v0/topics/{topic}"))
            elif choice < 0.8:
                pending.append(world.ask("PUT", f"/v0/topics/{topic}", {"cap_records": rng.randint(5, 50)}))
            elif choice < 0.9:
                pending.append(world.ask("POST", f"/v0/topics/{topic}/diff", {"wait_ms": rng.choice([0, 5])}))
            else:
                pending.append(world.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": rng.randint(1, 9)}))
            if rng.random() < 0.3:
                world.advance_us(rng.randint(0, 300))
        statuses = {each.answer().status for each in pending}
        assert statuses <= {200, 201, 404}, statuses
        before = snapshot(world)
        world.crash_and_start() if rng.random() < 0.7 else world.restart()
        assert snapshot(world) == before, f"seed {seed}"
    world.close()


def snapshot(world: World) -> dict[str, Any]:
    """Topic to its records, head and floors; checks that no write is there in part at the end or in the middle."""
    found = {}
    for row in world.request("GET", "/v0/topics").json["topics"]:
        page = world.diff(row["topic"], 0, limit=1000)
        records = [(record["$seq"], record["data"]) for record in page["records"]]
        by_seq = dict(records)
        for seq, (write, part, count) in records:
            for other in range(part + 1, count):
                assert by_seq[seq - part + other] == [write, other, count], (
                    "the later records of a write outlive the first"
                )
        row.pop("effective_priority")
        found[row["topic"]] = (row, records, page["tombstone"])
    return found
