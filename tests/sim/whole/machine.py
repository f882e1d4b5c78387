"""One simulated machine and the lives of the server on it: started, crashed at any completion, started again."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from tests.sim import SimRing, SimStoppedError
from tests.sim.whole.calm import Calm
from tests.sim.whole.clients.http_client import Wire
from tests.sim.whole.monitors.changes import Changes
from tests.sim.whole.monitors.claims import claimed_too_much, unsynced_too_much
from tests.sim.whole.monitors.listed import find
from tests.sim.whole.monitors.monitor import Monitor
from tests.sim.whole.monitors.numbers import Numbers
from tests.sim.whole.monitors.watched_process import Served
from tests.sim.whole.seed_plan import COLD, LONGEST_SHORT_LOG, PORT, Faulty, Plan, PlannedFault
from tests.sim.world.faults import AGAIN
from tests.sim.world.sim_file import SimFile
from topics import errors
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.errors import TopicsError
from topics.loop.loop import Loop
from topics.server.app import Server
from topics.store.disk import disk_space
from topics.store.disk.data_directory import lock_directory
from topics.store.recovery.session_note import SessionNote

FDS_MAX = 4096
PASSES_MAX = 120_000
"""The most passes of a wait. A long poll of five seconds takes 33,000, with a checkpoint every few
milliseconds.
"""
_TOLD_NS = 5_000_000
"""After this time the server has seen a completion."""
_NOTED_NS = 30_000_000
"""After this time a small file has been written, if syncs are not late."""
_ANSWER_NS_MAX = 20_000_000_000
_HEALED_NS = 30_000_000
"""Longer than a server takes to continue once it has noticed free space, and than a checkpoint takes
that began without space, if syncs are not late."""
_SOON_NS = 3_000_000
"""A server that checks for space at least this often is expected to notice it."""
_SEEN_OPERATIONS = 20
_SEEN_NS = 100_000_000
LOOK_EVERY_PASSES = 16
_SMALL_SOCKET_BYTES = 8192
_COPIED = ("/seg-", "/pack-", "/snapshot-")
"""Parts of the paths of files that a checkpoint writes."""
Answer = tuple[int, Any]
Audit = Generator[tuple[str, str, dict[str, Any] | None], Answer, None]


class Wrong(AssertionError):
    """The server broke a promise."""


class Actor(Protocol):
    """Clients with a view of their own. All of it happens within events of the simulated network."""

    def go(self) -> None:
        """Begin: the server serves."""

    def pause(self) -> None:
        """Send nothing new; requests in flight may be answered."""

    @property
    def idle(self) -> bool:
        """Return whether no request is in flight."""

    def crashed(self) -> None:
        """Note that machine or process has ended: requests in flight will not be answered."""

    @property
    def knows_no_starts(self) -> bool:
        """Return whether a kill of a process, and another start, changes nothing for it but that
        requests are not answered.
        """

    def paths(self) -> list[str]:
        """Return the URL paths of the topics that the machine knows."""

    def audits(self) -> list[Audit]:
        """Read everything back after a start, and settle what the crash has left."""

    def audits_at(self, is_there: Callable[[str], bool]) -> list[Audit]:
        """Return the audits of the topics with these paths: their core was started again."""

    def asked_beside(self, is_there: Callable[[str], bool]) -> list[str]:
        """Return the names of topics elsewhere that these audits read."""


class _Complaints(logging.Handler):
    """The errors that the server logs, for runs in which none may go unnoticed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.bugs: list[str] = []
        self.say: Callable[[str], None] = _silent

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.say(text)
        if "unhandled exception" in text or "bug of ours" in text:
            error = record.exc_info[1] if record.exc_info else None
            self.bugs.append(f"{text}: {error!r}")
            _raise_later.append(error)


def _silent(_line: str) -> None:
    pass


def _nothing(*_told: object) -> None:
    pass


_raise_later: list[BaseException | None] = []
_complaints = _Complaints()
_logger = logging.getLogger("topics")
_logger.addHandler(_complaints)
_logger.propagate = False


