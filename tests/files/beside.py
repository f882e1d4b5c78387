"""A server that works, crashes and fills its disk while a reader of its files makes one call after the other.

Every call of the reader lets the server do some passes of its loop first, so a reader comes between any two steps of a
checkpoint. What each reader must find is worked out from what clients were answered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.engine.harness import Answer, records
from tests.files.files_world import COLD, HOT, FilesWorld, sections_read, seen_of
from tests.files.sim_calls import SimCalls
from topics.errors import StorageError, TopicsError
from topics.files import Directory, open_directory, scan_pieces
from topics.files.scanning import Scanner
from topics.files.texts import NATIVE, PURE

TINY = ("tiny-1", "tiny-2", "tiny-3")
NAMES = ("big", "capped", *TINY)


class PowerLostError(Exception):
    """The reader's machine is gone, too."""


@dataclass
class Known:
    """The knowledge that clients have of one topic."""

    written: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Data to tag and meta, of all that was ever sent."""
    seqs: dict[int, str] = field(default_factory=dict)
    """Acknowledged ones, to their data."""
    doomed: set[str] = field(default_factory=set)
    """Data that a delete may have taken, from when it was sent on."""
    deleted: set[str] = field(default_factory=set)
    """Data that a delete took which was answered."""


class Beside:
    """One server over several lives, and readers beside it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"beside {seed}")
        codec = "zstd" if seed // 2 % 2 else "none"
        self.world = FilesWorld(
            seed, pack_run_bytes=600, segment_max_events=12, hot_tail_bytes=8192, segment_codec=codec
        )
        self.busy = TINY if seed % 2 else ("big", *NAMES)
        """Topics that are written to. Of tiny ones all packs go at times, and another gets the number of one."""
        self.known = {name: Known() for name in NAMES}
        for name in NAMES:
            self.world.put(name, **({"cap_records": 30} if name == "capped" else {}))
        self.waiting: list[tuple[Answer, Any]] = []
        self.checkpoints: list[Any] = []
        self.gone: dict[str, set[str]] = {name: set() for name in NAMES}
        """Deleted when the last checkpoint began that went well."""
        self.plans: list[tuple[Directory, dict[str, set[int]], dict[str, set[str]]]] = []
        """The plans of readers: a directory, what was acknowledged then, and what was deleted before its checkpoint."""
        self.count = 0
        self.rows = 0
        self.replanned = 0
        self.scrubbed = 0

    # --- the server --------------------------------------------------------------------------------------------------
    def step(self, _name: str, _path: str) -> None:
        """Before a call of the reader."""
        chance = self.chance
        what = chance.random()
        if what < 0.012:
            self.crash(power_lost=False)
        elif what < 0.013:
            self.crash(power_lost=True)
            raise PowerLostError
        elif what < 0.40:
            self.change()
        elif what < 0.42:
            disk = self.world.ring.disk
            disk.capacity_bytes = (
                None if disk.capacity_bytes is not None else disk.used_bytes + chance.choice((0, 8192, 65536))
            )
        loop = self.world.real_loop
        if not self.checkpoints and chance.random() < 0.3:
            self.checkpoints.append(loop.spawn(self.checkpoint(), "checkpoint of the test"))
        for _ in range(chance.choice((0, 1, 3, 10, 60))):
            loop.run_pass(0)
        self.collect()

    async def checkpoint(self) -> None:
        running = self.checkpoints  # of this life: what a crash leaves of this coroutine ends in another one
        deleted = {name: set(known.deleted) for name, known in self.known.items()}
        try:
            await self.world.real_store.checkpointer.run()
            self.gone = deleted
        except (OSError, StorageError):
            pass  # the disk is full
        finally:
            running.clear()

    def crash(self, *, power_lost: bool) -> None:
        self.collect()
        self.waiting.clear()
        self.checkpoints = []
        self.world.ring.disk.capacity_bytes = None
        if power_lost:  # of the class `disk` a delete is not durable before it is answered
            for name, known in self.known.items():
                known.deleted = set(self.gone[name])
        self.world.restart(power_lost=power_lost)

    def change(self) -> None:
        chance = self.chance
        name = chance.choice(self.busy)
        known = self.known[name]
        if chance.random() < (0.6 if self.busy is TINY else 0.8):
            tag, meta = chance.choice((None, "a", "b")), chance.choice((None, {"k": 1}))
            values = []
            for _ in range(1 if name.startswith("tiny") else chance.choice((1, 5, 30))):
                self.count += 1
                values.append({"n": self.count, "pad": "x" * chance.choice((0, 40, 200))})
            texts = [msgspec.json.encode(value).decode() for value in values]
            known.written.update(dict.fromkeys(texts, (tag, None if meta is None else '{"k":1}')))
            self.waiting.append((self.world.start_append(records(*values, tag=tag, meta=meta), name), (known, texts)))
        elif name.startswith("tiny"):  # packs whose records are all gone make room for their numbers
            for one in TINY if self.busy is TINY else (name,):
                self.empty(one)
        else:
            tag = chance.choice(("a", "b"))
            known.doomed |= {text for text, about in known.written.items() if about[0] == tag}
            doomed = {text for text in known.seqs.values() if known.written[text][0] == tag}
            self.waiting.append((self.world.start_delete(match=tag, name=name), (known, doomed)))

    def empty(self, name: str) -> None:
        known = self.known[name]
        if known.seqs:
            known.doomed |= set(known.written)
            answer = self.world.start_delete(max(known.seqs) + 1, name=name)
            self.waiting.append((answer, (known, set(known.seqs.values()))))

    def collect(self) -> None:
        """Note the answers that came meanwhile."""
        self.world._asked.clear()
        for answer, about in list(self.waiting):
            if not answer.given:
                continue
            self.waiting.remove((answer, about))
            known, what = about
            try:
                result = answer.get()
            except TopicsError:
                continue
            if isinstance(what, set):
                known.deleted |= what
            else:
                known.seqs.update(zip(range(result.first_seq, result.last_seq + 1), what, strict=True))

    # --- readers -----------------------------------------------------------------------------------------------------
    def plan(self) -> None:
        """Another reader plans; when it reads is another matter."""
        calls = SimCalls(lambda: self.world.ring.disk, self.step)
        gone = {name: set(seqs) for name, seqs in self.gone.items()}
        directory = open_directory(HOT, COLD, calls=calls)
        known = {name: set(known.seqs) for name, known in self.known.items()}
        self.plans.append((directory, known, gone))

    def read(self) -> None:
        """One of the readers reads all topics."""
        directory, known, gone = self.plans.pop(self.chance.randrange(len(self.plans)))
        calls: SimCalls = directory.calls
        decoder = self.chance.choice((NATIVE, PURE))
        found = {}
        try:
            if self.chance.random() < 0.3:
                self.scrub(directory, decoder.scan)
            for name, topic in directory.topics.items():
                opened = len(calls.opened)
                seen = seen_of(list(sections_read(topic, directory, decoder, batch_rows=self.chance.choice((3, 1000)))))
                self.replanned += any("snapshots/" in path for path in calls.opened[opened:])
                found[name] = seen, topic.head
        finally:
            assert calls.descriptors == 0
        self.settle()
        for name, (seen, head) in found.items():
            self.check(name, seen, head, known[name], gone[name])

    def scrub(self, directory: Directory, scan: Scanner) -> None:
        """Files that a server is about to change, move or drop are not damaged."""
        for topic in directory.topics.values():
            for report in scan_pieces(directory.location, topic.pieces, calls=directory.calls, scan=scan):
                assert report is None or not report.findings, report
                self.scrubbed += report is not None

    def settle(self) -> None:
        self.world.ring.disk.capacity_bytes = None
        self.world.real_loop.run_until(lambda: not self.checkpoints and all(answer.given for answer, _ in self.waiting))
        self.collect()

    def check(self, name: str, seen: Any, head: int, acknowledged: set[int], gone: set[str]) -> None:
        known = self.known[name]
        seqs = [record[0] for record in seen.records]
        self.rows += len(seqs)
        assert seqs == sorted(set(seqs)), "no record comes twice, and all in order"
        for seq, _ts, tag, _node, data, meta in seen.records:
            assert known.written[data] == (tag, meta), "a record as it was sent"
            assert known.seqs.get(seq, data) == data, "at the seq it was given"
        assert not gone & {record[4] for record in seen.records}, "what was deleted before the last checkpoint is gone"
        lost = {seq for first, last, _why in seen.losses for seq in range(first, last + 1)}
        missing = {seq for seq in acknowledged if seq <= head} - set(seqs) - lost
        silent = sorted(seq for seq in missing if known.seqs[seq] not in known.doomed)
        assert not silent, f"missing without a word: {silent}"
        live = {record[0] for record in self.world.diff_all(name).records}
        assert not live & lost, "what lives is not told as lost"


def run(seed: int, readers: int) -> Beside:
    """Run so many readers, of which up to three have planned and not read yet; more of them beside tiny topics."""
    beside = Beside(seed)
    for _ in range(readers * (4 if beside.busy is TINY else 1)):
        try:
            for _ in range(beside.chance.choice((1, 10, 100))):
                beside.step("", "")
            beside.plan()
            if len(beside.plans) == 3 or beside.chance.random() < 0.3:
                beside.read()
        except PowerLostError:
            continue
    return beside
