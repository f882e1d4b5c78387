"""Messages in a stream of JetStream, each stored once: its predecessor's sequence is expected.

Each publication names the stream's last sequence that it expects, so it is stored only directly
after the one before it, however late it arrives. The window of `Nats-Msg-Id` is not relied on. The
newest message of a subject holds the position of its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from topics.bridge.bridge_errors import FencedError, OversizeError, TargetDownError
from topics.bridge.bridge_messages import (
    INCARNATION,
    SEQ,
    TAG,
    TS,
    BridgeMessage,
    BridgePosition,
    TopicBatch,
    oversize_mark,
)
from topics.bridge.jetstream.jetstream_link import JetStreamLink, refused
from topics.bridge.jetstream.nats_place import NatsPlace
from topics.bridge.record_messages import text_header
from topics.errors import UsageError

_EXPECTED, _ID, _OF_STREAM = "Nats-Expected-Last-Sequence", "Nats-Msg-Id", "Nats-Expected-Stream"
SentSeqs = dict[str, dict[str, int]]
"""By topic and incarnation: the highest seq that this process has found or published."""
_PUT_S = 30.0
_NO_MESSAGE = 10037
"""The number of the error that a stream has no message of a subject."""
_SHOWN = 5
"""Subjects of a stream that a sentence names."""
_HEADER_BYTES = 512
"""Bytes that the bridge's own headers take at most, without the tag."""


class StreamChoice(NamedTuple):
    """The stream that a bridge writes: its name, and how it is made if it is missing."""

    name: str
    prefix: str
    """Beginning of a subject, before the topic's name."""
    replicas: int = 0
    """Copies that it has at least; 0: it does not matter, and one is made."""
    subjects: tuple[str, ...] | None = None
    """The subjects that the stream has; None: they are not known yet."""
    max_msg_size: int = 0
    """Bytes of a message that the stream takes; 0: as many as the server."""

    def subject(self, topic: str) -> str:
        """Raises: UsageError, no subject can have the topic's name, or the stream lacks it."""
        subject = f"{self.prefix}{topic}"
        if not all(subject.split(".")):
            raise UsageError(
                f"topic {topic!r} is no subject of NATS, which has no empty part between dots: leave it out"
            )
        if self.subjects is not None and not any(_covers(each, subject) for each in self.subjects):
            raise UsageError(
                f"stream {self.name} (--stream) has {_listed(self.subjects)}, and does not take in {subject}: use "
                f"a --prefix that it has, add {subject} to it, or name another --stream"
            )
        return subject


