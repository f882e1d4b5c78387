"""The datagram that carries a connection to another loop, beside its descriptor.

A header (magic, format, hand-overs, length of the address, port, length of the bytes), then the
client's address, then what was received of it and not handled. The kernel delivers a datagram whole
or not at all, and only this user may send one. So the lengths are checked, and bytes have no
checksum. Numbers have the byte order of the machine that both loops run on.

Another datagram is shorter than that header: it carries one end of a pair of sockets, between the
loops themselves.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEADER = struct.Struct("=4sBBHHI")
_MAGIC = b"TPHO"
_FORMAT = 1
_PEER_BYTES_MAX = 255
UNREAD_BYTES_MAX = 128 << 10
"""Most unread bytes that travel with a connection.

The kernel takes some 208 KiB in a datagram.
"""
MESSAGE_BYTES_MAX = _HEADER.size + _PEER_BYTES_MAX + UNREAD_BYTES_MAX


_PAIR = struct.Struct("=4sBH")
_PAIR_MAGIC = b"TPPR"


class DamagedMessageError(ValueError):
    """A datagram that is no connection of a loop of this build."""


class Carried(NamedTuple):
    """A connection between two requests, as another loop gets it. No answer of it is half sent."""

    peer: tuple[str, int]
    hand_overs: int
    """How often it was handed over, this time included: 1 to 255."""
    unread: bytes
    """Bytes that the client has sent first: the next request begins with them. Never empty."""


def encoded(carried: Carried) -> bytes:
    """Return the datagram. The caller has checked the number of unread bytes."""
    host = carried.peer[0].encode()[:_PEER_BYTES_MAX]
    unread = carried.unread
    header = _HEADER.pack(_MAGIC, _FORMAT, carried.hand_overs, len(host), carried.peer[1], len(unread))
    return header + host + unread


def decoded(message: bytes) -> Carried:
    """Return the connection of a datagram. Raises: DamagedMessageError."""
    if len(message) < _HEADER.size:
        raise DamagedMessageError(f"{len(message)} bytes are shorter than a header")
    magic, number, hand_overs, host_bytes, port, unread_bytes = _HEADER.unpack_from(message)
    if magic != _MAGIC or number != _FORMAT:
        raise DamagedMessageError(f"it begins with {magic!r}, format {number}")
    start = _HEADER.size + host_bytes
    if len(message) != start + unread_bytes or not unread_bytes or not hand_overs or host_bytes > _PEER_BYTES_MAX:
        raise DamagedMessageError(f"{len(message)} bytes are not those of its header")
    try:
        host = message[_HEADER.size : start].decode()
    except UnicodeDecodeError as error:
        raise DamagedMessageError("the address of its client is not UTF-8") from error
    return Carried((host, port), hand_overs, message[start:])


def pair_message(number: int) -> bytes:
    """Return the datagram beside one end of a pair of sockets. number: of the sending loop."""
    return _PAIR.pack(_PAIR_MAGIC, _FORMAT, number)


def pair_number(message: bytes) -> int | None:
    """Return the number of the loop that has sent one end of a pair; None: it is none."""
    if len(message) != _PAIR.size:
        return None
    magic, found, number = _PAIR.unpack(message)
    return int(number) if (magic, found) == (_PAIR_MAGIC, _FORMAT) else None
