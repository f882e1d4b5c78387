"""The probe of the kernel, once the binding is loaded: see `topics.uring.probe`.

It asks for opcodes by number and tries the multishot receive; it never parses a version.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from topics.uring._ring import ffi, lib
from topics.uring.setup import explain_refusal
from topics.uring.support import RingSupport, memlock_text
from topics.uring.uring_ring import UringRing

NEEDED_OPCODES = {
    3: "FSYNC",
    13: "ACCEPT",
    14: "ASYNC_CANCEL",
    16: "CONNECT",
    18: "OPENAT",
    19: "CLOSE",
    22: "READ",
    23: "WRITE",
    26: "SEND",
    27: "RECV",
    34: "SHUTDOWN",
    35: "RENAMEAT",
    36: "UNLINKAT",
}
"""Numbers of enum io_uring_op, part of the kernel's ABI."""
PROBE_WAIT_NS = 1_000_000_000


def probe_kernel() -> RingSupport:
    """Open a small ring, ask for its opcodes, and receive one byte with a multishot receive.

    Missing support is reported in the result, not raised.
    """
    memlock = memlock_text()
    try:
        ring = UringRing(64, 256, 8, 64)
    except OSError as error:
        reason, remedy = explain_refusal(error.errno or errno.ENOSYS, (64, 256), (64, 256))
        return RingSupport(False, reason, remedy, (), (), memlock)
    with contextlib.closing(ring):
        flags = ring.setup.flags
        opcodes = known_opcodes(ring)
        missing = sorted(set(NEEDED_OPCODES.values()) - set(opcodes))
        if missing:
            reason = f"this kernel lacks the io_uring operations {', '.join(missing)}"
        elif not multishots_work(ring):
            reason = "this kernel has no multishot receive into provided buffers"
        else:
            return RingSupport(True, "", "", opcodes, flags, memlock)
    return RingSupport(False, reason, "Use Linux 6.0 or newer, or --io portable", opcodes, flags, memlock)


def known_opcodes(ring: UringRing) -> tuple[str, ...]:
    supported = ffi.new("uint8_t[]", 256)
    if lib.tp_opcodes(ring.setup.ring, supported, 256) < 0:
        return ()
    return tuple(name for number, name in NEEDED_OPCODES.items() if supported[number])


def multishots_work(ring: UringRing) -> bool:
    """Return whether a multishot receive works.

    A byte must arrive in a provided buffer, and the receive must stay armed.
    """
    near, far = socket.socketpair()
    with near, far:
        ring.queue_recv(1, near.fileno())
        far.send(b"x")
        ring.submit_and_wait(PROBE_WAIT_NS)
        user_data, res, flags = ring.reap()
        return user_data == [1] and res == [1] and flags[0] & 3 == 3
