"""The answer to a read from a cursor, as JSON: one shape for HTTP and its lane.

An answer is a beginning, the records as the store rendered them, and an end. Source: wire contract
7.6.
"""

from __future__ import annotations

from topics.engine.values.results import DiffResult, Tombstone

_TOPIC, _RECORDS, _NEXT = b'{"topic":', b',"records":[', b'],"next_from_seq":'
_HEAD, _EARLIEST, _CAUGHT_UP = b',"head_seq":', b',"earliest_seq":', b',"caught_up":'
_TOMBSTONE, _LAG = b',"tombstone":', b',"lag":'
_TIMES = b',"performance":{"server_total_ms":%b,"records_scanned":'
_END = b"}}"

_BEGINNING = _TOPIC + b"%b" + _RECORDS
_ENDING = (
    _NEXT + b"%d" + _HEAD + b"%d" + _EARLIEST + b"%d" + _CAUGHT_UP + b"%b" + _TOMBSTONE + b"%b" + _LAG + b"%d"
    + b"%b" + _TIMES + b"%d%b" + _END
)  # fmt: skip
_PLACE = _NEXT[2:] + b"%d" + _HEAD + b"%d" + _CAUGHT_UP + b"%b"
_LOST = b'{"gap_from":%d,"gap_to":%d,"reason":"%b","missed_estimate":%d,"earliest_seq":%d,"head_seq":%d}'
_BOOLEANS = (b"false", b"true")

LANE_TEXTS = b"\0".join([
    _TOPIC + b'"', b'"' + _RECORDS, _NEXT, _HEAD, _EARLIEST, *(_CAUGHT_UP + value for value in _BOOLEANS),
    _TOMBSTONE + b"null" + _LAG, _END, b"",
])  # fmt: skip
"""The texts of an answer without a tombstone for scan_reads.c: around name, records, cursor, head,
earliest, both values of `caught_up`, lag, and the end.
"""
LANE_TIMES = _TIMES
"""The text after the lag in an answer of scan_reads.c. Value: total."""


def beginning(name_json: bytes) -> bytes:
    """Return the part of an answer before the records. name_json: the topic's name as JSON."""
    return _BEGINNING % name_json


def ending(result: DiffResult, total_ms: bytes, incarnation: str | None = None) -> bytes:
    """Return the part of an answer after the records. total_ms: `server_total_ms` as JSON.

    incarnation: of the topic, if the request asks for it.
    """
    cold = b',"cold_segments_read":%d' % result.cold_segments if result.cold_segments else b""
    return _ENDING % (
        result.next_from_seq,
        result.head_seq,
        result.earliest_seq,
        _BOOLEANS[result.caught_up],
        b"null" if result.tombstone is None else _tombstone_json(result.tombstone),
        result.lag,
        b"" if incarnation is None else b',"incarnation":"%b"' % incarnation.encode(),
        total_ms,
        result.scanned,
        cold,
    )


def place(next_from_seq: int, head_seq: int) -> bytes:
    """Return the members of a page of dead letters that say how far it has come (8.7)."""
    return _PLACE % (next_from_seq, head_seq, _BOOLEANS[next_from_seq == head_seq])


def _tombstone_json(tombstone: Tombstone) -> bytes:
    return _LOST % (
        tombstone.gap_from,
        tombstone.gap_to,
        tombstone.reason.encode(),
        tombstone.missed_estimate,
        tombstone.earliest_seq,
        tombstone.head_seq,
    )
