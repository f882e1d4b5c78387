"""Requests that span the cores of a server: two whole servers, engines and logs included, that answer as one.

A list is whole or refused, also if a core is killed at any step; routers and readiness are those of both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.amount import seeds, stride
from tests.http.byte_stream import Response, Wire
from tests.server.service.two_cores import TwoCores, is_whole, request, write
from tests.sim import SimClient
from topics.http.spanning import spanning_checkpoint
from topics.server.cores.neighbours import Neighbours
from topics.server.gate import ServerState

# The coroutines of a process that was killed never end, and say so when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Staying(Neighbours):
    """Gives no connection away, so that a test knows which core answers."""

    def give(self, *_values: Any) -> bool:
        return False


class Spanning(TwoCores):
    """Two cores, and a connection to each. `ask_of(core, ...)` asks over it."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, Staying, **settings)
        self.lines: list[str] = []
        self.tcp = [self.connect(core) for core in range(len(self.rings))]

    def ask_of(self, core: int, method: str, path: str, body: object = None) -> Response:
        return self.ask(self.tcp[core], request(method, path, {} if body is None else body, *self.lines))

    def put(self, *names: str) -> list[str]:
        for name in names:
            answer = self.ask_of(self.slots.core_of(name), "PUT", f"/v0/topics/{name}")
            assert answer.status == 201, answer
        return sorted(names)

    def walk(self, core: int, path: str, what: str) -> list[dict[str, Any]]:
        """The items of all pages of a list."""
        items: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.ask_of(core, "GET", f"{path}{'&' if '?' in path else '?'}cursor={cursor}").json
            items += page[what]
            if "next_cursor" not in page:
                return items
            cursor = page["next_cursor"]

    def lose(self, core: int) -> None:
        """Kill a core, which is not started again."""
        self.rings[core] = self.rings[core].next_life(power_cut=False)
        self.servers[core] = self.servers[1 - core]


def detail_of(answer: Response) -> tuple[int, str, dict[str, Any]]:
    error = answer.json["error"]
    return answer.status, error["code"], error.get("detail", {})


@pytest.fixture
def world() -> Spanning:
    return Spanning(1)


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize("page_size", [1, 7, 20, 100])
def test_a_list_has_the_topics_of_all_cores_in_their_order(world: Spanning, core: int, page_size: int) -> None:
    """R-CORE-1: page by page, with names as cursors."""
    names = world.put(*(f"t{number:02}" for number in range(20)), "other")
    assert len({world.slots.core_of(name) for name in names}) == 2
    found = [row["topic"] for row in world.walk(core, f"/v0/topics?page_size={page_size}", "topics")]
    assert found == names
    found = [row["topic"] for row in world.walk(core, f"/v0/topics?page_size={page_size}&prefix=t", "topics")]
    assert found == names[1:]


def test_a_list_of_two_cores_has_the_pages_and_cursors_of_one(world: Spanning) -> None:
    """3.4: a page is full while topics follow, and its cursor is its last name, which any core takes."""
    world.put(*(f"t{number:02}" for number in range(12)))
    first = world.ask_of(0, "GET", "/v0/topics?page_size=5").json
    assert [row["topic"] for row in first["topics"]] == [f"t{number:02}" for number in range(5)]
    second = world.ask_of(1, "GET", f"/v0/topics?page_size=5&cursor={first['next_cursor']}").json
    assert [row["topic"] for row in second["topics"]] == [f"t{number:02}" for number in range(5, 10)]
    last = world.ask_of(0, "GET", "/v0/topics?page_size=2&cursor=" + second["next_cursor"]).json
    assert len(last["topics"]) == 2
    assert "next_cursor" not in last
    assert world.ask_of(0, "GET", "/v0/topics?cursor=!").code == "invalid_request"
    assert world.relayed == [2, 1], "what is invalid is refused where it comes"


def test_a_list_shows_each_key_its_own_names() -> None:
    world = Spanning(2, api_keys="all-all-all-all-all-all,mine-mine-mine-mine:read:mine-")
    world.lines = ["Authorization: Bearer all-all-all-all-all-all"]
    names = [world.topic_of(core, f"{prefix}-") for core in range(2) for prefix in ("mine", "theirs")]
    world.put(*names)
    world.lines = ["Authorization: Bearer mine-mine-mine-mine"]
    found = [row["topic"] for row in world.walk(0, "/v0/topics", "topics")]
    assert found == sorted(name for name in names if name.startswith("mine-"))
    world.lines = []
    assert world.ask_of(0, "GET", "/v0/topics").code == "unauthorized"


def test_a_lease_id_that_two_cores_have_given_out_ends_the_lease_of_its_topic_only(world: Spanning) -> None:
    """R-CORE-17: each core counts its own, and a fence is of the topic that the request names."""
    here, there = (world.topic_of(core, "q") for core in range(2))
    claimed: list[dict[str, Any]] = []
    for core, name in enumerate((here, there)):
        assert world.ask_of(core, "PUT", f"/v0/topics/{name}", {"type": "queue"}).status == 201
        assert world.ask(world.tcp[core], write(name, 7)).status == 200
        claimed += world.ask_of(core, "POST", f"/v0/topics/{name}/claim", {"node": "w"}).json["claimed"]
    fence = {"node": "w", "seqs": [1], "lease_ids": [claimed[0]["lease_id"]]}
    assert claimed[0]["lease_id"] == claimed[1]["lease_id"], "ids of cores differ: R-CORE-17 can go"
    assert world.ask_of(1, "POST", f"/v0/topics/{here}/ack", fence).json["acked"] == 1
    extended = world.ask_of(0, "POST", f"/v0/topics/{there}/extend", {**fence, "lease_ms": 60_000}).json
    assert extended["extended"] == 1


