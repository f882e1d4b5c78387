"""Clients of named readers: pages at least once and at most once, held and trimmed, through every
crash.

R-READER-2: no two clients have a record at the same time. R-READER-3, R-READER-4: a committed
position covers only records whose commit was requested, and no crash takes one that was answered,
in the topic's class; none is above the head. R-READER-7: at most once, no record comes again.
R-READER-8, R-READER-9: no record is removed before each reader that holds or trims has committed
it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.sim.whole.clients.clients import Client, Clients
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.machine import Audit, Machine

_TRIES = 1000
"""Attempts of an audit to create a reader, while the log is long."""
AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"


class Page(NamedTuple):
    """A page that a client has."""

    client: int
    token: str
    texts: dict[int, str]
    upto: int
    asked_ns: int
    got_ns: int
    until_ms: int


class Reader:
    """The knowledge about one named reader."""

    def __init__(self, name: str, settings: dict[str, Any], commit_every: int) -> None:
        self.name = name
        self.settings = settings
        self.commit_every = commit_every
        """The setting of the library's objects for this reader."""
        self.exists = False
        self.sent: set[str] = set()
        """Texts of records whose commit was requested, or that are committed without a request."""
        self.committed = 0
        """The lowest position that a crash may leave, in the class of the topic."""
        self.done: list[int] = []
        """Seqs of records that an object of the library reported as done."""
        self.seen: set[str] = set()
        """Texts that came, at most once."""
        self.pages: list[Page] = []
        self.reads = 0
        """Reads without an answer: an object of the library reports, with each, that the page
        before is done.
        """
        self.moves = 0
        """Seeks that were requested."""
        self.seeking = 0
        """Seeks without an answer: requests in between may take effect before or after them."""
        self.begun = 0
        """Reads that were requested."""
        self.back: tuple[int, int] | None = None
        """The first record of a page that was given back, and the number of the read that gets it,
        if no other one is under way: the server may take a later one first.
        """

    @property
    def at_most_once(self) -> bool:
        return self.settings.get("delivery") == AT_MOST_ONCE

    @property
    def frees(self) -> bool:
        """Whether records may be removed once the reader has committed them."""
        return bool(self.settings.get("holds") or self.settings.get("trims"))


class ReadTopic:
    """A topic and its readers."""

    def __init__(self, name: str, config: dict[str, Any], readers: list[Reader]) -> None:
        self.name = name
        self.path = f"/v0/topics/{name}"
        self.config = config
        self.readers = readers
        self.exists = False
        self.there: dict[int, str] = {}
        """Records that were acknowledged, or read back, by seq."""
        self.texts: set[str] = set()
        """Texts of all records that were sent."""

    @property
    def is_fsync(self) -> bool:
        return bool(self.config["durability"] == "fsync")


