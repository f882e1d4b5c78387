"""The numbered records that clients appended, and the jobs that they did, as far as they know."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


class AppendLedger:
    """The numbers that one writer has appended to one topic, as `[writer, number]`."""

    def __init__(self, writer: str, topic: str) -> None:
        self.writer = writer
        self.topic = topic
        self.count = 0
        self.done: dict[int, int] = {}
        """The seqs of the numbers whose append was answered."""
        self.unknown: set[int] = set()
        """The client said that they may be there, or not."""
        self.refused: set[int] = set()
        """The client said that they are not there."""

    def next(self, count: int = 1) -> list[int]:
        """Return numbers that were not used before."""
        self.count += count
        return list(range(self.count - count, self.count))

    def rows(self, numbers: Iterable[int]) -> list[list[Any]]:
        return [[self.writer, number] for number in numbers]

    def note(self, numbers: Sequence[int], first_seq: int) -> None:
        self.done.update((number, first_seq + at) for at, number in enumerate(numbers))


def append_faults(ledgers: Sequence[AppendLedger], found: Sequence[tuple[int, Any]]) -> list[str]:
    """Return what is wrong with the records of a topic, pairs of seq and data."""
    faults = []
    writers = {ledger.writer for ledger in ledgers}
    if strange := [(seq, data) for seq, data in found if not isinstance(data, list) or data[0] not in writers]:
        faults.append(f"records that nobody wrote: {strange[:9]}")
    for ledger in ledgers:
        where = f"{ledger.topic}, {ledger.writer}"
        seqs: dict[int, list[int]] = {}
        for seq, data in found:
            if data[0] == ledger.writer:
                seqs.setdefault(data[1], []).append(seq)
        if doubled := {number: at for number, at in seqs.items() if len(at) > 1}:
            faults.append(f"{where}: doubled {list(doubled.items())[:9]}")
        if lost := [number for number in ledger.done if number not in seqs]:
            faults.append(f"{where}: acknowledged and lost {lost[:9]}")
        if moved := [number for number, seq in ledger.done.items() if number in seqs and seq not in seqs[number]]:
            faults.append(f"{where}: not at the seq of their answers {moved[:9]}")
        if there := sorted(ledger.refused & seqs.keys()):
            faults.append(f"{where}: there, though the client said that they are not {there[:9]}")
        if untold := sorted(seqs.keys() - ledger.done.keys() - ledger.unknown - ledger.refused):
            faults.append(f"{where}: there, and never answered {untold[:9]}")
        in_order = [ledger.done[number] for number in sorted(ledger.done)]
        if in_order != sorted(in_order):
            faults.append(f"{where}: not in the order of their appends")
    return faults


class JobLedger:
    """The jobs that workers were handed, and whose acks were answered as done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handed: Counter[int] = Counter()
        self._acked: Counter[int] = Counter()

    def hand(self, number: int) -> None:
        with self._lock:
            self._handed[number] += 1

    def ack(self, number: int) -> None:
        with self._lock:
            self._acked[number] += 1

    @property
    def handed(self) -> int:
        """Deliveries so far."""
        return self._handed.total()

    def faults(self, appended: AppendLedger, left: int) -> list[str]:
        """Return what is wrong at the end. left: jobs that the queue still has."""
        faults = []
        if lost := [number for number in appended.done if number not in self._handed]:
            faults.append(f"jobs that nobody was handed: {lost[:9]}")
        if twice := [number for number, count in self._acked.items() if count > 1]:
            faults.append(f"jobs that were completed twice: {twice[:9]}")
        known = appended.done.keys() | appended.unknown
        if strange := [number for number in self._handed if number not in known]:
            faults.append(f"jobs that nobody appended: {strange[:9]}")
        if left:
            faults.append(f"{left} jobs are left in the queue")
        return faults