def test_what_is_shown_is_consumed_and_nothing_else(world: Spanning) -> None:
    """7.3: with `touch`, also where the page has fewer topics than those of both cores."""
    names = world.put(*(f"t{number:02}" for number in range(12)))

    topics: dict[str, Any] = {}
    for name in names:
        engine: Any = world.servers[world.slots.core_of(name)].engine
        topics[name] = engine._core.registry.named(name)
        topics[name].consumed_ms = 1

    def consumed() -> list[str]:
        return [name for name, topic in topics.items() if topic.consumed_ms > 1]

    world.ask_of(0, "GET", "/v0/topics")
    assert consumed() == []
    page = world.ask_of(0, "GET", "/v0/topics?touch=true&page_size=5").json
    assert [row["topic"] for row in page["topics"]] == names[:5] == consumed()
    rest = world.ask_of(1, "GET", f"/v0/topics?touch=true&cursor={page['next_cursor']}").json
    assert [row["topic"] for row in rest["topics"]] == names[5:]
    assert consumed() == names


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/routers"])
def test_a_list_is_refused_while_a_core_is_not_there_or_recovers(world: Spanning, path: str) -> None:
    """R-CORE-1: nothing partial."""
    world.put(*(f"t{number:02}" for number in range(4)))
    gate = world.servers[1].gate
    world.servers[1].service.gate, gate.state = gate.admit, ServerState.RECOVERING
    assert detail_of(world.ask_of(0, "GET", path)) == (503, "not_ready", {"core": 1})
    world.servers[1].service.gate, gate.state = None, ServerState.SERVING
    assert world.ask_of(0, "GET", path).status == 200
    world.lose(1)
    assert detail_of(world.ask_of(0, "GET", path)) == (503, "not_ready", {"core": 1})


class Lister:
    """A client that lists again and again, and knows which topics there have to be."""

    def __init__(self, world: Spanning, names: list[str]) -> None:
        self.world = world
        self.names = names
        self.whole = 0
        self.refused = 0
        self._tcp: SimClient | None = None
        self._wire = Wire()

    def act(self) -> None:
        if self._tcp is None:
            self._tcp = self.world.rings[0].network.client(self.world.port)
            self._wire.sent = b""
            self._tcp.send(request("GET", "/v0/topics", {}))
        self._wire.sent += self._tcp.receive()
        if is_whole(self._wire.sent):
            (answer,) = self._wire.take()
            if answer.status == 200:
                assert [row["topic"] for row in answer.json["topics"]] == self.names, "a list that is not whole"
                self.whole += 1
            else:
                status, code, detail = detail_of(answer)
                assert (status, code) == (503, "not_ready")
                assert set(detail) & {"core", "replay_progress"}
                self.refused += 1
            self._tcp.send(request("GET", "/v0/topics", {}))
        elif self._tcp.ended:
            self._tcp = None


@pytest.mark.parametrize("dies", [0, 1])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_list_is_whole_or_refused_if_a_core_is_killed_at_any_step(seed: int, dies: int) -> None:
    """R-CORE-1."""
    for effects in range(1, 1000, stride(3)):
        world = Spanning(seed)
        names = world.put(*(f"t{number}" for number in range(6)))
        listers = [Lister(world, names) for _ in range(3)]
        ring = world.rings[dies]
        for core, tcp in enumerate(world.tcp):  # relayed writes beside the lists
            tcp.send(write(next(name for name in names if world.slots.core_of(name) != core), effects))
        ring.stop_at(ring.effects + effects)

        def listed(least: int, listers: list[Lister] = listers) -> bool:
            for each in listers:
                each.act()
            return all(each.whole + each.refused >= least for each in listers)

        world.run(partial(listed, 4), dies)
        world.rings[dies].stop_at(0)
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


def ends(world: Spanning, core: int, name: str = "r") -> tuple[str, str]:
    """Two topics of one core."""
    return world.topic_of(core, f"{name}-source"), world.topic_of(core, f"{name}-dest")


