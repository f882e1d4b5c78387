"""A stream of a real nats-server that is full while a bridge carries to it, and gets room then.

Goal: it is named as full, what it has is the beginning of each topic, and the rest follows, each record once.
Method: streams that refuse what is new, by each limit that there is, take less than two topics have.

    python -m tests.long.bridge.full_stream
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import topics
from tests.long.bridge.bridge_rounds import Bridge, check
from tests.long.bridge.brokers import NatsBroker
from tests.long.soak.server_client import Server
from topics.bench.processes import free_port

NUMBERS = {"jobs": 40, "orders": 100}
LIMITS: tuple[dict[str, Any], ...] = (
    {"max_msgs": 50},
    {"max_bytes": 8000},
    {"max_msgs_per_subject": 20, "discard_new_per_subject": True},
)
_WAIT_S = 600.0


def on_jetstream(broker: NatsBroker, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return what calls of JetStream return, on a connection of their own."""

    async def run() -> Any:
        import nats  # noqa: PLC0415 - an optional package

        link: Any = await nats.connect(broker.url)
        try:
            return await work(link.jetstream())
        finally:
            await link.close()

    return asyncio.run(run())


def messages(broker: NatsBroker) -> int:
    count: int = on_jetstream(broker, lambda jetstream: jetstream.stream_info("topics")).state.messages
    return count


def wait_until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    until = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < until, what()
        time.sleep(0.1)


def fill(broker: NatsBroker, url: str, directory: Path, limits: dict[str, Any]) -> int:
    """Carry to a stream with limits, and take them away. Return how many records were compared."""
    from nats.js.api import DiscardPolicy, StreamConfig  # noqa: PLC0415 - an optional package

    every = {"name": "topics", "subjects": ["topics.>"], "discard": DiscardPolicy.NEW}
    on_jetstream(broker, lambda jetstream: jetstream.add_stream(StreamConfig(**every, **limits)))
    bridge = Bridge(directory, ["--url", url, "--to", broker.url, "--topics", ",".join(NUMBERS)])
    bridge.start()
    wait_until(lambda: "since it is full or cannot store (maximum" in bridge.tail(), bridge.tail)
    assert messages(broker) < sum(NUMBERS.values())
    for name, found in broker.contents(list(NUMBERS)).items():
        assert [int(headers["topics-seq"]) for _, headers in found] == list(range(1, len(found) + 1)), name
    on_jetstream(broker, lambda jetstream: jetstream.update_stream(StreamConfig(**every, max_msgs=-1, max_bytes=-1)))
    wait_until(lambda: messages(broker) == sum(NUMBERS.values()), bridge.tail)
    bridge.stop()
    compared = check(url, broker, list(NUMBERS), NUMBERS)
    on_jetstream(broker, lambda jetstream: jetstream.delete_stream("topics"))
    return compared


def main() -> None:
    if missing := NatsBroker.missing():
        print(missing)
        return
    with tempfile.TemporaryDirectory(prefix="topics-full-") as made:
        directory = Path(made)
        broker, port = NatsBroker(directory / "nats"), free_port()
        (directory / "server").mkdir()
        server = Server(directory / "server", {"port": port}, executes=True)
        broker.start()
        server.wait_ready()
        url = f"http://127.0.0.1:{port}"
        try:
            with topics.connect(url) as log:
                for name, count in NUMBERS.items():
                    log.append(name, [{"n": number} for number in range(count)])
            for number, limits in enumerate(LIMITS):
                (directory / f"{number}").mkdir()
                compared = fill(broker, url, directory / f"{number}", limits)
                print(f"nats, out, full by {next(iter(limits))}: records {compared}", flush=True)
            server.stop()
        finally:
            broker.kill()
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()


if __name__ == "__main__":
    main()
