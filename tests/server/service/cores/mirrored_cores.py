"""Two cores that clients write to, and a mirror of both on another simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from tests.http.byte_stream import Response, Wire
from tests.server.service.cores.test_archive_lives import Archived
from tests.server.service.cores.test_backup_lives import CORES, Restored, check_restored
from tests.server.service.two_cores import is_whole, request
from tests.sim import SimRing
from topics.client.archive_client import state_in
from topics.common.values.archive_state import ArchiveState
from topics.errors import NoAnswerError, StorageError, TopicsError
from topics.loop.loop import Loop
from topics.store.archive.joint_point import copy_joint, joint_points, joints_of, time_of_all
from topics.store.archive.restore_point import END
from topics.store.archive.timelines import find_timelines
from topics.store.cores.new_id import draw_new_id
from topics.store.mirror.mirror import newest_timeline
from topics.store.mirror.mirror_source import MissingPartError
from topics.store.mirror.server_mirror import ServerMirror

MIRROR = "/mirror"
_PIECE_BYTES = 8192


class HttpArchive:
    """The archive of a core, asked for over HTTP. The clients write meanwhile."""

    def __init__(self, world: Mirrored, core: int) -> None:
        self._world = world
        self._core = core

    async def state(self, upto_ms: int) -> ArchiveState:
        self._world.stated_ms = max(self._world.stated_ms, upto_ms)
        found = state_in(self._asked("/v0/archive", mirror="cellar", upto_ms=upto_ms))
        return found._replace(timeline="") if self._core in self._world.empty else found

    async def piece(self, timeline: str, path: str, offset: int, most: int) -> bytes:
        self._world.mirror_ring.clock.advance_ns(self._world.piece_ms * 1_000_000)
        return self._asked("/v0/archive/file", timeline=timeline, path=path, offset=offset, bytes=most)

    def _asked(self, route: str, /, **query: Any) -> bytes:
        self._world.asked[self._core] += 1
        if self._core in self._world.away:
            if self._world.is_silent:
                self._world.mirror_ring.clock.advance_ns(1_000_000_000)
            raise self._world.fails_with(f"core {self._core} does not answer")
        answer = self._world.get(f"{route}?{urlencode({'core': self._core, **query})}")
        if answer.status == 404:
            raise MissingPartError(query)
        if answer.status == 503:
            raise NoAnswerError(answer.body.decode())
        assert answer.status == 200, answer
        return answer.body


class Promoted(Restored):
    """Servers on a directory that was made of the mirror. After a power cut topics leave out seqs."""

    def data(self, topic: str, core: int) -> list[Any]:
        """The records of a topic. core: that of the connection."""
        found: list[Any] = []
        from_seq, caught_up = 0, False
        while not caught_up:
            body = {"limit": 1000, "from_seq": from_seq}
            page = self.ask(self.connect(core), request("POST", f"/v0/topics/{topic}/diff", body)).json
            if "records" not in page:
                return []
            found += [record["data"] for record in page["records"]]
            from_seq, caught_up = page["next_from_seq"], page["caught_up"]
        return found


class Mirrored(Archived):
    """The servers, and the mirror. `away`: cores that do not answer it."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.is_quiet = False
        """Whether the clients write nothing."""
        super().__init__(seed, **settings)
        self.away: set[int] = set()
        self.fails_with: Callable[[str], TopicsError] = NoAnswerError
        """Makes the error of a core that is away, of its sentence."""
        self.is_silent = False
        """Whether that takes a second each time."""
        self.piece_ms = 0
        """How long a piece of a file takes by the clock of the mirror."""
        self.empty: set[int] = set()
        """Cores whose archive is not there yet after a start."""
        self.asked = [0] * CORES
        """Requests of the mirror, by core."""
        self.dies = -1
        """The core that may be killed while the mirror asks."""
        self.stated_ms = 0
        """The newest time that the mirror has stated."""
        self.mirror_ring = SimRing(seed + 1_000_000)
        self.open()

    def open(self, timeline: str = "") -> None:
        """Begin the process of the mirror."""
        self.mirror_loop = Loop(self.mirror_ring, self.mirror_ring.clock)
        self.mirror = ServerMirror(self.mirror_loop, self.source_of, MIRROR, piece_bytes=_PIECE_BYTES)
        self.mirror_loop.run_task(self.mirror.open(timeline))

    def act(self) -> None:
        if not self.is_quiet:
            super().act()

    def end_all(self) -> None:
        """End the servers, without a power cut."""
        self.rings = [ring.next_life(power_cut=False) for ring in self.rings]

    def start_all(self) -> None:
        for core in range(CORES):
            self._start(core)
        self.run(lambda: self.is_ready)

    def source_of(self, core: int) -> HttpArchive:
        return HttpArchive(self, core)

    def get(self, path: str) -> Response:
        """Ask for something over a connection of its own. Raises: NoAnswerError, it ended before."""
        try:
            tcp = self.rings[0].network.client(self.port)
        except ConnectionRefusedError:
            raise NoAnswerError("no server") from None
        wire = Wire()
        tcp.send(request("GET", path, {}, "Connection: close"))

        def came() -> bool:
            self.act()
            wire.sent += tcp.receive()
            return is_whole(wire.sent) or tcp.ended

        self.run(came, self.dies)
        tcp.close()
        if not is_whole(wire.sent):
            raise NoAnswerError("the connection ended")
        (response,) = wire.take()
        return response

    def shown_lag_ms(self) -> int:
        """The largest lag of the mirror in the metrics of a core."""
        lags = [lag for server in self.servers if server.engine for _, lag in server.engine.archive.mirror_lags_ms()]
        return max(lags)

    def step(self) -> bool:
        """Make a step of the mirror, and return whether it knows of more. What it states is there from then on."""
        try:
            return self.mirror_loop.run_task(self.mirror.step(5 * CORES // 2))
        finally:
            self.stated_ms = max(self.stated_ms, self.mirror.end.upto_ms)

    def catch_up(self) -> None:
        """Follow until all that is written by now is in the mirror."""
        until_ms = self.now_ms
        for _ in range(400):
            try:
                self.step()
            except (NoAnswerError, StorageError):
                self.run(lambda: self.is_ready)
            if self.mirror.end.upto_ms >= until_ms and not self.mirror.end.waits_for:
                return
            self.write_on(5)
        raise AssertionError(f"the mirror does not go on: {self.mirror.end}")

    def write_on(self, ms: int) -> None:
        """Have the clients write for some time."""
        until_ms = self.now_ms + ms

        def is_over() -> bool:
            self.act()
            return self.now_ms >= until_ms

        self.run(is_over, self.dies)

    def fill(self, files: int) -> None:
        """Have core 0 archive so many more files of log, which have large records."""
        until = self.log_file + files
        while self.log_file < until:
            body = {"records": [{"data": "x" * 20_000}]}
            answer = self.ask(self.connect(0), request("POST", f"/v0/topics/{self.topic_of(0, 'large')}", body))
            assert answer.status in {200, 201}, answer
            self.write_on(1)

    @property
    def log_file(self) -> int:
        """The number of the last file of the log of core 0 in the archive."""
        engine = self.servers[0].engine
        state = engine.archive.state if engine is not None else None
        assert state is not None
        return state.shards[0].file

    def killed_after(self, passes: int, *, power_cut: bool) -> int:
        """End the mirror after so many passes of its loop at most; return how many it made."""

        async def follow() -> None:
            while True:
                try:
                    await self.mirror.step(5)
                except (TopicsError, OSError):
                    return
                self.write_on(5)

        task, made = self.mirror_loop.spawn(follow(), "mirror"), 0
        while made < passes and not task.done:
            self.mirror_loop.run_pass(None)
            made += 1
        self.mirror_ring = self.mirror_ring.next_life(power_cut=power_cut)
        return made

    def check_promoted(self) -> int:
        """Compare what a promotion gives with what was acknowledged by its time; return that."""
        ring = SimRing(1, disk=self.mirror_ring.disk.copy())
        loop = Loop(ring, ring.clock)
        path = loop.run_task(newest_timeline(loop, MIRROR))
        joints = loop.run_task(joints_of(loop, loop.run_task(find_timelines(loop, path))))
        joint, at_ms, _, _ = time_of_all(path, joints, END)
        assert at_ms >= self.stated_ms, "it is less than what the mirror had"
        points = loop.run_task(joint_points(loop, joint, at_ms))
        loop.run_task(copy_joint(loop, joint, points, "/restored"))
        loop.run_task(draw_new_id(loop, "/restored"))
        before = [moment for moment in self.moments if moment.at_ms < at_ms]
        chain, written = (before[-1].chain, before[-1].written) if before else (0, [0] * len(self.servers))
        check_restored(self, Promoted(ring.kill()), chain, written)
        return at_ms
