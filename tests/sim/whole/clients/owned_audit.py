"""After a start a topic of one client is read back: it must be in one of its possible states."""

from __future__ import annotations

import random
from typing import Any

from tests.sim.whole.clients.operation import Inconsistent, Look, Maybe, Operation, Read, follow
from tests.sim.whole.clients.owned_topic import OwnedTopic, distinct
from tests.sim.whole.clients.state import State
from tests.sim.whole.machine import Audit, Machine


def audit(machine: Machine, rng: random.Random, topic: OwnedTopic) -> Audit:
    """One audit of a topic: reads from a few cursors.

    Afterwards the client knows what the topic holds.
    """
    may_lose = machine.power_failed or machine.io_failed
    candidates = topic.candidates(may_lose=may_lose)
    topic.life = machine.life_of(topic.name)
    topic.was_weak |= any(state is not None and state.config["durability"] == "memory" for state in candidates)
    if machine.may_forget:
        topic.named.clear()
    status, looked = yield Look().request(topic.path)
    if status == 200:
        states = yield from _read_back(machine, rng, topic, candidates, looked)
    else:
        if status != 404:
            raise machine.wrong(f"{topic.name}: the audit was answered {status} {looked}")
        states = [state for state in candidates if state is None][:1]
        if not states:
            raise machine.wrong(f"{topic.name} is gone; it was one of {_describe(candidates)}")
    topic.audited(states, may_lose=may_lose)


def _read_back(machine: Machine, rng: random.Random, topic: OwnedTopic, candidates: list[Maybe], looked: Any) -> Any:
    head = looked["head_seq"]
    classes = {state.config["durability"] for state in candidates if state is not None}
    cut = machine.may_skip and "disk" in classes
    if cut and head > (most := topic.reserved_most(candidates)):
        raise machine.wrong(f"{topic.name}: head {head} after a power cut, and no seq above {most} was reserved")
    alive = distinct([state.after_power_cut(head) if cut else state for state in candidates if state is not None])
    answers: list[tuple[Operation, int, Any]] = [(Look(), 200, looked)]
    cursors = [0, rng.choice([head, head + 1, rng.randint(0, head), *_edges(alive)])]
    for cursor in dict.fromkeys(cursors):
        read = Read(cursor, 1000)
        status, page = yield read.request(topic.path)
        answers.append((read, status, page))
    reasons: list[tuple[Inconsistent, Maybe]] = []
    matching: list[Maybe] = []
    for state in alive:
        try:
            for operation, status, answer in answers:
                follow(operation, state, 0, 0, status, answer)
            matching.append(state)
        except Inconsistent as reason:
            reasons.append((reason, state))
    if not matching:
        found = [(row["$seq"], row["data"][:14]) for row in answers[1][2].get("records", [])]
        why = [f"{reason} ({_describe([state])})" for reason, state in reasons[:4]]
        raise machine.wrong(f"{topic.name} is in no state it may be in: {short(looked)} with {found}: {why}")
    state = matching[0]
    assert state is not None
    below = state.instance == topic.acked_head[0] and head < topic.acked_head[1]
    if below and "memory" not in classes and not machine.may_forget:
        raise machine.wrong(f"{topic.name}: head {head} is below the acknowledged seq {topic.acked_head[1]}")
    if below:
        topic.acked_head = (state.instance, head)  # seqs given out again from here on are known
    if len(matching) == 1 and not (machine.power_failed or machine.io_failed):
        try:
            topic.see_times(state, answers[1][2])
        except Inconsistent as reason:
            raise machine.wrong(f"{topic.name}: {reason}") from reason
    try:
        if len({each.instance for each in matching if each is not None}) == 1:
            topic.see_incarnation(state, looked, audits=True)
            for _read, _status, page in answers[1:]:
                topic.see_names(state, page)
    except Inconsistent as reason:
        raise machine.wrong(f"{topic.name}: {reason}") from reason
    machine.counts["records read back"] += len(state.records)
    return matching


def _edges(states: list[Any]) -> list[int]:
    """Return cursors at which tombstones begin or end."""
    edges: list[int] = []
    for state in states[:2]:
        edges += [max(0, state.lost - 1), state.lost]
        for gap in state.gaps:
            edges += [gap.first - 2, gap.first - 1, gap.last - 1, gap.last]
    return [edge for edge in edges if edge >= 0][:10]


def _describe(states: list[Maybe]) -> list[str]:
    return ["absent" if state is None else _describe_one(state) for state in states[:6]]


def _describe_one(state: State) -> str:
    return (
        f"#{state.instance} head {state.head} earliest {state.earliest} count {len(state.records)} lost {state.lost}"
        f" gaps {[tuple(gap) for gap in state.gaps]} {state.config}"
    )


def short(answer: Any) -> str:
    """Return an answer as text, for messages."""
    if isinstance(answer, dict):
        answer = {name: value for name, value in answer.items() if name not in ("performance", "topic", "config")}
        if isinstance(answer.get("records"), list):
            answer["records"] = [row["$seq"] for row in answer["records"]]
    return str(answer)[:300]
