"""One short life of a log with backups, killed after every pass of the loop while the second of them is written.

Files of the first backup are linked into the second, and the log grows, loses records and makes a checkpoint beside it.
After the kill, or the power cut, each backup that is there has to be sound, and to open with what the log held at its
instant; the log has all that it had acknowledged; and one more backup works.

    python -m tests.store.backup.backup_sweep [EVERY]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.store.backup.test_write_backup import ROOT, backup, begun, check_opens_with, filled, finished, seqs
from topics.common.values.backup_result import BackupResult
from topics.errors import TopicsError
from topics.store.backup.backup_manifest import backup_names
from topics.store.backup.restore_backup import check_backup

_NEVER = 1 << 30
Held = dict[int, list[int]]


class Life:
    """A log whose first backup is there, and whose second one has just begun."""

    def __init__(self) -> None:
        self.world = filled()
        self.world.run(self.world.loop.sleep(3_000_000_000))
        self.first, of_first = backup(self.world), seqs(self.world)
        self.world.delete(1, [4])
        self.world.append(1, 12)
        self.instants: list[Held] = [of_first, seqs(self.world)]
        self.answers: list[BackupResult | TopicsError] = begun(self.world)
        self.world.delete(1, [5, 22])
        self.world.append(2, 4)
        self.held = seqs(self.world)

    def write(self, passes: int) -> int:
        """Write the second backup for so many passes of the loop at most; return how many it took."""
        taken = 0
        while taken < passes and not self.answers:
            self.world.loop.run_pass(None)
            taken += 1
        return taken


class Kill(NamedTuple):
    """An end of the process while a backup is written."""

    power_cut: bool
    after: int | None
    """Passes of the loop; None: right after the answer."""

    def __str__(self) -> str:
        return f"{'power-cut' if self.power_cut else 'kill'}-after-{self.after}"

    def run(self) -> int:
        """Return how many backups the kill left. Raises: AssertionError."""
        life = Life()
        taken = life.write(_NEVER if self.after is None else self.after)
        assert self.after in {None, taken}, "it came after the end"
        world = life.world.next_life(power_cut=self.power_cut)
        assert seqs(world) == life.held
        world.check_every_record()
        names = backup_names(world.loop.files, ROOT)
        assert all(world.run(check_backup(world.loop, f"{ROOT}/{name}")) == [] for name in names)
        assert f"{ROOT}/{names[0]}" == life.first.path
        made = finished(world, begun(world))
        assert len(backup_names(world.loop.files, ROOT)) == len(names) + 1
        left = [made._replace(path=f"{ROOT}/{name}") for name in names]
        for each, expected in zip([*left, made], [*life.instants[: len(left)], life.held], strict=True):
            check_opens_with(world, each, expected)
        return len(names)


def kills(every: int = 1) -> Iterator[Kill]:
    """Yield every so many kills, up to the length of the life."""
    length = Life().write(_NEVER)
    for power_cut in (False, True):
        yield from (Kill(power_cut, after) for after in range(1, length, every))
        yield Kill(power_cut, None)


def main() -> None:
    import sys  # noqa: PLC0415 - by hand only

    left = [0, 0, 0]
    for kill in kills(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        try:
            left[kill.run()] += 1
        except BaseException:
            print(kill)
            raise
    print(f"{sum(left)} kills while a backup was written: {left[1]} left the one before, {left[2]} both; all equal")


if __name__ == "__main__":
    main()