def put_router(world: Spanning, asked: int, name: str, source: str, dest: str) -> Response:
    return world.ask_of(asked, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("owner", [0, 1])
def test_a_router_is_on_the_core_of_its_topics_and_known_to_all(world: Spanning, asked: int, owner: int) -> None:
    """R-CORE-4, 9.2, 9.3, 9.4, 9.5."""
    source, dest = ends(world, owner)
    assert put_router(world, asked, "r", source, dest).status == 201
    assert put_router(world, 1 - asked, "r", source, dest).json["created"] is False
    assert [server.topic_count() for server in world.servers] == [2 * (owner == core) for core in range(2)]
    assert world.ask_of(owner, "POST", f"/v0/topics/{source}", {"records": [{"data": 1}]}).status in {200, 201}
    for core in range(2):
        assert world.ask_of(core, "GET", "/v0/routers/r").json["forwarded_total"] == 1
        assert [row["router"] for row in world.walk(core, "/v0/routers", "routers")] == ["r"]
        assert world.walk(core, "/v0/routers?source=none", "routers") == []
    assert world.ask_of(1 - asked, "DELETE", "/v0/routers/r").json["deleted"] is True
    assert world.ask_of(asked, "DELETE", "/v0/routers/r").json["deleted"] is False
    assert detail_of(world.ask_of(asked, "GET", "/v0/routers/r")) == (404, "router_not_found", {"router": "r"})


@pytest.mark.parametrize("asked", [0, 1])
def test_a_router_between_cores_is_one_of_all(world: Spanning, asked: int) -> None:
    """R-CORE-11, R-CORE-13, 9.2 to 9.5."""
    source, dest = world.topic_of(0, "t"), world.topic_of(1, "t")
    assert put_router(world, asked, "r", source, dest).status == 201
    assert put_router(world, 1 - asked, "r", source, dest).json["created"] is False
    assert put_router(world, asked, "r", dest, source).json["error"]["detail"]["existing_source"] == source
    assert [server.topic_count() for server in world.servers] == [1, 1]
    assert world.ask_of(asked, "POST", f"/v0/topics/{source}", {"records": [{"data": 1}]}).status == 200
    found = world.ask_of(1 - asked, "POST", f"/v0/topics/{dest}/diff").json["records"]
    assert [record["data"] for record in found] == [1]
    assert samples(world.ask_of(asked, "GET", "/v0/metrics"))["topics_core_copies_total"] == 1
    for core in range(2):
        assert world.ask_of(core, "GET", "/v0/routers/r").json["forwarded_total"] == 1
        assert [row["router"] for row in world.walk(core, "/v0/routers", "routers")] == ["r"]
    assert world.ask_of(asked, "DELETE", "/v0/routers/r").json["deleted"] is True
    assert world.walk(asked, "/v0/routers", "routers") == []


def test_a_topic_in_memory_is_no_end_of_a_router_between_cores(world: Spanning) -> None:
    """R-CORE-11."""
    source, dest = world.topic_of(0, "t"), world.topic_of(1, "t")
    for weak in (source, dest):
        assert world.ask_of(0, "PUT", f"/v0/topics/{weak}", {"durability": "memory"}).status in {200, 201}
        answer = put_router(world, 0, "r", source, dest)
        assert detail_of(answer) == (400, "invalid_request", {})
        assert "serve with one core" in answer.json["error"]["message"]
        assert world.ask_of(0, "PUT", f"/v0/topics/{weak}", {"durability": "disk"}).status == 200
    assert put_router(world, 0, "r", source, dest).status == 201
    for weak in (source, dest):
        answer = world.ask_of(0, "PATCH", f"/v0/topics/{weak}", {"durability": "ephemeral"})
        assert detail_of(answer) == (400, "invalid_request", {})
    assert world.ask_of(0, "DELETE", "/v0/routers/r").status == 200
    assert world.ask_of(0, "PATCH", f"/v0/topics/{dest}", {"durability": "memory"}).status == 200


def test_a_topic_that_leaves_memory_is_no_end_of_a_router_between_cores_yet(world: Spanning) -> None:
    """R-CORE-11: a crash may come before its other class is on stable storage."""
    source, dest = world.topic_of(0, "t"), world.topic_of(1, "t")
    assert world.ask_of(0, "PUT", f"/v0/topics/{source}", {"durability": "memory"}).status == 201
    assert world.ask_of(1, "PUT", f"/v0/topics/{dest}").status == 201
    world.rings[0].slow_ns["sync"] = 40_000_000
    changing = world.connect(0)
    changing.send(request("PATCH", f"/v0/topics/{source}", {"durability": "disk"}))
    topic: Any = world.servers[0].engine._core.registry.by_name[source]  # type: ignore[union-attr]
    world.run(lambda: topic.next_config.durability == "disk")
    assert topic.config.durability == "memory"
    assert detail_of(put_router(world, 0, "r", source, dest)) == (400, "invalid_request", {})
    world.run(lambda: topic.config.durability == "disk")
    assert put_router(world, 0, "r", source, dest).status == 201


def test_a_name_of_a_router_is_one_over_all_cores(world: Spanning) -> None:
    """R-CORE-4, R-RTR-8."""
    first, second = ends(world, 0), ends(world, 1)
    assert put_router(world, 0, "r", *first).status == 201
    expected = {"router": "r", "reason": "router_repoint_forbidden", "existing_source": first[0]}
    answer = put_router(world, 1, "r", *second)
    assert detail_of(answer) == (409, "topic_exists_incompatible", expected | {"existing_dest": first[1]})
    assert world.servers[1].topic_count() == 0
    assert put_router(world, 1, "s", *second).status == 201
    assert [row["router"] for row in world.walk(1, "/v0/routers?page_size=1", "routers")] == ["r", "s"]


class Naming:
    """Clients that make a router of the same name at once, each with topics of another core."""

    def __init__(self, world: Spanning) -> None:
        self.world = world
        cores = range(len(world.rings))
        self.ends = [ends(world, core) for core in cores]
        self.statuses = [0 for _ in cores]
        """The status of each answer; -1: none came."""
        self._wires = [Wire() for _ in cores]
        for core, (source, dest) in enumerate(self.ends):
            world.tcp[-core].send(request("PUT", "/v0/routers/r", {"source": source, "dest": dest}))

    def act(self) -> bool:
        """Do what is possible now. Return whether each client has its answer, or none."""
        for core, wire in enumerate(self._wires):
            tcp = self.world.tcp[-core]
            wire.sent += tcp.receive()
            if not self.statuses[core] and is_whole(wire.sent):
                self.statuses[core] = wire.take()[0].status
            elif not self.statuses[core] and tcp.ended:
                self.statuses[core] = -1
        return all(self.statuses)

    @property
    def made(self) -> list[str]:
        """The sources of routers of this name, over all cores."""
        engines: list[Any] = [server.engine for server in self.world.servers]
        return [router.source.name for engine in engines for router in engine._core.routers.by_name.values()]


@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("seed", seeds(12))
def test_of_routers_of_one_name_made_at_once_one_is_made(seed: int, cores: int) -> None:
    """R-CORE-4: whichever cores their topics are on."""
    world = Spanning(seed, cores=cores)
    clients = Naming(world)
    world.run(clients.act)
    assert sorted(clients.statuses) == [201] + [409] * (cores - 1)
    made = clients.statuses.index(201)
    assert clients.made == [clients.ends[made][0]]
    assert put_router(world, 0, "r", *clients.ends[made]).status == 200, "the next one has its turn"


@pytest.mark.parametrize("cores", [2, 3])
def test_a_core_may_be_killed_while_routers_of_one_name_are_made(cores: int) -> None:
    """R-CORE-4: one at most is made, and one that was acknowledged."""
    for effects in range(1, 500, stride(2)):
        dies = effects % cores
        world = Spanning(effects, cores=cores)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        clients = Naming(world)
        world.run(clients.act, dies)
        world.rings[dies].stop_at(0)
        world.run(partial(getattr, world, "is_ready"))
        made, statuses = clients.made, clients.statuses
        assert set(statuses) <= {-1, 201, 409, 503}
        assert len(made) <= 1
        assert statuses.count(201) <= 1
        assert 201 not in statuses or made == [clients.ends[statuses.index(201)][0]]
        if not world.killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


def test_routers_are_refused_while_a_core_is_not_there(world: Spanning) -> None:
    """R-CORE-1, R-CORE-4: except for what the cores that are there can answer."""
    assert put_router(world, 0, "r", *ends(world, 0)).status == 201
    world.lose(1)
    name = world.topic_of(0, "s")  # its turns are on core 0
    assert detail_of(put_router(world, 0, name, *ends(world, 0, "s"))) == (503, "not_ready", {"core": 1})
    assert world.ask_of(0, "GET", "/v0/routers/r").status == 200
    assert detail_of(world.ask_of(0, "GET", "/v0/routers/s")) == (503, "not_ready", {"core": 1})
    assert world.ask_of(0, "DELETE", "/v0/routers/r").json["deleted"] is True
    assert detail_of(world.ask_of(0, "DELETE", "/v0/routers/r")) == (503, "not_ready", {"core": 1})


@pytest.mark.parametrize("asked", [0, 1])
def test_a_queue_has_its_dead_letters_on_another_core(world: Spanning, asked: int) -> None:
    """R-CORE-15: whatever sets it."""
    ask = partial(world.ask_of, asked)
    for number, how in enumerate(("PUT", "PATCH", "POST")):
        queue, dead = world.topic_of(1, f"q{number}"), world.topic_of(0, f"dead{number}")
        path = f"/v0/topics/{queue}"
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": dead}
        if how == "PATCH":
            assert ask("PUT", path, {"type": "queue"}).status == 201
        body = config if how != "POST" else {"records": [{"data": 0}], "config": config}
        if how == "PATCH":
            del body["type"]
        assert ask(how, path, body).status in {200, 201}
        assert ask("GET", path).json["config"]["dead_letter"] == dead
        assert ask("POST", path, {"records": [{"data": 1}, {"data": 2}]}).status == 200
        claimed = ask("POST", f"{path}/claim", {"node": "w", "max": 9}).json["claimed"]
        seqs = [job["$seq"] for job in claimed]
        assert ask("POST", f"{path}/nack", {"node": "w", "seqs": seqs}).status == 200
        assert ask("POST", f"{path}/claim", {"node": "w", "max": 9}).json["claimed"] == []
        page = ask("GET", f"{path}/dead").json
        assert page["dead_letter"] == dead
        assert [int(each["meta"]["$dead_letter_src_seq"]) for each in page["dead"]] == seqs
        assert ask("GET", path).json["count"] == 0
        answer = ask("POST", f"{path}/redrive", {"seqs": [2, 99]}).json
        assert (answer["redriven"], answer["skipped"]) == (1, [99])
        answer = ask("POST", f"{path}/redrive", {"all": True}).json
        assert (answer["redriven"], answer["head_seq"]) == (len(seqs) - 1, len(seqs))
        assert ask("GET", path).json["count"] == len(seqs)
        assert ask("GET", f"{path}/dead").json["dead"] == []


def test_dead_letters_are_not_ready_without_their_core(world: Spanning) -> None:
    """R-CORE-15: their queue is served."""
    queue, dead = world.topic_of(1, "q"), world.topic_of(0, "dead")
    path, apart = f"/v0/topics/{queue}", (503, "not_ready", {"core": 0})
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": dead}
    body = {"records": [{"data": 1}, {"data": 2}], "config": config}
    assert world.ask_of(1, "POST", path, body).status == 201
    world.ask_of(1, "POST", f"{path}/claim", {"node": "w", "max": 1})
    world.ask_of(1, "POST", f"{path}/nack", {"node": "w", "seqs": [1]})
    world.lose(0)
    assert [job["$seq"] for job in world.ask_of(1, "POST", f"{path}/claim", {"node": "w"}).json["claimed"]] == [2]
    assert world.ask_of(1, "GET", path).json["count"] == 2
    assert detail_of(world.ask_of(1, "GET", f"{path}/dead")) == apart
    assert detail_of(world.ask_of(1, "POST", f"{path}/redrive", {"all": True})) == apart


def test_the_server_is_ready_when_all_cores_are(world: Spanning) -> None:
    """R-CORE-2: and names the first that is not."""
    world.put(*(f"t{number}" for number in range(5)))
    expected = {"status": "ready", "wal_replay_complete": True, "topics": 5}
    for core in range(2):
        assert world.ask_of(core, "GET", "/readyz").json == expected
    gate = world.servers[1].gate
    gate.state, gate.progress = ServerState.RECOVERING, 0.25
    for core in range(2):
        answer = world.ask_of(core, "GET", "/v0/ready")
        assert detail_of(answer) == (503, "not_ready", {"core": 1, "replay_progress": 0.25})
        assert answer.json["error"]["message"].startswith("core 1: ")
    gate.state = ServerState.DRAINING
    assert detail_of(world.ask_of(0, "GET", "/readyz")) == (503, "shutting_down", {"core": 1})
    world.lose(1)
    assert detail_of(world.ask_of(0, "GET", "/readyz")) == (503, "not_ready", {"core": 1})
    assert world.ask_of(0, "GET", "/healthz").json["status"] == "ok"


class Waiter:
    """A wait for topics over a connection of its own."""

    def __init__(self, world: Spanning, core: int, body: object) -> None:
        self.world = world
        self.tcp = world.connect(core)
        self._wire = Wire()
        self.tcp.send(request("POST", "/v0/wait", body))

    def has_come(self) -> bool:
        self._wire.sent += self.tcp.receive()
        return is_whole(self._wire.sent)

    def answer(self) -> Response:
        self.world.run(self.has_come)
        (answer,) = self._wire.take()
        return answer


def waiting(world: Spanning) -> list[int]:
    """How many waits each engine holds."""
    return [server.service.in_flight.requests for server in world.servers]


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize("news", [0, 1])
def test_a_wait_ends_with_news_on_any_core(world: Spanning, core: int, news: int) -> None:
    """R-CORE-5, R-WAIT-1: and answers all names in their order."""
    names = [world.topic_of(each, f"t{number}") for number, each in enumerate((1, 0, 1, 0))]
    world.put(*names)
    waiter = Waiter(world, core, {"topics": dict.fromkeys(names, 0), "wait_ms": 30_000})
    world.run(lambda: waiting(world) == [1, 1])
    written = names[1 - news]
    assert world.ask_of(news, "POST", f"/v0/topics/{written}", {"records": [{"data": 1}]}).status == 200
    topics = waiter.answer().json["topics"]
    assert list(topics) == names
    assert [head["head_seq"] for head in topics.values()] == [int(name == written) for name in names]
    world.run(lambda: waiting(world) == [0, 0])


def test_a_wait_ends_in_time_and_with_its_client(world: Spanning) -> None:
    """R-CORE-5, R-WAIT-4."""
    names = [world.topic_of(core, "t") for core in range(2)]
    body = {"topics": dict.fromkeys(names), "wait_ms": 20}
    assert Waiter(world, 0, body).answer().json["topics"] == dict.fromkeys(names)
    assert Waiter(world, 0, body | {"wait_ms": 0}).answer().json["topics"] == dict.fromkeys(names)
    waiter = Waiter(world, 0, body | {"wait_ms": 30_000})
    world.run(lambda: waiting(world) == [1, 1])
    waiter.tcp.close()
    world.run(lambda: waiting(world) == [0, 0])


def test_a_wait_for_prefixes_has_the_topics_of_all_cores_up_to_the_limit() -> None:
    """R-CORE-5, R-WAIT-7."""
    world = Spanning(3, max_wait_topics=5)
    names = world.put(*(f"t{number}" for number in range(8)))
    for named in ([], names[:1], names[5:7], names[2:7]):
        body = {"topics": dict.fromkeys(named), "prefixes": ["t"], "wait_ms": 0}
        answer = Waiter(world, 0, body).answer().json
        others = [name for name in names if name not in named]
        assert list(answer["topics"]) == [*named, *others[: 5 - len(named)]]
        assert answer["left_out"] == others[5 - len(named)]
    body = {"topics": dict.fromkeys(names[:3]), "prefixes": ["t0"], "wait_ms": 0}
    assert Waiter(world, 1, body).answer().json["left_out"] is None


def test_a_wait_for_as_many_names_as_there_may_be_has_no_news_of_prefixes() -> None:
    """R-CORE-5, R-WAIT-7: also where a core has names left."""
    world = Spanning(4, max_wait_topics=2)
    names = [world.topic_of(core, "t") for core in range(2)]
    world.put(*names, "u0", "u1", "u2", "u3")
    waiter = Waiter(world, 0, {"topics": dict.fromkeys(names, 0), "prefixes": ["u"], "wait_ms": 30_000})
    world.run(lambda: waiting(world) == [1, 1])
    assert world.ask_of(1, "POST", f"/v0/topics/{names[1]}", {"records": [{"data": 1}]}).status == 200
    answer = waiter.answer().json
    assert list(answer["topics"]) == names
    assert answer["left_out"] == "u0"


def test_a_wait_is_refused_while_a_core_is_not_there(world: Spanning) -> None:
    """R-CORE-5: unless it has none of its topics."""
    names = [world.topic_of(core, "t") for core in range(2)]
    world.lose(1)
    body = {"topics": dict.fromkeys(names), "wait_ms": 10}
    assert detail_of(Waiter(world, 0, body).answer()) == (503, "not_ready", {"core": 1})
    body = {"topics": {names[0]: None}, "wait_ms": 10}
    assert Waiter(world, 0, body).answer().json["topics"] == {names[0]: None}


def samples(answer: Response) -> dict[str, float]:
    assert answer.status == 200, answer
    lines = [line.rpartition(" ") for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
    assert len({name for name, _, _ in lines}) == len(lines), "a sample is there twice"
    return {name: float(value) for name, _, value in lines}


def test_metrics_are_those_of_both_cores_and_some_by_core(world: Spanning) -> None:
    """R-CORE-3, R-MET-1: each answer counts once, also one that spans cores."""
    names = world.put(*(f"t{number}" for number in range(6)))
    for name in names:
        path = f"/v0/topics/{name}"
        assert world.ask_of(0, "POST", path, {"records": [{"data": 1}, {"data": 2}]}).status == 200
    world.ask_of(1, "GET", "/v0/topics")
    on = [sum(world.slots.core_of(name) == core for name in names) for core in range(2)]
    found = [samples(world.ask_of(core, "GET", "/v0/metrics")) for core in range(2)]
    assert [page["topics_http_requests_total"] for page in found] == [14, 15], "each where its client is, and once"
    for page in found:
        assert page["topics_topics"] == 6
        assert page["topics_records_appended_total"] == 12
        assert page["topics_ready"] == 1
        assert [page[f'topics_core_topics{{core="{core}"}}'] for core in range(2)] == on
        assert [page[f'topics_core_records_appended_total{{core="{core}"}}'] for core in range(2)] == [
            2 * count for count in on
        ]
        assert {name for name in page if name.startswith("topics_topic_head_seq")} == {
            f'topics_topic_head_seq{{topic="{name}"}}' for name in names
        }
        responses = "topics_http_responses_total"
        assert page[f'{responses}{{method="POST",route="/v0/topics/:topic",status="200"}}'] == 6
        assert page[f'{responses}{{method="GET",route="/v0/topics",status="200"}}'] == 1
    assert found[1][f'{responses}{{method="GET",route="/v0/metrics",status="200"}}'] == 1
    short = world.ask(world.tcp[0], request("GET", "/v0/metrics", {}, "Accept: application/json")).json
    assert (short["topics"], short["ready"]) == (6, True)


@pytest.mark.parametrize("way", ["general", "columns", "lone"])
def test_a_relayed_write_counts_as_one_request(way: str) -> None:
    """R-CORE-3: whichever way it takes."""
    world = Spanning(7)
    name = world.topic_of(1, "t")
    world.put(name)
    for server in world.servers:
        assert server.lane is not None
        if way == "lone":
            server.loop._senders.least_passes = 0
        else:
            server.lane.least = 1 if way == "columns" else 1 << 30
    for number in range(5):
        assert world.ask_of(0, "POST", f"/v0/topics/{name}", {"records": [{"data": number}]}).status == 200
    assert samples(world.ask_of(0, "GET", "/v0/metrics"))["topics_http_requests_total"] == 7


def test_a_relayed_stream_is_one_stream(world: Spanning) -> None:
    """R-CORE-3."""
    name = world.topic_of(1, "q")
    assert world.ask_of(1, "PUT", f"/v0/topics/{name}", {"type": "queue"}).status == 201
    tcp = world.connect(0)
    tcp.send(request("GET", f"/v0/topics/{name}/work?node=w", {}))
    world.run(lambda: [server.service.streams.slots.open for server in world.servers] == [1, 1])
    assert samples(world.ask_of(0, "GET", "/v0/metrics"))["topics_sse_connections"] == 1
    tcp.close()
    world.run(lambda: [server.service.streams.slots.open for server in world.servers] == [0, 0])
    assert samples(world.ask_of(1, "GET", "/v0/metrics"))["topics_sse_connections"] == 0


def test_without_a_core_metrics_have_no_sums(world: Spanning) -> None:
    """R-CORE-3."""
    world.put(*(f"t{number}" for number in range(4)))
    world.lose(1)
    page = samples(world.ask_of(0, "GET", "/v0/metrics"))
    assert [page[f'topics_core_ready{{core="{core}"}}'] for core in range(2)] == [1, 0]
    assert 'topics_core_topics{core="0"}' in page
    assert "topics_topics" not in page
    accept = request("GET", "/v0/metrics", {}, "Accept: application/json")
    assert detail_of(world.ask(world.tcp[0], accept)) == (503, "not_ready", {"core": 1})


def test_metrics_that_are_asked_for_together_are_made_once(world: Spanning) -> None:
    """12.3: a page is begun after it was asked for, and calls that wait share the next."""
    clients = [world.connect(0) for _ in range(8)]
    before = world.relayed[0]
    for tcp in clients:
        tcp.send(request("GET", "/v0/metrics", {}))
    got = [bytearray() for _ in clients]

    def all_came() -> bool:
        for tcp, data in zip(clients, got, strict=True):
            data.extend(tcp.receive())
        return all(is_whole(bytes(data)) for data in got)

    world.run(all_came)
    assert 1 <= world.relayed[0] - before < 8
    clients[0].send(request("GET", "/v0/metrics", {}))
    clients[0].close()
    assert samples(world.ask_of(0, "GET", "/v0/metrics"))["topics_ready"] == 1


def test_a_key_sees_the_metrics_of_its_topics() -> None:
    """R-CORE-3, 12.3."""
    world = Spanning(6, api_keys="all-all-all-all-all-all,mine-mine-mine-mine:read:mine-")
    world.lines = ["Authorization: Bearer all-all-all-all-all-all"]
    names = [world.topic_of(core, f"{prefix}-") for core in range(2) for prefix in ("mine", "theirs")]
    world.put(*names)
    world.lines = ["Authorization: Bearer mine-mine-mine-mine"]
    page = samples(world.ask_of(0, "GET", "/v0/metrics"))
    shown = {name.partition('"')[2].rstrip('"}') for name in page if name.startswith("topics_topic_head_seq")}
    assert shown == {name for name in names if name.startswith("mine-")}
    world.lines = []
    assert world.ask_of(0, "GET", "/v0/metrics").code == "unauthorized"


def test_a_checkpoint_is_one_of_each_core(world: Spanning) -> None:
    """R-CORE-9, R-CHK-1: what was acknowledged before stays, also of class memory, without power."""
    names = [world.topic_of(core, "t") for core in range(2)]
    for name in names:
        assert world.ask_of(0, "PUT", f"/v0/topics/{name}", {"durability": "memory"}).status == 201
    for asked in range(2):
        for name in names:
            assert world.ask_of(0, "POST", f"/v0/topics/{name}", {"records": [{"data": asked}]}).status == 200
        answer = world.ask_of(asked, "POST", "/v0/checkpoint")
        assert (answer.status, answer.json["done"], "checkpoint" in answer.json) == (200, True, False)
    engines: list[Any] = [server.engine for server in world.servers]
    snapshots = [engine._core.requested.snapshot_number for engine in engines]
    assert answer.json["snapshot"] == min(snapshots)
    for core in range(2):
        world.rings[core] = world.rings[core].next_life(power_cut=True)
        world._start(core)
    world.run(lambda: world.is_ready)
    tcp = world.connect(0)
    for name in names:
        found = world.ask(tcp, request("POST", f"/v0/topics/{name}/diff", {})).json
        assert [record["data"] for record in found["records"]] == [0, 1]


class Checkpointing:
    """A client that writes to topics by turns, and has a checkpoint made between."""

    def __init__(self, world: Spanning, topics: list[str], rounds: int) -> None:
        self.world = world
        self.topics = topics
        self.rounds = rounds
        self.safe: list[tuple[str, int]] = []
        """Records that a checkpoint has covered."""
        self.done = 0
        self._written: list[tuple[str, int]] = []
        self._killed = 0
        self._number = 0
        self._step = 0
        self._tcp: SimClient | None = None
        self._wire = Wire()

    def act(self) -> bool:
        """Do what is possible now. Return whether all rounds have ended."""
        if len(self.world.killed) > self._killed:
            self._killed = len(self.world.killed)
            self._written = list(self.safe)  # the others may be gone with the power,
            if self._tcp is not None:
                self._tcp.close()  # and so may one whose answer is on its way
                self._tcp = None
        if self._tcp is None or self._tcp.ended:
            try:
                self._tcp = self.world.rings[0].network.client(self.world.port)
            except ConnectionRefusedError:
                return False
            self._wire.sent = b""
            self._ask(self._tcp)
        self._wire.sent += self._tcp.receive()
        if is_whole(self._wire.sent):
            (answer,) = self._wire.take()
            self._take(answer)
            if self.rounds:
                self._ask(self._tcp)
        return not self.rounds

    def _ask(self, tcp: SimClient) -> None:
        if self._step < len(self.topics):
            self._number += 1
            tcp.send(request("POST", f"/v0/topics/{self.topics[self._step]}", {"records": [{"data": self._number}]}))
        else:
            tcp.send(request("POST", "/v0/checkpoint", {}))

    def _take(self, answer: Response) -> None:
        if answer.status == 503:
            return
        assert answer.status == 200, answer
        if self._step < len(self.topics):
            self._written.append((self.topics[self._step], self._number))
            self._step += 1
        elif answer.json["done"]:
            self.safe, self._step = list(self._written), 0
            self.done += 1
            self.rounds -= 1


@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_checkpoint_covers_all_cores_whose_power_may_go(seed: int, cores: int) -> None:
    """R-CORE-9, R-CHK-1: what was acknowledged before one that is done is there, of class memory, too."""
    for effects in range(1, 2000, stride(7)):
        dies = effects % cores
        world = Spanning(seed, cores=cores)
        world.cuts_power = True
        topics = [world.topic_of(core, f"t{core}") for core in range(cores)]
        for topic in topics:
            tcp = world.connect(world.slots.core_of(topic))
            assert world.ask(tcp, request("PUT", f"/v0/topics/{topic}", {"durability": "memory"})).status == 201
        client = Checkpointing(world, topics, 3)
        ring = world.rings[dies]
        ring.stop_at(ring.effects + effects)
        world.run(client.act, dies)
        world.rings[dies].stop_at(0)
        was_killed = bool(world.killed)
        for core in range(cores):
            world.rings[core] = world.rings[core].next_life(power_cut=True)
            world._start(core)
        world.run(partial(getattr, world, "is_ready"))
        for topic in topics:
            found = world.ask(world.connect(0), request("POST", f"/v0/topics/{topic}/diff", {})).json["records"]
            covered = {number for name, number in client.safe if name == topic}
            assert covered <= {record["data"] for record in found}, "covered, and not there"
        assert client.done == 3
        if not was_killed:
            assert effects > 1, "there was a run to cut short"
            return
    raise AssertionError("it never ran to its end")


def test_a_checkpoint_that_is_not_waited_for_is_asked_about_again_by_any_core(world: Spanning) -> None:
    """R-CHK-3, R-CHK-6: with waits of no time, it is done in the end."""
    world.put(*(f"t{number}" for number in range(4)))
    first = world.ask_of(1, "POST", "/v0/checkpoint", {"wait_ms": 0}).json
    assert not first["done"]
    core, tries = 0, 0
    number = first["checkpoint"]
    while True:
        answer = world.ask_of(core, "POST", "/v0/checkpoint", {"wait_ms": 0, "checkpoint": number}).json
        if answer["done"]:
            break
        assert answer["checkpoint"] == number, "the same one is waited for"
        core, tries = 1 - core, tries + 1
        assert tries < 1000
    again = world.ask_of(core, "POST", "/v0/checkpoint", {"wait_ms": 0, "checkpoint": number}).json
    assert again["done"]
    assert not world.ask_of(core, "POST", "/v0/checkpoint", {"wait_ms": 0, "checkpoint": 999}).json["done"]


@pytest.mark.parametrize("late", [0, 1])
def test_a_checkpoint_is_done_once_it_is_on_each_core(world: Spanning, late: int) -> None:
    """R-CORE-9: the disk of one core takes longer than is waited for."""
    for core in range(2):
        assert world.ask(world.tcp[core], write(world.topic_of(core, "t"), 1)).status == 201
    world.rings[late].slow_ns["sync"] = 50_000_000
    first = world.ask_of(0, "POST", "/v0/checkpoint", {"wait_ms": 30}).json
    assert not first["done"]
    world.rings[late].slow_ns.clear()
    asked = {"wait_ms": 60_000, "checkpoint": first["checkpoint"]}
    assert world.ask_of(0, "POST", "/v0/checkpoint", asked).json["done"]


def test_core_0_remembers_so_many_checkpoints(world: Spanning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spanning_checkpoint, "_KNOWN_MAX", 3)
    numbers = [world.ask_of(1, "POST", "/v0/checkpoint", {"wait_ms": 0}).json["checkpoint"] for _ in range(5)]
    assert numbers == [1, 2, 3, 4, 5]
    assert world.ask_of(1, "POST", "/v0/checkpoint").json["done"]
    found = [world.ask_of(0, "POST", "/v0/checkpoint", {"wait_ms": 0, "checkpoint": each}).json for each in (5, 1)]
    assert [each["done"] for each in found] == [True, False], "one that is not known any more begins anew"


def test_a_checkpoint_is_refused_while_a_core_is_not_there(world: Spanning) -> None:
    """R-CORE-9."""
    assert world.ask_of(0, "POST", "/v0/checkpoint", {"wait_ms": "long"}).code == "invalid_request"
    world.lose(1)
    assert detail_of(world.ask_of(0, "POST", "/v0/checkpoint")) == (503, "not_ready", {"core": 1})


def test_a_checkpoint_that_one_core_refuses_ends_the_waits_of_the_others() -> None:
    """7.9, check 2: nothing waits there any more."""
    world = Spanning(1, max_waits=1)
    engine: Any = world.servers[1].engine
    engine._core.waits = 1  # others wait there
    answer = world.ask_of(1, "POST", "/v0/checkpoint", {"wait_ms": 20_000})
    assert (answer.status, answer.code) == (429, "throttled")
    in_flight = [server.service.in_flight.requests for server in world.servers]
    assert in_flight == [0, 0]