class Reading(Clients):
    """All clients of named readers."""

    may_stall = False
    is_library = False

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        super().__init__(machine, rng)
        durability = rng.choice(("disk", "fsync", "fsync", "memory"))
        settings: list[dict[str, Any]] = [{"delivery": AT_LEAST_ONCE}, {"delivery": AT_MOST_ONCE}]
        plain = ReadTopic("n-plain", {"durability": durability}, self._readers(settings))
        config = {"durability": durability, "cap_records": rng.choice((0, 8, 30))}
        trims = not config["cap_records"] or rng.random() < 0.5
        held = ReadTopic("n-held", config, self._readers([{"holds": bool(config["cap_records"]), "trims": trims}]))
        self.topics = [plain, held]
        self.clients = [ReadingClient(self, number) for number in range(1 if self.is_library else 3)]

    def _readers(self, settings: list[dict[str, Any]]) -> list[Reader]:
        return [Reader(f"r{number}", each, self.rng.choice((1, 5, 100))) for number, each in enumerate(settings)]

    def paths(self) -> list[str]:
        return [topic.path for topic in self.topics]

    def crashed(self) -> None:
        super().crashed()
        for topic in self.topics:
            for reader in topic.readers:
                reader.pages.clear()
                reader.reads = reader.seeking = 0
                reader.back = None

    # --- after a crash -----------------------------------------------------------------------------------------------
    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        return [self._audit(topic) for topic in self.topics if is_there(topic.path)]

    def _audit(self, topic: ReadTopic) -> Audit:
        machine = self.machine
        lossy = machine.power_failed or machine.io_failed or machine.may_forget
        if not topic.exists:
            yield from self.put(topic.path, topic.config)
            topic.exists = True
        found, _told, head = yield from self.read_back(topic.path)
        if not set(found.values()) <= topic.texts:
            raise machine.wrong(f"{topic.name}: records that nobody wrote: {set(found.values()) - topic.texts}")
        freed = set().union(*(reader.sent for reader in topic.readers if reader.frees))
        lost = set(topic.there.values()) - set(found.values()) - freed
        if lost and (topic.is_fsync or not lossy):
            raise machine.wrong(f"{topic.name}: {sorted(lost)[:3]} are gone, and no reader was to commit them")
        known = {**topic.there, **found}
        for reader in topic.readers:
            yield from self._audit_reader(topic, reader, known, head, lossy=lossy and not topic.is_fsync)
        topic.there = found
        yield from self._begin_somewhere(topic, sorted(found), head)

    def _begin_somewhere(self, topic: ReadTopic, seqs: list[int], head: int) -> Audit:
        """Create a reader for a moment, by `from`: it begins where the records that were just read
        back do.
        """
        machine, path = self.machine, f"{topic.path}/readers/begun"
        first = seqs[0] - 1 if seqs else head
        last = seqs[-2] - 1 if len(seqs) > 1 else first
        begin, position = self.rng.choice((("first", first), ("now", head), ({"last": 2}, last), ({"time": 0}, first)))
        status, answer = yield "DELETE", path, None
        if status == 200:  # a crash has left one
            status, answer = yield "PUT", path, {"from": begin}
        if status in {200, 201}:
            if answer["position"] != position:
                raise machine.wrong(f"{path}: begins at {answer['position']} by {begin}, and not at {position}")
            machine.counts["readers that begin by a beginning"] += 1
            yield "DELETE", path, None

    def _audit_reader(
        self, topic: ReadTopic, reader: Reader, known: dict[int, str], head: int, *, lossy: bool
    ) -> Audit:
        machine, path = self.machine, f"{topic.path}/readers/{reader.name}"
        if not reader.exists:
            status, answer = 429, None
            for _ in range(_TRIES):
                if status != 429:
                    break
                status, answer = yield "PUT", path, reader.settings
            if status not in {200, 201}:
                raise machine.wrong(f"{path}: created with {status} {answer}")
            reader.exists = True
        status, state = yield "GET", path, None
        if status != 200:
            raise machine.wrong(f"{path}: {status} {state} after a start")
        committed = state["committed"]
        if not committed == state["position"] <= head:
            raise machine.wrong(f"{path}: committed {committed}, position {state['position']}, head {head}")
        if committed < reader.committed and not lossy:
            raise machine.wrong(f"{path}: committed {committed} after a crash, and {reader.committed} was answered")
        self.check_committed(topic, reader, committed, known)
        reader.committed = committed
        reader.done.clear()
        if lossy:
            reader.seen.clear()
        machine.counts["positions found after a start"] += committed > 0

    def check_committed(self, topic: ReadTopic, reader: Reader, committed: int, known: dict[int, str]) -> None:
        """Check that a position covers only records that a client was to commit."""
        if reader.at_most_once:
            return
        early = {seq: text for seq, text in known.items() if seq <= committed and text not in reader.sent}
        if early:
            raise self.machine.wrong(
                f"{topic.name}/{reader.name}: {committed} is committed, and nobody committed {sorted(early)[:5]}"
            )