class Machine:
    """The machine of one seed. `say` gets the lines of the trace, if there is one."""

    last_words: Collection[str] = ("server_shutting_down",)
    """Codes of errors that announce the end of a WebSocket."""
    has_cores = False
    """Whether its server may have several cores."""
    has_calls = False
    """Whether clients call the library, which has calls that no request stands for."""

    def __init__(self, plan: Plan, say: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.meanwhile_ns = 0
        """Time in which calls of a library have paused for others, or a core had no CPU, as the simulator
        chose.
        """
        self._say = say
        self.tracing = say is not None
        self.ring = SimRing(plan.seed, shuffle=True, split=plan.split, fd_limit=FDS_MAX, **plan.ring_options)
        if plan.stall_ns:
            self.ring.network.socket_buffer_bytes = _SMALL_SOCKET_BYTES
        self.ring.faults.on_end = lambda: self.stop_after(1)
        self.ring.disk.capacity_bytes = None
        self.ring.disk.make_directory("/srv")
        self.ring.disk.sync_everything()
        self.calm = Calm(self.ring.clock, self.counts)
        self.monitor = Monitor(self)
        self.numbers = Numbers(self)
        self.changes = Changes(self)
        self.loop: Loop | None = None
        self.server: Server | None = None
        self.config: Config = plan.config(0)
        self.power_failed = False
        """Whether the power was cut since the last audit: below `fsync` acknowledged records may be
        lost.
        """
        self.may_forget = False
        """Whether, since the last audit, a process was killed that could not note a failed sync of
        its log.
        """
        self.may_skip = False
        """Whether, since the last audit, a start had to rely on reservations: seqs may be skipped,
        which is reported.
        """
        self.stopping = False
        """Whether this life began to end by itself."""
        self.stopped = False
        """Whether this life has ended by itself."""
        self.stopped_well = False
        """Whether it has also reported, rightly, that nothing is lost (R-DUR-3)."""
        self._excused = False
        self._failures_audited = self._failures_at_start = 0
        """Number of the failed operations before the last audit, and before the last start."""
        self._has_reserve = False
        """Whether the space reserved for a full disk was there when the process was started."""
        self._shards_served = 0
        """Number of shards of the last start that served; another number needs more space than the
        reserve.
        """
        self._lost_to_lies = False
        self.space_was_scarce = False
        self.writes_lack_space = False
        """Whether writes of this process meet ENOSPC or EDQUOT now and then."""
        """Whether the disk was or is full in this life."""
        self._sound_ns = 0
        """Time from which a full disk is no excuse any more; 0: it stays full."""
        self._failed_while_full = 0
        """Requests of this life answered until then."""
        self.descriptors_are_few = False
        self.is_interrupted = False
        """Whether signals end writes of the log again and again, or an open finds no descriptor: no
        failure, but a file may be late by a second.
        """
        self.ended: list[int] = []
        self.operations = 0
        """Requests of clients answered in this life."""
        self.on_changed: list[Callable[[str, int | None], None]] = []
        """Called after each change of a topic that its owner has the answer to: with its name and
        head (None: it is deleted).
        """
        self.on_serving: Callable[[], object] = _nothing
        self.on_end: Callable[[bool], object] = _nothing
        """Called when a start has succeeded, and at each kill or (True) power cut, before anything
        is lost.
        """
        self._faulty = Faulty()
        self.generation = 0
        self.found: Wrong | None = None
        """The first fault that was found; the server may have taken it for an error of its own."""
        _complaints.bugs.clear()
        errors._logged = ""  # so that each trace says it
        _complaints.say = _silent if say is None else lambda text: self.say("SERVER:", text)
        _raise_later.clear()

    # --- telling -----------------------------------------------------------------------------------------------------
    def say(self, *parts: object) -> None:
        if self._say is not None:
            now_us = self.ring.clock.monotonic_ns() / 1000
            self._say(f"{now_us:12.1f}us life {self.ring.life}  " + " ".join(str(part) for part in parts))

    def wrong(self, text: str) -> Wrong:
        self.say("WRONG:", text)
        self.found = self.found or Wrong(text)
        return self.found

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self) -> bool:
        """Start a server and wait until it serves. Return False if it refused to start.

        Only a disk that fails then, or has answered a sync without syncing, excuses that.
        """
        self.generation += 1
        self.operations = 0
        self.ended = []
        self.stopping = self.stopped = self.stopped_well = False
        self._failures_at_start = len(self.ring.faults.failures)
        self.config = self.plan.config(self.ring.life)
        self._has_reserve = self._has_reserves()
        if self.tracing:
            self.say("START", self.plan.differences(self.config))
        if not self._open():
            return False
        self.on_serving()
        for process in self.processes:
            self._note_start(process)
        self._shards_served = self.config.wal_shards
        return True

    @property
    def processes(self) -> Sequence[Served]:
        """Return the processes that serve, or begin to."""
        return (self,)

    @property
    def rings(self) -> Sequence[SimRing]:
        """Return the rings of all processes."""
        return (self.ring,)

    def home(self, _topic: str) -> Served:
        """Return the process that owns a topic."""
        return self

    def name_of(self, topic: str) -> str:
        """Return the name that a topic has in this run."""
        return topic

    def dead_letters_of(self, queue: str) -> str:
        """Return the name of the topic for the dead letters of a queue."""
        return f"{queue}-dead"

    def are_apart(self, topic: str, other: str) -> bool:
        """Return whether two topics are on two cores."""
        return self.home(topic) is not self.home(other)

    def life_of(self, _topic: str) -> int:
        """Return a number of the life of the process that has a topic."""
        return self.ring.life

    def _note_start(self, process: Served) -> None:
        """Note that a process has recovered."""
        self.calm.count_streaks(process.engine)
        if not self._excused:
            process.numbers.started(process.engine)
            process.changes.started()

    def _has_reserves(self) -> bool:
        """Return whether there is the space reserved for a full disk."""
        return self._finds_reserve(self.config)

    def _finds_reserve(self, config: Config) -> bool:
        reserve = find(self.ring.disk.root, f"{config.data_dir}/reserve", durable=False)
        return isinstance(reserve, SimFile) and len(reserve.live) >= config.disk_reserve_bytes

    @property
    def effects(self) -> int:
        """Return the number of operations that have taken effect in this life."""
        return self.ring.effects

    def stop_at(self, effect: int) -> None:
        """End this life once so many operations have taken effect."""
        self.ring.stop_at(effect)

    def stop_after(self, effects: int) -> None:
        """End this life once so many more operations have taken effect."""
        self.stop_at(self.ring.effects + effects)

    def _open(self) -> bool:
        self.loop = Loop(self.ring, self.ring.clock, one_sender_passes=self.plan.one_sender_passes)
        try:
            directory = lock_directory(self.ring, self.config)
            self.server = Server(
                self.config, self.loop, partial(StoredEngine.open, directory=directory), on_end=self.ended.append
            )
            self.server.start()
        except (TopicsError, OSError) as error:
            return self._refused(str(error))
        self.run_until(lambda: bool(self.ended) or self.serves)
        return True if self.serves else self._refused("recovery failed")

    def step_wall(self, step_ms: int) -> None:
        """Move the wall clock, back or forth, between two lives."""
        if step_ms:
            self.say("CLOCK: steps by", step_ms, "ms")
            self.ring.clock.step_wall_ms(step_ms)
            self.counts["clocks set back" if step_ms < 0 else "clocks set ahead"] += 1

    def return_to_one(self) -> bool:
        """Make the directory one of one core, whose files a rebuild can read; return whether it is."""
        return True

    def is_elsewhere(self, _status: int, _answer: Any) -> bool:
        """Return whether a refusal is for another core, which one of a single core has not."""
        return False

    @property
    def serves(self) -> bool:
        return self.server is not None and self.server.engine is not None

    @property
    def lied(self) -> bool:
        """Return whether a sync was answered that was not made, and no later one has made up for
        it.
        """
        return self._lost_to_lies or bool(self.ring.faults.deceived)

    # --- what excuses ------------------------------------------------------------------------------------------------
    def excuse(self) -> None:
        """Accept any state of the disk until all was read back."""
        self._excused = True

    def forgive(self) -> None:
        """Note that everything was read back: earlier failures are no excuse any more."""
        self.power_failed = self.may_forget = self.may_skip = self._excused = False
        self._failures_audited = len(self.ring.faults.failures)

    @property
    def disk_failed(self) -> bool:
        """Return whether an operation on the disk failed since the last audit: requests may fail,
        and seqs may be skipped.
        """
        failures = self.ring.faults.failures[self._failures_audited :]
        return self._excused or any(kind in _DISK_KINDS for kind, _path in failures)

    @property
    def io_failed(self) -> bool:
        """Return whether a sync of the log failed since the last audit.

        Acknowledged records below `fsync` may be lost then, and that is reported. Copies that a
        checkpoint could not sync are still in the log.
        """
        failures = self.ring.faults.failures[self._failures_audited :]
        return self._excused or any(kind == "sync" and "/wal-" in path for kind, path in failures)

    def waited_ns(self) -> int:
        """Return the monotonic time without the pauses that the simulator chose."""
        return self.ring.clock.monotonic_ns() - self.meanwhile_ns

    @property
    def log_is_short(self) -> bool:
        """Return whether appends may be refused for the log's length (R-LOG-2); smaller changes are
        accepted.
        """
        return 0 < self.config.max_log_bytes <= LONGEST_SHORT_LOG

    @property
    def disk_is_sound(self) -> bool:
        """Return whether nothing has failed in this life, and there is space, and has been for a
        while.
        """
        if self.space_was_scarce and (self.ring.clock.monotonic_ns() < self._sound_ns or self.descriptors_are_few):
            return False  # without a descriptor there is no new reserve
        return not self.disk_failed and self.ring.disk.capacity_bytes is None

    @property
    def log_was_long(self) -> bool:
        """Return whether this process has refused appends for the log's length (R-LOG-2): routers
        stood still.
        """
        engines = [process.engine for process in self.processes]
        return any(engine is not None and engine.stats().log_refusals > 0 for engine in engines)

    @property
    def lacks_nothing(self) -> bool:
        """Return whether, besides, there are descriptors: no request may fail."""
        return self.disk_is_sound and not self.descriptors_are_few

    @property
    def may_stand_still(self) -> bool:
        """Return whether clients may get nothing done, for all of this life."""
        return self.descriptors_are_few

    standing_still_ns = 6_000_000_000
    """The length of a life in which nothing may be possible."""

    def _refused(self, reason: str) -> bool:
        failures = self.ring.faults.failures[self._failures_at_start :]
        may_lack_space = not self._has_reserve or self.config.wal_shards != self._shards_served
        may_lack_space |= self.config.wal_shards > 1  # each takes a file out of the reserve
        may_lack_space |= any(len(file.live) > self.config.wal_file_bytes for _path, file in self.monitor.log_files())
        lacks_room = self.descriptors_are_few or (self.space_was_scarce and may_lack_space)
        failed = any(kind in _DISK_KINDS for kind, _path in failures)
        if not (self._excused or lacks_room or failed):
            raise self.wrong(f"the server refused to start on a sound disk: {reason}")
        self.say("REFUSED to start:", reason)
        return False

    def run_until(self, done: Callable[[], bool]) -> None:
        """Run passes of the loop until `done`. Raises: SimStoppedError, at the planned crash."""
        loop = self.loop
        assert loop is not None
        run_pass = loop.run_pass
        for number in range(1, PASSES_MAX):
            if done():
                self._check_complaints()
                return
            run_pass(None)
            if not number % LOOK_EVERY_PASSES:
                self.look()
        raise self.wrong("the server is busy without end")

    def _check_complaints(self) -> None:
        if _complaints.bugs:
            raise self.wrong(_complaints.bugs[0]) from _raise_later[0]

    @property
    def opened(self) -> Any:
        """The engine and its store; None until recovery has ended."""
        return self.server._backend if self.server is not None else None

    @property
    def engine(self) -> Any:
        return self.opened.engine if self.opened is not None else None

    def look(self) -> None:
        """Check what must hold at any time."""
        for process in self.processes:
            self._look_at(process)

    def _look_at(self, process: Served) -> None:
        if process.ring.failed_syncs:
            self._check_latched(process)
        engine = process.engine
        if engine is not None and not self.lied:
            process.numbers.look(engine)
            process.changes.look(engine._core)
            if problem := claimed_too_much(self.ring.disk.root, engine._core.log):
                raise self.wrong(f"the log takes for synced {problem}")
            if problem := unsynced_too_much(engine._core.log):
                raise self.wrong(f"of {self.config.max_unsynced_bytes} that may be, {problem}")

    def _check_latched(self, process: Served) -> None:
        """Check that after a failed sync of the log, or of a checkpoint's copies, the log accepts
        no writes.
        """
        engine = process.engine
        if engine is None or process.ended or engine._core.log.read_only:
            return
        now_ns = self.ring.clock.monotonic_ns()
        for at_ns, path in process.ring.failed_syncs:
            if path.endswith(".tmp") and path.startswith(f"{COLD}/"):
                continue  # a copy that is not listed yet: the original exists, and nothing is moved any more
            in_log = "/wal-" in path
            told_ns = _TOLD_NS if in_log else _NOTED_NS * self.ring.sync_factor
            if process.ring.completions_max:  # a checkpoint syncs many files side by side, and waits for all
                told_ns *= 10
            if at_ns < now_ns - told_ns and (in_log or any(part in path for part in _COPIED)):
                raise self.wrong(f"a sync of {path} failed, and the log continues")

    def _check_noted(self, process: Served, *, power_cut: bool) -> None:
        """Check that a process which knows of a failed sync of its log notes that, for later
        readers of it (R-DUR-6).

        Only a kill at once, or a disk that accepts no note either, leaves no trace of the failure.
        """
        now_ns = self.ring.clock.monotonic_ns()
        failed_ns = [at_ns for at_ns, path in process.ring.failed_syncs if "/wal-" in path]
        if not failed_ns or power_cut or self.lied or self.is_noted(process.config.data_dir):
            return
        failures = self.ring.faults.failures[self._failures_at_start :]
        takes_none = any("/session" in path or path == process.config.data_dir for _kind, path in failures)
        takes_none |= self.descriptors_are_few or self.space_was_scarce
        at_once = now_ns - failed_ns[0] < _NOTED_NS * self.ring.sync_factor and not self.stopped
        if not takes_none and not at_once:
            raise self.wrong(
                f"a sync of the log failed {(now_ns - failed_ns[0]) / 1e6:.1f} ms ago, and it was not noted"
            )
        self.may_forget = True
        self.counts["failed syncs that nobody could note"] += 1

    def _check_reserve(self, process: Served) -> None:
        """Check that a server which accepts appends has reserved space for the changes that free
        some (R-DUR-16).
        """
        if process.engine is None or process.ended or self.disk_failed or self.descriptors_are_few:
            return
        has_reserve = not process.config.disk_reserve_bytes or self._finds_reserve(process.config)
        if not has_reserve and not process.engine._core.log.disk_full:
            raise self.wrong("appends continue, and there is no reserve")

    @property
    def data_dirs(self) -> Sequence[str]:
        """Return the directories that a process may have opened in this life."""
        return (self.config.data_dir,)

    def is_noted(self, data_dir: str) -> bool:
        """Return whether a process has noted that a write or sync of its log has failed.

        A note that was cut short says nothing, as it does to the next start (`read_session`).
        """
        node = find(self.ring.disk.root, f"{data_dir}/session", durable=False)
        try:
            return isinstance(node, SimFile) and not msgspec.json.decode(node.live, type=SessionNote).boot
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False

    def crash(self, *, power_cut: bool) -> None:
        """End the process; with `power_cut` the machine, too."""
        self._check_complaints()
        self.look()
        for process in self.processes:
            self._check_reserve(process)
            self.counts["logs that failed syncs have latched"] += bool(process.ring.failed_syncs)
            self._check_noted(process, power_cut=power_cut)
        self.on_end(power_cut)
        self.say("POWER CUT" if power_cut else "KILL", f"after {self.effects} operations")
        self.counts["power cuts" if power_cut else "kills"] += 1
        self.generation += 1
        self.power_failed |= power_cut and not self.stopped_well
        self.counts["power cuts after a graceful stop"] += power_cut and self.stopped_well
        self.ring.faults.clear()
        self.descriptors_are_few = self.is_interrupted = self.space_was_scarce = False  # with the process
        self.writes_lack_space = False
        self._sound_ns = 0
        if power_cut:
            self.counts["lies made up for before a power cut"] += self.ring.faults.lies > 0 and not self.lied
            self._lost_to_lies |= self.lied
        self.ring.disk.capacity_bytes = None
        self._end_processes(power_cut=power_cut)
        # An operation in flight at the kill may have been done: the note, too.
        has_noted = any(self.is_noted(data_dir) for data_dir in self.data_dirs)
        self.may_skip |= (power_cut and not self.stopped_well) or self._excused or has_noted

    def _end_processes(self, *, power_cut: bool) -> None:
        self.ring = self.ring.next_life(power_cut=power_cut)
        self.monitor.next_life()
        self.loop = self.server = None

    def stop(self) -> None:
        """Stop the server gracefully, to its end."""
        assert self.server is not None
        self.stopping = True
        self.server.stop()
        self.run_until(lambda: bool(self.ended))
        self.stopped = True
        self.stopped_well = self.lacks_nothing and not self.lied
        if self.ended != [0] and self.lacks_nothing:
            raise self.wrong(f"a graceful stop ended with {self.ended}")
        self.say("STOPPED", self.ended)
        self.counts["graceful stops"] += 1

    def go(self, actors: list[Actor]) -> None:
        """Let clients begin."""
        for actor in actors:
            actor.go()

    def settle(self, actors: list[Actor]) -> None:
        """Wait until all requests are answered, whatever faults are planned."""
        until_ns = self.ring.clock.monotonic_ns() + _ANSWER_NS_MAX
        for actor in actors:
            actor.pause()
        self.run_until(lambda: all(a.idle for a in actors) or self.ring.clock.monotonic_ns() > until_ns)
        if not all(actor.idle for actor in actors):
            raise self.wrong(f"requests are not answered in {_ANSWER_NS_MAX / 1e9:.0f} s")
        over: list[int] = []
        wire = self.connect(lambda: over.append(0))
        if wire is not None:
            wire.ask("GET", "/v0/health", None, lambda status, _answer: over.append(status))
            self.run_until(lambda: bool(over) or self.ring.clock.monotonic_ns() > until_ns)
            if not over:
                raise self.wrong("a new connection is not served")
            wire.reset()
        self.counts["lives in which all was answered"] += 1

    def connect(self, on_lost: Callable[[], None], *, may_stall: bool = False) -> Wire | None:
        try:
            return Wire(self.ring.network, PORT, on_lost, self.plan.stall_ns if may_stall else 0)
        except OSError:
            return None

    # --- faults ------------------------------------------------------------------------------------------------------
    def arm(self, faulty: Faulty) -> None:
        """Plan the faults of this life."""
        faults = self.ring.faults
        self.lay(faulty.plans)
        self.descriptors_are_few = bool(faulty.descriptors)
        self.is_interrupted = any(fault.error in (*AGAIN, errno.EMFILE) for fault in faulty.plans)
        self.writes_lack_space = any(fault.error in (errno.ENOSPC, errno.EDQUOT) for fault in faulty.plans)
        if faulty.descriptors or faulty.completions_max:
            self.say(f"LIMITS: {faulty.descriptors} more descriptors, completions {faulty.completions_max} (0: any)")
        self._faulty = faulty
        for ring in self.rings:
            ring.fd_limit = len(ring.open_fds) + faulty.descriptors if faulty.descriptors else FDS_MAX
            self.arm_ring(ring)
        if faulty.space_bytes is not None:
            self.say("DISK: space for", faulty.space_bytes, "more bytes")
            self.ring.disk.capacity_bytes = self.ring.disk.used_bytes + faulty.space_bytes
            self.space_was_scarce = True
            if faulty.space_back_ns:
                self._heal_after(faulty.space_back_ns)
        self.counts["lives with late syncs"] += faulty.sync_factor > 1
        if faulty.lies is not None:
            self.say(f"LIES: from sync {faulty.lies[0]} on, {faulty.lies[1]} of them")
            faults.lie(nth=faulty.lies[0], times=faulty.lies[1])

    def arm_ring(self, ring: SimRing) -> None:
        """Give the ring of a process the limits of this life."""
        ring.completions_max = self._faulty.completions_max
        ring.sync_factor = self._faulty.sync_factor

    def _heal_after(self, delay_ns: int) -> None:
        generation, now_ns = self.generation, self.ring.clock.monotonic_ns()
        self._sound_ns = now_ns + delay_ns + 3 * disk_space._CHECK_NS + _HEALED_NS * self.ring.sync_factor

        def heal() -> None:
            if generation == self.generation:
                self.say("DISK: there is space again")
                self.ring.disk.capacity_bytes = None
                self.counts["full disks with space again"] += 1

        self.ring.events.after(delay_ns, heal)

    @property
    def awaits_space(self) -> bool:
        """Return whether a full disk has or will have space again, and no request has succeeded
        since.
        """
        if not self._sound_ns or disk_space._CHECK_NS > _SOON_NS or self.ring.sync_factor > 1:  # else it takes too long
            return False
        now_ns = self.ring.clock.monotonic_ns()
        if now_ns < self._sound_ns:
            self._failed_while_full = self.operations
            return True
        return self.operations < self._failed_while_full + _SEEN_OPERATIONS and now_ns < self._sound_ns + _SEEN_NS

    def lay(self, plans: Iterable[PlannedFault]) -> None:
        """Plan some faults."""
        faults = self.ring.faults
        for fault in plans:
            self.say("FAULT in wait:", fault)
            if fault.ends:
                faults.end(fault.kind, nth=fault.nth, file=fault.file)
            elif fault.keep is not None:
                faults.shorten(fault.kind, fault.keep, nth=fault.nth, times=fault.times, path_part=fault.path_part)
            else:
                faults.fail(
                    fault.kind,
                    fault.error,
                    nth=fault.nth,
                    times=fault.times,
                    path_part=fault.path_part,
                    file=fault.file,
                )

    # --- audits ------------------------------------------------------------------------------------------------------
    def audit(self, actors: list[Actor]) -> None:
        """Run the audits of the clients."""
        self._converse([audit for actor in actors for audit in actor.audits()])
        self.counts["audits"] += 1

    def survey(self, actors: list[Actor]) -> list[Any]:
        """Return the server's state of every topic, without times.

        Delays end with the clock, so jobs that wait for that are counted as ready.
        """
        said = self._converse([_survey(path) for actor in actors for path in actor.paths()])
        for _status, answer in said:
            queue = answer.get("queue") if isinstance(answer, dict) else None
            if queue is not None:
                queue["ready"] += queue.pop("delayed", 0)
        return said

    def _converse(self, scripts: list[Audit]) -> list[Any]:
        """Run scripts side by side on one connection, which answers in order. Return all answers."""
        talk = self.talk(scripts)
        self.run_until(lambda: talk.is_over)
        talk.end()
        return talk.said

    def talk(self, scripts: list[Audit]) -> Conversation:
        """Begin scripts side by side on one connection."""
        return Conversation(self, scripts, self.connect)


