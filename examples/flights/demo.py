"""The whole story: load, kill -9 in the middle, resume, compare, delete a route, kill again, compare again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import topics
from examples.flights import steps
from examples.flights.data import Flight

KILL_AFTER_RECORDS = 200_000


class OwnServer:
    """`topics serve` on a free port over one directory; may be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        port_file = self._directory / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "topics", "serve", "--port", "0", "--port-file", str(port_file)]
        command += ["--data-dir", str(self._directory / "data"), "--log-level", "warning"]
        process = subprocess.Popen(command)
        while not port_file.exists():
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}")
            time.sleep(0.01)
        self.url = f"http://{port_file.read_text()}"
        return process

    def connect(self, timeout: float = 60) -> topics.Client:
        """A client, which waits so many seconds for a server that still starts."""
        return topics.connect(self.url, timeout=timeout)

    def kill(self) -> None:
        """kill -9: no goodbye, nothing flushed."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        self.process = self._start()


def kill_in_the_middle(server: OwnServer) -> None:
    """Watches the topic of all flights and kills the server once enough of them are in."""
    with server.connect() as client:
        while not (found := client.topics(steps.ALL)) or found[0].head_seq * 2 < KILL_AFTER_RECORDS:
            time.sleep(0.02)
    server.kill()


def timed_load(client: topics.Client, flights: list[Flight]) -> str:
    """Load the flights and return a line about how many and how fast."""
    started = time.perf_counter()
    written, repeated = steps.load(client, flights)
    seconds = time.perf_counter() - started
    rate = (written + repeated) / seconds
    return f"{written:,} records written, {repeated:,} were there already: {seconds:.1f} s, {rate:,.0f} records/s"


def demo(flights: list[Flight], route: str) -> None:
    with tempfile.TemporaryDirectory(prefix="topics-flights-") as name:
        server = OwnServer(Path(name))
        try:
            killer = threading.Thread(target=kill_in_the_middle, args=(server,))
            killer.start()
            try:
                with server.connect(timeout=2) as client:
                    steps.load(client, flights)
            except topics.NoAnswerError as error:
                print(f"the server was killed while loading ({type(error).__name__}); starting it again")
            killer.join()
            server.start()
            with server.connect() as client:
                print(timed_load(client, flights))
                total = steps.compare(client, flights)
                gone = steps.forget(client, route)
            print(f"deleted route {route}: {gone:,} records")
            server.kill()
            server.start()
            with server.connect() as client:
                left = steps.compare(client, flights, without=route)
            assert gone == 2 * (total - left), "each flight lies in two topics"
            print(f"after another kill -9: {left:,} flights, none of {route}, nothing else missing")
        finally:
            server.process.terminate()
            server.process.wait(30)
