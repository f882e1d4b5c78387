"""The signature of a run: features, numbers that another run of the same code has or has not.

- Each block that ran, in one of four grades of frequency, and whether it did so in a start after a
  kill, in one after a power cut, or while the server served.
- At each end of a life and each fault that strikes: the steps in progress, which are the lines at
  which the tasks of the server wait, and the operations in flight by the kind of their file, each by
  itself and in pairs.
- At each end of a life: the kinds of files and directories with bytes that were not durable, and the
  same together with that of the end before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any
from zlib import crc32

from tests.sim.genome import Choices
from tests.sim.hunt.blocks import Blocks
from tests.sim.hunt.life_changes import Shape
from tests.sim.whole.genes import MOMENTS
from tests.sim.whole.library_host import LibraryMachine
from tests.sim.whole.machine import Machine
from tests.sim.world.faults import file_kind
from tests.sim.world.sim_disk import SimDirectory
from tests.sim.world.sim_file import SimFile

_GRADES = (1, 2, 3, 3, 3, 3, 3, 3)
_PHASES = ("", "kill", "cut", "serve")
_OF_TEXT = 1 << 32


class Steps:
    """Watches one run; `features` are complete once it has ended."""

    def __init__(self, blocks: Blocks | None) -> None:
        self._blocks = blocks or Blocks()
        self._is_watching = blocks is not None
        self._seen: set[int] = set()
        self.frames: set[str] = set()
        """Functions that were running at an end or a fault, and their lines."""
        self._machine: Machine | None = None
        self._history = ""
        self._at_start: list[int] = []
        self._phase = 1
        self._choices: Choices | None = None
        self._operations: Counter[str] = Counter()
        self._blocks.clear()

    def watch(self, machine: Machine, choices: Choices) -> None:
        self._machine, self._choices = machine, choices
        if not self._is_watching:
            return
        machine.on_serving = self._serving
        machine.on_end = self._ended
        machine.ring.faults.on_struck = self._struck
        machine.ring.faults.on_seen = self._operation
        self._at_start = [*self._blocks.counts]

    def shape(self) -> Shape:
        machine, choices = self._machine, self._choices
        if machine is None or choices is None:
            return Shape((), 0, 0, {})
        lives = len(machine.plan.lives)
        moments = {name: -(-count // lives) for name, count in self._operations.items()}
        return Shape(tuple(choices.names), lives, machine.counts["operations"], moments)

    def features(self) -> set[int]:
        """Return the features of the run so far."""
        for number, count in enumerate(self._blocks.counts):
            if count:
                grade = _GRADES[count] if count < len(_GRADES) else 4
                self._seen.update(number << 5 | lower for lower in range(1, grade + 1))
        return self._seen

    def _add(self, *parts: object) -> None:
        self._seen.add(_OF_TEXT | crc32("|".join(map(str, parts)).encode()))

    def _leave_phase(self, phase: int) -> None:
        """Attribute the blocks that ran since the last call to this phase."""
        seen, bits = self._seen, phase << 3
        counts = [*self._blocks.counts]
        for number, (before, after) in enumerate(zip(self._at_start, counts, strict=True)):
            if before != after:
                seen.add(number << 5 | bits)
        self._at_start = counts

    def _serving(self) -> None:
        self._leave_phase(self._phase)
        self._phase = 3

    def _ended(self, power_cut: bool) -> None:
        assert self._machine is not None
        self._leave_phase(self._phase)
        self._phase = 2 if power_cut else 1
        end = "cut" if power_cut else "kill"
        under_way = [*_under_way(self._machine)]
        self._add_frames(end, under_way)
        for step in under_way:
            self._add(end, step)
        for pair in combinations(under_way, 2):
            self._add(end, *pair)
        latent = sorted(_latent(self._machine))
        for name in latent:
            self._add(end, "latent", name)
            for step in under_way:
                self._add(end, "latent", name, step)
        state = f"{end}{latent}"
        self._add("then", self._history, state)
        self._history = state

    def _operation(self, kind: str, path: str) -> None:
        if kind in MOMENTS:
            self._operations[f"{kind} {file_kind(path)}"] += 1

    def _struck(self, kind: str, error: int, path: str) -> None:
        assert self._machine is not None
        if kind in MOMENTS:
            fault = f"{kind} {error} {file_kind(path)}"
            self._add(fault)
            under_way = [*_under_way(self._machine)]
            self._add_frames("fault", under_way)
            for step in under_way:
                self._add(fault, step)

    def _add_frames(self, event: str, under_way: list[str]) -> None:
        self.frames.update(f"{event} {frame}" for step in under_way if ">" in step for frame in step.split(">"))


def _under_way(machine: Machine) -> Iterator[str]:
    """Yield the steps in progress, each once."""
    seen: dict[str, None] = {}
    loop = machine.loop
    if isinstance(machine, LibraryMachine) and machine.log is not None:
        loop = machine.log._loop
    for task in loop._tasks if loop is not None else ():
        lines: list[str] = []
        coro: Any = task._coro
        while (frame := getattr(coro, "cr_frame", None)) is not None:
            if "/topics/loop/" not in frame.f_code.co_filename:
                code = frame.f_code
                path = code.co_filename.rpartition("/topics/")[2]
                lines.append(f"{path}:{code.co_qualname}:{frame.f_lineno - code.co_firstlineno}")
            coro = coro.cr_await
        if len(lines) > 1:  # else it waits for a request
            seen[">".join(lines)] = None
    for operation in machine.ring._core.in_flight.values():
        if operation.kind in MOMENTS:
            path = operation.handle.path if operation.handle is not None else ""
            seen[f"{operation.kind} {file_kind(path)}"] = None
    engine = machine.engine
    if engine is not None:
        log = engine._core.log
        seen |= {name: None for name in ("read_only", "disk_full") if getattr(log, name)}
    yield from sorted(seen)


def _latent(machine: Machine) -> set[str]:
    """Return the kinds of files and directories of which a power cut may take something."""
    found: set[str] = set()
    directories: list[tuple[str, SimDirectory]] = [("", machine.ring.disk.root)]
    while directories:
        path, directory = directories.pop()
        if directory.live.keys() != directory.durable.keys():
            found.add(f"{file_kind(path)}/")
        for name, node in directory.live.items():
            if isinstance(node, SimDirectory):
                directories.append((f"{path}/{name}", node))
            elif isinstance(node, SimFile) and (node.pending or node.lost):
                found.add(file_kind(f"{path}/{name}") + (" lost" if node.lost else ""))
    return found
