"""The answer to a write as members of a JSON object: one shape for HTTP, its lane, and WebSockets.

Source: wire contract 7.5 and 11.3. Each protocol puts its own before and behind these members.
"""

from __future__ import annotations

from functools import lru_cache

from topics.engine.values.durations import milliseconds

_TOPIC, _FIRST, _LAST = b'"topic":', b',"first_seq":', b',"last_seq":'
_SEQS, _HEAD, _COUNT = b',"seqs":', b',"head_seq":', b',"count":'
_ENDED = b',"created":%b,"deduped":%b,"performance":{%b}'
_USUALLY = _ENDED % (b"false", b"false", b"%b")

NO_LIST = _SEQS + b"null"
"""In place of `listed`, where a key is never left out."""
WRITTEN = _TOPIC + b"%b" + _FIRST + b"%d" + _LAST + b"%d%b" + _HEAD + b"%d" + _COUNT + b"%d" + _ENDED
"""Of topic (JSON), first, last, `listed` seqs or b"", head, count, created and deduped (JSON), and times."""
ONE_WRITTEN = (
    _TOPIC + b"%b" + _FIRST + b"%d" + _LAST + b"%d" + _SEQS + b"[%d]" + _HEAD + b"%d" + _COUNT + b"1" + _USUALLY
)
"""The commonest of those: one record, listed, not created nor deduped. Of topic, first, last, seq, head and times."""
STAGED = _TOPIC + b'%b,"staged":true,"piece":%d' + _COUNT + b"%d" + _ENDED
"""Of topic, piece, count, created, deduped and times: a piece of a part that waits for the others."""
LANE_TEXTS = b"\0".join([b"{" + _TOPIC + b'"', b'"' + _FIRST, _LAST, _SEQS + b"[", b"]", _HEAD, _COUNT, b""])
"""WRITTEN for scan.c: the texts around name, first, last, seqs (if they are listed), head and count."""
LANE_END = _USUALLY + b"}"
"""What follows the count there. Of times."""


def listed(first: int, last: int) -> bytes:
    """Return the list of the records' seqs."""
    return _SEQS + b"[%b]" % ",".join(map(str, range(first, last + 1))).encode()


def write_times(total_ns: int, append_ns: int, sync_ns: int, window_ns: int) -> bytes:
    """Return the `performance` of a write: in all, of that the wait under pressure, appending, and syncing.

    window_ns: how long commits are held back under pressure, or 0.
    """
    total = b'"server_total_ms":' + milliseconds(total_ns)
    if window_ns:
        total += _throttle_wait(window_ns, total_ns - append_ns - sync_ns)
    return total + _commit_times(append_ns, sync_ns)


def repeat_times(total_ns: int) -> bytes:
    """Return the `performance` of a duplicate, which was appended by the write that it repeats."""
    return b'"server_total_ms":' + milliseconds(total_ns)


@lru_cache(8)
def _commit_times(append_ns: int, sync_ns: int) -> bytes:
    """Writes of one commit have these in common."""
    return b',"wal_append_ms":%b,"fsync_ms":%b' % (milliseconds(append_ns), milliseconds(sync_ns))


def _throttle_wait(window_ns: int, waited_ns: int) -> bytes:
    """What a commit window widened under pressure has cost a write at most.

    waited_ns: the time the write took besides its commit.
    """
    return b',"throttle_wait_ms":' + milliseconds(max(0, min(window_ns, waited_ns)))
