"""Checks before the port is bound: contradictory settings, and addresses open to other machines.

All functions raise errors whose message is printed. Source: wire contract, R-LIFE-1.
"""

from __future__ import annotations

import errno
import os
import resource
import socket

from topics.config import Config
from topics.errors import UsageError
from topics.http.access.keyring import parse_keys
from topics.http.access.origin import is_loopback
from topics.loop.loop import Loop
from topics.server.access_log_file import STANDARD_OUTPUT
from topics.server.keys_file import with_keys_of_file

_OTHER_DESCRIPTORS = 512
"""Descriptors left for files and the ring if RLIMIT_NOFILE decides the number of connections."""
_CONNECTIONS_MIN = 16
_PORT_WAIT_NS = 1_000_000_000
_PORT_LOOK_NS = 10_000_000


def check_config(config: Config) -> None:
    """Check the settings. Raises: UsageError naming the setting and the remedy."""
    keys = parse_keys(with_keys_of_file(config).api_keys)
    if not (keys or config.allow_insecure_no_auth or only_this_machine(config.host)):
        raise _needs_keys(config.host)
    check_offered(config, wanted_cores(config))


def wanted_cores(config: Config) -> int:
    """Return the number of cores that the settings ask for; with auto, that of the CPUs."""
    return len(os.sched_getaffinity(0)) if config.cores == "auto" else int(config.cores)


def check_offered(config: Config, cores: int) -> None:
    """Check that no setting asks for what several cores cannot do yet. Raises: UsageError."""
    if cores == 1:
        return
    if not hasattr(socket, "SO_REUSEPORT"):
        raise UsageError("this system has no SO_REUSEPORT, by which several cores share a port: use one core")
    if config.access_log == STANDARD_OUTPUT:
        raise UsageError("is -, where lines of several cores would be mixed: name a file", "access_log")


def check_address(config: Config, *, has_keys: bool, address: str) -> None:
    """Check the bound address, since the name in the settings may resolve to another one by then.

    Raises: UsageError.
    """
    if not (has_keys or config.allow_insecure_no_auth or is_loopback(address)):
        raise _needs_keys(config.host)


async def wait_for_port(loop: Loop, config: Config) -> None:
    """Return once the address can be bound: a start refused for it creates no directory.

    The port of a server that was killed is in use until the kernel has ended its io_uring, some
    milliseconds after the process is gone. Until then it takes connections, too, so no call to the
    port shows who has it: any that is in use is waited for.
    Raises: OSError.
    """
    if not config.port:
        return
    until_ns = loop.clock.monotonic_ns() + _PORT_WAIT_NS
    while True:
        try:
            fd, _address = loop.ring.listen(config.host, config.port, 0)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.clock.monotonic_ns() >= until_ns:
                raise
        else:
            await loop.files.close(fd)
            return
        await loop.sleep(_PORT_LOOK_NS)


def _needs_keys(host: str) -> UsageError:
    return UsageError(
        f"{host!r} can be reached from other machines and no keys are configured: set TOPICS_API_KEYS, "
        "bind 127.0.0.1, or set TOPICS_ALLOW_INSECURE_NO_AUTH=1 if any machine that can reach it may do everything"
    )


def forbid_core_dumps() -> None:
    """Let a crash leave no image of the memory, which contains keys and records."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def only_this_machine(host: str) -> bool:
    """Return whether all addresses of `host` are loopback.

    False for unspecified addresses, and for a name without addresses.
    """
    if is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter of a name that no host can have
        return False
    return bool(found) and all(is_loopback(str(address[0])) for *_, address in found)


def connection_limit(config: Config) -> int:
    """Return the maximum of connections: as configured, or as RLIMIT_NOFILE allows; 0 = unlimited.

    The soft limit is raised to the hard limit first, which needs no privilege.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    if config.max_connections:
        return config.max_connections
    return max(_CONNECTIONS_MIN, soft - _OTHER_DESCRIPTORS) if soft != resource.RLIM_INFINITY else 0
