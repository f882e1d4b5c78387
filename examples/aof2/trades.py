"""After: the trades of trades.rs in a topic, written from a loop that must never wait."""

from __future__ import annotations

import sys

import topics


def open_log(path: str) -> topics.Log:
    return topics.open(path, segment_max_bytes=64 << 20, max_unsynced_bytes=8 << 20)


def offer(log: topics.Log, trade: bytes) -> topics.Pending | None:
    """Take a trade without waiting; None if the log cannot take one now."""
    try:
        return log.append_nowait("trades", [trade])
    except topics.WouldBlockError:
        return None


def settle(log: topics.Log, trade: bytes) -> int:
    """Take a trade that must not be lost: wait for room, then until it is durable; return its seq."""
    seq = log.append("trades", [trade], timeout=1.5).first_seq
    log.flush("trades", seq)
    return seq


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/aof2/trades.py DIRECTORY, where the log is, or is to be made")
    with open_log(sys.argv[1]) as log:
        offered = offer(log, b"\x01\x00buy")
        settled = settle(log, b"\x02\x00sell")
        record = log.get("trades", settled)
        print(offered and offered.result(), record and record.data)
        log.checkpoint()


if __name__ == "__main__":
    main()
