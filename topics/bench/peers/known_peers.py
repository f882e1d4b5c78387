"""The sides by name, and which of them a run has."""

from __future__ import annotations

from topics.bench.peers.library_side import LibrarySide
from topics.bench.peers.nats_peer import NatsCore, NatsJetStream
from topics.bench.peers.python_servers import AsyncioServer, EchoServer
from topics.bench.peers.redis_peer import RedisPubSub, RedisStreams
from topics.bench.peers.stores_in_process import BareFile, LmdbStore, SqliteStore
from topics.bench.peers.walrus_peer import WalrusLog
from topics.bench.sides import BenchPeer, Side
from topics.bench.topics_server.topics_side import TopicsSide
from topics.bench.workload import Workload
from topics.errors import UsageError

NONE, AUTO = "none", "auto"


def own_side(workload: Workload, url: str, key: str, settings: dict[str, str]) -> Side:
    """Return this package as a side: the library for workloads of it, else the server.

    Raises: UsageError for the library and a URL.
    """
    if "append" in workload.kinds:
        if url:
            raise UsageError(f"--url is {url!r}: {workload.name} calls the library in this process: leave it out")
        return LibrarySide(settings)
    return TopicsSide(url, key, settings)


def known_peers() -> dict[str, BenchPeer]:
    """Return every peer by the name that workloads and --peers use."""
    return {
        "redis": RedisStreams(),
        "redis-pubsub": RedisPubSub(),
        "nats": NatsJetStream(),
        "nats-core": NatsCore(),
        "asyncio": AsyncioServer(),
        "echo": EchoServer(),
        "commit": BareFile(),
        "sqlite": SqliteStore(),
        "lmdb": LmdbStore(),
        "walrus": WalrusLog(),
    }


def chosen_peers(workload: Workload, names: str) -> tuple[list[Side], list[str]]:
    """Return the peers of a run, and a sentence for each that is left out.

    names: `none`, `auto` for those of the workload that are on this machine, or names by commas.
    Raises: UsageError for a name that is not known, or a peer that was named and is not here.
    """
    known = known_peers()
    if names == NONE:
        return [], []
    wanted = workload.peers if names == AUTO else tuple(filter(None, names.split(",")))
    if not wanted and names != AUTO:
        raise UsageError(f"--peers is {names!r}: it names no peer: use one of {', '.join(known)}, auto or none")
    if twice := [name for at, name in enumerate(wanted) if name in wanted[:at]]:
        raise UsageError(f"--peers is {names!r}: it has {twice[0]} twice: name each peer once")
    chosen: list[Side] = []
    left_out: list[str] = []
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no peer {name!r}: use one of {', '.join(known)}, auto or none")
        reason = known[name].missing()
        if reason and names != AUTO:
            raise UsageError(f"the peer {name} is not here: {reason}")
        if reason:
            left_out.append(f"{known[name].name}: {reason}")
        else:
            chosen.append(known[name])
    return chosen, left_out
