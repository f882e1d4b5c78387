"""Requests of a client for a topic that it owns, and the right answers in a given state."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.sim.whole.clients.state import CONFIG_DEFAULT, Part, Record, Refused, State

Maybe = State | None
"""The state of a topic; None: the topic does not exist."""


class Inconsistent(Exception):
    """The answer does not fit this state."""


class _Differs(Inconsistent):
    """A part of the answer is not as it should be. Its text is made when it is shown: most states
    of an audit do not fit, and only those of an audit in which none does are shown.
    """

    def __str__(self) -> str:
        what, found, wanted = self.args
        return f"{what} is {found}, not {wanted}"


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise _Differs(what, found, wanted)


class Operation:
    """One request on one topic. `changes`: it may change the topic."""

    changes = True

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        raise NotImplementedError

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        """Return the states that the request leads to, one after another, if its answer is lost.

        The last state is that after the whole request.

        burned: seqs that failed writes before it have taken.
        """
        raise NotImplementedError

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        """Return the states that the request leads to, given its answer.

        burned: seqs that failed writes may have taken. Raises: Inconsistent.
        """
        raise NotImplementedError


def exists(state: Maybe, status: int) -> State:
    if state is None:
        expect("status", status, 404)
        raise _Absent
    expect("status", status, 200)
    return state


class _Absent(Exception):
    """The topic is absent, and the answer was 404, as it should be."""


class Meant(NamedTuple):
    """The incarnation that a write or a read names, and the instance that has it; 0: none has it now."""

    incarnation: str
    instance: int


class Write(Operation):
    """A write of records.

    key_is_old: the window of its key has ended, so the key is new again (R-IDEM-4). part: in the
    place of a key.
    """

    def __init__(
        self,
        records: list[Record],
        key: str | None,
        config: dict[str, Any] | None,
        *,
        key_is_old: bool = False,
        meant: Meant | None = None,
        part: Part | None = None,
        durability: str = "disk",
    ) -> None:
        """durability: the class of a topic that it creates without a config."""
        self.meant = meant
        self.default = CONFIG_DEFAULT | {"durability": durability}
        self.records = records
        self.key = key
        self.config = config
        self.key_is_old = key_is_old
        self.part = part

    def __str__(self) -> str:
        texts = ", ".join(f"{record.data[:14]}({len(record.data)}){record.tag or ''}" for record in self.records)
        return (
            f"write {texts}"
            + (f" {'old ' * self.key_is_old}key {self.key}" if self.key else "")
            + (f" part {'/'.join(map(str, self.part))}" if self.part else "")
            + (f" config {self.config}" if self.config else "")
            + (f" into {self.meant}" if self.meant else "")
        )

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        rows = [{name: value for name, value in r._asdict().items() if value is not None} for r in self.records]
        body: dict[str, Any] = {"records": rows}
        if self.key is not None:
            body["idempotency_key"] = self.key
        if self.part is not None:
            body["producer"] = {"id": self.part.producer, "epoch": self.part.epoch, "part": self.part.part}
        if self.config is not None:
            body["config"] = self.config
        if self.meant is not None:
            body["incarnation"] = self.meant.incarnation
        return "POST", path, body

    def _is_meant(self, state: Maybe) -> bool:
        """Return whether the write names this instance, or none (R-INC-4)."""
        return self.meant is None or (state is not None and state.instance == self.meant.instance)

    def _known(self, state: State) -> tuple[int, int] | None:
        """Return first and last seq of the same write before; None: the write is new.

        Raises: Refused.
        """
        if self.part is not None:
            return state.known(self.part, self.records)
        return None if self.key is None or self.key_is_old else state.keys.get(self.key)

    def _created(self, state: Maybe, instance: int) -> list[State]:
        return [State(self.config or self.default, instance)] if state is None else []

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        if not self._is_meant(state):
            return [state]
        steps: list[Maybe] = [*self._created(state, instance)]
        before = steps[0] if steps else state
        assert before is not None
        try:
            if self._known(before) is not None:
                return [before]
            return [*steps, before.write(self.records, self.key, before.head + 1 + burned, self.part)]
        except Refused:
            return [*steps, before]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        if not self._is_meant(state):
            expect("status", status, 409)
            return [state]
        steps = self._created(state, instance)
        before = steps[0] if steps else state
        assert before is not None
        count = len(self.records)
        try:
            known = self._known(before)
            if known is None:
                before.write(self.records, self.key)
        except Refused as refused:
            expect("status", status, refused.status)
            detail = answer["error"].get("detail", {})
            expect("detail", {name: detail.get(name) for name in refused.detail}, refused.detail)
            return [*steps, before]
        if known is not None:
            expect("status", status, 200)
            repeated = (answer["first_seq"], answer["last_seq"], answer["head_seq"], answer["deduped"])
            expect("(first, last, head, deduped)", repeated, (*known, known[1], True))
            return [before]
        expect("status", status, 201 if steps else 200)
        first = answer["first_seq"]
        if not before.head < first <= before.head + 1 + burned:
            raise Inconsistent(f"first_seq is {first} after head {before.head}, {burned} may be burned")
        found = (answer["last_seq"], answer["head_seq"], answer["count"], answer["created"], answer["deduped"])
        expect("(last, head, count, created, deduped)", found, (first + count - 1,) * 2 + (count, bool(steps), False))
        return [*steps, before.write(self.records, self.key, first, self.part)]


class DeleteRecords(Operation):
    def __init__(self, before: int | None, match: str | None) -> None:
        self.before = before
        self.match = match

    def __str__(self) -> str:
        return f"delete before {self.before} match {self.match}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "POST", f"{path}/delete", {"before_seq": self.before, "match": self.match}

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [None if state is None else state.delete_records(self.before, self.match)]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        state = exists(state, status)
        after = state.delete_records(self.before, self.match)
        names = ("deleted", "earliest_seq", "head_seq", "count", "bytes")
        wanted = (len(state.records) - len(after.records), after.earliest, after.head, len(after.records), after.bytes)
        expect(str(names), tuple(answer[name] for name in names), wanted)
        return [after]


class Configure(Operation):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def __str__(self) -> str:
        return f"put {self.config}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "PUT", path, self.config

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [State(self.config, instance) if state is None else state.configure(self.config)]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        expect("status", status, 201 if state is None else 200)
        expect("created", answer["created"], state is None)
        return self.apply(state, instance)


class Drop(Operation):
    def __str__(self) -> str:
        return "drop"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "DELETE", path, None

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [None]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        expect("status", status, 200)
        expect("deleted", answer["deleted"], state is not None)
        return [None]


class Look(Operation):
    changes = False

    def __str__(self) -> str:
        return "look"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "GET", f"{path}?touch=false&incarnation=true", None

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [state]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        state = exists(state, status)
        found = (answer["head_seq"], answer["earliest_seq"], answer["count"], answer["bytes"])
        expect("(head, earliest, count, bytes)", found, (state.head, state.earliest, len(state.records), state.bytes))
        config = {name: answer["config"][name] for name in state.config}
        expect("config", config, state.config)
        return [state]


class Flush(Operation):
    """A flush of a record and all before it, or of all records (seq: None).

    Only the library has it.
    """

    changes = False

    def __init__(self, seq: int | None) -> None:
        self.seq = seq

    def __str__(self) -> str:
        return f"flush {'all' if self.seq is None else self.seq}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "POST", f"{path}/flush", {"seq": self.seq}

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [state]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        if state is not None and self.seq is not None and self.seq > state.head:  # it was created again meanwhile
            expect("status", status, 400)
            return [state]
        state = exists(state, status)
        least = state.head if self.seq is None else self.seq
        if not least <= answer["synced_seq"] <= state.head:
            raise Inconsistent(f"synced_seq {answer['synced_seq']} is not in {least}..{state.head}")
        return [state]


class Read(Operation):
    """One page from a cursor."""

    changes = False

    def __init__(
        self,
        cursor: int,
        limit: int,
        max_bytes: int = 0,
        which: dict[str, str] | None = None,
        meant: Meant | None = None,
    ) -> None:
        """max_bytes: 0 for the default, which is more than a topic holds. which: filters. meant: what
        the cursor is of.
        """
        self.cursor = cursor
        self.limit = limit
        self.max_bytes = max_bytes
        self.which = which or {}
        self.meant = meant

    def __str__(self) -> str:
        of = f" of {self.meant}" if self.meant else ""
        return f"read {self.cursor}{of} limit {self.limit} bytes {self.max_bytes} {self.which or ''}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        body: dict[str, Any] = {"from_seq": self.cursor, "limit": self.limit, "include_tags": True, **self.which}
        if self.meant is not None:
            body["incarnation"] = self.meant.incarnation
        return "POST", f"{path}/diff", body | ({"max_batch_bytes": self.max_bytes} if self.max_bytes else {})

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [state]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        state = exists(state, status)
        expect("(head, earliest)", (answer["head_seq"], answer["earliest_seq"]), (state.head, state.earliest))
        as_base64 = answer.get("as_base64", False)
        cursor, meant = self.cursor, self.meant
        if meant is not None:  # R-INC-5
            is_present = meant.instance == state.instance
            expect("is of that incarnation", answer["incarnation"] == meant.incarnation, is_present)
            cursor = cursor if is_present else state.head + 1
        page = state.read(cursor, self.limit, self.max_bytes, as_base64=as_base64, which=self.which)
        expect("tombstone", answer["tombstone"], page.tombstone)
        names = ("$seq", "data", "$tag", "$node", "meta")
        found = [tuple(row.get(name) for name in names) for row in answer["records"]]
        wanted = [(seq, *state.records[seq]) for seq in page.seqs]
        if found != wanted:
            lost = [row for row in wanted if row not in found][:5]
            strange = [row for row in found if row not in wanted][:5]
            raise Inconsistent(f"records: {len(found)} for {len(wanted)}; missing {lost}; strange {strange}")
        times = [row["$ts"] for row in answer["records"]]
        if times != sorted(times):
            raise Inconsistent(f"$ts decreases: {times}")
        after = answer["next_from_seq"]
        if not page.next_min <= after <= page.next_max:
            raise Inconsistent(f"next_from_seq {after} is not in {page.next_min}..{page.next_max}")
        expect("(caught_up, lag)", (answer["caught_up"], answer["lag"]), (after == state.head, state.head - after))
        return [state]


class ReadSince(Read):
    """A read of one page from a time on."""

    def __init__(self, time_ms: int, limit: int) -> None:
        super().__init__(0, limit)
        self.time_ms = time_ms

    def __str__(self) -> str:
        return f"read since {self.time_ms} limit {self.limit}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        body = {"from": {"time": self.time_ms}, "limit": self.limit, "include_tags": True}
        return "POST", f"{path}/diff", body

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        """Check the page as one from the cursor before its first record, or from the head."""
        if status == 200:
            rows = answer["records"]
            self.cursor = rows[0]["$seq"] - 1 if rows else answer["head_seq"]
            if rows and rows[0]["$ts"] < self.time_ms:
                raise Inconsistent(f"the first record since {self.time_ms} is of {rows[0]['$ts']}")
        return super().answered(state, instance, burned, status, answer)


class ReadFrom(Read):
    """A read of one page from a beginning by name: "first", "now" or {"last": n}."""

    def __init__(self, begin: Any, limit: int) -> None:
        super().__init__(0, limit)
        self.begin = begin

    def __str__(self) -> str:
        return f"read from {self.begin} limit {self.limit}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "POST", f"{path}/diff", {"from": self.begin, "limit": self.limit, "include_tags": True}

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        """Check the page as one from the cursor that the name stands for, without a report of
        earlier loss.
        """
        self.cursor = exists(state, status).beginning(self.begin)
        if answer["tombstone"] is not None:
            raise Inconsistent(f"from {self.begin} reports {answer['tombstone']}")
        return super().answered(state, instance, burned, status, answer)


class GetOne(Operation):
    """A lookup of one record by its seq, and whether it is located. Only the library has it."""

    changes = False

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def __str__(self) -> str:
        return f"get {self.seq}"

    def request(self, path: str) -> tuple[str, str, dict[str, Any] | None]:
        return "GET", f"{path}/records/{self.seq}", None

    def apply(self, state: Maybe, instance: int, burned: int = 0) -> list[Maybe]:
        return [state]

    def answered(self, state: Maybe, instance: int, burned: int, status: int, answer: Any) -> list[Maybe]:
        state = exists(state, status)
        lost = None if self.seq > state.head else state.read(self.seq - 1, 1).tombstone
        expect("tombstone", answer["tombstone"], lost)
        record = None if lost else state.records.get(self.seq)
        expect("record", answer["record"], None if record is None else [self.seq, *record])
        expect("is located", answer["located"], record is not None)
        return [state]


def follow(  # noqa: PLR0917
    operation: Operation, state: Maybe, instance: int, burned: int, status: int, answer: Any
) -> list[Maybe]:
    """Return `operation.answered`, and accept a 404 for an absent topic."""
    try:
        return operation.answered(state, instance, burned, status, answer)
    except _Absent:
        return [None]
