"""The io_uring binding: SQEs in, CQEs out. It knows no file format and no protocol."""

from topics.uring.misuse import RingError
from topics.uring.uring_ring import UringRing

__all__ = ["RingError", "UringRing"]
