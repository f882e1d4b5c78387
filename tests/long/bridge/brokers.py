"""Brokers as processes that a test kills and starts again: Kafka in KRaft mode, and nats-server."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from topics.bench.peers.nats_peer import nats_program
from topics.bench.processes import free_port

KAFKA_JARS = Path(__file__).resolve().parents[3] / ".venv" / "kafka"
_READY_S = 600.0  # of a loaded machine
_JAVA = ("java", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={directory}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
auto.create.topics.enable=false
"""


class Broker(Protocol):
    """One broker, at the same address in each of its lives."""

    url: str

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def writer(self) -> BrokerWriter: ...

    def contents(self, topics: list[str]) -> Mapping[str, list[tuple[bytes, dict[str, bytes]]]]:
        """Value and headers of each message, by topic, in order; the key is the header `key`."""
        ...


class BrokerWriter(Protocol):
    """A client that writes to a broker, also over its kills."""

    def write(self, topic: str, values: list[bytes], key: bytes | None) -> None:
        """Write messages; return once they are there."""
        ...


class KafkaWriter:
    """An idempotent producer."""

    def __init__(self, port: int) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - an optional package

        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
        self._settings = settings
        self._producer: Any = Producer({**settings, "enable.idempotence": True})
        self._made: set[str] = set()

    def write(self, topic: str, values: list[bytes], key: bytes | None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - an optional package

        admin: Any = AdminClient(self._settings)
        while topic not in self._made:
            try:
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
            except Exception as error:
                if "already exists" not in str(error):
                    time.sleep(0.2)
                    continue
            self._made.add(topic)
        for value in values:
            self._producer.produce(topic, value, key=key, partition=0, headers=[("by", b"writer")])
        assert self._producer.flush(600) == 0, "not all were acknowledged"


class NatsWriter:
    """Publications that are repeated by their ids until they are acknowledged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._number = 0

    def write(self, topic: str, values: list[bytes], key: bytes | None) -> None:
        import asyncio  # noqa: PLC0415 - only here

        asyncio.run(self._write(topic, values, key))

    async def _write(self, topic: str, values: list[bytes], key: bytes | None) -> None:
        import nats  # noqa: PLC0415 - an optional package

        headers = {"by": "writer"} if key is None else {"by": "writer", "topics-tag": key.decode()}
        for value in values:
            self._number += 1
            ids = {"Nats-Msg-Id": str(self._number)}
            while True:
                try:
                    link: Any = await nats.connect(self._url, allow_reconnect=False, error_cb=_ignore)
                    jetstream = link.jetstream(timeout=2)
                    if self._number == 1:
                        await jetstream.add_stream(name="topics", subjects=["topics.>"])
                    await jetstream.publish(f"topics.{topic}", value, headers={**headers, **ids})
                    await link.close()
                    break
                except Exception:
                    time.sleep(0.1)


async def _ignore(_error: Exception) -> None:
    pass


class _Process:
    """A process with a port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.directory)
        until = time.monotonic() + _READY_S
        while not self._is_ready():
            assert self.process.poll() is None, (self.directory / "log").read_text()[-3000:]
            assert time.monotonic() < until, f"not ready: {(self.directory / 'log').read_text()[-3000:]}"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class KafkaBroker(_Process):
    """One node that is broker and controller."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = f"kafka://127.0.0.1:{self.port}"
        self._settings = directory / "server.properties"
        self._settings.write_text(_KAFKA.format(port=self.port, controller=free_port(), directory=directory))
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]  # a - begins an option
        subprocess.run(
            [*self._java("kafka.tools.StorageTool"), "format", "-t", cluster, "-c", str(self._settings)],
            check=True,
            capture_output=True,
        )

    def writer(self) -> KafkaWriter:
        return KafkaWriter(self.port)

    @staticmethod
    def missing() -> str:
        if shutil.which("java") is None:
            return "Kafka is left out: there is no Java (17 or newer)"
        if not any(KAFKA_JARS.glob("kafka_*.jar")):
            return "Kafka is left out: its artifacts are not in .venv/kafka, where `make bridge` brings them by Maven"
        return _missing_package("confluent_kafka")

    def _java(self, program: str) -> list[str]:
        return [*_JAVA, "-cp", f"{KAFKA_JARS}/*", program]

    def command(self) -> list[str]:
        return [*self._java("kafka.Kafka"), str(self._settings)]

    def contents(self, topics: list[str]) -> Mapping[str, list[tuple[bytes, dict[str, bytes]]]]:
        from confluent_kafka import Consumer, KafkaError, TopicPartition  # noqa: PLC0415 - an optional package

        settings = {"bootstrap.servers": f"127.0.0.1:{self.port}", "group.id": "check", "enable.partition.eof": True}
        reader = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        found: dict[str, list[tuple[bytes, dict[str, bytes]]]] = {topic: [] for topic in topics}
        waiting = set(topics)
        reader.assign([TopicPartition(topic, 0, 0) for topic in topics])
        while waiting:
            message = reader.poll(30)
            assert message is not None, f"no end of {waiting}"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(message.topic())
                continue
            headers = dict(message.headers() or ())
            if message.key() is not None:
                headers["key"] = message.key()
            found[message.topic()].append((message.value(), headers))
        reader.close()
        return found


class NatsBroker(_Process):
    """One nats-server with JetStream."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = f"nats://127.0.0.1:{self.port}"
        (directory / "nats.conf").write_text(
            f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{directory}/store" }}\n'
        )

    def writer(self) -> NatsWriter:
        return NatsWriter(self.url)

    @staticmethod
    def missing() -> str:
        if nats_program() is None:
            return "NATS is left out: there is neither nats-server nor Go, which builds it"
        return _missing_package("nats")

    def command(self) -> list[str]:
        program = nats_program()
        assert program is not None, "nats-server is there"
        return [program, "-c", str(self.directory / "nats.conf")]

    def contents(self, topics: list[str]) -> Mapping[str, list[tuple[bytes, dict[str, bytes]]]]:
        import asyncio  # noqa: PLC0415 - only here

        return asyncio.run(self._contents(topics))

    async def _contents(self, topics: list[str]) -> Mapping[str, list[tuple[bytes, dict[str, bytes]]]]:
        import nats  # noqa: PLC0415 - an optional package

        link: Any = await nats.connect(self.url)
        jetstream = link.jetstream()
        found: dict[str, list[tuple[bytes, dict[str, bytes]]]] = {topic: [] for topic in topics}
        left = (await jetstream.stream_info("topics")).state.messages
        reader = await jetstream.subscribe("topics.>", stream="topics", ordered_consumer=True)
        while left:
            message = await reader.next_msg(30)
            left -= 1
            headers = {name: text.encode() for name, text in (message.headers or {}).items()}
            if "topics-tag" in headers:
                headers["key"] = headers["topics-tag"]
            found[message.subject.removeprefix("topics.")].append((message.data, headers))
        await link.close()
        return found


BROKERS: dict[str, Any] = {"kafka": KafkaBroker, "nats": NatsBroker}


def _missing_package(name: str) -> str:
    try:
        __import__(name)
    except ImportError:
        return f"{name} is not installed: `make bridge` installs it"
    return ""
