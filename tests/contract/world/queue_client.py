"""The calls of a worker, in the words of the suite: each call fails unless the answer is 200."""

from __future__ import annotations

from typing import Any

from tests.contract.world.world import Connection, World


class Queue:
    """One queue of a world."""

    def __init__(self, world: World, name: str = "jobs", **config: Any) -> None:
        self.world = world
        self.name = name
        self.path = f"/v0/topics/{name}"
        world.put(name, type="queue", **config)

    def put(self, *data: Any) -> None:
        """Produces jobs."""
        self.world.write(self.name, *data)

    def _post(self, verb: str, body: dict[str, Any]) -> Any:
        answer = self.world.request("POST", f"{self.path}/{verb}", body)
        assert answer.status == 200, f"{verb}: {answer.status} {answer.text[:300]}"
        return answer.json

    def claim(self, most: int = 1, node: str = "w", **fields: Any) -> Any:
        return self._post("claim", {"node": node, "max": most, **fields})

    def ask_claim(self, most: int = 1, node: str = "w", **fields: Any) -> Connection:
        """A claim whose answer is fetched later."""
        return self.world.ask("POST", f"{self.path}/claim", {"node": node, "max": most, **fields})

    def ack(self, *seqs: int, node: str = "w", **fields: Any) -> Any:
        return self._post("ack", {"node": node, "seqs": list(seqs), **fields})

    def nack(self, *seqs: int, node: str = "w", **fields: Any) -> Any:
        return self._post("nack", {"node": node, "seqs": list(seqs), **fields})

    def extend(self, *seqs: int, lease_ms: int, node: str = "w", **fields: Any) -> Any:
        return self._post("extend", {"node": node, "seqs": list(seqs), "lease_ms": lease_ms, **fields})

    def refuse(self, verb: str, body: Any) -> tuple[int, str, dict[str, Any] | None]:
        """Status, code and detail of a request that fails."""
        return self.world.request("POST", f"{self.path}/{verb}", body).refusal

    @property
    def counters(self) -> tuple[int, int, int]:
        """count, ready, in_flight."""
        state = self.world.state(self.name)
        return state["count"], state["queue"]["ready"], state["queue"]["in_flight"]

    @property
    def dead_lettered(self) -> int:
        return int(self.world.state(self.name)["queue"]["dead_lettered"])


def seqs_of(claimed: Any) -> list[int]:
    return [job["$seq"] for job in claimed["claimed"]]


def deliveries_of(claimed: Any) -> dict[int, int]:
    return {job["$seq"]: job["deliveries"] for job in claimed["claimed"]}


def lease_of(claimed: Any, seq: int) -> str:
    return next(str(job["lease_id"]) for job in claimed["claimed"] if job["$seq"] == seq)
