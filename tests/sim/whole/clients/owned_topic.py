"""The possible states of a topic of one client.

The client asks in order, so the state is known exactly, or is one of a few. `states` are the states
that the topic may be in now: usually one, several after a lost answer. `history` has the states
after every change since the last audit; a power cut may fall back to any of them from `durable` on.
"""

from __future__ import annotations

from typing import Any

from tests.sim.whole.clients.keys import Key
from tests.sim.whole.clients.operation import (
    Configure,
    Drop,
    Flush,
    Inconsistent,
    Look,
    Maybe,
    Operation,
    Read,
    ReadSince,
    Write,
    follow,
)
from tests.sim.whole.clients.state import Part, Record, State
from topics.engine.state import topic_numbers

_BURNED_MAX = 24
"""Counts of seqs that failed writes may have taken, tried one after another."""
_REACHED_MAX = 512
"""With more states than this, each further change on a full disk has happened: they could double
with each.
"""


class OwnedTopic:
    """One topic, through all its instances."""

    def __init__(self, name: str, *, rows_max: int = 1) -> None:
        """rows_max: the most records of the writes that may come in one pass."""
        self.name = name
        self.rows_max = rows_max
        self.path = f"/v0/topics/{name}"
        self.states: list[Maybe] = [None]
        self.history: list[list[Maybe]] = [self.states]
        self.durable = 0
        self.answered_ns: list[tuple[int, int]] = []
        """Times of acknowledgements that led to a place in `history`, in the classes that promise
        to keep it.
        """
        self.limbo: list[Operation] = []
        """Changes answered 5xx or not at all: they may have happened, in this order, or not."""
        self.settled: list[Maybe] = []
        """States that may follow a restart, although no client sees them: of writes that failed
        since the last change.
        """
        self.has_failed = False
        """Whether a change in its limbo was answered 5xx."""
        self.failed: list[tuple[Write, int]] = []
        """Writes answered 500 since the last crash, and when (`Machine.waited_ns`)."""
        self.refuses = False
        """Whether the disk was full, or no file could be opened: a later change of its limbo may
        have happened without the earlier ones.
        """
        self.burned = 0
        """Number of seqs that failed writes may have taken."""
        self.instance = 0
        self.was_weak = False
        """Whether it may have been of class `memory` since its incarnation was last seen: a start
        may have drawn another.
        """
        self.acked_head = (0, 0)
        """The highest acknowledged seq of each instance, in the classes that never reuse one."""
        self.keys: dict[str, Key] = {}
        self.sent: dict[Part, list[Record]] = {}
        """Parts that were sent, with the records that came first."""
        self.sent_again: set[str] = set()
        """Data that several frames may have."""
        self.newest = (0, 0, 0)
        """By instance: the highest seq that was shown, and its $ts."""
        self.life = 0
        """The life of the server that is asked."""
        self.stamps: dict[tuple[int, int], dict[int, int]] = {}
        """By life and instance: the $ts of shown records, by seq; only of the last life."""
        self.incarnations: dict[int, tuple[int, str]] = {}
        """By instance: the incarnation shown last, and the life in which it was."""
        self.shown: set[str] = set()
        """All incarnations that were shown."""
        self.named: dict[tuple[str, int], str] = {}
        """By incarnation and seq: the data of records that were shown."""
        self._found: tuple[tuple[object, ...], list[Maybe]] = (), []
        """The last result of `possible`, and its arguments."""

    @property
    def tip(self) -> Maybe:
        return self.states[-1]

    def possible(self) -> list[Maybe]:
        """Return the possible states after its limbo, the most likely first."""
        basis = (self.states.copy(), self.limbo.copy(), self.burned, self.refuses, self.instance)
        if self._found[0] != basis:
            self._found = basis, self._possible()
        return self._found[1].copy()

    def _possible(self) -> list[Maybe]:
        found = list(self.states)
        most = self.burned if any(isinstance(operation, Write) for operation in self.limbo) else 0
        # Some of the failed writes may have taken no seqs. Of very many, the first ones or all took
        # some.
        all_burned = [*dict.fromkeys((*range(min(most, _BURNED_MAX) + 1), most))]
        if self.refuses:
            return self._possible_of_some(found, all_burned)
        for burned in all_burned:
            reached = [(state, burned) for state in self.states]
            for operation in self.limbo:
                paths = [(operation.apply(state, self.instance + 1, skipped), skipped) for state, skipped in reached]
                found += (step for path, _skipped in paths for step in path)
                is_write = isinstance(operation, Write)
                reached = [(path[-1], 0 if is_write else skipped) for path, skipped in paths]
        return distinct(found)

    def _possible_of_some(self, found: list[Maybe], all_burned: list[int]) -> list[Maybe]:
        """Return the same where each change of the limbo may have happened or not; equal states
        count once.
        """
        known = {identity(state): state for state in found}

        def kind(state: Maybe) -> int:
            """Return a number that is equal for states which clients cannot distinguish."""
            return id(known.setdefault(identity(state), state))

        reached = {(kind(state), burned): state for burned in all_burned for state in self.states}
        branches = True
        for operation in self.limbo:
            is_write = isinstance(operation, Write)
            after: dict[tuple[int, int], Maybe] = {}
            branches &= len(reached) < _REACHED_MAX
            for (_, skipped), state in reached.items():
                path = operation.apply(state, self.instance + 1, skipped)
                kinds = [kind(step) for step in path]
                after.setdefault((kinds[-1], 0 if is_write else skipped), path[-1])
            if branches and operation.changes:
                for (key, skipped), state in reached.items():
                    after.setdefault((key, skipped), state)
                    if is_write:  # or it failed when it had its seqs
                        after.setdefault((key, skipped + _rows([operation])), state)
            reached = after
        return [*known.values()]

    def candidates(self, *, may_lose: bool) -> list[Maybe]:
        """Return every right state after a crash, the most likely first."""
        found = [*self.possible(), *self.settled]
        if may_lose:
            for states in reversed(self.history[self.durable :]):
                found += states
        return found

    def reserved_most(self, candidates: list[Maybe]) -> int:
        """Return the highest seq that may be reserved, given those that writes may have: a power
        cut skips none above it.
        """
        given = max((state.head for state in candidates if state is not None), default=0)
        given += self.burned + _rows(self.limbo)
        return given + max(topic_numbers._RESERVE_MIN, given // 2, topic_numbers._RESERVE_REQUESTS * self.rows_max)

    def certain(self, under_way: list[Operation], *, may_lose: bool) -> set[str]:
        """Return the data of records that certainly exist, whatever happens to its limbo and to
        requests in flight.
        """
        states = [*self.states, *(state for states in self.history[self.durable :] for state in states if may_lose)]
        there = [state for state in states if state is not None]
        if len(there) < len(states) or self._may_take(there, [*self.limbo, *under_way]):
            return set()
        return set.intersection(*({record.data for record in state.records.values()} for state in there))

    def keeps(self, under_way: list[Operation]) -> bool:
        """Return whether no request in flight after an answer may remove what that answer showed."""
        return not self._may_take([state for state in self.states if state is not None], under_way)

    @staticmethod
    def _may_take(there: list[State], operations: list[Operation]) -> bool:
        """Return whether one of these operations may remove records of one of these states."""
        has_caps = any(state.config["cap_records"] or state.config["cap_bytes"] for state in there)
        return any(op.changes and (has_caps or not isinstance(op, Write)) for op in operations)

    def was_full(self, operation: Operation, asked_ns: int) -> bool:
        """Return whether a write had no room beside writes that failed later (R-CAP-5).

        asked_ns: when it was asked for. Those that had failed by then took no room.
        """
        beside = [write for write, failed_ns in self.failed if failed_ns >= asked_ns]
        if not isinstance(operation, Write) or not beside:
            return False
        reached = list(self.states)
        for write in [*beside, operation]:
            before = reached
            reached = [write.apply(state, self.instance + 1)[-1] for state in before]
        return any(after is state for state, after in zip(before, reached, strict=True))

    # --- what happens to it ------------------------------------------------------------------------------------------
    def burn(self, operations: list[Operation]) -> None:
        """Note that these changes did not happen, but may have taken seqs."""
        self.burned += _rows(operations)

    def settle_limbo(self, now_ms: int) -> None:
        """Note that none of it is in flight any more: it has happened by now, or never will."""
        self.date_keys(now_ms)
        if self.limbo:
            self.states = distinct(self.possible())
            self.settled += self.states if self.has_failed else []
            self.burn(self.limbo)
            self.limbo = []
            self.history.append(self.states)

    def date_keys(self, now_ms: int) -> None:
        """Note that writes without an answer have begun by now, or never will."""
        for key in self.keys.values():
            key.end_life(now_ms)

    def use_key(self, name: str, now_ms: int) -> None:
        """Note that a write with this key is about to be sent."""
        known = self.keys.get(name)
        if known is None:
            self.keys[name] = Key(now_ms, first_ms=now_ms)
        else:
            known.ended_ms = None

    def keys_gone(self, under_way: list[Operation]) -> list[str]:
        """Return used keys that are new again: of an earlier instance, or of a write that certainly
        is absent.

        R-IDEM-6, R-IDEM-8.
        """
        unsure = {write.key for write in (*self.limbo, *under_way) if isinstance(write, Write)}
        known = set().union(*(state.keys for state in self.states if state is not None))
        return [name for name in self.keys if name not in known and name not in unsure]

    def key_appended(self, name: str, asked_ms: int, now_ms: int) -> None:
        self.keys[name].appended(asked_ms, now_ms)

    def lasts(self, answered_ns: int) -> None:
        """Note a crash: everything acknowledged by then is on stable storage."""
        for place, at_ns in self.answered_ns:
            if at_ns <= answered_ns:
                self.durable = max(self.durable, place)
        self.answered_ns = []  # no process syncs the later ones until the next one has started

    def audited(self, states: list[Maybe], *, may_lose: bool) -> None:
        """Note the state read back after a start: all of it is durable, or will be with the next
        durable change.
        """
        if may_lose:
            self.newest = (0, 0, 0)
            for key in self.keys.values():
                key.may_be_lost()
        tip = states[-1]
        known = [state for step in [*self.history, self.possible(), states] for state in step]
        heads = [
            state.head for state in known if state is not None and tip is not None and state.instance == tip.instance
        ]
        given_out = max(heads, default=0) + self.burned + _rows(self.limbo)
        self.burned = given_out - tip.head if tip is not None else 0
        self.states = states
        self.history = [states]
        self.durable = 0
        self.answered_ns = []
        self.refuses = self.has_failed = False
        self.limbo, self.settled, self.failed = [], [], []
        if self.tip is not None:
            self.instance = max(self.instance, self.tip.instance)

    def answered(self, operation: Operation, status: int, answer: Any, now_ns: int) -> list[str]:
        """Note an answer that decides; return the data that it promises to be durable.

        Raises: Inconsistent.
        """
        steps: list[list[Maybe]] = []
        followed: list[Maybe] = []
        reasons = []
        burned = self.burned + _rows(self.limbo)
        for state in self.states:
            try:
                path = follow(operation, state, self.instance + 1, burned, status, answer)
                steps.append(path)
                followed.append(state)
            except Inconsistent as reason:
                reasons.append(str(reason))
        if not steps:
            raise Inconsistent(" or ".join(reasons))
        if isinstance(operation, Read) and len(self.states) == 1 and self.tip is not None:
            self.see_times(self.tip, answer)
            self.see_stamps(self.tip, answer, operation)
            self.see_names(self.tip, answer)
        if isinstance(operation, Look) and len(followed) == 1 and followed[0] is not None:
            self.see_incarnation(followed[0], answer)
        if not operation.changes or all(path[-1:] == [state] for path, state in zip(steps, followed, strict=True)):
            # Nothing changed: a read, a duplicate, an empty delete. The answer does not decide
            # about earlier failures.
            self.states = distinct([path[-1] for path in steps])
            if isinstance(operation, Flush | Look) and status == 200 and "synced_seq" in answer:
                return self._see_synced(
                    answer["synced_seq"], flushed=isinstance(operation, Flush) and operation.seq is None
                )
            return []
        self.burn(self.limbo)  # a failed change before a success did not happen
        self.limbo, self.settled, self.has_failed = [], [], False
        before = self.states
        for path in steps:
            if len(path) > 1:
                self.history.append([path[0]])
                self.durable = len(self.history) - 1  # the creation itself is synced
        self.states = distinct([path[-1] for path in steps])
        self.history.append(self.states)
        return self._note(operation, before, answer, now_ns)

    def _see_synced(self, synced_seq: int, *, flushed: bool) -> list[str]:
        """Note that the log up to this seq is on stable storage, or (flushed) all changes before.

        Returns: the data of records that have to be durable now.
        """
        tip = self.tip
        if len(self.states) > 1 or tip is None:
            return []
        if flushed:
            self.durable = len(self.history) - 1
        for place, states in enumerate(self.history):
            heads = [state.head if state is not None and state.instance == tip.instance else -1 for state in states]
            if synced_seq and min(heads) >= synced_seq:
                self.durable = max(self.durable, place)
                break
        texts = [record.data for seq, record in tip.records.items() if seq <= synced_seq]
        return [text for text in texts if text not in self.sent_again]

    def see_times(self, state: State, page: Any) -> None:
        """Check R-SEQ-5: $ts does not fall with rising seq, whatever clocks and crashes do.

        Raises: Inconsistent.
        """
        if not page["records"]:
            return
        known, newest, newest_ts = self.newest
        for row in reversed(page["records"]):
            if known != state.instance or row["$seq"] <= newest:
                break
            if row["$ts"] < newest_ts:
                raise Inconsistent(f"seq {row['$seq']} has $ts {row['$ts']}, and {newest} had {newest_ts}")
        last = page["records"][-1]
        if state.config["durability"] != "memory" and (known != state.instance or last["$seq"] > newest):
            self.newest = (state.instance, last["$seq"], last["$ts"])

    def see_stamps(self, state: State, page: Any, read: Read) -> None:
        """Check R-FROM-1: a read since a time leaves out no record of that time or later.

        Raises: Inconsistent.
        """
        key = self.life, state.instance
        if key not in self.stamps:
            self.stamps = {key: {}}
        known = self.stamps[key]
        if isinstance(read, ReadSince):
            for seq, ts in known.items():
                if seq <= read.cursor and seq in state.records and ts >= read.time_ms:
                    raise Inconsistent(f"seq {seq} of {ts} is not in what there is since {read.time_ms}")
        known.update((row["$seq"], row["$ts"]) for row in page["records"])

    def a_time(self, near: float) -> int:
        """Return the $ts of a record that was shown in this life, or 0. near: from 0 to 1, the
        oldest to the newest.
        """
        known = next(iter(self.stamps.values()), {})
        return list(known.values())[int(near * len(known))] if known else 0

    def see_incarnation(self, state: State, looked: Any, *, audits: bool = False) -> None:
        """Check R-INC-2: the instance has its known incarnation, or one that was never shown.

        audits: this is the first read in this life, so a start is between the two. Raises:
        Inconsistent.
        """
        told, weak = looked["incarnation"], state.config["durability"] == "memory"
        life, known = self.incarnations.get(state.instance, (0, ""))
        may_be_known = life == self.life or not (audits and weak)
        may_be_new = not known or (life != self.life and (weak or self.was_weak or not audits))
        if not (may_be_known if told == known else may_be_new and told not in self.shown):
            raise Inconsistent(f"the incarnation is {told}, and was {known} in life {life}")
        self.incarnations[state.instance] = (self.life, told)
        self.shown.add(told)
        self.was_weak = weak
        self.instance = max(self.instance, state.instance)

    def see_names(self, state: State, page: Any) -> None:
        """Check R-INC-1: a seq names one record while the incarnation is the same.

        Raises: Inconsistent.
        """
        life, incarnation = self.incarnations.get(state.instance, (0, ""))
        if not incarnation or life != self.life:
            return
        for row in page["records"]:
            if self.named.setdefault((incarnation, row["$seq"]), row["data"]) != row["data"]:
                raise Inconsistent(f"seq {row['$seq']} of incarnation {incarnation} was another record")

    def present(self) -> str | None:
        """Return the incarnation of its tip, if that is certain."""
        if len(self.states) > 1 or self.tip is None:
            return None
        life, incarnation = self.incarnations.get(self.tip.instance, (0, ""))
        return incarnation if life == self.life else None

    def _note(self, operation: Operation, before: list[Maybe], answer: Any, now_ns: int) -> list[str]:
        """Note the promise of an acknowledgement."""
        now = self.tip
        classes = {state.config["durability"] for state in [*before, *self.states] if state is not None}
        self.was_weak |= "memory" in classes
        synced = isinstance(operation, Configure | Drop) or classes == {"fsync"}
        if now is not None and isinstance(operation, Configure):
            # One that changes nothing is durable already, and does not cover the records before it.
            synced = all(state is None or state.config != now.config for state in before)
        if synced:
            self.durable = len(self.history) - 1
        elif classes <= {"disk", "fsync"}:
            self.answered_ns.append((len(self.history) - 1, now_ns))
        if now is None or any(state is None for state in before):
            self.burned = 0
        if now is None:
            return []
        self.instance = max(self.instance, now.instance)
        if not isinstance(operation, Write):
            return []
        appended = answer.get("deduped") is False
        if appended:
            self.burned = 0
        if classes <= {"disk", "fsync"}:
            self.acked_head = max(self.acked_head, (now.instance, now.head))
        if classes != {"fsync"} or not appended:
            return []
        live = {now.records.get(seq) for seq in range(answer["first_seq"], answer["last_seq"] + 1)}
        return [record.data for record in operation.records if record in live]


def _rows(operations: list[Operation]) -> int:
    return sum(len(operation.records) for operation in operations if isinstance(operation, Write))


def distinct(states: list[Any]) -> list[Any]:
    """Return the states without repetition, as far as clients can distinguish them."""
    if len(states) == 1:
        return states
    seen: dict[Any, Any] = {}
    for state in states:
        seen.setdefault(identity(state), state)
    return list(seen.values())


def identity(state: Maybe) -> object:
    """Return a value that is equal for states which clients cannot distinguish."""
    return None if state is None else state.identity
