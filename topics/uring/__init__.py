"""SQEs in, CQEs out: the io_uring binding. Knows no file format and no protocol."""

from topics.uring.misuse import RingError
from topics.uring.uring_ring import UringRing

__all__ = ["RingError", "UringRing"]
