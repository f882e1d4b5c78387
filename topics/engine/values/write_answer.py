"""The answer to a write as members of a JSON object: one shape for HTTP, its lane and WebSockets.

Each protocol adds its own members before and after these. Source: wire contract 7.5 and 11.3.
"""

from __future__ import annotations

from functools import lru_cache

from topics.engine.values.durations import USUAL, USUAL_NS, milliseconds
from topics.engine.values.results import AppendResult

_TOPIC, _FIRST, _LAST = b'"topic":', b',"first_seq":', b',"last_seq":'
_SEQS, _HEAD, _COUNT = b',"seqs":', b',"head_seq":', b',"count":'
_ENDED = b',"created":%b,"deduped":%b,"performance":{%b}'
_USUALLY = _ENDED % (b"false", b"false", b"%b")

NO_LIST = _SEQS + b"null"
"""The replacement of `listed` in answers that always have the key."""
WRITTEN = _TOPIC + b"%b" + _FIRST + b"%d" + _LAST + b"%d%b" + _HEAD + b"%d" + _COUNT + b"%d" + _ENDED
"""Format of an answer. Values: topic (JSON), first, last, `listed` seqs or b"", head, count,
created and deduped (JSON), times.
"""
_ONE = _TOPIC + b"%b" + _FIRST + b"%d" + _LAST + b"%d" + _SEQS + b"[%d]" + _HEAD + b"%d" + _COUNT + b"1"
ONE_WRITTEN = _ONE + _USUALLY
"""Format of the most common answer: one record, listed, neither created nor deduped. Values: topic,
first, last, seq, head, times.
"""
_LONE = b"%b" + ONE_WRITTEN + b"}"
_USUAL_LONE = (
    b"%b" + _ONE + _ENDED % (b"false", b"false", b'"server_total_ms":%b,"wal_append_ms":%b,"fsync_ms":%b') + b"}"
)
_STAGED = b',"staged":true,"piece":'
STAGED = _TOPIC + b"%b" + _STAGED + b"%d" + _COUNT + b"%d" + _ENDED
"""Format of the answer to a piece of a part that waits for the other pieces. Values: topic, piece,
count, created, deduped, times.
"""
LANE_TEXTS = b"\0".join([b"{" + _TOPIC + b'"', b'"' + _FIRST, _LAST, _SEQS + b"[", b"]", _HEAD, _COUNT, b""])
"""WRITTEN for scan.c: the texts around name, first, last, seqs (if listed), head and count."""
LANE_END = _USUALLY + b"}"
"""The text after the count in an answer of scan.c. Value: times."""


def with_null_list(answer: bytes) -> bytes:
    """Return the answer to a write with a null in the place of seqs that it does not list.

    That to a piece, which has no seqs, stays as it is.
    """
    if _SEQS in answer or _STAGED in answer:
        return answer
    before, head, after = answer.partition(_HEAD)
    return before + NO_LIST + head + after


def listed(first: int, last: int) -> bytes:
    """Return the member `seqs`: the list of the records' seqs."""
    return _SEQS + b"[%b]" % ",".join(map(str, range(first, last + 1))).encode()


def one_lone_json(before: bytes, topic: bytes, result: AppendResult, total_ns: int, window_ns: int) -> bytes:
    """Return the answer to a write of one listed record, which is now the last of its topic.

    Its commit has no other write, so its other times are parts of the total.

    before: what the protocol has before these members, from the brace on. topic: its name as JSON.
    """
    seq, append_ns, sync_ns = result.first_seq, result.append_ns, result.sync_ns
    if window_ns or total_ns >= USUAL_NS:
        return _LONE % (before, topic, seq, seq, seq, seq, write_times(total_ns, append_ns, sync_ns, window_ns))
    times = USUAL[total_ns // 1000], USUAL[append_ns // 1000], USUAL[sync_ns // 1000]
    return _USUAL_LONE % (before, topic, seq, seq, seq, seq, *times)


def write_times(total_ns: int, append_ns: int, sync_ns: int, window_ns: int) -> bytes:
    """Return the `performance` of a write: total, wait under pressure, append and sync.

    window_ns: how long commits are held back under pressure, 0 = not at all.
    """
    total = b'"server_total_ms":' + milliseconds(total_ns)
    if window_ns:
        total += _throttle_wait(window_ns, total_ns - append_ns - sync_ns)
    return total + _commit_times(append_ns, sync_ns)


def repeat_times(total_ns: int) -> bytes:
    """Return the `performance` of a duplicate, which had no append and no sync of its own."""
    return b'"server_total_ms":' + milliseconds(total_ns)


@lru_cache(8)
def _commit_times(append_ns: int, sync_ns: int) -> bytes:
    """Return the times that are equal for all writes of one commit."""
    return b',"wal_append_ms":%b,"fsync_ms":%b' % (milliseconds(append_ns), milliseconds(sync_ns))


def _throttle_wait(window_ns: int, waited_ns: int) -> bytes:
    """Return the wait that a commit window widened under pressure has cost a write at most.

    waited_ns: the time of the write without its commit.
    """
    return b',"throttle_wait_ms":' + milliseconds(max(0, min(window_ns, waited_ns)))
