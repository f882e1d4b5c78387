"""Routers of this core whose destination is on another one, and what becomes of their links.

    checks here -> the link -> the router, durable -> the answer
    the router is deleted, durably -> its link -> the answer

A link without a router is removed by its core, which asks (links.py). So only the router counts,
and what is left after a crash in between is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from topics.common.values.configs import RouterConfig
from topics.engine.routers.far_messages import (
    CatchUpOrder,
    CaughtUp,
    GoneOrder,
    LinkOrder,
    LinkState,
    NoLink,
    OtherHalves,
    Path,
    PathOrder,
    Replied,
    Reply,
    UnlinkOrder,
)
from topics.engine.routers.forwarding import Forwarding
from topics.engine.routers.links import LinksCore, check_lasting, stage_router, stage_settings
from topics.engine.routers.router_results import RouterPut
from topics.engine.state import refusals
from topics.engine.state.router import RouterLife, StoredConfig
from topics.engine.state.router_work import STEPPING
from topics.engine.state.staged_operations import Notice
from topics.engine.state.topic import Life, Router, Topic
from topics.engine.values import incarnation
from topics.engine.values.ports import LoopPort
from topics.engine.values.results import DeleteTopicResult, Done
from topics.engine.write.lifecycle import Lifecycle
from topics.errors import TopicsError
from topics.store.layouts.directory_names import FOURTH_DIRECTORY_FORMAT

_TRIES = 2
"""Further tries of a step that the core which asks for it has not answered."""
_REPORTS_A_STEP = 16
"""Deletions that one step reports to other cores."""


class FarRoutersCore(LinksCore, Protocol):
    """The part of the core that routers between cores need."""

    loop: LoopPort


class FarRouters:
    """The halves at the source."""

    def __init__(
        self, core: FarRoutersCore, lifecycle: Lifecycle, forwarding: Forwarding, others: OtherHalves | None
    ) -> None:
        """others: the other cores; None if there are none."""
        self._core = core
        self._lifecycle = lifecycle
        self._forwarding = forwarding
        self._others = others
        forwarding.on_gone_with_topic.append(self._report)
        self._making: set[str] = set()
        """Tokens of links that are made, whose routers follow."""

    # --- make and change ---------------------------------------------------------------------------------------------
    def put(
        self,
        name: str,
        config: RouterConfig,
        existing: Router | None,
        again: Callable[[], None],
        done: Done[RouterPut],
    ) -> None:
        """Make a router, or change one, whose checks on this core are made. Raises: TopicsError.

        again: makes all checks once more.
        """
        source = self._core.registry.named(config.source)
        if source is not None:
            check_lasting(source)
        if existing is not None:
            order = self._order(existing.token, name, config, existing.source.id, -1)
            self._ask(config.dest, order, partial(self._on_changed, existing, config, again, done))
        elif source is None:
            order = self._order("", name, config, 0, 0)
            self._ask(config.dest, order, partial(self._on_possible, name, config, again, done))
        else:
            self._link(name, config, source, again, done)

    @staticmethod
    def _order(token: str, name: str, config: RouterConfig, source_id: int, position: int) -> LinkOrder:
        stored = StoredConfig.of(config)
        return LinkOrder(token, name, config.source, source_id, config.dest, config.create_dest, stored, position)

    def _on_possible(
        self,
        name: str,
        config: RouterConfig,
        again: Callable[[], None],
        done: Done[RouterPut],
        reply: Reply | TopicsError,
    ) -> None:
        """Make the source, which the other core has nothing against."""
        if isinstance(reply, TopicsError):
            done(reply)
            return
        if self._core.registry.named(config.source) is not None:
            again()
            return

        def made(result: RouterPut | TopicsError) -> None:
            if isinstance(result, TopicsError):
                self._lifecycle.delete(config.source, if_empty=True, done=_ignore_deleted)
            done(result)

        try:
            (source,) = self._lifecycle.create_missing((config.source,))
            self._link(name, config, source, again, made)
        except TopicsError as error:
            done(error)

    def _link(
        self, name: str, config: RouterConfig, source: Topic, again: Callable[[], None], done: Done[RouterPut]
    ) -> None:
        """Have the link made, and then the router, which begins at the head of this moment."""
        token, position = incarnation.draw(self._core.loop.random_bytes), source.head
        self._making.add(token)

        def on_linked(reply: Reply | TopicsError) -> None:
            if not isinstance(reply, LinkState):
                self._making.discard(token)
                done(reply if isinstance(reply, TopicsError) else refusals.topic_not_found(config.dest))
            else:
                self._core.format.when_raised(FOURTH_DIRECTORY_FORMAT, partial(on_raised, reply))

        def on_raised(reply: LinkState, failed: TopicsError | None) -> None:
            core = self._core
            if failed is not None:
                self._unlink(config.dest, token, partial(done, failed))
                return
            try:
                check_lasting(source)
                if source.life in (Life.DELETING, Life.GONE) or name in core.routers.by_name:
                    self._unlink(config.dest, token, again)
                else:
                    self._create(name, config, source, (token, position, reply.dest_id), done)
            except TopicsError as error:
                self._unlink(config.dest, token, partial(done, error))

        self._ask(config.dest, self._order(token, name, config, source.id, position), on_linked)

    def _create(
        self, name: str, config: RouterConfig, source: Topic, link: tuple[str, int, int], done: Done[RouterPut]
    ) -> None:
        """Make a router whose link is there. Raises: TopicsError.

        link: token, position, and the id of the destination.
        """
        core, (token, position, dest_id) = self._core, link
        dest = core.registry.stand_in(config.dest, dest_id)
        router = Router(name, core.registry.take_order(), source, dest, config)
        router.token, router.position = token, position
        router.examined = router.unmarked = 0
        stage_router(core, router, counted=True)
        core.routers.add(router)

        def on_logged(error: TopicsError | None) -> None:
            self._making.discard(token)
            if error is None and router.life is RouterLife.CREATING:
                router.enter_life(RouterLife.LIVE)
                self._forwarding.note(router)
            elif router.life is not RouterLife.GONE:
                core.routers.remove(router)
            done(error or RouterPut(True, config))
            router.resume_parked()
            if router.life is RouterLife.GONE:
                self._unlink(config.dest, token, _ignore)

        Notice(core, source, on_logged).stage(synced=True)

    def _on_changed(
        self,
        router: Router,
        config: RouterConfig,
        again: Callable[[], None],
        done: Done[RouterPut],
        reply: Reply | TopicsError,
    ) -> None:
        """Change a router whose link has the settings already."""
        if isinstance(reply, TopicsError):
            done(reply)
        elif isinstance(reply, NoLink):
            self._forwarding.leaving.note_gone(router)
            again()
        elif router.life is not RouterLife.LIVE:
            again()
        else:
            try:
                stage_settings(self._core, router, config, lambda error: done(error or RouterPut(False, config)))
            except TopicsError as error:
                done(error)

    # --- cycles ------------------------------------------------------------------------------------------------------
    def path_beyond(self, path: list[str], until: str, then: Callable[[list[str] | TopicsError], None]) -> None:
        """Call `then` with the topics that lead to the last one of a path, on another core.

        They end at `until`, or at a topic that is met again.
        """
        met = {*path}

        def on_path(reply: Reply | TopicsError) -> None:
            if isinstance(reply, TopicsError):
                then(reply)
                return
            assert isinstance(reply, Path), "the reply to its order"
            names = [name for name in reply.names if name not in met]
            found.extend(names)
            if reply.is_cut and len(names) == len(reply.names) and until not in names:
                met.update(names)
                self._ask(names[-1], PathOrder(names[-1]), on_path)
            else:
                then(found)

        found: list[str] = []
        self._ask(path[-1], PathOrder(path[-1]), on_path)

    # --- delete ------------------------------------------------------------------------------------------------------
    def unlink(self, router: Router, then: Callable[[], None]) -> None:
        """Have the link of a deleted router removed; call `then`, in any case."""
        self._unlink(router.dest.name, router.token, then)

    def _unlink(self, dest: str, token: str, then: Callable[[], None]) -> None:
        self._making.discard(token)
        self._ask(dest, UnlinkOrder(token), lambda _reply: then())

    def _report(self, gone: Sequence[Router], then: Callable[[], None]) -> Iterator[None]:
        """Report to other cores, in steps, that routers and links are gone with a topic.

        `then` is called once all have answered, or ended.
        """
        waits, others = len(gone), self._others
        assert others is not None, "halves of routers on a server of one core"

        def replied(_reply: Reply | TopicsError) -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                then()

        for count, router in enumerate(gone, 1):
            if router.source.is_far:
                others.ask(router.source.name, GoneOrder(router.source.name, router.token), replied)
            else:
                others.ask(router.dest.name, UnlinkOrder(router.token), replied)
            if count % _REPORTS_A_STEP == 0:
                yield

    def forget(self, order: GoneOrder, done: Replied) -> None:
        """Delete the router of a link that is gone; answer once it is."""
        for router in self._routers_of(order.source):
            if router.token == order.token:
                self._forwarding.leaving.note_gone(router)
                if router.life is RouterLife.DELETING:
                    router.parked.append(lambda: done(NoLink()))
                    return
        done(NoLink())

    # --- readers of the destination ----------------------------------------------------------------------------------
    def catch_up(self, order: CatchUpOrder, done: Replied) -> None:
        """Bring the routers of a source and a destination to the head, after those above them."""
        routers = [router for router in self._routers_of(order.source) if router.dest.name == order.dest]
        tokens = {router.token for router in routers} | self._making
        unknown = [token for token in order.positions if token not in tokens]
        for router in routers:
            position = order.positions.get(router.token)
            if position is not None and position < router.position and router.work not in STEPPING:
                router.is_unsure = True  # after a power cut, or it was asked before the last answer
        source = self._core.registry.named(order.source)
        if source is None or not routers:
            done(CaughtUp(unknown))
            return

        def on_source() -> None:
            waits = len(routers) + 1

            def one() -> None:
                nonlocal waits
                waits -= 1
                if not waits:
                    done(CaughtUp(unknown))

            for router in routers:
                self._catch_up_router(router, one, _TRIES)
            one()

        self._forwarding.catch_up_above(source, order.levels, on_source)

    def _catch_up_router(self, router: Router, then: Callable[[], None], tries: int) -> None:
        """Bring a router to the head of its source for the core of its destination.

        That core is there, since it asks. So a step without an answer had gone to one that has
        ended, or came before it was ready. Its reader may wait afterwards, until a step says that
        there is none.
        """
        router.is_awaited = True

        def on_end() -> None:
            if tries and router.is_unsure and router.life is RouterLife.LIVE:
                self._catch_up_router(router, then, tries - 1)
            else:
                then()

        self._forwarding.catch_up_router(router, on_end)

    def _routers_of(self, name: str) -> Sequence[Router]:
        source = self._core.registry.named(name)
        return [router for router in source.routers if router.token] if source is not None else []

    def _ask(self, topic: str, order: LinkOrder | UnlinkOrder | PathOrder, done: Replied) -> None:
        assert self._others is not None, "a router between cores on a server of one"
        self._others.ask(topic, order, done)


def _ignore() -> None:
    """Ignore the end of an order."""


def _ignore_deleted(_result: DeleteTopicResult | TopicsError) -> None:
    """Ignore the result of a deletion."""