class JetStreamTarget:
    """The stream of one bridge, which is the only one that writes to it."""

    def __init__(self, place: NatsPlace, stream: StreamChoice, *, skips_oversize: bool) -> None:
        self._place = place
        self._stream = stream
        self._skips_oversize = skips_oversize
        self._sent: SentSeqs = {}

    def open(self) -> JetStreamSession:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        link = JetStreamLink(self._place)
        try:
            info = link.run(self._prepared(link))
            stream = self._as_found(info)
        except nats.js.errors.APIError as error:
            link.close()
            raise refused(f"stream {self._stream.name} cannot be looked at", error) from error
        except BaseException:
            link.close()
            raise
        return JetStreamSession(link, stream, info.state.last_seq, self._sent, skips_oversize=self._skips_oversize)

    def seen(self) -> JetStreamSession | None:
        """Return a session for a look at positions, which makes nothing; None: no stream."""
        import nats.js.errors  # noqa: PLC0415 - an optional package

        link = JetStreamLink(self._place)
        try:
            info = link.run(link.jetstream.stream_info(self._stream.name))
            stream = self._as_found(info)
        except nats.js.errors.NotFoundError:
            link.close()
            self._check_can_be_made()
            return None
        except nats.js.errors.APIError as error:
            link.close()
            raise refused(f"stream {self._stream.name} cannot be looked at", error) from error
        except BaseException:
            link.close()
            raise
        return JetStreamSession(link, stream, 0, {}, skips_oversize=True)

    def _as_found(self, info: Any) -> StreamChoice:
        """Return the choice with what the stream has. Raises: UsageError, it cannot be used."""
        config = info.config
        _check_keeps_positions(self._stream.name, config)
        has, wanted = config.num_replicas or 1, self._stream.replicas
        if has < wanted:
            raise UsageError(
                f"stream {self._stream.name} has num_replicas {has}, and --replicas is {wanted}: leave out "
                f"--replicas, or give the stream more (`nats stream edit {self._stream.name} --replicas {wanted}`)"
            )
        return self._stream._replace(
            subjects=tuple(config.subjects or ()), max_msg_size=max(0, config.max_msg_size or 0)
        )

    async def _prepared(self, link: JetStreamLink) -> Any:
        """Make the stream if it is missing. Return its configuration and state."""
        import nats.js.errors  # noqa: PLC0415 - an optional package
        from nats.js.api import StorageType, StreamConfig  # noqa: PLC0415

        name, subjects = self._stream.name, [f"{self._stream.prefix}>"]
        try:
            info = await link.jetstream.stream_info(name)
        except nats.js.errors.NotFoundError:
            self._check_can_be_made()
            config = StreamConfig(
                name=name, subjects=subjects, storage=StorageType.FILE, num_replicas=self._stream.replicas or 1
            )
            try:
                info = await link.jetstream.add_stream(config)
            except nats.js.errors.BadRequestError as error:
                raise UsageError(
                    f"stream {name} with the subjects {subjects[0]} cannot be made: {error.description}: use another "
                    "--stream or --prefix"
                ) from error
            except nats.js.errors.APIError as error:
                raise refused(f"stream {name} cannot be made", error) from error
        return info

    def _check_can_be_made(self) -> None:
        """Raises: UsageError, the stream is missing, and its subjects would be those of all."""
        if not self._stream.prefix:
            raise UsageError(
                f"stream {self._stream.name} is missing, and --prefix '' leaves every subject to it, also those of "
                "NATS itself: use a prefix such as 'topics.', or make a stream with the subjects that you want"
            ) from None


def _check_keeps_positions(name: str, config: Any) -> None:
    """Raises: UsageError, the newest message of a subject may go, or is not found."""
    if config.retention not in {None, "limits"} or config.max_age or _drops_old(config):
        raise UsageError(
            f"stream {name} removes messages by age, number, bytes or work, and with the newest message of a "
            "topic its position: use a stream without these limits (max_msgs_per_subject is fine), and let "
            "another stream with limits have it as a source"
        )
    if config.subject_transform is not None:
        raise UsageError(
            f"stream {name} stores messages under other subjects (subject_transform), where the position of a "
            "topic is not found: use another --stream"
        )


