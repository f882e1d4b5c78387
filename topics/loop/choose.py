"""Choice of the ring: `--io auto|uring|portable`, and the reason in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topics.clock import SystemClock
from topics.config import Config
from topics.errors import UsageError
from topics.loop.loop import Loop
from topics.loop.ring import Ring
from topics.uring.probe import probe


@contextmanager
def open_loop(config: Config) -> Iterator[Loop]:
    """Yield a loop of this thread on the ring that is chosen, closed in the end."""
    ring, _ = open_ring(config, shared=False)
    loop = Loop(ring, SystemClock())
    try:
        yield loop
    finally:
        loop.close()


def open_ring(config: Config, *, shared: bool) -> tuple[Ring, str]:
    """Return the ring of one loop and the reason for it (for the log, health and `topics doctor`).

    shared: any thread may drive the ring, one at a time (embedded logs). `auto` falls back to the
    portable ring; `uring` never does.
    Raises: UsageError if `uring` is asked for and does not work, with the cause and the remedy.
    """
    if config.io == "portable":
        return open_portable(config), "asked for"
    support = probe()
    if support.ok:
        from topics.uring.uring_ring import UringRing  # noqa: PLC0415 - it loads the binding

        try:
            ring = UringRing(
                config.ring_entries,
                config.ring_completions,
                config.receive_buffers,
                config.receive_buffer_bytes,
                shared=shared,
                # A thread of a program that embeds a log has other work than to poll.
                spin_us="0" if shared and config.spin_us == "auto" else config.spin_us,
            )
        except OSError as error:
            problem = str(error)
        else:
            reason = "asked for" if config.io == "uring" else "the kernel supports all it needs"
            if ring.setup.completions < config.ring_completions:
                reason += f"; halved to {ring.setup.completions} completions, for lack of RLIMIT_MEMLOCK"
            return ring, reason
    else:
        problem = f"{support.reason}. {support.remedy}"
    if config.io == "uring":
        raise UsageError(f"--io uring: {problem}")
    return open_portable(config), problem


def open_portable(config: Config) -> Ring:
    """Return a ring on epoll and one I/O thread. The module is imported only where it is needed."""
    from topics.loop.portable.portable_ring import PortableRing  # noqa: PLC0415 - rarely needed

    return PortableRing(config.receive_buffers, config.receive_buffer_bytes)
