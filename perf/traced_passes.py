"""The passes of a server in this process: their times, their bytecodes, and the options of both."""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import topics
from topics.config import Config
from topics.engine.stored_engine import StoredEngine
from topics.engine.values.topic_config import make_config
from topics.loop import Loop
from topics.loop.choose import open_loop
from topics.server.app import Server

PACKAGE = Path(topics.__file__).parent

Bytecodes = Counter[tuple[str, str, bool]]
"""Bytecodes by room, function, and whether the answer was sent before."""


class Passes:
    """The times of passes, and the bytecodes of some of them."""

    def __init__(self) -> None:
        self.pause_ns = 0
        """The time between two passes."""
        self.awake = False
        """Whether the thread asks for the time in the pause, and does not sleep."""
        self.began_ns = 0
        self.is_answered = False
        self.to_answer: list[int] = []
        self.whole: list[int] = []
        self.bytecodes: Bytecodes = Counter()
        """Bytecodes of the pass in progress."""
        self.traced_passes: list[Bytecodes] = []

    def begin(self) -> None:
        if self.pause_ns and self.awake:
            until_ns = time.perf_counter_ns() + self.pause_ns
            while time.perf_counter_ns() < until_ns:
                pass
        elif self.pause_ns:
            time.sleep(self.pause_ns / 1e9)
        self.is_answered = False
        self.began_ns = time.perf_counter_ns()

    def answer(self) -> None:
        self.to_answer.append(time.perf_counter_ns() - self.began_ns)
        self.is_answered = True

    def end(self) -> None:
        if self.began_ns:
            self.whole.append(time.perf_counter_ns() - self.began_ns)
            self.began_ns = 0
            if self.bytecodes:
                self.traced_passes.append(self.bytecodes)
                self.bytecodes = Counter()

    def clear(self) -> None:
        self.to_answer.clear()
        self.whole.clear()

    # --- bytecodes -------------------------------------------------------------------------------------------------
    @contextmanager
    def traced(self) -> Iterator[None]:
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if not path.startswith(str(PACKAGE)):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        room = Path(path).relative_to(PACKAGE).parts[0]
        return partial(self._on_opcode, room, frame.f_code.co_qualname)

    def _on_opcode(self, room: str, name: str, _frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode" and self.began_ns:
            self.bytecodes[room, name, self.is_answered] += 1
        return partial(self._on_opcode, room, name)


class Effort(NamedTuple):
    """How much is measured, and how."""

    rounds: int
    passes: int
    """In each round."""
    pause_us: int
    """Between the passes of the columns `apart`."""
    awake: bool = False
    """Whether the thread asks for the time in the pauses instead of sleeping."""


def effort_options(description: str | None, *, passes: int, pause_us: int, functions: int) -> argparse.ArgumentParser:
    """Return a parser of the options that say how much is measured, with these defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=passes, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--functions", type=int, default=functions, help="print so many functions by their bytecodes")
    parser.add_argument("--pause-us", type=int, default=pause_us, help="between the passes of `apart`")
    parser.add_argument("--smoke", action="store_true")
    return parser


def effort_of(parser: argparse.ArgumentParser, options: argparse.Namespace, *, smoke: int, least: int) -> Effort:
    """Return the effort that the options name.

    smoke: passes of a smoke run, in one round. least: passes of a round.
    """
    if options.smoke:
        options.passes, options.rounds = smoke, 1
    if options.rounds < 1 or options.passes < least:
        given = f"--rounds is {options.rounds} and --passes {options.passes}"
        parser.error(f"{given}: use 1 or more rounds, and {least} or more passes")
    return Effort(options.rounds, options.passes, options.pause_us)


@contextmanager
def served(directory: str, durability: str, **settings: Any) -> Iterator[tuple[Loop, Server]]:
    """Yield a loop and a server in this process that has the topic `bench` of a class."""
    config = Config(data_dir=directory, port=0, host="127.0.0.1", spin_us="0", **settings)
    with open_loop(config) as loop:
        server = Server(config, loop, StoredEngine.open)
        server.start()
        loop.run_until(lambda: server.engine is not None)
        assert server.engine is not None
        made: list[object] = []
        server.engine.put_topic("bench", make_config(durability=durability), made.append)
        loop.run_until(lambda: bool(made))
        yield loop, server


class Client:
    """A connection whose server runs in this thread."""

    def __init__(self, loop: Loop, address: tuple[str, int]) -> None:
        self._loop = loop
        self._socket = socket.create_connection(address)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        return received(self._loop, self._socket)


def received(loop: Loop, client: socket.socket) -> bytes:
    """Return the answer to a request that was sent; the loop runs until it comes."""
    client.settimeout(0.001)
    while True:
        try:
            answer = client.recv(65536)
        except TimeoutError:
            loop.run_pass(1_000_000)
            continue
        assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 101", b"\x81")), answer
        return answer