def _covers(pattern: str, subject: str) -> bool:
    """Return whether a subject of a stream, which may have * and >, takes in a subject."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
    return len(wanted) == len(found) and all(each in {"*", part} for each, part in zip(wanted, found, strict=True))


def _listed(subjects: Sequence[str]) -> str:
    """Return the subjects of a stream for a sentence."""
    if not subjects:
        return "no subjects of its own"
    more = f" and {len(subjects) - _SHOWN} more" if len(subjects) > _SHOWN else ""
    return f"the subjects {', '.join(subjects[:_SHOWN])}{more}"


def _drops_old(config: Any) -> bool:
    limits = (config.max_msgs, config.max_bytes)
    return config.discard != "new" and any(limit is not None and limit > 0 for limit in limits)


class JetStreamSession:
    """One connection of a target. sent: the highest seqs that were found or published."""

    def __init__(
        self,
        link: JetStreamLink,
        stream: StreamChoice,
        last_sequence: int,
        sent: SentSeqs,
        *,
        skips_oversize: bool,
    ) -> None:
        self._link = link
        self._stream = stream
        self._last_sequence = last_sequence
        self._sent = sent
        self._skips_oversize = skips_oversize

    def position(self, topic: str) -> BridgePosition | None:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        subject = self._stream.subject(topic)
        try:
            newest = self._link.run(self._link.jetstream.get_last_msg(self._stream.name, subject))
        except nats.js.errors.APIError as error:
            if error.err_code == _NO_MESSAGE:
                return None
            raise refused(f"the position of {topic} cannot be read", error) from error
        headers = newest.headers or {}
        seq, incarnation = headers.get(SEQ, ""), headers.get(INCARNATION, "")
        if not (seq.isascii() and seq.isdigit()) or not incarnation:
            raise FencedError(
                f"message {newest.seq} of stream {self._stream.name} is not of a bridge: let no other program publish "
                f"to {subject}, or use another --stream"
            )
        found = BridgePosition(incarnation, int(seq))
        sent = self._sent.get(topic)
        if sent is not None and found.seq > sent.get(found.incarnation, -1):
            raise FencedError(
                f"another bridge carries {topic} to stream {self._stream.name}, and is at record {found.seq}: "
                "this one ends; use one bridge for each stream"
            )
        self._note(topic, found)
        return found

    def _note(self, topic: str, position: BridgePosition) -> None:
        of_topic = self._sent.setdefault(topic, {})
        of_topic[position.incarnation] = max(position.seq, of_topic.get(position.incarnation, 0))

    def put(self, batches: Sequence[TopicBatch]) -> None:
        import nats.js.errors  # noqa: PLC0415 - an optional package

        try:
            self._link.run(self._put(batches), _PUT_S)
        except nats.js.errors.APIError as error:
            raise refused(f"stream {self._stream.name} takes no message", error) from error

    async def _put(self, batches: Sequence[TopicBatch]) -> None:
        publish = self._link.jetstream.publish_async
        sequence = self._last_sequence
        answers: list[asyncio.Future[Any]] = []
        for batch in batches:
            subject, incarnation = self._stream.subject(batch.topic), batch.position.incarnation
            self._note(batch.topic, BridgePosition(incarnation, batch.messages[-1].seq))
            for given in batch.messages:
                message = self._fitting(batch.topic, given)
                headers = {
                    _EXPECTED: str(sequence),
                    _OF_STREAM: self._stream.name,
                    _ID: f"{batch.topic}/{incarnation}/{message.seq}",
                    SEQ: str(message.seq),
                    INCARNATION: incarnation,
                    TS: str(message.ts),
                }
                if message.is_mark:
                    headers[_ID] += "/mark"
                if message.key is not None:
                    name, text = text_header(TAG, message.key)
                    headers[name] = text.decode()
                for name, text in message.headers:
                    headers[name] = text.decode()
                answers.append(await publish(subject, bytes(message.value), headers=headers))
                sequence += 1
        try:
            acks = await self._link.until_closed(_all_of(answers))
        finally:
            for answer in answers:
                answer.cancel()
        self._check_stream(acks)
        if any(ack.duplicate for ack in acks) or acks[-1].seq != sequence:
            raise TargetDownError(f"stream {self._stream.name} had a message already, or has others: looking again")
        self._last_sequence = sequence

    def _check_stream(self, acks: Sequence[Any]) -> None:
        """Raises: UsageError, messages are in another stream."""
        others = {ack.stream for ack in acks} - {self._stream.name}
        if others:
            raise UsageError(
                f"messages for stream {self._stream.name} (--stream) arrived in {min(others)}, which has the subjects "
                f"{self._stream.prefix}> now: use --stream {min(others)}, or another --prefix"
            )

    def _fitting(self, topic: str, message: BridgeMessage) -> BridgeMessage:
        """Return the message, or its mark if it is too large. Raises: OversizeError."""
        limit, setting = self._link.nats.max_payload, "max_payload of the NATS server"
        if 0 < self._stream.max_msg_size < limit:
            limit, setting = self._stream.max_msg_size, f"max_msg_size of stream {self._stream.name}"
        size = message.size + _HEADER_BYTES
        if size <= limit:
            return message
        if not self._skips_oversize:
            raise OversizeError(topic, message.seq, size, limit, setting)
        return oversize_mark(message, size, limit)

    def close(self) -> None:
        self._link.close()


async def _all_of(answers: list[asyncio.Future[Any]]) -> list[Any]:
    return await asyncio.gather(*answers)