class ReadingClient(Client):
    """One client, which writes, reads pages, and commits the ones that it has."""

    shared: Reading
    _steps_in = -1
    """The generation of the machine for which the next step is planned."""

    def step(self, wire: Wire) -> None:
        rng = self.rng
        self._steps_in = -1
        if self.shared.is_library and wire.outstanding:
            return  # one call at a time: its use of a page depends on the page before
        topic = rng.choice(self.shared.topics)
        reader = rng.choice(topic.readers)
        mine = [page for page in reader.pages if page.client == self.number]
        choice = rng.random()
        if choice < 0.35:
            self._write(wire, topic)
        elif choice < 0.38 and topic is self.shared.topics[0] and not reader.at_most_once:
            self._seek(wire, topic, reader)
        elif mine and choice > 0.97 and not self.shared.is_library:
            reader.pages.remove(mine[0])  # its client is slow: the page comes again when its lease has ended
            self._later(1000, self._step)
        elif mine and (choice < 0.75 or not self.shared.is_library):
            self._commit(wire, topic, reader, mine[0])
        else:
            self._read(wire, topic, reader, mine)

    def lost(self) -> None:
        self._forget_pages()
        super().lost()

    def _forget_pages(self) -> None:
        """Forget the pages: they come again when their leases have ended, or at once."""
        for topic in self.shared.topics:
            for reader in topic.readers:
                reader.pages = [page for page in reader.pages if page.client != self.number]

    def _next(self, name: str, status: int, answer: Any) -> bool:
        """Plan the next step after any answer. Return whether the answer was a success."""
        if self.machine.tracing:
            self.machine.say(f"reading {self.number} <- {name}: {status} {str(answer)[:200]}")
        self.count(name, status, answer)
        if self._steps_in != self.machine.generation:  # else the loss of the connection has planned it
            self._steps_in = self.machine.generation
            self._later(self.rng.randrange(1000, 150_000), self._step)
        return status == 200

    def _write(self, wire: Wire, topic: ReadTopic) -> None:
        self.shared.serial += 1
        number = self.shared.serial
        texts = [f"~n.{number}.{index}~" for index in range(self.rng.choice((1, 1, 3)))]
        topic.texts.update(texts)

        def written(status: int, answer: Any) -> None:
            if self._next("records for named readers", status, answer):
                topic.there.update(zip(range(answer["first_seq"], answer["last_seq"] + 1), texts, strict=True))
            elif status == 422:
                self.machine.counts["writes refused for what is held"] += 1

        wire.ask("POST", topic.path, {"records": [{"data": text} for text in texts]}, written)

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read(self, wire: Wire, topic: ReadTopic, reader: Reader, mine: list[Page]) -> None:
        machine = self.machine
        asked_ns, still = machine.ring.clock.monotonic_ns(), self._stays(reader)
        for page in mine:  # an object of the library reports that they are done
            reader.sent.update(page.texts.values())
            reader.pages.remove(page)

        reader.reads += 1
        reader.begun += 1
        number = reader.begun

        def got(status: int, answer: Any) -> None:
            reader.reads -= status != 0
            if not self._next("pages of named readers", status, answer):
                return
            if mine and still():
                reader.done += [seq for page in mine for seq in page.texts]
                if len(reader.done) >= reader.commit_every:
                    reader.committed = max(reader.committed, reader.done[-reader.commit_every])
            back, reader.back = reader.back, None
            if back is not None and back[1] == number == reader.begun and still():
                first = min((row["$seq"] for row in answer["records"]), default=back[0] + 1)
                if first > back[0] <= answer["next_from_seq"]:  # a gap below it comes before
                    raise machine.wrong(
                        f"{topic.name}/{reader.name}: {back[0]} was given back, and {first} comes first"
                    )
                machine.counts["pages given back that come again"] += 1
            self._take(wire, topic, reader, answer, asked_ns, stays=still())

        limit, lease_ms = self.rng.choice((1, 2, 10)), self.rng.choice((100, 60_000))
        body = {"limit": limit, "lease_ms": lease_ms, "commit_every": reader.commit_every}
        wire.ask("POST", f"{topic.path}/readers/{reader.name}/read", body, got)

    @staticmethod
    def _stays(reader: Reader) -> Callable[[], bool]:
        """Return a check whether no seek may have come since now."""
        moves, seeking = reader.moves, reader.seeking
        return lambda: reader.moves == moves and not seeking

    def _take(self, wire: Wire, topic: ReadTopic, reader: Reader, answer: Any, asked_ns: int, *, stays: bool) -> None:
        machine = self.machine
        texts = {row["$seq"]: row["data"] for row in answer["records"]}
        where = f"{topic.name}/{reader.name}"
        if set(texts.values()) - topic.texts:
            raise machine.wrong(f"{where}: a record that nobody wrote: {texts}")
        tombstone = answer["tombstone"]
        if tombstone is not None and tombstone["reason"] != "crash":
            raise machine.wrong(f"{where}: {tombstone}, and it holds")
        missing = {seq for seq in topic.there if min(texts, default=1) < seq < max(texts, default=0)} - texts.keys()
        if missing:
            raise machine.wrong(f"{where}: {sorted(texts)} leave out {sorted(missing)}")
        machine.counts["records of named readers"] += len(texts)
        if reader.at_most_once:
            if again := reader.seen & set(texts.values()):
                raise machine.wrong(f"{where}: {sorted(again)} come again")
            reader.seen.update(texts.values())
            reader.committed = max(reader.committed, *texts, 0)
        elif "token" in answer:
            now_ms = machine.ring.clock.now_ms()
            for page in reader.pages:
                if asked_ns > page.got_ns and now_ms <= page.until_ms and (twice := texts.keys() & page.texts.keys()):
                    raise machine.wrong(f"{where}: {sorted(twice)} are client {page.client}'s, and come again")
            if not stays or (self.shared.is_library and reader.reads):
                if self.shared.is_library:  # the next read of the object reports the page as done
                    reader.sent.update(texts.values())
                return
            got_ns, upto = machine.ring.clock.monotonic_ns(), answer["next_from_seq"]
            reader.pages.append(Page(self.number, answer["token"], texts, upto, asked_ns, got_ns, answer["deadline"]))
        elif tombstone is not None:  # an object of the library stays before a gap
            self._move(wire, topic, reader, tombstone["gap_to"])

    def _commit(self, wire: Wire, topic: ReadTopic, reader: Reader, page: Page) -> None:
        seq = self.rng.choice((None, None, None, *page.texts))
        releases = not self.shared.is_library and self.rng.random() < 0.2
        seqs = [each for each in page.texts if (seq is None and not releases) or (seq is not None and each <= seq)]
        reader.sent.update(page.texts[each] for each in seqs)
        if seq is None or releases:
            reader.pages.remove(page)
        still = self._stays(reader)
        kept = [each for each, text in page.texts.items() if text not in reader.sent]
        left = min(kept, default=None) if releases and not reader.reads else None
        begun = reader.begun

        def committed(status: int, answer: Any) -> None:
            if status == 409 and page in reader.pages:
                reader.pages.remove(page)
            if self._next("commits of named readers", status, answer):
                if left is not None and reader.begun == begun and still():
                    reader.back = left, reader.begun + 1
                if still():
                    reader.committed = max(reader.committed, answer["committed"])
                self.shared.check_committed(topic, reader, answer["committed"], topic.there)

        body = {"token": page.token, "seq": seq} | ({"release": True} if releases else {})
        wire.ask("POST", f"{topic.path}/readers/{reader.name}/commit", body, committed)

    def _seek(self, wire: Wire, topic: ReadTopic, reader: Reader) -> None:
        """Seek back, to a record that was committed."""
        self._move(wire, topic, reader, self.rng.randint(0, reader.committed))

    def _move(self, wire: Wire, topic: ReadTopic, reader: Reader, seq: int) -> None:
        reader.moves += 1
        reader.seeking += 1
        reader.committed = min(reader.committed, seq)
        reader.done.clear()
        reader.pages.clear()

        def moved(status: int, answer: Any) -> None:
            reader.seeking -= status != 0
            self._next("seeks of named readers", status, answer)

        wire.ask("POST", f"{topic.path}/readers/{reader.name}/seek", {"seq": seq}, moved)


class ReadingCaller(Reading):
    """The clients of named readers that call the library."""

    is_library = True
