"""The server in this process: its composition root on the simulator's ring, clock, disk and network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.contract.world.world import Connection, World
from tests.sim import SimPausedError, SimRing
from tests.sim.world.sim_file import SimFile
from topics.config import Config, tiny_config
from topics.engine.stored_engine import StoredEngine
from topics.errors import TopicsError
from topics.http.lane.plain_writes import LaneTables
from topics.http.plan.service import Service
from topics.loop.doors.listener import Listener
from topics.loop.doors.mailbox import Mailbox
from topics.loop.loop import Loop
from topics.loop.senders import ONE_SENDER_PASSES
from topics.server.app import Server
from topics.server.cores.neighbours import Neighbours
from topics.server.cores.relays import Relays
from topics.store.cores.slot_map import SlotMap
from topics.store.disk.data_directory import lock_directory

PORT = 4000
_SETTLE_NS = 3_000_000
_PASSES_MAX = 400_000


class OnlyNeighbour(Neighbours):
    """A core that takes itself for another one, and keeps its connections."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, SlotMap.balanced(1), 0, ["/srv/mailbox"])

    def elsewhere(self, topic: str) -> int | None:
        return 0

    def join(self, service: Service, listener: Listener, tables: LaneTables | None) -> Mailbox:
        relays = self.relays = Relays(
            self._loop, service, 0, self._mailboxes, lambda _topic: None, inner=self.inner, tables=tables
        )
        return self._loop.open_mailbox(self._mailboxes[0], listener, relays.answering)

    def give(self, *_values: Any) -> bool:
        return False


