"""The rate of a bridge beside what the client library does by itself with the same messages.

Method: a topic of records is carried with `--once`, and the same messages, with the same keys, headers and batches, are
sent by a loop of the library; both in this process, by turns, each into a new topic or stream. The rate is that of the
whole run, its connection included.

    python -m tests.long.bridge.bridge_rate --side nats --records 200000 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import topics
from tests.long.bridge.brokers import BROKERS
from tests.long.soak.server_client import Server
from topics.bench.processes import free_port
from topics.bridge.bridge_numbers import BridgeNumbers
from topics.bridge.run_bridge import BridgeOptions, carry
from topics.clock import SystemClock

_TEXT = b'{"order":123456789,"fill":"%b"}' % (b"x" * 170)
_BATCH = 10_000
_APPEND = 1000


def bridge_options(to: str, number: int) -> BridgeOptions:
    """Return the options of one round. Each side has a name by which it makes something new."""
    plain = BridgeOptions(topics="orders", to=to, id=f"rate{number}", is_once=True)
    if to.startswith("kafka:"):
        return plain
    return replace(plain, stream=f"rate{number}", prefix=f"rate{number}.")


def bridge_seconds(url: str, to: str, number: int) -> float:
    options = bridge_options(to, number)
    began = time.perf_counter()
    with topics.connect(url) as log:
        carry(log, options, BridgeNumbers(), SystemClock(), threading.Event())
    return time.perf_counter() - began


def kafka_seconds(to: str, number: int, count: int) -> float:
    from confluent_kafka import Producer  # noqa: PLC0415 - an optional package
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    brokers = to.removeprefix("kafka://")
    began = time.perf_counter()
    admin: Any = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(f"plain{number}", 1, 1)])[f"plain{number}"].result()
    producer: Any = Producer(
        {"bootstrap.servers": brokers, "transactional.id": f"plain{number}", "linger.ms": 5, "log_level": 0}
    )
    producer.init_transactions(30)
    for first in range(0, count, _BATCH):
        producer.begin_transaction()
        for seq in range(first + 1, min(first + _BATCH, count) + 1):
            while True:
                try:
                    producer.produce(
                        f"plain{number}",
                        _TEXT,
                        key="eu",
                        timestamp=1_700_000_000_000,
                        headers=[("topics-seq", str(seq))],
                        partition=0,
                    )
                    break
                except BufferError:
                    producer.poll(1)
        producer.commit_transaction(60)
    return time.perf_counter() - began


def nats_seconds(to: str, number: int, count: int) -> float:
    async def run() -> None:
        import nats  # noqa: PLC0415 - an optional package

        link: Any = await nats.connect(to)
        jetstream = link.jetstream(publish_async_max_pending=1 << 16)
        await jetstream.add_stream(name=f"plain{number}", subjects=[f"plain{number}.>"])
        for first in range(0, count, _BATCH):
            acks = []
            for seq in range(first + 1, min(first + _BATCH, count) + 1):
                headers = {
                    "Nats-Expected-Last-Sequence": str(seq - 1),
                    "Nats-Msg-Id": f"orders/0123456789abcdef/{seq}",
                    "topics-seq": str(seq),
                    "topics-incarnation": "0123456789abcdef",
                    "topics-ts": "1700000000000",
                    "topics-tag": "eu",
                }
                acks.append(await jetstream.publish_async(f"plain{number}.orders", _TEXT, headers=headers))
            await asyncio.gather(*acks)
        await link.close()

    began = time.perf_counter()
    asyncio.run(run())
    return time.perf_counter() - began


def measured(side: str, count: int, rounds: int, directory: Path) -> None:
    """Print the rates of each round, and the ratio of their medians."""
    broker = BROKERS[side](directory / side)
    settings = {"port": free_port(), "verify": "false"}  # checks of each pass would count in the rate
    (directory / "server").mkdir(parents=True)
    server = Server(directory / "server", settings, executes=True)
    plain = {"kafka": kafka_seconds, "nats": nats_seconds}[side]
    try:
        broker.start()
        server.wait_ready()
        url = f"http://127.0.0.1:{settings['port']}"
        with topics.connect(url) as log:
            for _ in range(0, count, _APPEND):
                log.append("orders", [topics.NewRecord({"order": 123456789, "fill": "x" * 170}, tag="eu")] * _APPEND)
        rates: dict[str, list[float]] = {"library": [], "bridge": []}
        for number in range(rounds + 1):
            if side == "kafka" and number:
                _remove(broker.url)
            seconds = plain(broker.url, number, count), bridge_seconds(url, broker.url, number)
            if number:  # the first round is a warm-up
                for name, took in zip(rates, seconds, strict=True):
                    rates[name].append(count / took)
        for name, found in rates.items():
            print(f"{side}: {name} {', '.join(f'{rate:,.0f}' for rate in found)} records/s")
        medians = {name: statistics.median(found) for name, found in rates.items()}
        print(f"{side}: bridge / library {medians['bridge'] / medians['library']:.2f}", flush=True)
        server.stop()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        broker.kill()


def _remove(to: str) -> None:
    """Remove the topic of the round before, to which another bridge would append."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an optional package

    admin: Any = AdminClient({"bootstrap.servers": to.removeprefix("kafka://")})
    admin.delete_topics(["orders"])["orders"].result()
    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=sorted(BROKERS), action="append")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for side in options.side or sorted(BROKERS):
        if missing := BROKERS[side].missing():
            print(missing)
            continue
        with tempfile.TemporaryDirectory(prefix="topics-bridge-") as directory:
            measured(side, options.records, options.rounds, Path(directory))


if __name__ == "__main__":
    main()
