"""The subscriptions of one WebSocket: their starting points, and bursts of the engine as frames.

A burst is rendered once, for its first reader, and the same bytes are sent to all. Source: wire
contract 11.3 and 11.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from topics.engine.delivery.frames import Burst, CaughtUpFrame, RecordsFrame, TombstoneFrame
from topics.engine.delivery.subscription import Subscription
from topics.engine.state.refusals import limit_reached
from topics.engine.values.name_rules import Prefixes, of_longest_prefix, shown
from topics.engine.values.results import DiffQuery
from topics.errors import RequestError, TopicsError, as_request_error
from topics.ws import replies
from topics.ws.commands import Subscribe
from topics.ws.framing import text_frame
from topics.ws.host import FarTopics, Host, WsFeeds
from topics.ws.look_up import Found, LookUp

_RENDERING = "websocket"
_COUNT_AGAIN_BYTES = 65_536


class FrameSink(Protocol):
    """The byte stream that the frames are written to."""

    @property
    def over_high_water(self) -> bool:
        """Whether it holds enough bytes that are not sent yet."""

    def write(self, data: bytes) -> None: ...


class OnCores(Protocol):
    """The connection, which ends with a core whose topics it follows."""

    def on_core_gone(self, message: str) -> None: ...

    def going_away(self) -> None: ...


class Subscriptions:
    """The sink of the connection's feed. Nothing is delivered between `pause` and `go_on`."""

    __slots__ = (
        "_count_again",
        "_far",
        "_feed",
        "_feeds",
        "_host",
        "_is_looking_for_names",
        "_look_up",
        "_on_cores",
        "_reader",
        "_write",
        "audience",
        "held_bytes",
    )

    def __init__(
        self, host: Host, reader: FrameSink, far: FarTopics | None = None, on_cores: OnCores | None = None
    ) -> None:
        """far, on_cores: of a connection of several cores."""
        self._host = host
        self._far = far
        self._feeds: WsFeeds = far or host.engine
        self._on_cores = on_cores
        self._reader = reader
        self._write = reader.write
        self.audience = host.audience
        self._feed = self._feeds.open_feed(self)
        self._look_up: LookUp | None = None
        self._is_looking_for_names = False
        self.held_bytes = 0
        """Bytes of the node sets that subscriptions leave out; may include those of ended ones."""
        self._count_again = _COUNT_AGAIN_BYTES
        """`held_bytes` is counted exactly when it exceeds this."""

    @property
    def beginning(self) -> bool:
        """Whether a subscribe waits for the states of its topics."""
        return self._look_up is not None or self._is_looking_for_names

    def begin(self, command: Subscribe, within: Prefixes, done: Callable[[bytes | Exception], None]) -> None:
        """Subscribe to all topics of a command, or to none if there is an error.

        within: prefixes of the names that the connection's key may see.
        done: gets the text of the reply, or the error; the caller calls `go_on` afterwards.
        """
        if not command.prefixes:
            self._look(command, within, [], done)
            return
        most = self._host.config.max_watch_topics + len(command.starts) + len(self._named())
        if self._far is None:
            self._look(command, within, self._host.engine.topics_with(tuple(command.prefixes), within, most), done)
            return

        def on_names(names: list[str] | Exception) -> None:
            if not self._is_looking_for_names:
                return  # the connection has ended
            self._is_looking_for_names = False
            if isinstance(names, Exception):
                done(names)
            else:
                self._look(command, within, names, done)

        self._is_looking_for_names = True
        self._far.find_topics(tuple(command.prefixes), within, most, on_names)

    def _look(
        self, command: Subscribe, within: Prefixes, names: list[str], done: Callable[[bytes | Exception], None]
    ) -> None:
        """Subscribe, once it is known where the topics begin. names: those with a prefix."""
        taken_in = {name: of_longest_prefix(command.prefixes, name) for name in self._to_take_in(command, names)}

        def on_found(found: Found | Exception) -> None:
            self._look_up = None
            try:
                reply = found if isinstance(found, Exception) else self._follow(command, within, found)
            except Exception as error:
                reply = error
            done(reply)

        self._look_up = LookUp(self._feeds, command.starts, taken_in, on_found, lenient=command.lenient)
        self._look_up.go_on()

    def _named(self) -> set[str]:
        """Return the topics that are followed because they were named."""
        watch = self._feed.prefixes
        return {name for name in self._feed.subscriptions if watch is None or not watch.is_taken(name)}

    def _to_take_in(self, command: Subscribe, names: list[str]) -> list[str]:
        """Return the topics that the prefixes of a command take in now. names: the lowest ones.

        As many as may have a place beside those that are named. Of topics that were named before,
        the first ones begin again.
        """
        most, named = self._host.config.max_watch_topics, self._named() if names else ()
        found: list[str] = []
        left = most
        for at, name in enumerate(names):
            if name in command.starts:
                continue
            if name in named:
                if at < most:
                    found.append(name)
            elif left:
                left -= 1
                found.append(name)
        return found

    def _follow(self, command: Subscribe, within: Prefixes, found: Found) -> bytes:
        query = DiffQuery(
            limit=command.limit,
            nodes=command.filter.nodes,
            include_tags=command.include_tags,
            include_meta=command.include_meta,
            include_data=command.include_data,
            max_batch_bytes=command.max_batch_bytes,
            only_nodes=command.filter.only_nodes,
            match=command.filter.match,
        )
        named = {name: beginning for name, beginning in found.items() if name in command.starts}
        self._check_room(named, command.prefixes)
        for name, beginning in named.items():
            self._feed.subscribe(name, query, beginning.from_seq)
        watch, followed = self._feed.prefixes, list(named)
        if watch is not None:
            for name in named:
                watch.note_named(name)
        if command.prefixes:
            config = self._host.config
            watch = self._feed.watch_prefixes(within, config.max_watch_topics, config.ws_max_subscriptions or 1 << 62)
            others = {name: beginning.from_seq for name, beginning in found.items() if name not in named}
            followed += watch.add(command.prefixes, query, others)
        elif watch is not None:
            watch.fill_places()
        self._count_held_bytes(query)
        topics = {name: found[name]._asdict() for name in followed}
        return replies.subscribed(command.request_id, topics, list(command.prefixes))

    def _check_room(self, named: Found, prefixes: Iterable[str]) -> None:
        """Refuse a subscribe if the connection would have too many topics or prefixes (R-WS-6).

        Raises: RequestError throttled, with the limit and its value.
        """
        most, followed = self._host.config.ws_max_subscriptions, self._feed.subscriptions
        if most and len(followed) + sum(name not in followed for name in named) > most:
            raise limit_reached("ws_max_subscriptions", most)
        most, watch = self._host.config.max_prefixes, self._feed.prefixes
        if len({*prefixes} if watch is None else {*prefixes, *watch.queries}) > most:
            raise limit_reached("max_prefixes", most)

    def _count_held_bytes(self, query: DiffQuery) -> None:
        """Count the bytes that the subscriptions of a command hold together."""
        self.held_bytes += len(query.nodes)
        if self.held_bytes > self._count_again:
            watch = self._feed.prefixes
            queries = [each.query for each in self._feed.subscriptions.values()]
            queries += () if watch is None else watch.queries.values()
            kept = {id(each.nodes): len(each.nodes) for each in queries}
            self.held_bytes = sum(kept.values())
            self._count_again = 2 * self.held_bytes + _COUNT_AGAIN_BYTES

    def leave(self, names: list[str], prefixes: list[str]) -> None:
        """End subscriptions. Raises: RequestError, a prefix that stays covers one of the names."""
        watch = self._feed.prefixes
        if watch is not None:
            stay = tuple(prefix for prefix in watch.queries if prefix not in prefixes)
            for name in names:
                if name.startswith(stay):
                    message = f"topic {shown(name)} has a prefix that is followed: unsubscribe that prefix"
                    raise RequestError("invalid_request", message)
            watch.drop(prefixes)
        for name in names:
            self._feed.unsubscribe(name)
        if watch is not None:
            watch.fill_places()

    def pause(self) -> None:
        """Stop deliveries until `go_on`."""
        self._feed.pause()

    def go_on(self, *, soon: bool = False) -> None:
        """Deliver readable records until the stream holds enough.

        soon: deliver after this call has returned.
        """
        if soon:
            self._feed.resume_soon()
        else:
            self._feed.resume()

    def end(self) -> None:
        if self._look_up is not None:
            self._look_up.cancel()
        self._is_looking_for_names = False
        self._on_cores = self._far = None
        self._feed.close()

    # --- as the feed's sink ------------------------------------------------------------------------------------------
    @property
    def shared_connection(self) -> Any | None:
        return None if self.audience is None else self._reader

    def deliver(self, subscription: Subscription, burst: Burst) -> bool:
        # This runs once for each reader and burst, for up to a thousand readers, so it makes no
        # further calls.
        self._write(burst.renderings.get(_RENDERING) or shared_bytes(burst))
        return not self._reader.over_high_water

    def deliver_left_out(self, name: str, most: int) -> bool:
        """Write the frame about a topic without a place (R-PREFIX-5)."""
        self._write(text_frame(b'{"op":"left_out","topic":"%b","max":%d}' % (name.encode(), most)))
        return not self._reader.over_high_water

    def lose(self, core: int) -> None:
        """End the connection: see `CoresSink`."""
        if self._on_cores is not None:
            self._on_cores.on_core_gone(f"core {core} is not there any more, whose topics are followed: connect again")

    def stop(self) -> None:
        if self._on_cores is not None:
            self._on_cores.going_away()

    def fail(self, subscription: Subscription, error: TopicsError) -> None:
        """Report a subscription that has ended because its topic cannot be read."""
        cause = as_request_error(error)
        self._write(text_frame(replies.error(None, cause.code, f"topic {subscription.name}: {cause.message}")))


def shared_bytes(burst: Burst) -> bytes:
    """Return the frames of a burst, rendered once."""
    frames: bytes | None = burst.renderings.get(_RENDERING)
    if frames is None:
        frames = burst.renderings[_RENDERING] = rendered(burst)
    return frames


def rendered(burst: Burst) -> bytes:
    """Render the frames of a reader pass, each as a text message.

    A tombstone always has its real reason (11.5).
    """
    texts: list[bytes] = []
    for frame in burst.frames:
        if isinstance(frame, RecordsFrame):
            op = b"record"
        elif isinstance(frame, CaughtUpFrame):
            op = b"caught_up"
        elif isinstance(frame, TombstoneFrame):
            op = b"tombstone"
        else:
            op = b"topic_deleted"
        texts.append(text_frame(b'{"op":"%b",%b}' % (op, frame.members)))
    return b"".join(texts)
