"""Creation, change and deletion of routers, durable before any answer.

Source: wire contract 9.2 to 9.5, R-RTR-7 to -11.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from topics.common.values.configs import RouterConfig
from topics.engine.routers.far_messages import (
    CatchUpOrder,
    GoneOrder,
    LinkOrder,
    Order,
    OtherHalves,
    Path,
    PathOrder,
    Replied,
    SentStep,
    UnlinkOrder,
)
from topics.engine.routers.far_routers import FarRouters, FarRoutersCore
from topics.engine.routers.forwarding import Forwarding
from topics.engine.routers.links import Links, of_another_source, stage_removal, stage_settings
from topics.engine.routers.router_results import RouterDeleted, RouterPage, RouterPut, RouterState
from topics.engine.shared.limits import Limits
from topics.engine.state import refusals
from topics.engine.state.control_frames import encode
from topics.engine.state.router import RouterLife, StoredConfig
from topics.engine.state.router_frames import RouterDeletePayload, RouterPayload
from topics.engine.state.staged_operations import Notice
from topics.engine.state.topic import Life, Router, Topic
from topics.engine.values.name_rules import Allowed, check_router_name, check_topic_name
from topics.engine.values.results import Done
from topics.engine.write.admission import check_backlog
from topics.engine.write.lifecycle import Lifecycle
from topics.errors import RequestError, TopicsError
from topics.store.format.log_format import FrameType


class ManagerCore(FarRoutersCore, Protocol):
    """The part of the core that the changes of routers need."""

    limits: Limits


class KnownElsewhere(NamedTuple):
    """The answers of other cores about a router that is to be made."""

    above: list[str] | None = None
    """The topics beyond the path that leaves this core; None: it was not asked for."""
    has_checked: bool = False
    """Whether links of the destination were checked for their routers."""


NOT_ASKED = KnownElsewhere()


class RouterManager:
    """The changes of routers. Methods answer through `done`."""

    def __init__(
        self, core: ManagerCore, lifecycle: Lifecycle, forwarding: Forwarding, others: OtherHalves | None
    ) -> None:
        """others: the other cores, to whose topics routers may lead; None if there are none."""
        self._core = core
        self._lifecycle = lifecycle
        self._forwarding = forwarding
        self._links = Links(core, lifecycle, forwarding)
        self._far = FarRouters(core, lifecycle, forwarding, others)
        forwarding.leaving.on_gone.append(self._on_gone)

    def execute(self, order: Order, done: Replied) -> None:
        """Execute what another core asks for."""
        match order:
            case SentStep():
                self._links.step(order, done)
            case LinkOrder():
                self._links.make(order, done)
            case UnlinkOrder():
                self._links.remove(order.token, done)
            case CatchUpOrder():
                self._far.catch_up(order, done)
            case GoneOrder():
                self._far.forget(order, done)
            case PathOrder():
                done(Path(*path_above(self._core.registry.named(order.topic))))

    # --- create and change -------------------------------------------------------------------------------------------
    def put(
        self,
        name: str,
        config: RouterConfig,
        allowed: Allowed,
        done: Done[RouterPut],
        known: KnownElsewhere = NOT_ASKED,
    ) -> None:
        """Make checks 3 to 11 of 9.2, then the change.

        allowed: names that a refusal may contain (R-AUTH-9). known: what other cores have answered.
        """
        try:
            self._put(name, config, allowed, done, known)
        except TopicsError as error:
            done(error)

    def _put(
        self, name: str, config: RouterConfig, allowed: Allowed, done: Done[RouterPut], known: KnownElsewhere
    ) -> None:
        core = self._core
        again = partial(self.put, name, config, allowed, done)
        check_router_name(name)
        if config.source == config.dest:
            raise RequestError("invalid_request", "source and dest are the same topic: a router needs two")
        check_topic_name(config.source)
        check_topic_name(config.dest)
        topics = [core.registry.named(config.source), core.registry.named(config.dest)]
        existing = core.routers.by_name.get(name)
        for topic in topics:
            if topic is not None and topic.life is Life.DELETING:
                topic.parked.append(again)
                return
        if existing is not None and existing.life is not RouterLife.LIVE:
            existing.parked.append(again)
            return
        if not core.registry.owns(config.source):
            if existing is not None:
                raise refusals.router_repoint(existing, allowed)
            done(RouterPut(False, config))  # another core makes it: its name is not taken here
            return
        source, dest = topics
        is_apart = core.registry.are_apart(config.source, config.dest)
        core.routers.settle()
        if not is_apart and dest is None and not config.create_dest:
            raise refusals.topic_not_found(config.dest)
        other = None if dest is None else of_another_source(dest, config.source, existing)
        if other is not None and other.source.is_far and not known.has_checked:
            self._links.when_checked(other, partial(again, known._replace(has_checked=True)))
            return
        if other is not None:
            raise refusals.router_fan_in(config.dest, other.name, allowed)
        if existing is not None and (existing.source.name, existing.dest.name) != (config.source, config.dest):
            raise refusals.router_repoint(existing, allowed)
        if existing is None:
            core.limits.routers.check()
        if not config.allow_cycle:
            path, is_cut = path_above(source, existing, config.dest)
            if is_cut and known.above is None:
                self._ask_path(path, config.dest, again, known, done)
                return
            path += known.above if is_cut and known.above is not None else []
            if config.dest in path:
                cycle = [config.source, *reversed(path[: path.index(config.dest) + 1]), config.source]
                raise refusals.router_cycle(cycle, allowed)
        check_backlog(core.log)
        if is_apart:
            self._far.put(name, config, existing, again, done)
        elif existing is not None:
            self._update(existing, config, done)
        else:
            self._create(name, config, done)

    def _ask_path(
        self,
        path: list[str],
        dest: str,
        again: Callable[[KnownElsewhere], None],
        known: KnownElsewhere,
        done: Done[RouterPut],
    ) -> None:
        """Have the checks repeated with the topics beyond a path that leaves this core."""

        def on_path(above: list[str] | TopicsError) -> None:
            if isinstance(above, TopicsError):
                done(above)
            else:
                again(known._replace(above=above))

        self._far.path_beyond(path, dest, on_path)

    def _create(self, name: str, config: RouterConfig, done: Done[RouterPut]) -> None:
        core = self._core
        source, dest = self._lifecycle.create_missing((config.source, config.dest))
        router = Router(name, core.registry.take_order(), source, dest, config)
        router.position = source.head
        router.unshared_through = source.next_seq - 1
        router.examined = router.unmarked = 0
        stored = StoredConfig.of(config)
        payload = encode(RouterPayload(router.id, name, source.id, dest.id, stored, router.position, router.unmarked))
        # Also in the source's shard: recovery needs it to know which records may be forwarded.
        now_ms = core.clock.now_ms()
        core.log.stage_control(source.id, FrameType.ROUTER_PUT, router.id, now_ms, payload, counted=False)
        core.log.stage_control(dest.id, FrameType.ROUTER_PUT, router.id, now_ms, payload)
        core.routers.add(router)
        missing = 2
        failed: TopicsError | None = None
        written: list[Topic] = []

        def on_part(topic: Topic, error: TopicsError | None) -> None:
            nonlocal missing, failed
            missing -= 1
            failed = failed or error
            if error is None:
                written.append(topic)
            if missing:
                return
            if failed is not None:
                if router.life is not RouterLife.GONE:
                    core.routers.remove(router)
                # Half of a creation would be a router again after a restart.
                self._stage_deletion(router, written, partial(self._end, router, partial(done, failed)))
                return
            if router.life is RouterLife.CREATING:
                router.enter_life(RouterLife.LIVE)
                self._forwarding.note(router)
            self._end(router, partial(done, RouterPut(True, router.config)))

        for topic in (source, dest):
            Notice(core, topic, partial(on_part, topic)).stage(synced=True)

    def _stage_deletion(self, router: Router, topics: list[Topic], then: Callable[[], None]) -> None:
        """Log the router's deletion in these topics' shards; then call `then`, in any case."""
        core = self._core
        waits = 1

        def one(_error: TopicsError | None = None) -> None:
            nonlocal waits
            waits -= 1
            if waits == 0:
                then()

        payload = encode(RouterDeletePayload(router.id))
        for topic in topics:
            if topic.life is Life.GONE:
                continue
            try:
                with core.log.use_reserve():
                    order = core.registry.take_order()
                    core.log.stage_control(
                        topic.id, FrameType.ROUTER_DELETE, order, core.clock.now_ms(), payload, counted=False
                    )
            except TopicsError:
                continue  # the log accepts no writes any more
            waits += 1
            Notice(core, topic, one).stage(synced=True)
        one()

    @staticmethod
    def _end(router: Router, answer: Callable[[], None]) -> None:
        """Answer a decided creation or deletion, and repeat the changes that waited for it."""
        answer()
        router.resume_parked()

    def _update(self, router: Router, config: RouterConfig, done: Done[RouterPut]) -> None:
        stage_settings(self._core, router, config, lambda error: done(error or RouterPut(False, config)))

    # --- delete ------------------------------------------------------------------------------------------------------
    def delete(self, name: str, allowed: Allowed, done: Done[RouterDeleted]) -> None:
        """Delete a router (9.5); an absent one is no error."""
        core = self._core
        router = core.routers.by_name.get(name)
        try:
            if router is None:
                # a creation that failed with the log may be found after a restart
                core.log.check_writable()
                done(RouterDeleted(False))
                return
            check_allowed(router, allowed)
            if router.life is not RouterLife.LIVE:
                router.parked.append(lambda: self.delete(name, allowed, done))
                return
            for topic in (router.source, router.dest):
                if topic.life is Life.DELETING:
                    topic.parked.append(lambda: self.delete(name, allowed, done))
                    return
            stage_removal(core, router)
        except TopicsError as error:
            done(error)
            return
        router.enter_life(RouterLife.DELETING)

        def on_part(error: TopicsError | None) -> None:
            if error is None:
                if router.life is not RouterLife.GONE:
                    core.routers.remove(router)
                for _ in self._forwarding.forget(router):
                    pass
                # The creation is in the source's shard, too, whose files may outlast those of this
                # one.
                end = partial(self._end, router, partial(done, RouterDeleted(True)))
                if router.token:
                    self._far.unlink(router, end)
                else:
                    self._stage_deletion(router, [router.source], end)
                return
            if router.life is not RouterLife.GONE:
                router.enter_life(RouterLife.LIVE)
                self._forwarding.note(router)
            self._end(router, partial(done, error))

        Notice(core, router.home, on_part).stage(synced=True)

    def _on_gone(self, router: Router) -> None:
        """Delete a router whose link is gone, with its destination (R-RTR-11)."""
        if router.life is RouterLife.LIVE:
            self.delete(router.name, lambda _name: True, _ignore)

    # --- look --------------------------------------------------------------------------------------------------------
    def state(self, name: str, allowed: Allowed, done: Done[RouterState]) -> None:
        """Answer a router's state (9.3) once it is at its source's head, or cannot go further."""
        router = self._core.routers.visible(name)
        if router is None:
            done(refusals.router_not_found(name))
            return
        try:
            check_allowed(router, allowed)
        except RequestError as error:
            done(error)
            return

        def on_caught_up() -> None:
            if router.life is RouterLife.GONE:
                done(refusals.router_not_found(name))
            else:
                done(RouterState(router.name, router.config, router.forwarded))

        self._forwarding.catch_up_router(router, on_caught_up)

    def list(  # noqa: PLR0917 - as in Engine
        self, prefix: str, source: str, dest: str, after: str, page_size: int, allowed: Allowed
    ) -> RouterPage:
        """Return a page of routers (9.4). `source` and `dest` are exact; "" means any."""
        wanted = (
            router
            for router in self._core.routers.after(after, prefix)
            if (not source or router.source.name == source)
            and (not dest or router.dest.name == dest)
            and allowed(router.name)
            and allowed(router.source.name)
            and allowed(router.dest.name)
        )
        found = list(islice(wanted, page_size + 1))
        next_after = found[page_size - 1].name if len(found) > page_size else None
        return RouterPage(
            [RouterState(router.name, router.config, router.forwarded) for router in found[:page_size]], next_after
        )


def check_allowed(router: Router, allowed: Allowed) -> None:
    """Check that all names are allowed (R-AUTH-3).

    Raises RequestError forbidden with the first other name.
    """
    for name in (router.name, router.source.name, router.dest.name):
        if not allowed(name):
            raise refusals.name_forbidden(name)


def path_above(source: Topic | None, existing: Router | None = None, until: str = "") -> tuple[list[str], bool]:
    """Return the names of the topics that lead to a topic, from the nearest on (R-RTR-9).

    A topic is fed from only one source, so they are one path. It ends at `until`, at an allowed
    cycle, or at a topic of another core; the second value is whether it does that. existing: a
    router that does not count.
    """
    path: list[str] = []
    seen, topic = {source}, source
    while topic is not None:
        before: Topic | None = next((router.source for router in topic.feeders if router is not existing), None)
        if before is None:
            break
        path.append(before.name)
        if before.name == until or before.is_far:
            return path, before.is_far and before.name != until
        topic = before if before not in seen else None
        seen.add(before)
    return path, False


def _ignore(_result: RouterDeleted | TopicsError) -> None:
    """Ignore the result of a deletion."""
