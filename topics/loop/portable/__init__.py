"""The Ring Protocol on epoll and one I/O thread."""

from topics.loop.portable.portable_ring import PortableRing

__all__ = ["PortableRing"]