class SimWorld(World):
    """One machine: lives of a server follow each other on its disk, chosen by a seed."""

    def __init__(
        self,
        seed: int = 0,
        *,
        shuffle: bool = False,
        split: bool = False,
        all_in_lane: bool = False,
        only_woken: bool = False,
        relayed: bool = False,
        one_sender_passes: int = ONE_SENDER_PASSES,
        **settings: Any,
    ) -> None:
        """all_in_lane: also a connection that is the only one with a plain request takes the lane.

        only_woken: the loop makes no pass for a client's sake, as a real one makes none.
        relayed: each request for one topic is relayed, to the server itself.
        one_sender_passes: as `Loop` has it; 0: every client has the loop to itself.
        """
        # The disk is memory; nothing is gained by log files smaller than the largest write of the
        # suite.
        usual: dict[str, Any] = {"port": PORT, "disk_low_water_bytes": 0, "disk_reserve_bytes": 0}
        # Both ways of handling plain writes get their share of the seeds.
        usual["http_lane"] = "off" if seed % 2 else "auto"
        self.config: Config = replace(tiny_config("/srv/topics"), **usual | settings)
        self.ring = SimRing(
            seed,
            shuffle=shuffle,
            split=split,
            receive_buffers=self.config.receive_buffers,
            receive_buffer_bytes=self.config.receive_buffer_bytes,
            fd_limit=4096,
        )
        self.ring.disk.make_directory("/srv")
        self.ring.disk.sync_everything()
        self.loop: Loop | None = None
        self.server: Server | None = None
        self._exit_codes: list[int] = []
        self._all_in_lane = all_in_lane
        self._only_woken = only_woken
        self._relayed = relayed
        self._one_sender_passes = one_sender_passes

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self, *, ready: bool = True, **settings: Any) -> None:
        assert self.server is None, "it runs already"
        if settings:
            self.config = replace(self.config, **settings)
        self._exit_codes = []
        self.loop = Loop(self.ring, self.ring.clock, one_sender_passes=self._one_sender_passes)
        directory = lock_directory(self.ring, self.config)
        self.server = Server(
            self.config,
            self.loop,
            partial(StoredEngine.open, directory=directory),
            on_end=self._exit_codes.append,
            neighbours=OnlyNeighbour(self.loop) if self._relayed else None,
        )
        self.server.start()
        if self._all_in_lane and self.server.lane is not None:
            self.server.lane.least = 1
        if ready:
            self.wait_until(lambda: self.server is not None and self.server.engine is not None, 60_000)
            assert self.server.engine is not None, "recovery did not end"

    def try_to_start(self) -> bool:
        """Starts on a disk that may fail; whether it got ready. When not, the process has ended."""
        try:
            self.start(ready=False)
        except (TopicsError, OSError):
            self.crash()
            return False
        self.wait_until(lambda: bool(self._exit_codes) or self.is_ready, 60_000)
        if self.is_ready:
            return True
        assert self._exit_codes == [1], "neither ready nor ended"
        self.crash()
        return False

    @property
    def is_ready(self) -> bool:
        return self.server is not None and self.server.engine is not None

    def begin_stop(self) -> None:
        assert self.server is not None
        self.server.stop()

    def finish_stop(self, within_ms: int = 15_000) -> int:
        self.wait_until(lambda: bool(self._exit_codes), within_ms)
        assert self._exit_codes, "the server did not end in time"
        assert self.loop is not None
        self.loop.close()
        self.crash()
        return self._exit_codes[0]

    def crash(self) -> None:
        self._end_life(power_cut=False)

    def power_cut(self) -> None:
        self._end_life(power_cut=True)

    def _end_life(self, *, power_cut: bool) -> None:
        self.ring = self.ring.next_life(power_cut=power_cut)
        self.loop = self.server = None

    def close(self) -> None:
        if self.server is not None:
            self.crash()

    # --- time --------------------------------------------------------------------------------------------------------
    def wait_until(self, done: Callable[[], bool], within_ms: int) -> None:
        if self.loop is None:
            self.ring.events.run_until_idle()
            return
        until_ns = self.ring.clock.monotonic_ns() + within_ms * 1_000_000
        self._run(until_ns, done)

    def settle(self) -> None:
        self._run_until_ns(self.ring.clock.monotonic_ns() + _SETTLE_NS)

    def now_ms(self) -> int:
        return self.ring.clock.now_ms()

    def advance_ms(self, milliseconds: int) -> None:
        self._run_until_ns(self.ring.clock.monotonic_ns() + milliseconds * 1_000_000)

    def advance_us(self, microseconds: int) -> None:
        """A moment, to stop the world in the middle of something."""
        self._run_until_ns(self.ring.clock.monotonic_ns() + microseconds * 1000)

    def advance_to_ms(self, instant_ms: int) -> None:
        clock = self.ring.clock
        now_ns = clock.monotonic_ns()
        ahead_ms = instant_ms - clock.now_ms()
        assert ahead_ms > 0, f"{instant_ms} is {-ahead_ms} ms ago"
        self._run_until_ns(now_ns - now_ns % 1_000_000 + ahead_ms * 1_000_000)

    def step_clock_ms(self, milliseconds: int) -> None:
        self.ring.clock.step_wall_ms(milliseconds)

    def _run_until_ns(self, instant_ns: int) -> None:
        clock = self.ring.clock
        if self.loop is None:
            self.ring.events.advance_to(instant_ns)
        elif self._only_woken:
            self._run(instant_ns, lambda: False)
        else:
            while clock.monotonic_ns() < instant_ns:
                self.loop.run_pass(instant_ns - clock.monotonic_ns())

    def _run(self, until_ns: int, done: Callable[[], bool]) -> None:
        """Run the loop until `done()` or the time has passed.

        A client's bytes are events and no completions: a wait that continued would miss their arrival, so it is left.
        """
        loop, ring = self.loop, self.ring
        assert loop is not None
        if self._only_woken:
            ring.events.at(until_ns + 1, _nothing)  # after the timers of that instant
        for _ in range(_PASSES_MAX):
            now_ns, due_ns = ring.clock.monotonic_ns(), ring.events.next_due_ns()
            if now_ns >= until_ns or done():
                return
            if self._only_woken:
                self._pass_or_pause(loop)
            else:
                loop.run_pass(until_ns - now_ns if due_ns is None else min(until_ns, max(due_ns, now_ns)) - now_ns)
        raise AssertionError("the server is busy without end")

    def _pass_or_pause(self, loop: Loop) -> None:
        self.ring.pauses = True
        try:
            loop.run_pass(None)
        except SimPausedError:
            pass
        finally:
            self.ring.pauses = False

    # --- network and disk --------------------------------------------------------------------------------------------
    def connect(self) -> Connection:
        return self.connection_type(self, self.ring.network.client(PORT))

    def fail_storage(self, kind: str, error: int, **options: Any) -> None:
        self.ring.faults.fail(kind, error, **options)

    def heal_storage(self) -> None:
        self.ring.faults.clear()

    def fill_disk(self) -> None:
        self.ring.disk.capacity_bytes = 0

    def free_disk(self) -> None:
        self.ring.disk.capacity_bytes = None

    def rot_record(self, text: bytes) -> None:
        """Flips a bit in every file that holds these bytes."""
        for path in self._files(self.config.data_dir):
            at = self.ring.file_bytes(path).find(text)
            if at >= 0:
                self.ring.corrupt_file(path, at)

    def _files(self, directory: str) -> list[str]:
        paths: list[str] = []
        for name in self.ring.disk.list_directory(directory):
            path = f"{directory}/{name}"
            paths += [path] if isinstance(self.ring.disk.find(path), SimFile) else self._files(path)
        return paths

    def rot_log_tail(self, text: bytes) -> None:
        """Flips a bit in the last bytes of the log file that holds `text`, as a torn write would."""
        logs = [path for path in self._files(f"{self.config.data_dir}/wal") if text in self.ring.file_bytes(path)]
        path = logs[-1]
        self.ring.corrupt_file(path, len(self.ring.file_bytes(path).rstrip(b"\0")) - 1)


def _nothing() -> None:
    pass
