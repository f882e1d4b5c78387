"""Brokers of Kafka and the settings of their clients; what fails there as errors of a bridge."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from topics.bridge.bridge_errors import TargetDownError
from topics.common.extras import install_command
from topics.errors import TopicsError, UsageError

ANSWER_S = 10.0
_OWN = ("transactional.id", "enable.idempotence", "isolation.level", "group.id", "enable.auto.commit")
_REFUSALS = (
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "POLICY_VIOLATION",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
)
"""Errors of a broker that no wait ends."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class KafkaPlace(NamedTuple):
    """Brokers, and settings of librdkafka from `--set`."""

    url: str
    brokers: str
    settings: Mapping[str, str]
    patience_s: float = math.inf
    """No answer is waited for longer."""

    @property
    def answer_s(self) -> float:
        """How long an answer is waited for."""
        return min(ANSWER_S, self.patience_s)

    @classmethod
    def parse(cls, url: str, settings: Mapping[str, str], patience_s: float = math.inf) -> KafkaPlace:
        """patience_s: no answer is waited for longer. Raises: UsageError."""
        try:
            import confluent_kafka  # noqa: F401, PLC0415 - an optional package
        except ImportError:
            raise UsageError(
                f"{url} needs confluent-kafka, which is not installed: {install_command('kafka')}"
            ) from None
        brokers = urlsplit(url).netloc
        for name in settings:
            if name in _OWN:
                raise UsageError(f"--set {name} is the bridge's own setting: leave it out")
        place = cls(url, brokers, settings, patience_s)
        try:
            place.admin()
        except Exception as error:
            raise UsageError(
                f"--set has a setting that librdkafka refuses ({text_of(error).strip()}): mend it"
            ) from None
        return place

    def config(self, **own: object) -> dict[str, Any]:
        """Return the configuration of a client. own: settings with _ for each dot."""
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 1000, "topic.metadata.propagation.max.ms": 5000}
        shared = {"bootstrap.servers": self.brokers, **quiet, **self.settings}
        return {**shared, **{name.replace("_", "."): value for name, value in own.items()}}

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an optional package

        return AdminClient(self.config())

    def down(self, error: BaseException, kind: type[TopicsError] = TargetDownError) -> TopicsError:
        """Return an error of librdkafka as the bridge's: a refusal, or of a kind that passes."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - an optional package

        inner = error.args[0] if error.args else error
        if isinstance(inner, KafkaError) and inner.code() in {getattr(KafkaError, name) for name in _REFUSALS}:
            return UsageError(
                f"{self.url} refuses what the bridge asks for: {text_of(error)}: mend the options, or the rights there"
            )
        return kind(f"{self.url} does not answer: {text_of(error)}")


def text_of(error: BaseException) -> str:
    """Return the words of an error of librdkafka."""
    inner = error.args[0] if error.args else error
    words = getattr(inner, "str", None)
    return str(words()) if callable(words) else str(inner)


def check_topic_name(topic: str) -> None:
    """Raises: UsageError, Kafka has no topic of that name."""
    if not _NAME.fullmatch(topic):
        raise UsageError(
            f"topic {topic!r} is no name of Kafka, which has letters, digits and . _ - (up to 249): leave it out"
        )
