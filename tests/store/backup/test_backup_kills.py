"""Kills and power cuts while a backup is written, some of them: `backup_sweep` has all."""

from __future__ import annotations

import pytest

from tests.store.backup.backup_sweep import Kill


@pytest.mark.parametrize("kill", [Kill(after % 2 == 0, after) for after in (1, 10, 25, 40, 55, 70, 85)], ids=str)
def test_a_kill_while_a_backup_is_written_harms_neither_the_log_nor_a_backup(kill: Kill) -> None:
    assert kill.run() == 1


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_backup_that_was_answered_is_there_after_a_kill(power_cut: bool) -> None:
    assert Kill(power_cut, None).run() == 2
