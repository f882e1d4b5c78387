"""The links of this core: the halves, at their destinations, of routers whose source is on another.

A link is a router to recovery, snapshots, and the search of `exactly_once`. Its source is a
stand-in without records, and its steps arrive (arrived_steps.py). The core of the source decides
about it: a link of which that knows no router is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.clock import Clock
from topics.common.values.configs import RouterConfig
from topics.engine.routers.far_messages import LinkOrder, LinkState, NoLink, Replied, SentStep
from topics.engine.routers.forwarding import Forwarding
from topics.engine.shared.router_registry import Routers
from topics.engine.shared.topic_registry import Registry
from topics.engine.state import refusals
from topics.engine.state.control_frames import encode
from topics.engine.state.router import RouterLife, StoredConfig
from topics.engine.state.router_frames import RouterDeletePayload, RouterPayload, far_end_of
from topics.engine.state.staged_operations import Notice, OperationCore
from topics.engine.state.topic import Life, Router, Topic
from topics.engine.values import incarnation
from topics.engine.values.name_rules import check_topic_name
from topics.engine.values.ports import FormatPort
from topics.engine.write.admission import check_backlog
from topics.engine.write.lifecycle import Lifecycle
from topics.errors import TopicsError
from topics.store.format.log_format import FrameType
from topics.store.layouts.directory_names import FOURTH_DIRECTORY_FORMAT


class LinksCore(OperationCore, Protocol):
    """The part of the core that links need."""

    clock: Clock
    format: FormatPort
    registry: Registry
    routers: Routers


class Links:
    """The changes of links. Each order is answered once."""

    def __init__(self, core: LinksCore, lifecycle: Lifecycle, forwarding: Forwarding) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._forwarding = forwarding
        forwarding.far_sources.on_unknown.append(partial(self.remove, done=_ignore))

    # --- make and change ---------------------------------------------------------------------------------------------
    def make(self, order: LinkOrder, done: Replied, *, is_checked: bool = False) -> None:
        """Make a link, or change its settings. is_checked: links of other sources have routers."""
        try:
            self._make(order, done, is_checked=is_checked)
        except TopicsError as error:
            done(error)

    def _make(self, order: LinkOrder, done: Replied, *, is_checked: bool) -> None:
        core = self._core
        check_topic_name(order.dest)
        dest, router = core.registry.named(order.dest), core.routers.links.get(order.token)
        again = partial(self.make, order, done, is_checked=is_checked)
        if dest is not None and dest.life is Life.DELETING:
            dest.parked.append(again)
            return
        if router is not None and router.life is not RouterLife.LIVE:
            router.parked.append(again)
            return
        if router is None and order.position < 0:
            done(NoLink())
            return
        core.routers.settle()
        config = order.config.config(order.source, order.dest)
        if dest is None and not order.create_dest:
            raise refusals.topic_not_found(order.dest)
        if dest is not None:
            check_lasting(dest)
            other = of_another_source(dest, order.source, router)
            if other is not None and other.source.is_far and not is_checked:
                self.when_checked(other, partial(self.make, order, done, is_checked=True))
                return
            if other is not None:
                raise refusals.router_fan_in(order.dest, other.name, lambda _name: False)
        check_backlog(core.log)
        if not order.source_id:
            done(LinkState(0, 0, 0))
        elif router is not None:
            stage_settings(core, router, config, lambda error: done(error or state_of(router)))
        elif core.format.number < FOURTH_DIRECTORY_FORMAT:
            core.format.when_raised(
                FOURTH_DIRECTORY_FORMAT, lambda error: done(error) if error is not None else again()
            )
        else:
            self._create(order, config, done)

    def _create(self, order: LinkOrder, config: RouterConfig, done: Replied) -> None:
        core = self._core
        (dest,) = self._lifecycle.create_missing((order.dest,))
        source = core.registry.stand_in(order.source, order.source_id)
        router = Router(order.router, core.registry.take_order(), source, dest, config)
        router.token, router.position = order.token, order.position
        router.examined = router.unmarked = 0
        stage_router(core, router, counted=False)
        core.routers.add(router)

        def on_logged(error: TopicsError | None) -> None:
            if error is None and router.life is RouterLife.CREATING:
                router.enter_life(RouterLife.LIVE)
            elif router.life is not RouterLife.GONE:
                core.routers.remove(router)
            router.resume_parked()
            done(error or state_of(router))

        Notice(core, dest, on_logged).stage(synced=True)

    def when_checked(self, router: Router, then: Callable[[], None]) -> None:
        """Call `then` once the core of the source was asked for the router of a link.

        It is called in any case. A link without a router is gone then, unless the core was not
        there.
        """

        def on_asked() -> None:
            if router.life is RouterLife.DELETING:
                router.parked.append(then)
            else:
                then()

        if router.life is RouterLife.LIVE:
            self._forwarding.far_sources.catch_up_first(router.dest, on_asked)
        else:
            router.parked.append(then)

    # --- remove ------------------------------------------------------------------------------------------------------
    def remove(self, token: str, done: Replied) -> None:
        """Remove a link; an absent one is no error."""
        core = self._core
        router = core.routers.links.get(token)
        if router is None:
            done(NoLink())
            return
        again = partial(self.remove, token, done)
        if router.life is not RouterLife.LIVE:
            router.parked.append(again)
            return
        if router.dest.life is Life.DELETING:
            router.dest.parked.append(again)
            return
        try:
            stage_removal(core, router, counted=False)
        except TopicsError as error:
            done(error)
            return
        router.enter_life(RouterLife.DELETING)

        def on_logged(error: TopicsError | None) -> None:
            if error is not None and router.life is not RouterLife.GONE:
                router.enter_life(RouterLife.LIVE)
            elif router.life is not RouterLife.GONE:
                core.routers.remove(router)
            for _ in self._forwarding.forget(router) if error is None else ():
                pass
            router.resume_parked()
            done(error or NoLink())

        Notice(core, router.dest, on_logged).stage(synced=True)

    # --- steps -------------------------------------------------------------------------------------------------------
    def step(self, step: SentStep, done: Replied) -> None:
        """Execute a step of a link."""
        router = self._core.routers.links.get(step.token)
        if router is None:
            done(NoLink())
        elif router.life is not RouterLife.LIVE:
            router.parked.append(partial(self.step, step, done))
        else:
            self._forwarding.arrived.take(router, step, done)


def state_of(router: Router) -> LinkState:
    return LinkState(router.dest.id, router.position, router.forwarded)


def check_lasting(topic: Topic) -> None:
    """Check the class of an end of a router between two cores, which must not give out a seq twice.

    Raises: RequestError.
    """
    if incarnation.ends_with_process(topic.config) or incarnation.ends_with_process(topic.next_config):
        raise refusals.router_between_weak(topic.name)


def of_another_source(dest: Topic, source: str, but: Router | None) -> Router | None:
    """Return a router from another source to a destination (R-RTR-7); None: there is none."""
    return next((each for each in dest.feeders if each is not but and each.source.name != source), None)


def stage_router(core: LinksCore, router: Router, *, counted: bool) -> None:
    """Stage the frame of a new router with an end on another core. Raises: StorageError."""
    ends, stored = (router.source.id, router.dest.id), StoredConfig.of(router.config)
    payload = RouterPayload(router.id, router.name, *ends, stored, router.position, router.unmarked, far_end_of(router))
    now_ms = core.clock.now_ms()
    core.log.stage_control(router.home.id, FrameType.ROUTER_PUT, router.id, now_ms, encode(payload), counted=counted)


def stage_settings(
    core: LinksCore, router: Router, config: RouterConfig, then: Callable[[TopicsError | None], None]
) -> None:
    """Stage a change of settings; call `then` after it. Raises: StorageError."""
    order, home = core.registry.take_order(), router.home
    ends, stored = (router.source.id, router.dest.id), StoredConfig.of(config)
    payload = RouterPayload(router.id, router.name, *ends, stored, unmarked=router.unmarked, far=far_end_of(router))
    core.log.stage_control(home.id, FrameType.ROUTER_PUT, order, core.clock.now_ms(), encode(payload))

    def on_logged(error: TopicsError | None) -> None:
        router.changing -= 1
        if error is None:
            router.order = order
            router.config = config
        then(error)

    router.changing += 1
    Notice(core, home, on_logged).stage(synced=True)


def stage_removal(core: LinksCore, router: Router, *, counted: bool = True) -> None:
    """Stage the frame of a deletion. Raises: TopicsError."""
    check_backlog(core.log)
    order = core.registry.take_order()
    with core.log.use_reserve():
        payload = encode(RouterDeletePayload(router.id))
        core.log.stage_control(
            router.home.id, FrameType.ROUTER_DELETE, order, core.clock.now_ms(), payload, counted=counted
        )


def _ignore(_reply: object) -> None:
    """Ignore a reply."""