class Conversation:
    """Scripts side by side on one connection, which answers in order."""

    def __init__(
        self, machine: Machine, scripts: list[Audit], connect: Callable[[Callable[[], None]], Wire | None]
    ) -> None:
        self.said: list[Any] = []
        """All answers."""
        self._machine = machine
        self._talking = 0
        self._lost: list[bool] = []
        wire = connect(lambda: self._lost.append(True))
        assert wire is not None, "a server that serves takes connections"
        self._wire = wire
        for script in scripts:
            self._talking += 1
            self._step(script, None)

    @property
    def is_over(self) -> bool:
        return not self._talking or bool(self._lost)

    def end(self) -> None:
        """End the connection. Raises: Wrong, the server has ended it."""
        if self._lost:
            raise self._machine.wrong("the connection of the audit was lost")
        self._wire.reset()

    def forget(self) -> None:
        """Forget the scripts: the server has gone."""
        self._wire.forget()

    def _step(self, script: Audit, answer: Answer | None) -> None:
        try:
            request = next(script) if answer is None else script.send(answer)
        except StopIteration:
            self._talking -= 1
        else:
            self._wire.ask(*request, lambda status, answer: self._answered(script, status, answer))

    def _answered(self, script: Audit, status: int, answer: Any) -> None:
        if status == 0:
            return
        if isinstance(answer, dict):
            for name in _TIMES:
                answer.pop(name, None)
        self.said.append((status, answer))
        self._step(script, (status, answer))


def _survey(path: str) -> Audit:
    status, answer = yield "GET", f"{path}?touch=false", None
    if status == 200 and answer["config"].get("leases_durable"):
        del answer["queue"]  # leases end with time
    cursor, caught_up = 0, status != 200
    while not caught_up:
        status, answer = yield "POST", f"{path}/diff", {"from_seq": cursor, "limit": 1000, "include_tags": True}
        cursor, caught_up = answer.get("next_from_seq", 0), answer.get("caught_up", True)


_TIMES = ("performance", "effective_priority", "last_write_ts", "last_read_ts")
_DISK_KINDS = {"open", "close", "read", "write", "sync", "rename", "unlink"}
_DISK_KINDS |= {"make_directory", "remove_directory", "link", "list_directory", "file_size", "lock", "allocate"}
__all__ = ["Actor", "Answer", "Audit", "Machine", "SimStoppedError", "Wrong"]
