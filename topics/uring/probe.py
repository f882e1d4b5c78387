"""Whether a UringRing works here, for `topics doctor` and before a ring is chosen.

The binding is loaded late, because this module is imported where it cannot be loaded, too: the
portable ring serves there.
"""

from __future__ import annotations

from topics.uring.support import RingSupport, memlock_text


def probe() -> RingSupport:
    """Load the binding and try it: see `probe_kernel`.

    Missing support is reported in the result, not raised.
    """
    try:
        from topics.uring.kernel_probe import probe_kernel  # noqa: PLC0415 - it may not load
    except ImportError as error:
        remedy = "Install liburing (apt-get install liburing2), build it anew (python build_ffi.py), or --io portable"
        return RingSupport(False, f"the binding cannot be loaded: {error}", remedy, (), (), memlock_text())
    return probe_kernel()
